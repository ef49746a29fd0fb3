//! Functions that call themselves or each other, on the device, compared with the interpreter at several depths.

use benches::test_device::test_device;
use compiler::compile::{CompileOptions, Compiled, bind_host_steps, compile, compile_graph};
use compiler::dtype::DType;
use compiler::graph::Module;
use compiler::interpreter::{ExecError, MAX_CALL_DEPTH, run_function};
use compiler::plan::{Plan, Step};
use compiler::tensor::Tensor;
use compiler::text::{parse_module, random_tensor};
use runtime_gpu::{Gpu, GpuError, HostFunctions, Session, SessionOptions};
use shaders_gen::Emitter;
use std::sync::Arc;

fn gpu() -> Arc<Gpu> {
    test_device().unwrap_or_else(|e| panic!("{e}"))
}

fn module(text: &str) -> Module {
    parse_module(text).unwrap_or_else(|e| panic!("{e}"))
}

fn compiled(m: &Module) -> Compiled {
    compile(m.clone(), &CompileOptions::default(), &gpu().profile, &Emitter, &mut |_, _, _| ())
        .unwrap_or_else(|e| panic!("{e}"))
}

fn open(plan: &Plan, m: &Module, options: &SessionOptions) -> Session {
    Session::open(gpu(), plan, m, options, &mut |_, _, _| ()).unwrap_or_else(|e| panic!("{e}"))
}

fn close(got: &[Tensor], want: &[Tensor]) {
    assert_eq!(got.len(), want.len());
    for (g, w) in got.iter().zip(want) {
        assert_eq!(g.shape(), w.shape());
        let (g, w) = (g.to_f32_vec(), w.to_f32_vec());
        assert!(g.iter().zip(&w).all(|(a, b)| (a - b).abs() <= 1e-4 * (1.0 + b.abs())), "{g:?} {w:?}");
    }
}

/// The interpreter, with a stack for the deepest calls in a build without optimisation.
fn interpreted(m: &Module, inputs: &[Tensor]) -> Result<Vec<Tensor>, ExecError> {
    std::thread::scope(|s| {
        let run = || run_function(m, m.entry, inputs);
        let thread = std::thread::Builder::new().stack_size(64 << 20).spawn_scoped(s, run);
        thread.unwrap_or_else(|e| panic!("{e}")).join().unwrap_or_else(|_| panic!("the interpreter panicked"))
    })
}

/// Runs of one session at these depths, in this order, agree with the interpreter.
fn agrees(m: &Module, depths: &[i64], shapes: &[&[usize]]) -> Session {
    let c = compiled(m);
    let calls = c.plan.all_steps().iter().filter(|s| matches!(s, Step::Call(_))).count();
    assert!(calls > 0 && !c.plan.functions.is_empty(), "{:?}", c.plan.steps);
    let session = open(&c.plan, &c.module, &SessionOptions::default());
    for (seed, &n) in depths.iter().enumerate() {
        let drawn = shapes.iter().enumerate().map(|(i, s)| random_tensor(DType::F32, s, (7 * seed + i) as u64));
        let inputs: Vec<Tensor> = [Tensor::scalar(n)].into_iter().chain(drawn).collect();
        let want = interpreted(m, &inputs).unwrap_or_else(|e| panic!("{e}"));
        let got = session.run(&inputs).unwrap_or_else(|e| panic!("depth {n}: {e}"));
        close(&got, &want);
    }
    session
}

/// What is computed before the call is needed behind it, at every depth: `%h`, `%s` and `%x` live across it.
const POWER: &str = "entry @main
const @one : i64[] = [1]
const @zero : i64[] = [0]
const @scale : f32[] = [0.3]
graph @power(%n: i64[], %w: f32[8,8], %x: f32[4,8]) -> (f32[4,8], f32[4,8]) {
  %zero = const @zero
  %c = greater %n, %zero
  %r, %t = if %c : f32[4,8], f32[4,8] {
    %one = const @one
    %scale = const @scale
    %m = sub %n, %one
    %h = tanh %x
    %s = mul %h, %scale
    %i, %u = call @power %m, %w, %h : f32[4,8], f32[4,8]
    %j = matmul %i, %w
    %k = mul %j, %scale
    %l = add %k, %s
    %v = add %u, %x
    yield %l, %v
  } {
    yield %x, %x
  }
  return %r, %t
}
graph @main(%n: i64[], %w: f32[8,8], %x: f32[4,8]) -> (y: f32[4,8], z: f32[4,8]) {
  %0, %2 = call @power %n, %w, %x : f32[4,8], f32[4,8]
  %1 = relu %0
  return %1, %2
}
";

#[test]
fn tensors_live_across_calls_at_every_depth() {
    // Deep first: what a run allocated serves later ones.
    agrees(&module(POWER), &[1, 2, 50, 0, 3, 50, 254], &[&[8, 8], &[4, 8]]);
}

#[test]
fn too_deep_is_an_error_and_leaves_nothing_behind() {
    let m = module(POWER);
    let session = agrees(&m, &[2], &[&[8, 8], &[4, 8]]);
    let inputs = |n: i64| {
        let (w, x) = (random_tensor(DType::F32, &[8, 8], 1), random_tensor(DType::F32, &[4, 8], 2));
        vec![Tensor::scalar(n), w, x]
    };
    for n in [255, 100_000] {
        let e = session.run(&inputs(n)).expect_err("is too deep");
        assert!(matches!(e, GpuError::Depth { most: MAX_CALL_DEPTH, .. }), "{e}");
        assert_eq!(e.to_string(), interpreted(&m, &inputs(n)).expect_err("is too deep").to_string());
    }
    let want = run_function(&m, m.entry, &inputs(3)).unwrap_or_else(|e| panic!("{e}"));
    close(&session.run(&inputs(3)).unwrap_or_else(|e| panic!("{e}")), &want);
}

#[test]
fn functions_call_each_other() {
    let m = module(
        "entry @main
const @one : i64[] = [1]
const @zero : i64[] = [0]
graph @even(%n: i64[], %x: f32[16]) -> (f32[16], bool[]) {
  %zero = const @zero
  %c = greater %n, %zero
  %r, %p = if %c : f32[16], bool[] {
    %one = const @one
    %m = sub %n, %one
    %a = tanh %x
    %b, %q = call @odd %m, %a : f32[16], bool[]
    %d = sub %b, %x
    yield %d, %q
  } {
    %t = equal %zero, %zero
    yield %x, %t
  }
  return %r, %p
}
graph @odd(%n: i64[], %x: f32[16]) -> (f32[16], bool[]) {
  %zero = const @zero
  %c = greater %n, %zero
  %r, %p = if %c : f32[16], bool[] {
    %one = const @one
    %m = sub %n, %one
    %a = sigmoid %x
    %b, %q = call @even %m, %a : f32[16], bool[]
    %d = add %b, %a
    yield %d, %q
  } {
    %t = greater %zero, %zero
    %e = neg %x
    yield %e, %t
  }
  return %r, %p
}
graph @main(%n: i64[], %x: f32[16]) -> (y: f32[16], p: bool[], z: f32[16]) {
  %0, %1 = call @even %n, %x : f32[16], bool[]
  %2, %3 = call @odd %n, %0 : f32[16], bool[]
  %4 = mul %2, %0
  return %0, %1, %4
}
",
    );
    agrees(&m, &[1, 2, 50, 0, 7], &[&[16]]);
}

/// Two calls of each depth, around them loops inside the function and a call inside a loop.
#[test]
fn calls_stand_in_loops_and_loops_in_calls() {
    let m = module(
        "entry @main
const @one : i64[] = [1]
const @zero : i64[] = [0]
const @half : f32[] = [0.5]
graph @tree(%n: i64[], %x: f32[8]) -> f32[8] {
  %zero = const @zero
  %c = greater %n, %zero
  %r = if %c : f32[8] {
    %one = const @one
    %half = const @half
    %m = sub %n, %one
    %a = loop %n, _, %x : f32[8] (%i: i64[], %v: f32[8]) {
      %0 = sin %v
      %1 = add %0, %half
      yield %1
    }
    %b = call @tree %m, %a : f32[8]
    %d = loop _, _, %b {trips=2} : f32[8] (%j: i64[], %w: f32[8]) {
      %2 = mul %w, %half
      %3 = call @tree %m, %2 : f32[8]
      %4 = add %3, %a
      yield %4
    }
    %e = add %d, %x
    yield %e
  } {
    %f = tanh %x
    yield %f
  }
  return %r
}
graph @main(%n: i64[], %x: f32[8]) -> (y: f32[8]) {
  %0 = loop _, _, %x {trips=3} : f32[8] (%i: i64[], %v: f32[8]) {
    %1 = call @tree %n, %v : f32[8]
    %2 = tanh %1
    yield %2
  }
  return %0
}
",
    );
    agrees(&m, &[1, 2, 3, 0, 2], &[&[8]]);
}

/// A host function fails somewhere below: the session is right the next time.
#[test]
fn a_run_that_fails_inside_a_call_leaves_nothing_behind() {
    const TEXT: &str = "entry @main
const @one : i64[] = [1]
const @zero : i64[] = [0]
graph @down(%n: i64[], %x: f32[8]) -> f32[8] {
  %zero = const @zero
  %c = greater %n, %zero
  %r = if %c : f32[8] {
    %one = const @one
    %m = sub %n, %one
    %a = loop _, _, %x {trips=3} : f32[8] (%i: i64[], %v: f32[8]) {
      %0 = sin %v
      %1 = call @down %m, %0 : f32[8]
      yield %1
    }
    %b = call_host @check %a {dtypes=[f32], shapes=[[8]]} : f32[8]
    %d = add %b, %x
    yield %d
  } {
    yield %x
  }
  return %r
}
graph @main(%n: i64[], %x: f32[8]) -> (y: f32[8]) {
  %0 = call @down %n, %x : f32[8]
  return %0
}
";
    let m = module(TEXT);
    let c = compiled(&m);
    let calls = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let count = calls.clone();
    let mut functions = HostFunctions::new();
    functions.register("check", move |t| match count.fetch_add(1, std::sync::atomic::Ordering::Relaxed) {
        1 => Err("the second call fails".into()),
        _ => Ok(t.to_vec()),
    });
    let options = SessionOptions { host_functions: functions, ..SessionOptions::default() };
    let session = open(&c.plan, &c.module, &options);
    let inputs = [Tensor::scalar(2i64), random_tensor(DType::F32, &[8], 3)];
    let e = session.run(&inputs).expect_err("fails").to_string();
    assert!(e.contains("the second call fails"), "{e}");
    let plain = module(
        &TEXT
            .replace("call_host @check %a {dtypes=[f32], shapes=[[8]]}", "mul %a, %y")
            .replace("    %m = sub", "    %y = const @unit\n    %m = sub")
            .replace("const @one :", "const @unit : f32[] = [1.0]\nconst @one :"),
    );
    let want = run_function(&plain, plain.entry, &inputs).unwrap_or_else(|e| panic!("{e}"));
    close(&session.run(&inputs).unwrap_or_else(|e| panic!("{e}")), &want);
}

/// A saved plan has the functions too; host steps inside them find their nodes again.
#[test]
fn a_saved_plan_calls_the_same() {
    let m = module(POWER);
    let c = compiled(&m);
    let bytes = c.plan.to_bytes(&Emitter).unwrap_or_else(|e| panic!("{e}"));
    let mut plan = Plan::from_bytes(&bytes, &Emitter).unwrap_or_else(|e| panic!("{e}"));
    let graph = compile_graph(m.clone(), &CompileOptions::default(), &gpu().profile).unwrap_or_else(|e| panic!("{e}"));
    bind_host_steps(&mut plan, &graph.module).unwrap_or_else(|e| panic!("{e}"));
    let session = open(&plan, &graph.module, &SessionOptions::default());
    let (w, x) = (random_tensor(DType::F32, &[8, 8], 1), random_tensor(DType::F32, &[4, 8], 2));
    let inputs = [Tensor::scalar(5i64), w, x];
    let want = run_function(&m, m.entry, &inputs).unwrap_or_else(|e| panic!("{e}"));
    close(&session.run(&inputs).unwrap_or_else(|e| panic!("{e}")), &want);
}

/// One compilation serves any batch, at any depth. Here the entry function calls itself.
#[test]
fn sizes_may_be_open() {
    let m = module(&POWER.replace("f32[4,8]", "f32[n,8]").replace("entry @main", "entry @power"));
    let c = compiled(&m);
    let open_plan = c.open.clone().expect("the batch is open");
    for (n, batch) in [(3i64, 2i64), (1, 7), (6, 2)] {
        let (plan, _) = open_plan.at(&[("n".into(), batch)]).unwrap_or_else(|e| panic!("{e}"));
        let session = open(&plan, &c.module, &SessionOptions::default());
        let w = random_tensor(DType::F32, &[8, 8], 1);
        let inputs = [Tensor::scalar(n), w, random_tensor(DType::F32, &[batch as usize, 8], 2)];
        let want = run_function(&m, m.entry, &inputs).unwrap_or_else(|e| panic!("{e}"));
        close(&session.run(&inputs).unwrap_or_else(|e| panic!("{e}")), &want);
    }
}

/// A function with what it captured goes from call to call of a recursive function, as operands that stay on the
/// device.
#[test]
fn closures_are_passed_down_recursion() {
    let m = module(
        "entry @main
const @one : i64[] = [1]
const @zero : i64[] = [0]
graph @fold(%f: function(f32[8], f32[8]) -> f32[8], %n: i64[], %step: f32[8], %x: f32[8]) -> f32[8] {
  %zero = const @zero
  %c = greater %n, %zero
  %r = if %c : f32[8] {
    %one = const @one
    %m = sub %n, %one
    %a = apply %f, %x, %step
    %b = call @fold %f, %m, %step, %a : f32[8]
    %d = apply %f, %b, %a
    yield %d
  } {
    yield %x
  }
  return %r
}
graph @main(%n: i64[], %w: f32[8,8], %s: f32[8], %x: f32[8]) -> (y: f32[8], z: f32[8]) {
  %zero = const @zero
  %t = sin %s
  %c = greater %n, %zero
  %f = lambda : function(f32[8], f32[8]) -> f32[8] (%a: f32[8], %b: f32[8]) {
    %0 = matmul %w, %a
    %1 = tanh %0
    %2 = add %1, %b
    yield %2
  }
  %g = if %c : function(f32[8], f32[8]) -> f32[8] {
    %u = exp %t
    %h = lambda : function(f32[8], f32[8]) -> f32[8] (%p: f32[8], %q: f32[8]) {
      %3 = mul %p, %u
      %4 = max %3, %q
      %5 = tanh %4
      yield %5
    }
    yield %h
  } {
    yield %f
  }
  %y = call @fold %f, %n, %t, %x : f32[8]
  %z = call @fold %g, %n, %s, %x : f32[8]
  return %y, %z
}
",
    );
    agrees(&m, &[1, 2, 50, 0], &[&[8, 8], &[8], &[8]]);
}
