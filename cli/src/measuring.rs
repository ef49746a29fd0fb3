//! `weft measure` (hidden): the process in which `weft tune` verifies and times candidates. A candidate that hangs, loses
//! the device or kills its process ends this process, not the search.
//!
//! Each line of stdin is a [`Request`], each line of stdout the [`Reply`] to it, as JSON. At the end of stdin it ends.

use crate::args::MeasureArgs;
use crate::error::{CliError, CliResult, Code};
use crate::executor::{Device, open_device, profile_on, scheduling};
use crate::output::print_text;
use compiler::agreement::{Tolerance, agree};
use compiler::compile::{CompileOptions, compile, function_alone};
use compiler::dtype::DType;
use compiler::graph::{Constant, Module};
use compiler::interpreter::{HostFunctions, run_function};
use compiler::name::Name;
use compiler::plan::EmitKernel;
use compiler::schedule::ScheduleTarget;
use compiler::tensor::Tensor;
use compiler::text::{parse_instructions, random_tensor};
use compiler::tir::TensorFunction;
use runtime_cpu::{CpuError, Processor};
use runtime_gpu::{Gpu, GpuError, Racer, Runner, Sample, Standing, race, race_of};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::BufRead;
use std::sync::{Arc, mpsc};
use std::time::Instant;

/// Largest magnitude of operands that are whole numbers: sums of their products are exact in any order.
const MOST: f64 = 3.0;
/// Largest sum that f32 has exactly.
const EXACT: f64 = 16_777_216.0;

/// Why a schedule is refused that is right: it adds in another order than the first one.
pub const OTHER_SUMS: &str = "it sums in another order than the default";

/// What the process is asked for.
#[derive(Serialize, Deserialize)]
pub enum Request {
    /// Take this unscheduled function, whose operands at `constants` are constants, and drop all candidates.
    Function { function: Box<TensorFunction>, constants: Vec<usize> },
    /// Compile and verify the schedule with these instructions; with `same` its results must also have the bits of the
    /// first schedule's that was opened, for operands of any value.
    Open { id: usize, trace: String, same: bool },
    /// Drop all candidates but these.
    Keep { ids: Vec<usize> },
    /// Race candidates; the first is the incumbent.
    Race { ids: Vec<usize>, rounds: usize, seed: u64 },
}

/// What the process answers.
#[derive(Serialize, Deserialize)]
pub enum Reply {
    /// It is done.
    Done,
    /// The candidate gives the right results. Milliseconds of a run, with its results read back.
    Opened { ms: f64 },
    /// Why not.
    Refused { why: String },
    /// The device was lost; the process ends.
    Lost { why: String },
    /// Of each candidate of the race.
    Raced { standings: Vec<Standing> },
}

/// A function whose candidates are measured.
struct Unit {
    function: TensorFunction,
    positions: Vec<usize>,
    /// Operands in whole numbers, the right results for them, and operands of any value.
    whole: Vec<Tensor>,
    want: Vec<Tensor>,
    inputs: Vec<Tensor>,
    /// The results of the first schedule for `inputs`.
    first: Option<Vec<Tensor>>,
    runners: BTreeMap<usize, Open>,
}

/// What candidates run on.
enum Machine {
    Gpu(Arc<Gpu>),
    Cpu(Arc<Processor>),
}

/// A candidate that gave the right results.
enum Open {
    Gpu(Runner),
    Cpu(Box<runtime_cpu::Session>),
}

impl Open {
    /// Its results for these operands.
    fn results(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>, Failure> {
        match self {
            Open::Gpu(runner) => Ok(runner.results(inputs)?.0),
            Open::Cpu(session) => Ok(session.run(inputs, &HostFunctions::default())?),
        }
    }
}

/// Why a request was not met.
enum Failure {
    /// The device was lost.
    Lost(String),
    Refused(String),
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

/// Answers requests.
///
/// # Errors
/// No device that runs kernels, a line that is no request, a lost device.
pub fn execute(a: &MeasureArgs) -> CliResult<()> {
    let device = open_device(&a.common)?;
    let profile = profile_on(&a.common, &device)?;
    let scheduling = scheduling(&a.common);
    let machine = match device {
        Device::Gpu(gpu) => Machine::Gpu(gpu),
        Device::Cpu(processor) => Machine::Cpu(processor),
        Device::Interpreter => return Err(CliError::new(Code::Device, "only kernels are measured")),
    };
    let mut unit = None;
    for line in lines() {
        let request = serde_json::from_str(&line).map_err(|e| CliError::usage(format!("no request: {e}")))?;
        let reply = match answer(request, &machine, scheduling.on(&profile), &mut unit) {
            Ok(reply) => reply,
            Err(Failure::Refused(why)) => Reply::Refused { why },
            Err(Failure::Lost(why)) => Reply::Lost { why },
        };
        print_text(&serde_json::to_string(&reply).map_err(|e| CliError::usage(e.to_string()))?)?;
        if let Reply::Lost { why } = reply {
            return Err(CliError::new(Code::Device, why));
        }
    }
    Ok(())
}

/// The lines of stdin. At its end the process ends at once, whatever it is doing: nobody waits for it any more.
fn lines() -> mpsc::Receiver<String> {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
        // Handlers of the normal end would wait for a driver that may hang.
        std::process::abort();
    });
    receiver
}

fn answer(
    request: Request,
    machine: &Machine,
    target: ScheduleTarget<'_>,
    unit: &mut Option<Unit>,
) -> Result<Reply, Failure> {
    if let Request::Function { function, constants } = request {
        *unit = Some(Unit::new(*function, constants)?);
        return Ok(Reply::Done);
    }
    let unit = unit.as_mut().ok_or_else(|| "there is no function yet".to_string())?;
    match request {
        Request::Function { .. } => Ok(Reply::Done),
        Request::Open { id, trace, same } => {
            let (runner, ms) = unit.open(&trace, machine, target)?;
            if same {
                let got = runner.results(&unit.inputs)?;
                if *unit.first.get_or_insert_with(|| got.clone()) != got {
                    return Err(Failure::Refused(OTHER_SUMS.into()));
                }
            }
            unit.runners.insert(id, runner);
            Ok(Reply::Opened { ms })
        }
        Request::Keep { ids } => {
            unit.runners.retain(|id, _| ids.contains(id));
            Ok(Reply::Done)
        }
        Request::Race { ids, rounds, seed } => {
            let open: Option<Vec<&Open>> = ids.iter().map(|id| unit.runners.get(id)).collect();
            let open = open.ok_or_else(|| "a candidate of the race is not open".to_string())?;
            Ok(Reply::Raced { standings: unit.race(&open, machine, rounds, seed)? })
        }
    }
}

impl Unit {
    /// Computes the right results on the host.
    fn new(function: TensorFunction, positions: Vec<usize>) -> Result<Unit, String> {
        let plain = function_alone(&function, &positions)?;
        let main = plain.main();
        let types: Vec<(DType, Vec<usize>)> =
            main.params().iter().map(|p| (main.ty(*p).dtype, main.ty(*p).const_shape().unwrap_or_default())).collect();
        let inputs: Vec<Tensor> =
            types.iter().enumerate().map(|(i, (t, shape))| random_tensor(*t, shape, 100 + i as u64)).collect();
        let whole: Vec<Tensor> = inputs.iter().map(whole_numbers).collect();
        let want = run_function(&whole_constants(&plain), main.name, &whole).map_err(|e| e.to_string())?;
        Ok(Unit { function, positions, whole, want, inputs, first: None, runners: BTreeMap::new() })
    }

    /// Compiles a candidate, and compares its results with the right ones. Milliseconds of the run.
    fn open(&self, trace: &str, machine: &Machine, target: ScheduleTarget<'_>) -> Result<(Open, f64), Failure> {
        let pending = parse_instructions(trace).map_err(|e| e.to_string())?;
        let f = TensorFunction { pending, ..self.function.clone() };
        let module = whole_constants(&function_alone(&f, &self.positions)?);
        let mut options = CompileOptions::default();
        options.pipeline.scheduling.clone_from(target.options);
        let emitter: &dyn EmitKernel = match machine {
            Machine::Gpu(_) => &shaders_gen::Emitter,
            Machine::Cpu(_) => &runtime_cpu::Emitter,
        };
        let compiled =
            compile(module, &options, target.profile, emitter, &mut |_, _, _| ()).map_err(|e| e.to_string())?;
        let (open, got, ms) = match machine {
            Machine::Gpu(gpu) => {
                let runner = Runner::open(gpu, &compiled, &self.inputs)?;
                let start = Instant::now();
                let (got, inside) = runner.results(&self.whole)?;
                if !inside {
                    return Err(Failure::Refused("it writes beyond its results".into()));
                }
                (Open::Gpu(runner), got, start.elapsed())
            }
            // The executor checks the bounds of what it writes.
            Machine::Cpu(processor) => {
                let constants = &compiled.module.constants;
                let load = |name: Name| {
                    let constant = constants.get(&name).ok_or_else(|| format!("there is no constant {name}"))?;
                    constant.load().map_err(|e| e.to_string())
                };
                let session = runtime_cpu::Session::open(processor.clone(), &compiled.plan, &load)?;
                if session.has_host_steps() {
                    return Err(Failure::Refused("a part of it runs on the host".into()));
                }
                let start = Instant::now();
                let got = session.run(&self.whole, &HostFunctions::default())?;
                (Open::Cpu(Box::new(session)), got, start.elapsed())
            }
        };
        got.iter().zip(&self.want).try_for_each(|(got, want)| verify(got, want))?;
        Ok((open, ms.as_secs_f64() * 1e3))
    }

    /// Races candidates, the first of which is the incumbent.
    fn race(&self, open: &[&Open], machine: &Machine, rounds: usize, seed: u64) -> Result<Vec<Standing>, Failure> {
        match machine {
            Machine::Gpu(gpu) => {
                let runners = open.iter().filter_map(|o| if let Open::Gpu(r) = o { Some(r) } else { None });
                Ok(race(gpu, &runners.collect::<Vec<_>>(), rounds, seed)?)
            }
            Machine::Cpu(processor) => {
                let functions = HostFunctions::default();
                // Threads that look out for work take CPU time, too.
                let of_process = processor.threads() == 1;
                let run = |session: &runtime_cpu::Session, runs: usize| {
                    (0..runs).try_for_each(|_| session.run(&self.inputs, &functions).map(drop))
                };
                let sessions = open.iter().filter_map(|o| if let Open::Cpu(s) = o { Some(s) } else { None });
                let racer =
                    |s| -> Racer<'_, CpuError> { Box::new(move |runs| Sample::of(of_process, || run(s, runs))) };
                Ok(race_of(sessions.map(|s| racer(s.as_ref())).collect(), rounds, seed)?)
            }
        }
    }
}

/// Whole numbers are exact in any order of summation; other results agree within the tolerance of their type.
fn verify(got: &Tensor, want: &Tensor) -> Result<(), String> {
    let exact = want.to_f64_vec().iter().all(|v| v.fract() == 0.0 && v.abs() < EXACT) && want.dtype() == DType::F32;
    if exact {
        let (got, want) = (got.to_f64_vec(), want.to_f64_vec());
        let differ: Vec<usize> = (0..want.len()).filter(|&i| got.get(i) != Some(&want[i])).collect();
        let Some(&at) = differ.first() else { return Ok(()) };
        let is = got.get(at).map_or("missing".into(), f64::to_string);
        return Err(format!(
            "wrong results for operands of whole numbers: {} of {}, the first at {at} is {is} and not {}",
            differ.len(),
            want.len(),
            want[at]
        ));
    }
    let d = agree(got, want, &Tolerance::new(want.dtype(), None, None));
    if d.pass { Ok(()) } else { Err(format!("wrong results: {}", d.why)) }
}

/// The same tensor in small whole numbers.
fn whole_numbers(t: &Tensor) -> Tensor {
    match t.dtype().is_float() {
        true => Tensor::from_f64(t.dtype(), t.shape().to_vec(), t.to_f64_vec().iter().map(|v| (v * MOST).round())),
        false => t.clone(),
    }
}

/// The module with constants of small whole numbers.
fn whole_constants(module: &Module) -> Module {
    let mut out = module.clone();
    for constant in out.constants.values_mut() {
        if let Ok(t) = constant.load() {
            *constant = Constant::from_tensor(&whole_numbers(&t));
        }
    }
    out
}
