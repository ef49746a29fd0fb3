//! Networks whose sizes are decided while they run: a session for what comes before, one for the loops that decide sizes (other such
//! nodes run on the host), and a session for what comes after, for each list of sizes that has come up. One that has costs nothing
//! but its run.

use crate::error::GpuError;
use crate::host_functions::HostFunctions;
use crate::session::Session;
use compiler::compile::{StageValue, Stages};
use compiler::cpu::Interpreter;
use compiler::graph::{Module, input_ports, set_input_shapes};
use compiler::ops::control::Loop;
use compiler::tensor::Tensor;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

/// Lists of sizes whose sessions are kept.
const KEPT: usize = 16;

/// A part of a network, ready to run.
pub enum Part<E> {
    /// On a device.
    Session(Box<Session>),
    /// On the CPU executor: what no plan is for.
    Host(Box<Module>),
    /// In parts again.
    Staged(Box<Staged<E>>),
}

/// Compiles a module whose sizes are known as far as they can be, and opens it.
pub type Open<E> = Arc<dyn Fn(Module) -> Result<Part<E>, E> + Send + Sync>;

/// Shapes of what the second part takes.
type Shapes = Vec<Vec<usize>>;

/// The sessions of second parts, the one that was used last at the end.
type Kept<E> = VecDeque<(Shapes, Arc<Part<E>>)>;

/// A network in parts.
pub struct Staged<E> {
    head: Part<E>,
    sizing: Part<E>,
    stages: Stages,
    tails: Mutex<Kept<E>>,
    open: Open<E>,
    functions: HostFunctions,
}

impl<E: From<GpuError>> Staged<E> {
    /// Opens what comes before and the nodes that decide sizes; the rest opens when its sizes are known.
    ///
    /// # Errors
    /// What `open` says.
    pub fn open(stages: Stages, functions: HostFunctions, open: Open<E>) -> Result<Staged<E>, E> {
        let head = open(stages.head.clone())?;
        let main = stages.sizing.main();
        let sizing = match main.walk().iter().any(|&n| main.nodes[n].op.is::<Loop>()) {
            true => open(stages.sizing.clone())?,
            false => Part::Host(Box::new(stages.sizing.clone())),
        };
        Ok(Staged { head, sizing, stages, tails: Mutex::new(VecDeque::new()), open, functions })
    }

    /// Runs once: `inputs` in the order of the network's inputs; results in the order of its outputs.
    ///
    /// # Errors
    /// Wrong inputs, sizes that a later node refuses, what compiling the second part says, a failed run.
    pub fn run(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>, E> {
        let head = self.head.run(inputs, &self.functions)?;
        let operands = |list: &[StageValue], sized: &[Tensor]| -> Vec<Tensor> {
            let one = |v: &StageValue| match *v {
                StageValue::Input(i) => inputs[i].clone(),
                StageValue::Head(i) => head[i].clone(),
                StageValue::Sizing(i) => sized[i].clone(),
            };
            list.iter().map(one).collect()
        };
        let given = operands(&self.stages.sizing_operands, &[]);
        let sized = self.sizing.run(&given, &self.functions)?;
        let given = operands(&self.stages.tail_operands, &sized);
        self.tail(&given)?.run(&given, &self.functions)
    }

    /// The second part for operands of these shapes.
    fn tail(&self, operands: &[Tensor]) -> Result<Arc<Part<E>>, E> {
        let shapes: Shapes = operands.iter().map(|t| t.shape().to_vec()).collect();
        let kept = || self.tails.lock().unwrap_or_else(PoisonError::into_inner);
        {
            let mut kept = kept();
            if let Some(at) = kept.iter().position(|(s, _)| *s == shapes)
                && let Some(found) = kept.remove(at)
            {
                let part = found.1.clone();
                kept.push_back(found);
                return Ok(part);
            }
        }
        let mut module = self.stages.tail.clone();
        let names = input_ports(&module).into_iter().map(|p| p.0);
        let bound: Vec<_> = names.zip(shapes.iter().cloned()).collect();
        set_input_shapes(&mut module, &bound).map_err(|e| GpuError::Input(e.to_string()))?;
        let part = Arc::new((self.open)(module)?);
        let mut kept = kept();
        kept.push_back((shapes, part.clone()));
        if kept.len() > KEPT {
            kept.pop_front();
        }
        Ok(part)
    }

    /// Lists of sizes that are ready to run.
    pub fn sizes_kept(&self) -> usize {
        self.tails.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// True when one of the parts that are open computes something on the device.
    pub fn has_device_steps(&self) -> bool {
        let tails = self.tails.lock().unwrap_or_else(PoisonError::into_inner);
        self.head.has_device_steps()
            || self.sizing.has_device_steps()
            || tails.iter().any(|(_, p)| p.has_device_steps())
    }
}

impl<E: From<GpuError>> Part<E> {
    /// Runs once.
    ///
    /// # Errors
    /// As [`Session::run`].
    fn run(&self, inputs: &[Tensor], functions: &HostFunctions) -> Result<Vec<Tensor>, E> {
        match self {
            Part::Session(session) => Ok(session.run(inputs)?),
            Part::Host(module) => interpret(module, inputs, functions),
            Part::Staged(staged) => staged.run(inputs),
        }
    }
    fn has_device_steps(&self) -> bool {
        match self {
            Part::Session(session) => session.has_device_steps(),
            Part::Host(_) => false,
            Part::Staged(staged) => staged.has_device_steps(),
        }
    }
}

fn interpret<E: From<GpuError>>(
    module: &Module,
    inputs: &[Tensor],
    functions: &HostFunctions,
) -> Result<Vec<Tensor>, E> {
    let run = Interpreter::new(module).with_host(functions.on_tensors()).run(module.entry, inputs);
    Ok(run.map_err(|e| GpuError::Host(e.to_string()))?)
}
