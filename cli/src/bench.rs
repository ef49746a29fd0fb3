//! `weft bench`

use crate::args::{BenchArgs, Common};
use crate::ceilings;
use crate::error::{CliError, CliResult, Code};
use crate::executor::{Device, Executor, profile_on, recorded};
use crate::host_calls;
use crate::models::{inputs_for, load};
use crate::output::{Progress, Rows, log, print_text, table, write_json};
use benches::statistics::Statistics;
use compiler::compile::Compiled;
use compiler::passes::{AmpMode, FuseMode, LayoutMode};
use compiler::tensor::Tensor;
use compiler::trace::{Ceilings, DispatchTime, Times};
use runtime_gpu::{Resident, Session};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// Times models, and the device itself with `--ceilings`.
pub fn execute(a: &BenchArgs) -> CliResult<()> {
    let baseline = a.baseline.as_ref().map(|p| read_baseline(p)).transpose()?;
    let slowdown = percent(&a.max_slowdown)?;
    if a.output.is_some() && (a.models.len() != 1 || !a.sweep.is_empty()) {
        return Err(
            CliError::usage("-o writes the trace of one model in one setting").help("time the others one by one")
        );
    }
    let settings = sweep(&a.sweep, &a.common)?;
    let device = Device::open(&a.common)?;
    if a.output.is_some() && matches!(device, Device::Cpu) {
        return Err(
            CliError::usage("-o: the CPU executor has no dispatches to time").help("--device names another device")
        );
    }
    let ceilings = match (&device, a.ceilings) {
        (_, true) => Some(ceilings::measure(&device, &a.common)?),
        (Device::Gpu(gpu), false) => ceilings::stored(&gpu.description),
        (Device::Cpu, false) => None,
    };
    if a.models.is_empty() {
        return ceilings.map_or(Ok(()), |c| ceilings::show(&c, &device, &a.common));
    }
    let json_alone = a.common.json.as_deref() == Some("-");
    let mut lines = if json_alone { None } else { Some(Lines::new(&a.models)?) };
    let mut results: Vec<Value> = Vec::new();
    for common in &settings {
        for model in &a.models {
            results.push(one(a, common, model, &device, ceilings)?);
            if let Some(lines) = &mut lines {
                lines.print(&results)?;
            }
        }
    }
    if let (false, [one]) = (json_alone, results.as_slice()) {
        show_kernels(one)?;
        host_calls::show(one)?;
    }
    let all = if let [one] = results.as_slice() { one.clone() } else { results.clone().into() };
    write_json(&a.common, &all)?;
    match baseline {
        Some(b) => check_baseline(&a.common, &results, &b, slowdown),
        None => Ok(()),
    }
}

fn percent(text: &str) -> CliResult<f64> {
    text.trim_end_matches('%')
        .parse::<f64>()
        .map(|v| v / 100.0)
        .map_err(|_| CliError::usage(format!("--max-slowdown {text}: needs a percentage such as 5%")))
}

fn duration(text: &str) -> CliResult<Duration> {
    let (number, unit) = match text.strip_suffix("ms") {
        Some(n) => (n, 1e-3),
        None => (text.strip_suffix('s').unwrap_or(text), 1.0),
    };
    let value: f64 = number
        .parse()
        .ok()
        .filter(|v: &f64| *v > 0.0 && v.is_finite())
        .ok_or_else(|| CliError::usage(format!("--duration {text}: needs a time such as 3s or 500ms")))?;
    Ok(Duration::from_secs_f64(value * unit))
}

/// What `--sweep` varies, with the values there are.
const SWEPT: &[(&str, &str)] = &[
    ("amp", "off, fp16, auto"),
    ("layout", "auto, nchw, nhwc, nchw4c, nchw8c, nchw16c, none"),
    ("fuse", "full, classic, off"),
    ("batch", "a number from 1 on"),
    ("opt_level", "0, 1, 2, 3"),
];

/// Every combination of the swept settings.
fn sweep(list: &[String], common: &Common) -> CliResult<Vec<Common>> {
    let mut out = vec![common.clone()];
    for s in list {
        let (key, values) = s.split_once('=').ok_or_else(|| CliError::usage(format!("--sweep {s}: needs KEY=A,B")))?;
        let (_, choices) = SWEPT.iter().find(|k| k.0 == key).ok_or_else(|| {
            let keys: Vec<&str> = SWEPT.iter().map(|k| k.0).collect();
            CliError::usage(format!("--sweep {key}: can sweep {}", keys.join(", ")))
        })?;
        let mut next = Vec::new();
        for base in &out {
            for v in values.split(',') {
                let mut c = base.clone();
                set(&mut c, key, v).ok_or_else(|| CliError::usage(format!("--sweep {key}={v}: takes {choices}")))?;
                next.push(c);
            }
        }
        out = next;
    }
    Ok(out)
}

/// Gives a swept setting a value; none where it is no value of it.
fn set(c: &mut Common, key: &str, v: &str) -> Option<()> {
    let known = |parsed: bool| parsed.then(|| v.to_string());
    match key {
        "amp" => c.amp = known(AmpMode::parse(v).is_some())?,
        "layout" => c.layout = known(LayoutMode::parse(v).is_some())?,
        "fuse" => c.fuse = known(FuseMode::parse(v).is_some())?,
        "batch" => c.batch = Some(v.parse().ok().filter(|&b| b > 0)?),
        _ => c.opt_level = v.parse().ok().filter(|&o| o <= 3)?,
    }
    Some(())
}

fn one(a: &BenchArgs, common: &Common, model: &str, device: &Device, ceilings: Option<Ceilings>) -> CliResult<Value> {
    let given = crate::inputs::given(&a.input, model, common)?;
    let module = common.state.time("import", || load(model, common, given.as_ref()))?;
    let inputs = inputs_for(&module, given.as_ref(), common)?;
    let batch = inputs.first().and_then(|t| t.shape().first().copied()).unwrap_or(1);
    let macs = compiler::inspect::count_macs(&module).unwrap_or(0);
    let (executor, cold) = first_run(module.clone(), common, device, &inputs)?;
    let limit = a.duration.as_deref().map(duration).transpose()?;
    let mut progress = Progress::new(common, &[]);
    let mut dispatches = Vec::new();
    let mut v = match &executor {
        Executor::Gpu { session, compiled } => {
            let (mut v, times) = on_device(a, session, compiled, &inputs, limit, ceilings, &mut progress)?;
            dispatches = times;
            if !common.host_call.is_empty() {
                let plain = Common { host_call: vec![], quiet: true, ..common.clone() };
                let (other, _) = first_run(module.clone(), &plain, device, &inputs)?;
                if let Executor::Gpu { session, compiled } = &other {
                    let (without, _) = on_device(a, session, compiled, &inputs, limit, None, &mut progress)?;
                    v["without_host_calls"] = host_calls::beside(&v, &without);
                }
            }
            drop(progress);
            drop(executor);
            let again = Common { quiet: true, state: Default::default(), ..common.clone() };
            let (_, warm) = first_run(module, &again, device, &inputs)?;
            v["compile_ms"] = json!({ "cold": cold, "warm": warm });
            v
        }
        Executor::Cpu { .. } | Executor::Staged(_) => {
            let run = || executor.run(&inputs).map(|_| 0.0);
            let samples = repeat(a, limit, ["warm-up", "runs"], &mut progress, run)?.0;
            let s = Statistics::of(&samples);
            json!({ "time_source": "host-clock", "kernels": 0, "dispatches": 0, "bytes": 0, "latency_ms": with_samples(&s, &samples),
                "device_ms": s, "split_ms": { "upload": 0, "encode": 0, "gpu": s.median, "readback": 0 },
                "throughput_per_s": 1e3 / s.median * batch as f64, "per_kernel": [], "compile_ms": { "cold": cold } })
        }
    };
    if let Some(path) = &a.output {
        let module = load(model, common, given.as_ref())?;
        let mut trace = recorded(model, module, common, &profile_on(common, device)?, &inputs)?;
        if trace.calls().count() != dispatches.len() {
            let why = format!("{} dispatches were timed, {} are in the trace", dispatches.len(), trace.calls().count());
            return Err(CliError::new(Code::Check, why).help("a model with host steps alone has no times to store"));
        }
        trace.times = Some(Times {
            device: device.label(),
            source: v["time_source"].as_str().unwrap_or_default().to_string(),
            dispatches,
            latency_ms: number(&v, &["latency_ms", "median"]),
            device_ms: number(&v, &["device_ms", "median"]),
            ceilings,
        });
        crate::trace::write(path, &trace, common)?;
    }
    let o = v.as_object_mut().ok_or_else(|| CliError::new(Code::Bug, "bench without a result"))?;
    o.insert("schema".into(), 1.into());
    o.insert("model".into(), crate::models::short_name(model).into());
    o.insert("batch".into(), batch.into());
    o.insert("dtype".into(), if common.amp == "off" { "f32" } else { "f16" }.into());
    o.insert("device".into(), device.describe());
    o.insert("flops".into(), (2 * macs).into());
    o.insert("ceilings".into(), json!(ceilings));
    o.insert("settings".into(), json!({ "amp": common.amp, "layout": common.layout, "fuse": common.fuse, "opt_level": common.opt_level, "seed": common.seed }));
    o.insert(
        "env".into(),
        json!({ "os": std::env::consts::OS, "arch": std::env::consts::ARCH,
        "cpus": std::thread::available_parallelism().map_or(0, |n| n.get()), "weft": env!("CARGO_PKG_VERSION") }),
    );
    Ok(v)
}

/// Compiles, opens a session and runs once: some drivers compile only then. Milliseconds of it all.
fn first_run(
    module: compiler::graph::Module,
    common: &Common,
    device: &Device,
    inputs: &[Tensor],
) -> CliResult<(Executor, f64)> {
    let start = Instant::now();
    let executor = Executor::new(module, common, device, inputs)?;
    common.state.time("first run", || executor.run(inputs))?;
    Ok((executor, start.elapsed().as_secs_f64() * 1e3))
}

/// Warms up, then calls `f` for the asked runs or time; wall milliseconds and what `f` returned.
fn repeat(
    a: &BenchArgs,
    limit: Option<Duration>,
    stages: [&str; 2],
    progress: &mut Progress,
    mut f: impl FnMut() -> CliResult<f64>,
) -> CliResult<(Vec<f64>, Vec<f64>)> {
    for i in 0..a.warmup {
        progress.report(stages[0], i, a.warmup);
        f()?;
    }
    let (mut wall, mut other) = (Vec::new(), Vec::new());
    let start = Instant::now();
    loop {
        let enough = match limit {
            Some(d) => start.elapsed() >= d && !wall.is_empty(),
            None => wall.len() >= a.runs,
        };
        if enough {
            return Ok((wall, other));
        }
        match limit {
            Some(d) => progress.report(stages[1], start.elapsed().as_millis() as usize, d.as_millis() as usize),
            None => progress.report(stages[1], wall.len(), a.runs),
        }
        let t = Instant::now();
        other.push(f()?);
        wall.push(t.elapsed().as_secs_f64() * 1e3);
    }
}

fn with_samples(s: &Statistics, samples: &[f64]) -> Value {
    let mut v = serde_json::to_value(s).unwrap_or_default();
    v["samples"] = json!(samples);
    v
}

fn on_device(
    a: &BenchArgs,
    session: &Session,
    compiled: &Compiled,
    inputs: &[Tensor],
    limit: Option<Duration>,
    ceilings: Option<Ceilings>,
    progress: &mut Progress,
) -> CliResult<(Value, Vec<DispatchTime>)> {
    let mut split: Vec<[f64; 4]> = Vec::new();
    let (latency, _) = repeat(a, limit, ["warm-up", "runs"], progress, || {
        let (_, t) = session.run_timed(inputs)?;
        split.push([t.upload, t.encode, t.gpu, t.readback]);
        Ok(t.total)
    })?;
    let split = split.split_off(split.len() - latency.len());
    let part = |i: usize| Statistics::of(&split.iter().map(|s| s[i]).collect::<Vec<_>>()).median;
    let mut resident = session.resident(inputs)?;
    let (_, device) = repeat(a, limit, ["warm-up", "runs on the device"], progress, || Ok(resident.run()?))?;
    let n = latency.len().clamp(4, 16);
    progress.report("throughput", 0, n);
    let pipelined = resident.run_pipelined(n, 3)?;
    let batch = inputs.first().and_then(|t| t.shape().first().copied()).unwrap_or(1);
    let (source, dispatches) = dispatch_times(a, &mut resident, progress)?;
    let host_functions = host_calls::times(compiled, &mut resident, a.runs.clamp(1, 5))?;
    let per_kernel = per_kernel(compiled, &dispatches, ceilings);
    let s = Statistics::of(&latency);
    let d = Statistics::of(&device);
    let report = json!({
        "time_source": source, "kernels": compiled.plan.kernels.len(), "dispatches": crate::compile::dispatches(compiled).count(),
        "bytes": compiled.groups.iter().map(|g| g.bytes).sum::<u64>(),
        "latency_ms": with_samples(&s, &latency), "device_ms": with_samples(&d, &device),
        "split_ms": { "upload": part(0), "encode": part(1), "gpu": part(2), "readback": part(3) },
        "throughput_per_s": n as f64 * batch as f64 / pipelined * 1e3,
        "per_kernel": per_kernel, "host_functions": host_functions,
    });
    Ok((report, dispatches))
}

/// Times of each dispatch over a few timed runs, and what told them.
fn dispatch_times(
    a: &BenchArgs,
    resident: &mut Resident<'_>,
    progress: &mut Progress,
) -> CliResult<(Value, Vec<DispatchTime>)> {
    let rounds = a.runs.clamp(1, 5);
    let mut source = Value::Null;
    let mut times: Vec<Vec<f64>> = Vec::new();
    for round in 0..rounds {
        progress.report("kernels", round, rounds);
        let (s, list) = resident.time_dispatches()?;
        source = serde_json::to_value(s).unwrap_or_default();
        times.resize(list.len(), vec![]);
        for (t, (_, _, us)) in times.iter_mut().zip(list) {
            t.push(us);
        }
    }
    let summed = times.iter().map(|t| {
        let s = Statistics::of(t);
        let max_us = t.iter().copied().fold(s.median, f64::max);
        DispatchTime { median_us: s.median, min_us: s.min, max_us }
    });
    Ok((source, summed.collect()))
}

/// Median microseconds of each kernel, with its rates and the share of the device's ceiling that binds it.
fn per_kernel(c: &Compiled, times: &[DispatchTime], ceilings: Option<Ceilings>) -> Value {
    let mut rows: indexmap::IndexMap<usize, (usize, f64, u64, u64)> = indexmap::IndexMap::new();
    for (d, t) in crate::compile::dispatches(c).zip(times) {
        let r = rows.entry(d.kernel).or_default();
        r.0 += 1;
        r.1 += t.median_us;
        r.2 += d.flops;
        r.3 += d.bytes;
    }
    let groups = |kernel: usize| {
        let own = crate::compile::dispatches(c).filter(|d| d.kernel == kernel).map(|d| d.group);
        own.collect::<Vec<_>>()
    };
    let rate = |r: &(usize, f64, u64, u64)| (r.2 as f64 / r.1.max(1e-3) / 1e3, r.3 as f64 / r.1.max(1e-3) / 1e3);
    let list: Vec<Value> = rows
        .iter()
        .map(|(k, r)| {
            let (gflops, gbs) = rate(r);
            json!({ "id": k, "name": c.plan.kernels[*k].name, "groups": groups(*k), "calls": r.0,
                "us_median": r.1 / r.0 as f64, "us_total": r.1, "gflops": gflops, "gb_s": gbs,
                "roofline_fraction": ceilings.map(|c| c.fraction(gflops, gbs)) })
        })
        .collect();
    list.into()
}

fn number(v: &Value, path: &[&str]) -> f64 {
    path.iter().fold(v, |v, k| &v[*k]).as_f64().unwrap_or(0.0)
}

/// The table of results: a row when it is done.
struct Lines(Rows);
impl Lines {
    fn new(models: &[String]) -> CliResult<Lines> {
        let name = models.iter().map(|m| crate::models::short_name(m).chars().count()).max().unwrap_or(0);
        let columns = [
            ("model", name),
            ("batch", 0),
            ("amp", 4),
            ("layout", 0),
            ("fuse", 7),
            ("latency ms", 0),
            ("p90", 8),
            ("device ms", 0),
            ("per s", 8),
            ("dispatches", 0),
            ("GFLOP/s", 0),
            ("ratio", 0),
        ];
        Rows::new(&columns).map(Lines)
    }
    /// Prints the last result, with its ratio to the first.
    fn print(&mut self, results: &[Value]) -> CliResult<()> {
        let (Some(first), Some(r)) = (results.first(), results.last()) else { return Ok(()) };
        let s = |k: &str| r["settings"][k].as_str().unwrap_or("").to_string();
        let latency = number(r, &["latency_ms", "median"]);
        let device = number(r, &["device_ms", "median"]);
        self.0.print(&[
            r["model"].as_str().unwrap_or("").to_string(),
            r["batch"].to_string(),
            s("amp"),
            s("layout"),
            s("fuse"),
            format!("{latency:.2}"),
            format!("{:.2}", number(r, &["latency_ms", "p90"])),
            format!("{device:.2}"),
            format!("{:.1}", number(r, &["throughput_per_s"])),
            r["dispatches"].to_string(),
            format!("{:.1}", number(r, &["flops"]) / device.max(1e-6) / 1e6),
            format!("{:.2}", number(first, &["latency_ms", "median"]) / latency.max(1e-9)),
        ])
    }
}

/// The kernels that take the longest.
fn show_kernels(one: &Value) -> CliResult<()> {
    let mut rows: Vec<&Value> = one["per_kernel"].as_array().map(|l| l.iter().collect()).unwrap_or_default();
    rows.sort_by(|a, b| number(b, &["us_total"]).total_cmp(&number(a, &["us_total"])));
    let total: f64 = rows.iter().map(|r| number(r, &["us_total"])).sum();
    let roof = rows.iter().any(|r| r["roofline_fraction"].is_number());
    let mut header = vec!["kernel", "calls", "us each", "share", "GFLOP/s", "GB/s"];
    if roof {
        header.push("of the roof");
    }
    let mut t = table(&header);
    for r in rows.iter().take(12) {
        let mut row = vec![
            r["name"].as_str().unwrap_or("").to_string(),
            r["calls"].to_string(),
            format!("{:.1}", number(r, &["us_median"])),
            format!("{:.1}%", 100.0 * number(r, &["us_total"]) / total.max(1e-9)),
            format!("{:.1}", number(r, &["gflops"])),
            format!("{:.1}", number(r, &["gb_s"])),
        ];
        if roof {
            row.push(format!("{:.0}%", 100.0 * number(r, &["roofline_fraction"])));
        }
        t.add_row(row);
    }
    print_text(&t.to_string())?;
    print_text(&format!("time source: {}", one["time_source"].as_str().unwrap_or("")))
}

fn read_baseline(path: &std::path::Path) -> CliResult<Vec<Value>> {
    let text =
        crate::files::read_text(path).map_err(|e| CliError::input(format!("cannot read {}: {e}", path.display())))?;
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
