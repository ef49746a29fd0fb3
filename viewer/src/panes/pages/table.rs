//! Tables of a page: a click on a column's head sorts by it, a click on a row chooses it.

use egui::{Align, Color32, Grid, Label, Layout, RichText, Sense, Ui};

/// A cell.
pub(super) struct Cell {
    /// Its text.
    pub(super) text: String,
    /// What it is sorted by; numbers stand at the right.
    pub(super) number: Option<f64>,
    /// Its colour, if it has one of its own.
    pub(super) colour: Option<Color32>,
}
impl Cell {
    pub(super) fn text(text: impl Into<String>) -> Cell {
        Cell { text: text.into(), number: None, colour: None }
    }
    /// A number; nothing is shown where it is not known.
    pub(super) fn number(x: Option<f64>, shown: impl Fn(f64) -> String) -> Cell {
        Cell { text: x.map_or(String::new(), shown), number: Some(x.unwrap_or(f64::NEG_INFINITY)), colour: None }
    }
    pub(super) fn coloured(self, colour: Option<Color32>) -> Cell {
        Cell { colour, ..self }
    }
}

/// The column that a table is sorted by, and whether the largest stand first.
pub(super) type Sort = Option<(usize, bool)>;

/// Rows that are drawn; more would only slow the page down.
const MOST: usize = 400;

/// Draws a table, and gives the row that was clicked. `marked` rows belong to the selection.
pub(super) fn show(
    ui: &mut Ui,
    id: &str,
    heads: &[&str],
    rows: &[Vec<Cell>],
    sort: &mut Sort,
    marked: &dyn Fn(usize) -> bool,
) -> Option<usize> {
    let mut order: Vec<usize> = (0..rows.len()).collect();
    if let Some((column, falling)) = *sort {
        order.sort_by(|&a, &b| {
            let (a, b) = (&rows[a][column], &rows[b][column]);
            let by = match (a.number, b.number) {
                (Some(a), Some(b)) => a.total_cmp(&b),
                _ => a.text.cmp(&b.text),
            };
            if falling { by.reverse() } else { by }
        });
    }
    let mut clicked = None;
    Grid::new(id).num_columns(heads.len()).striped(true).spacing([16.0, 3.0]).show(ui, |ui| {
        for (c, head) in heads.iter().enumerate() {
            let sign = sort.filter(|s| s.0 == c).map_or("", |s| if s.1 { " ▼" } else { " ▲" });
            let numeric = rows.first().is_some_and(|r| r[c].number.is_some());
            if ui.add(Label::new(RichText::new(format!("{head}{sign}")).weak()).sense(Sense::click())).clicked() {
                *sort = match *sort {
                    Some((at, falling)) if at == c && falling == numeric => Some((c, !falling)),
                    Some((at, _)) if at == c => None,
                    _ => Some((c, numeric)),
                };
            }
        }
        ui.end_row();
        for &i in order.iter().take(MOST) {
            for (c, cell) in rows[i].iter().enumerate() {
                let mut text = RichText::new(&cell.text);
                if let Some(colour) = cell.colour {
                    text = text.color(colour);
                }
                if marked(i) {
                    text = text.strong();
                }
                let label = Label::new(text).sense(Sense::click()).selectable(false);
                // The last column would take all of the width.
                let right = cell.number.is_some() && c + 1 < heads.len();
                let hit = match right {
                    false => ui.add(label).clicked(),
                    true => ui.with_layout(Layout::right_to_left(Align::Center), |ui| ui.add(label).clicked()).inner,
                };
                if hit {
                    clicked = Some(i);
                }
            }
            ui.end_row();
        }
    });
    if rows.len() > MOST {
        ui.weak(format!("and {} more", rows.len() - MOST));
    }
    clicked
}
