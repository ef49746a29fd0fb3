//! What kernels are measured on, an adapter or the processor: modules are loaded there with operands, give results, and
//! are raced.

use crate::{Device, Error, Session};
use compiler::compile::Compiled;
use compiler::interpreter::HostFunctions;
use compiler::name::Name;
use compiler::plan::EmitKernel;
use compiler::profile::DeviceProfile;
use compiler::tensor::Tensor;
use runtime_cpu::{CpuError, Processor, Work};
use runtime_gpu::{Gpu, GpuError, Racer, Runner, Sample, Standing, race, race_of};
use std::sync::Arc;

/// Something that runs kernels.
#[derive(Clone)]
#[allow(missing_docs)]
pub enum Place {
    Gpu(Arc<Gpu>),
    Cpu(Arc<Processor>),
}

/// A module on a machine, with operands.
#[allow(missing_docs)]
pub enum Loaded {
    Gpu(Runner),
    Cpu { session: Box<runtime_cpu::Session>, inputs: Vec<Tensor> },
}

/// Why something cannot be measured.
#[derive(Debug)]
#[allow(missing_docs)]
pub enum Failure {
    /// The device was lost.
    Lost(String),
    Refused(String),
}

impl Failure {
    /// The reason.
    pub fn why(self) -> String {
        let (Failure::Lost(why) | Failure::Refused(why)) = self;
        why
    }
}

impl From<String> for Failure {
    fn from(why: String) -> Failure {
        Failure::Refused(why)
    }
}

impl From<GpuError> for Failure {
    fn from(e: GpuError) -> Failure {
        match e {
            GpuError::Lost(_) => Failure::Lost(e.to_string()),
            e => Failure::Refused(e.to_string()),
        }
    }
}

impl From<CpuError> for Failure {
    fn from(e: CpuError) -> Failure {
        Failure::Refused(e.to_string())
    }
}

impl Place {
    /// The machine of a device; `None` for the interpreter.
    pub fn of(device: &Device) -> Option<Place> {
        match device {
            Device::Gpu(gpu) => Some(Place::Gpu(gpu.clone())),
            Device::Cpu(processor) => Some(Place::Cpu(processor.clone())),
            Device::Interpreter => None,
        }
    }
    /// The profile that schedules are made for.
    pub fn profile(&self) -> DeviceProfile {
        match self {
            Place::Gpu(gpu) => gpu.profile.clone(),
            Place::Cpu(processor) => Device::Cpu(processor.clone()).profile(),
        }
    }
    /// The code generator of its kernels.
    pub fn emitter(&self) -> &'static dyn EmitKernel {
        match self {
            Place::Gpu(_) => &shaders_gen::Emitter,
            Place::Cpu(_) => &runtime_cpu::Emitter,
        }
    }

    /// Loads a module.
    ///
    /// # Errors
    /// A pipeline that the driver does not make, memory, and modules that run on the host in part.
    pub fn load(&self, compiled: &Compiled, inputs: &[Tensor]) -> Result<Loaded, Failure> {
        match self {
            Place::Gpu(gpu) => Ok(Loaded::Gpu(Runner::open(gpu, compiled, inputs)?)),
            Place::Cpu(processor) => {
                let constants = &compiled.module.constants;
                let load = |name: Name| {
                    let constant = constants.get(&name).ok_or_else(|| format!("there is no constant {name}"))?;
                    constant.load()
                };
                let session = runtime_cpu::Session::open(processor.clone(), &compiled.plan, &load)?;
                if session.has_host_steps() {
                    return Err(Failure::Refused("a part of it runs on the host".into()));
                }
                Ok(Loaded::Cpu { session: Box::new(session), inputs: inputs.to_vec() })
            }
        }
    }

    /// Races measure the CPU time of the process: on software devices, and on a processor with one thread. Idle threads
    /// of a processor spin while they wait for work, so with more threads CPU time says nothing.
    fn by_cpu_time(&self) -> bool {
        match self {
            Place::Gpu(gpu) => gpu.profile.model().on_host,
            Place::Cpu(processor) => processor.threads() == 1,
        }
    }

    /// Races modules of this machine, the first of which is the incumbent.
    ///
    /// # Errors
    /// A lost device.
    pub fn race(&self, list: &[&Loaded], rounds: usize, seed: u64) -> Result<Vec<Standing>, Failure> {
        match self {
            Place::Gpu(gpu) => {
                let runners = list.iter().filter_map(|o| if let Loaded::Gpu(r) = o { Some(r) } else { None });
                Ok(race(gpu, &runners.collect::<Vec<_>>(), rounds, seed)?)
            }
            Place::Cpu(_) => {
                let racers = list.iter().filter_map(|o| racer(o, self.by_cpu_time()));
                Ok(race_of(racers.collect(), rounds, seed)?)
            }
        }
    }

    /// Races networks on this machine; the first one is the incumbent.
    ///
    /// # Errors
    /// A run that fails.
    pub fn race_networks(
        &self,
        list: &[Session],
        inputs: &[Tensor],
        rounds: usize,
        seed: u64,
    ) -> Result<Vec<Standing>, Error> {
        let racers = list.iter().map(|s| network_racer(s, inputs, self.by_cpu_time())).collect::<Result<_, Error>>()?;
        race_of(racers, rounds, seed)
    }

    /// Nanoseconds of a run of a module alone, in each of some rounds.
    ///
    /// # Errors
    /// Those of [`Place::load`] and [`Place::race`].
    pub fn time(&self, compiled: &Compiled, inputs: &[Tensor], rounds: usize) -> Result<Vec<f64>, Failure> {
        let loaded = self.load(compiled, inputs)?;
        let standings = self.race(&[&loaded], rounds, 1)?;
        Ok(standings.first().map(|s| s.elapsed(&self.profile()).to_vec()).unwrap_or_default())
    }
}

impl Loaded {
    /// Its results for these operands.
    ///
    /// # Errors
    /// It writes beyond its results; a lost device.
    pub fn results(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>, Failure> {
        match self {
            Loaded::Gpu(runner) => match runner.results(inputs)? {
                (results, true) => Ok(results),
                _ => Err(Failure::Refused("it writes beyond its results".into())),
            },
            // The executor checks the bounds of what it writes.
            Loaded::Cpu { session, .. } => Ok(session.run(inputs, &HostFunctions::default())?),
        }
    }
}

/// Times runs of a network. On a device, inputs and results stay there.
fn network_racer<'r>(session: &'r Session, inputs: &'r [Tensor], of_process: bool) -> Result<Racer<'r, Error>, Error> {
    let mut resident = session.on_device().map(|s| s.resident(inputs)).transpose()?;
    let mut run = move || match &mut resident {
        Some(resident) => Ok(resident.run().map(|_| ())?),
        None => Ok(session.run_in_order(inputs).map(|_| ())?),
    };
    Ok(Box::new(move |runs| Sample::of(of_process, || (0..runs).try_for_each(|_| run()))))
}

/// Times the kernels of a module on the processor, without the copies of operands and results; by CPU time `of_process`
/// for the race where that is asked.
fn racer(o: &Loaded, of_process: bool) -> Option<Racer<'_, CpuError>> {
    let Loaded::Cpu { session, inputs } = o else { return None };
    Some(Box::new(move |runs| {
        let (functions, mut ns) = (HostFunctions::default(), 0.0);
        let sample = Sample::of(of_process, || {
            (0..runs).try_for_each(|_| {
                let (_, spans) = session.run_measured(inputs, &functions)?;
                let kernels = spans.iter().filter(|s| matches!(s.work, Work::Kernel(_)));
                ns += kernels.map(|s| (s.end - s.start) * 1e3).sum::<f64>();
                Ok(())
            })
        })?;
        Ok(Sample { ns: if of_process { sample.ns } else { ns }, wall_ns: ns })
    }))
}
