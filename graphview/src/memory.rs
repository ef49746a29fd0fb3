//! The memory of a run: the steps with the buffers that they use, and the live ranges of what the pool's buffers hold.

use compiler::trace::{Call, CompileTrace, Content, Step};

/// A step of a run; dispatches are steps of their own.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UsedBuffers {
    /// Positions in the plan of all buffers that it uses.
    pub buffers: Vec<usize>,
    /// Those of them that it writes and does not read.
    pub writes: Vec<usize>,
    /// The group that runs; none for copies.
    pub group: Option<usize>,
}

/// Bytes held in each step.
pub fn curve(spans: &[Span], steps: usize) -> Vec<u64> {
    let mut change = vec![0i64; steps + 1];
    for s in spans {
        change[s.first] += s.bytes as i64;
        change[s.last + 1] -= s.bytes as i64;
    }
    let running = change.iter().scan(0i64, |sum, c| {
        *sum += c;
        Some(*sum as u64)
    });
    running.take(steps).collect()
}

/// A buffer of the pool from a first write to the last step that uses what was written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Span {
    /// Its position in the plan.
    pub buffer: usize,
    /// Bytes of the buffer.
    pub bytes: u64,
    /// The first step.
    pub first: usize,
    /// The last step.
    pub last: usize,
}

/// The steps of a run in the order of the plan.
pub fn steps(t: &CompileTrace) -> Vec<UsedBuffers> {
    t.plan.steps.iter().flat_map(|s| of_step(t, s)).collect()
}

fn of_step(t: &CompileTrace, s: &Step) -> Vec<UsedBuffers> {
    let one = |reads: Vec<usize>, writes: Vec<usize>, group: Option<usize>| {
        let writes: Vec<usize> = writes.into_iter().filter(|b| !reads.contains(b)).collect();
        vec![UsedBuffers { buffers: [reads, writes.clone()].concat(), writes, group }]
    };
    match s {
        Step::Gpu(list) => list
            .iter()
            .flat_map(|c| {
                let (writes, reads) = bound(t, c);
                one(reads, writes, Some(c.group))
            })
            .collect(),
        Step::Host { group, inputs, outputs } => one(inputs.clone(), outputs.clone(), Some(*group)),
        Step::Copy { from, to } => one(vec![*from], vec![*to], None),
        Step::Branch { group, condition, .. } => one(vec![*condition], vec![], Some(*group)),
        Step::Loop { group, reads, keeps, .. } => one([reads.as_slice(), keeps].concat(), vec![], Some(*group)),
        Step::Call { group, arguments, results, .. } => {
            let pairs = arguments.iter().chain(results);
            one(pairs.flat_map(|&(from, to)| [from, to]).collect(), vec![], Some(*group))
        }
    }
}

/// The buffers that a dispatch writes, and those that it reads.
fn bound(t: &CompileTrace, c: &Call) -> (Vec<usize>, Vec<usize>) {
    let bindings = &t.kernels[c.kernel].bindings;
    let written = |i: usize| bindings.get(i).is_some_and(|b| b.written);
    let (writes, reads): (Vec<usize>, Vec<usize>) = (0..c.buffers.len()).partition(|&i| written(i));
    let of = |list: Vec<usize>| list.into_iter().map(|i| c.buffers[i].0).collect();
    (of(writes), of(reads))
}

/// The live ranges in the pool's buffers: the largest buffers first, and of each in the order of the steps. A write
/// after a read begins another one; several writes in a row, as of the parts of a concatenation, belong together.
pub fn spans(t: &CompileTrace, steps: &[UsedBuffers]) -> Vec<Span> {
    let mut out: Vec<Span> = vec![];
    for (buffer, b) in t.plan.buffers.iter().enumerate().filter(|(_, b)| b.content == Content::Pool) {
        let mut open: Option<(Span, bool)> = None;
        for (i, step) in steps.iter().enumerate().filter(|(_, s)| s.buffers.contains(&buffer)) {
            let writes = step.writes.contains(&buffer);
            match &mut open {
                Some((span, was_read)) if !(writes && *was_read) => {
                    span.last = i;
                    *was_read |= !writes;
                }
                _ => {
                    let span = Span { buffer, bytes: b.bytes, first: i, last: i };
                    out.extend(open.replace((span, !writes)).map(|o| o.0));
                }
            }
        }
        // A result of the model is read behind the last step.
        let end = if t.plan.outputs.iter().any(|o| o.buffer == buffer) { steps.len().saturating_sub(1) } else { 0 };
        out.extend(open.map(|(span, _)| Span { last: span.last.max(end), ..span }));
    }
    out.sort_by_key(|s| (std::cmp::Reverse(s.bytes), s.buffer, s.first));
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_curve_is_the_sum_of_what_lives() {
        let one = |buffer: usize, bytes: u64, first: usize, last: usize| Span { buffer, bytes, first, last };
        assert_eq!(curve(&[one(0, 10, 0, 1), one(1, 5, 1, 2), one(0, 10, 3, 3)], 4), [10, 15, 5, 10]);
    }
}
