//! Layout propagation on real ops, always compared with the interpreter.

use super::*;
use crate::graph::NodeId;
use crate::interpreter::run_function;
use crate::ops::conv::Conv;
use crate::ops::window::DataLayout;
use crate::passes::{EliminateDead, run_pass};
use crate::profile::DeviceProfile;
use crate::text::{parse_module, random_tensor};

struct Result {
    ops: Vec<&'static str>,
    nhwc: usize,
    remarks: Vec<String>,
}

/// Runs the pass on a body over `%x: f32[1,4,5,6]` and `%s: f32[4,1,1]`; the results must stay.
fn layout(mode: LayoutMode, results: &str, body: &str, last: &str) -> Result {
    let lines: Vec<String> = body.lines().map(|l| format!("  {}\n", l.trim())).collect();
    let text = format!(
        "const @w : f32[4,4,3,3] = random(1)\nconst @b : f32[4,1,1] = random(2)\nconst @row : f32[6] = random(3)\n\
         const @full : f32[1,4,5,6] = random(4)\nconst @one : f32[] = [2.0]\nconst @w64 : f32[64,4,3,3] = random(5)\n\
         graph @main(%x: f32[1,4,5,6], %s: f32[4,1,1]) -> ({results}) {{\n  %w = const @w\n  %b = const @b\n  \
         %row = const @row\n  %full = const @full\n  %one = const @one\n  %w64 = const @w64\n{}  return {last}\n}}\n",
        lines.concat()
    );
    let mut m = parse_module(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    let inputs: Vec<_> = m
        .main()
        .params()
        .iter()
        .map(|&p| random_tensor(m.main().ty(p).dtype, &m.main().ty(p).const_shape().unwrap(), 7))
        .collect();
    let want = run_function(&m, m.entry, &inputs).unwrap();
    let mut cx = PassContext::new(DeviceProfile::lavapipe());
    cx.layout = mode;
    run_pass(&AutoLayout::default(), &mut m, &mut cx).unwrap_or_else(|e| panic!("{e}\n{text}"));
    run_pass(&EliminateDead {}, &mut m, &mut cx).unwrap();
    for (a, b) in run_function(&m, m.entry, &inputs).unwrap().iter().zip(&want) {
        assert_eq!(a.shape(), b.shape());
        for (x, y) in a.to_f64_vec().iter().zip(&b.to_f64_vec()) {
            assert!((x - y).abs() <= 1e-5 * (1.0 + y.abs()), "{text}");
        }
    }
    let f = m.main();
    let nodes = f.walk();
    let nhwc =
        nodes.iter().filter(|&&n| f.nodes[n].op.downcast::<Conv>().is_some_and(|c| c.layout == DataLayout::Nhwc));
    Result {
        nhwc: nhwc.count(),
        ops: nodes.iter().map(|&n| f.nodes[n].op.name()).filter(|&o| o != "const").collect(),
        remarks: cx.remarks.iter().map(|r| r.message.clone()).collect(),
    }
}

const PADS: &str = "{pads=[1,1,1,1]} : f32[1,4,5,6]";
const Y: &str = "y: f32[1,4,5,6]";

#[test]
fn two_transposes_around_a_chain() {
    let body = format!(
        "%0 = conv %x, %w {PADS}\n%1 = relu %0 : f32[1,4,5,6]\n%2 = conv %1, %w {PADS}\n%3 = relu %2 : f32[1,4,5,6]"
    );
    let r = layout(LayoutMode::Nhwc, Y, &body, "%3");
    assert_eq!((r.ops, r.nhwc), (vec!["transpose", "conv", "relu", "conv", "relu", "transpose"], 2));
    let r = layout(LayoutMode::Nchw, Y, &body, "%3");
    assert_eq!((r.ops.len(), r.nhwc), (4, 0));
    let r = layout(LayoutMode::None, Y, &body, "%3");
    assert_eq!(r.ops.len(), 4);
}

#[test]
fn broadcasts_of_every_rank_follow() {
    let body = format!(
        "%0 = conv %x, %w {PADS}\n%1 = add %0, %b : f32[1,4,5,6]\n%2 = mul %1, %row : f32[1,4,5,6]\n\
         %3 = add %full, %2 : f32[1,4,5,6]\n%4 = mul %3, %one : f32[1,4,5,6]\n%5 = add %4, %s : f32[1,4,5,6]\n\
         %6 = add %5, %x : f32[1,4,5,6]\n%7 = conv %6, %w {PADS}"
    );
    let r = layout(LayoutMode::Nhwc, Y, &body, "%7");
    let want =
        ["transpose", "conv", "add", "mul", "add", "mul", "reshape", "reshape", "add", "add", "conv", "transpose"];
    assert_eq!((r.ops, r.nhwc), (want.to_vec(), 2), "{:?}", r.remarks);
}

#[test]
fn axes_follow_and_ranks_may_drop() {
    for axis in -4..4i64 {
        let a = axis.rem_euclid(4) as usize;
        let mut shape = [1, 4, 5, 6];
        shape[a] *= 2;
        let (n, c, h, w) = (shape[0], shape[1], shape[2], shape[3]);
        let kept: Vec<String> = (0..4).filter(|&i| i != a).map(|i| shape[i].to_string()).collect();
        let body = format!(
            "%0 = conv %x, %w {PADS}\n%1 = concat %0, %0 {{axis={axis}}} : f32[{n},{c},{h},{w}]\n\
             %2 = softmax %1 {{axes=[{a}]}} : f32[{n},{c},{h},{w}]\n%3 = reduce %2 {{axes=[{a}]}} : f32[{}]",
            kept.join(",")
        );
        let r = layout(LayoutMode::Nhwc, &format!("y: f32[{}]", kept.join(",")), &body, "%3");
        assert_eq!(r.nhwc, 1);
        // Without channels the rest stands in order; else the result is put back.
        let expected = if a == 1 { 1 } else { 2 };
        assert_eq!(r.ops.iter().filter(|&&o| o == "transpose").count(), expected, "axis {axis}: {:?}", r.ops);
    }
}

#[test]
fn second_results_and_side_exits() {
    let r = layout(
        LayoutMode::Nhwc,
        "a: f32[1,4,5,6], b: f32[1,2,5,6], c: f32[1,4,1,1], d: f32[1,4]",
        &format!(
            "%0 = conv %x, %w {PADS}\n%1, %2 = split %0 {{axis=1, sizes=[2,2]}} : f32[1,2,5,6], f32[1,2,5,6]\n\
             %3 = add %1, %2 : f32[1,2,5,6]\n%4 = global_average_pool %0 : f32[1,4,1,1]\n%5 = flatten %4 : f32[1,4]"
        ),
        "%0, %3, %4, %5",
    );
    assert_eq!(r.ops.iter().filter(|&&o| o == "transpose").count(), 2, "{:?}", r.ops);
}

#[test]
fn transposes_of_the_model_dissolve() {
    let body = "%0 = transpose %x {perm=[0,2,3,1]} : f32[1,5,6,4]\n%1 = exp %0 : f32[1,5,6,4]\n\
                %2 = transpose %1 {perm=[0,3,1,2]} : f32[1,4,5,6]\n%3 = conv %2, %w {pads=[1,1,1,1]} : f32[1,4,5,6]\n\
                %4 = transpose %3 {perm=[0,2,3,1]} : f32[1,5,6,4]";
    let r = layout(LayoutMode::Nhwc, "y: f32[1,5,6,4]", body, "%4");
    assert_eq!(r.ops, ["transpose", "exp", "conv"]);
    let r = layout(LayoutMode::Nchw, "y: f32[1,5,6,4]", body, "%4");
    assert_eq!(r.ops, ["exp", "conv", "transpose"]);
}

#[test]
fn auto_is_no_dearer_than_either() {
    let body = format!(
        "%0 = max_pool %x {{kernel=[1,1]}} : f32[1,4,5,6]\n%1 = conv %0, %w {PADS}\n%2 = relu %1 : f32[1,4,5,6]\n\
         %3 = conv %2, %w64 {{pads=[1,1,1,1]}} : f32[1,64,5,6]"
    );
    let cost = |mode| {
        let r = layout(mode, "y: f32[1,64,5,6]", &body, "%3");
        let total = r.remarks.iter().find_map(|m| Some(m.rsplit_once("estimated at ")?.1.to_string()));
        (total, r)
    };
    let (_, auto) = cost(LayoutMode::Auto);
    // Small data: the transposes would cost more than the convolutions gain.
    assert_eq!(auto.nhwc, 0, "{:?}", auto.remarks);
    assert!(auto.remarks.iter().any(|m| m.contains("would not pay")), "{:?}", auto.remarks);
    let (nhwc, r) = cost(LayoutMode::Nhwc);
    assert_eq!(r.nhwc, 2);
    assert!(nhwc.is_some_and(|time| time.ends_with(" ms")), "{:?}", r.remarks);
}

/// On a processor: convolutions of narrow groups and pools have the cheaper layout, the others run in NHWC.
#[test]
fn narrow_groups_of_processors_are_weighed() {
    let after = |result: &str, body: &str| {
        let text = format!(
            "const @d : f32[64,1,3,3] = random(1)\nconst @w : f32[64,64,1,1] = random(2)\n\
             graph @main(%x: f32[1,64,56,56]) -> (y: f32[1,64,{result}]) {{\n  %d = const @d\n  \
             %w = const @w\n{body}\n}}\n"
        );
        let mut m = parse_module(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
        let mut cx = PassContext::new(DeviceProfile::processor(2, [14, 32]));
        (cx.layout, cx.opt_level) = (LayoutMode::Auto, 3);
        run_pass(&AutoLayout::default(), &mut m, &mut cx).unwrap_or_else(|e| panic!("{e}\n{text}"));
        run_pass(&EliminateDead {}, &mut m, &mut cx).expect("the pass runs");
        let f = m.main();
        let layout = |n: &NodeId| f.nodes[*n].op.layout().map(|l| (f.nodes[*n].op.name(), l.data_layout()));
        f.walk().iter().filter_map(layout).collect::<Vec<_>>()
    };
    let depthwise = "  %0 = conv %x, %d {group=64, pads=[1,1,1,1]}";
    let (first, last) = ("  %0 = conv %x, %w", "  %2 = conv %1, %w");
    let within = "  %1 = conv %0, %d {group=64, pads=[1,1,1,1]}";
    let [nchw, nhwc] = [DataLayout::Nchw, DataLayout::Nhwc];
    assert_eq!(after("56,56", &format!("{depthwise}\n  return %0")), [("conv", nchw)]);
    assert_eq!(after("56,56", &format!("{first}\n  return %0")), [("conv", nhwc)]);
    assert_eq!(after("56,56", &format!("{first}\n{within}\n{last}\n  return %2")), [("conv", nhwc); 3]);
    let pool = "  %0 = max_pool %x {kernel=[3,3], pads=[1,1,1,1]}\n  return %0";
    assert_eq!(after("56,56", pool), [("max_pool", nchw)]);
    let transposed =
        "  %0 = conv_transpose %x, %d {group=64, strides=[2,2], pads=[1,1,1,1], output_padding=[1,1]}\n  return %0";
    assert_eq!(after("112,112", transposed).iter().filter(|n| n.0 == "conv").count(), 4);
}
