//! Two compilations layer by layer: both times, their ratio and noise; for the chosen layer why they differ, and how
//! its kernels are scheduled on each side.

use crate::canvas::colour::milliseconds;
use crate::canvas::scale::diverging;
use crate::once::{in_sight, visit};
use crate::state::Viewer;
use crate::units::{CHARACTER, cut_apart, layer_name};
use compiler::trace::CompileTrace;
use compiler::trace::comparison::{Row, Source};
use compiler::trace::diff::KernelDiff;
use egui::{Align2, Color32, FontId, Rect, RichText, ScrollArea, Sense, Ui, pos2, vec2};

const ROW: f32 = 18.0;
/// Columns behind the layer, with their widths.
const COLUMNS: [(&str, f32); 5] =
    [("left", 58.0), ("right", 58.0), ("difference", 66.0), ("ratio", 36.0), ("noise", 48.0)];

/// Draws the pane.
pub fn show(ui: &mut Ui, v: &mut Viewer) {
    let Some(other) = &v.other else {
        ui.weak("There is one compilation alone: `weft view A.trace --beside B.trace` shows two.");
        return;
    };
    ui.strong(&other.headline);
    for f in &other.comparison.given {
        ui.weak(format!("{}: {} at the left, {} at the right", f.what, f.a, f.b));
    }
    ui.separator();
    let (chosen, key) = (other.row, std::sync::Arc::as_ptr(&other.document) as usize);
    let compared = v.once(key, |v| Compared::of(v));
    if compared.rows.is_empty() {
        ui.weak("Neither was timed, and there is no estimate: `weft bench MODEL -o F.trace` times a compilation.");
        return;
    }
    let room = if chosen.is_some() { (ui.available_height() * 0.5).max(120.0) } else { f32::INFINITY };
    let clicked =
        ui.allocate_ui(vec2(ui.available_width(), room.min(ui.available_height())), |ui| table(ui, v, &compared));
    if let Some(i) = clicked.inner {
        let origins = v.other.as_ref().map(|o| o.comparison.rows[i].origins.clone()).unwrap_or_default();
        v.select(origins);
        if let Some(o) = &mut v.other {
            o.row = Some(i);
        }
    }
    if chosen.is_some() {
        ui.separator();
        details(ui, v);
    }
}

fn columns(r: &Row, source: Source) -> [String; 5] {
    let time = |t: Option<compiler::trace::DispatchTime>| t.map_or("-".to_string(), |t| milliseconds(t.us / 1e3));
    let sign = if r.delta_us() < 0.0 { "-" } else { "+" };
    let noise = r.noise().filter(|_| source == Source::Measured);
    [
        time(r.times[0]),
        time(r.times[1]),
        format!("{sign}{}", milliseconds(r.delta_us().abs() / 1e3)),
        r.ratio().map_or(String::new(), |x| format!("{x:.2}")),
        noise.map_or(String::new(), |n| if n < 10.0 { format!("±{:.0} %", 100.0 * n) } else { "large".into() }),
    ]
}

/// Layers that were timed, those that changed first.
pub(crate) struct Compared {
    rows: Vec<usize>,
    /// The largest difference, in microseconds.
    most: f64,
}

impl Compared {
    fn of(v: &Viewer) -> Compared {
        let list = v.other.as_ref().map_or(&[][..], |o| &o.comparison.rows);
        visit(list.len());
        let mut rows: Vec<usize> = (0..list.len()).filter(|&i| list[i].times.iter().any(Option::is_some)).collect();
        let weight = |i: &usize| list[*i].delta_us().abs();
        rows.sort_by(|a, b| list[*b].changed.cmp(&list[*a].changed).then(weight(b).total_cmp(&weight(a))));
        Compared { most: rows.iter().map(weight).fold(f64::MIN_POSITIVE, f64::max), rows }
    }
}

/// The table; gives the row that was clicked.
fn table(ui: &mut Ui, v: &Viewer, Compared { rows, most }: &Compared) -> Option<usize> {
    let other = v.other.as_ref()?;
    let fixed: f32 = COLUMNS.iter().map(|c| c.1).sum();
    let layer = (ui.available_width() - fixed - 14.0).max(120.0);
    let dark = ui.visuals().dark_mode;
    let mut clicked = None;
    ui.spacing_mut().item_spacing.y = 0.0;
    let (head, _) = ui.allocate_exact_size(vec2(layer + fixed, ROW), Sense::hover());
    cells(ui, head, layer, ("layer", COLUMNS.map(|c| c.0.to_string())), true);
    ScrollArea::both().id_salt("difference").auto_shrink(false).show_rows(ui, ROW, rows.len(), |ui, range| {
        in_sight(range.len());
        visit(range.len());
        let names: Vec<&str> = rows[range.clone()].iter().map(|&i| other.comparison.rows[i].name.as_str()).collect();
        let room = ((layer - 20.0) / CHARACTER) as usize;
        let names = cut_apart(&names, room, |k, most| layer_name(names[k], most));
        for (&i, name) in rows[range].iter().zip(&names) {
            let r = &other.comparison.rows[i];
            let (rect, response) = ui.allocate_exact_size(vec2(layer + fixed, ROW), Sense::click());
            if other.row == Some(i) || v.marks(&r.origins) {
                ui.painter().rect_filled(rect, 0.0, ui.visuals().selection.bg_fill.gamma_multiply(0.5));
            } else if response.hovered() {
                ui.painter().rect_filled(rect, 0.0, ui.visuals().faint_bg_color);
            }
            if r.changed {
                let share = (r.delta_us().abs() / *most).sqrt().max(0.15).copysign(r.delta_us()) as f32;
                let patch = Rect::from_min_size(rect.min + vec2(2.0, 4.0), vec2(10.0, 10.0));
                ui.painter().rect_filled(patch, 2.0, diverging(share, dark));
            }
            cells(ui, rect, layer, (name, columns(r, other.comparison.source)), !r.changed);
            response.widget_info(|| egui::WidgetInfo::labeled(egui::Role::Label, true, &r.name));
            let about = r.reason.as_ref().map_or(r.name.clone(), |why| format!("{}\n{why}", r.name));
            if response.on_hover_text(about).clicked() {
                clicked = Some(i);
            }
        }
    });
    clicked
}

fn cells(ui: &Ui, rect: Rect, layer: f32, (name, texts): (&str, [String; 5]), weak: bool) {
    let ink = if weak { ui.visuals().weak_text_color() } else { ui.visuals().text_color() };
    let font = FontId::proportional(12.0);
    let place = Rect::from_min_size(rect.min, vec2(layer, ROW));
    let painter = ui.painter().with_clip_rect(place.intersect(ui.clip_rect()));
    painter.text(place.left_center() + vec2(16.0, 0.0), Align2::LEFT_CENTER, name, font.clone(), ink);
    let mut right = rect.min.x + layer;
    for (text, (_, width)) in texts.iter().zip(COLUMNS) {
        right += width;
        ui.painter().text(pos2(right - 4.0, rect.center().y), Align2::RIGHT_CENTER, text, font.clone(), ink);
    }
}

/// The chosen layer: the reason, the dispatches of both sides, and its kernels in pairs.
fn details(ui: &mut Ui, v: &Viewer) {
    let Some(other) = &v.other else { return };
    let Some(r) = other.row.and_then(|i| other.comparison.rows.get(i)) else { return };
    let sides = [other.document.trace(), v.trace()];
    ScrollArea::both().id_salt("difference of a layer").auto_shrink(false).show(ui, |ui| {
        ui.strong(&r.name);
        if let Some(why) = &r.reason {
            ui.label(why);
        }
        let kernels = [0, 1].map(|s| kernels_of(sides[s], &r.groups[s]));
        for s in [0, 1] {
            let names: Vec<&str> = kernels[s].iter().map(|&k| sides[s].kernels[k].name.as_str()).collect();
            let dispatches = if names.len() == 1 { "1 dispatch".into() } else { format!("{} dispatches", names.len()) };
            ui.label(format!("{}: {dispatches}: {}", other.titles[s], names.join(", ")));
        }
        for (&a, &b) in kernels[0].iter().zip(&kernels[1]) {
            kernel(ui, &KernelDiff::of(&sides[0].kernels[a], &sides[1].kernels[b]));
        }
    });
}

fn kernels_of(t: &CompileTrace, groups: &[usize]) -> Vec<usize> {
    groups.iter().flat_map(|&g| t.kernels_of(g)).collect()
}

/// What differs between two kernels, and their schedules line by line.
fn kernel(ui: &mut Ui, d: &KernelDiff) {
    ui.separator();
    let name = |n: &Option<String>| n.clone().unwrap_or_default();
    ui.strong(format!("{} | {}", name(&d.a), name(&d.b)));
    for f in &d.facts {
        ui.label(RichText::new(format!("{}: {} -> {}", f.what, f.a, f.b)).small());
    }
    let dark = ui.visuals().dark_mode;
    ui.spacing_mut().item_spacing.y = 1.0;
    for line in &d.schedule {
        let text = RichText::new(line).monospace().size(11.0);
        let colour = match line.as_bytes().first() {
            Some(b'-') => diverging(-1.0, dark),
            Some(b'+') if dark => Color32::from_rgb(255, 150, 90),
            Some(b'+') => Color32::from_rgb(170, 60, 0),
            _ => ui.visuals().weak_text_color(),
        };
        ui.label(text.color(colour));
    }
    if d.schedule.is_empty() {
        ui.weak("The schedules are equal.");
    }
}
