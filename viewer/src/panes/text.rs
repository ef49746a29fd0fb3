//! The module's text at a stage, with the changes of the pass.

use crate::document::Document;
use crate::once::{in_sight, visit};
use crate::state::Viewer;
use compiler::trace::line_origins;
use egui::{Color32, RichText, Ui};

/// Lines only the text after has.
const ADDED: Color32 = Color32::from_rgb(50, 150, 70);
/// Lines only the text before has.
const REMOVED: Color32 = Color32::from_rgb(200, 70, 70);

/// Which text of a stage is shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// The text that the pass found.
    Before,
    /// The text that it left.
    After,
    /// Both, with a mark on each line that only one has.
    Changes,
}
impl Mode {
    /// Every mode with its title.
    pub const ALL: [(Mode, &'static str); 3] =
        [(Mode::Before, "Before"), (Mode::After, "After"), (Mode::Changes, "Changes")];
}

/// Where a line stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LineMark {
    /// In both texts, or in the only one that is shown.
    Same,
    /// Only in the text after.
    Added,
    /// Only in the text before.
    Removed,
}

/// A line of a stage's text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Line {
    /// The text, without its end.
    pub text: String,
    /// Where it stands.
    pub mark: LineMark,
    /// Source nodes it came from.
    pub origins: Vec<String>,
}
impl Line {
    fn new(text: &str, mark: LineMark) -> Line {
        Line { text: text.trim_end_matches('\n').to_string(), mark, origins: line_origins(text) }
    }
}

/// The state of the text pane.
pub struct TextPane {
    /// Which text.
    pub mode: Mode,
    shown: Option<(usize, Mode)>,
    lines: Vec<Line>,
    /// The change that one is at.
    at: Option<usize>,
    /// It is to be brought into sight.
    go: bool,
}
impl Default for TextPane {
    fn default() -> Self {
        TextPane { mode: Mode::Changes, shown: None, lines: vec![], at: None, go: false }
    }
}
impl TextPane {
    /// The lines of a stage.
    pub fn lines(&mut self, document: &Document, stage: usize) -> &[Line] {
        if self.shown != Some((stage, self.mode)) {
            self.lines = lines_of(document, stage, self.mode);
            visit(self.lines.len());
            self.shown = Some((stage, self.mode));
            // A change far down is why one looks at changes.
            self.at = (self.mode == Mode::Changes).then(|| self.change(None, true)).flatten();
            self.go = self.at.is_some();
        }
        &self.lines
    }
    /// The first line of the next run of changed lines behind (or before) line `from`.
    fn change(&self, from: Option<usize>, forward: bool) -> Option<usize> {
        let changed = |i: usize| self.lines[i].mark != LineMark::Same;
        let starts = |i: &usize| changed(*i) && (*i == 0 || !changed(*i - 1));
        match forward {
            true => (from.map_or(0, |f| f + 1)..self.lines.len()).find(starts),
            false => (0..from.unwrap_or(self.lines.len())).rev().find(starts),
        }
    }
}

/// The lines of a stage's text.
pub fn lines_of(document: &Document, stage: usize, mode: Mode) -> Vec<Line> {
    let before = stage.checked_sub(1).map_or("", |s| document.text(s));
    let whole = |t: &str| t.lines().map(|l| Line::new(l, LineMark::Same)).collect();
    match mode {
        Mode::Before => whole(before),
        Mode::After => whole(document.text(stage)),
        Mode::Changes => {
            let mut out = Vec::new();
            let mut rest = before.split_inclusive('\n');
            for h in document.trace().stages.get(stage).map_or(&[][..], |s| &s.delta.hunks) {
                out.extend(rest.by_ref().take(h.keep as usize).map(|l| Line::new(l, LineMark::Same)));
                out.extend(rest.by_ref().take(h.drop as usize).map(|l| Line::new(l, LineMark::Removed)));
                out.extend(h.add.split_inclusive('\n').map(|l| Line::new(l, LineMark::Added)));
            }
            out.extend(rest.map(|l| Line::new(l, LineMark::Same)));
            out
        }
    }
}

/// Draws the pane.
pub fn show(ui: &mut Ui, v: &mut Viewer) {
    let (document, stage) = (v.document().clone(), v.stage());
    let mut jump = None;
    ui.horizontal_wrapped(|ui| {
        for (m, title) in Mode::ALL {
            ui.selectable_value(&mut v.text.mode, m, title);
        }
        ui.separator();
        if ui.button("‹ change").clicked() {
            jump = Some(false);
        }
        if ui.button("change ›").clicked() {
            jump = Some(true);
        }
        ui.checkbox(&mut v.only_selected, "Only what is selected");
    });
    v.text.lines(&document, stage);
    if let Some(forward) = jump {
        v.text.at = v.text.change(v.text.at, forward).or_else(|| v.text.change(None, forward));
        v.text.go = v.text.at.is_some();
    }
    let own = v.only_selected.then(|| v.selection());
    let shown = v.once((stage, v.text.mode, own), |v| {
        visit(v.text.lines.len());
        let all = 0..v.text.lines.len();
        all.filter(|&i| own.is_none() || v.marks(&v.text.lines[i].origins)).collect::<Vec<usize>>()
    });
    if shown.is_empty() {
        ui.weak(if v.only_selected { "No line came from what is selected." } else { "This stage has no text." });
        return;
    }
    let goal = v.text.at.filter(|_| std::mem::take(&mut v.text.go));
    let goal = goal.map(|line| shown.iter().position(|&i| i >= line).unwrap_or(0));
    let mut chosen = None;
    list(ui, v, &shown, goal, &mut chosen);
    if let Some(i) = chosen {
        let origins = v.text.lines[i].origins.clone();
        v.select(origins);
    }
}

fn list(ui: &mut Ui, v: &Viewer, shown: &[usize], goal: Option<usize>, chosen: &mut Option<usize>) {
    let height = ui.text_style_height(&egui::TextStyle::Monospace) + 2.0;
    ui.spacing_mut().item_spacing.y = 2.0;
    let mut area = egui::ScrollArea::both().id_salt("text").auto_shrink(false);
    if let Some(row) = goal {
        // Some lines above it say where one is.
        area = area.vertical_scroll_offset((row as f32 - 4.0).max(0.0) * (height + 2.0));
    }
    area.show_rows(ui, height, shown.len(), |ui, range| {
        in_sight(range.len());
        visit(range.len());
        for &i in &shown[range] {
            let line = &v.text.lines[i];
            let mark = match line.mark {
                LineMark::Same => "  ",
                LineMark::Added => "+ ",
                LineMark::Removed => "- ",
            };
            let text = RichText::new(format!("{mark}{}", line.text)).monospace();
            let text = match line.mark {
                LineMark::Same => text,
                LineMark::Added => text.color(ADDED),
                LineMark::Removed => text.color(REMOVED),
            };
            let clicked = ui
                .push_id(i, |ui| match line.origins.is_empty() {
                    true => {
                        ui.add(egui::Label::new(text).extend());
                        false
                    }
                    false => ui.selectable_label(v.marks(&line.origins), text).clicked(),
                })
                .inner;
            if clicked {
                *chosen = Some(i);
            }
        }
    });
}
