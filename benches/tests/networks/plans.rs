//! Steps of plans other than dispatches, on the device: host functions on its buffers, branches, sizes that are known
//! only at run time, tensors that stay on the device, parallel runs.

use benches::test_device::test_device;
use compiler::compile::{CompileOptions, Compiled, compile, split_network};
use compiler::dtype::DType;
use compiler::graph::Module;
use compiler::int::DimRanges;
use compiler::interpreter::run_function;
use compiler::plan::Step;
use compiler::tensor::Tensor;
use compiler::text::{parse_module, random_tensor};
use runtime_gpu::wgpu::{BufferUsages, ComputePipelineDescriptor, ShaderModuleDescriptor, ShaderSource};
use runtime_gpu::{
    DeviceCall, DeviceTensor, Doing, Gpu, GpuError, HostFunctions, Part, Ran, Recorder, RunInput, Session,
    SessionOptions, Span, Staged,
};
use shaders_gen::Emitter;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

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

fn open(c: &Compiled, options: &SessionOptions) -> Result<Session, GpuError> {
    Session::open(gpu(), &c.plan, &c.module, options, &mut |_, _, _| ())
}

fn floats(n: usize, seed: u64) -> Tensor {
    random_tensor(DType::F32, &[n], seed)
}

fn close(got: &[f32], want: &[f32]) {
    assert_eq!(got.len(), want.len());
    assert!(got.iter().zip(want).all(|(a, b)| (a - b).abs() <= 1e-4 * (1.0 + b.abs())), "{got:?} {want:?}");
}

const NEGATE: &str = "@group(0) @binding(0) var<storage, read_write> x: array<f32>;
@compute @workgroup_size(64) fn negate(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x < arrayLength(&x) { x[id.x] = -x[id.x]; }
}";

/// `negate` in place on device buffers.
fn negating() -> HostFunctions {
    let mut functions = HostFunctions::new();
    functions.register_on_device("negate", |gpu| {
        let descriptor = ShaderModuleDescriptor { label: None, source: ShaderSource::Wgsl(NEGATE.into()) };
        let pipeline = gpu.device().create_compute_pipeline(&ComputePipelineDescriptor {
            label: None,
            layout: None,
            module: &gpu.device().create_shader_module(descriptor),
            entry_point: None,
            compilation_options: Default::default(),
            cache: None,
        });
        Ok(move |call: &mut DeviceCall<'_>| {
            call.dispatch(&pipeline, [1, 1, 1]);
            Ok(())
        })
    });
    functions
}

#[test]
fn a_device_function_in_place_takes_the_buffer_or_a_copy() {
    let call = "{dtypes=[f32], shapes=[[64]], on_device=true, in_place=[0]} : f32[64]";
    let m = module(&format!(
        "graph @main(%x: f32[64]) -> (y: f32[64], z: f32[64]) {{\n  %0 = tanh %x\n  %1 = call_host @negate %0 {call}\n  \
         %2 = add %1, %1\n  %3 = sub %2, %0\n  %4 = call_host @negate %3 {call}\n  %5 = call_host @negate %x {call}\n  \
         return %4, %5\n}}\n"
    ));
    let c = compiled(&m);
    let copies = c.plan.steps.iter().filter(|s| matches!(s, Step::Copy { .. })).count();
    // Of %0, which is needed later, and of the input; not of %3.
    assert_eq!(copies, 2, "{:?}", c.plan.steps);
    let options = SessionOptions { host_functions: negating(), ..SessionOptions::default() };
    let session = open(&c, &options).unwrap_or_else(|e| panic!("{e}"));
    assert!(!session.has_host_steps());
    let x = floats(64, 1);
    for _ in 0..2 {
        let got = session.run(std::slice::from_ref(&x)).unwrap_or_else(|e| panic!("{e}"));
        let x = x.to_f32_vec();
        close(&got[0].to_f32_vec(), &x.iter().map(|x| 3.0 * x.tanh()).collect::<Vec<_>>());
        close(&got[1].to_f32_vec(), &x.iter().map(|x| -x).collect::<Vec<_>>());
    }
    let mut on_tensors = HostFunctions::new();
    on_tensors.register("negate", |t| Ok(t.to_vec()));
    for (functions, says) in [(HostFunctions::new(), "is not registered"), (on_tensors, "and it takes tensors")] {
        let options = SessionOptions { host_functions: functions, ..SessionOptions::default() };
        let e = open(&c, &options).err().expect("is refused").to_string();
        assert!(e.contains(says), "{e}");
    }
}

#[test]
fn what_the_device_refuses_is_an_error() {
    let m = module(
        "graph @main(%x: f32[64]) -> (y: f32[64]) {\n  %0 = call_host @mine %x {dtypes=[f32], shapes=[[64]], on_device=true} : f32[64]\n  \
         return %0\n}\n",
    );
    let c = compiled(&m);
    let with = |source: &'static str| {
        let mut functions = HostFunctions::new();
        functions.register_on_device("mine", move |gpu| {
            let descriptor = ShaderModuleDescriptor { label: None, source: ShaderSource::Wgsl(source.into()) };
            let pipeline = gpu.device().create_compute_pipeline(&ComputePipelineDescriptor {
                label: None,
                layout: None,
                module: &gpu.device().create_shader_module(descriptor),
                entry_point: None,
                compilation_options: Default::default(),
                cache: None,
            });
            Ok(move |call: &mut DeviceCall<'_>| {
                call.dispatch(&pipeline, [1, 1, 1]);
                Ok(())
            })
        });
        open(&c, &SessionOptions { host_functions: functions, ..SessionOptions::default() })
    };
    let e = with("no shader").err().expect("is refused").to_string();
    assert!(e.contains("the host function `mine`"), "{e}");
    // One buffer where there are two.
    let session = with(NEGATE).unwrap_or_else(|e| panic!("{e}"));
    let e = session.run(&[floats(64, 1)]).expect_err("is refused").to_string();
    assert!(e.contains("bindings"), "{e}");
}

#[test]
fn a_branch_reads_its_condition_alone() {
    let m = module(
        "const @k : f32[64] = random(3)\ngraph @main(%c: bool[], %d: bool[], %x: f32[64]) -> (y: f32[64], z: f32[64]) {
  %k = const @k
  %0 = tanh %x
  %1, %2 = if %c : f32[64], f32[64] {
    %3 = exp %0
    %4 = if %d : f32[64] {
      %5 = add %3, %0
      yield %5
    } {
      yield %x
    }
    yield %4, %3
  } {
    yield %0, %k
  }
  %6 = mul %1, %2
  return %6, %2
}
",
    );
    let c = compiled(&m);
    assert!(c.plan.steps.iter().any(|s| matches!(s, Step::Branch(_))), "{:?}", c.plan.steps);
    assert!(!c.plan.all_steps().iter().any(|s| matches!(s, Step::Host(_))), "{:?}", c.plan.steps);
    let session = open(&c, &SessionOptions::default()).unwrap_or_else(|e| panic!("{e}"));
    for (first, second) in [(1.0, 1.0), (0.0, 1.0), (1.0, 0.0), (0.0, 0.0)] {
        let flag = |v| Tensor::from_f64(DType::Bool, vec![], [v]);
        let inputs = [flag(first), flag(second), floats(64, 2)];
        let want = run_function(&m, m.entry, &inputs).unwrap_or_else(|e| panic!("{e}"));
        let got = session.run(&inputs).unwrap_or_else(|e| panic!("{e}"));
        for (g, w) in got.iter().zip(&want) {
            close(&g.to_f32_vec(), &w.to_f32_vec());
        }
    }
}

const LOOPS: &str = "const @w : f32[8,8] = random(5)
const @s : f32[] = [0.1]
graph @main(%x: f32[4,8], %n: i64[], %q: f32[9,4,8]) -> (y: f32[4,8], rows: f32[trips,4,8], z: f32[4,8]) {
  %w = const @w
  %s = const @s
  %0 = tanh %x
  %1, %2, %3 = loop %n, _, %0, %x {count=trips} : f32[4,8], f32[4,8], f32[trips,4,8] (%i: i64[], %a: f32[4,8], %b: f32[4,8]) {
    %scaled = mul %a, %s
    %4 = matmul %scaled, %w
    %5 = add %4, %0
    %6 = tanh %5
    yield %b, %6, %5
  }
  %7 = loop _, _, %0 {trips=9} : f32[4,8] (%j: i64[], %c: f32[4,8]) {
    %8 = gather %q, %j {axis=0}
    %9 = loop %n, _, %8 : f32[4,8] (%k: i64[], %d: f32[4,8]) {
      %10 = add %d, %c
      %11 = tanh %10
      yield %11
    }
    %12 = mul %9, %s
    yield %12
  }
  %13 = add %7, %2
  return %1, %3, %13
}
";

/// What is carried changes places, also where an iteration hands it on as it is; loops stand in loops; rows grow.
#[test]
fn loops_of_any_length_are_right() {
    let m = module(LOOPS);
    let c = compiled(&m);
    assert!(!c.plan.all_steps().iter().any(|s| matches!(s, Step::Host(_))), "{:?}", c.plan.steps);
    let session = open(&c, &SessionOptions::default()).unwrap_or_else(|e| panic!("{e}"));
    let mut drawn: Vec<i64> =
        (0..6).map(|seed| random_tensor(DType::I64, &[], seed).to_i64_vec()[0].rem_euclid(40)).collect();
    drawn.extend([0, 1, 2, 1100]);
    for (seed, n) in drawn.into_iter().enumerate() {
        let draw = |shape: &[usize], other| random_tensor(DType::F32, shape, 3 * seed as u64 + other);
        let inputs = [draw(&[4, 8], 0), Tensor::scalar(n), draw(&[9, 4, 8], 1)];
        let want = run_function(&m, m.entry, &inputs).unwrap_or_else(|e| panic!("{e}"));
        let got = session.run(&inputs).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(got[1].shape(), [n as usize, 4, 8]);
        for (g, w) in got.iter().zip(&want) {
            close(&g.to_f32_vec(), &w.to_f32_vec());
        }
    }
}

/// Of each iteration one bool is read, and nothing of what is carried.
#[test]
fn a_loop_ends_when_its_condition_says() {
    let m = module(
        "const @limit : f32[] = [0.01]
graph @main(%x: f32[64], %factor: f32[], %begin: bool[]) -> (y: f32[64], before: f32[64], sums: f32[trips]) {
  %limit = const @limit
  %0, %1, %2 = loop _, %begin, %x, %x {while=true, count=trips, trips=100} : f32[64], f32[64], f32[trips] (%i: i64[], %a: f32[64], %b: f32[64]) {
    %3 = mul %a, %factor
    %4 = abs %3
    %5 = reduce %4 {kind=max, axes=[0]}
    %6 = greater %5, %limit
    yield %6, %3, %a, %5
  }
  return %0, %1, %2
}
",
    );
    let c = compiled(&m);
    assert!(!c.plan.all_steps().iter().any(|s| matches!(s, Step::Host(_))), "{:?}", c.plan.steps);
    let session = open(&c, &SessionOptions::default()).unwrap_or_else(|e| panic!("{e}"));
    let mut lengths = vec![];
    for (factor, begin) in [(0.5f32, 1.0), (0.93, 1.0), (0.0, 1.0), (1.0, 1.0), (0.5, 0.0), (0.7, 1.0)] {
        let flag = Tensor::from_f64(DType::Bool, vec![], [begin]);
        let inputs = [floats(64, 4), Tensor::scalar(factor), flag];
        let want = run_function(&m, m.entry, &inputs).unwrap_or_else(|e| panic!("{e}"));
        let got = session.run(&inputs).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(got[2].shape(), want[2].shape());
        lengths.push(got[2].len());
        for (g, w) in got.iter().zip(&want) {
            close(&g.to_f32_vec(), &w.to_f32_vec());
        }
    }
    assert!(lengths.contains(&0) && lengths.contains(&1) && lengths.contains(&100), "{lengths:?}");
}

/// A host function in a loop sees each iteration's values, and its failure leaves a session that is right the next
/// time.
#[test]
fn a_run_that_fails_inside_a_loop_leaves_nothing_behind() {
    let m = module(
        "graph @main(%x: f32[64]) -> (y: f32[64]) {
  %0 = loop _, _, %x {trips=7} : f32[64] (%i: i64[], %a: f32[64]) {
    %1 = tanh %a
    %2 = call_host @check %1 {dtypes=[f32], shapes=[[64]]} : f32[64]
    %3 = exp %2
    yield %3
  }
  return %0
}
",
    );
    let c = compiled(&m);
    let calls = Arc::new(AtomicUsize::new(0));
    let count = calls.clone();
    let mut functions = HostFunctions::new();
    functions.register("check", move |t| match count.fetch_add(1, Ordering::Relaxed) {
        2 => Err("the third call fails".into()),
        _ => Ok(t.to_vec()),
    });
    let options = SessionOptions { host_functions: functions, ..SessionOptions::default() };
    let session = open(&c, &options).unwrap_or_else(|e| panic!("{e}"));
    let x = floats(64, 2);
    let e = session.run(std::slice::from_ref(&x)).expect_err("fails").to_string();
    assert!(e.contains("the third call fails"), "{e}");
    let got = session.run(std::slice::from_ref(&x)).unwrap_or_else(|e| panic!("{e}"));
    let step = |v: Vec<f32>| v.into_iter().map(|v| v.tanh().exp()).collect();
    close(&got[0].to_f32_vec(), &(0..7).fold(x.to_f32_vec(), |v, _| step(v)));
    assert_eq!(calls.load(Ordering::Relaxed), 3 + 7);
}

#[test]
fn sizes_that_a_run_decides_are_planned_once_each() {
    let m = module(
        "const @w : f32[16,64] = random(4)\ngraph @main(%x: f32[8,16]) -> (y: f32[found,2], z: f32[8,64]) {
  %w = const @w
  %0 = matmul %x, %w
  %1 = relu %0
  %2 = non_zero %1 {count=found} : i64[2,found]
  %3 = transpose %2 {perm=[1,0]} : i64[found,2]
  %4 = cast %3 {to=f32} : f32[found,2]
  %5 = tanh %4
  return %5, %1
}
",
    );
    let stages = split_network(&m).unwrap_or_else(|e| panic!("{e}")).expect("it has parts");
    let opened = Arc::new(AtomicUsize::new(0));
    let count = opened.clone();
    let part = move |m: Module| -> Result<Part<GpuError>, GpuError> {
        count.fetch_add(1, Ordering::Relaxed);
        Ok(Part::Session(Box::new(open(&compiled(&m), &SessionOptions::default())?.into())))
    };
    let staged = Staged::open(stages, DimRanges::default(), HostFunctions::new(), Arc::new(part))
        .unwrap_or_else(|e| panic!("{e}"));
    for (seed, sizes) in [(1, 2), (2, 3), (1, 3), (2, 3)] {
        let x = [random_tensor(DType::F32, &[8, 16], seed)];
        let want = run_function(&m, m.entry, &x).unwrap_or_else(|e| panic!("{e}"));
        let got = staged.run(&x).unwrap_or_else(|e: GpuError| panic!("{e}"));
        for (g, w) in got.iter().zip(&want) {
            assert_eq!(g.shape(), w.shape());
            close(&g.to_f32_vec(), &w.to_f32_vec());
        }
        // The first part, and one for each list of sizes.
        assert_eq!(opened.load(Ordering::Relaxed), sizes);
    }
    assert!(staged.has_device_steps() && staged.sizes_kept() == 2);
}

#[test]
fn branches_of_different_shapes_are_parts() {
    let m = module(
        "const @w : f32[8,16] = random(4)\ngraph @main(%x: f32[6,8], %deep: bool[]) -> (y: f32[n,16], z: f32[], u: f32[6,16]) {
  %w = const @w
  %0 = matmul %x, %w : f32[6,16]
  %1 = reduce %0 {kind=sum, axes=[0,1]} : f32[]
  %zero = full {value=0.0, dtype=f32}
  %2 = greater %1, %zero : bool[]
  %3 = if %2 {shapes=[[`n`,16]], dims=[n]} : f32[n,16] {
    %4 = if %deep {shapes=[[`m`,16]], dims=[m]} : f32[m,16] {
      %5 = concat %0, %0 {axis=0} : f32[12,16]
      %6 = matmul %5, %w2 : f32[12,16]
      yield %6
    } {
      %7 = tanh %0
      yield %7
    }
    %8 = exp %4
    yield %8
  } {
    %9 = slice %0 {axes=[0], starts=[1], ends=[3]}
    %10 = relu %9
    yield %10
  }
  %11 = add %3, %3
  %12 = reduce %11 {kind=mean, axes=[0,1]} : f32[]
  return %11, %12, %0
}
"
        .replace("%w = const @w", "%w = const @w\n  %w2 = const @w2")
        .replace("const @w :", "const @w2 : f32[16,16] = random(5)\nconst @w :")
        .as_str(),
    );
    let stages = split_network(&m).unwrap_or_else(|e| panic!("{e}")).expect("it has parts");
    let opened = Arc::new(AtomicUsize::new(0));
    let count = opened.clone();
    let staged = Staged::open(stages, DimRanges::default(), HostFunctions::new(), parts(count))
        .unwrap_or_else(|e| panic!("{e}"));
    let mut rows = vec![];
    for (seed, deep) in [(1, true), (1, false), (2, true), (3, true), (2, false), (4, true)] {
        let x = [random_tensor(DType::F32, &[6, 8], seed), Tensor::from_f64(DType::Bool, vec![], [f64::from(deep)])];
        let want = run_function(&m, m.entry, &x).unwrap_or_else(|e| panic!("{e}"));
        let got = staged.run(&x).unwrap_or_else(|e: GpuError| panic!("{e}"));
        for (g, w) in got.iter().zip(&want) {
            assert_eq!(g.shape(), w.shape());
            close(&g.to_f32_vec(), &w.to_f32_vec());
        }
        rows.push(got[0].shape()[0]);
    }
    // All three branches were taken; each was compiled once, behind what comes before.
    for n in [2, 6, 12] {
        assert!(rows.contains(&n), "{rows:?}");
    }
    assert!(staged.has_device_steps() && !staged.has_host_steps());
    assert_eq!(staged.sizes_kept(), 2);
    assert_eq!(opened.load(Ordering::Relaxed), 4);
}

/// Opens parts on the device, in parts again where they decide sizes, and counts those that are whole.
fn parts(count: Arc<AtomicUsize>) -> Arc<dyn Fn(Module) -> Result<Part<GpuError>, GpuError> + Send + Sync> {
    Arc::new(move |m: Module| {
        if let Some(stages) = split_network(&m).unwrap_or_else(|e| panic!("{e}")) {
            let inner = Staged::open(stages, DimRanges::default(), HostFunctions::new(), parts(count.clone()))?;
            return Ok(Part::Staged(Box::new(inner)));
        }
        count.fetch_add(1, Ordering::Relaxed);
        Ok(Part::Session(Box::new(open(&compiled(&m), &SessionOptions::default())?.into())))
    })
}

#[test]
fn chained_sessions_leave_tensors_on_the_device() {
    let m = module("graph @main(%x: f32[256]) -> (y: f32[256]) {\n  %0 = exp %x\n  %1 = tanh %0\n  return %1\n}\n");
    let c = compiled(&m);
    let options = SessionOptions { runs_in_flight: 2, ..SessionOptions::default() };
    let [first, second] = [0, 1].map(|_| open(&c, &options).unwrap_or_else(|e| panic!("{e}")));
    let twice = |x: &Tensor| x.to_f32_vec().iter().map(|x| x.exp().tanh().exp().tanh()).collect::<Vec<f32>>();
    pollster::block_on(async {
        for seed in 0..3 {
            let x = floats(256, seed);
            let a = first.run_on_device(&[RunInput::Host(&x)]).await.unwrap_or_else(|e| panic!("{e}"));
            // Another run while the results of the first are held.
            let other = first.run(&[floats(256, 99)]).unwrap_or_else(|e| panic!("{e}"));
            assert_eq!(other[0].shape(), [256]);
            let between = a.tensor(0);
            let b = second.run_on_device(&[RunInput::Device(&between)]).await.unwrap_or_else(|e| panic!("{e}"));
            let got = b.read().await.unwrap_or_else(|e| panic!("{e}"));
            close(&got[0].to_f32_vec(), &twice(&x));
        }
        // A buffer of one's own; and what does not fit.
        let own = |size, usage| {
            let buffer = wgpu_buffer(size, usage);
            DeviceTensor::from_buffer(buffer, DType::F32, &[256])
        };
        let zeros = own(1024, BufferUsages::STORAGE | BufferUsages::COPY_DST);
        let out = second.run_on_device(&[RunInput::Device(&zeros)]).await.unwrap_or_else(|e| panic!("{e}"));
        close(&out.read().await.unwrap_or_else(|e| panic!("{e}"))[0].to_f32_vec(), &[1f32.tanh(); 256]);
        drop(out);
        for wrong in [own(512, BufferUsages::STORAGE), own(1024, BufferUsages::COPY_DST)] {
            let e = second.run_on_device(&[RunInput::Device(&wrong)]).await.err().expect("is refused").to_string();
            assert!(e.contains("cannot be bound"), "{e}");
        }
        // Inputs from the host have their own buffer again.
        let x = floats(256, 7);
        let got = second.run(std::slice::from_ref(&x)).unwrap_or_else(|e| panic!("{e}"));
        close(&got[0].to_f32_vec(), &x.to_f32_vec().iter().map(|x| x.exp().tanh()).collect::<Vec<_>>());
    });
}

fn wgpu_buffer(size: u64, usage: BufferUsages) -> runtime_gpu::wgpu::Buffer {
    let descriptor = runtime_gpu::wgpu::BufferDescriptor { label: None, size, usage, mapped_at_creation: false };
    gpu().device().create_buffer(&descriptor)
}

/// A loop whose body decides sizes runs by plans of its body, on the device and on the processor.
#[test]
fn a_loop_whose_body_decides_sizes_runs_by_its_body() {
    let text = "const @w : f32[8,8] = random(4)
const @scale : f32[] = [0.001]
graph @main(%x: f32[4,8], %n: i64[]) -> (h: f32[4,8], rows: f32[trips,8]) {
  %w = const @w
  %scale = const @scale
  %0 = tanh %x
  %1, %2 = loop %n, _, %0 {count=trips} : f32[4,8], f32[trips,8] (%i: i64[], %h: f32[4,8]) {
    %3 = matmul %h, %w
    %4 = relu %3
    %5 = non_zero %4 {count=found} : i64[2,found]
    %6 = cast %5 {to=f32} : f32[2,found]
    %7 = reduce %6 {kind=sum, axes=[0,1]} : f32[]
    %8 = mul %7, %scale
    %9 = add %4, %8
    %10 = tanh %9
    %11 = reduce %10 {kind=max, axes=[0]} : f32[8]
    yield %10, %11
  }
  %12 = add %1, %0
  return %12, %2
}
";
    let m = module(text);
    let processor = weft::Device::cpu(2).unwrap_or_else(|e| panic!("{e}"));
    for device in [weft::Device::Gpu(gpu()), processor] {
        let model = weft::Model::from_text(text).unwrap_or_else(|e| panic!("{e}"));
        let compiled = model.compile(&weft::Options::for_device(&device)).unwrap_or_else(|e| panic!("{e}"));
        let session = compiled.session(&device).unwrap_or_else(|e| panic!("{e}"));
        for (seed, trips) in [(1, 5_i64), (2, 1), (3, 0), (4, 9)] {
            let inputs = [random_tensor(DType::F32, &[4, 8], seed), Tensor::scalar(trips)];
            let want = run_function(&m, m.entry, &inputs).unwrap_or_else(|e| panic!("{e}"));
            let got = session.run_in_order(&inputs).unwrap_or_else(|e| panic!("{e}"));
            for (g, w) in got.iter().zip(&want) {
                assert_eq!(g.shape(), w.shape());
                close(&g.to_f32_vec(), &w.to_f32_vec());
            }
        }
        let inputs = [random_tensor(DType::F32, &[4, 8], 1), Tensor::scalar(5_i64)];
        let visited = session.visit_parts(&inputs, &mut |run| {
            assert!(!matches!(run.ran, Ran::Host(_)), "{} runs on the host", run.name);
            Ok(())
        });
        visited.unwrap_or_else(|e| panic!("{e}"));
        // Each kernel of the body is recorded in each of its turns.
        let recorder = Recorder::start();
        session.run_recorded(&inputs, &recorder).unwrap_or_else(|e| panic!("{e}"));
        let run = recorder.finish().unwrap_or_else(|e| panic!("{e}"));
        let of_body = |s: &&Span| s.part.contains("body") && matches!(s.what, Doing::Kernel(_));
        let turns = run.spans.iter().filter(of_body).count();
        assert!(turns > 0 && turns.is_multiple_of(5), "{turns} of {:?}", run.spans);
    }
}
