use super::*;
use crate::dtype::DType;
use crate::interpreter::run_function;
use crate::ops::cast::Cast;
use crate::passes::{Sequential, run_pass};
use crate::profile::DeviceProfile;
use crate::tensor::Tensor;
use crate::text::{parse_module, random_tensor};
use proptest::prelude::*;

fn mixed(text: &str) -> (Module, Module, PassContext) {
    let before = parse_module(text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    let mut after = before.clone();
    let mut cx = PassContext::default();
    run_pass(&MixedPrecision::default(), &mut after, &mut cx).unwrap_or_else(|e| panic!("{e}\n{text}"));
    (before, after, cx)
}

/// Casts f16 -> f32 -> f16 with nothing between.
fn chains(m: &Module) -> usize {
    let f = m.main();
    let cast_to = |n: NodeId, to: DType| f.nodes[n].op.downcast::<Cast>().is_some_and(|c| c.to == to);
    let back = |n: &NodeId| {
        let from = f.nodes[*n].inputs.first().copied().flatten().and_then(|v| f.def_node(v));
        cast_to(*n, DType::F16)
            && from.is_some_and(|d| cast_to(d, DType::F32) && f.ty(f.nodes[d].inputs[0].unwrap()).dtype == DType::F16)
    };
    f.walk().iter().filter(|n| back(n)).count()
}

#[test]
fn a_product_of_ones_is_exact() {
    let text = "const @b : f32[4096,3] = splat(1.0)\ngraph @main(%x: f32[2,4096]) -> (y: f32[2,3]) {\n  %b = const @b\n  \
                %0 = matmul %x, %b\n  return %0\n}\n";
    let (_, m, _) = mixed(text);
    assert_eq!(m.main().ty(m.main().params()[0]).dtype, DType::F32);
    let ones = Tensor::from_vec(vec![2, 4096], vec![1.0f32; 8192]);
    let got = run_function(&m, m.entry, &[ones]).unwrap();
    assert_eq!((got[0].dtype(), got[0].to_f32_vec()), (DType::F32, vec![4096.0; 6]));
}

#[test]
fn the_pass_is_idempotent() {
    let text = "const @w : f32[4,4] = random(1)\ngraph @main(%x: f32[2,4]) -> (y: f32[2,4]) {\n  %w = const @w\n  \
                %0 = matmul %x, %w\n  %1 = exp %0\n  %2 = matmul %1, %w\n  return %2\n}\n";
    let (_, m, mut cx) = mixed(text);
    let mut again = m.clone();
    Sequential::new(["mixed-precision", "eliminate-dead"]).run(&mut again, &mut cx).unwrap();
    assert_eq!(chains(&again), 0);
    let x = [Tensor::from_vec(vec![2, 4], vec![0.5f32; 8])];
    let (a, b) = (run_function(&m, m.entry, &x).unwrap(), run_function(&again, m.entry, &x).unwrap());
    assert_eq!(a[0].to_f32_vec(), b[0].to_f32_vec());
}

/// Each op of class `always` with a constant at each place where it takes one, slight beside the data and not. Whatever
/// of its constants stays in f32, the op takes it.
const ALWAYS: &[(&str, &[&str])] = &[
    ("conv", &["conv %y, %w {pads=[1,1,1,1]}", "conv %y, %w, %b {pads=[1,1,1,1]}", "conv %wide, %w"]),
    ("conv_transpose", &["conv_transpose %y, %w", "conv_transpose %y, %w, %b", "conv_transpose %wide, %w"]),
    ("matmul", &["matmul %y, %m", "matmul %m, %y", "matmul %flat, %m", "matmul %row, %y"]),
    ("permuted_matmul", &["permuted_matmul %y, %m {perm_b=[1,0]}", "permuted_matmul %m, %y {perm_a=[1,0]}"]),
    ("gemm", &["gemm %flat, %m", "gemm %m, %flat {trans_b=true}", "gemm %flat, %m, %row {alpha=0.5}"]),
    (
        "einsum",
        &[
            "einsum %y, %m {equation=\"nchw,wv->nchv\"}",
            "einsum %m, %y {equation=\"vw,nchw->nchv\"}",
            "einsum %y, %m, %row {equation=\"nchw,wv,v->nch\"}",
            "einsum %row, %y {equation=\"w,nchw->c\"}",
        ],
    ),
];

#[test]
fn members_of_the_class_always_take_the_constants_that_stay_in_f32() {
    let default = |d: &crate::ops::OpDef| (d.from_attrs)(&Default::default()).ok();
    for def in crate::ops::OPS.iter() {
        let always = default(def).is_some_and(|op| op.precision() == crate::ops::Precision::Always);
        assert_eq!(always, ALWAYS.iter().any(|m| m.0 == def.name), "`{}` and the cases of its class", def.name);
    }
    for node in ALWAYS.iter().flat_map(|m| m.1) {
        let text = format!(
            "const @w : f32[4,4,3,3] = random(1)\nconst @b : f32[4] = random(2)\nconst @m : f32[8,8] = random(3)\n\
             const @row : f32[8] = random(4)\n\
             graph @main(%x: f32[1,4,8,8]) -> (y: f32[1]) {{\n  %w = const @w\n  %b = const @b\n  %m = const @m\n  \
             %row = const @row\n  %wide = concat %x, %x, %x, %x, %x, %x, %x, %x {{axis=2}}\n  \
             %y = conv %x, %w {{pads=[1,1,1,1]}}\n  %flat = reshape %y {{shape=[32,8]}}\n  %0 = {node}\n  \
             %1 = flatten %0 {{axis=0}}\n  %2 = reduce %1 {{kind=mean, axes=[1]}}\n  return %2\n}}\n"
        );
        for profile in [DeviceProfile::lavapipe(), DeviceProfile::named("ada").unwrap()] {
            let before = parse_module(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
            let mut after = before.clone();
            let mut cx = PassContext::new(profile);
            run_pass(&MixedPrecision::default(), &mut after, &mut cx).unwrap_or_else(|e| panic!("{node}: {e}"));
            crate::verify::verify_module(&after).unwrap_or_else(|e| panic!("{node}: {e:?}"));
            let input = [random_tensor(DType::F32, &[1, 4, 8, 8], 5)];
            let [got, want] = [&after, &before].map(|m| run_function(m, m.entry, &input).unwrap()[0].to_f64_vec()[0]);
            assert!((got - want).abs() <= 1e-2 * (1.0 + want.abs()), "{node}: {got}, not {want}");
        }
    }
}

/// One node of a random graph over values of shape `[3, 4]`: an op and the choice of its operands.
fn any_node() -> impl Strategy<Value = (usize, usize, usize)> {
    (0..13usize, any::<usize>(), any::<usize>())
}

fn graph_text(nodes: &[(usize, usize, usize)], outputs: &[usize]) -> String {
    let mut text = String::from(
        "const @w : f32[4,4] = random(1)\nconst @c : f32[4] = random(2)\nconst @big : f32[4] = [70000.0, 1.0, 0.5, 2.0]\n\
         graph @main(%v0: f32[3,4], %v1: f32[3,4]) -> (RESULTS) {\n  %w = const @w\n  %c = const @c\n  %big = const @big\n",
    );
    for (i, &(op, a, b)) in nodes.iter().enumerate() {
        let (i, a, b) = (i + 2, a % (i + 2), b % (i + 2));
        let line = match op {
            0..=2 => format!("matmul %v{a}, %w"),
            3 => format!("add %v{a}, %v{b}"),
            4 => format!("mul %v{a}, %c"),
            5 => format!("relu %v{a}"),
            6 => format!("tanh %v{a}"),
            7 => format!("softmax %v{a} {{axes=[1]}}"),
            8 => format!("clip %v{a} {{min=-1.0, max=1e6}}"),
            9 => format!("clip %v{a} {{min=-2.0, max=2.0}}"),
            10 => format!("max %v{a}, %v{b}"),
            11 => format!("layer_norm %v{a}, %c {{axis=1, epsilon=0.1}}"),
            _ => format!("min %v{a}, %big"),
        };
        text += &format!("  %v{i} = {line} : f32[3,4]\n");
    }
    let n = nodes.len() + 2;
    let results: Vec<usize> = outputs.iter().map(|o| o % n).collect();
    let names: Vec<String> = (0..results.len()).map(|i| format!("r{i}: f32[3,4]")).collect();
    let list: Vec<String> = results.iter().map(|r| format!("%v{r}")).collect();
    text.replace("RESULTS", &names.join(", ")) + &format!("  return {}\n}}\n", list.join(", "))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    /// Random graphs in mixed precision: results keep their types and agree within f16's tolerance, and no value goes
    /// from f16 through f32 and back.
    #[test]
    fn mixed_graphs_agree(nodes in prop::collection::vec(any_node(), 1..14), outputs in prop::collection::vec(any::<usize>(), 1..3)) {
        let text = graph_text(&nodes, &outputs);
        let (before, after, _) = mixed(&text);
        prop_assert_eq!(chains(&after), 0, "{}", text);
        crate::verify::verify_module(&after).map_err(|e| TestCaseError::fail(format!("{e:?}\n{text}")))?;
        let inputs = [random_tensor(DType::F32, &[3, 4], 5), random_tensor(DType::F32, &[3, 4], 6)];
        let want = run_function(&before, before.entry, &inputs).unwrap();
        let got = run_function(&after, after.entry, &inputs).unwrap();
        for (w, g) in want.iter().zip(&got) {
            prop_assert_eq!(g.dtype(), DType::F32);
            let (w, g) = (w.to_f64_vec(), g.to_f64_vec());
            let norm = w.iter().map(|x| x * x).sum::<f64>().sqrt();
            let error = w.iter().zip(&g).map(|(a, b)| (a - b) * (a - b)).sum::<f64>().sqrt();
            prop_assert!(error <= 1e-2 * norm.max(0.1), "{error} of {norm}\n{text}");
        }
    }
}
