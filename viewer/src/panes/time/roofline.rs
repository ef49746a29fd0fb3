//! The roofline plot of dispatches: rate against arithmetic intensity (S. Williams, A. Waterman and D. Patterson,
//! *Roofline*, 2009).

use super::Row;
use crate::canvas::colour::milliseconds;
use crate::state::Viewer;
use compiler::trace::CompileTrace;
use egui::{Align2, Color32, Rect, RichText, Ui, vec2};
use egui_plot::{Line, LineStyle, Plot, PlotPoint, PlotPoints, PlotUi, Points, Text};
use graphview::reasons::{Roofs, ceilings_of, doubt};
use graphview::scene::short;

/// Points of one of so many sizes, by their time.
const SIZES: usize = 8;
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

/// A power of ten as a number with its unit left to the axis.
fn power(x: f64) -> String {
    let value = 10f64.powf(x);
    match value {
        v if v >= 100.0 => format!("{v:.0}"),
        v if v >= 1.0 => format!("{v:.1}"),
        v if v >= 0.01 => format!("{v:.2}"),
        v => format!("{v:.0e}"),
    }
}

/// Says what the roofs are.
fn describe(ui: &mut Ui, t: &CompileTrace, roofs: &Roofs) {
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
        ui.weak(from).on_hover_text(
            "f16 is storage here, arithmetic is f32: outside of matrix units both have one roof. \
             `weft bench --ceilings` measures roofs; the fastest of its runs counts.",
        );
        known.into_iter().for_each(|(colour, text)| {
            ui.colored_label(colour, text);
        });
    });
    let taken = ceilings_of(t).map(|c| format!("They were {}.", c.taken.words()));
    for text in [taken, doubt(t)].into_iter().flatten() {
        ui.weak(text);
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
pub(super) fn show(ui: &mut Ui, v: &mut Viewer, rows: &[Row]) {
    let dots = dots(v, rows);
    if dots.is_empty() {
        ui.label("The trace has no times to draw. `weft bench MODEL -o F.trace` stores them.");
        return;
    }
    let roofs = Roofs::of(v.trace());
    describe(ui, v.trace(), &roofs);
    let nearest = |p: PlotPoint, most: f64| {
        let distance = |d: &Dot| (d.at[0] - p.x).hypot(d.at[1] - p.y);
        dots.iter().min_by(|a, b| distance(a).total_cmp(&distance(b))).filter(|d| distance(d) < most).map(|d| d.row)
    };
    let (accent, ink) = (ui.visuals().selection.stroke.color, ui.visuals().text_color());
    let response = Plot::new("roofline")
        .x_axis_label("operations for each byte")
        .y_axis_label("GFLOP/s")
        .x_axis_formatter(|mark, _| power(mark.value))
        .y_axis_formatter(|mark, _| power(mark.value))
        .allow_scroll(false)
        .show(ui, |plot| {
            lines(plot, &dots, &roofs);
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
            names(plot, &dots, rows, ink);
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
fn names(plot: &mut PlotUi<'_>, dots: &[Dot], rows: &[Row], ink: Color32) {
    let mut order: Vec<&Dot> = dots.iter().collect();
    order.sort_by(|a, b| b.share.total_cmp(&a.share));
    let mut taken: Vec<Rect> = vec![];
    for d in order.into_iter().take(NAMED) {
        let name = short(rows[d.row].layer.split('+').next().unwrap_or_default());
        let at = plot.screen_from_plot(PlotPoint::from(d.at));
        let place = Rect::from_min_size(at - vec2(0.0, 7.0), vec2(14.0 + 6.0 * name.chars().count() as f32, 14.0));
        if taken.iter().any(|t| t.intersects(place)) {
            continue;
        }
        taken.push(place);
        let gap = " ".repeat(2 + d.size());
        let text = Text::new("names", PlotPoint::from(d.at), RichText::new(format!("{gap}{name}")).small());
        plot.text(text.color(ink).anchor(Align2::LEFT_CENTER));
    }
}
