//! Repeated stretches of a chain of items, and the places at which a chain is cut best.

use std::cmp::Reverse;
use std::ops::Range;

/// Longer stretches are not looked for: their repetitions have repetitions inside.
const LONGEST: usize = 1000;

/// A stretch of items that is repeated without a gap.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Run {
    pub(super) start: usize,
    /// Items of one repetition.
    pub(super) period: usize,
    /// Repetitions.
    pub(super) times: usize,
}

impl Run {
    pub(super) fn end(&self) -> usize {
        self.start + self.period * self.times
    }
    /// The items of each repetition.
    pub(super) fn blocks(self) -> impl Iterator<Item = Range<usize>> {
        (0..self.times).map(move |k| self.start + k * self.period..self.start + (k + 1) * self.period)
    }
}

/// A place between two items of a chain.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(super) struct Border {
    /// Values that pass it.
    pub(super) values: usize,
    /// Reads of these values behind it. A residual block begins with a value that is read twice.
    pub(super) reads: usize,
}

/// A chain of items.
pub(super) struct Chain<'a> {
    /// Of each item: equal for items that do the same.
    pub(super) looks: &'a [u64],
    /// Before each item, and behind the last one.
    pub(super) borders: &'a [Border],
    /// Whether so many items from this one on may be one of several equal blocks.
    pub(super) may: &'a dyn Fn(Range<usize>) -> bool,
    /// Equal for stretches in which the items read each other alike.
    pub(super) wiring: &'a dyn Fn(Range<usize>) -> u64,
}

impl Chain<'_> {
    /// Runs that do not overlap, in order: the one that covers most items first, then those before and behind it.
    pub(super) fn runs(&self, range: Range<usize>) -> Vec<Run> {
        let Some(best) = self.best(range.clone()) else { return vec![] };
        let mut out = self.runs(range.start..best.start);
        let behind = best.end()..range.end;
        out.push(best);
        out.extend(self.runs(behind));
        out
    }
    fn best(&self, range: Range<usize>) -> Option<Run> {
        let mut best: Option<Run> = None;
        for period in 1..=(range.len() / 2).min(LONGEST) {
            let mut at = range.start;
            while at + period < range.end {
                let same = (at..range.end - period).take_while(|&i| self.looks[i] == self.looks[i + period]).count();
                let most = (same + period) / period * period;
                if same >= period
                    && best.is_none_or(|b| most > b.period * b.times)
                    && let Some(run) = self.place(at..at + same + period, period)
                    && best.is_none_or(|b| run.period * run.times > b.period * b.times)
                {
                    best = Some(run);
                }
                at += same + 1;
            }
        }
        best
    }
    /// The repetitions of a stretch with this period: where few values pass their borders, and are read often.
    fn place(&self, range: Range<usize>, period: usize) -> Option<Run> {
        let shifted = |by: usize| {
            let start = range.start + by;
            let run = Run { start, period, times: (range.end - start) / period };
            (run.times > 1 && (self.may)(start..start + period)).then_some(run)
        };
        let inner = |run: &Run| run.blocks().skip(1).map(|b| self.borders[b.start]).collect::<Vec<_>>();
        let key = |run: &Run| {
            let values = inner(run).iter().map(|b| b.values).max();
            let reads = inner(run).iter().map(|b| b.reads).min();
            (values, Reverse(reads), Reverse(run.times), run.start)
        };
        let run = (0..period).filter_map(shifted).min_by_key(key)?;
        self.alike(run)
    }
    /// The longest part of a run in which all repetitions are wired alike.
    fn alike(&self, run: Run) -> Option<Run> {
        let wirings: Vec<u64> = run.blocks().map(|b| (self.wiring)(b)).collect();
        let (mut best, mut first) = (0..0, 0);
        for i in 0..=wirings.len() {
            if i == wirings.len() || wirings[i] != wirings[first] {
                if i - first > best.len() {
                    best = first..i;
                }
                first = i;
            }
        }
        let part = Run { start: run.start + best.start * run.period, times: best.len(), ..run };
        (part.times > 1).then_some(part)
    }
}

/// Divides a chain into stretches of similar weight at the borders that the fewest values pass, if possible where one
/// of these values is read several times. `borders` are those between items, the first before item 1.
pub(super) fn divide(weights: &[usize], borders: &[Border], parts: usize) -> Vec<Range<usize>> {
    let narrow = borders.iter().map(|b| b.values).min().unwrap_or(0);
    let (mut cuts, mut forks) = (vec![], vec![]);
    for (i, b) in borders.iter().enumerate().filter(|(_, b)| b.values == narrow) {
        cuts.push(i + 1);
        forks.extend((b.reads > b.values).then_some(i + 1));
    }
    let most = weights.iter().sum::<usize>() / parts.max(1);
    let cuts = if forks.len() > 1 { forks } else { cuts };
    let (mut out, mut from, mut end, mut held) = (vec![], 0, 0, 0);
    for cut in cuts.into_iter().chain([weights.len()]) {
        let more: usize = weights[end..cut].iter().sum();
        if end > from && held + more > most {
            out.push(from..end);
            (from, held) = (end, 0);
        }
        (end, held) = (cut, held + more);
    }
    out.push(from..end);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Borders that so many values pass, each read once behind it.
    fn borders(values: &[usize]) -> Vec<Border> {
        values.iter().map(|&values| Border { values, reads: values }).collect()
    }

    /// Runs of a chain of letters.
    fn runs(letters: &str, borders: &[Border]) -> Vec<(usize, usize, usize)> {
        let looks: Vec<u64> = letters.bytes().map(u64::from).collect();
        let chain = Chain { looks: &looks, borders, may: &|r| r.len() > 1, wiring: &|_| 0 };
        chain.runs(0..looks.len()).iter().map(|r| (r.start, r.period, r.times)).collect()
    }

    #[test]
    fn repeated_stretches_are_found_with_what_stands_around_them() {
        assert_eq!(runs("xabcabcabcy", &borders(&[1; 12])), [(1, 3, 3)]);
        assert_eq!(runs("abab-cdecdecde", &borders(&[1; 15])), [(0, 2, 2), (5, 3, 3)]);
        assert_eq!(runs("abcdef", &borders(&[1; 7])), []);
    }

    #[test]
    fn blocks_begin_where_few_values_pass_and_are_read_often() {
        // The border before each `a` is passed by one value, others by two.
        let mut all = borders(&[2, 2, 1, 2, 2, 1, 2, 2, 1, 2]);
        assert_eq!(runs("bcabcabca", &all), [(2, 3, 2)]);
        // Before each `c` is one value, too, and two read it.
        [1, 4, 7].into_iter().for_each(|i| all[i] = Border { values: 1, reads: 2 });
        assert_eq!(runs("bcabcabca", &all), [(1, 3, 2)]);
    }

    #[test]
    fn a_block_that_is_wired_otherwise_ends_a_run() {
        let looks = [1, 2, 1, 2, 1, 2];
        let wiring = |r: Range<usize>| u64::from(r.start >= 4);
        let chain = Chain { looks: &looks, borders: &borders(&[1; 7]), may: &|r| r.len() > 1, wiring: &wiring };
        assert_eq!(chain.runs(0..6), [Run { start: 0, period: 2, times: 2 }]);
    }

    #[test]
    fn a_chain_is_divided_at_its_narrow_places() {
        assert_eq!(divide(&[1; 6], &borders(&[1, 2, 1, 2, 1]), 3), [0..1, 1..3, 3..5, 5..6]);
        assert_eq!(divide(&[1; 4], &borders(&[1, 1, 1]), 2), [0..2, 2..4]);
        assert_eq!(divide(&[5], &[], 2).first(), Some(&(0..1)));
        let mut all = borders(&[1, 1, 1, 1, 1]);
        [1, 3].into_iter().for_each(|i| all[i].reads = 2);
        assert_eq!(divide(&[1; 6], &all, 6), [0..2, 2..4, 4..6]);
    }
}
