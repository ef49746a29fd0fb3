//! A run on one axis, with lanes for host, upload, device and readback: widths are durations, what is empty is a gap.

use crate::canvas::colour::{heat, milliseconds, pastel};
use crate::once::{in_sight, visit};
use crate::state::Viewer;
use crate::words;
use compiler::trace::{CompileTrace, Lane, RunSpans, Span};
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
        visit(run.spans.len());
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

/// A lane of the timeline.
struct Row {
    name: &'static str,
    /// Its spans by their places in the run, the first ones first.
    spans: Vec<usize>,
    /// The longest of them, in microseconds.
    longest: f64,
}

impl Row {
    /// Its spans that may lie between two times, each with the number of the lane.
    fn between<'a>(
        &'a self,
        run: &'a RunSpans,
        from: f64,
        to: f64,
        lane: usize,
    ) -> impl Iterator<Item = (usize, &'a Span)> {
        let start = |i: &usize| run.spans[*i].start_us;
        let first = self.spans.partition_point(|i| start(i) + self.longest < from);
        let last = self.spans.partition_point(|i| start(i) <= to).max(first);
        self.spans[first..last].iter().map(move |&i| (lane, &run.spans[i]))
    }
}

/// A run as the timeline draws it.
pub(crate) struct Run {
    run: RunSpans,
    /// Milliseconds of it.
    total: f64,
    /// A description, in words.
    about: String,
    lanes: Vec<Row>,
    /// The longest dispatch, in microseconds.
    longest: f64,
    /// Group and kernel of each dispatch.
    calls: Vec<(usize, usize)>,
}

impl Run {
    fn of(t: &CompileTrace) -> Option<Run> {
        let run = run_spans(t).filter(|r| r.end_us() > 0.0)?.into_owned();
        visit(run.spans.len());
        let long = |i: &usize| run.spans[*i].end_us - run.spans[*i].start_us;
        let lane = |(lane, name): &(Lane, &'static str)| {
            let mut spans: Vec<usize> = (0..run.spans.len()).filter(|&i| run.spans[i].lane == *lane).collect();
            spans.sort_by(|a, b| run.spans[*a].start_us.total_cmp(&run.spans[*b].start_us));
            let longest = spans.iter().map(long).fold(0.0, f64::max);
            (!spans.is_empty()).then_some(Row { name, spans, longest })
        };
        let kernels = (0..run.spans.len()).filter(|&i| run.spans[i].dispatch.is_some());
        Some(Run {
            total: run.end_us() / 1e3,
            about: about_run(t, &run),
            lanes: Lane::ALL.iter().filter_map(lane).collect(),
            longest: kernels.map(|i| long(&i)).fold(0.0, f64::max),
            calls: t.calls().map(|c| (c.group, c.kernel)).collect(),
            run,
        })
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
    let run = v.once((), |v| Run::of(v.trace()));
    let Some(run) = run.as_ref() else {
        ui.label("The trace has no times to draw. `weft bench MODEL -o F.trace` stores them.");
        return;
    };
    let total = run.total;
    words::weak(ui, &run.about);
    controls(ui, v, run);
    let (lanes, longest) = (&run.lanes, run.longest);
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
        for (k, Row { name, .. }) in lanes.iter().enumerate() {
            let at = pos2(ui.clip_rect().min.x + 2.0, rect.min.y + TOP + LANE * k as f32);
            ui.painter().text(at, Align2::LEFT_TOP, name, FontId::proportional(9.5), ui.visuals().weak_text_color());
            let line = at.y + 13.0 + HIGH + 2.0;
            ui.painter().hline(rect.x_range(), line, Stroke::new(0.5, ui.visuals().faint_bg_color));
        }
        let us = |x: f32| f64::from(x - rect.min.x) / scale * 1e3;
        let clip = ui.clip_rect();
        let own = lanes.iter().enumerate().flat_map(|(k, l)| l.between(&run.run, us(clip.min.x), us(clip.max.x), k));
        for (k, s) in own {
            visit(1);
            let top = rect.min.y + TOP + 13.0 + LANE * k as f32;
            let x = |us: f64| rect.min.x + (us / 1e3 * scale) as f32;
            let place = Rect::from_min_max(pos2(x(s.start_us), top), pos2(x(s.end_us), top + HIGH));
            if !place.intersects(ui.clip_rect()) {
                continue;
            }
            in_sight(1);
            let group = s.dispatch.and_then(|i| Some(run.calls.get(i)?.0));
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
    if let Some(&(group, kernel)) = chosen.and_then(|i| run.calls.get(i)) {
        v.select_group(group);
        v.show_kernel(kernel);
    }
}

fn tip(t: &CompileTrace, s: &Span, group: Option<usize>) -> String {
    let time = format!("{}, from {}", milliseconds((s.end_us - s.start_us) / 1e3), milliseconds(s.start_us / 1e3));
    match group {
        Some(g) => format!("{}\n{}\n{time}", t.groups[g].label, s.name),
        None => format!("{}\n{time}", s.name),
    }
}

fn controls(ui: &mut Ui, v: &mut Viewer, run: &Run) {
    let (room, total) = (ui.available_width() - 12.0, run.total);
    let range = v.time_pane.zoom.range.unwrap_or([0.0, total]);
    let sums = v.once(range.map(f64::to_bits), |_| Sums::of(&run.run, range).words());
    ui.horizontal_wrapped(|ui| {
        ui.label("Zoom");
        let zoom = &mut v.time_pane.zoom;
        let slider = ui.add(egui::Slider::new(&mut zoom.times, 1.0..=MOST).logarithmic(true).show_value(false));
        slider.widget_info(|| egui::WidgetInfo::slider(true, f64::from(zoom.times), "Zoom"));
        let from = zoom.range.map_or("all: ".into(), |r| format!("{} to {}: ", milliseconds(r[0]), milliseconds(r[1])));
        ui.weak(format!("{from}{sums}"));
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
