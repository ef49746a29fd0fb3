//! Errors along the graph: each node alone, and with the errors of the nodes before it.

use crate::canvas::scale::{ErrorScale, error};
use crate::once::{in_sight, visit};
use crate::state::Viewer;
use compiler::trace::Errors;
use egui::{Align2, Color32, FontId, Painter, Pos2, Rect, Sense, Shape, Stroke, Ui, pos2, vec2};

const HEIGHT: f32 = 150.0;
const OUTLIER: Color32 = Color32::from_rgb(210, 60, 60);
/// Room for the decades at the left.
const MARGIN: f32 = 38.0;

/// The place of errors in the picture: nodes across in the order they run, decades upward.
struct Axes {
    rect: Rect,
    count: usize,
    /// Base-10 logarithms of the lowest and the highest error.
    range: [f64; 2],
}

impl Axes {
    fn x(&self, node: usize) -> f32 {
        self.rect.min.x + (node as f32 + 0.5) / self.count.max(1) as f32 * self.rect.width()
    }
    fn y(&self, error: f64) -> f32 {
        let [low, high] = self.range;
        let share = ((error.max(f64::MIN_POSITIVE).log10() - low) / (high - low)).clamp(0.0, 1.0);
        self.rect.max.y - share as f32 * self.rect.height()
    }
    fn node_at(&self, x: f32) -> Option<usize> {
        let at = (x - self.rect.min.x) / self.rect.width() * self.count as f32;
        (at >= 0.0 && (at as usize) < self.count).then_some(at as usize)
    }
}

/// The errors as they are drawn: in each column of the picture the least and the largest.
pub(crate) struct Curve {
    count: usize,
    /// Base-10 logarithms of the lowest and the highest error.
    range: [f64; 2],
    /// Errors of nodes alone, and with those before, each with its node.
    points: [Vec<(usize, f64)>; 2],
    tolerance: f64,
    /// Beyond what is usual.
    scale: Option<ErrorScale>,
}

impl Curve {
    fn of(errors: &Errors, width: f32) -> Curve {
        visit(errors.nodes.len());
        let columns = (width.max(1.0) as usize).min(errors.nodes.len()).max(1);
        let points = [false, true].map(|accumulated| {
            let nodes = errors.nodes.iter().enumerate();
            let known = nodes.filter_map(|(i, n)| Some((i, error(errors, n, accumulated)?)));
            let known: Vec<(usize, f64)> = known.collect();
            let column = |p: &(usize, f64)| p.0 * columns / errors.nodes.len();
            let ends = |own: &[(usize, f64)]| {
                let by = |a: &&(usize, f64), b: &&(usize, f64)| a.1.total_cmp(&b.1);
                let mut both: Vec<(usize, f64)> =
                    [own.iter().min_by(by), own.iter().max_by(by)].into_iter().flatten().copied().collect();
                both.sort_by_key(|p| p.0);
                both.dedup();
                both
            };
            known.chunk_by(|a, b| column(a) == column(b)).flat_map(ends).collect()
        });
        Curve {
            count: errors.nodes.len(),
            range: range(errors),
            points,
            tolerance: errors.tolerance,
            scale: ErrorScale::of(errors, errors.cumulative),
        }
    }
}

/// Whole decades around all errors and the tolerance.
fn range(errors: &Errors) -> [f64; 2] {
    let known = errors.nodes.iter().flat_map(|n| [false, true].map(|a| error(errors, n, a))).flatten();
    let shown = known.chain([errors.tolerance]).filter(|e| *e > 0.0 && e.is_finite()).map(f64::log10);
    let [low, high] = shown.fold([f64::INFINITY, f64::NEG_INFINITY], |[l, h], e| [l.min(e), h.max(e)]);
    // The tolerance has its name above its line.
    if low > high { [-8.0, 0.0] } else { [low.floor(), (high + 0.3).ceil().max(low.floor() + 1.0)] }
}

/// Draws the picture; a click selects a node.
pub(crate) fn show(ui: &mut Ui, v: &mut Viewer) {
    if v.trace().errors.as_ref().is_none_or(|e| e.nodes.is_empty()) {
        return;
    }
    let width = (ui.clip_rect().width() - 16.0).max(200.0);
    let curve = v.once(width as u32, |v| {
        let none = Errors::default();
        Curve::of(v.trace().errors.as_ref().unwrap_or(&none), width)
    });
    let (whole, response) = ui.allocate_exact_size(vec2(width, HEIGHT), Sense::click());
    let painter = ui.painter_at(whole.expand(1.0));
    let rect = whole.with_min_x(whole.min.x + MARGIN).shrink2(vec2(2.0, 6.0));
    let axes = Axes { rect, count: curve.count, range: curve.range };
    painter.rect_filled(axes.rect, 0.0, ui.visuals().extreme_bg_color);
    let weak = ui.visuals().weak_text_color();
    grid(&painter, &axes, curve.tolerance, weak);
    let [alone, sum] = lines(ui.visuals().dark_mode);
    let at = |&(i, e): &(usize, f64)| pos2(axes.x(i), axes.y(e));
    let [own, with_those_before] = &curve.points;
    visit(own.len() + with_those_before.len());
    in_sight(own.len() + with_those_before.len());
    let total: Vec<Pos2> = with_those_before.iter().map(at).collect();
    painter.add(Shape::line(total, Stroke::new(2.0, sum)));
    let outlying = |e: f64| curve.scale.as_ref().is_some_and(|s| s.outlier(e).is_some());
    let list = v.trace().errors.as_ref().map_or(&[][..], |e| &e.nodes);
    own.iter().for_each(|p| {
        let marked = v.marks(std::slice::from_ref(&list[p.0].name));
        painter.circle_filled(at(p), if marked { 4.5 } else { 2.5 }, alone);
        if outlying(p.1) {
            painter.circle_stroke(at(p), 5.5, Stroke::new(1.2, OUTLIER));
        }
    });
    ui.horizontal_wrapped(|ui| {
        sign(ui, alone, false);
        ui.colored_label(alone, "each group alone");
        match with_those_before.is_empty() {
            true => ui.weak("with those before: not in this trace"),
            false => {
                sign(ui, sum, true);
                ui.colored_label(sum, "with the errors of the nodes before it")
            }
        };
        if own.iter().any(|p| outlying(p.1)) {
            ui.colored_label(OUTLIER, "with a ring: outliers");
        }
    });
    let Some(i) = response.hover_pos().and_then(|p| axes.node_at(p.x)) else { return };
    painter.vline(axes.x(i), axes.rect.y_range(), Stroke::new(1.0, weak));
    let Some(errors) = &v.trace().errors else { return };
    let n = &errors.nodes[i];
    let said = |word: &str, a: bool| error(errors, n, a).map(|e| format!("\n{word} {e:.1e}"));
    let parts = [said("alone", false), said("with those before", true)];
    let text = format!("{}{}", n.name, parts.into_iter().flatten().collect::<String>());
    let name = n.name.clone();
    if response.on_hover_text_at_pointer(text).clicked() {
        v.select([name]);
    }
}

/// A point or a line as in the picture.
fn sign(ui: &mut Ui, colour: Color32, line: bool) {
    let (rect, _) = ui.allocate_exact_size(vec2(14.0, 10.0), Sense::hover());
    match line {
        true => ui.painter().hline(rect.x_range(), rect.center().y, Stroke::new(2.0, colour)),
        false => ui.painter().circle_filled(rect.center(), 2.5, colour),
    };
}

/// The colours of errors alone and accumulated.
fn lines(dark: bool) -> [Color32; 2] {
    match dark {
        true => [Color32::from_rgb(120, 180, 255), Color32::from_rgb(255, 150, 80)],
        false => [Color32::from_rgb(20, 90, 200), Color32::from_rgb(200, 80, 10)],
    }
}

fn grid(painter: &Painter, axes: &Axes, tolerance: f64, weak: Color32) {
    let font = FontId::proportional(10.0);
    let [low, high] = axes.range;
    let step = if high - low > 6.0 { 2 } else { 1 };
    for decade in (low as i32..=high as i32).step_by(step) {
        let y = axes.y(10f64.powi(decade));
        painter.hline(axes.rect.x_range(), y, Stroke::new(0.5, weak.gamma_multiply(0.4)));
        let at = pos2(axes.rect.min.x - 4.0, y);
        painter.text(at, Align2::RIGHT_CENTER, format!("1e{decade}"), font.clone(), weak);
    }
    let y = axes.y(tolerance);
    let line = [pos2(axes.rect.min.x, y), pos2(axes.rect.max.x, y)];
    let red = Color32::from_rgb(210, 60, 60);
    painter.extend(Shape::dashed_line(&line, Stroke::new(1.2, red), 6.0, 4.0));
    let at = pos2(axes.rect.min.x + 4.0, y - 1.0);
    painter.text(at, Align2::LEFT_BOTTOM, format!("tolerance {tolerance:.0e}"), font, red);
}
