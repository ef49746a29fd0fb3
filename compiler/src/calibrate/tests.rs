use super::*;
use crate::agreement::agree;
use crate::text::{parse_module, random_tensor};

/// Two branches meet before a sigmoid. The rounding of the first moves it much, that of the second a thousandth as
/// much.
const BRANCHES: &str = r#"
const @w : f32[8,8,3,3] = random(1)
const @v : f32[8,8,3,3] = random(2)
const @t : f32[8,8,1,1] = random(3)
const @u : f32[8,8,5,5] = random(4)
const @k : f32[] = [40.0]
const @c : f32[] = [0.01]
graph @main(%x: f32[1,8,16,16]) -> (p: f32[1,8,12,12]) {
  %w = const @w
  %v = const @v
  %t = const @t
  %u = const @u
  %k = const @k
  %c = const @c
  %0 = conv %x, %w !from("Conv_0")
  %1 = relu %0 !from("Relu_1")
  %2 = conv %1, %v !from("Conv_2")
  %3 = mul %2, %k !from("Mul_3")
  %4 = conv %x, %t !from("Conv_4")
  %5 = relu %4 !from("Relu_5")
  %6 = conv %5, %u !from("Conv_6")
  %7 = mul %6, %c !from("Mul_7")
  %8 = add %3, %7 !from("Add_8")
  %9 = sigmoid %8 !from("Sigmoid_9")
  return %9
}
"#;

fn branches() -> (Module, PipelineOptions, Vec<Tensor>) {
    let m = parse_module(BRANCHES).unwrap_or_else(|e| panic!("{e}"));
    let options = PipelineOptions { amp: AmpMode::Auto, ..PipelineOptions::default() };
    (m, options, vec![random_tensor(DType::F32, &[1, 8, 16, 16], 7)])
}

fn calibration(limits: &Limits) -> (Module, Calibration) {
    let (m, options, inputs) = branches();
    let found = calibrate(&m, &options, &DeviceProfile::baseline(), &inputs, limits, &mut |_| ());
    (m, found.unwrap_or_else(|e| panic!("{e}")))
}

#[test]
fn only_kernels_whose_rounding_matters_stay_in_f32() {
    let limits = Limits::default();
    let (_, found) = calibration(&limits);
    assert!(found.used <= limits.used && found.error <= limits.used * F16_TOLERANCE, "{found:?}");
    assert!(found.runs <= limits.runs && !found.all_in_f32(), "{found:?}");
    let sources: Vec<&str> = found.listed().iter().map(|n| n.as_str()).collect();
    // The steep branch; the other one, and what joins both, is in f16.
    assert_eq!(sources, ["Conv_0", "Relu_1", "Conv_2", "Sigmoid_9"]);
}

/// What the calibration rounds is what a run of the mixed graph rounds: kept nodes bring the interpreter's result
/// within the tolerance, too.
#[test]
fn the_mixed_graph_agrees_with_the_nodes_kept() {
    let (m, found) = calibration(&Limits::default());
    let run = |keep: Vec<KeepF32>| {
        let mut mixed = m.clone();
        let mut cx = PassContext { keep_f32: keep, ..PassContext::default() };
        Sequential::new(["mixed-precision"]).run(&mut mixed, &mut cx).unwrap_or_else(|e| panic!("{e}"));
        let inputs = [random_tensor(DType::F32, &[1, 8, 16, 16], 7)];
        let [got, want] = [&mixed, &m].map(|m| crate::interpreter::run_function(m, m.entry, &inputs).unwrap());
        agree(&got[0], &want[0], &Tolerance::new(DType::F16, None, None))
    };
    assert!(!run(vec![]).pass);
    assert!(run(found.keep).pass);
}

/// A limit that only f32 keeps is met, whatever it costs; a loose one keeps nothing.
#[test]
fn the_limit_decides_what_is_kept() {
    let (_, none) = calibration(&Limits { used: 1e-9, ..Limits::default() });
    assert!(none.all_in_f32() && none.used == 0.0 && !none.keep.is_empty(), "{none:?}");
    let (_, all) = calibration(&Limits { used: 1e9, ..Limits::default() });
    assert!(all.keep.is_empty() && all.used > 1.0 && all.saved > 0, "{all:?}");
    let (_, tight) = calibration(&Limits { used: 0.25, ..Limits::default() });
    let (_, half) = calibration(&Limits::default());
    assert!(tight.used <= 0.25 && tight.saved <= half.saved && half.saved < all.saved, "{tight:?} {half:?}");
}

/// Kept nodes are nodes of the compiled program: a batch norm that is folded into its convolution is none of them.
#[test]
fn folded_nodes_are_not_kept() {
    let text = BRANCHES.replace(
        "  %1 = relu %0 !from(\"Relu_1\")\n",
        concat!(
            "  %s = const @s\n  %n = batch_norm %0, %s, %s, %s, %s !from(\"Norm_1\")\n",
            "  %1 = relu %n !from(\"Relu_1\")\n",
        ),
    );
    let text = format!("const @s : f32[8] = [1.0, 1.5, 1.0, 1.25, 1.0, 1.0, 1.5, 1.0]\n{text}");
    let m = parse_module(&text).unwrap_or_else(|e| panic!("{e}"));
    let (_, options, inputs) = branches();
    let found = calibrate(&m, &options, &DeviceProfile::baseline(), &inputs, &Limits::default(), &mut |_| ());
    let found = found.unwrap_or_else(|e| panic!("{e}"));
    let names = found.listed();
    assert!(!names.is_empty() && !names.iter().any(|n| n.as_str() == "Norm_1"), "{names:?}");
    assert!(found.nodes.iter().all(|n| n.listed.as_str() != "Norm_1"), "{:?}", found.nodes);
}

/// A result that fails leads to a node whose rounding takes it beyond the tolerance, and that mends it.
#[test]
fn errors_accumulate_up_to_the_node_that_passes_the_tolerance() {
    let (m, options, inputs) = branches();
    let tolerance = Tolerance::uniform(F16_TOLERANCE);
    let found = accumulate(&m, &options, &DeviceProfile::baseline(), &inputs, tolerance, &mut |_| ());
    let found = found.unwrap_or_else(|e| panic!("{e}"));
    let passed = found.passed.clone().unwrap_or_else(|| panic!("{found:?}"));
    assert!(found.used > 1.0 && passed.before <= 1.0 && passed.after > 1.0, "{found:?}");
    assert!(passed.kept < found.used && passed.bytes > 0 && !passed.keep.is_empty(), "{found:?}");
    assert!(found.points.iter().any(|p| p.node.as_str() == "Sigmoid_9" && p.used > 1.0), "{found:?}");
    let off = PipelineOptions { keep_f32: vec![KeepF32::listed("*")], ..options };
    let none = accumulate(&m, &off, &DeviceProfile::baseline(), &inputs, tolerance, &mut |_| ());
    let none = none.unwrap_or_else(|e| panic!("{e}"));
    assert!(none.passed.is_none() && none.used == 0.0 && none.saved == 0, "{none:?}");
}
