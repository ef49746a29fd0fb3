//! Integers beyond 32 bits, which kernels do not take: they are computed in 64 bits where sizes are fixed, open, and decided
//! by a run.

use benches::test_device::test_device;
use compiler::graph::Module;
use compiler::interpreter::run_function;
use compiler::tensor::Tensor;
use compiler::text::parse_module;
use weft::{Device, Model, Options};

/// Nodes on `a`, whose first dimension is `$n`, and on `k`.
const NODES: [&str; 25] = [
    "identity %a : i64[$n]",
    "gather %a, %i {axis=0} : i64[2]",
    "reduce %a {axes=[0]} : i64[]",
    "reduce %a {kind=max, axes=[0], keepdims=true} : i64[1]",
    "reduce %a {kind=prod, axes=[0]} : i64[]",
    "concat %a, %far {axis=0} : i64[$n+1]",
    "where %flag, %a, %far : i64[$n]",
    "mul %a, %k : i64[$n]",
    "add %a, %far : i64[$n]",
    "mod %a, %k : i64[$n]",
    "slice %a {starts=[1], ends=[3], axes=[0]} : i64[min($n, 3) - 1]",
    "pad %a, %far {pads=[1,0]} : i64[$n+1]",
    "cast %a {to=f32} : f32[$n]",
    "cast %a {to=i32} : i32[$n]",
    "equal %a, %far : bool[$n]",
    "greater %a, %k : bool[$n]",
    "scatter_nd %a, %at, %far : i64[$n]",
    "scatter_elements %a, %i, %two {axis=0} : i64[$n]",
    "arg_reduce %a {axis=0} : i64[]",
    "cumsum %a {axis=0} : i64[$n]",
    "transpose %rows {perm=[1,0]} : i64[$n,1]",
    "clip %a, %k, %far : i64[$n]",
    "clip %a, %far : i64[$n]",
    "min %a, %far : i64[$n]",
    "max %a, %far : i64[$n]",
];

/// The graph of a node: `a` is the input, or a slice of it whose size a run decides.
fn text(node: &str, size: &str, decided: bool) -> String {
    let (a, n) = match decided {
        true => ("slice %l, %b, %e {dims=[`found`]} : i64[found]", "found"),
        false => ("identity %l", size),
    };
    let node = node.replace("$n", n);
    let (op, ty) = node.rsplit_once(" : ").unwrap_or_default();
    format!(
        "const @i : i64[2] = [1, 2]\nconst @far : i64[1] = [1152921504606846977]\nconst @two : i64[2] = [1152921504606846977, 7]\n\
         const @flag : bool[1] = [true]\nconst @at : i64[1,1] = [1]\n\
         graph @main(%l: i64[{size}], %b: i64[1], %e: i64[1], %k: i64[1]) -> (y: {ty}) {{\n  %i = const @i\n  %far = const @far\n  \
         %two = const @two\n  %flag = const @flag\n  %at = const @at\n  %a = {a}\n  %rows = unsqueeze %a {{axes=[0]}}\n  \
         %y = {op} : {ty}\n  return %y\n}}\n"
    )
}

fn run(m: &Module, device: &Device, inputs: &[Tensor]) -> Result<Vec<Tensor>, weft::Error> {
    let compiled = Model::from_module(m.clone()).compile(&Options::for_device(device))?;
    compiled.session(device)?.run_in_order(inputs)
}

#[test]
fn integers_of_64_bits_are_computed_at_any_sizes() {
    let gpu = test_device().unwrap_or_else(|e| panic!("{e}"));
    let devices = [Device::cpu(2).unwrap_or_else(|e| panic!("{e}")), Device::Gpu(gpu)];
    let far = 1i64 << 40;
    let l = Tensor::ints(&[far, -far, (1 << 33) + 1, 1 << 33, 5, (1 << 60) + 1]);
    let inputs = [l, Tensor::ints(&[1]), Tensor::ints(&[5]), Tensor::ints(&[3])];
    for node in NODES {
        for (size, decided) in [("6", false), ("n", false), ("6", true), ("n", true)] {
            let text = text(node, size, decided);
            let m = parse_module(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
            let want = run_function(&m, m.entry, &inputs).unwrap_or_else(|e| panic!("{e}\n{text}"));
            for device in &devices {
                let got = run(&m, device, &inputs).unwrap_or_else(|e| panic!("{}: {e}\n{text}", device.label()));
                assert_eq!(got, want, "{node} on {}\n{text}", device.label());
            }
        }
    }
}
