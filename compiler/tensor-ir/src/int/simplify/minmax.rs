//! Minimum and maximum.

use super::Simplifier;
use super::linear::{Linear, compare};
use crate::int::{Int, IntNode};
use std::sync::Arc;

/// Above this many operands of one nested minimum they are not compared with one another.
const MAX_OPERANDS: usize = 8;

impl Simplifier<'_> {
    /// `min(a, b)` or `max(a, b)`: nested ones are one list, and an operand that another one always beats is dropped.
    pub(super) fn extremum(&mut self, a: Linear, b: Linear, minimum: bool) -> Option<Linear> {
        let mut all = Vec::new();
        self.operands(a, minimum, &mut all)?;
        self.operands(b, minimum, &mut all)?;
        let mut keep: Vec<Linear> = Vec::new();
        for candidate in all {
            if keep.len() < MAX_OPERANDS {
                if self.beaten(&candidate, &keep, minimum)? {
                    continue;
                }
                let mut rest = Vec::with_capacity(keep.len() + 1);
                for k in keep {
                    if !self.beaten(&k, std::slice::from_ref(&candidate), minimum)? {
                        rest.push(k);
                    }
                }
                keep = rest;
            }
            keep.push(candidate);
        }
        if let [one] = keep.as_slice() {
            return Some(one.clone());
        }
        let mut keep: Vec<Int> = keep.iter().map(|l| self.rebuild(l)).collect();
        keep.sort_by(compare);
        keep.dedup();
        let atom = keep
            .into_iter()
            .reduce(|a, b| Int(Arc::new(if minimum { IntNode::Min(a, b) } else { IntNode::Max(a, b) })))?;
        Some(self.irreducible(atom))
    }

    fn operands(&mut self, l: Linear, minimum: bool, out: &mut Vec<Linear>) -> Option<()> {
        match (l.as_atom().map(|a| a.node().clone()), minimum) {
            (Some(IntNode::Min(a, b)), true) | (Some(IntNode::Max(a, b)), false) => {
                let (a, b) = (self.form(&a)?, self.form(&b)?);
                self.operands(a, minimum, out)?;
                self.operands(b, minimum, out)
            }
            _ => {
                out.push(l);
                Some(())
            }
        }
    }

    /// True when some of `others` is always at least as good as `l`.
    fn beaten(&mut self, l: &Linear, others: &[Linear], minimum: bool) -> Option<bool> {
        for o in others {
            let mut difference = l.clone();
            difference.add_scaled(o, -1)?;
            let span = self.span(&difference);
            let is_worse = if minimum { span.low >= 0 } else { span.high <= 0 };
            if is_worse {
                return Some(true);
            }
        }
        Some(false)
    }
}
