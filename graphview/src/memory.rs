//! The memory of a run: the steps with the buffers that they use, and the live range of each buffer of the pool.

use compiler::trace::{CompileTrace, Content, Step};

/// A step of a run; dispatches are steps of their own.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UsedBuffers {
    /// Positions of buffers in the plan.
    pub buffers: Vec<usize>,
    /// The group that runs; none for copies.
    pub group: Option<usize>,
}

/// A buffer, and the first and the last step that use it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Span {
    /// Its position in the plan.
    pub buffer: usize,
    /// Bytes.
    pub bytes: u64,
    /// The first step.
    pub first: usize,
    /// The last step.
    pub last: usize,
}

/// The steps of a run in the order of the plan.
pub fn steps(t: &CompileTrace) -> Vec<UsedBuffers> {
    t.plan.steps.iter().flat_map(of_step).collect()
}

fn of_step(s: &Step) -> Vec<UsedBuffers> {
    let one = |buffers: Vec<usize>, group: Option<usize>| vec![UsedBuffers { buffers, group }];
    match s {
        Step::Gpu(list) => {
            let buffers = |c: &compiler::trace::Call| c.buffers.iter().map(|b| b.0).collect();
            list.iter().map(|c| UsedBuffers { buffers: buffers(c), group: Some(c.group) }).collect()
        }
        Step::Host { group, inputs, outputs } => one([inputs.as_slice(), outputs].concat(), Some(*group)),
        Step::Copy { from, to } => one(vec![*from, *to], None),
        Step::Branch { group, condition, .. } => one(vec![*condition], Some(*group)),
        Step::Loop { group, reads, keeps, .. } => one([reads.as_slice(), keeps].concat(), Some(*group)),
        Step::Call { group, arguments, results, .. } => {
            let pairs = arguments.iter().chain(results);
            one(pairs.flat_map(|&(from, to)| [from, to]).collect(), Some(*group))
        }
    }
}

/// Buffers of the pool with their live ranges, the largest first.
pub fn spans(t: &CompileTrace, steps: &[UsedBuffers]) -> Vec<Span> {
    let mut used: Vec<Option<(usize, usize)>> = vec![None; t.plan.buffers.len()];
    for (i, step) in steps.iter().enumerate() {
        for &b in &step.buffers {
            used[b] = Some(used[b].map_or((i, i), |(first, _)| (first, i)));
        }
    }
    let pool = |(buffer, used): (usize, Option<(usize, usize)>)| {
        let of = &t.plan.buffers[buffer];
        let (first, last) = used.filter(|_| of.content == Content::Pool)?;
        Some(Span { buffer, bytes: of.bytes, first, last })
    };
    let mut out: Vec<Span> = used.into_iter().enumerate().filter_map(pool).collect();
    out.sort_by_key(|s| (std::cmp::Reverse(s.bytes), s.buffer));
    out
}
