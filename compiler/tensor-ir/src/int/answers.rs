//! Answers of searches for proofs that are kept.

use super::Int;
use rustc_hash::FxHashMap;

/// Cached results for differences with their search depth, by the number of conditions in force. A proof remains valid
/// under additional conditions.
#[derive(Clone, Debug, Default)]
pub(super) struct Answers {
    stack: Vec<(usize, FxHashMap<(Int, usize), bool>)>,
}

impl Answers {
    /// Drops results that were found under more than `mark` conditions.
    pub(super) fn forget(&mut self, mark: usize) {
        while self.stack.last().is_some_and(|s| s.0 > mark) {
            self.stack.pop();
        }
    }
    pub(super) fn get(&self, key: &(Int, usize), conditions: usize) -> Option<bool> {
        let found =
            |(under, of): &(usize, FxHashMap<_, bool>)| of.get(key).copied().filter(|a| *a || *under == conditions);
        self.stack.iter().rev().find_map(found)
    }
    pub(super) fn insert(&mut self, key: (Int, usize), conditions: usize, answer: bool) {
        if self.stack.last().is_none_or(|s| s.0 < conditions) {
            self.stack.push((conditions, FxHashMap::default()));
        }
        if let Some((_, answers)) = self.stack.last_mut() {
            answers.insert(key, answer);
        }
    }
}
