//! Tables without borders. On a terminal they are as wide as it is, one line a row: names in wide columns are shortened
//! in the middle, and columns that still do not fit are left out and counted. In files and pipes they are whole.

use crate::terminal::colours;
use comfy_table::{Attribute, Cell, Color, Row};
use compiler::bare::shown;
use std::fmt;
use std::io::IsTerminal;

/// A column of text is not made narrower than this.
const LEAST: usize = 14;
/// Blanks around a column.
const PADDING: usize = 2;

/// A table for people.
pub struct Table {
    inner: comfy_table::Table,
    width: Option<usize>,
}

/// An empty table, as wide as the terminal where stdout is one.
pub fn table(header: &[&str]) -> Table {
    let mut inner = empty();
    let bold = colours(&std::io::stdout());
    let cell = |h: &&str| if bold { Cell::new(h).add_attribute(Attribute::Bold) } else { Cell::new(h) };
    inner.set_header(header.iter().map(cell));
    Table { inner, width: terminal_width() }
}

/// Characters of a line of the terminal that stdout is; `None` for a file or a pipe.
pub fn terminal_width() -> Option<usize> {
    std::io::stdout().is_terminal().then(|| empty().width()).flatten().map(usize::from)
}

fn empty() -> comfy_table::Table {
    let mut t = comfy_table::Table::new();
    t.load_style(comfy_table::presets::NOTHING);
    t
}

/// A cell that says whether something holds.
pub fn verdict(pass: bool) -> Cell {
    let cell = Cell::new(if pass { "ok" } else { "FAIL" });
    match colours(&std::io::stdout()) {
        true => cell.fg(if pass { Color::Green } else { Color::Red }),
        false => cell,
    }
}

/// `text` in at most `width` characters: its beginning and its end, `…` between them.
fn shortened(text: &str, width: usize) -> String {
    let chars: Vec<char> = text.chars().collect();
    if chars.len() <= width {
        return text.to_string();
    }
    let kept = width.saturating_sub(1);
    let tail = kept / 3;
    let head = kept - tail;
    chars[..head].iter().chain(&['…']).chain(&chars[chars.len() - tail..]).collect()
}

/// Numbers and verdicts are shown whole.
fn is_text(content: &str) -> bool {
    content.len() > LEAST && content.starts_with(|c: char| c.is_alphabetic() || c == '/' || c == '_')
}

impl Table {
    /// Adds a row. Hidden characters in it are shown.
    pub fn add_row(&mut self, row: impl Into<Row>) -> &mut Table {
        let row: Row = row.into();
        let cell = |cell: &Cell| match shown(&cell.content()) {
            text if text == cell.content() => cell.clone(),
            text => Cell::new(text),
        };
        self.inner.add_row(row.cell_iter().map(cell).collect::<Vec<Cell>>());
        self
    }

    /// True when it has no row but its header.
    pub fn is_empty(&self) -> bool {
        self.inner.is_empty()
    }

    /// Columns that fit into `width`, each with the width it gets.
    fn widths(&self, width: usize) -> Vec<usize> {
        let mut widths: Vec<usize> = self.inner.column_max_content_widths().into_iter().map(usize::from).collect();
        let text = |column: usize| {
            self.inner.row_iter().any(|r| r.cell_iter().nth(column).is_some_and(|c| is_text(&c.content())))
        };
        let text: Vec<usize> = (0..widths.len()).filter(|&c| text(c)).collect();
        let total = |widths: &[usize]| widths.iter().map(|w| w + PADDING).sum::<usize>();
        while total(&widths) > width {
            let long = |c: &&usize| **c < widths.len() && widths[**c] > LEAST;
            // Rows are told apart by the first text: it is shortened last.
            let widest =
                text.iter().skip(1).filter(long).max_by_key(|&&c| widths[c]).or(text.first().filter(|c| long(c)));
            match widest.copied() {
                Some(widest) => widths[widest] -= 1,
                None if widths.len() > 1 => drop(widths.pop()),
                None => break,
            }
        }
        widths
    }

    fn fitted(&self, width: usize) -> (comfy_table::Table, usize) {
        let widths = self.widths(width);
        let fit = |row: &Row| {
            let cells = row.cell_iter().zip(&widths).map(|(cell, &w)| match cell.content() {
                c if c.chars().count() > w => Cell::new(shortened(&c, w)),
                _ => cell.clone(),
            });
            Row::from(cells.collect::<Vec<Cell>>())
        };
        let mut t = empty();
        if let Some(header) = self.inner.header() {
            t.set_header(fit(header));
        }
        t.add_rows(self.inner.row_iter().map(fit));
        (t, self.inner.column_max_content_widths().len() - widths.len())
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(width) = self.width else { return self.inner.fmt(f) };
        match self.fitted(width) {
            (t, 0) => t.fmt(f),
            (t, 1) => write!(f, "{t}\n(a wider terminal shows one more column)"),
            (t, n) => write!(f, "{t}\n(a wider terminal shows {n} more columns)"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(width: usize) -> String {
        let mut t = table(&["kernel", "calls", "us", "by"]);
        t.add_row(["features.3.expand1x1+relu+conv+relu+concat/concat_6_0", "2", "1197.4", "matmul-subgroup"]);
        t.add_row(["features.2", "1", "2868.1", "direct"]);
        Table { width: Some(width), ..t }.to_string()
    }

    #[test]
    fn tables_fit_the_terminal() {
        for width in [60, 80, 120] {
            let text = at(width);
            assert!(text.lines().all(|l| l.trim_end().chars().count() <= width), "{width}:\n{text}");
            assert!(!text.contains("more column"), "{text}");
        }
        assert!(at(60).contains("features") && at(60).contains("…") && at(60).contains("cat_6_0"), "{}", at(60));
        assert!(at(120).contains("expand1x1+relu+conv+relu+concat/concat_6_0"));
    }

    #[test]
    fn columns_that_do_not_fit_are_counted() {
        let text = at(32);
        assert!(text.ends_with("(a wider terminal shows one more column)"), "{text}");
        assert!(text.contains("1197.4") && !text.contains("direct"), "{text}");
    }
}
