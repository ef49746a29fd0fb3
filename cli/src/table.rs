//! Tables without borders. On a terminal they are as wide as it is, one line a row: names in wide columns are shortened
//! in the middle, and columns that still do not fit are left out and counted. In files and pipes they are whole.

use crate::terminal::colours;
use comfy_table::{Attribute, Cell, Color, Row};
use compiler::bare::shown;
use graphview::names::cut_apart;
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
    /// The column that is left out first.
    spare: Option<usize>,
}

/// An empty table, as wide as the terminal where stdout is one.
pub fn table(header: &[&str]) -> Table {
    let mut inner = empty();
    let bold = colours(&std::io::stdout());
    let cell = |h: &&str| if bold { Cell::new(h).add_attribute(Attribute::Bold) } else { Cell::new(h) };
    inner.set_header(header.iter().map(cell));
    Table { inner, width: terminal_width(), spare: None }
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

/// What several names begin with alike, up to the end of a part of a path; nothing where that saves little.
fn common_path<'a>(names: &[&'a str]) -> &'a str {
    let [first, rest @ ..] = names else { return "" };
    let shared = |n: &&str| first.char_indices().zip(n.chars()).take_while(|((_, a), b)| a == b).last();
    let ends = rest.iter().map(|n| shared(n).map_or(0, |((at, c), _)| at + c.len_utf8()));
    let alike = &first[..ends.min().unwrap_or(0)];
    alike.rfind(['/', '.']).filter(|&end| end > 2).map_or("", |end| &alike[..=end])
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

    /// Names the column that is left out first where the table is too wide, before names are shortened.
    pub fn spare(mut self, column: usize) -> Table {
        self.spare = Some(column);
        self
    }

    /// True when it has no row but its header.
    pub fn is_empty(&self) -> bool {
        self.inner.is_empty()
    }

    /// Columns that fit into `width`, each with the width it gets.
    fn widths(&self, width: usize) -> Vec<(usize, usize)> {
        let whole = self.inner.column_max_content_widths().into_iter().map(usize::from);
        let mut widths: Vec<(usize, usize)> = whole.enumerate().collect();
        let total = |widths: &[(usize, usize)]| widths.iter().map(|w| w.1 + PADDING).sum::<usize>();
        if total(&widths) > width {
            widths.retain(|w| Some(w.0) != self.spare);
        }
        let text = |column: usize| {
            self.inner.row_iter().any(|r| r.cell_iter().nth(column).is_some_and(|c| is_text(&c.content())))
        };
        let text: Vec<usize> = (0..widths.len()).filter(|&c| text(widths[c].0)).collect();
        while total(&widths) > width {
            let long = |c: &&usize| **c < widths.len() && widths[**c].1 > LEAST;
            // Rows are told apart by the first text: it is shortened last.
            let widest =
                text.iter().skip(1).filter(long).max_by_key(|&&c| widths[c].1).or(text.first().filter(|c| long(c)));
            match widest.copied() {
                Some(widest) => widths[widest].1 -= 1,
                None if widths.len() > 1 => drop(widths.pop()),
                None => break,
            }
        }
        widths
    }

    /// The texts of a column in so many characters: what those that are too long begin with alike is left out, and
    /// different texts stay different where that is possible.
    fn cut(&self, column: usize, width: usize) -> Vec<String> {
        let cell = |r: &Row| r.cell_iter().nth(column).map_or_else(String::new, Cell::content);
        let texts: Vec<String> = self.inner.row_iter().map(cell).collect();
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        let long: Vec<&str> = texts.iter().copied().filter(|t| t.chars().count() > width).collect();
        let alike = common_path(&long);
        cut_apart(&texts, width, |i, most| match texts[i].strip_prefix(alike) {
            Some(rest) if !alike.is_empty() => shortened(&format!("…{rest}"), most),
            _ => shortened(texts[i], most),
        })
    }

    fn fitted(&self, width: usize) -> (comfy_table::Table, usize) {
        let widths = self.widths(width);
        let cut: Vec<Vec<String>> = widths.iter().map(|&(column, w)| self.cut(column, w)).collect();
        let mut t = empty();
        if let Some(header) = self.inner.header() {
            let cells = widths.iter().filter_map(|&(column, w)| {
                let cell = header.cell_iter().nth(column)?;
                let text = cell.content();
                Some(if text.chars().count() > w { Cell::new(shortened(&text, w)) } else { cell.clone() })
            });
            t.set_header(cells.collect::<Vec<Cell>>());
        }
        for (i, row) in self.inner.row_iter().enumerate() {
            let cells = widths.iter().zip(&cut).filter_map(|(&(column, _), texts)| {
                let cell = row.cell_iter().nth(column)?;
                Some(if texts[i] == cell.content() { cell.clone() } else { Cell::new(&texts[i]) })
            });
            t.add_row(cells.collect::<Vec<Cell>>());
        }
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
    fn shortened_names_stay_different_and_the_spare_column_goes_first() {
        let mut t = table(&["node", "op", "largest"]).spare(1);
        let names = ["3/squeeze/Conv", "3/expand1x1_activation/Relu", "12/expand1x1_activation/Relu"];
        for n in names {
            t.add_row([&format!("/features/features.{n}"), "operator", "13.9"]);
        }
        let at = |width| Table { inner: t.inner.clone(), width: Some(width), spare: t.spare }.to_string();
        assert!(at(80).contains("operator") && at(80).contains("/features/features.12/expand"), "{}", at(80));
        let text = at(45);
        assert!(text.contains("…12/expand1x1_activation/Relu") && text.contains("13.9"), "{text}");
        assert!(!text.contains("operator") && text.contains("one more column"), "{text}");
        let mut rows: Vec<String> = at(28).lines().map(String::from).collect();
        rows.dedup();
        assert_eq!(rows.len(), 5, "{rows:?}");
    }

    #[test]
    fn columns_that_do_not_fit_are_counted() {
        let text = at(32);
        assert!(text.ends_with("(a wider terminal shows one more column)"), "{text}");
        assert!(text.contains("1197.4") && !text.contains("direct"), "{text}");
    }
}
