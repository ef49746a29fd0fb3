//! Tables of a page: a click on a column's head sorts by it, a click on a row chooses it.

use crate::panes::in_view;
use crate::words;
use egui::{Align2, Color32, FontId, Rect, Sense, Ui, WidgetInfo, pos2, vec2};
use std::cell::RefCell;

/// A cell.
pub(crate) struct Cell {
    /// Its text.
    pub(super) text: String,
    /// What it is sorted by; numbers stand at the right.
    pub(super) number: Option<f64>,
    /// Its colour, if it has one of its own.
    pub(super) colour: Option<Color32>,
    /// The text at the pointer; empty for the cell's own.
    pub(super) about: String,
}
impl Cell {
    pub(super) fn text(text: impl Into<String>) -> Cell {
        Cell { text: text.into(), number: None, colour: None, about: String::new() }
    }
    /// A number; nothing is shown where it is not known.
    pub(super) fn number(x: Option<f64>, shown: impl Fn(f64) -> String) -> Cell {
        let text = x.map_or(String::new(), shown);
        Cell { text, number: Some(x.unwrap_or(f64::NEG_INFINITY)), colour: None, about: String::new() }
    }
    pub(super) fn coloured(self, colour: Option<Color32>) -> Cell {
        Cell { colour, ..self }
    }
    pub(super) fn about(self, about: impl Into<String>) -> Cell {
        Cell { about: about.into(), ..self }
    }
}

/// The column that a table is sorted by, and whether the largest stand first.
pub(super) type Sort = Option<(usize, bool)>;

/// Height of a row, and the space behind a column.
const ROW: f32 = 19.0;
const GAP: f32 = 14.0;
/// Points of a character on an average.
const WIDE: f32 = 6.2;

/// A table, made once.
#[derive(Default)]
pub(crate) struct Table {
    /// Its name among the tables of a page.
    id: &'static str,
    heads: Vec<&'static str>,
    rows: Vec<Vec<Cell>>,
    widths: Vec<f32>,
    /// The rows in order, and what they are sorted by.
    order: RefCell<(Sort, Vec<usize>)>,
}

impl Table {
    pub(super) fn new(id: &'static str, heads: &[&'static str], rows: Vec<Vec<Cell>>) -> Table {
        let wide = |c: usize| {
            let cells = rows.iter().map(|r| r[c].text.chars().count());
            cells.max().unwrap_or(0).max(heads[c].chars().count() + 2) as f32 * WIDE + GAP
        };
        let order = RefCell::new((None, (0..rows.len()).collect()));
        Table { widths: (0..heads.len()).map(wide).collect(), id, heads: heads.to_vec(), rows, order }
    }
    fn sort(&self, sort: Sort) {
        let mut now = self.order.borrow_mut();
        if now.0 == sort {
            return;
        }
        let mut order: Vec<usize> = (0..self.rows.len()).collect();
        if let Some((column, falling)) = sort {
            order.sort_by(|&a, &b| {
                let (a, b) = (&self.rows[a][column], &self.rows[b][column]);
                let by = match (a.number, b.number) {
                    (Some(a), Some(b)) => a.total_cmp(&b),
                    _ => a.text.cmp(&b.text),
                };
                if falling { by.reverse() } else { by }
            });
        }
        *now = (sort, order);
    }
    /// Draws it, and gives the row that was clicked. `marked` rows belong to the selection.
    pub(super) fn show(&self, ui: &mut Ui, sort: &mut Sort, marked: &dyn Fn(usize) -> bool) -> Option<usize> {
        self.head(ui, sort);
        self.sort(*sort);
        let order = &self.order.borrow().1;
        let width = self.widths.iter().sum();
        let mut clicked = None;
        in_view(ui, order.len(), ROW, |ui, at| {
            let i = order[at];
            let (rect, response) = ui.allocate_exact_size(vec2(width, ROW), Sense::click());
            if marked(i) {
                ui.painter().rect_filled(rect, 0.0, ui.visuals().selection.bg_fill.gamma_multiply(0.5));
            } else if response.hovered() || at % 2 == 1 {
                ui.painter().rect_filled(rect, 0.0, ui.visuals().faint_bg_color);
            }
            let mut left = rect.min.x;
            for ((c, cell), width) in self.rows[i].iter().enumerate().zip(&self.widths) {
                let place = Rect::from_min_size(pos2(left, rect.min.y), vec2(*width - GAP, ROW));
                left += width;
                let (from, align) = match cell.number.is_some() && c + 1 < self.heads.len() {
                    true => (place.right_center(), Align2::RIGHT_CENTER),
                    false => (place.left_center(), Align2::LEFT_CENTER),
                };
                let ink = cell.colour.unwrap_or(ui.visuals().text_color());
                ui.painter().text(from, align, &cell.text, FontId::proportional(12.5), ink);
                let own = ui.interact(place, ui.scope_id().with((self.id, at, c)), Sense::click());
                own.widget_info(|| WidgetInfo::labeled(egui::Role::Label, true, &cell.text));
                let own = match cell.about.is_empty() {
                    true => words::hover(own, &cell.text),
                    false => own.on_hover_text(&cell.about),
                };
                if own.clicked() {
                    clicked = Some(i);
                }
            }
            if response.clicked() {
                clicked = Some(i);
            }
        });
        clicked
    }
    fn head(&self, ui: &mut Ui, sort: &mut Sort) {
        let (rect, _) = ui.allocate_exact_size(vec2(self.widths.iter().sum(), ROW), Sense::hover());
        let mut left = rect.min.x;
        for ((c, head), width) in self.heads.iter().enumerate().zip(&self.widths) {
            let place = Rect::from_min_size(pos2(left, rect.min.y), vec2(*width - GAP, ROW));
            left += width;
            let sign = sort.filter(|s| s.0 == c).map_or("", |s| if s.1 { " ▼" } else { " ▲" });
            let numeric = self.rows.first().is_some_and(|r| r[c].number.is_some());
            let (from, align) = match numeric && c + 1 < self.heads.len() {
                true => (place.right_center(), Align2::RIGHT_CENTER),
                false => (place.left_center(), Align2::LEFT_CENTER),
            };
            let weak = ui.visuals().weak_text_color();
            ui.painter().text(from, align, format!("{head}{sign}"), FontId::proportional(12.5), weak);
            let own = ui.interact(place, ui.scope_id().with((self.id, "head", c)), Sense::click());
            own.widget_info(|| WidgetInfo::labeled(egui::Role::Label, true, *head));
            if words::hover(own, head).clicked() {
                *sort = match *sort {
                    Some((at, falling)) if at == c && falling == numeric => Some((c, !falling)),
                    Some((at, _)) if at == c => None,
                    _ => Some((c, numeric)),
                };
            }
        }
    }
}
