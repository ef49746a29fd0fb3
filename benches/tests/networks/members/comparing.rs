//! Ops that compare a value with another one that is stored or computed again: a maximum with the elements, elements
//! with each other. The same number must compare as equal however it comes: stored in f16, kept in f32 until then, or
//! computed in two kernels, of which a driver contracts `a * b + c` in one.

use super::cases::{CASES, SHAPES, module_of};
use super::{devices, run};
use compiler::agreement::{Tolerance, agree_in_slices};
use compiler::dtype::DType;
use compiler::graph::{Function, Module, NodeId};
use compiler::interpreter::run_function;
use compiler::ops::OPS;
use compiler::passes::fusion_kind::group_expression;
use compiler::passes::{
    AmpMode, CountResults, FuseMode, PassContext, PipelineOptions, Sequential, default_pipeline, run_pass,
};
use compiler::profile::DeviceProfile;
use compiler::schedule::rules::prepared;
use compiler::tensor::Tensor;
use compiler::text::{parse_module, print_module};
use compiler::tir::{BinaryOp, Expr, Stmt, TensorFunction, UnaryOp};
use std::collections::BTreeSet;
use weft::Device;

/// The ops that compare floats of two places, with nodes on the computed value `h` of shape `[1,2,4 or 8,16]`.
const COMPARING: &[(&str, &[&str])] = &[
    (
        "arg_reduce",
        &[
            "%r = arg_reduce %h {axis=3}",
            "%r = arg_reduce %h {axis=3, select_last=true}",
            "%r = arg_reduce %h {kind=min, axis=3}",
            "%r = arg_reduce %h {kind=min, axis=3, select_last=true}",
        ],
    ),
    ("hardmax", &["%r = hardmax %h {axes=[3]}"]),
    (
        "max_pool",
        &[
            "%v, %r = max_pool %h {kernel=[1,4], strides=[1,4], indices=true}",
            "%v, %r = max_pool %h {kernel=[1,3], pads=[0,1,0,1], indices=true}",
        ],
    ),
    ("top_k", &["%v, %r = top_k %h {k=3, axis=3}", "%v, %r = top_k %h {k=16, axis=3, largest=false}"]),
    ("equal", &["%g = max_pool %h {kernel=[1,3], pads=[0,1,0,1]}\n  %r = equal %g, %h"]),
    ("greater", &["%g = reduce %h {kind=max, axes=[3], keepdims=true}\n  %r = greater %g, %h"]),
    ("greater_or_equal", &["%g = reduce %h {kind=max, axes=[3], keepdims=true}\n  %r = greater_or_equal %h, %g"]),
    ("less", &["%g = reduce %h {kind=min, axes=[3], keepdims=true}\n  %r = less %g, %h"]),
    ("less_or_equal", &["%g = reduce %h {kind=min, axes=[3], keepdims=true}\n  %r = less_or_equal %h, %g"]),
    ("bucketize", &["%r = bucketize %h, %bounds"]),
    (
        "unique",
        &["%g = slice %h {starts=[0,0], ends=[1,1], axes=[1,2]}\n  %v, %f, %r, %n = unique %g {count=distinct}"],
    ),
    ("non_zero", &["%g = slice %h {starts=[0,0], ends=[1,1], axes=[1,2]}\n  %r = non_zero %g {count=found}"]),
    (
        "non_max_suppression",
        &["%g = reshape %h {shape=[1,-1,16]}\n  %r = non_max_suppression %boxes, %g, %most {count=chosen}"],
    ),
];

/// What computes `h` from `x`, which is computed too.
const PRODUCERS: [(&str, &str); 10] = [
    ("tanh", "tanh %x"),
    ("sigmoid", "sigmoid %x"),
    ("conv", "conv %x, %k {group=2}"),
    ("matmul", "matmul %left, %x"),
    ("exp", "exp %x"),
    ("mul-add", "add %x3, %tenth"),
    ("softmax", "softmax %x {axes=[3]}"),
    ("resize", "resize %x {scales=[1.0,1.0,2.0,1.0], mode=linear}"),
    ("div", "div %x, %three"),
    ("layer_norm", "layer_norm %x, %row {axis=3}"),
];

/// A line behind a producer in a float type, with `h` as a result too or not.
fn network(line: &str, producer: &str, dtype: DType, both: bool) -> Module {
    let text = "const @one : T[2,1,1,1] = splat(1.0)
const @k : T[2,1,1,1] = [0.7, 0.9]
const @left : T[4,4] = [0.7, 0.0, 0.0, 0.0, 0.0, 0.0, 1.3, 0.0, 0.0, 0.9, 0.0, 0.0, 0.0, 0.0, 0.0, 0.3]
const @third : T[] = [0.3]
const @tenth : T[] = [0.1]
const @three : T[] = [3.0]
const @row : T[16] = splat(0.7)
const @bounds : T[3] = [-0.33, 0.02, 0.57]
const @boxes : f32[1,16,4] = random(3)
const @most : i64[] = [3]
graph @main(%in: T[1,2,4,16]) -> (x: T[1,2,4,16]) {
  %one = const @one
  %k = const @k
  %left = const @left
  %third = const @third
  %tenth = const @tenth
  %three = const @three
  %row = const @row
  %bounds = const @bounds
  %boxes = const @boxes
  %most = const @most
  %x = conv %in, %one {group=2}
  %x3 = mul %x, %third
  %h = PRODUCER
  LINE
  return %x
}
";
    let text = text.replace("T[", &format!("{dtype}[")).replace("PRODUCER", producer).replace("LINE", line);
    let mut m = parse_module(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    let entry = m.entry;
    let f = m.functions.get_mut(&entry).expect("the entry");
    let nodes = f.blocks[f.body].nodes.clone();
    let last = *nodes.last().expect("a node");
    let mut values = f.nodes[last].outputs.clone();
    if both {
        // The producer stands before the line's nodes.
        let own = line.lines().count();
        values.extend(f.nodes[nodes[nodes.len() - 1 - own]].outputs.clone());
    }
    f.result_names = (0..values.len()).map(|i| format!("r{i}").as_str().into()).collect();
    f.result_types = values.iter().map(|&v| f.ty(v).clone()).collect();
    let body = f.body;
    f.blocks[body].results = values;
    m
}

/// Eight rows of sixteen levels that differ by far more than f16 rounds, with the extreme ones first, last, and more than
/// once; with `nan` some are NaN, first and last too.
fn rows(dtype: DType, nan: bool) -> Tensor {
    let level = |i: usize| i as f64 / 8.0 - 1.0;
    let mixed = |row: usize| (0..16).map(move |i| (i * 5 + row * 3) % 16);
    let mut all: Vec<Vec<f64>> = (0..8).map(|row| mixed(row).map(level).collect()).collect();
    let mut put = |row: usize, places: &[usize], value: f64| places.iter().for_each(|&at| all[row][at] = value);
    put(0, &[0], 1.5);
    put(1, &[15], 1.5);
    put(2, &[3, 12], 1.5);
    put(3, &(0..16).collect::<Vec<_>>(), 0.3);
    put(4, &[0, 15], -1.5);
    put(5, &[7, 8], -1.5);
    if nan {
        put(0, &[5, 9], f64::NAN);
        put(6, &[0], f64::NAN);
        put(7, &[15], f64::NAN);
        put(3, &(0..16).collect::<Vec<_>>(), f64::NAN);
    }
    Tensor::from_f64(dtype, vec![1, 2, 4, 16], all.concat())
}

/// What an op finds behind a producer on a device, held against the interpreter.
fn check(line: &str, producer: &str, device: &Device, amp: AmpMode, both: bool) -> Vec<String> {
    let dtype = if amp == AmpMode::Off { DType::F16 } else { DType::F32 };
    let m = network(line, producer, dtype, both);
    let pipeline = PipelineOptions { amp, ..PipelineOptions::default() };
    let mut faults = vec![];
    for nan in [false, true] {
        let inputs = [rows(dtype, nan)];
        let want = run_function(&m, m.entry, &inputs).unwrap_or_else(|e| panic!("{e}\n{}", print_module(&m)));
        let why = match run(&m, device, &pipeline, &inputs) {
            Ok(got) => got.iter().zip(&want).find_map(|(g, w)| differs(g, w)),
            Err(e) => Some(e),
        };
        faults.extend(why.map(|why| {
            let place = format!("{} with --amp {amp}, NaN: {nan}", device.label());
            format!("{producer} | {line} on {place}: {why}")
        }));
    }
    faults
}

/// Positions and flags have to be equal, floats to agree as f16.
fn differs(got: &Tensor, want: &Tensor) -> Option<String> {
    if want.dtype().is_float() {
        let d = agree_in_slices(got, want, &Tolerance::new(DType::F16, None, None));
        return if d.pass { None } else { Some(d.why) };
    }
    let (g, w) = (got.to_i64_vec(), want.to_i64_vec());
    (got.shape() != want.shape() || g != w).then(|| format!("{:?} {g:?}, not {:?} {w:?}", got.shape(), want.shape()))
}

/// True for a comparison of floats of which both sides are read from memory or computed from what is.
fn compares(t: &TensorFunction) -> bool {
    let mut found = false;
    for block in t.body.blocks() {
        block.value.visit(&mut |e| {
            let Expr::Binary(op, a, b) = e else { return };
            let reads = |e: &Expr| !e.loads().is_empty() && e.dtype(t).is_float();
            found |= op.is_comparison() && reads(a) && reads(b);
        });
    }
    found
}

/// Whether the tensor expression of a node compares, or those of the nodes that the pass `count-results` makes of it.
fn node_compares(m: &Module, n: NodeId) -> bool {
    let of = |m: &Module, f: &Function, n: NodeId| {
        let node = &f.nodes[n];
        node.op.has_compute()
            && node.regions.is_empty()
            && group_expression(m, f, &[n]).is_ok_and(|(t, ..)| compares(&t))
    };
    let (f, before) = (m.main(), m.main().walk());
    if f.nodes[n].op.has_compute() {
        return of(m, f, n);
    }
    let mut counted = m.clone();
    run_pass(&CountResults {}, &mut counted, &mut PassContext::default()).unwrap_or_else(|e| panic!("{e}"));
    counted.functions.values().any(|f| {
        let made = f.walk().into_iter().filter(|n| f.name != counted.entry || !before.contains(n));
        made.into_iter().any(|n| of(&counted, f, n))
    })
}

/// The list is that of the tensor expressions.
#[test]
fn the_ops_that_compare_are_those_listed() {
    let mut found: BTreeSet<&str> = BTreeSet::new();
    for (name, lines) in CASES {
        for line in *lines {
            let m = module_of(line, SHAPES[0]).unwrap_or_else(|e| panic!("{e}"));
            if node_compares(&m, super::case_node(&m)) {
                found.insert(name);
            }
        }
    }
    for (name, lines) in COMPARING {
        for line in *lines {
            let m = network(line, "tanh %x", DType::F16, false);
            let f = m.main();
            let n = f.def_node(f.results()[0]).expect("a node");
            assert_eq!(f.nodes[n].op.name(), *name);
            if node_compares(&m, n) {
                found.insert(name);
            }
            // A position that is not found would be told from one that is.
            let operands = f.node_types(n).0;
            let positions = f.nodes[n].outputs.iter().enumerate().filter(|(_, v)| f.ty(**v).dtype == DType::I64);
            let said = positions.filter(|(i, _)| f.nodes[n].op.positions(*i, &operands).is_some()).count();
            let gives = f.nodes[n].outputs.iter().any(|&v| f.ty(v).dtype == DType::I64);
            assert!(
                !gives || said > 0,
                "`{name}` gives positions, and `Op::positions` does not say how many there are"
            );
        }
    }
    println!("ops that compare floats of two places: {found:?}");
    assert_eq!(found, COMPARING.iter().map(|c| c.0).collect());
    assert!(COMPARING.iter().all(|c| OPS.iter().any(|d| d.name == c.0)));
}

#[test]
fn computed_halves_compare_as_the_interpreter_says() {
    let (mut ran, mut faults) = (0, vec![]);
    for device in devices() {
        for (line, (_, producer)) in COMPARING.iter().flat_map(|c| c.1).flat_map(|l| PRODUCERS.map(|p| (*l, p))) {
            for amp in [AmpMode::Off, AmpMode::Fp16] {
                let cpu = matches!(device, Device::Cpu(_));
                for both in if cpu { &[false, true][..] } else { &[false] } {
                    ran += 1;
                    faults.extend(check(line, producer, &device, amp, *both));
                }
            }
        }
    }
    println!("{ran} networks");
    assert!(faults.is_empty(), "{} faults, the first:\n{}", faults.len(), faults[..faults.len().min(12)].join("\n"));
}

/// Lets each place in the text of a function that computes with floats be off by some last bits of its own, as drivers
/// contract and approximate in one place and not in another.
fn contract(t: &mut TensorFunction) {
    let types = t.clone();
    let mut place = 0;
    t.body.visit_mut(&mut |s| {
        let Stmt::Block(block) = s else { return };
        let value = block.value.rewrite(&mut Clone::clone, &mut |e| {
            use BinaryOp::{Add, Div, Mul, Pow, Sub};
            let computes = match e {
                Expr::Binary(op, ..) => matches!(op, Add | Div | Mul | Pow | Sub),
                Expr::Unary(op, _) => matches!(op, UnaryOp::Exp | UnaryOp::Tanh | UnaryOp::Sqrt),
                _ => false,
            };
            if !computes || !e.dtype(&types).is_float() {
                return None;
            }
            place += 1;
            Some(e.clone() * Expr::constant(1.0 + f64::from(place) / f64::from(1 << 22), e.dtype(&types)))
        });
        block.value = value;
    });
}

/// A network as its kernels compute it before they are scheduled, each place of their text with rounding of its own.
fn contracted(m: &Module, fuse: FuseMode, profile: &DeviceProfile) -> Module {
    let mut m = m.clone();
    let options = PipelineOptions { fuse, ..PipelineOptions::default() };
    let mut cx = PassContext { profile: profile.clone(), ..PassContext::default() };
    options.configure(&mut cx);
    let passes = Sequential::new(default_pipeline(&options)).then_named("lower");
    passes.run(&mut m, &mut cx).unwrap_or_else(|e| panic!("{e}"));
    for t in m.tensor_functions.values_mut().filter(|t| t.symbols.is_empty()) {
        *t = prepared(t, &[], profile).unwrap_or_else(|e| panic!("{e}"));
        contract(t);
    }
    m
}

#[test]
fn what_is_compared_is_computed_once() {
    let profile = DeviceProfile::named("ada").expect("a profile");
    let mut faults = vec![];
    // Elements between two rows may be equal but for their rounding, which differs here.
    let producers = PRODUCERS.into_iter().filter(|p| p.0 != "resize");
    let all = producers.flat_map(|p| COMPARING.iter().flat_map(|c| c.1).map(move |line| (*line, p.1)));
    for (line, producer) in all {
        for fuse in [FuseMode::Full, FuseMode::Classic] {
            let m = network(line, producer, DType::F32, false);
            let inputs = [rows(DType::F32, false)];
            let run =
                |m: &Module| run_function(m, m.entry, &inputs).unwrap_or_else(|e| panic!("{e}\n{}", print_module(m)));
            let (got, want) = (run(&contracted(&m, fuse, &profile)), run(&m));
            let why = got.iter().zip(&want).find_map(|(g, w)| differs(g, w));
            faults.extend(why.map(|why| format!("{producer} | {line}, {fuse:?}: {why}")));
        }
    }
    assert!(faults.is_empty(), "{} faults, the first:\n{}", faults.len(), faults[..faults.len().min(12)].join("\n"));
}
