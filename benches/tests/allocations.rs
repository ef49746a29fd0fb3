//! Heap allocations of runs: the same number every time, and none as large as a tensor except new results. It is a
//! separate program, since the allocator counts for the whole process.

use benches::test_device::test_device;
use compiler::compile::{CompileOptions, Compiled, compile};
use compiler::dtype::DType;
use compiler::name::Name;
use compiler::tensor::Tensor;
use compiler::text::{parse_module, random_tensor};
use runtime_gpu::{OpenSession, RunInput, Session, SessionOptions};
use shaders_gen::Emitter;
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

/// The system's allocator, counting.
struct Counting;
static COUNT: AtomicUsize = AtomicUsize::new(0);
static LARGE: AtomicUsize = AtomicUsize::new(0);
/// Allocations of each size below a tensor's.
static SIZES: [AtomicUsize; TENSOR] = [const { AtomicUsize::new(0) }; TENSOR];

/// Bytes of the smallest tensor of the networks below in storage form.
const TENSOR: usize = 32 << 10;

const RUNS: usize = 1000;
const WARM_UP: usize = 20;

/// Allocations by which runs may differ.
const SLACK: usize = 9;

fn counted(size: usize) {
    COUNT.fetch_add(1, Ordering::Relaxed);
    match SIZES.get(size) {
        Some(n) => n.fetch_add(1, Ordering::Relaxed),
        None => LARGE.fetch_add(1, Ordering::Relaxed),
    };
}

// SAFETY: every call goes to `System` unchanged; counters do not touch the memory.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        counted(layout.size());
        // SAFETY: the caller's promises are those of `System`.
        unsafe { System.alloc(layout) }
    }
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        counted(layout.size());
        // SAFETY: the caller's promises are those of `System`.
        unsafe { System.alloc_zeroed(layout) }
    }
    unsafe fn realloc(&self, p: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        counted(size);
        // SAFETY: the caller's promises are those of `System`.
        unsafe { System.realloc(p, layout, size) }
    }
    unsafe fn dealloc(&self, p: *mut u8, layout: Layout) {
        // SAFETY: the caller's promises are those of `System`.
        unsafe { System.dealloc(p, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// How many allocations `run` takes, how many of them as large as a tensor, and in `sizes` how many of each other size.
fn taken(run: &mut dyn FnMut(), sizes: &mut [usize]) -> (usize, usize) {
    sizes.iter_mut().zip(&SIZES).for_each(|(n, all)| *n = all.load(Ordering::Relaxed));
    let before = [&COUNT, &LARGE].map(|n| n.load(Ordering::Relaxed));
    run();
    let taken = (COUNT.load(Ordering::Relaxed) - before[0], LARGE.load(Ordering::Relaxed) - before[1]);
    sizes.iter_mut().zip(&SIZES).for_each(|(n, all)| *n = all.load(Ordering::Relaxed) - *n);
    taken
}

/// Calls `run` many times: each takes the same number of allocations, `large` of them as large as a tensor. wgpu's own
/// differ by some, by what the device has done when it is asked; what grows by one in 100 runs is found.
fn same_every_time(what: &str, large: usize, mut run: impl FnMut()) {
    (0..WARM_UP).for_each(|_| run());
    let (mut first, mut now) = (vec![0; TENSOR], vec![0; TENSOR]);
    let (count, _) = taken(&mut run, &mut first);
    let mut wrong = vec![];
    let (mut least, mut most) = (count, count);
    for i in 1..RUNS {
        let (n, of_tensors) = taken(&mut run, &mut now);
        (least, most) = (least.min(n), most.max(n));
        if n.abs_diff(count) > SLACK || of_tensors != large {
            let differ = (0..TENSOR).filter(|&size| now[size] != first[size]);
            let differ: Vec<_> = differ.map(|size| (size, first[size], now[size])).collect();
            wrong.push(format!("run {i}: {n}, {of_tensors} of tensors; by size, first and now: {differ:?}"));
            if wrong.len() == 10 {
                break;
            }
        }
    }
    assert!(wrong.is_empty(), "{what}: {count} allocations and {large} of tensors; but\n{}", wrong.join("\n"));
    println!("{what}: {least} to {most} allocations in each of {RUNS} runs, {large} of tensors");
}

/// Inputs in 32 bits and in 64, some kernels.
const TEXT: &str = "graph @main(%x: f32[128,64], %i: i64[8192]) -> (y: f32[8192,64], z: f32[128,64]) {
  %0 = exp %x
  %1 = softmax %0 {axes=[1]}
  %2 = gather %1, %i {axis=0}
  %3 = tanh %2
  return %3, %1
}
";

const CHAINED: &str = "graph @main(%x: f32[8192,64]) -> (y: f32[8192,64]) {
  %0 = tanh %x
  %1 = softmax %0 {axes=[1]}
  return %1
}
";

const OPEN: &str = "graph @main(%x: f32[n,1024]) -> (y: f32[n,1024]) {
  %0 = exp %x
  %1 = softmax %0 {axes=[1]}
  return %1
}
";

fn compiled(text: &str) -> Compiled {
    let module = parse_module(text).unwrap_or_else(|e| panic!("{e}"));
    let mut options = CompileOptions::default();
    options.dims.declare(Name::new("n"), 1, 64);
    let gpu = test_device().unwrap_or_else(|e| panic!("{e}"));
    compile(module, &options, &gpu.profile, &Emitter, &mut |_, _, _| ()).unwrap_or_else(|e| panic!("{e}"))
}

fn open(c: &Compiled, runs_in_flight: usize) -> Session {
    let gpu = test_device().unwrap_or_else(|e| panic!("{e}"));
    let options = SessionOptions { runs_in_flight, ..SessionOptions::default() };
    Session::open(gpu, &c.plan, &c.module, &options, &mut |_, _, _| ()).unwrap_or_else(|e| panic!("{e}"))
}

fn inputs() -> Vec<Tensor> {
    let indices = (0..8192).map(|i| i * 37 % 128).collect::<Vec<i64>>();
    vec![random_tensor(DType::F32, &[128, 64], 1), Tensor::from_vec(vec![8192], indices)]
}

fn in_order(session: &Session) {
    let inputs = inputs();
    let want = session.run(&inputs).expect("runs");
    let mut outputs = vec![];
    assert!(!session.has_host_steps(), "what runs on the host takes memory of its own");
    same_every_time("run_into", 0, || {
        session.run_into(&inputs, &mut outputs).expect("runs");
    });
    assert_eq!(outputs, want);
    same_every_time("run", want.len(), || drop(session.run(&inputs).expect("runs")));
    let given: Vec<RunInput<'_>> = inputs.iter().map(RunInput::Host).collect();
    let submit = || pollster::block_on(session.submit(&given)).expect("runs");
    let mut first = Some(submit());
    let mut outputs = vec![];
    same_every_time("two runs in flight", 0, || {
        let second = submit();
        first.replace(second).expect("one is in flight").wait_into(&mut outputs).expect("runs");
    });
    assert_eq!(outputs, want);
}

fn on_device(first: &Session, second: &Session) {
    let inputs = inputs();
    let given: Vec<RunInput<'_>> = inputs.iter().map(RunInput::Host).collect();
    let own = second.output_on_device(0).expect("a buffer");
    same_every_time("chained on the device", 0, || {
        pollster::block_on(async {
            let a = first.run_on_device(&given).await.expect("runs");
            let b = second.run_bound(&[RunInput::Device(&a.tensor(0))], &[Some(&own)]).await.expect("runs");
            first.gpu().wait().expect("waits");
            let (a, b) = (a.transfers(), b.transfers());
            assert_eq!((a.uploaded, a.read_back, a.copied), (128 * 64 * 4 + 8192 * 4, 0, 0));
            assert_eq!((b.uploaded, b.read_back, b.copied), (0, 0, 0));
        });
    });
}

fn open_sizes() {
    let c = compiled(OPEN);
    let session = OpenSession::new(c.open.clone().expect("sizes are open"), open(&c, 1));
    let x = [8, 64].map(|n| vec![random_tensor(DType::F32, &[n, 1024], n as u64)]);
    let mut outputs = [vec![], vec![]];
    same_every_time("open sizes, two of them in turn", 0, || {
        for (x, outputs) in x.iter().zip(&mut outputs) {
            session.run_into(x, outputs).expect("runs");
        }
    });
    assert_eq!((session.sizes_kept(), outputs[1][0].shape()), (2, [64, 1024].as_slice()));
}

#[test]
fn every_run_takes_the_same_and_no_tensors() {
    let (first, second) = (open(&compiled(TEXT), 2), open(&compiled(CHAINED), 2));
    in_order(&first);
    on_device(&first, &second);
    open_sizes();
}
