//! Threads and futures on one session, and several sessions on one device: each run gives its own results.

use compiler::compile::{CompileOptions, compile};
use compiler::graph::Module;
use compiler::tensor::Tensor;
use compiler::text::{parse_module, random_tensor};
use runtime_gpu::{DeviceChoice, Gpu, Session, SessionOptions};
use std::pin::pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Waker};

/// Two kernels on the device, with a sum that holds what came before.
const ON_DEVICE: &str = "graph @main(%x: f32[16,24], %w: f32[24,24]) -> (y: f32[16,24]) {
  %a = matmul %x, %w : f32[16,24]
  %b = softmax %a {axes=[1]} : f32[16,24]
  %c = matmul %b, %w : f32[16,24]
  %y = add %c, %x : f32[16,24]
  return %y
}
";

/// A step on the host between kernels: determinants go through host memory.
const WITH_HOST: &str = "graph @main(%x: f32[32,2,2]) -> (y: f32[32]) {
  %a = exp %x : f32[32,2,2]
  %d = det %a : f32[32]
  %y = tanh %d : f32[32]
  return %y
}
";

const RUNS: usize = 1000;

/// The first adapter. `cargo xtask test` installs a driver, and fails in CI where it cannot.
fn device() -> Option<Arc<Gpu>> {
    static GPU: OnceLock<Option<Arc<Gpu>>> = OnceLock::new();
    GPU.get_or_init(|| {
        let gpu = Gpu::open(&DeviceChoice::Index(0)).ok().map(Arc::new);
        if gpu.is_none() {
            eprintln!("NOT RUN: there is no adapter");
        }
        gpu
    })
    .clone()
}

fn open(gpu: &Arc<Gpu>, text: &str) -> Session {
    let module: Module = parse_module(text).expect("text");
    let quiet = &mut |_: &str, _: usize, _: usize| ();
    let options = CompileOptions::default();
    let compiled = compile(module, &options, &gpu.profile, &shaders_gen::Emitter, quiet).expect("compiles");
    Session::open(gpu.clone(), &compiled.plan, &compiled.module, &SessionOptions::default(), quiet).expect("opens")
}

fn inputs(session: &Session, seed: u64) -> Vec<Tensor> {
    session.plan().inputs.iter().map(|s| random_tensor(s.dtype, &s.shape, seed)).collect()
}

/// Runs `sessions[i]` with inputs of its own on thread `i`, many times at once; each result must be what the first run
/// of these inputs alone gave, to the bit.
fn race(sessions: &[&Session]) {
    let work: Vec<(&Session, Vec<Tensor>, Vec<Tensor>)> = (0u64..)
        .zip(sessions)
        .map(|(i, s)| {
            let own = inputs(s, i + 1);
            let want = s.run(&own).expect("runs");
            (*s, own, want)
        })
        .collect();
    assert_ne!(work[0].2, work[1].2, "the threads must want different results");
    std::thread::scope(|scope| {
        for (session, own, want) in &work {
            scope.spawn(move || {
                for run in 0..RUNS {
                    assert_eq!(&session.run(own).expect("runs"), want, "run {run}");
                }
            });
        }
    });
}

#[test]
fn two_threads_on_one_session() {
    let Some(gpu) = device() else { return };
    let session = open(&gpu, ON_DEVICE);
    race(&[&session, &session]);
}

#[test]
fn two_threads_on_one_session_with_host_steps() {
    let Some(gpu) = device() else { return };
    let session = open(&gpu, WITH_HOST);
    assert!(session.has_host_steps() && session.has_device_steps());
    race(&[&session, &session]);
}

#[test]
fn two_sessions_on_one_device() {
    let Some(gpu) = device() else { return };
    let (a, b) = (open(&gpu, ON_DEVICE), open(&gpu, WITH_HOST));
    race(&[&a, &b]);
}

/// Futures on one thread: none blocks it, so each gets its turn though the others are not done.
#[test]
fn futures_on_one_thread() {
    let Some(gpu) = device() else { return };
    for session in [open(&gpu, ON_DEVICE), open(&gpu, WITH_HOST)] {
        let each: Vec<Vec<Tensor>> = (1..5).map(|seed| inputs(&session, seed)).collect();
        let want: Vec<Vec<Tensor>> = each.iter().map(|i| session.run(i).expect("runs")).collect();
        let mut waited = false;
        for _ in 0..50 {
            let mut runs: Vec<_> = each.iter().map(|i| Some(Box::pin(session.run_async(i)))).collect();
            let mut got: Vec<Option<Vec<Tensor>>> = vec![None; runs.len()];
            pollster::block_on(std::future::poll_fn(|cx| {
                for (run, got) in runs.iter_mut().zip(&mut got) {
                    if let Some(Poll::Ready(done)) = run.as_mut().map(|r| r.as_mut().poll(cx)) {
                        (*run, *got) = (None, Some(done.expect("runs")));
                    }
                }
                let open = runs.iter().any(Option::is_some);
                waited |= open;
                if open { Poll::Pending } else { Poll::Ready(()) }
            }));
            assert_eq!(got.into_iter().flatten().collect::<Vec<_>>(), want);
        }
        assert!(waited, "every run was done when it was first polled: it blocked");
    }
}

/// Who waits for a turn leaves the thread free, and giving up in the middle of a run leaves the session as it was.
#[test]
fn a_future_that_is_dropped_gives_its_turn_back() {
    let Some(gpu) = device() else { return };
    let session = open(&gpu, ON_DEVICE);
    let own = inputs(&session, 3);
    let want = session.run(&own).expect("runs");
    let mut cx = Context::from_waker(Waker::noop());
    {
        let mut resident = session.resident(&inputs(&session, 4)).expect("inputs");
        let mut waits = pin!(session.run_async(&own));
        assert!(waits.as_mut().poll(&mut cx).is_pending(), "the inputs of another are on the device");
        resident.run().expect("runs");
    }
    for seed in 5..25 {
        let other = inputs(&session, seed);
        let mut given_up = Box::pin(session.run_async(&other));
        let _ = given_up.as_mut().poll(&mut cx);
        drop(given_up);
        assert_eq!(session.run(&own).expect("runs"), want);
    }
}
