//! A session allocates the same in every run: nothing grows with the number of runs.

use compiler::compile::{CompileOptions, compile};
use compiler::interpreter::HostFunctions;
use compiler::tensor::Tensor;
use compiler::text::parse_module;
use runtime_cpu::{Emitter, Processor, Session};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::Arc;

/// Counts what each thread allocates and gives back: the test's own thread does all the work of its runs.
struct Counting;

thread_local! {
    static COUNTS: Cell<[usize; 2]> = const { Cell::new([0; 2]) };
}

fn count(at: usize) {
    // A thread that ends has no counts any more.
    let _ = COUNTS.try_with(|counts| {
        let mut both = counts.get();
        both[at] += 1;
        counts.set(both);
    });
}

// SAFETY: all calls go to the system's allocator as they are.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(0);
        // SAFETY: as the caller says.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        count(1);
        // SAFETY: as the caller says.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// A convolution, a depthwise one, a pool, GELU behind a product, softmax.
const NETWORK: &str =
    "graph @main(%x: f32[1,3,17,17], %w: f32[8,3,3,3], %d: f32[8,1,3,3], %m: f32[8,20]) -> (y: f32[1,20]) {
  %conv = conv %x, %w {strides=[2,2]} : f32[1,8,8,8]
  %relu = relu %conv : f32[1,8,8,8]
  %deep = conv %relu, %d {group=8} : f32[1,8,6,6]
  %mean = global_average_pool %deep : f32[1,8,1,1]
  %flat = reshape %mean {shape=[1,8]} : f32[1,8]
  %product = matmul %flat, %m : f32[1,20]
  %gelu = gelu %product : f32[1,20]
  %y = softmax %gelu {axes=[1]} : f32[1,20]
  return %y
}
";

#[test]
fn a_thousand_runs_allocate_alike() {
    let module = parse_module(NETWORK).unwrap_or_else(|e| panic!("{e}"));
    let processor = Arc::new(Processor::open(1, None).unwrap_or_else(|e| panic!("{e}")));
    let options = CompileOptions::default();
    let compiled = compile(module, &options, &processor.profile(), &Emitter, &mut |_, _, _| ());
    let compiled = compiled.unwrap_or_else(|e| panic!("{e}"));
    let session = Session::open(processor, &compiled.plan, &|name| Err(format!("no constant {name}").into()));
    let session = session.unwrap_or_else(|e| panic!("{e}"));
    let each = session.plan().inputs.iter().map(|v| {
        let n: usize = v.shape.iter().product();
        Tensor::from_f64(v.dtype, v.shape.clone(), (0..n).map(|i| (i % 7) as f64 - 3.0))
    });
    let inputs: Vec<Tensor> = each.collect();
    let functions = HostFunctions::default();
    let counts = || COUNTS.with(Cell::get);
    let run = || {
        let before = counts();
        drop(session.run(&inputs, &functions).unwrap_or_else(|e| panic!("{e}")));
        let after = counts();
        [after[0] - before[0], after[1] - before[1]]
    };
    // The first run makes kernels for its sizes, and memory that later ones use again.
    let [first, _] = run();
    let usual = run();
    println!("{first} allocations in the first run, {} in others", usual[0]);
    assert_eq!(usual[0], usual[1], "a run keeps nothing");
    assert!(usual[0] > 0 && usual[0] <= first);
    (0..998).for_each(|i| assert_eq!(run(), usual, "run {i}"));
}
