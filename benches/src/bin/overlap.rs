//! How much of the way to the device and back is hidden behind the device's work when several runs are in flight: `overlap [MODEL [RUNS]]`. MODEL is a
//! name of the zoo or a file, resnet18 without; RUNS a round, 20 without.
//!
//! Rounds with 1, 2 and 3 runs in flight take turns, so that what else the machine does falls on all alike. A round is RUNS runs with inputs
//! and results in host memory, whose memory is taken once. What it reports: milliseconds of each part of a run alone, milliseconds a run with so many
//! in flight, the ratio to one, and which part of upload + readback was hidden: what a run got shorter by, over what both take. More than all of it
//! means that encoding and waiting are hidden too.

use benches::statistics::Statistics;
use compiler::dtype::DType;
use compiler::tensor::Tensor;
use runtime_gpu::{InFlight, RunTimes};
use std::collections::VecDeque;
use std::error::Error;
use std::path::Path;
use std::time::Instant;
use weft::{Device, Model, Options, RunInput};

type Done<T> = Result<T, Box<dyn Error>>;

/// Runs in flight.
const DEPTHS: [usize; 3] = [1, 2, 3];
const ROUNDS: usize = 7;

fn main() -> Done<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let name = args.first().map_or("resnet18", String::as_str);
    let runs: usize = args.get(1).map_or(Ok(20), |n| n.parse())?;
    let device = Device::open("auto")?;
    let model = match Path::new(name).is_file() {
        true => Model::load(name)?,
        false => Model::from_module(benches::zoo::build(name, 1, 0)?),
    };
    let options = Options::for_device(&device).runs_in_flight(DEPTHS[2]);
    let session = model.compile(&options)?.session(&device)?;
    let on_device = session.on_device().ok_or("the model does not run on a device as a whole")?;
    let inputs = session.inputs();
    let inputs = inputs.iter().map(|(_, t)| drawn(t.dtype, &t.const_shape().ok_or("an open size")?));
    let inputs = inputs.collect::<Done<Vec<Tensor>>>()?;
    measure(name, &device, on_device, &inputs, runs.max(DEPTHS[2]))
}

fn drawn(dtype: DType, shape: &[usize]) -> Done<Tensor> {
    Ok(match dtype {
        DType::I64 => Tensor::from_vec(shape.to_vec(), vec![1i64; shape.iter().product()]),
        _ => compiler::text::random_tensor(dtype, shape, 1),
    })
}

fn measure(name: &str, device: &Device, session: &runtime_gpu::Session, inputs: &[Tensor], runs: usize) -> Done<()> {
    let mut outputs = vec![];
    // Some drivers compile in the first runs; all memory is there after some.
    for _ in 0..3 {
        session.run_into(inputs, &mut outputs)?;
        in_flight(session, inputs, DEPTHS[2], DEPTHS[2], &mut outputs)?;
    }
    let want = outputs.clone();
    let (mut alone, mut times): (Vec<RunTimes>, [Vec<f64>; 3]) = (vec![], Default::default());
    for _ in 0..ROUNDS {
        for _ in 0..runs {
            alone.push(session.run_into(inputs, &mut outputs)?);
        }
        for (depth, times) in DEPTHS.into_iter().zip(&mut times) {
            times.push(in_flight(session, inputs, runs, depth, &mut outputs)?);
            if outputs != want {
                return Err(format!("{depth} runs in flight gave other results").into());
            }
        }
    }
    let part = |of: fn(&RunTimes) -> f64| Statistics::of(&alone.iter().map(of).collect::<Vec<_>>()).median;
    let (upload, readback) = (part(|t| t.upload), part(|t| t.readback));
    let moved = alone[0].moved;
    let queue =
        if device.profile().software { "a software driver: its device is this processor" } else { "its own queue" };
    println!("{name} on {} ({queue}), {} bytes up, {} back", device.label(), moved.uploaded, moved.read_back);
    println!(
        "one run: upload {upload:.3} ms, encode {:.3}, device {:.3}, readback {readback:.3}, all {:.3}",
        part(|t| t.encode),
        part(|t| t.gpu),
        part(|t| t.total)
    );
    let one = Statistics::of(&times[0]).median;
    println!("{:>10} {:>10} {:>10} {:>10}", "in flight", "ms a run", "ratio", "hidden");
    for (depth, times) in DEPTHS.into_iter().zip(&times) {
        let t = Statistics::of(times).median;
        let hidden = (one - t) / (upload + readback);
        println!("{depth:>10} {t:>10.3} {:>10.3} {:>9.0}%", t / one, hidden * 100.0);
    }
    Ok(())
}

/// Milliseconds a run, of `runs` with at most `depth` in flight.
fn in_flight(
    session: &runtime_gpu::Session,
    inputs: &[Tensor],
    runs: usize,
    depth: usize,
    outputs: &mut Vec<Tensor>,
) -> Done<f64> {
    let given: Vec<RunInput<'_>> = inputs.iter().map(RunInput::Host).collect();
    let start = Instant::now();
    let mut pending: VecDeque<InFlight> = VecDeque::new();
    for _ in 0..runs {
        if pending.len() == depth
            && let Some(oldest) = pending.pop_front()
        {
            oldest.wait_into(outputs)?;
        }
        pending.push_back(pollster::block_on(session.submit(&given))?);
    }
    for run in pending {
        run.wait_into(outputs)?;
    }
    Ok(start.elapsed().as_secs_f64() * 1e3 / runs as f64)
}
