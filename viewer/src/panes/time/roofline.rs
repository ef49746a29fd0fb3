//! The roofline plot of dispatches: rate against arithmetic intensity (S. Williams, A. Waterman and D. Patterson,
//! *Roofline*, 2009).

use super::Row;
use crate::canvas::colour::milliseconds;
use crate::state::Viewer;
use egui::{Color32, Ui};
use egui_plot::{Line, Plot, PlotPoint, PlotPoints, Points};

/// Peak rates of the device that the times are from, as they were measured: 10^9 operations and 10^9 bytes a second.
fn ceilings(v: &Viewer) -> Option<(f64, f64)> {
    let c = v.trace().times.as_ref()?.ceilings?;
    (c.fma_gflops > 0.0 && c.copy_gb_s > 0.0).then_some((c.fma_gflops, c.copy_gb_s))
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

/// Says what the roof is.
fn describe(ui: &mut Ui, roofs: Option<(f64, f64)>) {
    match roofs {
        None => ui.weak(
            "No roof: the ceilings of this device were not measured; `weft bench --ceilings`, then `bench -o` again.",
        ),
        Some((flops, bytes)) => {
            let text = format!(
                "Roof, measured with all cores: {flops:.0} GFLOP/s by f32 multiply-adds in registers, {bytes:.1} GB/s \
                 by a copy"
            );
            ui.weak(text).on_hover_text("`weft bench --ceilings` measures it again; the fastest of its runs counts")
        }
    };
}

/// Draws the scatter.
pub(super) fn show(ui: &mut Ui, v: &mut Viewer, rows: &[Row]) {
    let points: Vec<(usize, [f64; 2])> = rows
        .iter()
        .enumerate()
        .filter_map(|(i, r)| {
            let rate = r.gflops().filter(|g| *g > 0.0)?;
            let intensity = r.flops as f64 / r.bytes.max(1) as f64;
            (intensity > 0.0).then(|| (i, [intensity.log10(), rate.log10()]))
        })
        .collect();
    if points.is_empty() {
        ui.label("The trace has no times to draw. `weft bench MODEL -o F.trace` stores them.");
        return;
    }
    let roofs = ceilings(v);
    describe(ui, roofs);
    let marked = |i: &usize| super::is_marked(v, &rows[*i]);
    let (own, rest): (Vec<_>, Vec<_>) = points.iter().partition(|(i, _)| marked(i));
    let series = |list: &[&(usize, [f64; 2])]| PlotPoints::from(list.iter().map(|p| p.1).collect::<Vec<_>>());
    let (own, rest) = (series(&own), series(&rest));
    let names: Vec<(usize, [f64; 2], String)> = points
        .iter()
        .map(|(i, p)| (*i, *p, format!("{}\n{}", rows[*i].layer, milliseconds(rows[*i].ms.unwrap_or(0.0)))))
        .collect();
    let nearest = |p: PlotPoint, most: f64| {
        let distance = |q: &[f64; 2]| (q[0] - p.x).hypot(q[1] - p.y);
        let found = names.iter().min_by(|a, b| distance(&a.1).total_cmp(&distance(&b.1)));
        found.filter(|f| distance(&f.1) < most).map(|f| (f.0, f.2.clone()))
    };
    let accent = ui.visuals().selection.stroke.color;
    let response = Plot::new("roofline")
        .x_axis_label("operations for each byte")
        .y_axis_label("GFLOP/s")
        .x_axis_formatter(|mark, _| power(mark.value))
        .y_axis_formatter(|mark, _| power(mark.value))
        .allow_scroll(false)
        .show(ui, |plot| {
            if let Some((flops, bytes)) = roofs {
                let knee = (flops / bytes).log10();
                let left = points.iter().map(|p| p.1[0]).fold(knee - 1.0, f64::min);
                let right = points.iter().map(|p| p.1[0]).fold(knee + 1.0, f64::max);
                let roof = vec![[left, left + bytes.log10()], [knee, flops.log10()], [right, flops.log10()]];
                plot.line(Line::new("roof", PlotPoints::from(roof)).color(Color32::from_rgb(200, 90, 40)).width(2.0));
            }
            plot.points(Points::new("dispatches", rest).radius(3.5).color(Color32::from_rgb(70, 130, 200)));
            plot.points(Points::new("selected", own).radius(5.5).color(accent));
            plot.pointer_coordinate().filter(|_| plot.response().hovered()).and_then(|p| nearest(p, 0.08))
        });
    if let Some((i, text)) = response.inner {
        response.response.clone().on_hover_text_at_pointer(text);
        if let Some((group, kernel)) = rows[i].at.filter(|_| response.response.clicked()) {
            v.select_group(group);
            v.show_kernel(kernel);
        }
    }
}
