//! Bytes that cross the borders of regions in a run, as `weft bench` counts them: those of the graph's cut.

use crate::command::{Weft, command};
use crate::external::{json, own_target};
use compiler::graph::{Function, Module, TensorType, ValueDef, ValueId};
use compiler::ops::control::{CallHost, Const};
use compiler::passes::{PassContext, PipelineOptions, Sequential, default_pipeline, external_passes};
use compiler::profile::DeviceProfile;
use compiler::text::parse_module;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// The result of `weft bench`.
fn bench(program: Weft, model: &str, external: &str, device: &str) -> Value {
    let args = ["bench", model, "--external", external, "--device", device, "--runs", "1", "--warmup", "0"];
    json(program.args(args).args(["--json", "-q"]).run())
}

/// Bytes that each call of a result of `weft bench` reads from the device and gives to it.
fn moved(measured: &Value) -> BTreeMap<String, [u64; 2]> {
    let mut out = BTreeMap::new();
    for call in measured["host_functions"].as_array().expect("the calls") {
        let place: &mut [u64; 2] = out.entry(call["function"].as_str().expect("a name").to_string()).or_default();
        for edge in call["edges"].as_array().expect("edges") {
            place[usize::from(edge["operand"] == false)] += edge["bytes"].as_u64().expect("bytes");
        }
    }
    out
}

fn bytes(ty: &TensorType) -> u64 {
    ty.bytes().expect("fixed sizes") as u64
}

/// Bytes of the values on the edges between each region and nodes that run on the device. Inputs and constants are on
/// the host, what another region gives stays there, and what another region has read is there too.
fn cut(f: &Function) -> BTreeMap<String, [u64; 2]> {
    let external = |n| f.nodes[n].op.downcast::<CallHost>().filter(|c| c.external_target().is_some());
    let nodes = f.walk();
    let on_device = |v: ValueId| match f.values[v].def {
        ValueDef::Result(n, _) => external(n).is_none() && !f.nodes[n].op.is::<Const>(),
        _ => false,
    };
    let read_on_device =
        |v: ValueId| nodes.iter().any(|&n| external(n).is_none() && f.nodes[n].inputs.contains(&Some(v)));
    let (mut out, mut fetched) = (BTreeMap::new(), BTreeSet::new());
    for (n, call) in nodes.iter().filter_map(|&n| Some((n, external(n)?))) {
        let node = &f.nodes[n];
        let read = node.inputs.iter().flatten().filter(|&&v| on_device(v) && fetched.insert(v));
        let read = read.map(|&v| bytes(f.ty(v))).sum();
        let given = node.outputs.iter().filter(|&&v| read_on_device(v)).map(|&v| bytes(f.ty(v))).sum();
        out.insert(call.callee.to_string(), [read, given]);
    }
    out
}

/// A residual block, a fire module and attention, each with the ops that the target takes.
const NETWORKS: [(&str, &str, &str); 3] = [
    (
        "residual",
        "max_pool+add",
        "const @w : f32[4,4,3,3] = random(1)
graph @main(%x: f32[1,4,16,16]) -> (y: f32[1,4,1,1]) {
  %w = const @w
  %0 = conv %x, %w {pads=[1,1,1,1]} : f32[1,4,16,16]
  %1 = relu %0 : f32[1,4,16,16]
  %2 = max_pool %1 {kernel=[2,2], strides=[2,2]} : f32[1,4,8,8]
  %3 = conv %2, %w {pads=[1,1,1,1]} : f32[1,4,8,8]
  %4 = relu %3 : f32[1,4,8,8]
  %5 = conv %4, %w {pads=[1,1,1,1]} : f32[1,4,8,8]
  %6 = add %5, %2 : f32[1,4,8,8]
  %7 = relu %6 : f32[1,4,8,8]
  %8 = global_average_pool %7 : f32[1,4,1,1]
  return %8
}
",
    ),
    (
        "fire",
        "concat+max_pool",
        "const @s : f32[2,4,1,1] = random(1)
const @e : f32[4,2,1,1] = random(2)
const @f : f32[4,2,3,3] = random(3)
graph @main(%x: f32[1,4,12,12]) -> (y: f32[1,2,6,6], z: f32[1,8,12,12]) {
  %s = const @s
  %e = const @e
  %f = const @f
  %0 = conv %x, %s : f32[1,2,12,12]
  %1 = relu %0 : f32[1,2,12,12]
  %2 = conv %1, %e : f32[1,4,12,12]
  %3 = relu %2 : f32[1,4,12,12]
  %4 = conv %1, %f {pads=[1,1,1,1]} : f32[1,4,12,12]
  %5 = relu %4 : f32[1,4,12,12]
  %6 = concat %3, %5 {axis=1} : f32[1,8,12,12]
  %7 = max_pool %1 {kernel=[2,2], strides=[2,2]} : f32[1,2,6,6]
  %8 = exp %7 : f32[1,2,6,6]
  %9 = tanh %8 : f32[1,2,6,6]
  return %9, %6
}
",
    ),
    (
        "attention",
        "softmax+gelu",
        "const @q : f32[8,8] = random(1)
const @m : f32[8,16] = random(2)
const @n : f32[16,8] = random(3)
graph @main(%x: f32[6,8]) -> (y: f32[6,8]) {
  %q = const @q
  %m = const @m
  %n = const @n
  %0 = matmul %x, %q : f32[6,8]
  %1 = transpose %0 {perm=[1,0]} : f32[8,6]
  %2 = matmul %0, %1 : f32[6,6]
  %3 = softmax %2 {axes=[1]} : f32[6,6]
  %4 = matmul %3, %0 : f32[6,8]
  %5 = add %4, %x : f32[6,8]
  %6 = matmul %5, %m : f32[6,16]
  %7 = gelu %6 : f32[6,16]
  %8 = matmul %7, %n : f32[6,8]
  %9 = add %8, %5 : f32[6,8]
  return %9
}
",
    ),
];

/// A model's file.
fn model(name: &str, text: &str) -> String {
    let at = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("edges-{name}.weft"));
    std::fs::write(&at, text).expect("the model is written");
    at.to_str().expect("UTF-8").to_string()
}

/// Whole networks, of which the target takes these ops.
const WHOLE: [(&str, &str); 3] = [
    ("resnet18:smallest", "add+max_pool+gemm"),
    ("mobilenet_v3_small:smallest", "global_average_pool+mul"),
    ("vit_b_16:smallest", "gelu+layer_norm"),
];

#[test]
fn bytes_that_cross_borders_are_those_of_the_cut() {
    for (name, ops, text) in NETWORKS {
        holds(parse_module(text).expect("the network"), &model(name, text), ops);
    }
}

#[test]
fn bytes_that_cross_borders_in_whole_networks_are_those_of_the_cut() {
    for (name, ops) in WHOLE {
        holds(benches::zoo::build(name, 1, 0).expect("a network of the zoo"), name, ops);
    }
}

fn holds(mut module: Module, model: &str, ops: &str) {
    let external = format!("interpreter:ops={ops}");
    let mut options = PipelineOptions::default();
    options.config.extend(external_passes(std::slice::from_ref(&external)));
    let mut cx = PassContext::new(DeviceProfile::named("lavapipe").expect("a profile"));
    options.configure(&mut cx);
    let mut list = default_pipeline(&options);
    let decided = list.iter().position(|p| p == "inline-external").expect("the pass that decides");
    list.truncate(decided + 1);
    Sequential::new(&list).run(&mut module, &mut cx).expect("passes");
    let want = cut(module.main());
    assert!(want.len() > 1 && want.values().any(|b| b[0] > 0) && want.values().any(|b| b[1] > 0), "{want:?}");
    let moved_on = |device| moved(&bench(command(), model, &external, device));
    assert_eq!(moved_on("0"), want, "{model}");
    // The CPU has the buffers of kernels where the target reads them.
    let on_cpu = moved_on("cpu");
    assert!(!on_cpu.is_empty() && on_cpu.values().all(|bytes| *bytes == [0, 0]), "{model}: {on_cpu:?}");
}

const TWO: &str = "graph @main(%x: f32[4,4]) -> (y: f32[4,4]) {
  %0 = neg %x : f32[4,4]
  %1 = relu %0 : f32[4,4]
  %2 = exp %1 : f32[4,4]
  %3 = neg %2 : f32[4,4]
  return %3
}
";

/// Two targets side by side: the tensor between their regions is moved nowhere.
#[test]
fn nothing_is_copied_between_two_regions_on_the_host() {
    // relu in acme, exp in the interpreter, neg on the device.
    let measured = bench(own_target(), &model("two", TWO), "acme,interpreter:ops=exp", "0");
    let want = BTreeMap::from([("acme_0".to_string(), [64, 0]), ("interpreter_0".to_string(), [0, 64])]);
    assert_eq!(moved(&measured), want, "{measured}");
}
