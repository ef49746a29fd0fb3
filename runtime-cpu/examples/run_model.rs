//! Runs an ONNX model on the CPU target and on the interpreter, and prints how they differ and where the time goes.
//! `cargo run --release -p weft-runtime-cpu --example run_model -- model.onnx [threads] [runs] [isa|best] [times]`
//!
//! Inputs are patterns, of shape `SIZES` (`1x3x224x224`) where the model leaves sizes open; or what the file `INPUTS`
//! lists: a line `NAME 1x128 FILE` for each, with the elements' bytes in `FILE`. `AMP` is the mixed precision (`fp16`).

use compiler::compile::{CompileOptions, compile};
use compiler::dtype::DType;
use compiler::interpreter::{HostFunctions, Interpreter};
use compiler::onnx::{ImportOptions, NoExternalData, import_onnx_with};
use compiler::passes::AmpMode;
use compiler::tensor::Tensor;
use runtime_cpu::{DispatchTime, Emitter, Isa, Processor, Session};
use std::time::Instant;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let path = args.first().ok_or("usage: run_model MODEL [THREADS] [RUNS] [ISA]")?;
    let number = |n: usize, or: usize| args.get(n).and_then(|a| a.parse().ok()).unwrap_or(or);
    let (threads, runs) = (number(1, 1), number(2, 5));
    let isa = Isa::ALL.into_iter().find(|i| args.get(3).is_some_and(|a| i.name() == a));
    let bytes = std::fs::read(path)?;
    let sizes: Vec<usize> =
        std::env::var("SIZES").map_or(vec![], |s| s.split('x').filter_map(|n| n.parse().ok()).collect());
    let mut options = ImportOptions { batch: Some(1), ..Default::default() };
    if !sizes.is_empty() {
        let ports = compiler::onnx::onnx_inputs(bytes.clone().into(), &[])?;
        options.shapes = ports.iter().map(|p| (p.0, sizes.clone())).collect();
    }
    let listed = listed_inputs()?;
    options.shapes.extend(listed.iter().map(|i| (i.name.as_str().into(), i.shape.clone())));
    let module = import_onnx_with(bytes.into(), &NoExternalData, &options)?;
    let processor = std::sync::Arc::new(Processor::open(threads, isa)?);
    let profile = processor.profile();
    let start = Instant::now();
    let compiled = compile(module.clone(), &compile_options()?, &profile, &Emitter, &mut |_, _, _| {})?;
    println!("compiled in {:.0} ms", start.elapsed().as_secs_f64() * 1e3);
    if let Ok(name) = std::env::var("SHOW") {
        let shown = compiled.plan.kernels.iter().filter(|k| k.name == name);
        shown.for_each(|k| println!("{}", k.emitted.wgsl));
        compiled.remarks.iter().for_each(|r| println!("{r:?}"));
        return Ok(());
    }
    let start = Instant::now();
    let constants = &compiled.module.constants;
    let load = |name| constants.get(&name).ok_or("no such constant")?.load();
    let session = Session::open(processor, &compiled.plan, &load)?;
    println!("opened in {:.0} ms", start.elapsed().as_secs_f64() * 1e3);
    let inputs: Vec<Tensor> = session
        .plan()
        .inputs
        .iter()
        .map(|v| {
            if let Some(i) = listed.iter().find(|i| v.name == i.name.as_str().into()) {
                return i.tensor(v.dtype);
            }
            let n = v.shape.iter().product();
            let value = |i: usize| ((i * 2_654_435_761) % 2048) as f64 / 1024.0 - 1.0;
            Ok(Tensor::from_f64(v.dtype, v.shape.clone(), (0..n).map(value)))
        })
        .collect::<Result<_, _>>()?;
    let none = HostFunctions::default();
    let (outputs, _) = session.run_measured(&inputs, &none)?;
    if std::env::var_os("CHECK").is_some() {
        let want = Interpreter::new(&module).run(module.entry, &inputs)?;
        for (v, (got, want)) in session.plan().outputs.iter().zip(outputs.iter().zip(&want)) {
            let (got, want) = (got.to_f64_vec(), want.to_f64_vec());
            let scale = want.iter().fold(1e-9f64, |a, x| a.max(x.abs()));
            let worst = got
                .iter()
                .zip(&want)
                .fold(0f64, |a, (g, w)| if g.is_nan() != w.is_nan() { f64::INFINITY } else { a.max((g - w).abs()) });
            println!("{}: largest difference {worst:.3e} of {scale:.3e}", v.name);
        }
    }
    if args.get(4).is_some_and(|a| a == "times") {
        // CPU time of this thread and time by the clock of each run, for comparisons.
        for _ in 0..runs {
            let (start, clock) = (cpu_ms(), Instant::now());
            session.run(&inputs, &none)?;
            println!("cpu {:.3} clock {:.3}", cpu_ms() - start, clock.elapsed().as_secs_f64() * 1e3);
        }
        return Ok(());
    }
    let mut best = f64::INFINITY;
    // The fastest run of each dispatch: beside other processes hardly any run is undisturbed as a whole.
    let mut each: Vec<f64> = vec![f64::INFINITY; session.plan().dispatches().count()];
    for _ in 0..runs {
        let start = Instant::now();
        session.run(&inputs, &none)?;
        best = best.min(start.elapsed().as_secs_f64() * 1e3);
        let times = DispatchTime::of(&session.run_measured(&inputs, &none)?.1, each.len());
        each.iter_mut().zip(times).for_each(|(t, new)| *t = t.min(new.ns));
    }
    println!("fastest of {runs}: {best:.2} ms, of each dispatch: {:.2} ms", each.iter().sum::<f64>() / 1e6);
    let mut total = vec![0.0; session.plan().kernels.len()];
    session.plan().dispatches().zip(&each).for_each(|(d, ns)| total[d.kernel] += ns);
    let mut flops = vec![0u64; total.len()];
    session.plan().dispatches().for_each(|d| flops[d.kernel] += d.flops);
    let mut order: Vec<usize> = (0..total.len()).collect();
    order.sort_by(|a, b| total[*b].total_cmp(&total[*a]));
    for k in order.into_iter().take(25) {
        let (name, ns) = (&session.plan().kernels[k].name, total[k]);
        println!("{:9.1} us {:7.1} GFLOP/s  {name}", ns / 1e3, flops[k] as f64 / ns);
    }
    Ok(())
}

/// An input that is given.
struct Input {
    name: String,
    shape: Vec<usize>,
    bytes: Vec<u8>,
}

impl Input {
    fn tensor(&self, dtype: DType) -> Result<Tensor, String> {
        let made = Tensor::from_bytes(dtype, self.shape.clone(), self.bytes.clone().into());
        made.map_err(|e| format!("input {}: {e}", self.name))
    }
}

/// Options with the mixed precision that `AMP` names: `fp16`, or `off`, as without it.
fn compile_options() -> Result<CompileOptions, Box<dyn std::error::Error>> {
    let mut options = CompileOptions::default();
    if let Ok(amp) = std::env::var("AMP") {
        options.pipeline.amp = AmpMode::parse(&amp).ok_or("AMP is off, fp16 or auto")?;
    }
    Ok(options)
}

/// The inputs that the file `INPUTS` lists; none without it.
fn listed_inputs() -> Result<Vec<Input>, Box<dyn std::error::Error>> {
    let Ok(list) = std::env::var("INPUTS") else { return Ok(vec![]) };
    let each = std::fs::read_to_string(&list)?;
    let input = |line: &str| -> Result<Input, Box<dyn std::error::Error>> {
        let [name, shape, file] = line.split_whitespace().collect::<Vec<_>>()[..] else {
            return Err(format!("{list}: a line is `NAME SHAPE FILE`, not `{line}`").into());
        };
        let shape = shape.split('x').filter(|n| !n.is_empty()).map(str::parse).collect::<Result<_, _>>()?;
        Ok(Input { name: name.into(), shape, bytes: std::fs::read(file)? })
    };
    each.lines().map(input).collect()
}

/// CPU time of this thread in milliseconds, from the kernel's scheduler.
fn cpu_ms() -> f64 {
    // The scheduler adds up when it is asked to schedule, else every few milliseconds.
    std::thread::yield_now();
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split(' ').next().and_then(|n| n.parse::<f64>().ok()).unwrap_or(f64::NAN) / 1e6
}
