//! `weft bench`

mod executor_times;
mod kernels;
mod native;
mod places;
mod repeated;
mod spread;
mod stored;
mod sweep;
mod tables;
mod throughput;
mod timeline;

use crate::args::{BenchArgs, Common};
use crate::error::{CliError, CliResult, Code};
use crate::executor::{Device, compile_options, compile_with, pipeline_for, profile_on};
use crate::models::{inputs_for, load};
use crate::output::{Progress, log, print_text, write_json};
use crate::{ceilings, driver_stats, host_calls};
use benches::statistics::Statistics;
use compiler::compile::Compiled;
use compiler::graph::Module;
use compiler::tensor::Tensor;
use compiler::trace::Ceilings;
use kernels::{PartTimes, Record, dispatch_times, per_kernel};
use places::{DRIVER_STATS, Place, Places};
use repeated::{Dispatches, batch, repeat, with_samples};
use runtime_gpu::{Session, Transfers};
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use stored::Measured;
use sweep::{Setting, sweep};
use tables::{Lines, show_details, written};
use throughput::Throughput;
use timeline::Recorded;

/// Times models, and the device itself with `--ceilings`.
pub fn execute(a: &BenchArgs) -> CliResult<()> {
    let baseline = a.baseline.as_ref().map(|p| read_baseline(p)).transpose()?;
    let slowdown = percent(&a.max_slowdown)?;
    refuse_several(a)?;
    let settings = sweep(&a.sweep, &a.common)?;
    let mut places = Places::new(a);
    if a.models.is_empty() {
        let place = places.open(&a.common)?;
        return place.ceilings.map_or(Ok(()), |c| ceilings::show(&c, &place.device, &a.common));
    }
    // What is asked of the first device is known before anything is timed.
    let not_timed = settings.first().map(|s| places.open(&s.common).map(|p| p.not_timed.is_some())).transpose();
    let alone = settings.len() * a.models.len() == 1;
    let not_timed = if alone { not_timed? == Some(true) } else { matches!(not_timed, Ok(Some(true))) };
    let json_alone = a.common.json.as_deref() == Some("-");
    let quiet = json_alone || a.format != "table";
    let mut lines = if quiet || not_timed { None } else { Some(Lines::new(&a.models, &settings)?) };
    let mut results: Vec<Value> = Vec::new();
    let mut failures: Vec<CliError> = Vec::new();
    for setting in &settings {
        for model in &a.models {
            match places.open(&setting.common).and_then(|place| one(a, place, setting, model)) {
                Ok(v) => results.push(v),
                Err(e) if alone => return Err(e),
                Err(e) => {
                    results.push(failed(&e, setting, model));
                    log(&a.common, format!("{model}, {}: {e}", setting.text()));
                    failures.push(e);
                }
            }
            if let Some(lines) = &mut lines {
                lines.print(&results)?;
            }
        }
    }
    results.iter().filter_map(spread::unstable).for_each(|w| log(&a.common, w));
    if !quiet {
        show_details(&results)?;
        if let [one] = results.as_slice() {
            host_calls::show(one)?;
        }
    }
    let all = if let [one] = results.as_slice() { one.clone() } else { results.clone().into() };
    let written_json = write_json(&a.common, &all)?;
    match a.format.as_str() {
        "table" => {}
        "json" if !written_json => print_text(&format!("{all:#}"))?,
        "json" => {}
        format if !json_alone => print_text(&written(&results, format == "csv"))?,
        _ => {}
    }
    baseline.map_or(Ok(()), |b| check_baseline(&a.common, &results, &b, slowdown))?;
    match failures.into_iter().next() {
        Some(e) => {
            let rows = results.iter().filter(|r| r["error"].is_object()).count();
            Err(CliError::new(e.code, format!("{rows} of {} rows failed; the first: {}", results.len(), e.message)))
        }
        None => Ok(()),
    }
}

/// Files of one run are of one model in one setting.
fn refuse_several(a: &BenchArgs) -> CliResult<()> {
    let several = a.models.len() != 1 || !a.sweep.is_empty();
    let (option, what) = match (&a.output, &a.timeline) {
        (Some(_), _) => ("-o", "the trace"),
        (_, Some(_)) => ("--timeline", "a run"),
        _ => return Ok(()),
    };
    if several {
        return Err(CliError::usage(format!("{option} writes {what} of one model in one setting"))
            .help("time the others one by one"));
    }
    Ok(())
}

/// A row that failed, in the place of its result.
fn failed(e: &CliError, setting: &Setting, model: &str) -> Value {
    json!({ "schema": 1, "model": crate::models::short_name(model), "settings": setting.to_json(), "error": e.to_json()["error"] })
}

fn percent(text: &str) -> CliResult<f64> {
    text.trim_end_matches('%')
        .parse::<f64>()
        .map(|v| v / 100.0)
        .map_err(|_| CliError::usage(format!("--max-slowdown {text}: needs a percentage such as 5%")))
}

pub fn duration(option: &str, text: &str) -> CliResult<Duration> {
    let (number, unit) = match text.strip_suffix("ms") {
        Some(n) => (n, 1e-3),
        None => (text.strip_suffix('s').unwrap_or(text), 1.0),
    };
    let value: f64 = number
        .parse()
        .ok()
        .filter(|v: &f64| *v > 0.0 && v.is_finite())
        .ok_or_else(|| CliError::usage(format!("{option} {text}: needs a time such as 3s or 500ms")))?;
    Ok(Duration::from_secs_f64(value * unit))
}

fn one(a: &BenchArgs, place: &Place, setting: &Setting, model: &str) -> CliResult<Value> {
    let (common, device, ceilings) = (&setting.common, &place.device, place.ceilings);
    if a.output.is_some() && matches!(device, Device::Interpreter) {
        return Err(
            CliError::usage("-o: the interpreter has no dispatches to time").help("--device names another device")
        );
    }
    let given = crate::inputs::given(&a.input, model, common)?;
    let bundle = crate::bundle::opened(model, common, a.bundle)?;
    let module = common.state.time("import", || match &bundle {
        Some(bundle) => Ok(bundle.model()?.into_module()),
        None => load(model, common, given.as_ref()),
    })?;
    let inputs = inputs_for(&module, given.as_ref(), common)?;
    let batch = batch(&inputs);
    let macs = compiler::inspect::count_macs(&module).unwrap_or(0);
    let measured = match &place.not_timed {
        _ if bundle.is_some() => of_bundle(a, place, common, (bundle, module), &inputs)?,
        None => timed(a, place, common, module, &inputs)?,
        Some(why) => not_timed(a, place, common, module, &inputs, why)?,
    };
    if let Some(path) = &a.output {
        let module = load(model, common, given.as_ref())?;
        stored::write(path, place, common, (model, module), &inputs, &measured)?;
    }
    let mut v = measured.value;
    let o = v.as_object_mut().ok_or_else(|| CliError::new(Code::Bug, "bench without a result"))?;
    o.insert("schema".into(), 1.into());
    o.insert("model".into(), crate::models::short_name(model).into());
    o.insert("batch".into(), batch.into());
    o.insert("dtype".into(), if common.amp == "off" { "f32" } else { "f16" }.into());
    o.insert("device".into(), crate::device::describe(device));
    o.insert("flops".into(), (2 * macs).into());
    o.insert("ceilings".into(), json!(ceilings));
    o.insert("settings".into(), setting.to_json());
    o.insert(
        "env".into(),
        json!({ "os": std::env::consts::OS, "arch": std::env::consts::ARCH,
        "cpus": std::thread::available_parallelism().map_or(0, |n| n.get()), "weft": env!("CARGO_PKG_VERSION") }),
    );
    Ok(v)
}

fn timed(a: &BenchArgs, place: &Place, common: &Common, module: Module, inputs: &[Tensor]) -> CliResult<Measured> {
    let device = &place.device;
    let (executor, cold) = first_run(module.clone(), common, device, inputs)?;
    let limit = a.duration.as_deref().map(|d| duration("--duration", d)).transpose()?;
    let mut progress = Progress::new(common, &[]);
    match executor.on_device().zip(executor.compilation()) {
        Some((session, compiled)) => {
            let (mut v, own) = on_device(a, session, compiled, inputs, limit, place.ceilings, &mut progress)?;
            let recorded =
                timeline::is_wanted(a).then(|| Recorded::on_device(session, compiled, inputs)).transpose()?;
            recorded.iter().try_for_each(|r| r.write(a, "device"))?;
            if !common.host_call.is_empty() || !common.external.is_empty() {
                let plain = Common { host_call: vec![], external: vec![], quiet: true, ..common.clone() };
                let (other, _) = first_run(module.clone(), &plain, device, inputs)?;
                if let Some((session, compiled)) = other.on_device().zip(other.compilation()) {
                    let (without, _) = on_device(a, session, compiled, inputs, limit, None, &mut progress)?;
                    v["without_host_calls"] = host_calls::beside(&v, &without);
                }
            }
            drop(progress);
            let stats = place.stats(a, compiled, common)?;
            if let Some(stats) = &stats {
                v["driver_stats"] = driver_stats::to_json(stats, compiled);
            }
            drop(executor);
            v["compile_ms"] = json!({ "cold": cold, "warm": warm(module, common, device, inputs)? });
            let run = recorded.map(|r| r.run);
            Ok(Measured { value: v, dispatches: Some(own.times), counts: own.counts, trace: None, stats, run })
        }
        None if executor.on_processor().is_some() => {
            let mut measured = on_processor(a, &executor, common, (inputs, limit), place.ceilings, &mut progress)?;
            drop(executor);
            measured.value["compile_ms"] = json!({ "cold": cold, "warm": warm(module, common, device, inputs)? });
            Ok(measured)
        }
        None if a.driver_stats => {
            let why = format!(
                "{DRIVER_STATS}: the model runs in parts or on the interpreter: its kernels are not known before a run"
            );
            Err(CliError::new(Code::Device, why))
        }
        None => in_parts(a, place, common, (module, executor, cold), (inputs, limit), &mut progress),
    }
}

/// The result of a benchmark of a bundle, whose kernels have no groups: it times whole runs.
fn of_bundle(
    a: &BenchArgs,
    place: &Place,
    common: &Common,
    (bundle, module): (Option<weft::Bundle>, Module),
    inputs: &[Tensor],
) -> CliResult<Measured> {
    let options = [("-o", a.output.is_some()), ("--timeline", a.timeline.is_some()), (DRIVER_STATS, a.driver_stats)];
    if let Some((option, _)) = options.into_iter().find(|o| o.1) {
        return Err(CliError::usage(format!("{option} is of kernels by layer, and a bundle is timed as a whole"))
            .help("`weft explain F.bundle` shows its kernels; bench the model itself"));
    }
    let bundle = bundle.ok_or_else(|| CliError::new(Code::Bug, "no bundle"))?;
    let start = Instant::now();
    let executor =
        crate::bundle::session(&bundle, common, &place.device, a.bundle.require_compiled)?.sized_for(inputs)?;
    common.state.time("first run", || executor.run_in_order(inputs))?;
    let cold = start.elapsed().as_secs_f64() * 1e3;
    let mut progress = Progress::new(common, &[]);
    let limit = a.duration.as_deref().map(|d| duration("--duration", d)).transpose()?;
    let plan = executor.on_processor().map(|s| s.plan()).or(executor.on_device().map(|s| s.plan()));
    let counts = plan.map(|p| (p.kernels.len(), p.dispatches().count()));
    let mut measured = in_parts(a, place, common, (module, executor, cold), (inputs, limit), &mut progress)?;
    if let Some((kernels, dispatches)) = counts {
        (measured.value["kernels"], measured.value["dispatches"]) = (kernels.into(), dispatches.into());
        measured.value["per_kernel"] = Value::Null;
    }
    Ok(measured)
}

/// The result of a benchmark of a model in parts, or in the interpreter. `cold`: milliseconds of its first run.
fn in_parts(
    a: &BenchArgs,
    place: &Place,
    common: &Common,
    (module, executor, cold): (Module, weft::Session, f64),
    (inputs, limit): (&[Tensor], Option<Duration>),
    progress: &mut Progress,
) -> CliResult<Measured> {
    let batch = batch(inputs);
    let run = || Ok(executor.run_in_order(inputs).map(|_| 0.0)?);
    let samples = repeat(a, limit, ["warm-up", "runs"], progress, run)?.0;
    let s = Statistics::of(&samples);
    let mut parts = part_times(a, place, common, (&module, &executor), inputs, progress)?;
    // On the interpreter nothing is dispatched: the host is the device.
    let device = parts.device_ms().map_or(s, |ms| Statistics::of(&[ms]));
    let mut value = json!({ "latency_ms": with_samples(&s, &samples), "device_ms": device,
        "split_ms": { "upload": 0, "encode": 0, "gpu": device.median, "readback": 0, "rest": s.median - device.median },
        "throughput_per_s": 1e3 / s.median * batch as f64, "compile_ms": { "cold": cold } });
    parts.put_into(&mut value);
    match executor.interpreted() {
        Some(module) => {
            let (rows, last) = executor_times::per_node(a, module, inputs, progress)?;
            (value["kernels"], value["dispatches"]) = (rows.len().into(), last.len().into());
            value["per_kernel"] = rows.into();
            Recorded::of_nodes(&last).write(a, "interpreter")?;
        }
        None => parts.recorded_run.write(a, "device")?,
    }
    let run = std::mem::take(&mut parts.recorded_run).run;
    let mut trace = parts.trace(&a.models[0])?;
    let dispatches = trace.as_mut().and_then(|t| t.times.take()).map(|t| t.dispatches);
    Ok(Measured { value, dispatches, counts: vec![], trace: trace.map(Box::new), stats: None, run: Some(run) })
}

/// The result of a benchmark on the processor.
fn on_processor(
    a: &BenchArgs,
    executor: &weft::Session,
    common: &Common,
    (inputs, limit): (&[Tensor], Option<Duration>),
    ceilings: Option<Ceilings>,
    progress: &mut Progress,
) -> CliResult<Measured> {
    let found = executor.on_processor().zip(executor.compilation());
    let (session, c) = found.ok_or_else(|| CliError::new(Code::Bug, "a session without its compilation"))?;
    let recorded = Recorded::on_processor(session, c, inputs, common)?;
    let (mut value, dispatches) = native::times(a, executor, common, (inputs, limit), &recorded.run, progress)?;
    value["per_kernel"] = per_kernel(c, &dispatches, ceilings).into();
    recorded.write(a, "CPU")?;
    let Dispatches { times, counts, .. } = dispatches;
    let run = Some(recorded.run);
    Ok(Measured { value, dispatches: Some(times), counts, trace: None, stats: None, run })
}

/// Milliseconds of compilation, session and first run once more in this process.
fn warm(module: Module, common: &Common, device: &Device, inputs: &[Tensor]) -> CliResult<f64> {
    let again = Common { quiet: true, state: Default::default(), ..common.clone() };
    Ok(first_run(module, &again, device, inputs)?.1)
}

/// The times of a network in parts. For a trace they are those of an executor that records its compilations.
fn part_times(
    a: &BenchArgs,
    place: &Place,
    common: &Common,
    (module, executor): (&Module, &weft::Session),
    inputs: &[Tensor],
    progress: &mut Progress,
) -> CliResult<PartTimes> {
    let ceilings = place.ceilings;
    if a.output.is_none() {
        return Ok(PartTimes::of(a, executor, inputs, ceilings, None, progress)?);
    }
    let profile = profile_on(common, &place.device)?;
    let options = compile_options(pipeline_for(module, common, &profile, inputs)?, common, &profile)?;
    let quiet = Common { quiet: true, ..common.clone() };
    let recording = crate::executor::execute_recorded(module.clone(), &quiet, &place.device, inputs)?;
    recording.run_in_order(inputs)?;
    let record = Record { model: &a.models[0], options: &options };
    Ok(PartTimes::of(a, &recording, inputs, ceilings, Some(&record), progress)?)
}

/// Compiles alone, and asks the driver.
fn not_timed(
    a: &BenchArgs,
    place: &Place,
    common: &Common,
    module: Module,
    inputs: &[Tensor],
    why: &str,
) -> CliResult<Measured> {
    let profile = profile_on(common, &place.device)?;
    let options = compile_options(pipeline_for(&module, common, &profile, inputs)?, common, &profile)?;
    let c = compile_with(module, &options, common, &profile)?;
    let stats = place.stats(a, &c, common)?;
    let value = json!({ "not_timed": why, "kernels": c.plan.kernels.len(), "dispatches": crate::compile::dispatches(&c).count(),
        "bytes": c.groups.iter().map(|g| g.bytes).sum::<u64>(), "driver_stats": stats.as_ref().map(|s| driver_stats::to_json(s, &c)) });
    Ok(Measured { value, dispatches: None, counts: vec![], trace: None, stats, run: None })
}

/// Compiles, opens a session and runs once: some drivers compile only then. Milliseconds of it all.
fn first_run(module: Module, common: &Common, device: &Device, inputs: &[Tensor]) -> CliResult<(weft::Session, f64)> {
    let start = Instant::now();
    let executor = crate::executor::execute(module, common, device, inputs)?.sized_for(inputs)?;
    common.state.time("first run", || executor.run_in_order(inputs))?;
    Ok((executor, start.elapsed().as_secs_f64() * 1e3))
}

fn on_device(
    a: &BenchArgs,
    session: &Session,
    compiled: &Compiled,
    inputs: &[Tensor],
    limit: Option<Duration>,
    ceilings: Option<Ceilings>,
    progress: &mut Progress,
) -> CliResult<(Value, Dispatches)> {
    let mut split: Vec<[f64; 4]> = Vec::new();
    let mut moved = Transfers::default();
    let (latency, _) = repeat(a, limit, ["warm-up", "runs"], progress, || {
        let (_, t) = session.run_timed(inputs)?;
        split.push([t.upload, t.encode, t.gpu, t.readback]);
        moved = t.moved;
        Ok(t.total)
    })?;
    let split = split.split_off(split.len() - latency.len());
    let part = |i: usize| Statistics::of(&split.iter().map(|s| s[i]).collect::<Vec<_>>()).median;
    let mut resident = session.resident(inputs)?;
    let (_, device) = repeat(a, limit, ["warm-up", "runs on the device"], progress, || Ok(resident.run()?))?;
    let throughput = Throughput::measure(a, &mut resident, latency.len(), progress)?;
    let batch = batch(inputs);
    let dispatches = dispatch_times(a, &mut resident, progress)?;
    let host_functions = host_calls::times(compiled, &mut resident, a.runs.clamp(1, 5))?;
    let per_kernel = per_kernel(compiled, &dispatches, ceilings);
    let s = Statistics::of(&latency);
    let d = Statistics::of(&device);
    let report = json!({
        "time_source": dispatches.source, "kernels": compiled.plan.kernels.len(), "dispatches": crate::compile::dispatches(compiled).count(),
        "bytes": compiled.groups.iter().map(|g| g.bytes).sum::<u64>(),
        "latency_ms": with_samples(&s, &latency), "device_ms": with_samples(&d, &device),
        "split_ms": { "upload": part(0), "encode": part(1), "gpu": part(2), "readback": part(3) },
        "transfers": moved, "memory": { "weights": compiled.memory.weights, "activations_peak": compiled.memory.activations_peak },
        "throughput_per_s": throughput.runs_per_s * batch as f64, "in_flight": throughput.in_flight,
        "per_kernel": per_kernel, "host_functions": host_functions,
    });
    Ok((report, dispatches))
}

fn number(v: &Value, path: &[&str]) -> f64 {
    path.iter().fold(v, |v, k| &v[*k]).as_f64().unwrap_or(0.0)
}

fn read_baseline(path: &std::path::Path) -> CliResult<Vec<Value>> {
    let text = weft::plain_files::read_text(path)
        .map_err(|e| CliError::input(format!("cannot read {}: {e}", path.display())))?;
    let v: Value = serde_json::from_str(&text)
        .map_err(|e| CliError::input(format!("{} is not a bench result: {e}", path.display())))?;
    Ok(match v {
        Value::Array(list) => list,
        one => vec![one],
    })
}

fn check_baseline(common: &Common, results: &[Value], baseline: &[Value], slowdown: f64) -> CliResult<()> {
    let mut slow = Vec::new();
    for r in results {
        if r["error"].is_object() {
            continue;
        }
        let same = |b: &&Value| ["model", "batch", "dtype"].iter().all(|k| b[*k] == r[*k]);
        let Some(b) = baseline.iter().find(same) else { continue };
        let ratio = number(r, &["latency_ms", "median"]) / number(b, &["latency_ms", "median"]).max(1e-9);
        log(common, format!("{}: {ratio:.3} of the baseline's time", r["model"].as_str().unwrap_or("")));
        if ratio > 1.0 + slowdown {
            slow.push(format!("{} is {:.1}% slower", r["model"].as_str().unwrap_or(""), (ratio - 1.0) * 100.0));
        }
    }
    if slow.is_empty() { Ok(()) } else { Err(CliError::new(Code::Check, slow.join("; "))) }
}
