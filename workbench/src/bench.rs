//! Benchmarks: latency, throughput, the time of each kernel.

pub mod decode;
mod executor_times;
mod finished;
mod kernels;
mod native;
mod places;
pub mod record;
mod repeated;
mod request;
pub mod sampled;
mod spread;
mod starts;
mod stored;
mod sweep;
mod throughput;
mod timeline;

use crate::error::{Code, Error, Result};
use crate::executor::{Device, compile_options, compile_with, pipeline_for, profile_on};
use crate::models::{Chance, inputs_for, load};
use crate::progress::{Progress, log};
use crate::record::Versioned;
use crate::settings::Settings;
use crate::state::State;
use crate::{ceilings, driver_stats, host_calls};
use compiler::compile::Compiled;
use compiler::graph::Module;
use compiler::tensor::Tensor;
use compiler::trace::{Ceilings, CompileTrace, Kind};
use decode::Decoded;
use finished::completed;
use kernels::{Parts, Recording, put_spent};
use places::{DRIVER_STATS, Place, Places};
use record::{BenchRecord, Beside, CompileTimes, FailedRecord, Run, Sampled, Work};
use repeated::{batch, repeat};
pub use request::{Decoding, Request, Timing, seconds};
use runtime_gpu::{Recorder, Session, Transfers};
use serde::Serialize;
use serde_json::Value;
use starts::{Started, against_f32, compile_times, first_run, timed_start};
use std::time::Duration;
use stored::Measured;
use sweep::sweep;
pub use sweep::{Setting, can_sweep};
use throughput::Throughput;
use timeline::{Known, Shown};

/// One result.
pub struct Row {
    /// The model's short name.
    pub model: String,
    /// Its setting.
    pub setting: Setting,
    /// The record, or why it failed.
    pub result: Result<BenchRecord>,
    /// One run as Chrome's trace format has it, where it was asked for.
    pub timeline: Option<Value>,
    /// The trace that was asked for.
    pub trace: Option<Box<CompileTrace>>,
}

/// As `--json` has it.
#[derive(Serialize)]
#[serde(untagged)]
pub enum RowRecord<'r> {
    /// A result.
    Timed(&'r BenchRecord),
    /// In the place of a result.
    Failed(Box<Versioned<FailedRecord>>),
}

impl Row {
    /// As `--json` has it.
    pub fn record(&self) -> RowRecord<'_> {
        match &self.result {
            Ok(record) => RowRecord::Timed(record),
            Err(e) => {
                let (model, settings) = (self.model.clone(), self.setting.record());
                RowRecord::Failed(Box::new(Versioned::new(FailedRecord { model, settings, error: e.failure() })))
            }
        }
    }
}

/// All settings of the request.
///
/// # Errors
/// A sweep of what there is not.
pub fn settings(a: &Request) -> Result<Vec<Setting>> {
    sweep(&a.sweep, &a.settings)
}

/// The peak rates of the device, measured now.
///
/// # Errors
/// No such device, or one that runs no kernels.
pub fn ceilings_of(a: &Request) -> Result<(Device, Ceilings)> {
    let device = crate::executor::open_device(&a.settings)?;
    let found = ceilings::measure(&device, &a.settings, false)?;
    Ok((device, found))
}

/// Times models. `each` sees the results when there is one more; `begins` is told before the first run whether anything
/// is timed.
///
/// # Errors
/// Of a single result its own; else a request that cannot be met. A row of several may hold an error instead.
pub fn bench(
    a: &Request,
    begins: &mut dyn FnMut(&[Setting], bool) -> Result<()>,
    each: &mut dyn FnMut(&[Row]) -> Result<()>,
) -> Result<Vec<Row>> {
    refuse_several(a)?;
    decode::check(a)?;
    let settings = settings(a)?;
    let mut places = Places::new(a);
    // What is asked of the first device is known before anything is timed.
    let not_timed = settings.first().map(|s| places.open(&s.settings).map(|p| p.not_timed.is_some())).transpose();
    let alone = settings.len() * a.models.len() == 1;
    let not_timed = if alone { not_timed? == Some(true) } else { matches!(not_timed, Ok(Some(true))) };
    begins(&settings, !not_timed)?;
    let mut rows: Vec<Row> = Vec::new();
    for setting in &settings {
        for model in &a.models {
            match places.open(&setting.settings).and_then(|place| one(a, place, setting, model)) {
                Ok(row) => rows.push(row),
                Err(e) if alone => return Err(e),
                Err(e) => {
                    let place = [model.clone(), setting.text()].into_iter().filter(|t| !t.is_empty());
                    log(&a.settings, format!("{}: {e}", place.collect::<Vec<_>>().join(", ")));
                    let (model, setting) = (crate::models::short_name(model), setting.clone());
                    rows.push(Row { model, setting, result: Err(e), timeline: None, trace: None });
                }
            }
            each(&rows)?;
        }
    }
    let records = rows.iter().filter_map(|r| r.result.as_ref().ok());
    records.flat_map(spread::warnings).for_each(|w| log(&a.settings, w));
    Ok(rows)
}

/// Times an open session, as [`bench()`] times the one that it opens: whole runs, and each kernel where the session
/// has its compilation.
///
/// # Errors
/// An error of a run; a text that is no time.
pub fn of_session(executor: &weft::Session, inputs: &[Tensor], timing: &Timing, settings: &Settings) -> Result<Run> {
    let a = Request { timing: timing.clone(), settings: settings.clone(), ..Request::default() };
    let (limit, mut progress) = (a.limit()?, Progress::new(settings, &[]));
    let compiled = executor.compilation();
    match executor.on_device().zip(compiled) {
        Some((session, compiled)) => {
            Ok(on_device(&a, executor, (session, compiled), (inputs, limit), None, &mut progress)?.0)
        }
        None if executor.on_processor().is_some() && compiled.is_some() => {
            Ok(on_processor(&a, executor, (inputs, limit), None, &mut progress)?.record.run)
        }
        None => whole_runs(&a, executor, (inputs, limit), &mut progress),
    }
}

/// The latency alone.
fn whole_runs(
    a: &Request,
    executor: &weft::Session,
    (inputs, limit): (&[Tensor], Option<Duration>),
    progress: &mut Progress,
) -> Result<Run> {
    let run = || Ok(executor.run_in_order(inputs).map(|_| 0.0)?);
    let latency = Sampled::of(repeat(a, limit, ["warm-up", "runs"], progress, run)?.0);
    let throughput_per_s = Some(1e3 / latency.of.median * batch(inputs) as f64);
    Ok(Run { latency_ms: Some(latency), throughput_per_s, ..Run::default() })
}

/// The error of rows of which some failed.
pub fn failure(rows: &[Row]) -> Option<Error> {
    let first = rows.iter().find_map(|r| r.result.as_ref().err())?;
    let failed = rows.iter().filter(|r| r.result.is_err()).count();
    Some(Error::new(first.code, format!("{failed} of {} rows failed; the first: {}", rows.len(), first.message)))
}

/// Files of one run are of one model in one setting.
fn refuse_several(a: &Request) -> Result<()> {
    let several = a.models.len() != 1 || !a.sweep.is_empty();
    let (option, what) = match (a.trace, a.timeline) {
        (true, _) => ("-o", "the trace"),
        (_, true) => ("--timeline", "a run"),
        _ => return Ok(()),
    };
    if several {
        return Err(Error::usage(format!("{option} writes {what} of one model in one setting"))
            .help("time the others one by one"));
    }
    Ok(())
}

fn one(a: &Request, place: &Place, setting: &Setting, model: &str) -> Result<Row> {
    if a.decoding.decode.is_some() {
        let Decoded { a, record, work, before, timeline, trace } = decode::decode(a, place, &setting.settings, model)?;
        let record = completed(&a, place, setting, model, (work, before), record);
        let model = record.model.clone();
        return Ok(Row { model, setting: setting.clone(), result: Ok(record), timeline, trace });
    }
    let (settings, device) = (&setting.settings, &place.device);
    if a.trace && matches!(device, Device::Interpreter) {
        return Err(Error::usage("-o: the interpreter has no dispatches to time").help("--device names another device"));
    }
    let given = crate::inputs::given(&a.input, model, settings)?;
    let bundle = crate::bundles::opened(model, settings, a.bundle)?;
    let module = settings.state.time("import", || match &bundle {
        Some(bundle) => Ok(bundle.model()?.into_module()),
        None => load(model, settings, given.as_ref()),
    })?;
    let inputs = inputs_for(&module, given.as_ref(), settings)?;
    let chance = Chance::of(&module, &inputs, given.as_ref());
    let batch = batch(&inputs);
    let macs = compiler::inspect::count_macs(&module).unwrap_or(0);
    let (work, before) = (Work::of(&module, &inputs), State::now());
    let mixed = (settings.amp != "off" && bundle.is_none() && place.not_timed.is_none()).then(|| module.clone());
    let measured = match &place.not_timed {
        _ if bundle.is_some() => of_bundle(a, place, settings, (bundle, module), &inputs),
        None => timed(a, place, settings, module, &inputs),
        Some(why) => not_timed(a, place, settings, module, &inputs, why),
    };
    let measured = measured.map_err(|e| chance.blamed(e))?;
    let against_f32 = mixed.map(|m| against_f32(&measured.results, &m, settings, device, &inputs)).transpose()?;
    let trace = match a.trace {
        true => {
            let module = load(model, settings, given.as_ref())?;
            Some(Box::new(stored::trace(place, settings, (model, module), &inputs, &measured)?))
        }
        false => None,
    };
    let measured_record = BenchRecord { batch, flops: 2 * macs, against_f32, ..measured.record };
    let record = completed(a, place, setting, model, (work, before), measured_record);
    let model = record.model.clone();
    Ok(Row { model, setting: setting.clone(), result: Ok(record), timeline: measured.timeline, trace })
}

fn timed(a: &Request, place: &Place, settings: &Settings, module: Module, inputs: &[Tensor]) -> Result<Measured> {
    let device = &place.device;
    let Started { session: executor, times: cold, results } = first_run(module.clone(), settings, device, inputs)?;
    let limit = a.limit()?;
    let mut progress = Progress::new(settings, &[]);
    match executor.on_device().zip(executor.compilation()) {
        Some((session, compiled)) => {
            let parts = (session, compiled);
            let (run, shown) = on_device(a, &executor, parts, (inputs, limit), place.ceilings, &mut progress)?;
            let mut record = BenchRecord { run, ..BenchRecord::default() };
            let timeline = shown.timeline(a, "device");
            if !settings.host_call.is_empty() || !settings.external.is_empty() {
                let plain = Settings { host_call: vec![], external: vec![], ..settings.silent() };
                let other = first_run(module.clone(), &plain, device, inputs)?.session;
                if let Some(parts) = other.on_device().zip(other.compilation()) {
                    let (without, _) = on_device(a, &other, parts, (inputs, limit), None, &mut progress)?;
                    record.without_host_calls = Some(Beside::of(&record.run, &without));
                }
            }
            drop(progress);
            let stats = place.stats(a, compiled, settings)?;
            record.driver_stats = stats.as_ref().map(|stats| driver_stats::record(stats, compiled));
            drop(executor);
            record.compile_ms = compile_times(cold, module, settings, device, inputs)?;
            Ok(Measured { record, results, stats, timeline, ..Measured::of(shown) })
        }
        None if executor.on_processor().is_some() => {
            let mut measured = on_processor(a, &executor, (inputs, limit), place.ceilings, &mut progress)?;
            drop(executor);
            measured.record.compile_ms = compile_times(cold, module, settings, device, inputs)?;
            Ok(Measured { results, ..measured })
        }
        None if a.driver_stats => {
            let why = format!(
                "{DRIVER_STATS}: the model runs in parts or on the interpreter: its kernels are not known before a run"
            );
            Err(Error::new(Code::Device, why))
        }
        None => {
            let measured = in_parts(a, place, settings, (module, executor, cold), (inputs, limit), &mut progress)?;
            Ok(Measured { results, ..measured })
        }
    }
}

/// The result of a benchmark of a bundle, whose kernels have no groups: it times whole runs.
fn of_bundle(
    a: &Request,
    place: &Place,
    settings: &Settings,
    (bundle, module): (Option<weft::Bundle>, Module),
    inputs: &[Tensor],
) -> Result<Measured> {
    let options = [("-o", a.trace), ("--timeline", a.timeline), (DRIVER_STATS, a.driver_stats)];
    if let Some((option, _)) = options.into_iter().find(|o| o.1) {
        return Err(Error::usage(format!("{option} is of kernels by layer, and a bundle is timed as a whole"))
            .help("`weft explain F.bundle` shows its kernels; bench the model itself"));
    }
    let bundle = bundle.ok_or_else(|| Error::new(Code::Bug, "no bundle"))?;
    let open = || crate::bundles::session(&bundle, settings, &place.device, a.bundle.require_compiled);
    let Started { session: executor, times: cold, .. } = timed_start(settings, inputs, open)?;
    let mut progress = Progress::new(settings, &[]);
    let limit = a.limit()?;
    let plan = executor.on_processor().map(|s| s.plan()).or(executor.on_device().map(|s| s.plan()));
    let counts = plan.map(|p| (p.kernels.len(), p.dispatches().count()));
    let mut measured = in_parts(a, place, settings, (module, executor, cold), (inputs, limit), &mut progress)?;
    if let Some((kernels, dispatches)) = counts {
        let run = &mut measured.record.run;
        (run.kernels, run.dispatches, run.per_kernel) = (Some(kernels), Some(dispatches), None);
    }
    Ok(measured)
}

/// The result of a benchmark of a model in parts, or in the interpreter. `cold`: the times of its first run.
fn in_parts(
    a: &Request,
    place: &Place,
    settings: &Settings,
    (module, executor, cold): (Module, weft::Session, CompileTimes),
    (inputs, limit): (&[Tensor], Option<Duration>),
    progress: &mut Progress,
) -> Result<Measured> {
    let mut run = whole_runs(a, &executor, (inputs, limit), progress)?;
    let (mut parts, recording) = found_parts(a, place, settings, (&module, &executor), inputs)?;
    let timed = recording.as_ref().unwrap_or(&executor);
    let mut shown = Shown::record(a, &mut of(timed, inputs), run.latency(), &parts.known, progress)?;
    parts.put_into(&mut run);
    put_spent(&mut run, &shown, &parts.known, place.ceilings);
    let kernels = shown.run.ms_of(Kind::Kernel);
    // Without dispatches the host is the device.
    run.device_ms = Some(Sampled::sum(if shown.times.is_empty() { shown.run.ms } else { kernels }));
    let mut device = "device";
    if let Some(module) = executor.interpreted() {
        let rows = executor_times::per_node(module, &shown.run);
        run.dispatches = Some(rows.iter().map(|r| r.calls as usize).sum());
        (run.kernels, run.per_kernel, device) = (Some(rows.len()), Some(rows), "interpreter");
    }
    let trace = parts.trace(&a.models[0], &mut shown)?.map(Box::new);
    let (timeline, compile_ms) = (shown.timeline(a, device), Some(cold));
    let record = BenchRecord { run, compile_ms, ..BenchRecord::default() };
    let dispatches = trace.as_ref().map(|_| shown.times.clone());
    Ok(Measured { record, trace, timeline, dispatches, ..Measured::of(shown) })
}

/// A recorded run.
fn of<'s>(session: &'s weft::Session, inputs: &'s [Tensor]) -> impl FnMut(&Recorder) -> Result<()> + 's {
    move |recorder| Ok(session.run_recorded(inputs, recorder).map(drop)?)
}

/// The result of a benchmark on the processor.
fn on_processor(
    a: &Request,
    executor: &weft::Session,
    (inputs, limit): (&[Tensor], Option<Duration>),
    ceilings: Option<Ceilings>,
    progress: &mut Progress,
) -> Result<Measured> {
    let c = executor.compilation().ok_or_else(|| Error::new(Code::Bug, "a session without its compilation"))?;
    let known = [Known::of("", c)];
    let whole = whole_runs(a, executor, (inputs, limit), progress)?;
    let shown = Shown::record(a, &mut of(executor, inputs), whole.latency(), &known, progress)?;
    let mut run = Run {
        in_flight: Some(1),
        // The processor is the device, so steps on tensors are its work too.
        device_ms: Some(Sampled::sum(shown.run.ms_of(Kind::Kernel) + shown.run.ms_of(Kind::Step))),
        host_functions: Some(native::calls(c, &shown.run)),
        latency_ms: whole.latency_ms,
        throughput_per_s: whole.throughput_per_s,
        ..Run::of(c)
    };
    put_spent(&mut run, &shown, &known, ceilings);
    let timeline = shown.timeline(a, "CPU");
    let record = BenchRecord { run, ..BenchRecord::default() };
    Ok(Measured { record, timeline, ..Measured::of(shown) })
}

/// The parts of a network. For a trace a session that records its compilations runs, which comes along.
fn found_parts(
    a: &Request,
    place: &Place,
    settings: &Settings,
    (module, executor): (&Module, &weft::Session),
    inputs: &[Tensor],
) -> Result<(Parts, Option<weft::Session>)> {
    if !a.trace {
        return Ok((Parts::of(executor, inputs, None)?, None));
    }
    let profile = profile_on(settings, &place.device)?;
    let options = compile_options(pipeline_for(module, settings, &profile, inputs)?, settings, &profile)?;
    let quiet = settings.silent();
    let recording = crate::executor::execute_recorded(module.clone(), &quiet, &place.device, inputs)?;
    recording.run_in_order(inputs)?;
    let record = Recording { model: &a.models[0], options: &options };
    Ok((Parts::of(&recording, inputs, Some(&record))?, Some(recording)))
}

/// Compiles alone, and asks the driver.
fn not_timed(
    a: &Request,
    place: &Place,
    settings: &Settings,
    module: Module,
    inputs: &[Tensor],
    why: &str,
) -> Result<Measured> {
    let profile = profile_on(settings, &place.device)?;
    let options = compile_options(pipeline_for(&module, settings, &profile, inputs)?, settings, &profile)?;
    let c = compile_with(module, &options, settings, &profile)?;
    let stats = place.stats(a, &c, settings)?;
    let record = BenchRecord {
        run: Run { memory: None, ..Run::of(&c) },
        not_timed: Some(why.into()),
        driver_stats: stats.as_ref().map(|s| driver_stats::record(s, &c)),
        ..BenchRecord::default()
    };
    Ok(Measured { record, stats, ..Measured::default() })
}

fn on_device(
    a: &Request,
    executor: &weft::Session,
    (session, compiled): (&Session, &Compiled),
    (inputs, limit): (&[Tensor], Option<Duration>),
    ceilings: Option<Ceilings>,
    progress: &mut Progress,
) -> Result<(Run, Shown)> {
    let mut moved = Transfers::default();
    let (latency, _) = repeat(a, limit, ["warm-up", "runs"], progress, || {
        let (_, t) = session.run_timed(inputs)?;
        moved = t.moved;
        Ok(t.total)
    })?;
    let (known, latency) = ([Known::of("", compiled)], Sampled::of(latency));
    let shown = Shown::record(a, &mut of(executor, inputs), latency.of.median, &known, progress)?;
    let mut resident = session.resident(inputs)?;
    let (_, device) = repeat(a, limit, ["warm-up", "runs on the device"], progress, || Ok(resident.run()?))?;
    let timed = latency.samples.as_ref().map_or(0, Vec::len);
    let throughput = Throughput::measure(a, &mut resident, timed, progress)?;
    let mut run = Run {
        latency_ms: Some(latency),
        device_ms: Some(Sampled::of(device)),
        transfers: Some(moved),
        throughput_per_s: Some(throughput.runs_per_s * batch(inputs) as f64),
        in_flight: Some(throughput.in_flight),
        host_functions: Some(host_calls::times(compiled, &mut resident, a.timing.runs().clamp(1, 5))?),
        ..Run::of(compiled)
    };
    put_spent(&mut run, &shown, &known, ceilings);
    Ok((run, shown))
}
