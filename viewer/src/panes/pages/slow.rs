//! Why a kernel is slow: the estimate by part beside the time, roofs, occupancy, and what other choices would cost.

use super::model::{Modelled, Modeller, Question};
use crate::canvas::colour::milliseconds;
use crate::panes::kernel;
use crate::state::{Tab, Viewer};
use crate::units::rate as of_rate;
use crate::words;
use compiler::schedule::estimate::{Cost, KernelEstimate};
use compiler::schedule::rules::{Alternative, Choice};
use egui::{Align2, Color32, FontId, Grid, Rect, RichText, Sense, Ui, pos2, vec2};
use graphview::reasons::{Roofs, Speed, ceilings_of};

/// The colours of the parts of an estimate, in the order of [`Cost::parts`].
const PARTS: [Color32; 6] = [
    Color32::from_rgb(69, 117, 180),
    Color32::from_rgb(116, 173, 209),
    Color32::from_rgb(253, 174, 97),
    Color32::from_rgb(215, 48, 39),
    Color32::from_rgb(153, 153, 153),
    Color32::from_rgb(84, 39, 136),
];
const MEASURED: Color32 = Color32::from_rgb(40, 120, 220);
/// What the parts are, in the same order.
const ABOUT: [&str; 6] =
    ["scalar operations", "loads and stores", "workgroup memory", "device memory", "idle cores", "fixed price"];
/// Width of the bars.
const WIDE: f32 = 460.0;

/// Draws the page of the chosen kernel.
pub(super) fn show(ui: &mut Ui, v: &mut Viewer) {
    if v.trace().kernels.is_empty() {
        ui.label("This trace has no kernels: nothing in it runs on a device.");
        return;
    }
    ui.scope(|ui| {
        ui.set_max_width(WIDE + 120.0);
        kernel::choose(ui, v);
    });
    let at = v.kernel();
    let (document, ctx) = (v.document().clone(), ui.ctx().clone());
    let modeller = v.pages.modeller.get_or_insert_with(|| Modeller::start(document, move || ctx.request_repaint()));
    let model = modeller.get(&Question::Kernel(at));
    let known = v.kernel_facts();
    let (speed, roofs) = (known.speed, known.roofs);
    verdict(ui, v, speed.as_ref(), &roofs, model.as_deref());
    if speed.is_none() && v.host.is_some() && v.again.progress().is_none() && ui.button("Run it now").clicked() {
        let w = &mut v.again.wanted;
        (w.times, w.errors) = (true, false);
        // It is the same compilation, with times.
        v.again.beside = false;
        v.start_again(ui.ctx());
    }
    ui.add_space(6.0);
    match &model {
        None => {
            ui.spinner();
        }
        Some(m) => {
            bars(ui, speed.as_ref(), m.estimate.as_ref());
            facts(ui, v, speed.as_ref(), &roofs, m.estimate.as_ref());
            ui.add_space(8.0);
            ui.strong("Its choices, and what others would cost");
            choices(ui, v, m);
        }
    }
}

/// Shows the kernel that takes longest over all its dispatches, where they were timed.
pub(super) fn take_longest(v: &mut Viewer) {
    let time = |k: usize| v.trace().time_of_kernel(k).map(|t| (k, t.us));
    let all = (0..v.trace().kernels.len()).filter_map(time);
    if let Some((kernel, _)) = all.max_by(|a, b| a.1.total_cmp(&b.1)) {
        v.show_kernel(kernel);
    }
}

fn of_us(us: f64) -> String {
    milliseconds(us / 1e3)
}

/// What matters most, in sentences.
fn verdict(ui: &mut Ui, v: &Viewer, speed: Option<&Speed>, roofs: &Roofs, model: Option<&Modelled>) {
    let k = &v.trace().kernels[v.kernel()];
    let layers: Vec<&str> = k.groups.iter().take(3).map(|&g| v.trace().groups[g].label.as_str()).collect();
    let more = k.groups.len().saturating_sub(layers.len());
    ui.weak(format!("{}{}", layers.join(", "), if more > 0 { format!(" and {more} more") } else { String::new() }));
    let Some(s) = speed else {
        ui.label("It was not timed: `weft bench MODEL -o F.trace` stores times.");
        return;
    };
    let calls = if s.dispatches == 1 { "one dispatch".into() } else { format!("{} dispatches", s.dispatches) };
    ui.label(format!("{} each, {calls}: {:.1} % of the run.", of_us(s.us), 100.0 * s.share));
    if let Some((roof, share)) = s.shares(roofs).first() {
        let from = if roofs.measured { "measured on this device" } else { "the profile's" };
        let above = ceilings_of(v.trace()).and_then(|c| c.above_roof(s.gflops, s.gb_s));
        let said = match above {
            None => format!("It reaches {:.1} % of the nearer roof, {roof} ({from}).", 100.0 * share),
            Some(why) => format!("It reaches {why}."),
        };
        words::label(ui, &said);
    }
    let estimate = model.and_then(|m| m.estimate.as_ref());
    if let Some(e) = estimate {
        let us = e.total() / 1e3;
        let by = e.cost.bound();
        let times = s.us / us;
        let said = format!("The estimate is {}, most of it {by}; the time is {times:.2} times that.", of_us(us));
        words::label(ui, &said);
    }
    if let Some((own, best)) = model.and_then(cheapest) {
        let choice = best.choice.as_ref().map_or(String::new(), Choice::to_string);
        let gain = 100.0 * (1.0 - best.total().unwrap_or(own) / own);
        if gain > 1.0 {
            ui.strong(format!("With {choice} the estimate is {gain:.0} % less: try it in the schedule."));
        }
    }
}

/// The estimate of the schedule at hand, and the cheapest other one.
fn cheapest(m: &Modelled) -> Option<(f64, &Alternative)> {
    let (own, others) = m.alternatives.as_ref()?.as_ref().ok()?.split_first()?;
    let known = others.iter().filter(|o| o.total().is_some());
    Some((own.total()?, known.min_by(|a, b| a.total().unwrap_or(f64::MAX).total_cmp(&b.total().unwrap_or(f64::MAX)))?))
}

/// The time as a bar above the parts of the estimate.
fn bars(ui: &mut Ui, speed: Option<&Speed>, estimate: Option<&KernelEstimate>) {
    let parts = estimate.map_or(0.0, |e| e.cost.parts().iter().map(|p| p.1).sum::<f64>() / 1e3);
    let most = speed.map_or(0.0, |s| s.us).max(parts).max(f64::MIN_POSITIVE);
    if let Some(s) = speed {
        stack(ui, "measured", &[(MEASURED, s.us)], most);
    }
    let Some(e) = estimate else {
        ui.weak(
            "There is no estimate: the trace has no tensor functions, or is for a device that this Weft does not know.",
        );
        return;
    };
    let list: Vec<(Color32, f64)> = e.cost.parts().iter().zip(PARTS).map(|((_, ns), c)| (c, ns / 1e3)).collect();
    stack(ui, "estimated", &list, most);
    legend(ui, &e.cost);
}

fn stack(ui: &mut Ui, name: &str, parts: &[(Color32, f64)], most: f64) {
    const NAME: f32 = 80.0;
    let (rect, _) = ui.allocate_exact_size(vec2(WIDE + NAME, 18.0), Sense::hover());
    let ink = ui.visuals().text_color();
    ui.painter().text(rect.left_center(), Align2::LEFT_CENTER, name, FontId::proportional(12.0), ink);
    let mut left = rect.min.x + NAME;
    for (colour, us) in parts {
        let width = (us / most) as f32 * WIDE;
        let place = Rect::from_min_size(pos2(left, rect.min.y + 2.0), vec2(width, 14.0));
        ui.painter().rect_filled(place, 0.0, *colour);
        left += width;
    }
}

fn legend(ui: &mut Ui, cost: &Cost) {
    ui.horizontal_wrapped(|ui| {
        let parts = cost.parts().into_iter().zip(PARTS).zip(ABOUT);
        for (((name, ns), colour), about) in parts.filter(|p| p.0.0.1 > 0.0) {
            let (rect, _) = ui.allocate_exact_size(vec2(10.0, 10.0), Sense::hover());
            ui.painter().rect_filled(rect, 1.0, colour);
            let text = RichText::new(format!("{name} ({about}) {}", of_us(ns / 1e3))).small();
            words::hover(ui.label(text), name);
        }
        if cost.hidden > 0.0 {
            ui.weak(RichText::new(format!("{} of them overlap", of_us(cost.hidden / 1e3))).small());
        }
    });
}

fn facts(ui: &mut Ui, v: &Viewer, speed: Option<&Speed>, roofs: &Roofs, estimate: Option<&KernelEstimate>) {
    let roof = |rate: f64, roof: Option<f64>, unit: &str| match roof {
        Some(r) => format!("{} of {} {unit} ({:.1} %)", of_rate(rate), of_rate(r), 100.0 * rate / r),
        None => format!("{} {unit}", of_rate(rate)),
    };
    let mut rows: Vec<(&str, String)> = vec![];
    if let Some(s) = speed {
        let matrix = roofs.matrix_gflops.map_or(String::new(), |m| format!("; matrix units reach {m:.0}"));
        rows.push(("arithmetic", roof(s.gflops, roofs.f32_gflops, "GFLOP/s") + &matrix));
        rows.push(("traffic", roof(s.gb_s, roofs.gb_s, "GB/s")));
        let knee = roofs.f32_gflops.zip(roofs.gb_s).map(|(f, b)| f / b);
        let side = |k: f64| format!("; above {k:.1} arithmetic is the roof, below it memory");
        rows.push(("intensity", format!("{:.1} FLOP a byte{}", s.intensity, knee.map_or(String::new(), side))));
    }
    let drivers = v.trace().driver_stats.as_ref().and_then(|s| s.kernels.get(v.kernel()));
    let figures = drivers.into_iter().flatten().map(|e| e.figures());
    let occupancy = figures.into_iter().find_map(|f| f.occupancy.zip(f.occupancy_of));
    let driver = occupancy.map(|(n, of)| format!("{n} subgroups a {of}, says the driver"));
    let model = estimate.map(|e| format!("{} workgroups of {} threads", e.workgroups, e.threads));
    rows.extend(driver.or(model).map(|text| ("occupancy", text)));
    ui.add_space(4.0);
    Grid::new("rates").num_columns(2).spacing([16.0, 3.0]).show(ui, |ui| {
        for (name, text) in rows {
            ui.weak(name);
            words::label(ui, &text);
            ui.end_row();
        }
    });
}

fn choices(ui: &mut Ui, v: &mut Viewer, m: &Modelled) {
    let list = match m.alternatives.as_ref() {
        Some(Ok(list)) => list,
        Some(Err(why)) => {
            ui.weak(format!("Not known: {why}"));
            return;
        }
        None => return,
    };
    let Some((own, others)) = list.split_first() else { return };
    let made: Vec<String> = own.choices.iter().map(Choice::to_string).collect();
    let said =
        if made.is_empty() { "It was made with no choices.".into() } else { format!("Made with {}", made.join(", ")) };
    words::label(ui, &said);
    if ui.button("Schedule").on_hover_text("Change a choice and see what it does").clicked() {
        v.pages.shown = None;
        (v.tab, v.dock, v.kernel_pane.form) = (Tab::Kernel, true, kernel::Form::Schedule);
    }
    let (known, refused): (Vec<&Alternative>, Vec<&Alternative>) = others.iter().partition(|o| o.total().is_some());
    let most = known.iter().filter_map(|o| o.total()).chain(own.total()).fold(f64::MIN_POSITIVE, f64::max);
    Grid::new("choices").num_columns(4).spacing([16.0, 2.0]).striped(true).show(ui, |ui| {
        ["choice", "estimate", "of this one", "most of it"].iter().for_each(|h| {
            ui.weak(*h);
        });
        ui.end_row();
        for a in std::iter::once(&own).chain(&known) {
            let Some(total) = a.total() else { continue };
            let name = a.choice.as_ref().map_or_else(|| "this one".to_string(), Choice::to_string);
            let text = RichText::new(&name);
            words::hover(ui.label(if a.choice.is_none() { text.strong() } else { text }), &name);
            bar(ui, total, most);
            let ratio = own.total().map_or(String::new(), |o| format!("{:.2}", total / o));
            ui.label(ratio);
            words::label(ui, a.estimate.as_ref().map_or("", |e| e.cost.bound()));
            ui.end_row();
        }
    });
    if !refused.is_empty() {
        ui.weak(format!("{} others are not possible:", refused.len()));
    }
    for a in refused.iter().take(12) {
        let why = a.estimate.as_ref().err().and_then(|w| w.lines().next()).unwrap_or("");
        let name = a.choice.as_ref().map_or(String::new(), Choice::to_string);
        let said = format!("{name}: {why}");
        words::hover(ui.label(RichText::new(&said).small().weak()), &said);
    }
}

fn bar(ui: &mut Ui, ns: f64, most: f64) {
    let (rect, _) = ui.allocate_exact_size(vec2(240.0, 15.0), Sense::hover());
    let width = (ns / most) as f32 * 170.0;
    let place = Rect::from_min_size(rect.min + vec2(0.0, 3.0), vec2(width, 9.0));
    ui.painter().rect_filled(place, 1.0, PARTS[0]);
    let ink = ui.visuals().text_color();
    let at = pos2(place.max.x + 5.0, rect.center().y);
    ui.painter().text(at, Align2::LEFT_CENTER, of_us(ns / 1e3), FontId::proportional(11.0), ink);
}
