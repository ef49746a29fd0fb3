//! Line differences of two texts.
//!
//! The algorithm is patience diff (Bram Cohen): common beginnings and ends are removed, then lines that occur exactly
//! once on both sides are matched along a longest increasing subsequence, and the parts between two matches are treated
//! in the same way. It takes `n log n` time for all texts; only runs of repeated lines are not matched.

use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

/// A run of lines that are kept, then some that are replaced.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Hunk {
    /// Lines of the old text that are kept.
    pub keep: u32,
    /// Lines of the old text that are dropped after them.
    pub drop: u32,
    /// Text that stands in their place, with its line ends.
    pub add: String,
}

/// The hunks that turn one text into another; the text after the last hunk is unchanged.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct TextDelta {
    /// Changes from top to bottom; none when the texts are equal.
    pub hunks: Vec<Hunk>,
}

/// The lines of a text with their ends.
fn lines(text: &str) -> Vec<&str> {
    text.split_inclusive('\n').collect()
}

impl TextDelta {
    /// The difference from `old` to `new`.
    pub fn between(old: &str, new: &str) -> TextDelta {
        let (old, new) = (lines(old), lines(new));
        let mut matched = Vec::new();
        let mut open = vec![(0, old.len(), 0, new.len())];
        while let Some((mut a, mut a_end, mut b, mut b_end)) = open.pop() {
            while a < a_end && b < b_end && old[a] == new[b] {
                matched.push((a, b));
                (a, b) = (a + 1, b + 1);
            }
            while a < a_end && b < b_end && old[a_end - 1] == new[b_end - 1] {
                (a_end, b_end) = (a_end - 1, b_end - 1);
                matched.push((a_end, b_end));
            }
            let anchors = unique_matches(&old[a..a_end], &new[b..b_end]);
            let mut from = (a, b);
            for &(i, j) in &anchors {
                let to = (a + i, b + j);
                open.push((from.0, to.0, from.1, to.1));
                matched.push(to);
                from = (to.0 + 1, to.1 + 1);
            }
            if !anchors.is_empty() {
                open.push((from.0, a_end, from.1, b_end));
            }
        }
        matched.sort_unstable();
        TextDelta::of_matches(&old, &new, &matched)
    }

    /// The hunks between the lines that match, in order.
    fn of_matches(old: &[&str], new: &[&str], matched: &[(usize, usize)]) -> TextDelta {
        let (mut hunks, mut keep, mut from) = (Vec::new(), 0, (0, 0));
        for &(i, j) in matched.iter().chain([&(old.len(), new.len())]) {
            if (i, j) != from {
                hunks.push(Hunk { keep, drop: (i - from.0) as u32, add: new[from.1..j].concat() });
                keep = 0;
            }
            keep += 1;
            from = (i + 1, j + 1);
        }
        TextDelta { hunks }
    }

    /// The new text, from the old one; `None` when the delta belongs to another text.
    pub fn apply(&self, old: &str) -> Option<String> {
        let mut rest = old.split_inclusive('\n');
        let mut out = String::with_capacity(old.len());
        for h in &self.hunks {
            for _ in 0..h.keep {
                out.push_str(rest.next()?);
            }
            for _ in 0..h.drop {
                rest.next()?;
            }
            out.push_str(&h.add);
        }
        rest.for_each(|line| out.push_str(line));
        Some(out)
    }

    /// True when both texts are the same.
    pub fn is_empty(&self) -> bool {
        self.hunks.is_empty()
    }
    /// Lines dropped and lines added.
    pub fn size(&self) -> (usize, usize) {
        let added = self.hunks.iter().map(|h| h.add.split_inclusive('\n').count()).sum();
        (self.hunks.iter().map(|h| h.drop as usize).sum(), added)
    }
}

/// Places of the lines that occur exactly once on both sides: as many as stand in the same order.
fn unique_matches(old: &[&str], new: &[&str]) -> Vec<(usize, usize)> {
    #[derive(Default)]
    struct Seen {
        old: (u32, usize),
        new: (u32, usize),
    }
    if old.is_empty() || new.is_empty() {
        return vec![];
    }
    let mut seen: FxHashMap<&str, Seen> = FxHashMap::default();
    for (i, line) in old.iter().enumerate() {
        let s = &mut seen.entry(line).or_default().old;
        *s = (s.0 + 1, i);
    }
    for (j, line) in new.iter().enumerate() {
        if let Some(s) = seen.get_mut(line) {
            s.new = (s.new.0 + 1, j);
        }
    }
    let once = seen.values().filter(|s| s.old.0 == 1 && s.new.0 == 1);
    let mut pairs: Vec<(usize, usize)> = once.map(|s| (s.old.1, s.new.1)).collect();
    pairs.sort_unstable();
    increasing(&pairs)
}

/// A longest subsequence of pairs, sorted by their first half, whose second halves increase.
fn increasing(pairs: &[(usize, usize)]) -> Vec<(usize, usize)> {
    let mut piles: Vec<usize> = Vec::new();
    let mut before: Vec<Option<usize>> = Vec::with_capacity(pairs.len());
    for (i, p) in pairs.iter().enumerate() {
        let at = piles.partition_point(|&top| pairs[top].1 < p.1);
        before.push(at.checked_sub(1).map(|b| piles[b]));
        match piles.get_mut(at) {
            Some(top) => *top = i,
            None => piles.push(i),
        }
    }
    let mut out = Vec::with_capacity(piles.len());
    let mut next = piles.last().copied();
    while let Some(i) = next {
        out.push(pairs[i]);
        next = before[i];
    }
    out.reverse();
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn delta(old: &str, new: &str) -> TextDelta {
        let d = TextDelta::between(old, new);
        assert_eq!(d.apply(old).as_deref(), Some(new));
        d
    }

    #[test]
    fn only_what_changed_is_kept() {
        let d = delta("a\nb\nc\nd\n", "a\nx\nc\nd\ny\n");
        let hunk = |keep, drop, add: &str| Hunk { keep, drop, add: add.into() };
        assert_eq!(d.hunks, [hunk(1, 1, "x\n"), hunk(2, 0, "y\n")]);
        assert_eq!(d.size(), (1, 2));
        assert!(delta("a\nb", "a\nb").is_empty());
    }

    #[test]
    fn a_moved_block_is_found_and_a_missing_line_end_is_kept() {
        let d = delta("{\na\nb\nc\n}\n{\nd\n}", "{\nd\n}\n{\na\nb\nc\n}\n");
        assert!(d.size().1 <= 5, "{d:?}");
        delta("", "a");
        delta("a\n", "");
    }

    #[test]
    fn a_delta_of_another_text_is_refused() {
        assert_eq!(TextDelta::between("a\nb\nc\n", "a\nb\n").apply("a\n"), None);
    }

    proptest! {
        #[test]
        fn any_text_comes_back(old in "[abc\n]{0,40}", new in "[abc\n]{0,40}") {
            let d = TextDelta::between(&old, &new);
            prop_assert_eq!(d.apply(&old), Some(new.clone()));
            prop_assert_eq!(d.is_empty(), old == new);
        }
    }
}
