//! The process in which a search verifies and times candidates. A candidate that hangs, loses the device or kills its
//! process ends this process, not the search.
//!
//! The first line of stdin is a [`Setup`], each further one a [`Request`]; each line of stdout is the [`Reply`] to a
//! request, as JSON. At the end of stdin the process ends.

use crate::error::{Code, Error, Result};
use crate::executor::{Device, open_device, profile_on, scheduling};
use crate::inputs::Inputs;
use crate::models::{inputs_for, load};
use crate::options::Tabled;
use crate::settings::Settings;
use compiler::agreement::{Tolerance, agree};
use compiler::compile::{CompileOptions, compile, function_alone};
use compiler::dtype::DType;
use compiler::graph::{Constant, Module};
use compiler::interpreter::run_function;
use compiler::schedule::ScheduleTarget;
use compiler::tensor::Tensor;
use compiler::text::{parse_instructions, random_tensor};
use compiler::tir::TensorFunction;
use runtime_gpu::Standing;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::{BufRead, Write};
use std::path::PathBuf;
use std::sync::mpsc;
use std::time::Instant;
use weft::races::{Failure, Loaded, Place};

/// Largest magnitude of operands that are whole numbers: sums of their products are exact in any order.
const MOST: f64 = 3.0;
/// Largest sum that f32 has exactly.
const EXACT: f64 = 16_777_216.0;

/// Why a schedule is refused that is right: it adds in another order than the first one.
pub const OTHER_SUMS: &str = "it sums in another order than the default";

/// A message to the process.
#[derive(Serialize, Deserialize)]
#[allow(missing_docs)]
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
    /// Race a network with different tuning databases (`off` for none); the first is the incumbent.
    Networks { model: String, tuning: Vec<PathBuf>, rounds: usize, seed: u64 },
}

/// Its answer.
#[derive(Serialize, Deserialize)]
#[allow(missing_docs)]
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
    runners: BTreeMap<usize, Loaded>,
}

/// The argument with which a program is a worker.
pub const WORKER: &str = "measure";

/// The first message to a worker.
#[derive(Serialize, Deserialize, Clone, Debug)]
pub struct Setup {
    settings: Vec<(String, Vec<String>)>,
    /// Settings that are defaults of a file.
    defaulted: Vec<String>,
    inputs: Vec<(String, Vec<String>)>,
    allow_native: bool,
}

impl Setup {
    /// For the settings of a search, without its database.
    pub fn of(settings: &Settings, inputs: &Inputs) -> Setup {
        let own = Settings { tuning: Some("off".into()), ..settings.silent() };
        let (defaulted, allow_native) = (settings.defaulted.clone(), settings.allow_native);
        Setup { settings: own.pairs(), defaulted, inputs: inputs.pairs(), allow_native }
    }
}

/// The settings that a program serves with: its own passes, functions and schedules, which no message carries.
pub struct Program {
    /// Settings whose options are those of the search.
    settings: Settings,
    input: Inputs,
}

/// Answers requests. `own` has what the program brings beside options.
///
/// # Errors
/// No device that runs kernels, a line that is no request, a lost device.
pub fn serve(own: &Settings) -> Result<()> {
    let no_request = |e: serde_json::Error| Error::usage(format!("no request: {e}"));
    let mut first = String::new();
    std::io::stdin().read_line(&mut first).map_err(|e| Error::usage(format!("no request: {e}")))?;
    let setup: Setup = serde_json::from_str(&first).map_err(no_request)?;
    let program = program(own, &setup)?;
    // SAFETY: the process has done nothing but read this line, in one thread.
    unsafe { crate::external::provide_threads(&program.settings) };
    let device = open_device(&program.settings)?;
    let profile = profile_on(&program.settings, &device)?;
    let scheduling = scheduling(&program.settings);
    let machine = Place::of(&device).ok_or_else(|| Error::new(Code::Device, "only kernels are measured"))?;
    let mut unit = None;
    for line in lines() {
        let answered = match serde_json::from_str(&line).map_err(no_request)? {
            Request::Networks { model, tuning, rounds, seed } => {
                networks(&program, (&device, &machine), (&model, &tuning), rounds, seed)
                    .map_err(|e| Failure::Refused(e.message))
            }
            request => answer(request, &machine, scheduling.on(&profile), &mut unit),
        };
        let reply = match answered {
            Ok(reply) => reply,
            Err(Failure::Refused(why)) => Reply::Refused { why },
            Err(Failure::Lost(why)) => Reply::Lost { why },
        };
        send(&reply)?;
        if let Reply::Lost { why } = reply {
            return Err(Error::new(Code::Device, why));
        }
    }
    Ok(())
}

fn program(own: &Settings, setup: &Setup) -> Result<Program> {
    let defaulted = setup.defaulted.clone();
    let mut settings = Settings { allow_native: setup.allow_native, defaulted, ..own.clone() };
    settings.take(&setup.settings).map_err(Error::usage)?;
    settings.functions = crate::host_calls::functions(&settings, &own.functions)?;
    let mut input = Inputs::default();
    input.take(&setup.inputs).map_err(Error::usage)?;
    Ok(Program { settings, input })
}

fn send(reply: &Reply) -> Result<()> {
    let text = serde_json::to_string(reply).map_err(|e| Error::usage(e.to_string()))?;
    let mut out = std::io::stdout().lock();
    writeln!(out, "{text}").and_then(|()| out.flush()).map_err(|e| Error::usage(format!("the search is gone: {e}")))
}

/// Races a network with each of the databases.
fn networks(
    a: &Program,
    (device, machine): (&Device, &Place),
    (model, tuning): (&str, &[PathBuf]),
    rounds: usize,
    seed: u64,
) -> Result<Reply> {
    let given = crate::inputs::given(&a.input, model, &a.settings)?;
    let module = load(model, &a.settings, given.as_ref())?;
    let inputs = inputs_for(&module, given.as_ref(), &a.settings)?;
    let open = |file: &PathBuf| {
        let tuning = Some(file.display().to_string());
        let mut settings = Settings { tuning, state: Default::default(), ..a.settings.clone() };
        crate::tuning::provide(&mut settings, false)?;
        Ok(crate::executor::execute(module.clone(), &settings, device, &inputs)?.sized_for(&inputs)?)
    };
    if let Ok(sessions) = tuning.iter().map(open).collect::<Result<Vec<_>>>() {
        return Ok(Reply::Raced { standings: machine.race_networks(&sessions, &inputs, rounds, seed)? });
    }
    // If the device has no memory for all networks at once, each runs alone.
    let alone = |file| Ok(machine.race_networks(&[open(file)?], &inputs, rounds, seed)?.remove(0));
    let standings = tuning.iter().map(alone).collect::<Result<Vec<_>>>()?;
    let beside = |s: &Standing| s.beside(&standings[0]);
    Ok(Reply::Raced { standings: standings.iter().map(beside).collect() })
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
    machine: &Place,
    target: ScheduleTarget<'_>,
    unit: &mut Option<Unit>,
) -> Result<Reply, Failure> {
    if let Request::Function { function, constants } = request {
        *unit = Some(Unit::new(*function, constants)?);
        return Ok(Reply::Done);
    }
    let unit = unit.as_mut().ok_or_else(|| "there is no function yet".to_string())?;
    match request {
        Request::Function { .. } | Request::Networks { .. } => Ok(Reply::Done),
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
            let open: Option<Vec<&Loaded>> = ids.iter().map(|id| unit.runners.get(id)).collect();
            let open = open.ok_or_else(|| "a candidate of the race is not open".to_string())?;
            Ok(Reply::Raced { standings: machine.race(&open, rounds, seed)? })
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
    fn open(&self, trace: &str, machine: &Place, target: ScheduleTarget<'_>) -> Result<(Loaded, f64), Failure> {
        let pending = parse_instructions(trace).map_err(|e| e.to_string())?;
        let f = TensorFunction { pending, ..self.function.clone() };
        let module = whole_constants(&function_alone(&f, &self.positions)?);
        let mut options = CompileOptions::default();
        options.pipeline.scheduling.clone_from(target.options);
        let compiled = compile(module, &options, target.profile, machine.emitter(), &mut |_, _, _| ());
        let loaded = machine.load(&compiled.map_err(|e| e.to_string())?, &self.inputs)?;
        let start = Instant::now();
        let got = loaded.results(&self.whole)?;
        let ms = start.elapsed();
        got.iter().zip(&self.want).try_for_each(|(got, want)| verify(got, want))?;
        Ok((loaded, ms.as_secs_f64() * 1e3))
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
