//! Runs whose tensors stay on the device, and runs in flight.

use crate::error::Error;
use crate::outputs::Outputs;
use crate::session::Session;
use compiler::tensor::Tensor;
use runtime_gpu::{DeviceTensor, Recorder, RunInput, RunTensor, Transfers};
use std::sync::Arc;

/// Results of a run, by name, on the device for as long as this is held. With it go the run's resources: another run of
/// the session uses others ([`crate::Options::runs_in_flight`]), or waits.
pub struct DeviceOutputs {
    names: Vec<String>,
    outputs: runtime_gpu::DeviceOutputs,
}

impl DeviceOutputs {
    /// The result of that name. Its content is valid while the outputs are held; in a given buffer, until the caller
    /// writes there.
    pub fn get(&self, name: &str) -> Option<DeviceTensor> {
        let n = self.names.iter().position(|n| n == name)?;
        Some(self.outputs.tensor(n))
    }
    /// Names in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.names.iter().map(String::as_str)
    }
    /// Bytes that the run has moved.
    pub fn transfers(&self) -> Transfers {
        self.outputs.transfers()
    }
    /// All results in host memory; blocks until the device is done.
    ///
    /// # Errors
    /// A result in a given buffer that cannot be copied from; a lost device.
    pub fn read(&self) -> Result<Outputs, Error> {
        pollster::block_on(self.read_async())
    }
    /// As [`DeviceOutputs::read`], as a future.
    ///
    /// # Errors
    /// As there.
    pub async fn read_async(&self) -> Result<Outputs, Error> {
        Ok(Outputs { list: self.names.iter().cloned().zip(self.outputs.read().await?).collect() })
    }
}

/// A run that is submitted, with the copies of its results.
#[must_use = "the results come when the run is waited for"]
pub struct InFlight {
    names: Vec<String>,
    run: runtime_gpu::InFlight,
}

impl InFlight {
    /// Blocks until the results are there.
    ///
    /// # Errors
    /// A lost device.
    pub fn wait(self) -> Result<Outputs, Error> {
        Ok(Outputs { list: self.names.into_iter().zip(self.run.wait()?).collect() })
    }
    /// As [`InFlight::wait`], in the memory of `outputs`, which an earlier run of the session left.
    ///
    /// # Errors
    /// A lost device.
    pub fn wait_into(self, outputs: &mut Outputs) -> Result<(), Error> {
        let mut tensors: Vec<Tensor> = outputs.list.drain(..).map(|(_, t)| t).collect();
        self.run.wait_into(&mut tensors)?;
        outputs.list = self.names.into_iter().zip(tensors).collect();
        Ok(())
    }
    /// The results, as a future that is woken when they are there.
    ///
    /// # Errors
    /// A lost device.
    pub async fn results(self) -> Result<Outputs, Error> {
        Ok(Outputs { list: self.names.into_iter().zip(self.run.results().await?).collect() })
    }
    /// Bytes that the run has moved.
    pub fn transfers(&self) -> Transfers {
        self.run.transfers()
    }
}

impl Session {
    /// Submits a run without waiting, and leaves its results on the device. Inputs are tensors in host memory or on the
    /// device. `outputs` gives buffers for named results: kernels write directly into a suitable buffer
    /// ([`Session::output_on_device`] makes one), else the result is copied on the device.
    ///
    /// # Errors
    /// As [`Session::run`]; names that the model does not have; buffers that do not do; a model that does not run on a
    /// device as a whole; an integer beyond 32 bits.
    pub fn run_on_device(
        &self,
        inputs: &[(&str, RunInput<'_>)],
        outputs: &[(&str, &DeviceTensor)],
    ) -> Result<DeviceOutputs, Error> {
        pollster::block_on(self.run_on_device_async(inputs, outputs))
    }

    /// As [`Session::run_on_device`], as a future that waits for its turn.
    ///
    /// # Errors
    /// As there.
    pub async fn run_on_device_async(
        &self,
        inputs: &[(&str, RunInput<'_>)],
        outputs: &[(&str, &DeviceTensor)],
    ) -> Result<DeviceOutputs, Error> {
        let inputs = self.in_order(inputs)?;
        let names = self.output_names();
        if let Some((name, _)) = outputs.iter().find(|o| !names.iter().any(|n| n == o.0)) {
            let text = format!("the model has no result `{name}`; there are: {}", names.join(", "));
            return Err(Error::Input(text));
        }
        let place = |name: &String| outputs.iter().find(|o| o.0 == name).map(|o| o.1);
        let places: Vec<Option<&DeviceTensor>> = names.iter().map(place).collect();
        let outputs = self.sized_session(&inputs)?.run_bound(&inputs, &places).await?;
        Ok(DeviceOutputs { names, outputs })
    }

    /// Runs once, with each result in memory of its own, by name and in order: on the device where a kernel writes it,
    /// else in host memory. The tensors belong to the caller, and no run waits for them. Results of earlier runs can be
    /// inputs of this one. A model that does not run on a device as a whole takes inputs in host memory.
    ///
    /// # Errors
    /// As [`Session::run`]; inputs on a device that are not on this one; no memory.
    pub fn run_to_tensors(&self, inputs: &[(&str, RunInput<'_>)]) -> Result<Vec<(String, RunTensor)>, Error> {
        pollster::block_on(self.run_to_tensors_async(inputs))
    }

    /// As [`Session::run_to_tensors`], as a future that waits for its turn.
    ///
    /// # Errors
    /// As there.
    pub async fn run_to_tensors_async(
        &self,
        inputs: &[(&str, RunInput<'_>)],
    ) -> Result<Vec<(String, RunTensor)>, Error> {
        let inputs = self.in_order(inputs)?;
        let results = match self.execution.on_device_for(&inputs)? {
            Some(session) => session.run_to_tensors(&inputs, &Recorder::default()).await?,
            None => in_host_memory(self.execution.run_async(self.host_inputs(&inputs)?).await?),
        };
        Ok(self.output_names().into_iter().zip(results).collect())
    }

    /// As [`Session::run_to_tensors`]; `recorder` takes notes of the run.
    ///
    /// # Errors
    /// As there.
    pub fn run_to_tensors_recorded(
        &self,
        inputs: &[(&str, RunInput<'_>)],
        recorder: &Recorder,
    ) -> Result<Vec<(String, RunTensor)>, Error> {
        let inputs = self.in_order(inputs)?;
        let results = match self.execution.on_device_for(&inputs)? {
            Some(session) => pollster::block_on(session.run_to_tensors(&inputs, recorder))?,
            None => in_host_memory(self.run_recorded(&self.host_inputs(&inputs)?, recorder)?),
        };
        Ok(self.output_names().into_iter().zip(results).collect())
    }

    /// Inputs that are all in host memory.
    fn host_inputs(&self, inputs: &[RunInput<'_>]) -> Result<Vec<Tensor>, Error> {
        let one = |input: &RunInput<'_>| match input {
            RunInput::Host(t) => Ok((*t).clone()),
            RunInput::Device(_) => Err(self.not_on_a_device()),
        };
        inputs.iter().map(one).collect()
    }

    /// Uploads inputs and submits a run with the copies of its results, without waiting. The device executes runs in
    /// the order of these calls; each [`InFlight`] has the results of its own inputs. If the session's maximum is in
    /// flight, it blocks until one is waited for or dropped, so [`crate::Options::runs_in_flight`] should be the number
    /// that a thread keeps in flight.
    ///
    /// # Errors
    /// As [`Session::run_on_device`].
    pub fn submit(&self, inputs: &[(&str, RunInput<'_>)]) -> Result<InFlight, Error> {
        pollster::block_on(self.submit_async(inputs))
    }

    /// As [`Session::submit`], as a future that waits for its turn.
    ///
    /// # Errors
    /// As there.
    pub async fn submit_async(&self, inputs: &[(&str, RunInput<'_>)]) -> Result<InFlight, Error> {
        let inputs = self.in_order(inputs)?;
        let run = self.sized_session(&inputs)?.submit(&inputs).await?;
        Ok(InFlight { names: self.output_names(), run })
    }

    /// Uploads a tensor for the input of that name once, for many runs.
    ///
    /// # Errors
    /// An unknown input, or one of another type or shape; a model of open sizes ([`Session::sized_for`] fixes them); a
    /// model that does not run on a device as a whole.
    pub fn input_on_device(&self, name: &str, t: &Tensor) -> Result<DeviceTensor, Error> {
        let names: Vec<String> = self.inputs().into_iter().map(|i| i.0).collect();
        Ok(self.closed_session()?.input_on_device(place(&names, name, "input")?, t)?)
    }

    /// A tensor for the input of that name, for many runs of [`Session::run_to_tensors`]: on the device where kernels
    /// read it, else in host memory. With open sizes it stays in host memory.
    ///
    /// # Errors
    /// An unknown input, or one of another type or shape; no memory.
    pub fn input_where_read(&self, name: &str, t: &Tensor) -> Result<RunTensor, Error> {
        let names: Vec<String> = self.inputs().into_iter().map(|i| i.0).collect();
        let n = place(&names, name, "input")?;
        match self.on_device().filter(|s| s.reads_on_device(n)) {
            Some(s) => Ok(RunTensor::Device(s.input_on_device(n, t)?)),
            None => Ok(RunTensor::Host(t.clone())),
        }
    }

    /// A buffer for the result of that name that kernels write to when [`Session::run_on_device`] gets it.
    ///
    /// # Errors
    /// As [`Session::input_on_device`].
    pub fn output_on_device(&self, name: &str) -> Result<DeviceTensor, Error> {
        Ok(self.closed_session()?.output_on_device(place(&self.output_names(), name, "result")?)?)
    }

    /// True if the model runs on a device as a whole, so that its tensors can stay there.
    pub fn keeps_tensors_on_device(&self) -> bool {
        self.execution.keeps_tensors_on_device()
    }

    fn closed_session(&self) -> Result<&runtime_gpu::Session, Error> {
        self.on_device().ok_or_else(|| match self.keeps_tensors_on_device() {
            true => Error::Input("the model's sizes are open: `sized_for` closes them".into()),
            false => self.not_on_a_device(),
        })
    }

    /// The session on the device for these inputs.
    fn sized_session(&self, inputs: &[RunInput<'_>]) -> Result<Arc<runtime_gpu::Session>, Error> {
        self.execution.on_device_for(inputs)?.ok_or_else(|| self.not_on_a_device())
    }

    fn not_on_a_device(&self) -> Error {
        let place = self.place();
        Error::Input(format!("the model does not run on a device as a whole ({place}): its tensors cannot stay there"))
    }
}

fn in_host_memory(results: Vec<Tensor>) -> Vec<RunTensor> {
    results.into_iter().map(RunTensor::Host).collect()
}

fn place(names: &[String], name: &str, what: &str) -> Result<usize, Error> {
    let found = names.iter().position(|n| n == name);
    found.ok_or_else(|| Error::Input(format!("the model has no {what} `{name}`; there are: {}", names.join(", "))))
}
