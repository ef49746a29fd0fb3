//! Futures that leave the thread which polls them free, tensors on the device and runs in flight, by name.

use compiler::schedule::ScheduleOptions;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};
use weft::{
    DType, Device, Error, HostFunctions, Model, Options, Outputs, ResultMemory, RunInput, RunTensor, Tensor, Transfers,
};

fn device() -> Option<Device> {
    let device = Device::open("0").ok();
    if device.is_none() {
        eprintln!("NOT RUN: there is no adapter");
    }
    device
}

fn session(text: &str, options: &Options, device: &Device) -> weft::Session {
    let model = Model::from_text(text).unwrap_or_else(|e| panic!("{e}"));
    let compiled = model.compile(options).unwrap_or_else(|e| panic!("{e}"));
    compiled.session(device).unwrap_or_else(|e| panic!("{e}"))
}

/// Counts how often it is woken.
#[derive(Default)]
struct Woken(AtomicUsize);
impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// Polls only when it was woken; results, and the longest that a poll took.
fn polled(run: impl Future<Output = Result<Outputs, Error>>) -> (Outputs, Duration) {
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(woken.clone());
    let mut run = pin!(run);
    let (mut longest, mut seen) = (Duration::ZERO, 0);
    let began = Instant::now();
    loop {
        let start = Instant::now();
        let polled = run.as_mut().poll(&mut Context::from_waker(&waker));
        longest = longest.max(start.elapsed());
        if let Poll::Ready(done) = polled {
            return (done.unwrap_or_else(|e| panic!("{e}")), longest);
        }
        while woken.0.load(Ordering::Relaxed) == seen {
            assert!(began.elapsed() < Duration::from_secs(60), "nobody wakes the future");
            std::thread::sleep(Duration::from_micros(100));
        }
        seen = woken.0.load(Ordering::Relaxed);
    }
}

const PLAIN: &str = "graph @main(%x: f32[300]) -> (y: f32[300]) {\n  %y = exp %x : f32[300]\n  return %y\n}\n";
const OPEN: &str = "graph @main(%x: f32[n]) -> (y: f32[n]) {\n  %y = exp %x : f32[n]\n  return %y\n}\n";

/// An application that draws has a device already: networks run on it.
#[test]
fn a_program_hands_in_its_own_device() {
    use weft::wgpu;
    let instance = wgpu::Instance::default();
    let adapters = pollster::block_on(instance.enumerate_adapters(wgpu::Backends::all()));
    let Some(adapter) = adapters.into_iter().next() else {
        eprintln!("NOT RUN: there is no adapter");
        return;
    };
    let opened = pollster::block_on(adapter.request_device(&wgpu::DeviceDescriptor::default()));
    let (own, queue) = opened.expect("the device opens");
    let device = Device::from_wgpu(own.clone(), queue.clone());
    let session = session(PLAIN, &Options::for_device(&device), &device);
    let x = Tensor::from_vec(vec![300], vec![0f32; 300]);
    let y = session.run(&[("x", x)]).expect("runs");
    assert_eq!((session.place(), y["y"].to_f32_vec()), ("device", vec![1.0; 300]));
    // The program goes on with it.
    queue.submit([own.create_command_encoder(&Default::default()).finish()]);
    assert!(own.poll(wgpu::PollType::wait_indefinitely()).is_ok());
}

/// A host function that takes long.
const SLOW: &str = "graph @main(%x: f32[300]) -> (y: f32[300]) {
  %y = call_host @slow %x {dtypes=[f32], shapes=[[300]]} : f32[300]
  return %y
}
";

#[test]
fn no_poll_waits_for_the_work() {
    let slow = Duration::from_millis(400);
    let mut functions = HostFunctions::new();
    functions.register("slow", move |inputs: &[Tensor]| {
        std::thread::sleep(slow);
        Ok(vec![inputs[0].clone()])
    });
    let x = Tensor::from_vec(vec![300], vec![1f32; 300]);
    // Without a device the model runs on a thread of its own.
    let options = Options::for_device(&Device::Interpreter).host_functions(functions);
    let (outputs, longest) = polled(session(SLOW, &options, &Device::Interpreter).run_async(&[("x", x.clone())]));
    assert_eq!(outputs["y"], x);
    assert!(longest < slow, "a poll took {longest:?}");
    let Some(device) = device() else { return };
    for text in [PLAIN, OPEN] {
        let s = session(text, &Options::for_device(&device), &device);
        let want = s.run(&[("x", x.clone())]).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(polled(s.run_async(&[("x", x.clone())])).0, want);
        let submitted = s.submit(&[("x", RunInput::Host(&x))]).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(polled(submitted.results()).0, want);
    }
}

#[test]
fn tensors_and_places_by_name() {
    let Some(device) = device() else { return };
    let s = session(PLAIN, &Options::for_device(&device).runs_in_flight(2), &device);
    let x = Tensor::from_vec(vec![300], vec![0.5f32; 300]);
    let want = s.run(&[("x", x.clone())]).unwrap_or_else(|e| panic!("{e}"));
    let (input, place) = (s.input_on_device("x", &x), s.output_on_device("y"));
    let (input, place) = (input.unwrap_or_else(|e| panic!("{e}")), place.unwrap_or_else(|e| panic!("{e}")));
    let out = s.run_on_device(&[("x", RunInput::Device(&input))], &[("y", &place)]).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(out.transfers(), Transfers::default());
    assert_eq!(out.get("y").map(|t| t.buffers() == place.buffers()), Some(true));
    assert!(out.get("z").is_none() && out.names().eq(["y"]));
    assert_eq!(out.read().unwrap_or_else(|e| panic!("{e}")), want);
    let refused = |e: Option<Error>, why: &str| {
        let e = e.unwrap_or_else(|| panic!("{why} is taken")).to_string();
        assert!(e.contains(why), "{e}");
    };
    refused(s.run_on_device(&[("x", RunInput::Host(&x))], &[("z", &place)]).err(), "the model has no result `z`");
    refused(s.submit(&[("w", RunInput::Host(&x))]).err(), "the model has no input `w`");
    refused(s.input_on_device("w", &x).err(), "the model has no input `w`");
    let open = session(OPEN, &Options::for_device(&device), &device);
    refused(open.output_on_device("y").err(), "`sized_for` closes them");
    let out = open.run_on_device(&[("x", RunInput::Device(&input))], &[("y", &place)]);
    assert_eq!(out.and_then(|o| o.read()).unwrap_or_else(|e| panic!("{e}")), want);
    let cpu = session(PLAIN, &Options::for_device(&Device::Interpreter), &Device::Interpreter);
    refused(cpu.submit(&[("x", RunInput::Host(&x))]).err(), "does not run on a device as a whole");
}

/// Results in buffers of their own hold nothing of their run: more of them are there than runs may be in flight.
#[test]
fn results_that_belong_to_the_caller() {
    let Some(device) = device() else { return };
    for (text, n) in [(PLAIN, 300), (OPEN, 7)] {
        let session = session(text, &Options::for_device(&device), &device);
        let x = Tensor::from_vec(vec![n], vec![0f32; n]);
        let mut all = vec![];
        for _ in 0..4 {
            let input = all.last().map_or(RunInput::Host(&x), RunInput::Device);
            let mut results = session.run_to_tensors(&[("x", input)]).unwrap_or_else(|e| panic!("{e}"));
            assert_eq!(results.len(), 1);
            let (name, RunTensor::Device(y)) = results.remove(0) else { panic!("a kernel writes it") };
            assert_eq!((name.as_str(), y.shape()), ("y", &[n][..]));
            all.push(y);
        }
        let mut want = 0f32;
        for y in &all {
            want = want.exp();
            let got = pollster::block_on(device.read(y)).unwrap_or_else(|e| panic!("{e}")).to_f32_vec();
            assert!(got.len() == n && got.iter().all(|v| (v - want).abs() <= 1e-3 * want), "{got:?} {want}");
        }
        assert!(pollster::block_on(Device::Interpreter.read(&all[0])).is_err());
    }
}

/// Results that the host computes, and sessions without a device, give tensors in host memory: a loop that feeds
/// results back is the same everywhere.
#[test]
fn results_are_inputs_wherever_they_are() {
    let text = "graph @main(%x: f32[3], %y: f32[3]) -> (u: f32[3], v: f32[3]) {
  %u = add %x, %y
  %v = call_host @negate %y {dtypes=[f32], shapes=[[3]]} : f32[3]
  return %u, %v
}
";
    let mut functions = HostFunctions::new();
    functions.register("negate", |inputs: &[Tensor]| {
        let negated = inputs[0].to_f32_vec().iter().map(|v| -v).collect();
        Ok(vec![Tensor::from_vec(inputs[0].shape().to_vec(), negated)])
    });
    let cpu = Device::open("cpu").unwrap_or_else(|e| panic!("{e}"));
    for device in [Some(Device::Interpreter), Some(cpu), device()].into_iter().flatten() {
        let options = Options::for_device(&device).host_functions(functions.clone());
        let session = session(text, &options, &device);
        let mut state = [0, 1].map(|i| RunTensor::Host(Tensor::from_vec(vec![3], vec![i as f32; 3])));
        for _ in 0..3 {
            let [x, y] = &state;
            let results = session.run_to_tensors(&[("x", x.as_input()), ("y", y.as_input())]);
            let results = results.unwrap_or_else(|e| panic!("{device:?}: {e}"));
            let [(_, u), (_, v)] = <[_; 2]>::try_from(results).unwrap_or_else(|all| panic!("{}", all.len()));
            assert!(matches!(v, RunTensor::Host(_)), "the host computes it");
            // The host reads a kernel's result, and the other way round.
            state = [v, u];
        }
        let read = state.map(|t| device.tensor(&t).unwrap_or_else(|e| panic!("{e}")).to_f32_vec()[0]);
        // (0, 1) -> (-1, 1) -> (-1, 0) -> (0, -1)
        assert_eq!(read, [0.0, -1.0], "{device:?}");
    }
}

/// A cache of open length: each step takes the result of the one before where it is, so that nothing but the token goes
/// up, and nothing comes back.
#[test]
fn a_cache_of_open_length_stays_on_the_device() {
    let text = "graph @main(%q: f32[4,1,16], %past: f32[4,n,16]) -> (o: f32[4,1,16], now: f32[4,n + 1,16]) {
  %now = concat %past, %q {axis=1}
  %0 = transpose %now {perm=[0,2,1]}
  %1 = matmul %q, %0
  %2 = softmax %1 {axes=[2]}
  %o = matmul %2, %now
  return %o, %now
}
";
    let Some(device) = device() else { return };
    let session = session(text, &Options::for_device(&device), &device);
    let tensor = |n: usize| Tensor::from_vec(vec![4, n, 16], vec![0.5f32; 4 * n * 16]);
    let q = tensor(1);
    let mut past = RunTensor::Host(q.clone());
    for step in 0..200 {
        let inputs = [("q", RunInput::Host(&q)), ("past", past.as_input())];
        if step > 0 {
            let out = session.run_on_device(&inputs, &[]).unwrap_or_else(|e| panic!("step {step}: {e}"));
            assert_eq!(out.transfers(), Transfers { uploaded: 4 * 16 * 4, ..Transfers::default() }, "step {step}");
        }
        let results = session.run_to_tensors(&inputs).unwrap_or_else(|e| panic!("step {step}: {e}"));
        let now = results.into_iter().find(|r| r.0 == "now").map(|r| r.1);
        past = now.unwrap_or_else(|| panic!("the result is there"));
    }
    let RunTensor::Device(now) = past else { panic!("a kernel writes it") };
    assert_eq!(pollster::block_on(device.read(&now)).unwrap_or_else(|e| panic!("{e}")), tensor(201));
}

/// Results in memory of the caller's: written there directly, or copied, and never where an input lies.
#[test]
fn results_in_given_memory() {
    let cpu = Device::open("cpu").unwrap_or_else(|e| panic!("{e}"));
    let x = Tensor::from_vec(vec![300], vec![0f32; 300]);
    for device in [Some(Device::Interpreter), Some(cpu), device()].into_iter().flatten() {
        let s = session(PLAIN, &Options::for_device(&device), &device);
        let run = |dtype, shape: &[usize], bytes: &mut [u8], name: &str| {
            s.run_to_memory(&[("x", x.clone())], vec![(name.into(), ResultMemory { dtype, shape, bytes })])
        };
        let mut bytes = vec![7u8; 1200];
        let rest = run(DType::F32, &[300], &mut bytes, "y").unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(rest.iter().count(), 0);
        let ones = bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]));
        assert!(ones.into_iter().all(|v| (v - 1.0).abs() < 1e-6));
        for (dtype, shape, name, why) in [
            (DType::I32, [300], "y", "is for i32[300], the result is f32[300]"),
            (DType::F32, [300], "z", "no result `z`"),
        ] {
            let e = run(dtype, &shape, &mut bytes, name).err().unwrap_or_else(|| panic!("{why} is taken")).to_string();
            assert!(e.contains(why), "{e}");
        }
    }
}

#[test]
fn results_in_memory_that_is_there() {
    let x = |v: f32| Tensor::from_vec(vec![300], vec![v; 300]);
    for device in [Some(Device::Interpreter), device()].into_iter().flatten() {
        let s = session(PLAIN, &Options::for_device(&device), &device);
        let mut outputs = Outputs::default();
        let mut kept = vec![];
        for v in [0.0, 1.0, 2.0, 3.0] {
            s.run_into(&[("x", x(v))], &mut outputs).unwrap_or_else(|e| panic!("{e}"));
            assert!((outputs["y"].to_f32_vec()[299] - v.exp()).abs() < 1e-4 * v.exp());
            // What somebody else holds is not written over.
            if v < 2.0 {
                kept.push(outputs["y"].clone());
            }
        }
        assert_eq!(kept[0].to_f32_vec()[0], 1.0);
    }
}

/// Open sizes, and sizes that a run decides: what comes before is compiled once for all of the former.
#[test]
fn sizes_are_open_and_decided_by_a_run() {
    let text =
        "graph @main(%x: f32[n,8], %k: i64[]) -> (y: i64[2,found], z: f32[n,8], w: f32[found], u: f32[trips,n,8]) {
  %1 = relu %x
  %2 = non_zero %1 {count=found} : i64[2,found]
  %3 = tanh %1
  %4 = slice %2 {starts=[0], ends=[1], axes=[0]} : i64[1,found]
  %5 = reshape %4 {shape=[-1]} : i64[found]
  %6 = cast %5 {to=f32}
  %7, %8 = loop %k, _, %3 {count=trips} : f32[n,8], f32[trips,n,8] (%i: i64[], %a: f32[n,8]) {
    %9 = add %a, %3
    yield %9, %a
  }
  return %2, %7, %6, %8
}
";
    let Some(device) = device() else { return };
    let (session, oracle) = (
        session(text, &Options::for_device(&device), &device),
        session(text, &Options::for_device(&Device::Interpreter), &Device::Interpreter),
    );
    for (n, trips) in [(3, 4i64), (1, 0), (50, 2), (3, 4)] {
        let x = Tensor::from_vec(vec![n, 8], (0..8 * n).map(|i| (i as f32 * 0.7).sin()).collect());
        let inputs = [("x", x), ("k", Tensor::scalar(trips))];
        let run = |s: &weft::Session| s.run(&inputs).unwrap_or_else(|e| panic!("{e}"));
        let (got, want) = (run(&session), run(&oracle));
        for ((name, g), (_, w)) in got.iter().zip(want.iter()) {
            assert_eq!(g.shape(), w.shape(), "{name} at {n}");
            for (a, b) in g.to_f32_vec().iter().zip(w.to_f32_vec()) {
                assert!((a - b).abs() <= 1e-5 * b.abs().max(1.0), "{name} at {n}: {a} and {b}");
            }
        }
    }
    assert_eq!(session.place(), "device");
}

/// Of sizes whose tensors no binding holds whole, a plan for them alone cuts the tensors.
#[test]
fn sizes_beyond_a_binding_have_plans_of_their_own() {
    let text = "graph @main(%x: f32[n,1024]) -> (y: f32[n,1024], s: f32[n]) {
  %1 = tanh %x
  %2 = reduce %1 {kind=sum, axes=[1]}
  return %1, %2
}
";
    let Some(device) = device() else { return };
    let mut options = Options::for_device(&device);
    if let Some(profile) = &mut options.profile {
        (profile.max_binding, profile.max_buffer) = (64 << 10, 1 << 20);
    }
    let session = session(text, &options, &device);
    for n in [4, 64, 16, 40, 64] {
        let x = Tensor::from_vec(vec![n, 1024], (0..1024 * n).map(|i| (i as f32 * 0.3).sin()).collect());
        let out = session.run(&[("x", x.clone())]).unwrap_or_else(|e| panic!("{n}: {e}"));
        let want: Vec<f32> = x.to_f32_vec().into_iter().map(f32::tanh).collect();
        for (a, b) in out["y"].to_f32_vec().iter().zip(&want) {
            assert!((a - b).abs() < 1e-5, "{n}: {a} and {b}");
        }
        for (row, s) in want.chunks(1024).zip(out["s"].to_f32_vec()) {
            assert!((row.iter().sum::<f32>() - s).abs() < 1e-3, "{n}");
        }
    }
    let x = Tensor::zeros(session.inputs()[0].1.dtype, vec![64, 1024]);
    let one = session.sized_for(&[x]).unwrap_or_else(|e| panic!("{e}"));
    let slices =
        one.compilation().map_or(0, |c| c.plan.kernels.iter().map(|k| k.emitted.bindings.len()).max().unwrap_or(0));
    assert!(slices >= 8, "256 KiB by 64 KiB, twice: {slices}");
}

/// Some drivers end the loops of a thread after 65,535 rounds: then other kernels or the interpreter sum up, with
/// sizes that are fixed and with open ones.
#[test]
fn long_loops_are_right() {
    let Some(device) = device() else { return };
    for sizes in ["n", "70000", "30000,3"] {
        let axes = if sizes.contains(',') { "1,2" } else { "1" };
        let text = format!(
            "graph @main(%x: f32[2,{sizes}]) -> (y: f32[2]) {{\n  %1 = reduce %x {{kind=sum, axes=[{axes}]}}\n  return %1\n}}\n"
        );
        let mut options = Options::for_device(&device);
        options.pipeline.scheduling = ScheduleOptions::of_rules(["direct"]);
        let session = session(&text, &options, &device);
        let runs: &[Vec<usize>] = match sizes {
            "n" => &[vec![2, 1000], vec![2, 65535], vec![2, 65536], vec![2, 9]],
            "70000" => &[vec![2, 70000]],
            _ => &[vec![2, 30000, 3]],
        };
        for shape in runs {
            let count: usize = shape[1..].iter().product();
            let ones = Tensor::from_vec(shape.clone(), vec![1.0f32; 2 * count]);
            let out = session.run(&[("x", ones)]).unwrap_or_else(|e| panic!("{shape:?}: {e}"));
            assert_eq!(out["y"].to_f32_vec(), [count as f32; 2]);
        }
    }
}
