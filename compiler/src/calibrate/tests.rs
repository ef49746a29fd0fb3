use super::*;
use crate::agreement::{Tolerance, agree};
use crate::passes::AmpMode;
use crate::text::{parse_module, random_tensor};

/// Two branches meet before a sigmoid. The rounding of the first moves it much, that of the second a thousandth as much.
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

fn calibration() -> (Module, Calibration) {
    let m = parse_module(BRANCHES).unwrap_or_else(|e| panic!("{e}"));
    let options = PipelineOptions { amp: AmpMode::Auto, ..PipelineOptions::default() };
    let inputs = [random_tensor(DType::F32, &[1, 8, 16, 16], 7)];
    let found = calibrate(&m, &options, &DeviceProfile::baseline(), &inputs).unwrap_or_else(|e| panic!("{e}"));
    (m, found)
}

#[test]
fn only_kernels_whose_rounding_matters_stay_in_f32() {
    let (_, found) = calibration();
    assert!(found.agrees && found.error <= MAX_USED * MAX_ERROR, "{found:?}");
    let sources: Vec<&str> = found.kept_sources().iter().map(|n| n.as_str()).collect();
    assert!(sources.contains(&"Conv_0") || sources.contains(&"Conv_2"), "{sources:?}");
    assert!(!sources.contains(&"Conv_4") && !sources.contains(&"Conv_6"), "{sources:?}");
}

/// What the calibration rounds is what a run of the mixed graph rounds: kept nodes bring the interpreter's result within
/// the tolerance, too.
#[test]
fn the_mixed_graph_agrees_with_the_nodes_kept() {
    let (m, found) = calibration();
    let run = |keep: Vec<KeepF32>| {
        let mut mixed = m.clone();
        let mut cx = PassContext { keep_f32: keep, ..PassContext::default() };
        Sequential::new(["mixed-precision"]).run(&mut mixed, &mut cx).unwrap_or_else(|e| panic!("{e}"));
        let inputs = [random_tensor(DType::F32, &[1, 8, 16, 16], 7)];
        let [got, want] = [&mixed, &m].map(|m| crate::cpu::run_function(m, m.entry, &inputs).unwrap());
        agree(&got[0], &want[0], &Tolerance::new(DType::F16, None, None))
    };
    assert!(!run(vec![]).pass);
    assert!(run(found.keep).pass);
}

/// From everything in f32, what the result does not need goes back to f16, and no single kernel more could.
#[test]
fn what_is_kept_in_vain_goes_back_to_f16() {
    let m = parse_module(BRANCHES).unwrap_or_else(|e| panic!("{e}"));
    let (options, profile) =
        (PipelineOptions { amp: AmpMode::Auto, ..PipelineOptions::default() }, DeviceProfile::baseline());
    let inputs = [random_tensor(DType::F32, &[1, 8, 16, 16], 7)];
    let (_, values, exact) = measure(&m, &inputs).unwrap_or_else(|e| panic!("{e}"));
    let graph = Graph::new(&m, &options, &profile);
    let mut trial = Trial { module: &m, interpreter: Interpreter::new(&m), values: &values, exact: &exact };
    let kernels = graph.kernels(&[]).unwrap_or_else(|e| panic!("{e}"));
    let mut kept = trial.ranked(&kernels).unwrap_or_else(|e| panic!("{e}"));
    let all = kept.len();
    let mut search = Search { graph: &graph, trial: &mut trial, own: vec![], all: 1.0 };
    let start = search.enough(&mut kept, all).unwrap_or_else(|e| panic!("{e}"));
    let end = search.without_the_needless(&mut kept, start).unwrap_or_else(|e| panic!("{e}"));
    assert!(!kept.is_empty() && kept.len() < all, "{} of {all} kept", kept.len());
    assert!(start.used < end.used && end.used <= MAX_USED, "{} then {}", start.used, end.used);
    for n in 0..kept.len() {
        let one = kept.remove(n);
        assert!(search.outcome(&kept).is_ok_and(|o| o.used > MAX_USED), "kernel {n} is kept in vain");
        kept.insert(n, one);
    }
}
