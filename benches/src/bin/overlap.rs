//! How much of upload and readback overlaps with the device's work if several runs are in flight: `overlap [MODEL
//! [RUNS]]`. MODEL is a name of the zoo or a file (default resnet18); RUNS is per round (default 20).
//!
//! Rounds with 1, 2 and 3 runs in flight alternate, so that other load on the machine affects all equally. A round is
//! RUNS runs with inputs and results in host memory, which is allocated once. It reports milliseconds of each part of a
//! single run; and for each number in flight the milliseconds per run, their ratio to one in flight, the milliseconds
//! of upload + readback, and the fraction of those that overlapped: the host wrote inputs while the run before was not
//! done (tested before the writing, since some drivers submit only when that run is done), or read results while the
//! next run was not done (tested after the reading).

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
    let device = Device::open("0")?;
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
    let (mut alone, mut rounds): (Vec<RunTimes>, [Vec<Round>; 3]) = (vec![], Default::default());
    for _ in 0..ROUNDS {
        for _ in 0..runs {
            alone.push(session.run_into(inputs, &mut outputs)?);
        }
        for (depth, rounds) in DEPTHS.into_iter().zip(&mut rounds) {
            rounds.push(in_flight(session, inputs, runs, depth, &mut outputs)?);
            if outputs != want {
                return Err(format!("{depth} runs in flight gave other results").into());
            }
        }
    }
    let part = |of: fn(&RunTimes) -> f64| Statistics::of(&alone.iter().map(of).collect::<Vec<_>>()).median;
    let moved = alone[0].moved;
    let queue = if device.profile().model().on_host {
        "a software driver: its device is this processor"
    } else {
        "its own queue"
    };
    println!("{name} on {} ({queue}), {} bytes up, {} back", device.label(), moved.uploaded, moved.read_back);
    println!(
        "one run: upload {:.3} ms, encode {:.3}, device {:.3}, readback {:.3}, all {:.3}",
        part(|t| t.upload),
        part(|t| t.encode),
        part(|t| t.gpu),
        part(|t| t.readback),
        part(|t| t.total)
    );
    let median =
        |rounds: &[Round], of: fn(&Round) -> f64| Statistics::of(&rounds.iter().map(of).collect::<Vec<_>>()).median;
    let one = median(&rounds[0], |r| r.all);
    println!("{:>10} {:>10} {:>10} {:>14} {:>10}", "in flight", "ms a run", "ratio", "up + back ms", "hidden");
    for (depth, rounds) in DEPTHS.into_iter().zip(&rounds) {
        let (all, moving) = (median(rounds, |r| r.all), median(rounds, |r| r.moving));
        let hidden = median(rounds, |r| r.hidden / r.moving);
        println!("{depth:>10} {all:>10.3} {:>10.3} {moving:>14.3} {:>9.0}%", all / one, hidden * 100.0);
    }
    Ok(())
}

/// Milliseconds a run.
#[derive(Clone, Copy, Default)]
struct Round {
    all: f64,
    /// Upload and readback.
    moving: f64,
    /// Of those, while the device had another run.
    hidden: f64,
}

/// Times `runs` with at most `depth` in flight.
fn in_flight(
    session: &runtime_gpu::Session,
    inputs: &[Tensor],
    runs: usize,
    depth: usize,
    outputs: &mut Vec<Tensor>,
) -> Done<Round> {
    let given: Vec<RunInput<'_>> = inputs.iter().map(RunInput::Host).collect();
    let mut round = Round::default();
    let start = Instant::now();
    let mut pending: VecDeque<InFlight> = VecDeque::new();
    for submitted in 0..runs + depth {
        if (pending.len() == depth || submitted >= runs)
            && let Some(oldest) = pending.pop_front()
        {
            let times = oldest.wait_into(outputs)?;
            let behind_work = pending.back().map_or(Ok(false), |next| next.is_done().map(|done| !done))?;
            round.moving += times.upload + times.readback;
            round.hidden += if behind_work { times.readback } else { 0.0 };
        }
        if submitted < runs {
            let behind_work = pending.back().map_or(Ok(false), |before| before.is_done().map(|done| !done))?;
            let run = pollster::block_on(session.submit(&given))?;
            round.hidden += if behind_work { run.times().upload } else { 0.0 };
            pending.push_back(run);
        }
    }
    round.all = start.elapsed().as_secs_f64() * 1e3;
    let n = runs as f64;
    Ok(Round { all: round.all / n, moving: round.moving / n, hidden: round.hidden / n })
}
