//! The steps of a plan: a tree, and functions that its leaves may call.

use super::{BufferIndex, BufferView, KernelIndex, saved};
use crate::dtype::DType;
use crate::name::Name;
use crate::tensor::Tensor;
use std::sync::Arc;

/// One dispatch.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct Dispatch {
    /// The kernel.
    pub kernel: KernelIndex,
    /// A plan buffer and slice for each binding of the kernel.
    pub buffers: Vec<(BufferIndex, u32)>,
    /// Workgroups.
    pub grid: [u32; 3],
    /// Values of the kernel's symbols.
    pub symbols: Vec<i32>,
    /// Group the dispatch belongs to (index into the compiled module's groups).
    pub group: usize,
    /// Its own floating-point operations; over a group they sum to the group's.
    pub flops: u64,
    /// Bytes of the buffers that it binds; over a group they sum to the group's.
    pub bytes: u64,
}

/// A result that a call of a host function declares.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HostResult<'a> {
    /// Its element type.
    pub dtype: DType,
    /// Its shape; none if only the run decides it.
    pub shape: Option<&'a [usize]>,
    /// The operand whose memory it takes.
    pub in_place_of: Option<usize>,
}

/// Calls the host functions of a session by name.
pub trait HostCaller {
    /// True if a function of that name is registered.
    fn contains(&self, function: Name) -> bool;
    /// Runs a function on tensors in host memory.
    ///
    /// # Errors
    /// An unknown name, what the function says, results other than declared.
    fn call(&self, function: Name, inputs: Vec<Tensor>, results: &[HostResult<'_>]) -> Result<Vec<Tensor>, String>;
}

/// The computation of a host step on tensors in host memory, with the host functions of the session.
pub type HostComputation = Arc<dyn Fn(Vec<Tensor>, &dyn HostCaller) -> Result<Vec<Tensor>, String> + Send + Sync>;

/// A host function that a step calls.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub struct HostCall {
    /// Its registered name.
    pub function: Name,
    /// It works on device buffers, through the queue; else on tensors in host memory.
    pub on_device: bool,
}

/// A computation on the host between GPU segments, or on the device by a host function.
#[derive(Clone, serde::Serialize, serde::Deserialize)]
pub struct HostStep {
    /// For messages.
    pub name: Name,
    /// Operands, in order: tensors read back before, or device buffers.
    pub inputs: Vec<BufferView>,
    /// Results: tensors uploaded after, or device buffers. One in place of an operand has its buffer.
    pub outputs: Vec<BufferView>,
    /// Index of the node in the entry function, as it is behind all passes.
    pub node: u32,
    /// The computation on tensors.
    #[serde(skip, default = "saved::no_computation")]
    pub run: HostComputation,
    /// The host function, where it is a call of one.
    pub call: Option<HostCall>,
    /// Group the step belongs to.
    pub group: usize,
}
impl HostStep {
    /// The host function that works on device buffers.
    pub fn device_function(&self) -> Option<Name> {
        self.call.filter(|c| c.on_device).map(|c| c.function)
    }
}
impl std::fmt::Debug for HostStep {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "HostStep({})", self.name)
    }
}

/// A step of a run.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub enum Step {
    /// Dispatches in one compute pass.
    Gpu(Vec<Dispatch>),
    /// A host computation.
    Host(HostStep),
    /// Copies a whole buffer, or a tensor in host memory.
    Copy {
        /// From.
        from: BufferIndex,
        /// To.
        to: BufferIndex,
    },
    /// Steps of which a run takes one list.
    Branch(Branch),
    /// Steps that a run takes again and again.
    Loop(Loop),
    /// The steps of a function, on buffers that the call has to itself.
    Call(Call),
}

/// Hands operands to a function of the plan, runs its steps and takes its results.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct Call {
    /// Index into [`Plan::functions`](super::Plan::functions).
    pub callee: usize,
    /// Copied before: from buffers of the caller to those of the callee.
    pub arguments: Vec<Handover>,
    /// Copied behind: from buffers of the callee to those of the caller.
    pub results: Vec<Handover>,
    /// Group that the call belongs to.
    pub group: usize,
}
impl Call {
    /// All that is copied.
    pub fn handovers(&self) -> impl Iterator<Item = &Handover> {
        self.arguments.iter().chain(&self.results)
    }
}

/// A value that goes from one function to another.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub struct Handover {
    /// Where the one has it.
    pub from: BufferIndex,
    /// Where the other gets it.
    pub to: BufferIndex,
}

/// A function that calls reach, perhaps from itself.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct PlanFunction {
    /// Its name.
    pub name: Name,
    /// What it runs.
    pub body: Vec<Step>,
    /// The buffers that it writes. Each call that is under way has its own.
    pub buffers: Vec<BufferIndex>,
}

/// Two lists of steps; one value, which is read back, decides between them.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct Branch {
    /// One bool.
    pub condition: BufferView,
    /// What runs where it is true.
    pub then: Vec<Step>,
    /// What runs where it is false.
    pub otherwise: Vec<Step>,
    /// Group that the branch belongs to.
    pub group: usize,
}

/// Steps that run again and again; of each iteration the host reads no more than whether to go on.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct Loop {
    /// How often at most.
    pub trips: Trips,
    /// One bool: whether to begin at all; none: yes.
    pub begin: Option<BufferView>,
    /// One bool, which an iteration leaves: whether to go on. None: until the trips are over.
    pub go_on: Option<BufferView>,
    /// The number of the iteration, from 0, which is written before each; none where nothing reads it.
    pub index: Option<BufferView>,
    /// An iteration.
    pub body: Vec<Step>,
    /// What an iteration reads, and where it leaves that for the next one.
    pub carried: Vec<Carried>,
    /// What is kept of each iteration.
    pub collected: Vec<Collected>,
    /// Group that the loop belongs to.
    pub group: usize,
}
impl Loop {
    /// True when the buffers of what is carried may change places, rather than be copied: no loop is inside.
    pub fn alternates(&self) -> bool {
        !nested(&self.body).iter().any(|s| matches!(s, Step::Loop(_)))
    }
    /// What the host reads before the first iteration.
    pub fn read_before(&self) -> impl Iterator<Item = &BufferView> {
        let trips = if let Trips::Read(view) = &self.trips { Some(view) } else { None };
        trips.into_iter().chain(&self.begin)
    }
}

/// The most iterations of a loop.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub enum Trips {
    /// This many.
    Fixed(u64),
    /// As one i64 says, which the host reads before.
    Read(BufferView),
    /// Any number.
    Unlimited,
}

/// A value that goes from one iteration to the next. Behind the loop it is where iterations read it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub struct Carried {
    /// Where an iteration reads it.
    pub now: BufferIndex,
    /// Where an iteration leaves it.
    pub next: BufferIndex,
}

/// What a loop keeps of each iteration, one behind the other.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct Collected {
    /// What an iteration leaves.
    pub row: BufferView,
    /// Where it is kept.
    pub all: BufferIndex,
    /// Bytes of a row on the device.
    pub row_bytes: u64,
    /// Only a run decides the number of rows: the buffer grows, and views of it have 0 for its first dimension.
    pub grows: bool,
}

/// Steps with those inside them behind them: of a branch first those of one side, then those of the other.
pub fn nested(steps: &[Step]) -> Vec<&Step> {
    fn collect<'a>(steps: &'a [Step], out: &mut Vec<&'a Step>) {
        for step in steps {
            out.push(step);
            match step {
                Step::Branch(b) => {
                    collect(&b.then, out);
                    collect(&b.otherwise, out);
                }
                Step::Loop(l) => collect(&l.body, out),
                Step::Gpu(_) | Step::Host(_) | Step::Copy { .. } | Step::Call(_) => {}
            }
        }
    }
    let mut out = vec![];
    collect(steps, &mut out);
    out
}
