//! A run on one axis, with lanes for host, upload, device and readback: widths are durations, what is empty is a gap.

use crate::canvas::colour::{heat, milliseconds, pastel};
use crate::state::Viewer;
use compiler::trace::{Call, CompileTrace, Lane, RunSpans, Span};
use egui::{Align2, Color32, FontId, Rect, Response, ScrollArea, Sense, Stroke, StrokeKind, Ui, pos2, vec2};
use graphview::timeline::{about_run, run_spans};

/// What of the timeline is seen, and what is marked in it.
#[derive(Clone, Copy)]
pub(super) struct Zoom {
    /// How much wider than the pane it is.
    pub(super) times: f32,
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

impl Zoom {
    /// Shows a range in all of the room.
    fn to(&mut self, range: [f64; 2], total: f64, room: f32) {
        let least = total / f64::from(MOST);
        self.times = ((total / (range[1] - range[0]).max(least)) as f32).clamp(1.0, MOST);
        self.go = Some((range[0] / total) as f32 * room * self.times);
    }
}

/// The sums of a range, in milliseconds.
#[derive(Clone, Debug, PartialEq, Default)]
struct Sums {
    /// Of each lane, as in [`Lane::ALL`], in which something is done.
    busy: [f64; 4],
    /// Dispatches that begin in it.
    dispatches: usize,
    /// In which the device computes nothing.
    idle: f64,
}

impl Sums {
    fn of(run: &RunSpans, [from, to]: [f64; 2]) -> Sums {
        let mut out = Sums::default();
        let mut kernels = 0.0;
        for s in run.spans.iter().filter(|s| !s.waits) {
            let [start, end] = [s.start_us / 1e3, s.end_us / 1e3];
            let inside = (end.min(to) - start.max(from)).max(0.0);
            let lane = Lane::ALL.iter().position(|l| l.0 == s.lane).unwrap_or(0);
            out.busy[lane] += inside;
            if s.dispatch.is_some() {
                kernels += inside;
                out.dispatches += usize::from((from..to).contains(&start));
            }
        }
        out.idle = (to - from - kernels).max(0.0);
        out
    }
    fn words(&self) -> String {
        let lanes = Lane::ALL.iter().zip(self.busy).filter(|(_, ms)| *ms > 0.0);
        let lanes: Vec<String> = lanes.map(|((_, name), ms)| format!("{name} {}", milliseconds(ms))).collect();
        let kernels =
            if self.dispatches == 1 { "1 dispatch".into() } else { format!("{} dispatches", self.dispatches) };
        format!("{kernels}; {}; no kernel runs for {}", lanes.join(", "), milliseconds(self.idle))
    }
}

/// Height of the bars, and of a lane.
const HIGH: f32 = 34.0;
const LANE: f32 = 56.0;
/// Where the first lane's name stands.
const TOP: f32 = 22.0;

/// Draws the timeline.
pub(super) fn show(ui: &mut Ui, v: &mut Viewer) {
    let document = v.document().clone();
    let t = document.trace();
    let calls: Vec<&Call> = t.calls().collect();
    let Some(run) = run_spans(t).filter(|r| r.end_us() > 0.0) else {
        ui.label("The trace has no times to draw. `weft bench MODEL -o F.trace` stores them.");
        return;
    };
    let total = run.end_us() / 1e3;
    ui.weak(about_run(t, &run));
    controls(ui, v, &run, total);
    let lanes: Vec<(Lane, &str)> = Lane::ALL.into_iter().filter(|l| run.spans.iter().any(|s| s.lane == l.0)).collect();
    let kernels = run.spans.iter().filter(|s| s.dispatch.is_some());
    let longest = kernels.map(|s| s.end_us - s.start_us).fold(0.0, f64::max);
    let room = ui.available_width() - 12.0;
    let width = room * v.time_pane.zoom.times;
    let scale = f64::from(width) / total;
    let mut area = ScrollArea::horizontal().id_salt("timeline").auto_shrink([false, true]);
    if let Some(go) = v.time_pane.zoom.go.take() {
        area = area.horizontal_scroll_offset(go);
    }
    let mut chosen = None;
    area.show(ui, |ui| {
        let height = TOP + LANE * lanes.len() as f32 + 6.0;
        let (rect, response) = ui.allocate_exact_size(vec2(width, height), Sense::click_and_drag());
        ruler(ui, rect, total);
        for (k, (_, name)) in lanes.iter().enumerate() {
            let at = pos2(ui.clip_rect().min.x + 2.0, rect.min.y + TOP + LANE * k as f32);
            ui.painter().text(at, Align2::LEFT_TOP, name, FontId::proportional(9.5), ui.visuals().weak_text_color());
            let line = at.y + 13.0 + HIGH + 2.0;
            ui.painter().hline(rect.x_range(), line, Stroke::new(0.5, ui.visuals().faint_bg_color));
        }
        for s in &run.spans {
            let k = lanes.iter().position(|l| l.0 == s.lane).unwrap_or(0);
            let top = rect.min.y + TOP + 13.0 + LANE * k as f32;
            let x = |us: f64| rect.min.x + (us / 1e3 * scale) as f32;
            let place = Rect::from_min_max(pos2(x(s.start_us), top), pos2(x(s.end_us), top + HIGH));
            if !place.intersects(ui.clip_rect()) {
                continue;
            }
            let group = s.dispatch.and_then(|i| Some(calls.get(i)?.group));
            bar(ui, v, s, group, place, longest);
            if response.hover_pos().is_some_and(|p| place.expand2(vec2(0.5, 0.0)).contains(p)) {
                response.clone().on_hover_text_at_pointer(tip(t, s, group));
                if response.clicked() {
                    chosen = s.dispatch.or(chosen);
                }
            }
        }
        mark(ui, v, &response, (scale, total, room));
    });
    ui.weak(
        "Drag over a range to sum it up, with Shift to zoom to it; a double-click shows all. Colours of kernels: share of the longest; the line below a bar: its \
         fused group. Outlines are waits.",
    );
    if let Some(call) = chosen.and_then(|i| calls.get(i)) {
        v.select_group(call.group);
        v.show_kernel(call.kernel);
    }
}

fn tip(t: &CompileTrace, s: &Span, group: Option<usize>) -> String {
    let time = format!("{}, from {}", milliseconds((s.end_us - s.start_us) / 1e3), milliseconds(s.start_us / 1e3));
    match group {
        Some(g) => format!("{}\n{}\n{time}", t.groups[g].label, s.name),
        None => format!("{}\n{time}", s.name),
    }
}

fn controls(ui: &mut Ui, v: &mut Viewer, run: &RunSpans, total: f64) {
    let room = ui.available_width() - 12.0;
    ui.horizontal_wrapped(|ui| {
        ui.label("Zoom");
        let zoom = &mut v.time_pane.zoom;
        let slider = ui.add(egui::Slider::new(&mut zoom.times, 1.0..=MOST).logarithmic(true).show_value(false));
        slider.widget_info(|| egui::WidgetInfo::slider(true, f64::from(zoom.times), "Zoom"));
        let range = zoom.range.unwrap_or([0.0, total]);
        let from = zoom.range.map_or("all: ".into(), |r| format!("{} to {}: ", milliseconds(r[0]), milliseconds(r[1])));
        ui.weak(format!("{from}{}", Sums::of(run, range).words()));
        if zoom.range.is_some() {
            if ui.small_button("Zoom in").clicked() {
                zoom.to(range, total, room);
            }
            if ui.small_button("Clear").clicked() {
                *zoom = Zoom::default();
            }
        }
    });
}

/// The largest magnification.
const MOST: f32 = 400.0;

/// Takes and paints the range that is dragged over. With Shift it is zoomed to; a double-click shows everything.
fn mark(ui: &Ui, v: &mut Viewer, response: &Response, (scale, total, room): (f64, f64, f32)) {
    let (rect, zoom) = (response.rect, &mut v.time_pane.zoom);
    let ms = |x: f32| (f64::from(x - rect.min.x) / scale).clamp(0.0, total);
    if let Some((start, now)) = ui.input(|i| i.pointer.press_origin()).zip(response.interact_pointer_pos())
        && response.dragged()
    {
        let [a, b] = [ms(start.x), ms(now.x)];
        zoom.range = Some([a.min(b), a.max(b)]).filter(|r| r[1] > r[0]);
    }
    match zoom.range {
        Some(range) if response.drag_stopped() && ui.input(|i| i.modifiers.shift) => zoom.to(range, total, room),
        _ if response.double_clicked() => *zoom = Zoom::default(),
        _ => {}
    }
    if let Some(range) = zoom.range {
        let [a, b] = range.map(|ms| rect.min.x + (ms * scale) as f32);
        let place = Rect::from_min_max(pos2(a, rect.min.y), pos2(b, rect.max.y));
        ui.painter().rect_filled(place, 0.0, ui.visuals().selection.bg_fill.gamma_multiply(0.25));
    }
}

/// What does no kernel's work has a colour for its lane, and waits have outlines.
fn fill_of(s: &Span, longest: f64, dark: bool) -> Option<Color32> {
    match (s.dispatch, s.lane) {
        _ if s.waits => None,
        (Some(_), _) => Some(heat(((s.end_us - s.start_us) / longest).sqrt() as f32, dark)),
        (None, Lane::Upload) => Some(Color32::from_rgb(90, 150, 210)),
        (None, Lane::Readback) => Some(Color32::from_rgb(70, 160, 120)),
        (None, _) => Some(Color32::from_rgb(150, 140, 170)),
    }
}

fn bar(ui: &Ui, v: &Viewer, s: &Span, group: Option<usize>, place: Rect, longest: f64) {
    let dark = ui.visuals().dark_mode;
    // However short, it is seen.
    let place = if place.width() < 2.0 && s.dispatch.is_none() { place.with_max_x(place.min.x + 2.0) } else { place };
    let own = place.with_max_y(place.max.y - if group.is_some() { 10.0 } else { 0.0 });
    let fill = fill_of(s, longest, dark);
    match fill {
        Some(fill) => drop(ui.painter().rect_filled(own.shrink2(vec2(0.25, 0.0)), 0.0, fill)),
        None => {
            let line = Stroke::new(1.0, ui.visuals().weak_text_color());
            ui.painter().rect_stroke(own, 0.0, line, StrokeKind::Inside);
        }
    }
    if let Some(group) = group {
        // The same colour as its group has on the canvas.
        let below = Rect::from_min_max(pos2(place.min.x, place.max.y - 8.0), pos2(place.max.x, place.max.y - 2.0));
        ui.painter().rect_filled(below.shrink2(vec2(0.25, 0.0)), 0.0, pastel(group, dark));
        if v.marks(&v.trace().groups[group].origins) {
            let accent = ui.visuals().selection.stroke.color;
            ui.painter().rect_stroke(own, 0.0, Stroke::new(2.0, accent), StrokeKind::Inside);
        }
    }
    if own.width() > 40.0 {
        let painter = ui.painter().with_clip_rect(own.intersect(ui.clip_rect()));
        let ink = match fill {
            Some(fill) if fill.intensity() > 0.45 => Color32::BLACK,
            Some(_) => Color32::WHITE,
            None => ui.visuals().text_color(),
        };
        let text = group.map_or(s.name.as_str(), |g| v.trace().groups[g].label.as_str());
        // A long bar has its name where it is seen.
        let left = own.min.x.max(ui.clip_rect().min.x) + 4.0;
        painter.text(pos2(left, own.center().y), Align2::LEFT_CENTER, text, FontId::proportional(11.0), ink);
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

    fn span(lane: Lane, dispatch: Option<usize>, [start, end]: [f64; 2]) -> Span {
        Span { lane, name: "s".into(), dispatch, start_us: start * 1e3, end_us: end * 1e3, ..Span::default() }
    }

    #[test]
    fn a_range_sums_what_lies_in_it() {
        let spans = vec![
            span(Lane::Upload, None, [0.0, 1.0]),
            Span { waits: true, ..span(Lane::Host, None, [1.0, 8.0]) },
            span(Lane::Device, Some(0), [2.0, 4.0]),
            span(Lane::Device, Some(1), [5.0, 7.0]),
            span(Lane::Readback, None, [8.0, 9.0]),
        ];
        let run = RunSpans { spans, ..RunSpans::default() };
        let all = Sums::of(&run, [0.0, 9.0]);
        assert_eq!(all, Sums { busy: [0.0, 1.0, 4.0, 1.0], dispatches: 2, idle: 5.0 });
        let some = Sums::of(&run, [3.0, 6.0]);
        assert_eq!(some, Sums { busy: [0.0, 0.0, 2.0, 0.0], dispatches: 1, idle: 1.0 });
        assert_eq!(some.words(), "1 dispatch; device 2.00 ms; no kernel runs for 1.00 ms");
    }
}
