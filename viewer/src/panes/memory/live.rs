//! What the buffers of a run hold in each step.

use compiler::trace::{Call, CompileTrace, Content, Step};

/// A value in a buffer of the pool, from the step that writes it to the last one that reads it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Held {
    /// The buffer.
    pub buffer: usize,
    /// Bytes of the buffer.
    pub bytes: u64,
    /// The step that writes it, dispatches counted one by one.
    pub from: usize,
    /// The last step that reads it.
    pub to: usize,
    /// The group that writes it, if it is not a copy.
    pub writer: Option<usize>,
}

/// The buffers that a step reads and writes, and its group.
pub(super) struct Access {
    pub(super) reads: Vec<usize>,
    pub(super) writes: Vec<usize>,
    pub(super) group: Option<usize>,
}

fn dispatch(t: &CompileTrace, c: &Call) -> Access {
    let written = |i: usize| t.kernels[c.kernel].bindings.get(i).is_some_and(|b| b.written);
    let (writes, reads): (Vec<_>, Vec<_>) = c.buffers.iter().map(|b| b.0).enumerate().partition(|(i, _)| written(*i));
    let only = |list: Vec<(usize, usize)>| list.into_iter().map(|b| b.1).collect();
    Access { reads: only(reads), writes: only(writes), group: Some(c.group) }
}

/// Every step, dispatches one by one.
pub(super) fn accesses(t: &CompileTrace) -> Vec<Access> {
    let one = |s: &Step| match s {
        Step::Gpu(list) => list.iter().map(|c| dispatch(t, c)).collect(),
        Step::Host { group, inputs, outputs } => {
            vec![Access { reads: inputs.clone(), writes: outputs.clone(), group: Some(*group) }]
        }
        Step::Copy { from, to } => vec![Access { reads: vec![*from], writes: vec![*to], group: None }],
        Step::Branch { group, condition, .. } => {
            vec![Access { reads: vec![*condition], writes: vec![], group: Some(*group) }]
        }
        Step::Loop { group, reads, keeps, .. } => {
            vec![Access { reads: [&reads[..], keeps].concat(), writes: vec![], group: Some(*group) }]
        }
        Step::Call { group, arguments, results, .. } => {
            let pairs = || arguments.iter().chain(results);
            let (reads, writes) = (pairs().map(|p| p.0).collect(), pairs().map(|p| p.1).collect());
            vec![Access { reads, writes, group: Some(*group) }]
        }
    };
    t.plan.steps.iter().flat_map(one).collect()
}

/// What the pool holds, and how many steps there are. A value ends where its buffer is written after it was read; parts
/// that are written one after the other are one value.
pub fn held(t: &CompileTrace) -> (Vec<Held>, usize) {
    let steps = accesses(t);
    let buffers = &t.plan.buffers;
    let mut open: Vec<Option<(Held, bool)>> = vec![None; buffers.len()];
    let mut out = Vec::new();
    for (i, a) in steps.iter().enumerate() {
        for &b in &a.reads {
            let start = || Held { buffer: b, bytes: buffers[b].bytes, from: i, to: i, writer: None };
            let (held, read) = open[b].get_or_insert_with(|| (start(), false));
            (held.to, *read) = (i, true);
        }
        for &b in &a.writes {
            let in_place = a.reads.contains(&b);
            if !in_place && open[b].as_ref().is_some_and(|(_, read)| *read) {
                out.extend(open[b].take().map(|o| o.0));
            }
            let start = || Held { buffer: b, bytes: buffers[b].bytes, from: i, to: i, writer: a.group };
            let (held, _) = open[b].get_or_insert_with(|| (start(), false));
            held.to = i;
        }
    }
    out.extend(open.into_iter().flatten().map(|o| o.0));
    out.retain(|h| buffers[h.buffer].content == Content::Pool);
    out.sort_by_key(|h| (h.from, h.buffer));
    (out, steps.len())
}

/// Bytes held in each step.
pub fn curve(held: &[Held], steps: usize) -> Vec<u64> {
    let mut change = vec![0i64; steps + 1];
    for h in held {
        change[h.from] += h.bytes as i64;
        change[h.to + 1] -= h.bytes as i64;
    }
    let running = change.iter().scan(0i64, |sum, c| {
        *sum += c;
        Some(*sum as u64)
    });
    running.take(steps).collect()
}

/// Bytes in few digits.
pub(super) fn mega(bytes: u64) -> String {
    match bytes {
        b if b >= 10_000_000 => format!("{:.0} MB", b as f64 / 1e6),
        b if b >= 100_000 => format!("{:.1} MB", b as f64 / 1e6),
        b => format!("{:.1} kB", b as f64 / 1e3),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::show::tests::trace;

    #[test]
    fn what_is_held_lies_within_the_pool_and_ends_where_it_is_read_last() {
        let t = trace();
        let (held, steps) = held(&t);
        let curve = curve(&held, steps);
        let pool: u64 = t.plan.buffers.iter().filter(|b| b.content == Content::Pool).map(|b| b.bytes).sum();
        assert_eq!(curve.len(), steps);
        assert!(curve.iter().all(|&b| b <= pool), "{curve:?} of {pool}");
        for h in &held {
            assert!(h.from <= h.to && h.to < steps, "{h:?}");
            let others = held.iter().filter(|o| o.buffer == h.buffer && *o != h);
            assert!(others.into_iter().all(|o| o.to < h.from || o.from > h.to), "{h:?}");
        }
    }

    #[test]
    fn the_curve_is_the_sum_of_what_lives() {
        let one = |buffer: usize, bytes: u64, from: usize, to: usize| Held { buffer, bytes, from, to, writer: None };
        assert_eq!(curve(&[one(0, 10, 0, 1), one(1, 5, 1, 2), one(0, 10, 3, 3)], 4), [10, 15, 5, 10]);
    }
}
