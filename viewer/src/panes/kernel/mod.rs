//! A kernel: its tensor function, its schedule and its shaders, with the origin of each line.

mod edit;
mod forms;
mod part;
mod syntax;

pub use edit::Edit;
pub use forms::{Access, Deriver, Forms, Listing};
pub use part::KernelPart;
pub use syntax::{Class, Language, parts};

use crate::canvas::colour::milliseconds;
use crate::state::Viewer;
use compiler::trace::{CompileTrace, Kernel};
use egui::{Color32, ComboBox, FontId, Rect, Response, RichText, ScrollArea, Sense, Spinner, Ui, pos2, vec2};
use std::sync::Arc;

/// A form of a kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Form {
    /// The scheduled tensor function.
    Tensor,
    /// The instructions that made it.
    Schedule,
    /// WGSL, as it is in the trace.
    #[default]
    Wgsl,
    /// SPIR-V.
    Spirv,
    /// MSL.
    Msl,
    /// HLSL.
    Hlsl,
    /// The device's own instructions.
    Isa,
}
impl Form {
    /// Every form with its title.
    pub const ALL: [(Form, &'static str); 7] = [
        (Form::Tensor, "Tensor IR"),
        (Form::Schedule, "Schedule"),
        (Form::Wgsl, "WGSL"),
        (Form::Spirv, "SPIR-V"),
        (Form::Msl, "MSL"),
        (Form::Hlsl, "HLSL"),
        (Form::Isa, "ISA"),
    ];
    fn language(self) -> Language {
        match self {
            Form::Tensor | Form::Schedule => Language::Weft,
            Form::Spirv => Language::Spirv,
            _ => Language::Shader,
        }
    }
}

/// The state of the kernel pane.
#[derive(Default)]
pub struct KernelPane {
    /// The form.
    pub form: Form,
    /// The chosen place, and its kernel.
    place: Option<(usize, KernelPart)>,
    deriver: Option<Deriver>,
    /// The forms of the kernel that is shown, once they are made.
    forms: Option<(usize, Arc<Forms>)>,
    /// The lines that belong to the selection, with their kernel and form.
    own: Own,
    /// The schedule as it is being changed.
    pub edit: Edit,
    /// A line to bring into sight.
    go: Option<usize>,
    /// The selection was made here, so the pane need not scroll to it.
    here: bool,
}
impl KernelPane {
    /// Whether forms are being made.
    pub fn busy(&mut self) -> bool {
        self.deriver.as_mut().is_some_and(Deriver::busy) || self.edit.busy()
    }
    fn place(&self, kernel: usize) -> KernelPart {
        self.place.filter(|p| p.0 == kernel).map_or(KernelPart::default(), |p| p.1)
    }
}

/// Lines with their places, and whether each belongs to the selection.
#[derive(Default)]
struct Own {
    key: Option<(usize, Form, std::collections::BTreeSet<String>)>,
    lines: Vec<(KernelPart, bool)>,
}

/// Draws the pane.
pub fn show(ui: &mut Ui, v: &mut Viewer) {
    if v.trace().kernels.is_empty() {
        ui.weak("This trace has no kernels: nothing in it runs on a device.");
        return;
    }
    choose(ui, v);
    take_forms(ui, v);
    facts(ui, v);
    ui.horizontal_wrapped(|ui| {
        for (form, title) in Form::ALL {
            ui.selectable_value(&mut v.kernel_pane.form, form, title);
        }
    });
    ui.separator();
    if v.kernel_pane.form == Form::Schedule && !v.trace().kernels[v.kernel()].schedule.is_empty() {
        edit::show(ui, v);
        return;
    }
    match text(ui, v) {
        Ok(text) => code(ui, v, &text),
        Err(why) => {
            ui.add_space(8.0);
            ui.label(why);
        }
    }
}

fn choose(ui: &mut Ui, v: &mut Viewer) {
    let mut chosen = v.kernel();
    let count = v.trace().kernels.len();
    ui.horizontal(|ui| {
        if ui.small_button("‹").clicked() {
            chosen = (chosen + count - 1) % count;
        }
        if ui.small_button("›").clicked() {
            chosen = (chosen + 1) % count;
        }
        let t = v.trace();
        let name = RichText::new(&t.kernels[chosen].name).strong();
        let combo =
            ComboBox::from_id_salt("kernels").width(ui.available_width() - 8.0).selected_text(name).show_ui(ui, |ui| {
                for (i, k) in t.kernels.iter().enumerate() {
                    let text = RichText::new(&k.name);
                    ui.selectable_value(&mut chosen, i, if v.marks_kernel(i) { text.strong() } else { text });
                }
            });
        combo.response.widget_info(|| egui::WidgetInfo::labeled(egui::Role::ComboBox, true, "Kernel"));
    });
    if chosen != v.kernel() {
        v.select_kernel(chosen);
    }
}

fn facts(ui: &mut Ui, v: &mut Viewer) {
    let t = v.trace();
    let k = &t.kernels[v.kernel()];
    let size = |s: [u32; 3]| s.map(|n| n.to_string()).join("×");
    let calls = t.calls().filter(|c| c.kernel == v.kernel()).count();
    ui.horizontal_wrapped(|ui| {
        ui.label(format!("workgroup {}, grid {}", size(k.workgroup), size(k.grid)));
        let list = |k: &Kernel| -> String {
            let one = |b: &compiler::trace::Binding| {
                let slice = if b.slice > 0 { format!(", slice {}", b.slice) } else { String::new() };
                format!("{} ({}{slice})", b.buffer, if b.written { "written" } else { "read" })
            };
            k.bindings.iter().map(one).collect::<Vec<_>>().join("\n")
        };
        ui.label(format!("{} bindings", k.bindings.len())).on_hover_text(list(k));
        if k.shared_bytes > 0 {
            ui.label(format!("{} bytes shared", k.shared_bytes));
        }
        ui.label(&k.dtype);
        match k.bounds_proved {
            true => ui.colored_label(Color32::from_rgb(50, 150, 70), "bounds proved"),
            false => ui.colored_label(Color32::from_rgb(200, 110, 30), "bounds checked by the driver"),
        };
        ui.label(if calls == 1 { "1 dispatch".to_string() } else { format!("{calls} dispatches") });
        let summary = v.kernel_pane.forms.as_ref().map_or(&[][..], |f| f.1.summary.as_slice());
        if !summary.is_empty() {
            let worst = "Banks and sectors of each buffer, by analysis of its indices:";
            ui.label(RichText::new("memory traffic").underline())
                .on_hover_text(format!("{worst}\n{}", summary.join("\n")));
        }
        driver(ui, t, v.kernel());
        if let Some(time) = t.time_of_kernel(v.kernel()) {
            ui.strong(milliseconds(time.median_us / 1000.0));
        }
    });
}

/// The driver's figures of the kernel, for each executable; a tooltip has all of its statistics.
fn driver(ui: &mut Ui, t: &CompileTrace, kernel: usize) {
    let list = t.driver_stats.as_ref().and_then(|s| s.kernels.get(kernel));
    for e in list.into_iter().flatten() {
        let all = e.statistics.iter().map(|s| format!("{}: {}", s.name, s.value.to_json())).collect::<Vec<_>>();
        let f = e.figures();
        let parts = [
            Some(format!("subgroups of {}", e.subgroup_size)),
            f.registers.map(|n| format!("{n} registers")),
            f.live_registers.map(|n| format!("{n} registers live")),
            f.spills.map(|n| format!("{n} spills")),
            f.occupancy.zip(f.occupancy_of).map(|(n, of)| format!("{n} subgroups a {of}")),
            f.latency_cycles.map(|n| format!("{n} cycles")),
        ];
        let text: Vec<String> = parts.into_iter().flatten().collect();
        let colour = if f.spills > Some(0) { Color32::from_rgb(200, 110, 30) } else { ui.visuals().text_color() };
        ui.label(RichText::new(text.join(", ")).underline().color(colour)).on_hover_text(all.join("\n"));
    }
}

/// The text of the form that is shown, or what to say instead.
fn text(ui: &mut Ui, v: &mut Viewer) -> Result<String, String> {
    let (kernel, form) = (v.kernel(), v.kernel_pane.form);
    let k = &v.trace().kernels[kernel];
    match form {
        Form::Wgsl => return Ok(k.wgsl.clone()),
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
    if !forms.same {
        ui.colored_label(Color32::from_rgb(200, 110, 30), "This Weft makes another shader than the one in the trace.");
    }
    let text = match listing(&forms, form) {
        None => forms.tensor.clone(),
        Some(Ok(l)) => Ok(l.text.clone()),
        Some(Err(why)) => Err(why.clone()),
    };
    text.map_err(|why| format!("There is none: {why}"))
}

/// The forms that are made now, and know what their lines come from.
fn listing(forms: &Forms, form: Form) -> Option<&Result<Listing, String>> {
    match form {
        Form::Spirv => Some(&forms.spirv),
        Form::Msl => Some(&forms.msl),
        Form::Hlsl => Some(&forms.hlsl),
        _ => None,
    }
}

/// Asks for the forms of the kernel that is shown; they are there some frames later.
fn take_forms(ui: &Ui, v: &mut Viewer) {
    let (document, kernel, ctx) = (v.document().clone(), v.kernel(), ui.ctx().clone());
    let pane = &mut v.kernel_pane;
    let deriver = pane.deriver.get_or_insert_with(|| Deriver::start(document, move || ctx.request_repaint()));
    pane.forms = deriver.get(&kernel).map(|forms| (kernel, forms));
}

/// Lines with their numbers. Lines of the selection have a bar, lines of the chosen place a background.
fn code(ui: &mut Ui, v: &mut Viewer, text: &str) {
    let lines: Vec<&str> = text.lines().collect();
    note_own(v, &lines);
    let (kernel, form) = (v.kernel(), v.kernel_pane.form);
    let place = v.kernel_pane.place(kernel);
    if !place.is_empty() {
        ui.label(RichText::new(place.words(&v.trace().kernels[kernel])).small());
    }
    let font = FontId::monospace(12.0);
    let dark = ui.visuals().dark_mode;
    let height = ui.ctx().fonts_mut(|f| f.row_height(&font)) + 1.0;
    let digit = ui.ctx().fonts_mut(|f| f.glyph_width(&font, '0'));
    let gutter = digit * (lines.len().max(1).ilog10() + 1) as f32 + 16.0;
    let widest = lines.iter().map(|l| l.chars().count()).max().unwrap_or(0) as f32 * digit + gutter + 8.0;
    let mut clicked = None;
    ui.spacing_mut().item_spacing.y = 0.0;
    let mut area = ScrollArea::both();
    if let Some(line) = v.kernel_pane.go.take() {
        area = area.vertical_scroll_offset((line as f32 - 3.0).max(0.0) * height);
    }
    let salt = (kernel, Form::ALL.iter().position(|f| f.0 == form));
    area.id_salt(salt).auto_shrink(false).show_rows(ui, height, lines.len(), |ui, range| {
        for i in range {
            let width = widest.max(ui.available_width());
            let (rect, response) = ui.allocate_exact_size(vec2(width, height), Sense::click());
            let (at, own) = v.kernel_pane.own.lines[i];
            let accent = ui.visuals().selection.bg_fill;
            if place.covers(&v.trace().kernels[kernel], at) {
                ui.painter().rect_filled(rect, 0.0, accent.gamma_multiply(if dark { 0.6 } else { 0.5 }));
            } else if response.hovered() {
                ui.painter().rect_filled(rect, 0.0, ui.visuals().faint_bg_color);
            }
            if own {
                let bar = Rect::from_min_size(rect.min, vec2(3.0, height));
                ui.painter().rect_filled(bar, 0.0, Color32::from_rgb(40, 120, 220));
            }
            let weak = ui.visuals().weak_text_color().gamma_multiply(0.7);
            let number = pos2(rect.min.x + gutter - 8.0, rect.min.y);
            ui.painter().text(number, egui::Align2::RIGHT_TOP, (i + 1).to_string(), font.clone(), weak);
            let job = syntax::job(lines[i], form.language(), font.clone(), dark);
            let galley = ui.painter().layout_job(job);
            ui.painter().galley(pos2(rect.min.x + gutter, rect.min.y), galley, weak);
            if response.clicked() {
                clicked = Some(at);
            }
            // For screen readers and tests.
            response.widget_info(|| egui::WidgetInfo::labeled(egui::Role::Label, true, lines[i]));
            if response.hovered() {
                hover(response, v, at);
            }
        }
    });
    if let Some(at) = clicked {
        v.kernel_pane.place = Some((kernel, at));
        let nodes = at.nodes(v.trace(), kernel);
        v.kernel_pane.here = true;
        v.select_in_kernel(nodes);
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
    });
}

/// Notes which lines came from what is selected; only where something changed.
fn note_own(v: &mut Viewer, lines: &[&str]) {
    let (kernel, form) = (v.kernel(), v.kernel_pane.form);
    let key = (kernel, form, v.selected().clone());
    // The forms that know their lines come later than the text.
    if v.kernel_pane.own.key.as_ref() == Some(&key) && v.kernel_pane.own.lines.len() == lines.len() {
        return;
    }
    let t = v.trace();
    let k = &t.kernels[kernel];
    let forms = v.kernel_pane.forms.as_ref().map(|f| f.1.clone());
    let at = |(i, line): (usize, &&str)| match form {
        Form::Wgsl => KernelPart::of_wgsl(k, i),
        Form::Schedule => KernelPart::of_instruction(i),
        Form::Tensor => KernelPart::of_tensor(k, line),
        _ => match forms.as_ref().and_then(|f| listing(f, form)) {
            Some(Ok(l)) => KernelPart::of_span(k, &l.lines, i),
            _ => KernelPart::default(),
        },
    };
    let places: Vec<KernelPart> = lines.iter().enumerate().map(at).collect();
    let mut known: Vec<(KernelPart, bool)> = Vec::new();
    let mut out = Vec::with_capacity(places.len());
    for p in places {
        let own = match known.iter().find(|(q, _)| *q == p) {
            Some((_, own)) => *own,
            None => {
                let own = !p.is_empty() && p.nodes(t, kernel).iter().any(|n| key.2.contains(n));
                known.push((p, own));
                own
            }
        };
        out.push((p, own));
    }
    let pane = &mut v.kernel_pane;
    pane.go = out.iter().position(|(_, own)| *own).filter(|_| !std::mem::take(&mut pane.here));
    pane.own = Own { key: Some(key), lines: out };
}
