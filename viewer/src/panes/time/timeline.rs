//! A timeline of dispatches: widths are durations.

use super::Row;
use crate::canvas::colour::{heat, milliseconds, pastel};
use crate::state::Viewer;
use compiler::trace::Spent;
use egui::{Align2, FontId, Rect, Response, ScrollArea, Sense, Stroke, StrokeKind, Ui, pos2, vec2};

/// What of the timeline is seen, and what is marked in it.
#[derive(Clone, Copy)]
pub(super) struct Zoom {
    /// How much wider than the pane it is.
    times: f32,
    /// Milliseconds from the start between which is summed up.
    range: Option<[f64; 2]>,
    /// A place to bring to the left edge, in points.
    go: Option<f32>,
}
impl Default for Zoom {
    fn default() -> Self {
        Zoom { times: 1.0, range: None, go: None }
    }
}

/// Where something of a run takes place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Lane {
    Device,
    Host,
    Rest,
}
impl Lane {
    const ALL: [(Lane, &'static str); 3] =
        [(Lane::Device, "device"), (Lane::Host, "host"), (Lane::Rest, "waits, copies")];
    fn of(spent: &[(Spent, f64)], r: &Row) -> Lane {
        match (r.at, spent.get(r.call).map(|s| s.0)) {
            (Some(_), _) => Lane::Device,
            (None, Some(Spent::Host(_))) => Lane::Host,
            _ => Lane::Rest,
        }
    }
}

/// The sum of what lies in a range: milliseconds on the device and elsewhere, and how many dispatches begin in it.
fn sum(bars: &[(Lane, [f64; 2])], range: [f64; 2]) -> (f64, f64, usize) {
    let overlap = |b: &[f64; 2]| (b[1].min(range[1]) - b[0].max(range[0])).max(0.0);
    let of = |device: bool| bars.iter().filter(|b| (b.0 == Lane::Device) == device).map(|b| overlap(&b.1)).sum();
    let begin = |b: &&(Lane, [f64; 2])| b.0 == Lane::Device && (range[0]..range[1]).contains(&b.1[0]);
    (of(true), of(false), bars.iter().filter(begin).count())
}

/// Height of the bars.
const HIGH: f32 = 46.0;

/// Draws the timeline.
pub(super) fn show(ui: &mut Ui, v: &mut Viewer, rows: &[Row]) {
    let total: f64 = rows.iter().filter_map(|r| r.ms).filter(|ms| *ms > 0.0).sum();
    if total <= 0.0 {
        ui.label("The trace has no times to draw. `weft bench MODEL -o F.trace` stores them.");
        return;
    }
    let bars = bars(v, rows);
    controls(ui, v, &bars, total);
    let lanes: Vec<Lane> = Lane::ALL.iter().map(|l| l.0).filter(|l| bars.iter().any(|b| b.0 == *l)).collect();
    let longest = rows.iter().filter_map(|r| r.ms).fold(0.0, f64::max);
    let width = (ui.available_width() - 12.0) * v.time_pane.zoom.times;
    let scale = f64::from(width) / total;
    let mut area = ScrollArea::horizontal().id_salt("timeline").auto_shrink([false, true]);
    if let Some(go) = v.time_pane.zoom.go.take() {
        area = area.horizontal_scroll_offset(go);
    }
    let mut chosen = None;
    let timed = || rows.iter().filter(|r| r.ms.is_some_and(|ms| ms > 0.0));
    area.show(ui, |ui| {
        let height = 20.0 + (HIGH + 18.0) * lanes.len() as f32 + 6.0;
        let (rect, response) = ui.allocate_exact_size(vec2(width, height), Sense::click_and_drag());
        ruler(ui, rect, total);
        for (k, lane) in lanes.iter().enumerate() {
            let name = Lane::ALL.iter().find(|l| l.0 == *lane).map_or("", |l| l.1);
            let at = pos2(ui.clip_rect().min.x + 2.0, rect.min.y + 22.0 + (HIGH + 18.0) * k as f32);
            ui.painter().text(at, Align2::LEFT_TOP, name, FontId::proportional(9.5), ui.visuals().weak_text_color());
        }
        for (r, (lane, [from, to])) in timed().zip(&bars) {
            let k = lanes.iter().position(|l| l == lane).unwrap_or(0);
            let top = rect.min.y + 34.0 + (HIGH + 18.0) * k as f32;
            let x = |ms: f64| rect.min.x + (ms * scale) as f32;
            let place = Rect::from_min_max(pos2(x(*from), top), pos2(x(*to), top + HIGH - 12.0));
            if !place.intersects(ui.clip_rect()) {
                continue;
            }
            bar(ui, v, r, place, longest);
            if response.hover_pos().is_some_and(|p| place.contains(p)) {
                response.clone().on_hover_text_at_pointer(format!("{}\n{}", r.layer, milliseconds(to - from)));
                if response.clicked() {
                    chosen = r.at.or(chosen);
                }
            }
        }
        mark(ui, v, &response, scale, total);
    });
    ui.weak("Drag over a range to sum it up. Colours: share of the longest; the line below a bar: its fused group.");
    if let Some((group, kernel)) = chosen {
        v.select_group(group);
        v.show_kernel(kernel);
    }
}

/// The lane, start and end of each row that takes time, one after the other as they run.
fn bars(v: &Viewer, rows: &[Row]) -> Vec<(Lane, [f64; 2])> {
    let (mut start, spent) = (0.0, v.trace().time_spent());
    let timed = rows.iter().filter_map(|r| Some((r, r.ms.filter(|ms| *ms > 0.0)?)));
    let one = |(r, ms): (&Row, f64)| {
        start += ms;
        (Lane::of(&spent, r), [start - ms, start])
    };
    timed.map(one).collect()
}

fn controls(ui: &mut Ui, v: &mut Viewer, bars: &[(Lane, [f64; 2])], total: f64) {
    let room = ui.available_width() - 12.0;
    ui.horizontal_wrapped(|ui| {
        ui.label("Zoom");
        let zoom = &mut v.time_pane.zoom;
        let slider = ui.add(egui::Slider::new(&mut zoom.times, 1.0..=60.0).logarithmic(true).show_value(false));
        slider.widget_info(|| egui::WidgetInfo::slider(true, f64::from(zoom.times), "Zoom"));
        let range = zoom.range.unwrap_or([0.0, total]);
        let (device, other, count) = sum(bars, range);
        let from = zoom.range.map_or(String::new(), |r| format!("{} to {}: ", milliseconds(r[0]), milliseconds(r[1])));
        let rest = if other > 0.0 { format!(", {} elsewhere", milliseconds(other)) } else { String::new() };
        ui.weak(format!("{from}{count} dispatches, {} on the device{rest}", milliseconds(device)));
        if zoom.range.is_some() {
            if ui.small_button("Zoom in").clicked() {
                zoom.times = ((total / (range[1] - range[0]).max(total / 60.0)) as f32).clamp(1.0, 60.0);
                zoom.go = Some((range[0] / total) as f32 * room * zoom.times);
            }
            if ui.small_button("Clear").clicked() {
                *zoom = Zoom::default();
            }
        }
    });
}

/// Takes and paints the range that is dragged over.
fn mark(ui: &Ui, v: &mut Viewer, response: &Response, scale: f64, total: f64) {
    let rect = response.rect;
    let ms = |x: f32| (f64::from(x - rect.min.x) / scale).clamp(0.0, total);
    if let Some((start, now)) = ui.input(|i| i.pointer.press_origin()).zip(response.interact_pointer_pos())
        && response.dragged()
    {
        let [a, b] = [ms(start.x), ms(now.x)];
        v.time_pane.zoom.range = Some([a.min(b), a.max(b)]).filter(|r| r[1] > r[0]);
    }
    if let Some(range) = v.time_pane.zoom.range {
        let [a, b] = range.map(|ms| rect.min.x + (ms * scale) as f32);
        let place = Rect::from_min_max(pos2(a, rect.min.y), pos2(b, rect.max.y));
        ui.painter().rect_filled(place, 0.0, ui.visuals().selection.bg_fill.gamma_multiply(0.25));
    }
}

fn bar(ui: &Ui, v: &Viewer, r: &Row, place: Rect, longest: f64) {
    let dark = ui.visuals().dark_mode;
    let fill = heat((r.ms.unwrap_or(0.0) / longest).sqrt() as f32, dark);
    ui.painter().rect_filled(place.shrink2(vec2(0.25, 0.0)), 0.0, fill);
    // The same colour as its group has on the canvas.
    let below = Rect::from_min_size(place.left_bottom() + vec2(0.0, 2.0), vec2(place.width(), 6.0));
    if let Some((group, _)) = r.at {
        ui.painter().rect_filled(below.shrink2(vec2(0.25, 0.0)), 0.0, pastel(group, dark));
    }
    if super::is_marked(v, r) {
        let accent = ui.visuals().selection.stroke.color;
        ui.painter().rect_stroke(place, 0.0, Stroke::new(2.0, accent), StrokeKind::Inside);
    }
    if place.width() > 40.0 {
        let painter = ui.painter().with_clip_rect(place.intersect(ui.clip_rect()));
        let ink = if fill.intensity() > 0.45 { egui::Color32::BLACK } else { egui::Color32::WHITE };
        let at = place.left_center() + vec2(4.0, 0.0);
        painter.text(at, Align2::LEFT_CENTER, &r.layer, FontId::proportional(11.0), ink);
    }
}

fn ruler(ui: &Ui, rect: Rect, total: f64) {
    // Steps of 1, 2 or 5 times a power of ten, some 90 points apart.
    let rough = total * 90.0 / f64::from(rect.width());
    let power = 10f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].into_iter().map(|f| f * power).find(|s| *s >= rough).unwrap_or(power * 10.0);
    let weak = ui.visuals().weak_text_color();
    let mut at = 0.0;
    while at <= total {
        let x = rect.min.x + (at / total) as f32 * rect.width();
        ui.painter().vline(x, rect.min.y + 14.0..=rect.min.y + 20.0, Stroke::new(1.0, weak));
        let align = if at == 0.0 { Align2::LEFT_TOP } else { Align2::CENTER_TOP };
        let text = if at == 0.0 { "0".to_string() } else { milliseconds(at) };
        ui.painter().text(pos2(x, rect.min.y), align, text, FontId::proportional(10.0), weak);
        at += step;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_sums_what_lies_in_it() {
        let bars = [(Lane::Device, [0.0, 2.0]), (Lane::Device, [2.0, 5.0]), (Lane::Rest, [5.0, 9.0])];
        assert_eq!(sum(&bars, [0.0, 9.0]), (5.0, 4.0, 2));
        assert_eq!(sum(&bars, [1.0, 6.0]), (4.0, 1.0, 1));
    }
}
