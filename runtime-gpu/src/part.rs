//! Runs of the parts of a network whose sizes are decided at run time: what may run a part, how it ran, and what may go
//! wrong.

use crate::error::GpuError;
use crate::host_functions::HostFunctions;
use crate::open::OpenSession;
use crate::planned::Planned;
use crate::recorder::{Doing, Recorder};
use compiler::compile::Compiled;
use compiler::fault::Fault;
use compiler::graph::{Function, Module, NodeId};
use compiler::interpreter::Interpreter;
use compiler::tensor::Tensor;
use std::any::Any;

/// A session for inputs of any sizes, with its compilation, if there is one.
pub struct OpenPlanned {
    /// The session.
    pub session: OpenSession,
    /// The compilation.
    pub compiled: Option<Box<Compiled>>,
}

impl OpenPlanned {
    /// For inputs of these shapes.
    pub(crate) fn at(&self, inputs: &[Tensor]) -> Result<Planned, GpuError> {
        let shapes: Vec<&[usize]> = inputs.iter().map(Tensor::shape).collect();
        self.session.planned(&shapes, self.compiled.clone())
    }
}

/// How a part ran.
pub enum Ran<'a> {
    /// By its plan.
    Plan(&'a Planned),
    /// By a plan, on something else than a device: what [`RunPart::as_any`] gives.
    Other(&'a dyn Any),
    /// The host interpreted it.
    Host(&'a Module),
}

/// A run of a part.
pub struct PartRun<'a> {
    /// `before` (head), `deciding` or `after` (tail); parts of a split part have its name as prefix, `after.before`.
    pub name: &'a str,
    /// How it ran.
    pub ran: Ran<'a>,
    /// Its operands.
    pub operands: &'a [Tensor],
}

/// A visitor of the parts; a part of a loop's body is looked at once.
pub type Visit<'a, E> = dyn FnMut(&PartRun<'_>) -> Result<(), E> + 'a;

/// A part that something else than a device runs by a plan.
pub trait RunPart<E>: Send + Sync {
    /// Runs once, with operands and results in the order of the part; `recorder` takes notes.
    ///
    /// # Errors
    /// A failed run.
    fn run(&self, inputs: &[Tensor], recorder: &Recorder) -> Result<Vec<Tensor>, E>;
    /// True when it computes something in kernels.
    fn has_kernels(&self) -> bool;
    /// True when it computes something on the host, outside of kernels.
    fn has_host_steps(&self) -> bool;
    /// Itself, for the crate that knows what it is.
    fn as_any(&self) -> &dyn Any;
}

/// Host functions and notes, which go with a run into its parts.
#[derive(Clone, Copy)]
pub(crate) struct With<'a> {
    pub(crate) functions: &'a HostFunctions,
    pub(crate) recorder: &'a Recorder,
}

/// What goes wrong in a part.
pub trait PartError: From<GpuError> {
    /// True if kernels do not take an integer of the run, which is beyond 32 bits; the interpreter does.
    fn is_too_wide(&self) -> bool;
}
impl PartError for GpuError {
    fn is_too_wide(&self) -> bool {
        matches!(self, GpuError::TooWide(_))
    }
}

/// Interprets a part, and lets `visit` look at it.
pub(crate) fn visit_on_host<E: PartError>(
    module: &Module,
    name: &str,
    inputs: &[Tensor],
    functions: &HostFunctions,
    visit: &mut Visit<'_, E>,
) -> Result<Vec<Tensor>, E> {
    let results = interpret(module, inputs, With { functions, recorder: &Recorder::default() })?;
    visit(&PartRun { name, ran: Ran::Host(module), operands: inputs })?;
    Ok(results)
}

pub(crate) fn of_host<E: From<GpuError>>(why: Fault) -> E {
    GpuError::Host(why.to_string()).into()
}

pub(crate) fn interpret<E: From<GpuError>>(
    module: &Module,
    inputs: &[Tensor],
    with: With<'_>,
) -> Result<Vec<Tensor>, E> {
    let run = observed(module, with.functions, with.recorder).run(module.entry, inputs);
    Ok(run.map_err(|e| GpuError::Host(e.to_string()))?)
}

/// An interpreter of the module; `recorder` takes notes of its nodes.
pub fn observed<'a>(module: &'a Module, functions: &'a HostFunctions, recorder: &'a Recorder) -> Interpreter<'a> {
    let interpreter = Interpreter::new(module).with_host(functions.on_tensors());
    if !recorder.is_on() {
        return interpreter;
    }
    let node = |f: &Function, n: NodeId, _: &[Tensor]| {
        let n = &f.nodes[n];
        recorder.did(|| Doing::Node(n.name.to_string(), n.op.name()));
    };
    interpreter.observe(node)
}
