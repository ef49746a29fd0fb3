//! Every scalar function, on each element type that it takes, at the edges of its domain: shaders, bodies of the
//! processor and C against the reference in the table of functions.

use crate::built;
use benches::test_device::test_device;
use compiler::compile::{CompileOptions, compile};
use compiler::dtype::DType;
use compiler::graph::Module;
use compiler::interpreter::run_function;
use compiler::passes::{FuseMode, PipelineOptions};
use compiler::plan::Step;
use compiler::tensor::Tensor;
use compiler::text::parse_module;
use compiler::tir::{BinaryOp, Domain, UnaryOp};
use runtime_cpu::Processor;
use std::fmt::Write;
use weft::{Device, Model, Options};

/// The type whose arithmetic runs on the host of a processor, step by step.
const ON_HOST: [DType; 1] = [DType::F64];

/// A function that takes a type: how it is written of `%a[i]` and `%b[i]`, and how near its results have to be.
struct Function {
    name: String,
    value: String,
    test: bool,
    exact: bool,
}

/// The functions that take a type. Shaders may compute `rounded` ones to a few parts in 10^5.
fn functions(dtype: DType) -> Vec<Function> {
    let takes = |domain: Domain| domain.takes(dtype);
    let unary = UnaryOp::ALL.iter().filter(|op| takes(op.domain())).map(|op| {
        let value = format!("{}(%a[i])", op.name());
        Function { name: op.name(), value, test: op.is_test(), exact: op.is_exact() }
    });
    let binary = BinaryOp::ALL.iter().filter(|op| takes(op.domain())).map(|op| {
        let value = match op.infix().filter(|i| i.1 > 0) {
            Some((symbol, _)) => format!("%a[i] {symbol} %b[i]"),
            None => format!("{}(%a[i], %b[i])", op.name()),
        };
        let exact = op.is_exact() || !dtype.is_float();
        Function { name: op.name(), value, test: op.is_comparison(), exact }
    });
    unary.chain(binary).collect()
}

/// A graph that calls each function on all elements of `a` and `b`, one result each.
fn graph(functions: &[Function], dtype: DType, n: usize) -> Module {
    let (mut text, mut tensors) = (String::new(), String::new());
    let of = |f: &Function| if f.test { DType::Bool } else { dtype };
    let results: Vec<String> = functions.iter().map(|f| format!("r_{}: {}[{n}]", f.name, of(f))).collect();
    let _ = writeln!(text, "graph @main(%a: {dtype}[{n}], %b: {dtype}[{n}]) -> ({}) {{", results.join(", "));
    for f in functions {
        let (name, to) = (&f.name, of(f));
        let _ = writeln!(text, "  %v_{name} = call_tensor @f_{name} %a, %b : {to}[{n}]");
        let params = format!("%a: {dtype}[{n}], %b: {dtype}[{n}], out %y: {to}[{n}]");
        let body = format!("  for i in 0..{n} {{\n    block y {{ %y[i] <- {} }}\n  }}", f.value);
        let _ = writeln!(tensors, "tensor @f_{name}({params}) {{\n{body}\n}}");
    }
    let values: Vec<String> = functions.iter().map(|f| format!("%v_{}", f.name)).collect();
    let text = format!("{text}  return {}\n}}\n{tensors}", values.join(", "));
    parse_module(&text).unwrap_or_else(|e| panic!("{e}\n{text}"))
}

/// Numbers at the edges of domains and types.
fn edges(dtype: DType) -> Vec<f64> {
    let signed = |list: &[f64]| list.iter().flat_map(|x| [*x, -*x]).collect::<Vec<f64>>();
    match dtype {
        DType::Bool => vec![0.0, 1.0],
        t if t.is_float() => {
            let finite = [0.0, 1e-6, 1e-3, 0.1, 0.5, 0.999, 1.0, 1.5, 2.0, 2.5, 3.0, 7.25, 20.0, 88.0, 60000.0, 1e12];
            [signed(&finite), signed(&[f64::INFINITY]), vec![f64::NAN]].concat()
        }
        t => {
            let bits = 8 * t.size() as i32 - i32::from(t.is_signed());
            // Of 64 bits: what f64 holds.
            let highest = 2f64.powi(bits.min(52)) - 1.0;
            let some = [0.0, 1.0, 2.0, 3.0, 7.0, 8.0, 31.0, 100.0, highest - 1.0, highest];
            if t.is_signed() { [signed(&some), vec![-highest - 1.0]].concat() } else { some.to_vec() }
        }
    }
}

/// All pairs of edges.
fn operands(dtype: DType) -> [Tensor; 2] {
    let edges = edges(dtype);
    let n = edges.len();
    let pair = |f: &dyn Fn(usize) -> usize| Tensor::from_f64(dtype, vec![n * n], (0..n * n).map(|i| edges[f(i)]));
    [pair(&|i| i / n), pair(&|i| i % n)]
}

/// How far a result may be off: by a fraction of the right one and by itself.
fn bounds(f: &Function, dtype: DType, device: bool) -> [f64; 2] {
    let stored = match dtype {
        _ if f.exact || f.test => return [0.0, 0.0],
        DType::F16 => 1e-3,
        DType::BF16 => 8e-3,
        DType::F64 => 1e-13,
        _ => 3e-6,
    };
    // WGSL grants a shader 2^-11 in sines, and in the arc functions that are made of others; an error of the operand in
    // the exponential ones, which large operands multiply; 2^-21 in logarithms near 1; 4096 units in an arc tangent.
    let granted = match &f.name[..] {
        "sin" | "cos" | "tan" | "asin" | "acos" => [2e-3, 5e-4],
        "exp" | "sinh" | "cosh" | "pow" => [1e-4, 0.0],
        "log" => [1e-5, 5e-7],
        "atan" => [2e-5, 0.0],
        _ => [1e-5, 0.0],
    };
    let granted = if device { granted } else { [0.0; 2] };
    [stored + granted[0], stored * 1e-2 + granted[1]]
}

/// Where shaders are held to nothing: sines outside of `-pi..pi`.
fn is_free(f: &Function, a: f64) -> bool {
    matches!(&f.name[..], "sin" | "cos" | "tan") && a.abs() > std::f64::consts::PI
}

/// The results that are wrong, as text.
fn wrong(functions: &[Function], inputs: &[Tensor; 2], want: &[Tensor], got: &[Tensor], device: bool) -> Vec<String> {
    let mut out = vec![];
    let [a, b] = [0, 1].map(|i| inputs[i].to_f64_vec());
    for ((f, want), got) in functions.iter().zip(want).zip(got) {
        let [part, own] = bounds(f, inputs[0].dtype(), device);
        for (i, (w, g)) in want.to_f64_vec().into_iter().zip(got.to_f64_vec()).enumerate() {
            // A shader may compute a power as `exp2(b * log2(a))`, with logarithms to 2^-21.
            let powers = if device && !f.exact && f.name == "pow" { b[i].abs() * 2f64.powi(-21) } else { 0.0 };
            let near = w == g || w.is_nan() && g.is_nan() || (w - g).abs() <= (part + powers) * w.abs() + own;
            let free = device && is_free(f, a[i]);
            if !near && !free {
                out.push(format!("{} of {:?} and {:?} is {g:?}, should be {w:?}", f.name, a[i], b[i]));
            }
        }
    }
    out
}

fn on(device: &Device, m: &Module, inputs: &[Tensor]) -> Vec<Tensor> {
    let pipeline = PipelineOptions { fuse: FuseMode::Off, ..PipelineOptions::default() };
    let options = Options::for_device(device);
    let options = Options { pipeline, ..options };
    let session = Model::from_module(m.clone()).compile(&options).and_then(|c| c.session(device));
    session.and_then(|s| s.run_in_order(inputs)).unwrap_or_else(|e| panic!("{}: {e}", device.label()))
}

/// The results of the network in C, by the first compiler that is here; `None` for types that have no kernels.
fn in_c(m: &Module, inputs: &[Tensor], want: &[Tensor]) -> Option<Vec<Tensor>> {
    let processor = Processor::open(1, None).unwrap_or_else(|e| panic!("{e}"));
    let options = CompileOptions::default();
    let made = compile(m.clone(), &options, &processor.profile(), &c_source::Emitter, &mut |_, _, _| ());
    let c = made.unwrap_or_else(|e| panic!("{e}"));
    if c.plan.all_steps().into_iter().any(|s| matches!(s, Step::Host(_))) {
        return None;
    }
    let files = c_source::program(&c.plan, &|b| weft::packed_constant(&c, b, processor.isa()), "functions");
    let folder = tempfile::tempdir().unwrap_or_else(|e| panic!("{e}"));
    for f in files.unwrap_or_else(|e| panic!("{e}")) {
        std::fs::write(folder.path().join(f.name), &f.bytes).unwrap_or_else(|e| panic!("{e}"));
    }
    built::build(folder.path(), built::compilers()[0], &["-O1"]).unwrap_or_else(|e| panic!("{e}"));
    let bytes: Vec<&[u8]> = inputs.iter().map(|t| &t.bytes()[..]).collect();
    let made = built::run(folder.path(), &bytes, want.len()).unwrap_or_else(|e| panic!("{e}"));
    let read = |(w, bytes): (&Tensor, Vec<u8>)| Tensor::from_bytes(w.dtype(), w.shape().to_vec(), bytes.into());
    Some(want.iter().zip(made).map(read).collect::<Result<_, _>>().unwrap_or_else(|e| panic!("{e}")))
}

#[test]
fn every_function_is_right_on_every_type() {
    let gpu = test_device().unwrap_or_else(|e| panic!("{e}"));
    let devices = [Device::cpu(1).unwrap_or_else(|e| panic!("{e}")), Device::Gpu(gpu)];
    let (mut failed, mut on_host) = (vec![], vec![]);
    for dtype in DType::ALL {
        let (functions, inputs) = (functions(dtype), operands(dtype));
        let m = graph(&functions, dtype, inputs[0].len());
        let want = run_function(&m, m.entry, &inputs).unwrap_or_else(|e| panic!("{e}"));
        let mut check = |place: &str, got: Vec<Tensor>, device: bool| {
            let all = wrong(&functions, &inputs, &want, &got, device);
            failed.extend(all.into_iter().map(|text| format!("{dtype} {place}: {text}")));
        };
        match in_c(&m, &inputs, &want) {
            Some(got) => check("in C", got, false),
            None => on_host.push(dtype),
        }
        for device in &devices {
            check(&device.label(), on(device, &m, &inputs), matches!(device, Device::Gpu(_)));
        }
        println!("{dtype}: {} functions, {} pairs of operands", functions.len(), inputs[0].len());
    }
    assert_eq!(on_host, ON_HOST, "types without kernels");
    assert!(failed.is_empty(), "{} results are wrong:\n{}", failed.len(), failed.join("\n"));
}
