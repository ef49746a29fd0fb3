//! The roofline plot of dispatches: rate against arithmetic intensity (S. Williams, A. Waterman and D. Patterson,
//! *Roofline*, 2009).

use super::Row;
use crate::canvas::colour::milliseconds;
use crate::once::{in_sight, visit};
use crate::state::Viewer;
use crate::units::{cut_apart, ending};
use crate::words;
use egui::{Align2, Color32, Rangef, Rect, RichText, Ui, vec2};
use egui_plot::{AxisHints, GridInput, GridMark, Line, LineStyle, Plot, PlotPoint, PlotPoints, PlotUi, Points, Text};
use graphview::reasons::{Roofs, ceilings_of, doubt};

/// Points of one of so many sizes, by their time.
const SIZES: usize = 8;
/// Characters of a name.
const LONGEST_NAME: usize = 26;
/// The slowest dispatches that bear their names.
const NAMED: usize = 24;
const MEMORY: Color32 = Color32::from_rgb(200, 90, 40);
const F32: Color32 = Color32::from_rgb(40, 140, 80);
const MATRIX: Color32 = Color32::from_rgb(130, 80, 190);

/// A dispatch in the plot.
struct Dot {
    /// Its place among the rows.
    row: usize,
    /// Base-10 logarithms of operations a byte and of GFLOP/s.
    at: [f64; 2],
    /// Its part of the longest time, from 0 to 1.
    share: f64,
    marked: bool,
}
impl Dot {
    /// Areas grow with times.
    fn size(&self) -> usize {
        ((self.share.sqrt() * SIZES as f64) as usize).min(SIZES - 1)
    }
}

/// Ticks at powers of ten, and lines at their multiples.
fn decades(input: GridInput) -> Vec<GridMark> {
    let (low, high) = input.bounds;
    // Far away, only some of the powers have a place.
    let step = ((high - low) / 12.0).ceil().max(1.0);
    let whole = (low / step).floor() as i32..=(high / step).ceil() as i32;
    let tick = |k: i32| GridMark { value: f64::from(k) * step, step_size: step };
    let lines = |k: i32| (2..10).map(move |m| GridMark { value: f64::from(k) + f64::from(m).log10(), step_size: 0.1 });
    let fine = whole.clone().filter(|_| step <= 1.0);
    let all = whole.map(tick).chain(fine.flat_map(lines));
    all.filter(|m| (low..=high).contains(&m.value)).collect()
}

/// A power of ten as a number with its unit left to the axis; nothing between powers.
fn power(x: f64) -> String {
    if (x - x.round()).abs() > 1e-6 {
        return String::new();
    }
    let value = 10f64.powf(x);
    match value {
        v if v >= 100.0 => format!("{v:.0}"),
        v if v >= 1.0 => format!("{v:.0}"),
        v if v >= 0.001 => format!("{v}"),
        v => format!("{v:.0e}"),
    }
}

/// Says what the roofs are.
fn describe(ui: &mut Ui, Plotted { roofs, doubts, .. }: &Plotted) {
    let parts = [
        roofs.gb_s.map(|r| (MEMORY, format!("memory {r:.1} GB/s"))),
        roofs.f32_gflops.map(|r| (F32, format!("f32 and f16 {r:.0} GFLOP/s"))),
        roofs.matrix_gflops.map(|r| (MATRIX, format!("matrix units {r:.0} GFLOP/s"))),
    ];
    ui.horizontal_wrapped(|ui| {
        let known: Vec<_> = parts.into_iter().flatten().collect();
        if known.is_empty() {
            ui.weak("No roofs: `weft bench --ceilings -o F.trace` measures them.");
            return;
        }
        let from = if roofs.measured { "Roofs, measured with all cores:" } else { "Roofs that the profile states:" };
        words::weak(ui, from);
        known.into_iter().for_each(|(colour, text)| {
            ui.colored_label(colour, text);
        });
    });
    for text in doubts {
        words::weak(ui, text);
    }
}

/// The points of the plot, and the rows that they are.
pub(crate) struct Plotted {
    rows: Vec<Row>,
    dots: Vec<Dot>,
    /// The dots of the slowest rows with their names.
    named: Vec<(usize, String)>,
    roofs: Roofs,
    /// Sentences above the plot.
    doubts: Vec<String>,
}

impl Plotted {
    fn of(v: &Viewer) -> Plotted {
        let rows = super::rows(v);
        let dots = dots(v, &rows);
        let mut order: Vec<usize> = (0..dots.len()).collect();
        order.sort_by(|&a, &b| dots[b].share.total_cmp(&dots[a].share));
        order.truncate(NAMED);
        let layer = |&d: &usize| rows[dots[d].row].layer.split('+').next().unwrap_or_default();
        let layers: Vec<&str> = order.iter().map(layer).collect();
        let names = cut_apart(&layers, LONGEST_NAME, |i, most| ending(layers[i], most));
        let named = order.into_iter().zip(names).collect();
        let taken = ceilings_of(v.trace()).map(|c| format!("They were {}.", c.taken.words()));
        let doubts = [taken, doubt(v.trace())].into_iter().flatten().collect();
        Plotted { named, dots, rows, roofs: Roofs::of(v.trace()), doubts }
    }
}

fn dots(v: &Viewer, rows: &[Row]) -> Vec<Dot> {
    let longest = rows.iter().filter(|r| r.at.is_some()).filter_map(|r| r.ms).fold(f64::MIN_POSITIVE, f64::max);
    let dot = |(row, r): (usize, &Row)| {
        let rate = r.gflops().filter(|g| *g > 0.0)?;
        let intensity = r.flops as f64 / r.bytes.max(1) as f64;
        let share = r.ms.unwrap_or(0.0) / longest;
        let at = [intensity.log10(), rate.log10()];
        (intensity > 0.0).then(|| Dot { row, at, share, marked: super::is_marked(v, r) })
    };
    rows.iter().enumerate().filter_map(dot).collect()
}

/// Draws the plot.
pub(super) fn show(ui: &mut Ui, v: &mut Viewer) {
    let plotted = v.once(v.selection(), |v| Plotted::of(v));
    let Plotted { rows, dots, roofs, .. } = &*plotted;
    visit(dots.len());
    in_sight(dots.len());
    if dots.is_empty() {
        ui.label("The trace has no times to draw. `weft bench MODEL -o F.trace` stores them.");
        return;
    }
    describe(ui, &plotted);
    let nearest = |p: PlotPoint, most: f64| {
        let distance = |d: &Dot| (d.at[0] - p.x).hypot(d.at[1] - p.y);
        dots.iter().min_by(|a, b| distance(a).total_cmp(&distance(b))).filter(|d| distance(d) < most).map(|d| d.row)
    };
    let (accent, ink) = (ui.visuals().selection.stroke.color, ui.visuals().text_color());
    let response = Plot::new("roofline")
        .custom_x_axes(vec![
            AxisHints::new_x()
                .label("operations for each byte")
                .formatter(|mark, _| power(mark.value))
                .label_spacing(Rangef::new(12.0, 24.0)),
        ])
        .custom_y_axes(vec![
            AxisHints::new_y()
                .label("GFLOP/s")
                .formatter(|mark, _| power(mark.value))
                .label_spacing(Rangef::new(10.0, 20.0)),
        ])
        .x_grid_spacer(decades)
        .y_grid_spacer(decades)
        .allow_scroll(false)
        .show(ui, |plot| {
            lines(plot, dots, roofs);
            for size in 0..SIZES {
                let radius = 2.5 + 1.6 * size as f32;
                let of = |marked: bool| {
                    let own = dots.iter().filter(|d| d.size() == size && d.marked == marked);
                    PlotPoints::from(own.map(|d| d.at).collect::<Vec<_>>())
                };
                let fill = Color32::from_rgb(70, 130, 200).gamma_multiply(0.6);
                plot.points(Points::new("dispatches", of(false)).radius(radius).color(fill));
                plot.points(Points::new("selected", of(true)).radius(radius + 1.0).color(accent));
            }
            names(plot, &plotted, ink);
            plot.pointer_coordinate().filter(|_| plot.response().hovered()).and_then(|p| nearest(p, 0.08))
        });
    if let Some(i) = response.inner {
        let rate = rows[i].gflops().map_or(String::new(), |g| format!(", {g:.1} GFLOP/s"));
        let text = format!("{}\n{}{rate}", rows[i].layer, milliseconds(rows[i].ms.unwrap_or(0.0)));
        response.response.clone().on_hover_text_at_pointer(text);
        if let Some((group, kernel)) = rows[i].at.filter(|_| response.response.clicked()) {
            v.select_group(group);
            v.show_kernel(kernel);
        }
    }
}

/// The roofs: memory as a slope up to the highest roof of arithmetic, which are level.
fn lines(plot: &mut PlotUi<'_>, dots: &[Dot], roofs: &Roofs) {
    let Some(bytes) = roofs.gb_s.map(f64::log10) else { return };
    let level: Vec<(&str, f64, Color32)> = [
        roofs.f32_gflops.map(|r| ("f32 and f16", r.log10(), F32)),
        roofs.matrix_gflops.map(|r| ("matrix units", r.log10(), MATRIX)),
    ]
    .into_iter()
    .flatten()
    .collect();
    let style = if roofs.measured { LineStyle::Solid } else { LineStyle::dashed_loose() };
    let knees = level.iter().map(|l| l.1 - bytes);
    let left = dots.iter().map(|d| d.at[0]).chain(knees.clone().map(|k| k - 1.0)).fold(f64::INFINITY, f64::min);
    let right = dots.iter().map(|d| d.at[0]).chain(knees.clone().map(|k| k + 1.0)).fold(left + 1.0, f64::max);
    let top = knees.fold(f64::NEG_INFINITY, f64::max);
    let top = if top.is_finite() { top } else { right };
    let slope = vec![[left, left + bytes], [top, top + bytes]];
    plot.line(Line::new("memory", PlotPoints::from(slope)).color(MEMORY).width(2.0).style(style));
    for (name, rate, colour) in level {
        let line = vec![[rate - bytes, rate], [right, rate]];
        plot.line(Line::new(name, PlotPoints::from(line)).color(colour).width(2.0).style(style));
        let text = Text::new(name, PlotPoint::new(right, rate), RichText::new(name).small());
        plot.text(text.color(colour).anchor(Align2::RIGHT_BOTTOM));
    }
}

/// Names beside the slowest dispatches, where there is room.
fn names(plot: &mut PlotUi<'_>, plotted: &Plotted, ink: Color32) {
    let mut taken: Vec<Rect> = vec![];
    for (d, name) in plotted.named.iter().map(|(d, name)| (&plotted.dots[*d], name)) {
        let at = plot.screen_from_plot(PlotPoint::from(d.at));
        let width = 14.0 + 6.0 * name.chars().count() as f32;
        // Near the right edge a name stands before its point.
        let before = at.x + width > plot.response().rect.max.x;
        let place = Rect::from_min_size(at - vec2(if before { width } else { 0.0 }, 7.0), vec2(width, 14.0));
        if taken.iter().any(|t| t.intersects(place)) {
            continue;
        }
        taken.push(place);
        let gap = " ".repeat(2 + d.size());
        let (said, align) = match before {
            true => (format!("{name}{gap}"), Align2::RIGHT_CENTER),
            false => (format!("{gap}{name}"), Align2::LEFT_CENTER),
        };
        let text = Text::new("names", PlotPoint::from(d.at), RichText::new(said).small());
        plot.text(text.color(ink).anchor(align));
    }
}
