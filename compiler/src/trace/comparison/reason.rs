//! Why a layer is made otherwise on the second side: what a pass did on one side alone, the rules of its kernels, what
//! was fused.

use super::match_groups::Matched;
use crate::remark::{Remark, RemarkKind};
use crate::trace::{CompileTrace, Kernel};
use rustc_hash::{FxHashMap, FxHashSet};

/// A brief reason is no longer than this.
const BRIEF: usize = 40;

/// Why a layer is made otherwise.
pub(super) struct Reason {
    /// In a few words.
    pub brief: String,
    /// All that is known.
    pub whole: String,
}

/// What both sides know of each source node and group.
pub(super) struct Reasons<'a> {
    sides: [&'a CompileTrace; 2],
    /// Kernels of each group.
    kernels: [Vec<Vec<usize>>; 2],
    /// Remarks about each node.
    remarks: [FxHashMap<&'a str, Vec<usize>>; 2],
}

impl<'a> Reasons<'a> {
    pub(super) fn new(sides: [&'a CompileTrace; 2]) -> Reasons<'a> {
        let kernels = sides.map(|t| {
            let mut out = vec![vec![]; t.groups.len()];
            t.calls().for_each(|c| out[c.group].push(c.kernel));
            out
        });
        let remarks = sides.map(|t| {
            let mut out: FxHashMap<&str, Vec<usize>> = FxHashMap::default();
            for (i, r) in t.remarks.iter().enumerate() {
                r.nodes.iter().for_each(|n| out.entry(n.as_str()).or_default().push(i));
            }
            out
        });
        Reasons { sides, kernels, remarks }
    }
    /// Dispatches of a group.
    pub(super) fn calls(&self, side: usize, group: usize) -> usize {
        self.kernels[side][group].len()
    }
    /// Why the second side of a row is made otherwise than the first.
    pub(super) fn of(&self, m: &Matched) -> Option<Reason> {
        self.refused(m).or_else(|| {
            let parts: Vec<String> = self.left_out(m).into_iter().chain(self.made(m)).collect();
            let brief = parts.iter().find(|p| p.chars().count() <= BRIEF);
            let brief = brief.cloned().unwrap_or_else(|| "fused otherwise".into());
            (!parts.is_empty()).then(|| Reason { brief, whole: parts.join("; ") })
        })
    }

    /// The first pass that did something on the first side alone.
    fn left_out(&self, m: &Matched) -> Option<String> {
        let applied = |side: usize| self.about(m, side).filter(|r| r.kind == RemarkKind::Applied);
        let also: FxHashSet<&str> = applied(1).map(|r| r.pass.as_str()).collect();
        applied(0).find(|r| !also.contains(r.pass.as_str())).map(|r| format!("no {}", r.pass))
    }

    /// The remarks of a side about the nodes of a row.
    fn about<'s>(&'s self, m: &'s Matched, side: usize) -> impl Iterator<Item = &'a Remark> + 's {
        let list = m.origins.iter().filter_map(move |o| self.remarks[side].get(o.as_str())).flatten();
        list.map(move |&i| &self.sides[side].remarks[i])
    }

    /// What a pass did on one side and refused on the other.
    fn refused(&self, m: &Matched) -> Option<Reason> {
        let about = |side: usize| self.about(m, side);
        for (did, not, where_) in [(0, 1, ""), (1, 0, "the first: ")] {
            let applied = about(did).filter(|r| r.kind == RemarkKind::Applied);
            let applied: FxHashSet<&str> = applied.map(|r| r.pass.as_str()).collect();
            let mut missed = about(not).filter(|r| r.kind == RemarkKind::Missed);
            let also: FxHashSet<&str> =
                about(not).filter(|r| r.kind == RemarkKind::Applied).map(|r| r.pass.as_str()).collect();
            let told = missed.find(|r| applied.contains(r.pass.as_str()) && !also.contains(r.pass.as_str()));
            if let Some(r) = told {
                let brief = format!("{where_}no {}", r.pass);
                return Some(Reason { brief, whole: format!("{where_}{}: {}", r.pass, r.message) });
            }
        }
        None
    }

    /// How its kernels and groups differ, one difference each.
    fn made(&self, m: &Matched) -> Vec<String> {
        let of = |side: usize, text: &dyn Fn(usize) -> Vec<String>| -> String {
            let mut list: Vec<String> = m.groups[side].iter().flat_map(|&g| text(g)).collect();
            list.dedup();
            list.join(" + ")
        };
        let differ = |what: &str, text: &dyn Fn(usize, usize) -> Vec<String>| {
            let [a, b] = [0, 1].map(|side| of(side, &|g| text(side, g)));
            (a != b && !a.is_empty() && !b.is_empty()).then(|| format!("{what}{a} -> {b}"))
        };
        let group = |side: usize, g: usize| &self.sides[side].groups[g];
        let kernel = |side: usize, of: fn(&Kernel) -> String, g: usize| -> Vec<String> {
            self.kernels[side][g].iter().map(|&k| of(&self.sides[side].kernels[k])).collect()
        };
        let ops = || differ("", &|side, g| vec![group(side, g).ops.join("+")]);
        let rules = || {
            differ("rule ", &|side, g| {
                vec![group(side, g).rule.clone()].into_iter().filter(|r| !r.is_empty()).collect()
            })
        };
        let layout = || differ("", &|side, g| group(side, g).layout.clone().into_iter().collect());
        let types = || differ("", &|side, g| kernel(side, |k| k.dtype.clone(), g));
        let schedule = || {
            let [a, b] = [0, 1].map(|side| of(side, &|g| kernel(side, |k| k.schedule.join("\n"), g)));
            (a != b).then(|| "another schedule".to_string())
        };
        let parts: Vec<String> = [ops(), rules(), layout(), types()].into_iter().flatten().collect();
        if parts.is_empty() { schedule().into_iter().collect() } else { parts }
    }
}
