//! Editing the schedule of a kernel: choices by a click, instructions as text, with the result beside the original.

use super::code::code;
use super::pane::Form;
use super::sweep;
use super::trying::{answer, ask, attempt_of};
use crate::canvas::colour::milliseconds;
use crate::live::attempt::{Outcome, Refusal};
use crate::state::Viewer;
use compiler::schedule::{Choose, InstrRef};
use compiler::text::{parse_instructions, print_instruction, print_value};
use egui::{
    CollapsingHeader, Color32, ComboBox, FontId, Label, RichText, Role, ScrollArea, Spinner, TextEdit, Ui, WidgetInfo,
};
use std::sync::Arc;

const GOOD: Color32 = Color32::from_rgb(40, 150, 70);
const BAD: Color32 = Color32::from_rgb(205, 70, 50);

/// Draws the schedule.
pub(super) fn show(ui: &mut Ui, v: &mut Viewer) {
    let kernel = v.kernel();
    let schedule = v.trace().kernels[kernel].schedule.clone();
    v.kernel_pane.edit.take(kernel, &schedule);
    let mut attempt = buttons(ui, v);
    attempt |= choices(ui, v);
    if attempt {
        let text = v.kernel_pane.edit.text.clone();
        let attempt = attempt_of(v, text);
        ask(v, attempt);
    }
    sweep::show(ui, v);
    outcome(ui, v);
    ui.separator();
    if v.kernel_pane.edit.writing {
        ScrollArea::both().id_salt("schedule text").auto_shrink(false).show(ui, |ui| {
            let text = TextEdit::multiline(&mut v.kernel_pane.edit.text).code_editor();
            let field = ui.add(text.font(FontId::monospace(12.0)).desired_width(f32::INFINITY));
            field.widget_info(|| egui::WidgetInfo::labeled(egui::Role::MultilineTextInput, true, "Schedule text"));
        });
    } else {
        code(ui, v, Form::Schedule);
    }
}

/// The buttons; true when the text is to be tried.
fn buttons(ui: &mut Ui, v: &mut Viewer) -> bool {
    let device = v.host.as_ref().map(|h| h.device());
    let edit = &mut v.kernel_pane.edit;
    let mut attempt = false;
    ui.horizontal_wrapped(|ui| {
        ui.toggle_value(&mut edit.writing, "Edit").on_hover_text("Write in the instructions");
        let tried = ui.add_enabled(edit.changed(), egui::Button::new("Try"));
        attempt = tried.on_hover_text("Apply it, check it, compile it, and run it where there is a device").clicked();
        if ui.add_enabled(edit.changed(), egui::Button::new("Reset")).clicked() {
            (edit.text, edit.asked, edit.sweep) = (edit.original.clone(), None, None);
        }
        match device {
            Some(Ok(name)) => ui.weak(RichText::new(format!("timed on {name}")).small()),
            Some(Err(why)) => ui.weak(RichText::new(format!("not timed: {why}")).small()),
            None => ui.weak(RichText::new("not timed: this window has no device").small()),
        };
    });
    attempt
}

/// The choices of the rules with their other values; true if another value was taken.
fn choices(ui: &mut Ui, v: &mut Viewer) -> bool {
    let mut lines: Vec<String> = v.kernel_pane.edit.text.lines().map(str::to_string).collect();
    let choose = |line: &String| -> Option<Choose> {
        let i = parse_instructions(line).ok().filter(|l| line.starts_with("choose ") && l.len() == 1)?;
        Choose::of_instruction(&i[0]).cloned()
    };
    let found: Vec<(usize, Choose)> = lines.iter().enumerate().filter_map(|(i, l)| Some((i, choose(l)?))).collect();
    let (mut taken, mut wanted) = (None, None);
    ui.horizontal_wrapped(|ui| {
        for (line, c) in &found {
            let mut domain: Vec<String> = c.of.iter().map(print_value).collect();
            domain.sort_by_key(|d| (d.parse::<i64>().unwrap_or(i64::MAX), d.clone()));
            let value = print_value(&c.value);
            let label = ui.weak(RichText::new(c.point.as_str()).small()).on_hover_text(format!("of {}", c.unit));
            let shown = if c.is_edited() { RichText::new(&value).color(GOOD) } else { RichText::new(&value) };
            let combo = ComboBox::from_id_salt(("choice", line)).selected_text(shown).width(54.0);
            let combo = combo.show_ui(ui, |ui| {
                for d in &domain {
                    if ui.selectable_label(*d == value, d).clicked() {
                        taken = c.of.iter().find(|a| print_value(a) == *d).map(|a| (*line, c.clone(), a.clone()));
                    }
                }
            });
            combo.response.labelled_by(label.id);
            if domain.len() > 1 {
                let all = ui.small_button("all").on_hover_text("Try all values of this choice");
                // There are several such buttons: screen readers and steps tell them apart.
                let name = format!("all values of {}", c.point);
                all.widget_info(|| WidgetInfo::labeled(Role::Button, true, &name));
                if all.clicked() {
                    wanted = Some((*line, c.clone()));
                }
            }
        }
    });
    if let Some((line, choose)) = wanted {
        sweep::start(v, &lines, line, &choose);
    }
    let Some((line, choose, value)) = taken else { return false };
    lines[line] = print_instruction(&InstrRef::new(Choose { value, ..choose }));
    v.kernel_pane.edit.text = lines.join("\n");
    true
}

/// The result of the last attempt.
fn outcome(ui: &mut Ui, v: &mut Viewer) {
    let Some(asked) = v.kernel_pane.edit.asked.clone() else { return };
    match answer(ui, v, &asked) {
        None => {
            ui.horizontal(|ui| {
                ui.add(Spinner::new());
                ui.label(if asked.timed {
                    "Applying, checking, compiling, running ..."
                } else {
                    "Applying, checking, compiling ..."
                });
            });
        }
        Some(Err(why)) => refused(ui, &why),
        Some(Ok(outcome)) => made(ui, v, &outcome),
    }
}

fn refused(ui: &mut Ui, why: &Refusal) {
    ui.colored_label(BAD, "Refused");
    ui.label(&why.message);
    ScrollArea::vertical().id_salt("refused").max_height(180.0).show(ui, |ui| {
        for line in &why.loops {
            let text = RichText::new(line).monospace().size(11.0);
            ui.label(if line.starts_with('>') { text.color(BAD).underline() } else { text.weak() });
        }
    });
}

fn made(ui: &mut Ui, v: &mut Viewer, o: &Arc<Outcome>) {
    let kernel = v.kernel();
    let old = v.trace().kernels[kernel].clone();
    ui.horizontal_wrapped(|ui| {
        ui.colored_label(GOOD, "Legal");
        match &o.times {
            Ok([before, after]) => {
                let ratio = after / before.max(1e-9);
                let colour = if ratio < 0.98 {
                    GOOD
                } else if ratio > 1.02 {
                    BAD
                } else {
                    ui.visuals().text_color()
                };
                let [before, after] = [before, after].map(|us| milliseconds(us / 1e3));
                ui.label(format!("{before} as it was, {after} so:"));
                ui.colored_label(colour, format!("{ratio:.2} times as long"));
            }
            Err(why) => {
                ui.weak(why);
            }
        }
    });
    let size = |s: [u32; 3]| s.map(|n| n.to_string()).join("×");
    for k in &o.kernels {
        let before = (k.entry == old.entry).then_some(&old);
        let was = |now: String, then: Option<String>| match then.filter(|t| *t != now) {
            Some(then) => format!("{now} (was {then})"),
            None => now,
        };
        let workgroup = was(size(k.workgroup), before.map(|b| size(b.workgroup)));
        let grid = was(size(k.grid), before.map(|b| size(b.grid)));
        let shared = was(k.shared_bytes.to_string(), before.map(|b| b.shared_bytes.to_string()));
        let lines = was(k.wgsl.lines().count().to_string(), before.map(|b| b.wgsl.lines().count().to_string()));
        let proved = if k.bounds_proved { "bounds proved" } else { "bounds checked by the driver" };
        let facts =
            format!("workgroup {workgroup}, grid {grid}, {shared} bytes shared, {lines} lines of WGSL, {proved}");
        ui.add(Label::new(RichText::new(facts).small()).wrap());
        CollapsingHeader::new(RichText::new(&k.entry).small()).id_salt(&k.entry).show(ui, |ui| {
            ScrollArea::both().id_salt("made").max_height(220.0).show(ui, |ui| {
                ui.label(RichText::new(&k.wgsl).monospace().size(11.0));
            });
        });
    }
    ui.horizontal(|ui| {
        let schedule = o.schedule.join("\n");
        if schedule != v.kernel_pane.edit.text && ui.small_button("Show what it became").clicked() {
            v.kernel_pane.edit.text = schedule;
        }
        if ui.small_button("Save the model as text").on_hover_text("For `weft run F.weft --weights MODEL`").clicked() {
            v.message = Some(crate::export::save(v, "edited.weft", &o.module));
        }
    });
    keep(ui, v, o);
}

/// Stores a schedule that was measured as faster, for later compilations.
fn keep(ui: &mut Ui, v: &mut Viewer, o: &Outcome) {
    let (Some(host), Ok([before, after])) = (v.host.clone(), &o.times) else { return };
    let Some(kept) = o.kept.as_ref().filter(|k| k.after != k.before) else { return };
    if after >= before {
        ui.weak("It is no faster, so it is not kept.");
        return;
    }
    let about = "Writes it into the tuning database: later compilations for this device use them";
    if ui.button("Keep").on_hover_text(about).clicked() {
        v.kernel_pane.edit.said = Some(match host.keep(kept, [*before, *after], o.estimated) {
            Ok(place) => format!("Kept in {place}: the next compilation for this device uses it."),
            Err(why) => format!("Not kept: {why}"),
        });
    }
    if let Some(said) = &v.kernel_pane.edit.said {
        ui.label(said);
    }
}
