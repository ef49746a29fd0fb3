//! A timeline of dispatches: widths are durations.

use super::Row;
use crate::canvas::colour::{heat, milliseconds, pastel};
use crate::state::Viewer;
use egui::{Align2, FontId, Rect, ScrollArea, Sense, Stroke, StrokeKind, Ui, pos2, vec2};

/// How much wider than the pane it is.
#[derive(Clone, Copy)]
pub(super) struct Zoom(f32);
impl Default for Zoom {
    fn default() -> Self {
        Zoom(1.0)
    }
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
    ui.horizontal(|ui| {
        ui.label("Zoom");
        let zoom = &mut v.time_pane.zoom.0;
        let slider = ui.add(egui::Slider::new(zoom, 1.0..=60.0).logarithmic(true).show_value(false));
        slider.widget_info(|| egui::WidgetInfo::slider(true, f64::from(*zoom), "Zoom"));
        ui.weak(format!("{} dispatches, {}", rows.iter().filter(|r| r.at.is_some()).count(), milliseconds(total)));
    });
    let longest = rows.iter().filter_map(|r| r.ms).fold(0.0, f64::max);
    let width = (ui.available_width() - 12.0) * v.time_pane.zoom.0;
    let scale = f64::from(width) / total;
    let mut chosen = None;
    ScrollArea::horizontal().id_salt("timeline").auto_shrink([false, true]).show(ui, |ui| {
        let (rect, response) = ui.allocate_exact_size(vec2(width, HIGH + 44.0), Sense::click());
        ruler(ui, rect, total);
        let dark = ui.visuals().dark_mode;
        let (mut start, pointer) = (0.0, response.hover_pos());
        for r in rows {
            let Some(ms) = r.ms.filter(|ms| *ms > 0.0) else { continue };
            let (from, to) = (start * scale, (start + ms) * scale);
            start += ms;
            let place = Rect::from_min_max(
                pos2(rect.min.x + from as f32, rect.min.y + 20.0),
                pos2(rect.min.x + to as f32, rect.min.y + 20.0 + HIGH),
            );
            if !place.intersects(ui.clip_rect()) {
                continue;
            }
            let fill = heat((ms / longest).sqrt() as f32, dark);
            ui.painter().rect_filled(place.shrink2(vec2(0.25, 0.0)), 0.0, fill);
            // The same colour as its group has on the canvas.
            let below = Rect::from_min_size(place.left_bottom() + vec2(0.0, 3.0), vec2(place.width(), 8.0));
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
            if pointer.is_some_and(|p| place.x_range().contains(p.x)) {
                response.clone().on_hover_text_at_pointer(format!("{}\n{}", r.layer, milliseconds(ms)));
                if response.clicked() {
                    chosen = r.at.or(chosen);
                }
            }
        }
    });
    ui.weak("Colours above: share of the longest. Below: the fused group, as on the canvas.");
    if let Some((group, kernel)) = chosen {
        v.select_group(group);
        v.show_kernel(kernel);
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
