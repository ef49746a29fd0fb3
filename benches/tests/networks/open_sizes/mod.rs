//! Networks of open sizes: compiled once, one set of shaders, run at any size.

mod loops;

use benches::test_device::test_device;
use benches::zoo;
use compiler::agreement::{Tolerance, agree_in_slices};
use compiler::compile::{CompileOptions, Compiled, compile};
use compiler::dtype::DType;
use compiler::graph::{Module, TensorType, bind_dims, input_ports};
use compiler::int::Dim;
use compiler::interpreter::run_function;
use compiler::name::Name;
use compiler::passes::{Lower, PassContext, run_pass};
use compiler::profile::{DeviceProfile, Machine};
use compiler::schedule::Choose;
use compiler::tensor::Tensor;
use compiler::text::{compare_modules, parse_module, print_module, random_tensor};
use compiler::tir::InstrRef;
use compiler::verify::verify_module;
use runtime_gpu::{HostFunctions, OpenSession, Session, SessionOptions};
use shaders_gen::Emitter;

fn compiled(m: &Module, dims: &[(&str, i64, i64)]) -> Compiled {
    let mut options = CompileOptions { verify: true, ..CompileOptions::default() };
    dims.iter().for_each(|&(name, low, high)| options.dims.declare(Name::new(name), low, high));
    let gpu = test_device().unwrap_or_else(|e| panic!("{e}"));
    compile(m.clone(), &options, &gpu.profile, &Emitter, &mut |_, _, _| ()).unwrap_or_else(|e| panic!("{e}"))
}

fn opened(c: &Compiled) -> OpenSession {
    opened_with(c, &SessionOptions::default())
}

fn opened_with(c: &Compiled, options: &SessionOptions) -> OpenSession {
    let gpu = test_device().unwrap_or_else(|e| panic!("{e}"));
    let first = Session::open(gpu, &c.plan, &c.module, options, &mut |_, _, _| ());
    OpenSession::new(c.open.clone().expect("sizes are open"), first.unwrap_or_else(|e| panic!("{e}")))
}

/// What an input of a place and type is, where it is not random.
type Given<'a> = &'a dyn Fn(usize, &TensorType) -> Option<Tensor>;

/// Inputs of the network at these sizes, and what the interpreter makes of them.
fn reference(m: &Module, sizes: &[(&str, i64)], given: Given<'_>) -> (Vec<Tensor>, Vec<Tensor>) {
    let mut fixed = m.clone();
    let sizes: Vec<(Name, i64)> = sizes.iter().map(|&(d, n)| (Name::new(d), n)).collect();
    bind_dims(&mut fixed, &sizes).unwrap_or_else(|e| panic!("{e}"));
    let input = |(i, (_, ty)): (usize, (Name, TensorType))| {
        if let Some(tensor) = given(i, &ty) {
            return tensor;
        }
        let shape = ty.const_shape().expect("sizes are known");
        match ty.dtype {
            DType::I64 => Tensor::from_vec(shape.clone(), (0..shape.iter().product::<usize>() as i64).collect()),
            dtype => random_tensor(dtype, &shape, 7 + i as u64),
        }
    };
    let inputs: Vec<Tensor> = input_ports(&fixed).into_iter().enumerate().map(input).collect();
    let want = run_function(&fixed, fixed.entry, &inputs).unwrap_or_else(|e| panic!("{e}"));
    (inputs, want)
}

fn agrees(session: &OpenSession, m: &Module, sizes: &[(&str, i64)]) {
    agrees_on(session, m, sizes, &|_, _| None);
}

fn agrees_on(session: &OpenSession, m: &Module, sizes: &[(&str, i64)], given: Given<'_>) {
    let (inputs, want) = reference(m, sizes, given);
    let got = session.run(&inputs).unwrap_or_else(|e| panic!("{sizes:?}: {e}"));
    assert_eq!(got.len(), want.len());
    for (g, w) in got.iter().zip(&want) {
        assert_eq!(g.shape(), w.shape(), "{sizes:?}");
        let d = agree_in_slices(g, w, &Tolerance::new(DType::F32, None, None));
        assert!(d.pass, "{sizes:?}: {}", d.why);
    }
}

/// A graph that calls a tensor function of its own twice, at two shapes, with ordinary ops and a flatten of both sizes
/// between.
const CALLS: &str = "tensor @mm(%a: f32[p,q], %b: f32[q,r], out %y: f32[p,r]) {
  symbol p in 1..=4096
  symbol q in 1..=4096
  symbol r in 1..=4096
  for i in 0..p { for j in 0..r { for k in 0..q { block y reduce sum init { %y[i,j] <- %a[i,k] * %b[k,j] } } } }
}
graph @main(%x: f32[n,m], %w: f32[m,n]) -> (z: f32[n*m], u: f32[n,n]) {
  %0 = call_tensor @mm %x, %w : f32[n,n]
  %1 = call_tensor @mm %0, %x : f32[n,m]
  %2 = tanh %1
  %3 = reshape %2 {shape=[-1]}
  %4 = sigmoid %0
  return %3, %4
}
";

#[test]
fn a_function_is_called_at_two_shapes_of_open_sizes() {
    let m = parse_module(CALLS).unwrap_or_else(|e| panic!("{e}"));
    let c = compiled(&m, &[("n", 1, 64), ("m", 1, 200)]);
    let dispatched: Vec<&str> = c.plan.dispatches().map(|d| c.plan.kernels[d.kernel].name.as_str()).collect();
    assert_eq!(dispatched.len(), 2, "each call is one kernel with its elementwise user: {dispatched:?}");
    let fused = |i: usize, user: &str| dispatched[i].contains("call_tensor") && dispatched[i].contains(user);
    assert!(fused(0, "sigmoid") && fused(1, "tanh"), "{dispatched:?}");
    let session = opened(&c);
    for (n, k) in [(3, 5), (1, 1), (17, 33), (64, 3), (40, 128), (3, 5)] {
        agrees(&session, &m, &[("n", n), ("m", k)]);
    }
    assert_eq!(session.sizes_kept(), 5, "a list of sizes that came up before is kept");
}

#[test]
fn a_host_function_works_in_place_between_kernels_of_open_sizes() {
    let call = "call_host @twice %2 {dtypes=[f32], shapes=[[`n`,`m`]], in_place=[0]} : f32[n,m]";
    let text = CALLS.replace("  %3 = reshape %2", &format!("  %5 = {call}\n  %6 = relu %5\n  %3 = reshape %6"));
    let m = parse_module(&text).unwrap_or_else(|e| panic!("{e}"));
    let plain = parse_module(&text.replace(call, "add %2, %2")).unwrap_or_else(|e| panic!("{e}"));
    let mut functions = HostFunctions::new();
    functions.register_into("twice", |_, results| {
        for word in results[0].bytes_mut().chunks_exact_mut(4) {
            let value = f32::from_ne_bytes([word[0], word[1], word[2], word[3]]);
            word.copy_from_slice(&(2.0 * value).to_ne_bytes());
        }
        Ok(())
    });
    let c = compiled(&m, &[("n", 1, 64), ("m", 1, 200)]);
    let session = opened_with(&c, &SessionOptions { host_functions: functions, ..SessionOptions::default() });
    for (n, k) in [(3, 5), (1, 1), (17, 33), (64, 3), (40, 128)] {
        agrees(&session, &plain, &[("n", n), ("m", k)]);
    }
}

#[test]
fn sizes_beyond_their_range_are_refused_by_name() {
    let m = parse_module(CALLS).unwrap_or_else(|e| panic!("{e}"));
    let session = opened(&compiled(&m, &[("n", 2, 8), ("m", 1, 9)]));
    let given = |n: usize, k: usize| [random_tensor(DType::F32, &[n, k], 1), random_tensor(DType::F32, &[k, n], 2)];
    let refusal = |inputs: &[Tensor]| session.run(inputs).expect_err("is refused").to_string();
    assert!(
        refusal(&given(9, 4)).contains("`n` is 9, and was declared to be from 2 to 8"),
        "{}",
        refusal(&given(9, 4))
    );
    let unequal = [random_tensor(DType::F32, &[4, 3], 1), random_tensor(DType::F32, &[3, 5], 2)];
    let why = "`w` cannot be [3, 5]: the dimension `n` would be 4 and 5";
    assert!(refusal(&unequal).contains(why), "{}", refusal(&unequal));
    session.run(&given(8, 9)).unwrap_or_else(|e| panic!("{e}"));
}

/// Rows of a product, which may be few, and columns as many as rows.
const VERSIONS: &str = "graph @main(%x: f32[n,256], %k: f32[256,n]) -> (y: f32[n,n], s: f32[n,256]) {
  %1 = softmax %x {axes=[1]}
  %2 = matmul %1, %k
  %3 = softmax %2 {axes=[1]}
  return %3, %1
}
";

/// For each group the dispatches at these sizes are of the first version whose conditions hold, or of the kernels for
/// all sizes. Returns how many are of a version.
fn picks_rightly(session: &OpenSession, c: &Compiled, sizes: &[(&str, i64)]) -> usize {
    let open = c.open.as_ref().expect("sizes are open");
    let list: Vec<(Name, i64)> =
        open.dims().into_iter().map(|d| (d, sizes.iter().find(|s| s.0 == d.as_str()).expect("known").1)).collect();
    let value = |v: Name| list.iter().find(|s| s.0 == v).map(|s| s.1);
    let (plan, _) = open.at(&list).unwrap_or_else(|e| panic!("{sizes:?}: {e}"));
    assert_eq!(plan.kernels.len(), session.first().plan().kernels.len(), "one set of pipelines");
    let versions = open.versions();
    let mut picked = 0;
    for d in plan.dispatches() {
        let of_group = versions.iter().filter(|v| v.group == d.group);
        let first = of_group.into_iter().find(|v| v.when.iter().all(|w| w.holds(&value) == Some(true)));
        let own = versions.iter().find(|v| v.group == d.group && v.kernel == d.kernel);
        assert_eq!(first.map(|v| &v.when), own.map(|v| &v.when), "{sizes:?}: group {}", d.group);
        picked += usize::from(own.is_some());
    }
    picked
}

#[test]
fn each_run_takes_the_first_version_whose_conditions_hold() {
    let m = parse_module(VERSIONS).unwrap_or_else(|e| panic!("{e}"));
    let own = test_device().unwrap_or_else(|e| panic!("{e}")).profile.clone();
    // Costs of a device that hides memory behind arithmetic ask for other versions than those of a processor.
    let overlapping = DeviceProfile { machine: Machine::Gpu, ..own.clone() };
    for profile in [own, overlapping] {
        let mut options = CompileOptions { verify: true, ..CompileOptions::default() };
        options.dims.declare(Name::new("n"), 1, 1024);
        let c = compile(m.clone(), &options, &profile, &Emitter, &mut |_, _, _| ()).unwrap_or_else(|e| panic!("{e}"));
        assert!(!c.open.as_ref().expect("sizes are open").versions().is_empty(), "{:?}", c.remarks);
        let session = opened(&c);
        let mut picked = vec![];
        for n in [1, 7, 31, 32, 33, 36, 48, 65, 128, 130] {
            picked.push(picks_rightly(&session, &c, &[("n", n)]));
            agrees(&session, &m, &[("n", n)]);
        }
        assert!(picked.iter().any(|&n| n > 0) && picked.contains(&0), "both sides of conditions ran: {picked:?}");
    }
}

/// A function that leaves its schedule to the rules, but for kernels of its own for some sizes.
const ASKED: &str = "graph @main(%x: f32[n,m], %w: f32[m,n]) -> (y: f32[n,n]) {
  %1 = call_tensor @mm %x, %w
  return %1
}

tensor @mm(%a: f32[r,k], %b: f32[k,c], out %p: f32[r,c]) {
  symbol r in 1..=64
  symbol k in 1..=200
  symbol c in 1..=64
  for i in 0..r {
    for j in 0..c {
      for l in 0..k {
        block p reduce sum init { %p[i, j] <- %a[i, l] * %b[l, j] }
      }
    }
  }
  schedule {
    version {symbol=k, multiple_of=4}
    version {symbol=r, below=8}
  }
}
";

#[test]
fn versions_that_a_schedule_asks_for_are_made_again_from_their_text() {
    let ranges = [("n", 1, 64), ("m", 1, 200)];
    let m = parse_module(ASKED).unwrap_or_else(|e| panic!("{e}"));
    let first = compiled(&m, &ranges);
    let whens = |c: &Compiled| -> Vec<String> {
        let open = c.open.as_ref().expect("sizes are open");
        open.versions().iter().flat_map(|v| v.when.iter().map(ToString::to_string)).collect()
    };
    assert_eq!(whens(&first), ["m % 4 == 0", "n < 8"]);
    let text = print_module(&first.unscheduled_module());
    let again = compiled(&parse_module(&text).unwrap_or_else(|e| panic!("{e}")), &ranges);
    assert_eq!(whens(&again), whens(&first));
    let shaders = |c: &Compiled| -> Vec<String> { c.plan.kernels.iter().map(|k| k.emitted.wgsl.clone()).collect() };
    assert_eq!(shaders(&again), shaders(&first));
    let session = opened(&again);
    let mut picked = vec![];
    for (n, k) in [(5, 9), (5, 8), (8, 9), (33, 64)] {
        picked.push(picks_rightly(&session, &again, &[("n", n), ("m", k)]));
        agrees(&session, &m, &[("n", n), ("m", k)]);
    }
    assert_eq!(picked, [1, 1, 0, 1]);
}

#[test]
fn an_edited_choice_gives_another_kernel_for_all_sizes() {
    let ranges = [("n", 1, 64), ("m", 1, 200)];
    let m = parse_module(ASKED).unwrap_or_else(|e| panic!("{e}"));
    let first = compiled(&m, &ranges);
    let shaders = |c: &Compiled| -> Vec<String> { c.plan.kernels.iter().map(|k| k.emitted.wgsl.clone()).collect() };
    let mut text = first.unscheduled_module();
    let mm = text.tensor_functions.get_mut(&Name::new("mm")).expect("the function");
    let line = mm.pending.iter().position(|i| {
        Choose::of_instruction(i).is_some_and(|c| c.of.len() > 1 && !["rule", "function"].contains(&c.point.as_str()))
    });
    let line = line.expect("a choice with several values");
    let choose = Choose::of_instruction(&mm.pending[line]).expect("a choice").clone();
    mm.pending[line] = InstrRef::new(Choose { value: choose.of[1].clone(), ..choose.clone() });
    let edited = parse_module(&print_module(&text)).unwrap_or_else(|e| panic!("{e}"));
    let again = compiled(&edited, &ranges);
    assert_ne!(shaders(&again), shaders(&first), "{choose:?}");
    let session = opened(&again);
    for (n, k) in [(5, 9), (8, 8), (33, 64), (64, 199)] {
        picks_rightly(&session, &again, &[("n", n), ("m", k)]);
        agrees(&session, &m, &[("n", n), ("m", k)]);
    }
}

#[test]
fn known_sizes_have_no_versions() {
    let text = VERSIONS.replace("[n,", "[64,").replace(",n]", ",64]");
    let m = parse_module(&text).unwrap_or_else(|e| panic!("{e}"));
    let c = compiled(&m, &[]);
    assert!(c.open.is_none());
    assert_eq!(c.plan.kernels.len(), c.plan.dispatches().count(), "each kernel runs");
}

#[test]
fn an_encoder_takes_texts_of_any_length() {
    let m = zoo::build_open("encoder:smallest", &Dim::new(1), Some(&Dim::var("sequence")), 0).expect("builds");
    let session = opened(&compiled(&m, &[("sequence", 1, 1024)]));
    for length in [7, 1, 128, 33, 64] {
        agrees(&session, &m, &[("sequence", length)]);
    }
}

#[test]
fn networks_take_batches_of_any_size() {
    for name in ["vit_b_16:smallest", "mobilenet_v2:smallest", "resnet18:smallest"] {
        let m = zoo::build_open(name, &Dim::var("batch"), None, 0).expect("builds");
        let session = opened(&compiled(&m, &[("batch", 1, 32)]));
        for batch in [1, 3, 8] {
            agrees(&session, &m, &[("batch", batch)]);
        }
    }
}

/// Networks whose every other node, or every node, is a call of a tensor function: what the pass `lower` leaves.
#[test]
fn networks_in_which_nodes_are_lowered_say_the_same() {
    for (name, dims, nodes) in [
        ("mobilenet_v2:smallest", [("batch", 3)].as_slice(), &["op:conv", "op:add"] as &[&str]),
        ("resnet18:smallest", &[("batch", 2)], &[]),
        ("encoder:smallest", &[("batch", 2), ("sequence", 9)], &["op:matmul", "op:softmax", "op:layer_norm"]),
    ] {
        let sequence = dims.get(1).map(|_| Dim::var("sequence"));
        let m = zoo::build_open(name, &Dim::var("batch"), sequence.as_ref(), 0).expect("builds");
        let mut mixed = m.clone();
        let pass = Lower { nodes: nodes.iter().map(|n| n.to_string()).collect() };
        run_pass(&pass, &mut mixed, &mut PassContext::default()).unwrap_or_else(|e| panic!("{e}"));
        verify_module(&mixed).unwrap_or_else(|e| panic!("{name}: {e:?}"));
        assert!(mixed.tensor_functions.len() > 4, "{name}: {}", mixed.tensor_functions.len());
        let text = print_module(&mixed);
        let again = parse_module(&text).unwrap_or_else(|e| panic!("{name}: {e}"));
        compare_modules(&mixed, &again).unwrap_or_else(|e| panic!("{name}: {e}"));
        let ranges: Vec<_> = dims.iter().map(|d| (d.0, 1, 64)).collect();
        agrees(&opened(&compiled(&mixed, &ranges)), &m, dims);
    }
}
