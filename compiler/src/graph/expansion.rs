//! What a small file may expand to: calls of functions inside functions become nodes by the power of two.
//!
//! Everything that expands has the one budget [`EXPANSION_LIMIT`], which is checked before anything is expanded.

use rustc_hash::FxHashMap;
use std::hash::Hash;

/// Nodes that calls and loops of a network may become in all, beside the nodes that it has.
pub const EXPANSION_LIMIT: u64 = 100_000;

/// Functions that call each other, one inside the other, at most.
pub const NESTING_LIMIT: usize = 64;

/// The extent of an expanded function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Extent {
    nodes: u64,
    depth: usize,
}

impl Extent {
    fn check(self) -> Result<(), String> {
        if self.depth > NESTING_LIMIT {
            return Err(format!("its functions call each other {} deep, more than {NESTING_LIMIT}", self.depth));
        }
        if self.nodes > EXPANSION_LIMIT {
            let count = if self.nodes == u64::MAX { "2^64 or more".into() } else { self.nodes.to_string() };
            return Err(format!("its calls of functions expand to {count} nodes, more than {EXPANSION_LIMIT}"));
        }
        Ok(())
    }
}

/// Checks the expansion of `root`; `body` gives the nodes of a function and the functions that they call, once for each
/// call. A function that calls itself is not followed: whoever expands it keeps the call, or refuses it.
///
/// # Errors
/// More nodes or a deeper nesting than the limits, with both numbers.
pub fn check_expansion<K: Copy + Eq + Hash>(root: K, body: &dyn Fn(K) -> (u64, Vec<K>)) -> Result<(), String> {
    let mut known: FxHashMap<K, Option<Extent>> = FxHashMap::default();
    // A function is entered, then its callees, then it is left.
    let mut open: Vec<(K, Option<(u64, Vec<K>)>)> = vec![(root, None)];
    while let Some((function, entered)) = open.pop() {
        let Some((nodes, callees)) = entered else {
            if known.contains_key(&function) {
                continue;
            }
            known.insert(function, None);
            let (nodes, callees) = body(function);
            let new: Vec<K> = callees.iter().copied().filter(|c| !known.contains_key(c)).collect();
            open.push((function, Some((nodes, callees))));
            open.extend(new.into_iter().map(|c| (c, None)));
            continue;
        };
        let called = callees.iter().filter_map(|c| known.get(c).copied().flatten());
        let extent = called.fold(Extent { nodes: 0, depth: 0 }, |sum, c| Extent {
            nodes: sum.nodes.saturating_add(c.nodes),
            depth: sum.depth.max(c.depth + 1),
        });
        if function == root {
            return extent.check();
        }
        known.insert(function, Some(Extent { nodes: extent.nodes.saturating_add(nodes), ..extent }));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Function `k` of `last` calls the next one so many times.
    fn chain(last: usize, calls: usize) -> Result<(), String> {
        check_expansion(0, &|k| (1, if k < last { vec![k + 1; calls] } else { vec![] }))
    }

    #[test]
    fn calls_are_counted_before_they_are_expanded() {
        assert_eq!(chain(15, 2), Ok(()));
        let why = chain(40, 2).expect_err("2^40 nodes");
        assert!(why.contains("more than 100000"), "{why}");
        assert_eq!(chain(64, 1), Ok(()));
        assert!(chain(10_000, 1).expect_err("deep").contains("10000 deep, more than 64"));
    }

    #[test]
    fn a_function_that_calls_itself_is_not_followed() {
        assert_eq!(check_expansion(0, &|k| (1, vec![(k + 1) % 3])), Ok(()));
    }
}
