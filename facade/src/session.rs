//! A network that is ready to run.

use crate::error::Error;
use crate::execution::{Execution, INTERPRETER, on_thread, taken};
use crate::interpreted::interpret;
use crate::outputs::Outputs;
use compiler::compile::{CompileError, Compiled, lost_positions};
use compiler::graph::{Module, TensorType, input_ports};
use compiler::tensor::Tensor;
use runtime_cpu::ResultMemory;
use runtime_gpu::{HostFunctions, PartError, Recorder};
use std::sync::Arc;

/// A network that is ready to run, on any number of threads.
pub struct Session {
    /// As it was loaded.
    module: Arc<Module>,
    /// Its inputs.
    ports: Arc<[(String, TensorType)]>,
    pub(crate) execution: Box<dyn Execution>,
    functions: HostFunctions,
}

impl Session {
    pub(crate) fn new(module: Module, execution: Box<dyn Execution>, functions: HostFunctions) -> Session {
        let ports = input_ports(&module).into_iter().map(|(n, t)| (n.to_string(), t)).collect();
        Session { module: Arc::new(module), ports, execution, functions }
    }

    /// Runs once. `inputs` are tensors by name, in any order; each has the type and shape that [`Session::inputs`]
    /// says.
    ///
    /// # Errors
    /// An input that is missing, unknown or of another type or shape; a failed host function; a lost device.
    pub fn run(&self, inputs: &[(&str, Tensor)]) -> Result<Outputs, Error> {
        Ok(self.named(self.run_in_order(&self.in_order(inputs)?)?))
    }

    /// As [`Session::run`], with results in the memory of `outputs` from an earlier run of this session: if these are
    /// not shared, no memory is allocated for tensors. For a model in parts or on the interpreter the results are new.
    ///
    /// ```
    /// # use weft::{Device, Model, Options, Outputs, Tensor};
    /// # fn main() -> Result<(), weft::Error> {
    /// # let device = Device::best();
    /// let model = Model::from_text("graph @main(%x: f32[4]) -> (y: f32[4]) {\n  %y = neg %x : f32[4]\n  return %y\n}\n")?;
    /// let session = model.compile(&Options::for_device(&device))?.session(&device)?;
    /// let mut outputs = Outputs::default();
    /// for i in 0..3 {
    ///     session.run_into(&[("x", Tensor::from_vec(vec![4], vec![i as f32; 4]))], &mut outputs)?;
    ///     assert_eq!(outputs["y"].to_f32_vec(), [-(i as f32); 4]);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Session::run`].
    pub fn run_into(&self, inputs: &[(&str, Tensor)], outputs: &mut Outputs) -> Result<(), Error> {
        let given = self.in_order(inputs)?;
        let mut tensors: Vec<Tensor> = outputs.list.drain(..).map(|(_, t)| t).collect();
        match self.execution.run_into(&given, &mut tensors) {
            Err(e) if e.is_too_wide() => {
                tensors = interpret(&self.module, &self.functions, &given, &Recorder::default())?
            }
            done => done?,
        }
        *outputs = self.named(self.checked(&given, tensors)?);
        Ok(())
    }

    /// As [`Session::run`], with results in memory of the caller's, by name; the others are returned. On the processor
    /// kernels write them there, if an array has the form of their buffer and no input lies there; else they are
    /// copied.
    ///
    /// # Errors
    /// As [`Session::run`]; a name that the model does not have; memory for another type or shape.
    pub fn run_to_memory(
        &self,
        inputs: &[(&str, Tensor)],
        memory: Vec<(String, ResultMemory<'_>)>,
    ) -> Result<Outputs, Error> {
        let given = self.in_order(inputs)?;
        let names = self.output_names();
        let mut places: Vec<Option<ResultMemory<'_>>> = names.iter().map(|_| None).collect();
        for (name, memory) in memory {
            let Some(at) = names.iter().position(|n| *n == name) else {
                let text = format!("the model has no result `{name}`; there are: {}", names.join(", "));
                return Err(Error::Input(text));
            };
            places[at] = Some(memory);
        }
        let results = match self.execution.run_to(&given, &mut places, &names) {
            Err(e) if e.is_too_wide() => {
                let results = interpret(&self.module, &self.functions, &given, &Recorder::default())?;
                taken(results, &mut places, &names)?
            }
            results => results?,
        };
        Ok(Outputs { list: names.into_iter().zip(results).filter_map(|(name, t)| Some((name, t?))).collect() })
    }

    /// The results of a run with these inputs. Debug builds refuse positions that there are not, as the fault of a
    /// kernel.
    fn checked(&self, inputs: &[Tensor], results: Vec<Tensor>) -> Result<Vec<Tensor>, Error> {
        if cfg!(debug_assertions) {
            let lost = lost_positions(&self.module, inputs, &results);
            if !lost.is_empty() {
                return Err(CompileError::Bug { at: self.place().into(), message: lost.join("; ") }.into());
            }
        }
        Ok(results)
    }

    /// Runs once, without blocking the polling thread while the device works. Runs that are controlled by the host
    /// (models in parts, the interpreter) use a separate thread. It works with any executor.
    ///
    /// # Errors
    /// As [`Session::run`].
    pub async fn run_async(&self, inputs: &[(&str, Tensor)]) -> Result<Outputs, Error> {
        let given = self.in_order(inputs)?;
        let results = match self.execution.run_async(given.clone()).await {
            Err(e) if e.is_too_wide() => self.interpret_async(given.clone()).await?,
            results => results?,
        };
        Ok(self.named(self.checked(&given, results)?))
    }

    async fn interpret_async(&self, inputs: Vec<Tensor>) -> Result<Vec<Tensor>, Error> {
        let (functions, module) = (self.functions.clone(), self.module.clone());
        on_thread(move || interpret(&module, &functions, &inputs, &Recorder::default())).await
    }

    /// Runs once with inputs and results in the model's order.
    ///
    /// # Errors
    /// As [`Session::run`].
    pub fn run_in_order(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>, Error> {
        Ok(self.run_placed(inputs)?.0)
    }

    /// As [`Session::run_in_order`]; `recorder` takes notes of the run.
    ///
    /// # Errors
    /// As there.
    pub fn run_recorded(&self, inputs: &[Tensor], recorder: &Recorder) -> Result<Vec<Tensor>, Error> {
        match self.execution.run_recorded(inputs, recorder) {
            Err(e) if e.is_too_wide() => interpret(&self.module, &self.functions, inputs, recorder),
            results => results,
        }
    }

    /// As [`Session::run_in_order`]; also returns the place of the run.
    ///
    /// # Errors
    /// As there.
    pub fn run_placed(&self, inputs: &[Tensor]) -> Result<(Vec<Tensor>, &'static str), Error> {
        let (results, place) = self.run_unchecked(inputs)?;
        Ok((self.checked(inputs, results)?, place))
    }

    /// As [`Session::run_placed`], with whatever positions kernels find.
    ///
    /// # Errors
    /// As there.
    pub fn run_unchecked(&self, inputs: &[Tensor]) -> Result<(Vec<Tensor>, &'static str), Error> {
        match self.execution.run(inputs) {
            // Kernels read integers as 32 bits, and the data of a run may exceed that.
            Err(e) if e.is_too_wide() => {
                Ok((interpret(&self.module, &self.functions, inputs, &Recorder::default())?, INTERPRETER))
            }
            results => Ok((results?, self.place())),
        }
    }

    /// The inputs in the model's order.
    pub(crate) fn in_order<T: Clone>(&self, inputs: &[(&str, T)]) -> Result<Vec<T>, Error> {
        let ports = &self.ports;
        let names = || ports.iter().map(|p| p.0.as_str()).collect::<Vec<_>>().join(", ");
        if let Some((name, _)) = inputs.iter().find(|(n, _)| !ports.iter().any(|p| p.0 == *n)) {
            return Err(Error::Input(format!("the model has no input `{name}`; there are: {}", names())));
        }
        let find = |name: &str| inputs.iter().find(|i| i.0 == name).map(|i| i.1.clone());
        let given = ports
            .iter()
            .map(|p| find(&p.0).ok_or_else(|| Error::Input(format!("input `{}` is missing: it is {:?}", p.0, p.1))));
        given.collect()
    }

    pub(crate) fn named(&self, results: Vec<Tensor>) -> Outputs {
        Outputs { list: self.output_names().into_iter().zip(results).collect() }
    }

    /// Names and types of the inputs, in order.
    pub fn inputs(&self) -> Vec<(String, TensorType)> {
        self.ports.to_vec()
    }
    /// Names of the results, in order.
    pub fn output_names(&self) -> Vec<String> {
        self.module.main().result_names.iter().map(|n| n.to_string()).collect()
    }
    /// The place of a run: `device`, `device and host`, `host`, or the interpreter.
    pub fn place(&self) -> &'static str {
        self.execution.place()
    }
    /// True when mixed precision has put anything into f16, as far as a plan that was compiled here says.
    pub fn is_mixed(&self) -> bool {
        self.execution.is_mixed()
    }
    /// The session on the device, for tensors that stay there, for times, and for the caller's own commands; `None` for
    /// models in parts and on the interpreter.
    pub fn on_device(&self) -> Option<&runtime_gpu::Session> {
        self.execution.on_device()
    }
    /// The session on the processor, for the times of its kernels; `None` on other devices and for open sizes.
    pub fn on_processor(&self) -> Option<&runtime_cpu::Session> {
        self.execution.on_processor()
    }
    /// What the interpreter runs, where it runs the model as a whole: to observe it node by node.
    pub fn interpreted(&self) -> Option<&Module> {
        self.execution.interpreted()
    }
    /// Runs a model that is in parts once, part by part, and lets `visit` look at each part after it ran;
    /// others do not run.
    ///
    /// # Errors
    /// As [`Session::run`], and errors of `visit`.
    pub fn visit_parts(&self, inputs: &[Tensor], visit: &mut runtime_gpu::Visit<'_, Error>) -> Result<(), Error> {
        self.execution.visit_parts(inputs, visit)
    }
    /// The compilation, if the model was compiled now and as a whole.
    pub fn compilation(&self) -> Option<&Compiled> {
        self.execution.compilation()
    }

    /// A session with one plan, for inputs of exactly these sizes, from a session for open sizes.
    ///
    /// # Errors
    /// Sizes that the network, the declared ranges or the device do not take.
    pub fn sized_for(self, inputs: &[Tensor]) -> Result<Session, Error> {
        Ok(Session { execution: self.execution.sized_for(inputs)?, ..self })
    }
}
