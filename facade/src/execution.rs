//! How a session runs its network: by a plan, by one for each list of sizes, in parts, or by the interpreter.

use crate::cpu_form::has_halved;
use crate::error::Error;
use compiler::compile::Compiled;
use compiler::graph::Module;
use compiler::tensor::Tensor;
use runtime_cpu::ResultMemory;
use runtime_gpu::{GpuError, Recorder, RunInput, Visit};
use std::pin::Pin;
use std::sync::Arc;

/// The place of a run without a device.
pub const INTERPRETER: &str = "interpreter";

/// Results that a run will have.
pub(crate) type Pending<'a, T> = Pin<Box<dyn Future<Output = Result<T, Error>> + Send + 'a>>;

/// Runs a network. Inputs and results are in its order. A run whose integers exceed 32 bits fails
/// ([`is_too_wide`](runtime_gpu::PartError::is_too_wide)); the interpreter can make it.
pub(crate) trait Execution: Send + Sync {
    /// Runs once.
    ///
    /// # Errors
    /// Wrong inputs, a failed host function, a lost device.
    fn run(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>, Error>;

    /// As [`Execution::run`], in the memory of earlier results where that is possible.
    ///
    /// # Errors
    /// As there.
    fn run_into(&self, inputs: &[Tensor], outputs: &mut Vec<Tensor>) -> Result<(), Error> {
        *outputs = self.run(inputs)?;
        Ok(())
    }

    /// As [`Execution::run`], with results in given memory; `None` stands for each of them.
    ///
    /// # Errors
    /// As there; memory for another type or shape.
    fn run_to(
        &self,
        inputs: &[Tensor],
        memory: &mut [Option<ResultMemory<'_>>],
        names: &[String],
    ) -> Result<Vec<Option<Tensor>>, Error> {
        taken(self.run(inputs)?, memory, names)
    }

    /// As [`Execution::run`]; `recorder` takes notes.
    ///
    /// # Errors
    /// As there.
    fn run_recorded(&self, inputs: &[Tensor], recorder: &Recorder) -> Result<Vec<Tensor>, Error>;

    /// As [`Execution::run`], without blocking the polling thread.
    fn run_async(&self, inputs: Vec<Tensor>) -> Pending<'_, Vec<Tensor>>;

    /// The place of a run: `device`, `device and host`, `host`, or the interpreter.
    fn place(&self) -> &'static str;

    /// The compilation, if the network was compiled now and as a whole.
    fn compilation(&self) -> Option<&Compiled> {
        None
    }

    /// True when mixed precision has put anything into f16.
    fn is_mixed(&self) -> bool {
        self.compilation().is_some_and(|c| has_halved(&c.passes))
    }

    /// With one plan, for inputs of exactly these sizes.
    ///
    /// # Errors
    /// Sizes that the network, the declared ranges or the device do not take.
    fn sized_for(self: Box<Self>, inputs: &[Tensor]) -> Result<Box<dyn Execution>, Error>;

    /// The one session on a GPU.
    fn on_device(&self) -> Option<&runtime_gpu::Session> {
        None
    }

    /// The session on a GPU for these inputs, if the network runs there as a whole, so that its tensors can stay there.
    ///
    /// # Errors
    /// Sizes that the network or the device do not take.
    fn on_device_for(&self, _inputs: &[RunInput<'_>]) -> Result<Option<Arc<runtime_gpu::Session>>, GpuError> {
        Ok(None)
    }

    /// True if the network runs on a GPU as a whole.
    fn keeps_tensors_on_device(&self) -> bool {
        self.on_device().is_some()
    }

    /// The one session on the processor.
    fn on_processor(&self) -> Option<&runtime_cpu::Session> {
        None
    }

    /// The module that the interpreter runs.
    fn interpreted(&self) -> Option<&Module> {
        None
    }

    /// Runs a network that is in parts, and lets `visit` look at each part after it ran; others do not run.
    ///
    /// # Errors
    /// As [`Execution::run`], and errors of `visit`.
    fn visit_parts(&self, _inputs: &[Tensor], _visit: &mut Visit<'_, Error>) -> Result<(), Error> {
        Ok(())
    }
}

/// The results, with those copied for which there is memory.
///
/// # Errors
/// Memory for another type or shape.
pub(crate) fn taken(
    results: Vec<Tensor>,
    memory: &mut [Option<ResultMemory<'_>>],
    names: &[String],
) -> Result<Vec<Option<Tensor>>, Error> {
    let mut memory = memory.iter_mut();
    let take = |(t, name): (Tensor, &String)| match memory.next() {
        Some(Some(memory)) => Ok(memory.take(name, &t).map(|()| None)?),
        _ => Ok(Some(t)),
    };
    results.into_iter().zip(names).map(take).collect()
}

/// The place of a run with steps on the device, and on the host.
pub(crate) fn steps_in(device: bool, host: bool) -> &'static str {
    match (device, host) {
        (true, false) => "device",
        (true, true) => "device and host",
        (false, _) => "host",
    }
}

/// Bytes of stack for a run on the host: calls nest there as they do in the functions.
pub(crate) const STACK: usize = 64 << 20;

/// The result of `work`, on a separate thread.
pub(crate) fn on_thread<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Pending<'static, T> {
    Box::pin(async move {
        let (sender, done) = async_channel::bounded(1);
        // Nobody listens any more when the run was given up.
        let run = move || drop(sender.try_send(work()));
        let started = std::thread::Builder::new().name("weft-run".into()).stack_size(STACK).spawn(run);
        started.map_err(|e| GpuError::Host(format!("no thread for a run: {e}")))?;
        let lost = || GpuError::Host("a run on the host ended without results".into());
        done.recv().await.unwrap_or_else(|_| Err(lost().into()))
    })
}
