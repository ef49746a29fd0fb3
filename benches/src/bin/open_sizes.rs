//! The cost of open sizes: a network compiled once for all sizes, compared with one compilation per size.
//!
//! `cargo run --release -p weft-benches --bin open_sizes -- encoder 16 64 128 256 512`
//!
//! A network of the zoo takes batches, or lengths of texts; a file takes the sizes of all its open dimensions
//! (`320x480`), where missing leading ones are 1.
//!
//! For each size: milliseconds until a session is ready for the new size (no compilation, no shader), the median of a
//! run, and its ratio to a run of the network compiled for that size only. The two are measured in turn.

use benches::zoo::{self, Input};
use compiler::compile::{CompileOptions, Compiled, compile};
use compiler::dtype::DType;
use compiler::graph::{Module, bind_dims, input_ports, open_dims};
use compiler::int::{Dim, DimRanges};
use compiler::name::Name;
use compiler::tensor::Tensor;
use compiler::text::random_tensor;
use runtime_gpu::{DeviceChoice, Gpu, OpenSession, Session, SessionOptions};
use shaders_gen::Emitter;
use std::error::Error;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};
use weft::{Model, Sizes};

/// Runs of each, in turn; of large networks as many as fit the time, and a few.
const ROUNDS: usize = 21;
const FEW: usize = 5;
const TIME: Duration = Duration::from_secs(20);

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let parse = |s: &String| s.split('x').map(|n| n.parse().ok()).collect::<Option<Vec<i64>>>();
    let sizes: Option<Vec<Vec<i64>>> = args.get(1..).and_then(|list| list.iter().map(parse).collect());
    let (Some(model), Some(sizes)) = (args.first(), sizes.filter(|s| !s.is_empty())) else {
        eprintln!("usage: open_sizes MODEL SIZE...");
        return ExitCode::from(2);
    };
    match measure(model, &sizes) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("{model}: {e}");
            ExitCode::FAILURE
        }
    }
}

/// The network with open sizes, and their ranges.
fn open_network(model: &str) -> Result<(Module, DimRanges), Box<dyn Error>> {
    let mut ranges = DimRanges::default();
    if model.contains('.') {
        let module = Model::load_with(model, &Sizes { keep_open: true, ..Sizes::default() })?.into_module();
        open_dims(&module).into_iter().for_each(|d| ranges.declare(d, 1, 2048));
        return Ok((module, ranges));
    }
    let plain = model.split(':').next().unwrap_or(model);
    let tokens = zoo::find(plain).is_some_and(|z| matches!(z.input, Input::Tokens(_)));
    let (dim, high) = if tokens { (Name::new("sequence"), 1024) } else { (Name::new("batch"), 64) };
    let batch = if tokens { Dim::new(1) } else { Dim::var(dim) };
    ranges.declare(dim, 1, high);
    Ok((zoo::build_open(model, &batch, tokens.then(|| Dim::var(dim)).as_ref(), 0)?, ranges))
}

fn measure(model: &str, sizes: &[Vec<i64>]) -> Result<(), Box<dyn Error>> {
    let gpu = Arc::new(Gpu::open(&DeviceChoice::Index(0))?);
    let (module, ranges) = open_network(model)?;
    let dims = open_dims(&module);
    let options = CompileOptions { dims: ranges.clone(), ..CompileOptions::default() };
    let (open, ms) = opened(&module, &options, &gpu)?;
    let plan = open.0.open.clone().ok_or("nothing is open")?;
    let session = OpenSession::new(plan, open.1);
    let list: Vec<String> = dims.iter().map(|d| format!("{d} = {:?}", ranges.range(*d))).collect();
    println!("{model} on {}, {}: {} shaders", gpu.description.name, list.join(", "), open.0.plan.kernels.len());
    println!("ready for the first time after {ms:.0} ms");
    println!(
        "{:>8}  {:>12}  {:>9}  {:>9}  {:>6}  {:>12}",
        "size", "new size ms", "open ms", "fixed ms", "ratio", "fixed compile"
    );
    for size in sizes {
        let given = dims.len().checked_sub(size.len()).ok_or("more sizes than open dimensions")?;
        let all = std::iter::repeat_n(1, given).chain(size.iter().copied());
        let mut fixed = module.clone();
        bind_dims(&mut fixed, &dims.iter().copied().zip(all).collect::<Vec<_>>())?;
        let inputs = inputs(&fixed);
        let shapes: Vec<&[usize]> = inputs.iter().map(Tensor::shape).collect();
        let start = Instant::now();
        let sized = session.at(&shapes)?;
        let new = start.elapsed().as_secs_f64() * 1e3;
        let ((_, alone), compile_ms) = opened(&fixed, &CompileOptions::default(), &gpu)?;
        let (mut ours, mut theirs) = (vec![], vec![]);
        let start = Instant::now();
        for round in 0..ROUNDS + 2 {
            if round >= FEW + 2 && start.elapsed() > TIME {
                break;
            }
            let times = [run(&sized, &inputs)?, run(&alone, &inputs)?];
            // Some drivers compile in the first runs.
            if round >= 2 {
                ours.push(times[0]);
                theirs.push(times[1]);
            }
        }
        let (ours, theirs) = (median(ours), median(theirs));
        let size = size.iter().map(i64::to_string).collect::<Vec<_>>().join("x");
        println!("{size:>8}  {new:>12.2}  {ours:>9.2}  {theirs:>9.2}  {:>6.2}  {compile_ms:>12.0}", ours / theirs);
    }
    Ok(())
}

/// A compiled network with its session, and milliseconds until it was ready.
fn opened(m: &Module, options: &CompileOptions, gpu: &Arc<Gpu>) -> Result<((Compiled, Session), f64), Box<dyn Error>> {
    let start = Instant::now();
    let c = compile(m.clone(), options, &gpu.profile, &Emitter, &mut |_, _, _| ())?;
    let session = Session::open(gpu.clone(), &c.plan, &c.module, &SessionOptions::default(), &mut |_, _, _| ())?;
    Ok(((c, session), start.elapsed().as_secs_f64() * 1e3))
}

fn inputs(m: &Module) -> Vec<Tensor> {
    let draw = |(_, ty): (Name, compiler::graph::TensorType)| {
        let shape = ty.const_shape().unwrap_or_default();
        match ty.dtype {
            DType::I64 => Tensor::from_vec(shape.clone(), (0..shape.iter().product::<usize>() as i64).collect()),
            dtype => random_tensor(dtype, &shape, 1),
        }
    };
    input_ports(m).into_iter().map(draw).collect()
}

fn run(session: &Session, inputs: &[Tensor]) -> Result<f64, Box<dyn Error>> {
    let start = Instant::now();
    session.run(inputs)?;
    Ok(start.elapsed().as_secs_f64() * 1e3)
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}
