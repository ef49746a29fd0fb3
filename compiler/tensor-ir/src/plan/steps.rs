//! The steps of a plan: a tree, and functions that its leaves may call.
//!
//! Steps are `Gpu` (a segment: consecutive dispatches in one compute pass), `Host`, `Copy`, `Branch` (two lists of
//! steps, and one value that the host reads to choose), `Loop` (its list runs repeatedly) and `Call` (runs the steps of
//! a function of the plan).

use super::{BufferIndex, BufferView, HostResult, HostSite, KernelIndex};
use crate::fault::Fault;
use crate::name::Name;
use crate::tensor::Tensor;
use std::cell::Cell;
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

/// Calls the host functions of a session by name.
pub trait HostCaller {
    /// True if a function of that name is registered.
    fn contains(&self, function: Name) -> bool;
    /// Runs the function that the call site names on tensors in host memory. What the function prepares for the site is
    /// kept in the site.
    ///
    /// # Errors
    /// An unknown name, an error of the function, or results of other types than declared.
    fn call(&self, site: &HostSite, inputs: Vec<Tensor>, results: &[HostResult<'_>]) -> Result<Vec<Tensor>, String>;
}

/// The computation of a host step on tensors in host memory, with the host functions of the session.
pub type HostComputation = Arc<dyn Fn(Vec<Tensor>, &dyn HostCaller) -> Result<Vec<Tensor>, Fault> + Send + Sync>;

/// A host function that a step calls.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub struct HostCall {
    /// Its registered name.
    pub function: Name,
    /// It works on device buffers, through the queue; else on tensors in host memory.
    pub on_device: bool,
    /// An external target runs it: the step's computation is all that it needs, and nothing is registered.
    pub external: bool,
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
    #[serde(skip, default = "no_computation")]
    pub run: HostComputation,
    /// The host function, if this is a call of one.
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
    /// Two lists of steps; a run executes one of them.
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
    /// Copied before the call: from buffers of the caller to buffers of the callee.
    pub arguments: Vec<Handover>,
    /// Copied after the call: from buffers of the callee to buffers of the caller.
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

/// A value that is copied from one function to another.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub struct Handover {
    /// The buffer to copy from.
    pub from: BufferIndex,
    /// The buffer to copy to.
    pub to: BufferIndex,
}

/// A function that calls reach, perhaps from itself.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct PlanFunction {
    /// Its name.
    pub name: Name,
    /// The steps of the function.
    pub body: Vec<Step>,
    /// The buffers that it writes. Each call that is under way has its own.
    pub buffers: Vec<BufferIndex>,
}

/// Two lists of steps; one value, which is read back, decides between them.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct Branch {
    /// One bool.
    pub condition: BufferView,
    /// The steps for true.
    #[serde(deserialize_with = "steps")]
    pub then: Vec<Step>,
    /// The steps for false.
    #[serde(deserialize_with = "steps")]
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
    /// The number of the iteration, from 0, written before each iteration; `None` if nothing reads it.
    pub index: Option<BufferView>,
    /// An iteration.
    #[serde(deserialize_with = "steps")]
    pub body: Vec<Step>,
    /// The values that each iteration reads and writes for the next one.
    pub carried: Vec<Carried>,
    /// The rows that are collected from all iterations.
    pub collected: Vec<Collected>,
    /// Group that the loop belongs to.
    pub group: usize,
}
impl Loop {
    /// True if the two buffers of each carried value may be swapped instead of copied: there is no inner loop.
    pub fn alternates(&self) -> bool {
        !nested(&self.body).iter().any(|s| matches!(s, Step::Loop(_)))
    }
    /// The values that the host reads before the first iteration.
    pub fn read_before(&self) -> impl Iterator<Item = &BufferView> {
        let trips = if let Trips::Read(view) = &self.trips { Some(view) } else { None };
        trips.into_iter().chain(&self.begin)
    }
}

/// A loop that no condition ends has at most so many iterations: more take hours, whatever they compute.
pub const MOST_TRIPS: u64 = 1 << 32;

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

/// A value that is carried from one iteration to the next. After the loop it is in `now`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub struct Carried {
    /// The buffer that an iteration reads.
    pub now: BufferIndex,
    /// The buffer that an iteration writes.
    pub next: BufferIndex,
}

/// Rows of all iterations, one after another.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct Collected {
    /// The row of one iteration.
    pub row: BufferView,
    /// The buffer of all rows.
    pub all: BufferIndex,
    /// Bytes of a row on the device.
    pub row_bytes: u64,
    /// The number of rows is known only at run time: the buffer grows, and views of it have 0 as first dimension.
    pub grows: bool,
}

/// All steps, each followed by the steps inside it: for a branch first `then`, then `otherwise`.
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

/// Placeholder for the computation of a host step until it is bound.
pub(super) fn no_computation() -> HostComputation {
    Arc::new(|_, _| Err("the step of a saved plan is not bound to its module".into()))
}

/// Steps inside steps, at most so deep: bytes of a stranger must not exhaust the stack.
const MOST_NESTED: usize = 64;

/// The steps inside a step.
fn steps<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Vec<Step>, D::Error> {
    thread_local!(static DEPTH: Cell<usize> = const { Cell::new(0) });
    let depth = DEPTH.replace(DEPTH.get() + 1);
    let read = match depth < MOST_NESTED {
        true => serde::Deserialize::deserialize(from),
        false => Err(serde::de::Error::custom(format!("steps inside steps, more than {MOST_NESTED} deep"))),
    };
    DEPTH.set(depth);
    read
}
