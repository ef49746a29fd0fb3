//! Buffers and steps of a plan in a trace.

use super::open::OpenCall;
use crate::dtype::DType;
use serde::{Deserialize, Serialize};

/// Buffers and steps of a run.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Plan {
    /// Device buffers.
    pub buffers: Vec<PlanBuffer>,
    /// Steps in order; the steps of a branch follow it.
    pub steps: Vec<Step>,
    /// Inputs of the entry function.
    pub inputs: Vec<BufferView>,
    /// Its results.
    pub outputs: Vec<BufferView>,
    /// The functions that steps call. Their steps stand behind the entry function's.
    pub functions: Vec<PlanFunction>,
}

/// A function that steps call, perhaps its own.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PlanFunction {
    /// Its name.
    pub name: String,
    /// Its first step; they end where those of the next function begin.
    pub first: usize,
    /// Buffers that each call has separately.
    pub buffers: Vec<usize>,
}

/// A device buffer.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PlanBuffer {
    /// Its content.
    pub content: Content,
    /// Bytes in storage form.
    pub bytes: u64,
    /// Bytes of one slice.
    pub slice_bytes: u64,
}

/// The content of a device buffer.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Content {
    /// The n-th input.
    Input(usize),
    /// A constant.
    Constant {
        /// Its name.
        name: String,
        /// Name of the tensor function that packs it when the session opens.
        packer: Option<String>,
    },
    /// An activation or scratch buffer.
    Pool,
    /// Nothing on the device: the host holds a tensor that no kernel touches.
    Host,
}

/// A tensor in a device buffer.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct BufferView {
    /// Name in the model.
    pub name: String,
    /// Index of the buffer.
    pub buffer: usize,
    /// Element type.
    pub dtype: DType,
    /// Dimensions.
    pub shape: Vec<usize>,
    /// Storage form.
    pub encoding: String,
}

/// A step of a run.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Step {
    /// Dispatches in one compute pass.
    Gpu(Vec<Call>),
    /// A computation on the host.
    Host {
        /// Index of the group.
        group: usize,
        /// Buffers read back before.
        inputs: Vec<usize>,
        /// Buffers uploaded after.
        outputs: Vec<usize>,
    },
    /// A copy of a whole buffer.
    Copy {
        /// From.
        from: usize,
        /// To.
        to: usize,
    },
    /// Of the following steps, a run executes the first `then` steps if the condition is true, else the next
    /// `otherwise` steps. Nested branches count with their steps.
    Branch {
        /// Index of the group.
        group: usize,
        /// Buffer of the condition.
        condition: usize,
        /// Number of steps for true.
        then: usize,
        /// Number of steps for false.
        otherwise: usize,
    },
    /// The `body` steps behind it run again and again. Those inside count with their steps.
    Loop {
        /// Index of the group.
        group: usize,
        /// Number of iterations, if known.
        trips: Option<u64>,
        /// Buffers that the host reads: before the first iteration, and of each whether to go on.
        reads: Vec<usize>,
        /// Buffers of carried values and of collected rows.
        keeps: Vec<usize>,
        /// How many steps are an iteration.
        body: usize,
    },
    /// The steps of a function.
    Call {
        /// Index of the group.
        group: usize,
        /// Index of the function.
        callee: usize,
        /// Buffers of the caller, and of the callee that they are copied to before.
        arguments: Vec<(usize, usize)>,
        /// Buffers of the callee, and of the caller that they are copied to behind.
        results: Vec<(usize, usize)>,
    },
}

/// One dispatch.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Call {
    /// Index of the kernel.
    pub kernel: usize,
    /// Index of the group.
    pub group: usize,
    /// A buffer and a slice for each binding.
    pub buffers: Vec<(usize, u32)>,
    /// Workgroups.
    pub grid: [u32; 3],
    /// How often it runs in a run, where that was measured: the iterations of the loops around it.
    pub runs: u64,
    /// Its own floating-point operations, in all iterations.
    pub flops: u64,
    /// Bytes of the buffers that it binds, in all iterations.
    pub bytes: u64,
    /// The numbers above as expressions, if they depend on open sizes.
    pub open: Option<OpenCall>,
}

impl Plan {
    /// Every index is in range, with so many groups and kernels.
    pub(super) fn fits(&self, groups: usize, kernels: usize) -> bool {
        let buffers = self.buffers.len();
        let step = |s: &Step| match s {
            Step::Gpu(list) => list.iter().all(|c| {
                c.group < groups && c.kernel < kernels && c.buffers.iter().all(|&(buffer, _)| buffer < buffers)
            }),
            Step::Host { group, inputs, outputs } => {
                *group < groups && inputs.iter().chain(outputs).all(|&b| b < buffers)
            }
            Step::Copy { from, to } => *from < buffers && *to < buffers,
            Step::Branch { group, condition, .. } => *group < groups && *condition < buffers,
            Step::Loop { group, reads, keeps, .. } => {
                *group < groups && reads.iter().chain(keeps).all(|&b| b < buffers)
            }
            Step::Call { group, callee, arguments, results } => {
                let known = arguments.iter().chain(results).all(|&(from, to)| from < buffers && to < buffers);
                *group < groups && *callee < self.functions.len() && known
            }
        };
        let nested = self.steps.iter().enumerate().all(|(i, s)| match s {
            Step::Branch { then, otherwise, .. } => {
                then.checked_add(*otherwise).is_some_and(|n| n < self.steps.len() - i)
            }
            Step::Loop { body, .. } => *body < self.steps.len() - i,
            _ => true,
        });
        let own = |f: &PlanFunction| f.first <= self.steps.len() && f.buffers.iter().all(|&b| b < buffers);
        let views = self.inputs.iter().chain(&self.outputs).all(|s| s.buffer < buffers);
        views && nested && self.functions.iter().all(own) && self.steps.iter().all(step)
    }
}
