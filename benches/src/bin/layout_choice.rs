//! Compares the layout pass with measurements: for zoo networks, the time with `auto` (estimated and measured costs) as
//! a ratio to the better one of `nchw` and `nhwc`.
//!
//! ```text
//! cargo run -p weft-benches --release --bin layout_choice -- [--device auto] [--rounds 5] [--costs F.jsonl] [--json F.json] [MODEL...]
//! ```
//!
//! Rounds are interleaved, so that a drift of the machine's speed meets every variant; a time is the median over the
//! rounds. Variants that compile to the same module share one session and one time. `--costs` is a
//! tuning database that keeps the measured times of kernels, for the next run and for `weft --layout-costs`.

use benches::statistics::Statistics;
use benches::zoo;
use compiler::compile::{CompileOptions, Compiled, KernelTimes, compile, measure_forms};
use compiler::cost::Measurements;
use compiler::graph::Module;
use compiler::passes::asked_forms;
use compiler::passes::{LayoutMode, PipelineOptions};
use compiler::tensor::Tensor;
use compiler::text::{print_module, random_tensor};
use runtime_gpu::{DeviceChoice, Gpu, KernelTimer, Resident, Session, SessionOptions};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use weft::{Line, TimeLine, TuningDatabase};

/// How much slower than the better layout a choice may be: by estimated costs, and by measured ones.
const LIMITS: [f64; 2] = [1.15, 1.05];

struct Args {
    device: String,
    rounds: usize,
    costs: Option<PathBuf>,
    json: Option<PathBuf>,
    models: Vec<String>,
}

fn parse_args(mut list: impl Iterator<Item = String>) -> Result<Args, String> {
    let mut a = Args { device: "auto".into(), rounds: 5, costs: None, json: None, models: vec![] };
    while let Some(word) = list.next() {
        let mut value = || list.next().ok_or_else(|| format!("{word} needs a value"));
        match word.as_str() {
            "--device" => a.device = value()?,
            "--rounds" => a.rounds = value()?.parse().map_err(|e| format!("--rounds: {e}"))?,
            "--costs" => a.costs = Some(value()?.into()),
            "--json" => a.json = Some(value()?.into()),
            flag if flag.starts_with('-') => return Err(format!("unknown option {flag}")),
            _ => a.models.push(word),
        }
    }
    if a.models.is_empty() {
        a.models = zoo::list().iter().map(|e| e.name.to_string()).collect();
    }
    Ok(a)
}

fn main() -> ExitCode {
    match parse_args(std::env::args().skip(1)).and_then(|a| run(&a)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("error: {e}");
            ExitCode::from(2)
        }
    }
}

fn run(a: &Args) -> Result<(), String> {
    let gpu = Arc::new(Gpu::open(&DeviceChoice::parse(&a.device)).map_err(|e| e.to_string())?);
    gpu.check_computes().map_err(|e| e.to_string())?;
    println!("device: {} ({})", gpu.description.name, gpu.description.driver);
    let mut costs = match &a.costs {
        Some(path) => TuningDatabase::read(path)?.measurements(),
        None => Measurements::default(),
    };
    println!(
        "{:<20} {:>9} {:>9} {:>9} {:>9} {:>10} {:>10}",
        "ms", "nchw", "nhwc", "auto", "measured", "auto/best", "meas/best"
    );
    let (mut rows, mut exceptions) = (Vec::new(), Vec::new());
    for name in &a.models {
        let before = costs.clone();
        let row = one(name, a, &gpu, &mut costs)?;
        if let Some(path) = &a.costs {
            append_new(path, &before, &costs)?;
        }
        let best = row[0].min(row[1]);
        let ratios = [row[2] / best, row[3] / best];
        println!(
            "{name:<20} {:>9.2} {:>9.2} {:>9.2} {:>9.2} {:>10.3} {:>10.3}",
            row[0], row[1], row[2], row[3], ratios[0], ratios[1]
        );
        for (kind, (ratio, limit)) in ["estimated", "measured"].iter().zip(ratios.iter().zip(LIMITS)) {
            if *ratio > limit {
                exceptions.push(format!("{name}: {kind} costs: {ratio:.3} > {limit}"));
            }
        }
        rows.push(json!({ "model": name, "ms": { "nchw": row[0], "nhwc": row[1], "auto": row[2], "measured": row[3] },
            "ratio": { "auto": ratios[0], "measured": ratios[1] } }));
    }
    println!("exceptions: {}", if exceptions.is_empty() { "none".into() } else { exceptions.join("; ") });
    if let Some(path) = &a.json {
        let all = json!({ "schema": 1, "device": gpu.description.name, "driver": gpu.description.driver,
            "rounds": a.rounds, "models": rows, "exceptions": exceptions });
        std::fs::write(path, format!("{all:#}")).map_err(|e| format!("{}: {e}", path.display()))?;
    }
    Ok(())
}

/// Appends the times that were not there before.
fn append_new(path: &Path, before: &Measurements, now: &Measurements) -> Result<(), String> {
    for (device, times) in &now.devices {
        let known = before.devices.get(device);
        for (code, m) in times.iter().filter(|t| known.is_none_or(|k| !k.contains_key(t.0))) {
            let (device, code) = (device.clone(), code.clone());
            let line = TimeLine { device, code, ns: m.ns, estimated_ns: m.estimated_ns };
            TuningDatabase::append(path, Line::Time(line))?;
        }
    }
    Ok(())
}

/// Median milliseconds under nchw, nhwc, auto by estimated costs and auto by measured ones.
fn one(name: &str, a: &Args, gpu: &Arc<Gpu>, costs: &mut Measurements) -> Result<[f64; 4], String> {
    let module = zoo::build(name, 1, 0).map_err(|e| e.to_string())?;
    let forms = asked_forms(&module, &PipelineOptions::default(), &gpu.profile).map_err(|e| e.to_string())?;
    let mut timer = KernelTimer::new(gpu.clone(), 9);
    for why in measure_forms(&forms, &gpu.profile, &shaders_gen::Emitter, &mut timer, costs) {
        eprintln!("{name}: not measured: {why}");
    }
    let measured = KernelTimes::new(costs.clone(), Arc::new(shaders_gen::Emitter));
    let measured = Some(Arc::new(measured));
    let modes = [LayoutMode::Nchw, LayoutMode::Nhwc, LayoutMode::Auto, LayoutMode::Auto];
    let mut texts: Vec<String> = Vec::new();
    let mut sessions: Vec<Session> = Vec::new();
    let mut of = [0; 4];
    for (i, mode) in modes.into_iter().enumerate() {
        let compiled = compile_as(&module, mode, measured.clone().filter(|_| i == 3), gpu)?;
        let text = print_module(&compiled.module);
        of[i] = match texts.iter().position(|t| *t == text) {
            Some(found) => found,
            None => {
                sessions.push(open(&compiled, gpu)?);
                texts.push(text);
                texts.len() - 1
            }
        };
    }
    let mut samples = vec![Vec::new(); sessions.len()];
    let mut residents = sessions.iter().map(resident).collect::<Result<Vec<_>, _>>()?;
    for round in 0..a.rounds + 1 {
        for (resident, samples) in residents.iter_mut().zip(&mut samples) {
            let ms = resident.run().map_err(|e| e.to_string())?;
            // The first round warms up.
            if round > 0 {
                samples.push(ms);
            }
        }
    }
    Ok(of.map(|i| Statistics::of(&samples[i]).median))
}

fn compile_as(
    module: &Module,
    layout: LayoutMode,
    measurements: Option<Arc<KernelTimes>>,
    gpu: &Arc<Gpu>,
) -> Result<Compiled, String> {
    let pipeline = PipelineOptions { layout, ..PipelineOptions::default() };
    let options = CompileOptions { pipeline, measurements, ..CompileOptions::default() };
    compile(module.clone(), &options, &gpu.profile, &shaders_gen::Emitter, &mut |_, _, _| ()).map_err(|e| e.to_string())
}

fn open(compiled: &Compiled, gpu: &Arc<Gpu>) -> Result<Session, String> {
    let options = SessionOptions::default();
    let session = Session::open(gpu.clone(), &compiled.plan, &compiled.module, &options, &mut |_, _, _| ());
    session.map_err(|e| e.to_string())
}

fn resident(session: &Session) -> Result<Resident<'_>, String> {
    let inputs: Vec<Tensor> = session.plan().inputs.iter().map(|s| random_tensor(s.dtype, &s.shape, 1)).collect();
    session.resident(&inputs).map_err(|e| e.to_string())
}
