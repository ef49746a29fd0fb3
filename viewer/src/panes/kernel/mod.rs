//! A kernel: its tensor function, its schedule and its shaders, with the origin of each line.

mod code;
mod columns;
mod edit;
mod editing;
mod fold;
mod forms;
mod pane;
mod part;
mod sweep;
mod syntax;
mod trying;

pub use columns::columns;
pub use editing::Edit;
pub use forms::{Access, Deriver, Forms, Listing};
pub use pane::{Form, KernelPane};
pub use part::KernelPart;
pub use syntax::{Class, Language, parts};

use crate::canvas::colour::milliseconds;
use crate::once::visit;
use crate::state::Viewer;
use crate::words;
use code::{code, point};
use compiler::trace::{CompileTrace, DispatchTime, Kernel};
use egui::{Color32, ComboBox, RichText, Ui};
use graphview::reasons::{Roofs, Speed};
use std::sync::Arc;

/// Draws the pane.
pub fn show(ui: &mut Ui, v: &mut Viewer) {
    if v.trace().kernels.is_empty() {
        ui.weak("This trace has no kernels: nothing in it runs on a device.");
        return;
    }
    choose(ui, v);
    take_forms(ui, v);
    facts(ui, v);
    let kernel = v.kernel();
    let edited = v.kernel_pane.edit.outcome(kernel).is_some();
    ui.horizontal_wrapped(|ui| {
        for form in v.trace_forms(edited) {
            let title = v.form_title(form);
            ui.selectable_value(&mut v.kernel_pane.form, form, title);
        }
        if ui.button("Side by side").on_hover_text("Several forms in the place of the graph (Ctrl J)").clicked() {
            v.kernel_pane.wide = true;
        }
    });
    ui.separator();
    let form = v.kernel_pane.form;
    if form == Form::Schedule && !v.trace().kernels[kernel].schedule.is_empty() {
        edit::show(ui, v);
    } else {
        let place = v.kernel_pane.place(kernel);
        if !place.is_empty() {
            ui.label(RichText::new(place.words(&v.trace().kernels[kernel])).small());
        }
        code(ui, v, form);
    }
    point(ui, v);
}

/// A choice of the kernel that is shown.
pub(crate) fn choose(ui: &mut Ui, v: &mut Viewer) {
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
        let combo = ComboBox::from_id_salt("kernels")
            .width(ui.available_width() - 8.0)
            .truncate()
            .selected_text(name)
            .show_ui(ui, |ui| {
                super::in_view(ui, t.kernels.len(), 20.0, |ui, i| {
                    let text = RichText::new(&t.kernels[i].name);
                    ui.selectable_value(&mut chosen, i, if v.marks_kernel(i) { text.strong() } else { text });
                });
            });
        combo.response.widget_info(|| egui::WidgetInfo::labeled(egui::Role::ComboBox, true, "Kernel"));
    });
    if chosen != v.kernel() {
        v.select_kernel(chosen);
    }
}

/// Sums over the dispatches of a kernel.
pub(crate) struct Facts {
    calls: u64,
    time: Option<DispatchTime>,
    /// Its speed, and the roofs of the device.
    pub(crate) speed: Option<Speed>,
    pub(crate) roofs: Roofs,
}

impl Viewer {
    /// The sums of the kernel that is shown.
    pub(crate) fn kernel_facts(&mut self) -> Arc<Facts> {
        let kernel = self.kernel();
        self.once(kernel, |v| {
            let t = v.trace();
            visit(t.calls().count());
            Facts {
                calls: t.dispatches_of_kernel(kernel),
                time: t.time_of_kernel(kernel),
                speed: Speed::of(t, kernel),
                roofs: Roofs::of(t),
            }
        })
    }
}

fn facts(ui: &mut Ui, v: &mut Viewer) {
    let facts = v.kernel_facts();
    let t = v.trace();
    let k = &t.kernels[v.kernel()];
    let size = |s: [u32; 3]| s.map(|n| n.to_string()).join("×");
    let calls = facts.calls;
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
            let about = words::about(&summary.join("\n"));
            ui.label(RichText::new("memory traffic").underline())
                .on_hover_text(format!("{worst}\n{}\n\n{about}", summary.join("\n")));
        }
        driver(ui, t, v.kernel());
        if let Some(time) = facts.time {
            ui.strong(milliseconds(time.us / 1000.0));
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

/// Asks for the forms of the kernel that is shown; they are there some frames later.
fn take_forms(ui: &Ui, v: &mut Viewer) {
    let (document, kernel, ctx) = (v.document().clone(), v.kernel(), ui.ctx().clone());
    let pane = &mut v.kernel_pane;
    let deriver = pane.deriver.get_or_insert_with(|| Deriver::start(document, move || ctx.request_repaint()));
    pane.forms = deriver.get(&kernel).map(|forms| (kernel, forms));
}
