//! A table of dispatches; a click on a column's head sorts it.

use super::Row;
use crate::canvas::colour::{heat, milliseconds, si};
use crate::once::{in_sight, visit};
use crate::state::Viewer;
use crate::units::{CHARACTER, beginning, cut_apart, layer_name, rate};
use egui::{Align2, FontId, Rect, ScrollArea, Sense, Ui, pos2, vec2};
use std::cmp::Ordering;

/// A column.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Column {
    Order,
    Layer,
    Time,
    Share,
    Gflops,
    Gbs,
    Flops,
    Bytes,
}
const COLUMNS: [(Column, &str, f32); 8] = [
    (Column::Order, "#", 30.0),
    (Column::Layer, "layer", 0.0),
    (Column::Time, "time", 64.0),
    (Column::Share, "%", 40.0),
    (Column::Gflops, "GFLOP/s", 58.0),
    (Column::Gbs, "GB/s", 44.0),
    (Column::Flops, "FLOP", 60.0),
    (Column::Bytes, "bytes", 60.0),
];

/// How the table is sorted.
#[derive(Clone, Copy, PartialEq)]
pub(crate) struct Sort {
    column: Column,
    falling: bool,
}

/// The rows in order.
pub(crate) struct Table {
    rows: Vec<Row>,
    longest: f64,
}
impl Default for Sort {
    fn default() -> Self {
        Sort { column: Column::Time, falling: true }
    }
}

fn order(a: &Row, b: &Row, column: Column) -> Ordering {
    let number = |a: Option<f64>, b: Option<f64>| a.unwrap_or(-1.0).total_cmp(&b.unwrap_or(-1.0));
    match column {
        Column::Order => a.call.cmp(&b.call),
        Column::Layer => a.layer.cmp(&b.layer),
        Column::Time | Column::Share => number(a.ms, b.ms),
        Column::Gflops => number(a.gflops(), b.gflops()),
        Column::Gbs => number(a.gb_s(), b.gb_s()),
        Column::Flops => a.flops.cmp(&b.flops),
        Column::Bytes => a.bytes.cmp(&b.bytes),
    }
}

fn cell(r: &Row, name: &str, column: Column, total: f64) -> String {
    let number = |x: Option<f64>| x.map_or(String::new(), rate);
    match column {
        Column::Order | Column::Gflops | Column::Gbs | Column::Flops | Column::Bytes if r.at.is_none() => String::new(),
        Column::Order => r.call.to_string(),
        Column::Layer => name.to_string(),
        Column::Time => r.ms.map_or(String::new(), milliseconds),
        Column::Share => {
            r.ms.filter(|ms| *ms > 0.0 && total > 0.0).map_or(String::new(), |ms| format!("{:.1}", ms / total * 100.0))
        }
        Column::Gflops => number(r.gflops()),
        Column::Gbs => number(r.gb_s()),
        Column::Flops => si(r.flops as f64),
        Column::Bytes => si(r.bytes as f64),
    }
}

/// Draws the table.
pub(super) fn show(ui: &mut Ui, v: &mut Viewer) {
    let sort = v.time_pane.sort;
    let table = v.once(sort, |v| {
        let mut rows = super::rows(v);
        rows.sort_by(|a, b| {
            let order = order(a, b, sort.column);
            if sort.falling { order.reverse() } else { order }
        });
        let longest = rows.iter().filter_map(|r| r.ms).fold(0.0, f64::max);
        Table { rows, longest }
    });
    let (rows, longest) = (&table.rows, table.longest);
    if rows.is_empty() {
        ui.weak("Nothing of this model runs on a device.");
        return;
    }
    let total = v.document().run_ms();
    let timed = total > 0.0;
    let of_time = |c: Column| matches!(c, Column::Time | Column::Share | Column::Gflops | Column::Gbs);
    // Layers need room: counts give way first.
    let wide = !timed || ui.available_width() >= 620.0;
    let count = |c: Column| matches!(c, Column::Flops | Column::Bytes);
    let shown: Vec<_> = COLUMNS.into_iter().filter(|(c, ..)| (timed || !of_time(*c)) && (wide || !count(*c))).collect();
    let fixed: f32 = shown.iter().map(|c| c.2).sum();
    let layer = (ui.available_width() - fixed - 14.0).max(110.0);
    let widths: Vec<f32> = shown.iter().map(|c| if c.2 > 0.0 { c.2 } else { layer }).collect();
    head(ui, v, &shown, &widths);
    let mut chosen = None;
    ui.spacing_mut().item_spacing.y = 0.0;
    ScrollArea::both().id_salt("times").auto_shrink(false).show_rows(ui, 18.0, rows.len(), |ui, range| {
        in_sight(range.len());
        visit(range.len());
        let names: Vec<&str> = rows[range.clone()].iter().map(|r| r.layer.as_str()).collect();
        let room = ((layer - 8.0) / CHARACTER) as usize;
        let named = |i: usize, most: usize| match rows[range.start + i].at {
            Some(_) => layer_name(names[i], most),
            None => beginning(names[i], most),
        };
        let names = cut_apart(&names, room, named);
        for (r, name) in rows[range].iter().zip(&names) {
            let width: f32 = widths.iter().sum();
            let (rect, response) = ui.allocate_exact_size(vec2(width, 18.0), Sense::click());
            if super::is_marked(v, r) {
                ui.painter().rect_filled(rect, 0.0, ui.visuals().selection.bg_fill.gamma_multiply(0.5));
            } else if response.hovered() {
                ui.painter().rect_filled(rect, 0.0, ui.visuals().faint_bg_color);
            }
            cells(ui, (r, name, rect), &shown, &widths, [total, longest]);
            response.widget_info(|| egui::WidgetInfo::labeled(egui::Role::Label, true, &r.layer));
            let kernel = r.at.map(|(_, kernel)| format!("\nkernel {}", v.trace().kernels[kernel].name));
            if response.on_hover_text(format!("{}{}", r.layer, kernel.unwrap_or_default())).clicked() {
                chosen = r.at.or(chosen);
            }
        }
    });
    if let Some((group, kernel)) = chosen {
        v.select_group(group);
        v.show_kernel(kernel);
    }
}

/// Paints the cells of a row.
fn cells(
    ui: &Ui,
    (r, name, rect): (&Row, &str, Rect),
    shown: &[(Column, &str, f32)],
    widths: &[f32],
    [total, longest]: [f64; 2],
) {
    let (dark, mut left) = (ui.visuals().dark_mode, rect.min.x);
    for ((column, ..), width) in shown.iter().zip(widths) {
        let place = Rect::from_min_size(pos2(left, rect.min.y), vec2(*width, 18.0));
        left += width;
        if *column == Column::Time
            && let Some(ms) = r.ms.filter(|_| longest > 0.0)
        {
            let bar = vec2((width - 6.0) * (ms / longest) as f32, 3.0);
            let at = Rect::from_min_size(pos2(place.min.x + 4.0, place.max.y - 4.0), bar);
            ui.painter().rect_filled(at, 1.0, heat(((ms / longest).sqrt() as f32).max(0.25), dark));
        }
        let text = cell(r, name, *column, total);
        let painter = ui.painter().with_clip_rect(place.shrink2(vec2(2.0, 0.0)).intersect(ui.clip_rect()));
        let (at, align) = match column {
            Column::Layer => (place.left_center() + vec2(4.0, 0.0), Align2::LEFT_CENTER),
            _ => (place.right_center() - vec2(4.0, 0.0), Align2::RIGHT_CENTER),
        };
        painter.text(at, align, text, FontId::proportional(12.0), ui.visuals().text_color());
    }
}

fn head(ui: &mut Ui, v: &mut Viewer, shown: &[(Column, &str, f32)], widths: &[f32]) {
    ui.horizontal(|ui| {
        ui.spacing_mut().item_spacing.x = 0.0;
        for ((column, title, _), width) in shown.iter().zip(widths) {
            let sort = &mut v.time_pane.sort;
            let own = sort.column == *column;
            let button = egui::Button::new(*title).small().frame(false);
            let head = ui.add_sized([*width, 18.0], button);
            if own {
                let (x, y) = (head.rect.max.x - 1.0, head.rect.center().y);
                let tip = if sort.falling { 3.0 } else { -3.0 };
                let corners = vec![pos2(x - 6.0, y - tip), pos2(x, y - tip), pos2(x - 3.0, y + tip)];
                let colour = ui.visuals().text_color();
                ui.painter().add(egui::Shape::convex_polygon(corners, colour, egui::Stroke::NONE));
            }
            if head.clicked() {
                let falling = if own { !sort.falling } else { *column != Column::Layer };
                *sort = Sort { column: *column, falling };
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_times_come_last_and_rates_follow_from_times() {
        let row = |call: usize, ms: Option<f64>| Row {
            call,
            at: Some((0, 0)),
            layer: String::new(),
            ms,
            flops: 2_000_000_000,
            bytes: 1_000_000,
        };
        let mut rows = [row(0, None), row(1, Some(4.0)), row(2, Some(2.0))];
        rows.sort_by(|a, b| order(a, b, Column::Time).reverse());
        assert_eq!(rows.iter().map(|r| r.call).collect::<Vec<_>>(), [1, 2, 0]);
        assert_eq!(rows[0].gflops(), Some(500.0));
        assert_eq!(rows[1].gb_s(), Some(0.5));
        assert_eq!([si(999.0), si(1234.0), si(2.5e9)], ["999", "1.2k", "2.5G"]);
    }
}
