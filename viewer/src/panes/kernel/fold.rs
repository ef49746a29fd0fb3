//! Runs of unrolled lines: lines that are alike but for their numbers, one after another, become one row.

/// A row of a listing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ListRow {
    /// A line.
    Line(usize),
    /// So many lines from `first` on that repeat the `period` lines before them.
    More {
        /// The first of them.
        first: usize,
        /// How many.
        count: usize,
        /// Lines that repeat.
        period: usize,
    },
}

/// The longest group of lines that is looked for.
const LONGEST: usize = 8;
/// Fewer lines than this are not folded away.
const LEAST: usize = 6;

/// A line with each number as one sign.
fn shape(line: &str) -> String {
    let mut out = String::with_capacity(line.len());
    let mut before = false;
    for c in line.chars() {
        let digit = c.is_ascii_digit();
        if !digit {
            out.push(c);
        } else if !before {
            out.push('#');
        }
        before = digit;
    }
    out
}

/// The rows of a listing; runs that begin at a line in `open` are not folded.
pub fn fold_runs(lines: &[&str], open: &dyn Fn(usize) -> bool) -> Vec<ListRow> {
    let shapes: Vec<String> = lines.iter().map(|l| shape(l)).collect();
    let mut out = Vec::new();
    let mut at = 0;
    while at < lines.len() {
        // Lines from `at + period` on that are like those one period before.
        let repeated = |period: usize| {
            let rest = shapes[at..].iter().zip(shapes.get(at + period..).unwrap_or_default());
            let same = rest.take_while(|(a, b)| a == b).count();
            same / period * period
        };
        let plain = |period: usize| shapes[at..at + period].iter().all(|s| s.trim().len() > 1);
        let periods = 1..=LONGEST.min(lines.len() - at);
        let found = periods.filter(|&p| plain(p)).map(|p| (repeated(p), p)).find(|&(n, _)| n >= LEAST);
        match found {
            Some((count, period)) if !open(at + period) => {
                out.extend((at..at + period).map(ListRow::Line));
                out.push(ListRow::More { first: at + period, count, period });
                at += period + count;
            }
            Some((count, period)) => {
                out.extend((at..at + period + count).map(ListRow::Line));
                at += period + count;
            }
            None => {
                out.push(ListRow::Line(at));
                at += 1;
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unrolled_lines_are_one_row_until_they_are_opened() {
        let mut lines = vec!["fn main() {".to_string()];
        for i in 0..8 {
            lines.push(format!("  let a_{i} = x[{}];", 4 * i));
            lines.push(format!("  s_{i} = fma(a_{i}, w, s_{i});"));
        }
        lines.extend(["  y[0] = s_0;".to_string(), "}".to_string()]);
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        let folded = fold_runs(&lines, &|_| false);
        let more = ListRow::More { first: 3, count: 14, period: 2 };
        let line = ListRow::Line;
        assert_eq!(folded, [line(0), line(1), line(2), more, line(17), line(18)]);
        let open = fold_runs(&lines, &|first| first == 3);
        assert_eq!(open, (0..lines.len()).map(ListRow::Line).collect::<Vec<_>>());
    }

    #[test]
    fn a_few_equal_lines_and_braces_stay() {
        let lines = ["a = 1;", "a = 2;", "a = 3;", "}", "}", "}", "}", "}", "}", "}", "}"];
        let rows = fold_runs(&lines, &|_| false);
        assert_eq!(rows.len(), lines.len());
    }
}
