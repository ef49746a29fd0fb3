//! `weft bench`

use crate::args::{BenchArgs, Common};
use crate::arrays::read_npz;
use crate::error::{CliError, CliResult, Code};
use crate::executor::{Device, Executor, run_on_cpu};
use crate::models::{inputs_for, load};
use crate::output::{log, print_text, table, write_json};
use benches::statistics::Statistics;
use compiler::compile::Compiled;
use compiler::passes::LayoutMode;
use compiler::tensor::Tensor;
use runtime_gpu::Session;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// Times models.
pub fn execute(a: &BenchArgs) -> CliResult<()> {
    let baseline = a.baseline.as_ref().map(|p| read_baseline(p)).transpose()?;
    let slowdown = percent(&a.max_slowdown)?;
    let device = Device::open(&a.common)?;
    let mut results = Vec::new();
    for common in sweep(&a.sweep, &a.common)? {
        for model in &a.models {
            results.push(one(a, &common, model, &device)?);
        }
    }
    let all = if let [one] = results.as_slice() { one.clone() } else { results.clone().into() };
    if !write_json(&a.common, &all)? {
        show(&results, a.common.verbose > 0 || results.len() == 1)?;
    }
    match baseline {
        Some(b) => check_baseline(&results, &b, slowdown),
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

/// Every combination of the swept settings.
fn sweep(list: &[String], common: &Common) -> CliResult<Vec<Common>> {
    let mut out = vec![common.clone()];
    for s in list {
        let (key, values) = s.split_once('=').ok_or_else(|| CliError::usage(format!("--sweep {s}: needs KEY=A,B")))?;
        let mut next = Vec::new();
        for base in &out {
            for v in values.split(',') {
                let mut c = base.clone();
                let bad = || CliError::usage(format!("--sweep {key}={v}: not a value of {key}"));
                match key {
                    "amp" if ["off", "fp16", "auto"].contains(&v) => c.amp = v.into(),
                    "layout" if LayoutMode::parse(v).is_some() => c.layout = v.into(),
                    "fuse" if ["full", "classic", "off"].contains(&v) => c.fuse = v.into(),
                    "batch" => c.batch = Some(v.parse().ok().filter(|&b| b > 0).ok_or_else(bad)?),
                    "opt" => c.opt_level = v.parse().ok().filter(|&o| o <= 3).ok_or_else(bad)?,
                    "amp" | "layout" | "fuse" => return Err(bad()),
                    _ => {
                        return Err(CliError::usage(format!("--sweep {key}: can sweep amp, layout, fuse, batch, opt")));
                    }
                }
                next.push(c);
            }
        }
        out = next;
    }
    Ok(out)
}

fn one(a: &BenchArgs, common: &Common, model: &str, device: &Device) -> CliResult<Value> {
    let given = a.input.as_ref().map(|p| read_npz(p)).transpose()?;
    let module = load(model, common, given.as_ref())?;
    let inputs = inputs_for(&module, given.as_ref(), common)?;
    let batch = inputs.first().and_then(|t| t.shape().first().copied()).unwrap_or(1);
    let macs = compiler::inspect::count_macs(&module).unwrap_or(0);
    let cold = Instant::now();
    let executor = Executor::new(module, common, device, &inputs)?;
    let first = executor.run(&inputs)?;
    drop(first);
    let cold = cold.elapsed().as_secs_f64() * 1e3;
    let limit = a.duration.as_deref().map(duration).transpose()?;
    let mut v = match &executor {
        Executor::Gpu { session, compiled } => on_device(a, session, compiled, &inputs, limit)?,
        Executor::Cpu { module } => {
            let samples = repeat(a, limit, || run_on_cpu(module, &inputs).map(|_| 0.0))?.0;
            let s = Statistics::of(&samples);
            json!({ "time_source": "host-clock", "kernels": 0, "dispatches": 0, "bytes": 0, "latency_ms": with_samples(&s, &samples),
                "device_ms": s, "split_ms": { "upload": 0, "encode": 0, "gpu": s.median, "readback": 0 },
                "throughput_per_s": 1e3 / s.median * batch as f64, "per_kernel": [], "compile_ms": { "cold": cold, "warm": 0 } })
        }
    };
    let o = v.as_object_mut().ok_or_else(|| CliError::new(Code::Bug, "bench without a result"))?;
    o.insert("schema".into(), 1.into());
    o.insert("model".into(), crate::models::short_name(model).into());
    o.insert("batch".into(), batch.into());
    o.insert("dtype".into(), if common.amp == "off" { "f32" } else { "f16" }.into());
    o.insert("device".into(), device.describe());
    o.insert("flops".into(), (2 * macs).into());
    o.insert("settings".into(), json!({ "amp": common.amp, "layout": common.layout, "fuse": common.fuse, "opt": common.opt_level, "seed": common.seed }));
    o.insert(
        "env".into(),
        json!({ "os": std::env::consts::OS, "arch": std::env::consts::ARCH,
        "cpus": std::thread::available_parallelism().map_or(0, |n| n.get()), "weft": env!("CARGO_PKG_VERSION") }),
    );
    if let Some(c) = o.get_mut("compile_ms").and_then(|c| c.as_object_mut()) {
        c.insert("cold".into(), cold.into());
    }
    Ok(v)
}

/// Warms up, then calls `f` for the asked runs or time; wall milliseconds and what `f` returned.
fn repeat(
    a: &BenchArgs,
    limit: Option<Duration>,
    mut f: impl FnMut() -> CliResult<f64>,
) -> CliResult<(Vec<f64>, Vec<f64>)> {
    for _ in 0..a.warmup {
        f()?;
    }
    let (mut wall, mut other) = (Vec::new(), Vec::new());
    let start = Instant::now();
    loop {
        let enough = match limit {
            Some(d) => start.elapsed() >= d && !wall.is_empty(),
            None => wall.len() >= a.runs.max(1),
        };
        if enough {
            return Ok((wall, other));
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
) -> CliResult<Value> {
    let mut split: Vec<[f64; 4]> = Vec::new();
    let (latency, _) = repeat(a, limit, || {
        let (_, t) = session.run_timed(inputs)?;
        split.push([t.upload, t.encode, t.gpu, t.readback]);
        Ok(t.total)
    })?;
    let split = split.split_off(split.len() - latency.len());
    let part = |i: usize| Statistics::of(&split.iter().map(|s| s[i]).collect::<Vec<_>>()).median;
    let (_, device) = repeat(a, limit, || Ok(session.run_resident()?))?;
    let n = latency.len().clamp(4, 16);
    let pipelined = session.run_pipelined(n, 3)?;
    let batch = inputs.first().and_then(|t| t.shape().first().copied()).unwrap_or(1);
    let (source, per_kernel) = per_kernel(a, session, compiled)?;
    let s = Statistics::of(&latency);
    let d = Statistics::of(&device);
    Ok(json!({
        "time_source": source, "kernels": compiled.plan.kernels.len(), "dispatches": crate::compile::dispatches(compiled).count(),
        "bytes": compiled.groups.iter().map(|g| g.bytes).sum::<u64>(),
        "latency_ms": with_samples(&s, &latency), "device_ms": with_samples(&d, &device),
        "split_ms": { "upload": part(0), "encode": part(1), "gpu": part(2), "readback": part(3) },
        "throughput_per_s": n as f64 * batch as f64 / pipelined * 1e3,
        "compile_ms": { "cold": 0.0, "warm": compiled.ms }, "per_kernel": per_kernel,
    }))
}

/// Median microseconds of each kernel over a few timed runs, with its rates and the share of the best rate seen in the run.
fn per_kernel(a: &BenchArgs, session: &Session, c: &Compiled) -> CliResult<(Value, Value)> {
    let rounds = a.runs.clamp(1, 5);
    let mut source = Value::Null;
    let mut times: Vec<Vec<f64>> = Vec::new();
    let mut order: Vec<(usize, usize)> = Vec::new();
    for _ in 0..rounds {
        let (s, list) = session.time_dispatches()?;
        source = serde_json::to_value(s).unwrap_or_default();
        times.resize(list.len(), vec![]);
        order = list.iter().map(|t| (t.0, t.1)).collect();
        for (t, (_, _, us)) in times.iter_mut().zip(list) {
            t.push(us);
        }
    }
    let mut rows: indexmap::IndexMap<usize, (usize, f64, u64, u64)> = indexmap::IndexMap::new();
    for ((kernel, group), t) in order.iter().zip(&times) {
        let g = &c.groups[*group];
        let r = rows.entry(*kernel).or_default();
        r.0 += 1;
        r.1 += Statistics::of(t).median;
        r.2 += g.flops;
        r.3 += g.bytes;
    }
    let rate = |r: &(usize, f64, u64, u64)| (r.2 as f64 / r.1.max(1e-3) / 1e3, r.3 as f64 / r.1.max(1e-3) / 1e3);
    let best = rows.values().map(rate).fold((1e-9f64, 1e-9f64), |b, r| (b.0.max(r.0), b.1.max(r.1)));
    let list: Vec<Value> = rows
        .iter()
        .map(|(k, r)| {
            let (gflops, gbs) = rate(r);
            json!({ "name": c.plan.kernels[*k].emitted.name, "calls": r.0, "us_median": r.1 / r.0 as f64, "us_total": r.1, "gflops": gflops, "gb_s": gbs,
                "roofline_fraction": (gflops / best.0).max(gbs / best.1).min(1.0) })
        })
        .collect();
    Ok((source, list.into()))
}

fn number(v: &Value, path: &[&str]) -> f64 {
    path.iter().fold(v, |v, k| &v[*k]).as_f64().unwrap_or(0.0)
}

fn show(results: &[Value], kernels: bool) -> CliResult<()> {
    let mut t = table(&[
        "model",
        "batch",
        "amp",
        "layout",
        "fuse",
        "latency ms",
        "p90",
        "device ms",
        "per s",
        "dispatches",
        "GFLOP/s",
        "ratio",
    ]);
    let first = results.first().map_or(1.0, |r| number(r, &["latency_ms", "median"]));
    for r in results {
        let s = |k: &str| r["settings"][k].as_str().unwrap_or("").to_string();
        let latency = number(r, &["latency_ms", "median"]);
        let device = number(r, &["device_ms", "median"]);
        t.add_row([
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
            format!("{:.2}", first / latency.max(1e-9)),
        ]);
    }
    print_text(&t.to_string())?;
    if let ([one], true) = (results, kernels) {
        let mut rows: Vec<&Value> = one["per_kernel"].as_array().map(|l| l.iter().collect()).unwrap_or_default();
        rows.sort_by(|a, b| number(b, &["us_total"]).total_cmp(&number(a, &["us_total"])));
        let total: f64 = rows.iter().map(|r| number(r, &["us_total"])).sum();
        let mut t = table(&["kernel", "calls", "us each", "share", "GFLOP/s", "GB/s"]);
        for r in rows.iter().take(12) {
            t.add_row([
                r["name"].as_str().unwrap_or("").to_string(),
                r["calls"].to_string(),
                format!("{:.1}", number(r, &["us_median"])),
                format!("{:.1}%", 100.0 * number(r, &["us_total"]) / total.max(1e-9)),
                format!("{:.1}", number(r, &["gflops"])),
                format!("{:.1}", number(r, &["gb_s"])),
            ]);
        }
        print_text(&t.to_string())?;
        print_text(&format!("time source: {}", one["time_source"].as_str().unwrap_or("")))?;
    }
    Ok(())
}

fn read_baseline(path: &std::path::Path) -> CliResult<Vec<Value>> {
    let text =
        std::fs::read_to_string(path).map_err(|e| CliError::input(format!("cannot read {}: {e}", path.display())))?;
    let v: Value = serde_json::from_str(&text)
        .map_err(|e| CliError::input(format!("{} is not a bench result: {e}", path.display())))?;
    Ok(match v {
        Value::Array(list) => list,
        one => vec![one],
    })
}

fn check_baseline(results: &[Value], baseline: &[Value], slowdown: f64) -> CliResult<()> {
    let mut slow = Vec::new();
    for r in results {
        let same = |b: &&Value| ["model", "batch", "dtype"].iter().all(|k| b[*k] == r[*k]);
        let Some(b) = baseline.iter().find(same) else { continue };
        let ratio = number(r, &["latency_ms", "median"]) / number(b, &["latency_ms", "median"]).max(1e-9);
        log_ratio(r, ratio);
        if ratio > 1.0 + slowdown {
            slow.push(format!("{} is {:.1}% slower", r["model"].as_str().unwrap_or(""), (ratio - 1.0) * 100.0));
        }
    }
    if slow.is_empty() { Ok(()) } else { Err(CliError::new(Code::Check, slow.join("; "))) }
}

fn log_ratio(r: &Value, ratio: f64) {
    log(&Common::default(), format!("{}: {ratio:.3} of the baseline's time", r["model"].as_str().unwrap_or("")));
}
