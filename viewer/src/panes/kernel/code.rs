//! Lines of a form with their numbers and the colours of their blocks. Lines of the selection have a bar, those of the
//! chosen place and of the place under the pointer a background, in all forms that are shown.

use super::fold::{ListRow, fold_runs};
use super::forms::{Forms, Listing};
use super::pane::{Form, Own};
use super::part::KernelPart;
use super::syntax::{self, Language};
use crate::canvas::colour::pastel;
use crate::canvas::scale::diverging;
use crate::once::{in_sight, visit};
use crate::state::Viewer;
use crate::words;
use compiler::trace::{Kernel, TextDelta};
use egui::{Align2, Color32, FontId, Rect, Response, RichText, ScrollArea, Sense, Spinner, Ui, pos2, vec2};
use std::sync::Arc;

/// Draws the lines of a form.
pub(super) fn code(ui: &mut Ui, v: &mut Viewer, form: Form) {
    if let Err(why) = note_own(ui, v, form) {
        ui.add_space(8.0);
        ui.label(why);
        return;
    }
    let derived = !matches!(form, Form::Wgsl | Form::Schedule | Form::Edited | Form::Isa);
    if derived && v.kernel_pane.forms.as_ref().is_some_and(|f| !f.1.same) {
        ui.colored_label(Color32::from_rgb(200, 110, 30), "This Weft makes another shader than the one in the trace.");
    }
    listed(ui, v, form);
}

/// Draws the lines that were taken.
fn listed(ui: &mut Ui, v: &mut Viewer, form: Form) {
    let kernel = v.kernel();
    let Some(own) = v.kernel_pane.own.get(&form) else { return };
    let (lines, longest, rows) = (own.texts.clone(), own.longest, own.rows.clone());
    let font = FontId::monospace(12.0);
    let height = ui.ctx().fonts_mut(|f| f.row_height(&font)) + 1.0;
    let digit = ui.ctx().fonts_mut(|f| f.glyph_width(&font, '0'));
    let gutter = digit * (lines.len().max(1).ilog10() + 1) as f32 + 24.0;
    let widest = longest as f32 * digit + gutter + 8.0;
    ui.spacing_mut().item_spacing.y = 0.0;
    let mut area = ScrollArea::both();
    if let Some(line) = v.kernel_pane.go.remove(&form) {
        let holds = |r: &ListRow| match *r {
            ListRow::Line(i) => i >= line,
            ListRow::More { first, count, .. } => first + count > line,
        };
        let row = rows.iter().position(holds).unwrap_or(0);
        area = area.vertical_scroll_offset((row as f32 - 3.0).max(0.0) * height);
    }
    let salt = (kernel, Form::ALL.iter().position(|f| f.0 == form));
    let (mut clicked, mut opened) = (None, None);
    area.id_salt(salt).auto_shrink(false).show_rows(ui, height, rows.len(), |ui, range| {
        in_sight(range.len());
        visit(range.len());
        for row in &rows[range] {
            let width = widest.max(ui.available_width());
            let (rect, response) = ui.allocate_exact_size(vec2(width, height), Sense::click());
            let sheet = Sheet { v: &*v, form, font: &font, gutter, rect };
            match *row {
                ListRow::Line(i) => {
                    let at = sheet.line(ui, &response, i, &lines[i]);
                    if response.clicked() {
                        clicked = Some(at);
                    }
                    if response.hovered() {
                        v.kernel_pane.pointed[1] = Some(at);
                        hover(response, v, at);
                    }
                }
                ListRow::More { first, count, period } => {
                    let text = match period {
                        1 => format!("... {count} more like this"),
                        p => format!("... {} more of these {p} lines", count / p),
                    };
                    sheet.more(ui, &response, &text);
                    if response.on_hover_text("Click to show them").clicked() {
                        opened = Some(first);
                    }
                }
            }
        }
    });
    if let Some(first) = opened {
        v.kernel_pane.opened.insert((form, first));
        v.kernel_pane.own.remove(&form);
    }
    if let Some(at) = clicked {
        choose(v, form, at);
    }
}

/// Chooses the place of a line; every other form goes to its first line of it.
fn choose(v: &mut Viewer, form: Form, at: KernelPart) {
    let kernel = v.kernel();
    v.kernel_pane.place = Some((kernel, at));
    v.kernel_pane.here = Some(form);
    let k = &v.trace().kernels[kernel];
    let first = |own: &Own| own.lines.iter().position(|(other, _)| at.covers(k, *other));
    let others = v.kernel_pane.own.iter().filter(|(f, _)| **f != form);
    let go: Vec<(Form, usize)> = others.filter_map(|(f, own)| Some((*f, first(own)?))).collect();
    let nodes = at.nodes(v.trace(), kernel);
    v.select_in_kernel(nodes);
    v.kernel_pane.go.extend(go);
}

/// A row being painted.
struct Sheet<'a> {
    v: &'a Viewer,
    form: Form,
    font: &'a FontId,
    gutter: f32,
    rect: Rect,
}

impl Sheet<'_> {
    /// Paints a line; gives its place.
    fn line(&self, ui: &Ui, response: &Response, i: usize, text: &str) -> KernelPart {
        let (v, rect, dark) = (self.v, self.rect, ui.visuals().dark_mode);
        let kernel = v.kernel();
        let k = &v.trace().kernels[kernel];
        let own = v.kernel_pane.own.get(&self.form);
        let (at, selected) = own.and_then(|o| o.lines.get(i)).copied().unwrap_or_default();
        let lit = |p: KernelPart| !p.is_empty() && p.covers(k, at);
        let accent = ui.visuals().selection.bg_fill;
        let block = at.block.map(|b| pastel(b, dark));
        if let Some(colour) = block {
            ui.painter().rect_filled(rect, 0.0, colour.gamma_multiply(if dark { 0.22 } else { 0.28 }));
        }
        if own.is_some_and(|o| o.differs.get(i) == Some(&true)) {
            let colour = diverging(if self.form == Form::Edited { -1.0 } else { 1.0 }, dark);
            ui.painter().rect_filled(rect, 0.0, colour.gamma_multiply(0.22));
        }
        if lit(v.kernel_pane.place(kernel)) {
            ui.painter().rect_filled(rect, 0.0, accent.gamma_multiply(if dark { 0.6 } else { 0.5 }));
        } else if response.hovered() || v.kernel_pane.pointed[0].is_some_and(lit) {
            ui.painter().rect_filled(rect, 0.0, accent.gamma_multiply(if dark { 0.3 } else { 0.25 }));
        }
        if selected {
            let bar = Rect::from_min_size(rect.min, vec2(3.0, rect.height()));
            ui.painter().rect_filled(bar, 0.0, Color32::from_rgb(40, 120, 220));
        }
        if let Some(colour) = block {
            let bar = Rect::from_min_size(pos2(rect.min.x + self.gutter - 7.0, rect.min.y), vec2(4.0, rect.height()));
            ui.painter().rect_filled(bar, 0.0, colour);
        }
        let weak = ui.visuals().weak_text_color().gamma_multiply(0.7);
        let number = pos2(rect.min.x + self.gutter - 12.0, rect.min.y);
        ui.painter().text(number, Align2::RIGHT_TOP, (i + 1).to_string(), self.font.clone(), weak);
        let job = syntax::job(text, v.language(self.form), self.font.clone(), dark);
        let galley = ui.painter().layout_job(job);
        ui.painter().galley(pos2(rect.min.x + self.gutter, rect.min.y), galley, weak);
        // For screen readers and tests.
        response.widget_info(|| egui::WidgetInfo::labeled(egui::Role::Label, true, text));
        at
    }

    /// Paints what stands for lines that are folded away.
    fn more(&self, ui: &Ui, response: &Response, text: &str) {
        let ink = if response.hovered() { ui.visuals().text_color() } else { ui.visuals().weak_text_color() };
        let at = pos2(self.rect.min.x + self.gutter + 16.0, self.rect.min.y);
        ui.painter().text(at, Align2::LEFT_TOP, text, FontId::proportional(11.0), ink);
        response.widget_info(|| egui::WidgetInfo::labeled(egui::Role::Button, true, text));
    }
}

/// The tooltip of a line: its place, and the memory accesses of its block.
fn hover(response: Response, v: &Viewer, at: KernelPart) {
    let k = &v.trace().kernels[v.kernel()];
    let Some(block) = at.block.map(|b| k.blocks[b].name.as_str()) else { return };
    let forms = v.kernel_pane.forms.as_ref();
    let all = forms.map_or(&[][..], |f| f.1.accesses.as_slice());
    let own: Vec<&str> = all.iter().filter(|a| a.block == block).map(|a| a.text.as_str()).collect();
    response.on_hover_ui_at_pointer(|ui| {
        ui.set_max_width(560.0);
        ui.strong(at.words(k));
        own.iter().for_each(|text| {
            ui.label(RichText::new(*text).small());
        });
        ui.weak(RichText::new(words::about(&own.join("\n"))).small());
    });
}

/// The text of the form that is shown, or a message in its place.
fn text(ui: &mut Ui, v: &mut Viewer, form: Form) -> Result<String, String> {
    let kernel = v.kernel();
    if form == Form::Edited {
        let edited = v.edited_wgsl(kernel).map(|both| both.1);
        return edited.ok_or_else(|| "Nothing was tried yet: edit the schedule.".into());
    }
    let k = &v.trace().kernels[kernel];
    match form {
        Form::Wgsl => return Ok(k.wgsl.clone()),
        Form::Schedule if !k.schedule.is_empty() => return Ok(v.kernel_pane.edit.text.clone()),
        Form::Schedule => {
            return Err("The loops are as the tensor function has them: no instruction changed them.".into());
        }
        Form::Isa => {
            let stats = v.trace().driver_stats.as_ref();
            return stats.and_then(|s| s.isa(kernel)).ok_or_else(|| match stats {
                Some(s) => format!("There is none: the driver of {} gives no text of its instructions.", s.device),
                None => "Not in the trace: the device's own instructions are what its driver's compiler makes of the SPIR-V. \
                         `weft compile MODEL --device N --emit isa -o F.trace` and `weft bench MODEL --driver-stats -o F.trace` \
                         ask the driver for them, with its counts of registers and spills."
                    .into(),
            });
        }
        _ => {}
    }
    let Some(forms) = v.kernel_pane.forms.clone().filter(|f| f.0 == kernel).map(|f| f.1) else {
        ui.add(Spinner::new());
        return Err("Making it from the trace's tensor function ...".into());
    };
    let text = match listing(&forms, form) {
        None if form == Form::Lowered => forms.lowered.clone(),
        None => forms.tensor.clone(),
        Some(Ok(l)) => Ok(l.text.clone()),
        Some(Err(why)) => Err(why.clone()),
    };
    text.map_err(|why| format!("There is none: {why}"))
}

impl Viewer {
    /// The forms that kernels of this trace have. On a processor there are no shaders: what runs is the tensor IR.
    pub(super) fn trace_forms(&self, edited: bool) -> Vec<Form> {
        let all = Form::ALL.into_iter().map(|f| f.0).filter(|f| *f != Form::Edited || edited);
        let shader = |f: &Form| matches!(f, Form::Spirv | Form::Msl | Form::Hlsl | Form::Isa);
        all.filter(|f| !self.document().runs_tensor_ir() || !shader(f) && *f != Form::Tensor).collect()
    }
    /// The title of a form.
    pub(super) fn form_title(&self, form: Form) -> &'static str {
        match form {
            Form::Wgsl if self.document().runs_tensor_ir() => "Tensor IR",
            form => form.title(),
        }
    }
    /// The language that a form is written in.
    fn language(&self, form: Form) -> Language {
        match form {
            Form::Lowered | Form::Tensor | Form::Schedule => Language::Weft,
            Form::Wgsl | Form::Edited if self.document().runs_tensor_ir() => Language::Weft,
            Form::Spirv => Language::Spirv,
            _ => Language::Shader,
        }
    }
}

/// Takes the lines of a form and notes which came from what is selected; only where something changed.
///
/// # Errors
/// A message where there is no text.
fn note_own(ui: &mut Ui, v: &mut Viewer, form: Form) -> Result<(), String> {
    let kernel = v.kernel();
    // The forms that know their lines come later than the text.
    let edited = v.kernel_pane.edit.outcome(kernel).map(|o| o.schedule.join("\n"));
    let written = if form == Form::Schedule { v.kernel_pane.edit.text.clone() } else { String::new() };
    let key = (kernel, v.selection(), v.kernel_pane.forms.is_some(), edited, written);
    if v.kernel_pane.own.get(&form).is_some_and(|o| o.key.as_ref() == Some(&key)) {
        return Ok(());
    }
    let text = text(ui, v, form)?;
    let lines: Vec<&str> = text.lines().collect();
    let lines = lines.as_slice();
    visit(lines.len());
    let places = places(v, form, lines);
    let t = v.trace();
    let mut known: Vec<(KernelPart, bool)> = Vec::new();
    let mut out = Vec::with_capacity(places.len());
    for p in places {
        let own = match known.iter().find(|(q, _)| *q == p) {
            Some((_, own)) => *own,
            None => {
                let own = !p.is_empty() && p.nodes(t, kernel).iter().any(|n| v.selected().contains(n));
                known.push((p, own));
                own
            }
        };
        out.push((p, own));
    }
    let differs = differences(v, form);
    let pane = &mut v.kernel_pane;
    let opened = |first: usize| pane.opened.contains(&(form, first));
    let rows = match pane.folded {
        true => fold_runs(lines, &opened),
        false => (0..lines.len()).map(ListRow::Line).collect(),
    };
    let first = out.iter().position(|(_, own)| *own).filter(|_| pane.here != Some(form));
    if let Some(line) = first {
        pane.go.insert(form, line);
    }
    pane.here = pane.here.filter(|f| *f != form);
    let longest = lines.iter().map(|l| l.chars().count()).max().unwrap_or(0);
    let texts = lines.iter().map(|l| l.to_string()).collect();
    let own = Own { key: Some(key), lines: out, texts: Arc::new(texts), longest, rows: Arc::new(rows), differs };
    pane.own.insert(form, own);
    Ok(())
}

/// The place of each line.
fn places(v: &Viewer, form: Form, lines: &[&str]) -> Vec<KernelPart> {
    let k = &v.trace().kernels[v.kernel()];
    let forms = v.kernel_pane.forms.as_ref().map(|f| f.1.clone());
    let at = |i: usize| match form {
        Form::Wgsl => KernelPart::of_wgsl(k, i),
        Form::Schedule => KernelPart::of_instruction(i),
        _ => match forms.as_ref().and_then(|f| listing(f, form)) {
            Some(Ok(l)) => KernelPart::of_span(k, &l.lines, i),
            _ => KernelPart::default(),
        },
    };
    match form {
        Form::Lowered | Form::Tensor => tensor_places(k, lines),
        _ => (0..lines.len()).map(at).collect(),
    }
}

/// The places of a tensor function's lines: a line that opens no loop and no block is of the block around it.
fn tensor_places(k: &Kernel, lines: &[&str]) -> Vec<KernelPart> {
    let mut blocks: Vec<(usize, KernelPart)> = Vec::new();
    let one = |line: &&str| {
        let indent = line.len() - line.trim_start().len();
        blocks.retain(|(outer, _)| *outer < indent || line.trim().starts_with('}') && *outer == indent);
        let own = KernelPart::of_tensor(k, line);
        if own.block.is_some() {
            blocks.push((indent, own));
        }
        if own.is_empty() { blocks.last().map_or(own, |b| b.1) } else { own }
    };
    lines.iter().map(one).collect()
}

/// Which lines of the old WGSL the edited one has not, or the other way round; empty for other forms.
fn differences(v: &mut Viewer, form: Form) -> Vec<bool> {
    let kernel = v.kernel();
    let Some((old, new)) = v.edited_wgsl(kernel).filter(|_| matches!(form, Form::Wgsl | Form::Edited)) else {
        return vec![];
    };
    let mut out = vec![];
    let mut left = old.lines().count();
    for h in &TextDelta::between(&old, &new).hunks {
        let (keep, drop) = (h.keep as usize, h.drop as usize);
        left -= keep + drop;
        out.extend(std::iter::repeat_n(false, keep));
        let own = if form == Form::Wgsl { drop } else { h.add.lines().count() };
        out.extend(std::iter::repeat_n(true, own));
    }
    out.extend(std::iter::repeat_n(false, left));
    out
}

impl Viewer {
    /// WGSL of a kernel as it is and as the last attempt made it.
    pub(crate) fn edited_wgsl(&mut self, kernel: usize) -> Option<(String, String)> {
        let outcome = self.kernel_pane.edit.outcome(kernel)?;
        let old = &self.trace().kernels[kernel];
        let new = outcome.kernels.iter().find(|m| m.entry == old.entry).or(outcome.kernels.first())?;
        Some((old.wgsl.clone(), new.wgsl.clone()))
    }
}

/// The forms that are made now, and know what their lines come from.
pub(super) fn listing(forms: &Forms, form: Form) -> Option<&Result<Listing, String>> {
    match form {
        Form::Spirv => Some(&forms.spirv),
        Form::Msl => Some(&forms.msl),
        Form::Hlsl => Some(&forms.hlsl),
        _ => None,
    }
}

/// The place under the pointer is lit in the next frame, in all forms.
pub(super) fn point(ui: &Ui, v: &mut Viewer) {
    let [before, now] = v.kernel_pane.pointed;
    if before != now {
        ui.ctx().request_repaint();
    }
    v.kernel_pane.pointed = [now, None];
}
