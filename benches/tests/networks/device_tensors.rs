//! Tensors that stay on the device: given buffers as inputs and results, the bytes that are copied, runs in flight, and
//! parts that sessions on one device share.

use benches::test_device::test_device;
use compiler::compile::{CompileOptions, Compiled, compile};
use compiler::dtype::DType;
use compiler::graph::{Constant, Module};
use compiler::name::Name;
use compiler::tensor::Tensor;
use compiler::text::{parse_module, random_tensor};
use runtime_gpu::wgpu::{self, BufferUsages};
use runtime_gpu::{
    DeviceOutputs, DeviceTensor, Gpu, GpuError, OpenSession, RunInput, Session, SessionOptions, Transfers,
};
use shaders_gen::Emitter;
use std::sync::Arc;

fn gpu() -> Arc<Gpu> {
    test_device().unwrap_or_else(|e| panic!("{e}"))
}

fn compiled(m: &Module) -> Compiled {
    let mut options = CompileOptions::default();
    options.dims.declare(Name::new("n"), 1, 64);
    compile(m.clone(), &options, &gpu().profile, &Emitter, &mut |_, _, _| ()).unwrap_or_else(|e| panic!("{e}"))
}

fn opened(c: &Compiled, runs_in_flight: usize) -> Session {
    let options = SessionOptions { runs_in_flight, ..SessionOptions::default() };
    Session::open(gpu(), &c.plan, &c.module, &options, &mut |_, _, _| ()).unwrap_or_else(|e| panic!("{e}"))
}

fn session(text: &str) -> Session {
    opened(&compiled(&parse_module(text).unwrap_or_else(|e| panic!("{e}"))), 2)
}

fn run(s: &Session, inputs: &[RunInput<'_>], outputs: &[Option<&DeviceTensor>]) -> Result<DeviceOutputs, GpuError> {
    pollster::block_on(s.run_bound(inputs, outputs))
}

fn read(outputs: &DeviceOutputs) -> Vec<Tensor> {
    pollster::block_on(outputs.read()).unwrap_or_else(|e| panic!("{e}"))
}

fn buffer(size: u64, usage: BufferUsages) -> wgpu::Buffer {
    gpu().device().create_buffer(&wgpu::BufferDescriptor { label: None, size, usage, mapped_at_creation: false })
}

fn floats(seed: u64) -> Tensor {
    random_tensor(DType::F32, &[100], seed)
}

/// Softmax reads the whole of its input before it writes, so its result is in other memory than its operand.
const TWO_RESULTS: &str = "graph @main(%x: f32[100]) -> (y: f32[100], z: f32[100]) {
  %0 = exp %x
  %1 = softmax %0 {axes=[0]}
  %2 = tanh %1
  return %2, %0
}
";

const BOTH: BufferUsages = BufferUsages::STORAGE.union(BufferUsages::COPY_SRC).union(BufferUsages::COPY_DST);

#[test]
fn results_are_written_to_given_buffers() {
    let s = session(TWO_RESULTS);
    let x = floats(1);
    let want = s.run(std::slice::from_ref(&x)).expect("runs");
    let x = RunInput::Host(&x);
    // Memory for 100 elements padded to 16 bytes, which is what the plan has.
    let own = [0, 1].map(|_| DeviceTensor::from_buffer(buffer(400, BOTH), DType::F32, &[100]));
    for (places, copied) in
        [([Some(&own[0]), Some(&own[1])], 0), ([None, Some(&own[0])], 0), ([Some(&own[1]), None], 0)]
    {
        let out = run(&s, &[x], &places).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(out.transfers(), Transfers { uploaded: 400, read_back: 0, copied });
        for (i, place) in places.iter().enumerate() {
            let same = place.is_some_and(|p| p.buffers() == out.tensor(i).buffers());
            assert_eq!(same, place.is_some(), "result {i} is where it was wanted");
        }
        assert_eq!(read(&out), want);
    }
    // Back in its own memory.
    let out = run(&s, &[x], &[]).unwrap_or_else(|e| panic!("{e}"));
    assert!(own.iter().all(|o| o.buffers() != out.tensor(0).buffers() && o.buffers() != out.tensor(1).buffers()));
    assert_eq!(read(&out), want);
}

#[test]
fn results_are_copied_where_kernels_cannot_write() {
    let s = session(TWO_RESULTS);
    let x = floats(2);
    let want = s.run(std::slice::from_ref(&x)).expect("runs");
    let only_copies =
        DeviceTensor::from_buffer(buffer(400, BufferUsages::COPY_DST | BufferUsages::COPY_SRC), DType::F32, &[100]);
    let out = run(&s, &[RunInput::Host(&x)], &[None, Some(&only_copies)]).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(out.transfers(), Transfers { uploaded: 400, read_back: 0, copied: 400 });
    assert_eq!(read(&out), want);
    assert_eq!(contents(&only_copies), want[1].to_f32_vec());
    drop(out);
    // The state of a recurrence: what goes in comes out in the same buffer.
    let state = s.input_on_device(0, &x).expect("uploads");
    let mut expected = x.clone();
    for _ in 0..3 {
        let out = run(&s, &[RunInput::Device(&state)], &[Some(&state), None]).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(out.transfers(), Transfers { uploaded: 0, read_back: 0, copied: 400 });
        expected = s.run(&[expected]).expect("runs").swap_remove(0);
    }
    assert_eq!(contents(&state), expected.to_f32_vec());
    // A result that is an input as it is has no memory of the run.
    let s = session("graph @main(%x: f32[100]) -> (x: f32[100], y: f32[100]) {\n  %0 = exp %x\n  return %x, %0\n}\n");
    let place = s.output_on_device(1).expect("a buffer");
    if let Ok(out) = run(&s, &[RunInput::Host(&x)], &[Some(&place), None]) {
        assert_eq!(out.transfers().copied, 400);
        assert_eq!(contents(&place), x.to_f32_vec());
    }
}

/// Floats in a buffer, by commands of one's own.
fn contents(t: &DeviceTensor) -> Vec<f32> {
    let gpu = gpu();
    let size = t.shape().iter().product::<usize>() as u64 * 4;
    let staging = buffer(size, BufferUsages::MAP_READ | BufferUsages::COPY_DST);
    let mut encoder = gpu.device().create_command_encoder(&Default::default());
    encoder.copy_buffer_to_buffer(&t.buffers()[0], 0, &staging, 0, size);
    gpu.queue().submit([encoder.finish()]);
    let (sender, mapped) = std::sync::mpsc::channel();
    staging.map_async(wgpu::MapMode::Read, .., move |r| drop(sender.send(r)));
    gpu.wait().expect("waits");
    mapped.recv().expect("is called").expect("maps");
    let view = staging.get_mapped_range(..).expect("is mapped");
    view.chunks_exact(4).map(|c| f32::from_le_bytes([c[0], c[1], c[2], c[3]])).collect()
}

#[test]
fn what_cannot_be_bound_is_refused() {
    let s = session(TWO_RESULTS);
    let x = floats(3);
    let want = s.run(std::slice::from_ref(&x)).expect("runs");
    let host = RunInput::Host(&x);
    let tensor = |size, usage, shape: &[usize]| DeviceTensor::from_buffer(buffer(size, usage), DType::F32, shape);
    let (small, whole) = (tensor(200, BOTH, &[100]), tensor(400, BOTH, &[100]));
    let (read_only, other) = (tensor(400, BufferUsages::COPY_SRC, &[100]), tensor(400, BOTH, &[50]));
    let refused = |outputs: &[Option<&DeviceTensor>], inputs: &[RunInput<'_>], why: &str| {
        let e = run(&s, inputs, outputs).err().unwrap_or_else(|| panic!("{why} is taken")).to_string();
        assert!(e.contains(why), "{e}");
    };
    refused(&[Some(&small), None], &[host], "needs 400 bytes");
    refused(&[Some(&read_only), None], &[host], "nor to be copied to");
    refused(&[Some(&other), None], &[host], "got a buffer for f32[50]");
    refused(&[Some(&whole), Some(&whole)], &[host], "another result is wanted in the same buffer");
    refused(&[Some(&whole)], &[host], "has 2 outputs, got places for 1");
    refused(&[], &[RunInput::Device(&small)], "cannot be bound");
    refused(&[], &[RunInput::Device(&read_only)], "not for storage");
    // A result whose run is over is memory that the next run writes.
    let alone = opened(&compiled(&parse_module(TWO_RESULTS).expect("text")), 1);
    let left = run(&alone, &[host], &[]).unwrap_or_else(|e| panic!("{e}")).tensor(1);
    let e = run(&alone, &[RunInput::Device(&left)], &[]).err().expect("is refused").to_string();
    assert!(e.contains("hold the outputs"), "{e}");
    // Nothing of this is left.
    assert_eq!(s.run(std::slice::from_ref(&x)).expect("runs"), want);
    assert_eq!(alone.run(&[x]).expect("runs"), want);
}

#[test]
fn an_integer_beyond_32_bits_is_refused_with_the_node_that_reads_it() {
    let s = session(
        "graph @main(%x: f32[100], %i: i64[100], %k: i64[100]) -> (y: f32[100], z: bool[100]) {
  %0 = exp %x
  %1 = greater %i, %k !from(\"Far_1\")
  return %0, %1
}
",
    );
    let x = DeviceTensor::from_buffer(buffer(400, BOTH), DType::F32, &[100]);
    let far = Tensor::from_vec(vec![100], vec![1i64 << 40; 100]);
    let inputs = [RunInput::Device(&x), RunInput::Host(&far), RunInput::Host(&far)];
    let e = run(&s, &inputs, &[]).err().expect("is refused").to_string();
    let parts = ["`i`", "1099511627776", "`Far_1`", "inputs and results in host memory, or one on `cpu`"];
    assert!(parts.iter().all(|part| e.contains(part)), "{e}");
}

#[test]
fn a_branch_copies_and_says_so() {
    let s = session(
        "graph @main(%x: f32[100], %c: bool[]) -> (y: f32[100]) {
  %0 = if %c : f32[100] {
    %1 = exp %x
    yield %1
  } {
    yield %x
  }
  return %0
}
",
    );
    let x = floats(4);
    for (taken, copied) in [(false, 400), (true, 0)] {
        let c = Tensor::from_f64(DType::Bool, vec![], [f64::from(u8::from(taken))]);
        let (results, times) = s.run_timed(&[x.clone(), c]).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(results[0].to_f32_vec()[7] == x.to_f32_vec()[7], !taken);
        assert!(times.moved.copied >= copied && times.moved.read_back >= 400, "{:?}", times.moved);
    }
}

#[test]
fn runs_in_flight_give_their_own_results() {
    let s = opened(&compiled(&parse_module(TWO_RESULTS).expect("text")), 3);
    let x: Vec<Tensor> = (0..30).map(floats).collect();
    let want: Vec<Vec<Tensor>> = x.iter().map(|x| s.run(std::slice::from_ref(x)).expect("runs")).collect();
    let submit = |x: &Tensor| pollster::block_on(s.submit(&[RunInput::Host(x)])).unwrap_or_else(|e| panic!("{e}"));
    // In whatever order they are waited for, by threads and by futures.
    for (three, want) in x.chunks(3).zip(want.chunks(3)) {
        let [a, b, c] = [0, 1, 2].map(|i| submit(&three[i]));
        assert_eq!(c.transfers(), Transfers { uploaded: 400, read_back: 800, copied: 0 });
        assert_eq!(pollster::block_on(c.results()).expect("runs"), want[2]);
        assert_eq!(a.wait().expect("runs"), want[0]);
        assert_eq!(b.wait().expect("runs"), want[1]);
    }
    // One that is dropped gives its turn to the next.
    for _ in 0..10 {
        drop(submit(&x[0]));
    }
    assert_eq!(s.run(&x[1..2]).expect("runs"), want[1]);
}

#[test]
fn open_sizes_stay_on_the_device() {
    let text =
        "graph @main(%x: f32[n,8]) -> (y: f32[n,8]) {\n  %0 = exp %x\n  %1 = softmax %0 {axes=[1]}\n  return %1\n}\n";
    let c = compiled(&parse_module(text).expect("text"));
    let options = SessionOptions { runs_in_flight: 2, ..SessionOptions::default() };
    let first = Session::open(gpu(), &c.plan, &c.module, &options, &mut |_, _, _| ()).expect("opens");
    let s = OpenSession::new(c.open.clone().expect("sizes are open"), first);
    for n in [3usize, 20, 3] {
        let x = random_tensor(DType::F32, &[n, 8], n as u64);
        let want = s.run(std::slice::from_ref(&x)).expect("runs");
        let twice = s.run(&want).expect("runs");
        let own = s.at(&[&[n, 8]]).expect("a session").output_on_device(0).expect("a buffer");
        pollster::block_on(async {
            let a = s.run_bound(&[RunInput::Host(&x)], &[]).await.expect("runs");
            let b = s.run_bound(&[RunInput::Device(&a.tensor(0))], &[Some(&own)]).await.expect("runs");
            assert_eq!(b.transfers(), Transfers::default());
            assert_eq!(b.read().await.expect("reads"), twice);
            drop((a, b));
            let [a, b] = [s.submit(&[RunInput::Host(&x)]).await, s.submit(&[RunInput::Host(&want[0])]).await];
            assert_eq!(b.expect("runs").results().await.expect("runs"), twice);
            assert_eq!(a.expect("runs").results().await.expect("runs"), want);
            assert_eq!(s.run_async(std::slice::from_ref(&x)).await.expect("runs"), want);
        });
    }
    assert_eq!(s.sizes_kept(), 2);
}

/// Two products with weights of their own, `factors` times the same numbers.
fn weighted(ops: &str, factors: [f32; 2]) -> Module {
    let mut m = parse_module(&format!(
        "const @a : f32[24,24]\nconst @b : f32[24,24]\ngraph @main(%x: f32[16,24]) -> (y: f32[16,24]) {{
  %a = const @a : f32[24,24]
  %b = const @b : f32[24,24]
  %0 = matmul %x, %a
  %1 = softmax %0 {{axes=[1]}}
  %2 = matmul %1, %b
{ops}}}
"
    ))
    .unwrap_or_else(|e| panic!("{e}"));
    for (name, factor) in ["a", "b"].into_iter().zip(factors) {
        let values: Vec<f32> = (0..576).map(|i| factor * ((i * 37 % 101) as f32 / 101.0 - 0.5)).collect();
        m.constants.insert(name.into(), Constant::from_tensor(&Tensor::from_vec(vec![24, 24], values)));
    }
    m
}

#[test]
fn sessions_on_a_device_share_pipelines_and_weights() {
    let x = random_tensor(DType::F32, &[16, 24], 1);
    let run = |s: &Session| s.run(std::slice::from_ref(&x)).expect("runs");
    let plain = "  return %2\n";
    let network = |factors| opened(&compiled(&weighted(plain, factors)), 1);
    let first = network([3.0, 7.0]);
    let made = first.opened();
    assert!(made.constants == 2 && made.shared_constants == 0, "{made:?}");
    assert!(made.constant_bytes >= 2 * 576 * 4 && made.pipelines + made.shared_pipelines >= 1, "{made:?}");
    // The same once more, compiled on its own: nothing goes up, nothing is built.
    let second = network([3.0, 7.0]);
    let again = second.opened();
    assert_eq!((again.constants, again.constant_bytes, again.shared_constants), (0, 0, 2));
    assert_eq!((again.pipelines, again.shared_pipelines), (0, made.pipelines + made.shared_pipelines));
    assert_eq!(run(&first), run(&second));
    // Of another network the one that is equal.
    let third = opened(&compiled(&weighted("  %3 = tanh %2\n  return %3\n", [3.0, 8.0])), 1);
    let other = third.opened();
    assert!((other.constants, other.shared_constants) == (1, 1) && other.pipelines > 0, "{other:?}");
    let tanh = |t: Vec<Tensor>| t[0].to_f32_vec().iter().map(|v| v.tanh()).collect::<Vec<f32>>();
    let want = tanh(run(&network([3.0, 8.0])));
    assert!(run(&third)[0].to_f32_vec().iter().zip(&want).all(|(a, b)| (a - b).abs() < 1e-5));
    // Equal constants of one network are one.
    assert_eq!(network([5.0, 5.0]).opened().constants, 1);
    // What nobody holds any more goes up again.
    drop((first, second, third));
    assert_eq!(network([3.0, 7.0]).opened().constants, 2);
}
