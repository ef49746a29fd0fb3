//! The classic rules on real ops.

use super::*;
use crate::interpreter::run_function;
use crate::ops::control::Call;
use crate::passes::run_pass;
use crate::profile::DeviceProfile;
use crate::text::{parse_module, random_tensor};

/// Fuses, checks that the results stay, and returns for each call the ops of its group.
fn fuse(text: &str, pass: &FuseOps, profile: DeviceProfile) -> (Vec<String>, Vec<String>, Module) {
    let mut m = parse_module(text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    let inputs: Vec<_> = m
        .main()
        .params()
        .iter()
        .enumerate()
        .map(|(i, &p)| random_tensor(m.main().ty(p).dtype, &m.main().ty(p).const_shape().unwrap(), i as u64))
        .collect();
    let want = run_function(&m, m.entry, &inputs).unwrap();
    let mut cx = PassContext::new(profile);
    run_pass(pass, &mut m, &mut cx).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(run_function(&m, m.entry, &inputs).unwrap(), want);
    let f = m.main();
    let mut groups = Vec::new();
    for n in f.walk() {
        if let Some(call) = f.nodes[n].op.downcast::<Call>() {
            let g = &m.functions[&call.callee];
            assert!(g.primitive);
            let ops = g.walk().into_iter().map(|n| g.nodes[n].op.name()).filter(|&o| o != "const");
            groups.push(ops.collect::<Vec<_>>().join(" "));
        }
    }
    (groups, cx.remarks.iter().map(|r| r.message.clone()).collect(), m)
}

fn classic(params: &str, body: &str, result: &str, last: &str) -> (Vec<String>, Vec<String>) {
    let lines: Vec<String> = body.lines().map(|l| format!("  {}\n", l.trim())).collect();
    let text = format!(
        "const @w : f32[4,4,1,1] = random(1)\nconst @b : f32[4,1,1] = random(2)\nconst @two : f32[] = [2.0]\n\
         graph @main({params}) -> ({result}) {{\n  %w = const @w\n  %b = const @b\n  %two = const @two\n{}  return {last}\n}}\n",
        lines.concat()
    );
    let pass = FuseOps { mode: Some(FuseMode::Classic), ..FuseOps::default() };
    let (groups, remarks, _) = fuse(&text, &pass, DeviceProfile::lavapipe());
    (groups, remarks)
}

const X: &str = "%x: f32[1,4,3,3]";
const Y: &str = "y: f32[1,4,3,3]";

#[test]
fn residual_block() {
    let (groups, remarks) = classic(
        X,
        "%0 = conv %x, %w : f32[1,4,3,3] !name(\"conv_5\")
         %1 = add %0, %b : f32[1,4,3,3]
         %2 = relu %1 : f32[1,4,3,3]
         %3 = conv %2, %w : f32[1,4,3,3] !name(\"conv_6\")
         %4 = conv %x, %w : f32[1,4,3,3] !name(\"conv_7\")
         %5 = add %3, %4 : f32[1,4,3,3]
         %6 = relu %5 : f32[1,4,3,3]",
        Y,
        "%6",
    );
    assert_eq!(groups, ["conv add relu", "conv", "conv add relu"]);
    assert!(
        remarks.iter().any(|r| r.contains("conv_7 not fused") && r.contains("computed in the kernel of conv_6")),
        "{remarks:?}"
    );
}

#[test]
fn dominator_through_a_broadcast() {
    let (groups, _) = classic(
        X,
        "%0 = conv %x, %w : f32[1,4,3,3]
         %1 = add %0, %b : f32[1,4,3,3]
         %2 = exp %1 : f32[1,4,3,3]
         %3 = mul %1, %two : f32[1,4,3,3]
         %4 = add %2, %3 : f32[1,4,3,3]",
        Y,
        "%4",
    );
    assert_eq!(groups, ["conv add exp mul add"]);
}

#[test]
fn concat_of_two_convolution_branches() {
    let (groups, remarks) = classic(
        X,
        "%0 = conv %x, %w : f32[1,4,3,3]
         %1 = relu %0 : f32[1,4,3,3]
         %2 = conv %x, %w : f32[1,4,3,3]
         %3 = relu %2 : f32[1,4,3,3]
         %4 = concat %1, %3 {axis=1} : f32[1,8,3,3]
         %5 = exp %4 : f32[1,8,3,3]",
        "y: f32[1,8,3,3]",
        "%5",
    );
    assert_eq!(groups, ["conv relu", "conv relu", "concat exp"]);
    assert!(remarks.iter().any(|r| r.contains("copies the 2 operands of concat")), "{remarks:?}");
}

#[test]
fn split_consumers() {
    let (groups, _) = classic(
        X,
        "%0, %1 = split %x {axis=1, sizes=[2,2]} : f32[1,2,3,3], f32[1,2,3,3]
         %2 = relu %0 : f32[1,2,3,3]
         %3 = exp %1 : f32[1,2,3,3]
         %4 = add %2, %3 : f32[1,2,3,3]",
        "y: f32[1,2,3,3]",
        "%4",
    );
    assert_eq!(groups, ["split relu exp add"]);
}

#[test]
fn an_output_in_the_middle_escapes() {
    let (groups, remarks) = classic(
        X,
        "%0 = conv %x, %w : f32[1,4,3,3]
         %1 = relu %0 : f32[1,4,3,3]",
        "z: f32[1,4,3,3], y: f32[1,4,3,3]",
        "%0, %1",
    );
    assert_eq!(groups, ["conv", "relu"]);
    assert!(remarks.iter().any(|r| r.contains("one of the model's")), "{remarks:?}");
}

#[test]
fn softmax_takes_a_cast_and_a_reduction_its_prologue() {
    let (groups, _) = classic(
        X,
        "%0 = softmax %x {axes=[1]} : f32[1,4,3,3]
         %1 = cast %0 {to=f16} : f16[1,4,3,3]",
        "y: f16[1,4,3,3]",
        "%1",
    );
    assert_eq!(groups, ["softmax cast"]);
    let (groups, _) = classic(
        X,
        "%0 = exp %x : f32[1,4,3,3]
         %1 = reduce %0 {axes=[1], keepdims=false} : f32[1,3,3]
         %2 = relu %1 : f32[1,3,3]",
        "y: f32[1,3,3]",
        "%2",
    );
    assert_eq!(groups, ["exp reduce", "relu"]);
}

/// Nodes of a group where no option says otherwise.
const DEPTH_LIMIT: usize = 256;

#[test]
fn depth_limit() {
    let lines: Vec<String> = (0..300)
        .map(|i| format!("%{i} = abs {} : f32[1,4,3,3]", if i == 0 { "%x".into() } else { format!("%{}", i - 1) }))
        .collect();
    let (groups, remarks) = classic(X, &lines.join("\n"), Y, "%299");
    assert_eq!(groups.iter().map(|g| g.split(' ').count()).collect::<Vec<_>>(), [256, 44]);
    assert!(remarks.iter().any(|r| r.contains("depth limit is 256")), "{remarks:?}");
}

#[test]
fn no_kernel_exceeds_the_binding_limit() {
    let params: Vec<String> = (0..300).map(|i| format!("%x{i}: f32[7]")).collect();
    let lines: Vec<String> = (1..300)
        .map(|i| {
            format!(
                "  %{} = add {}, %x{i} : f32[7]\n",
                i - 1,
                if i == 1 { "%x0".into() } else { format!("%{}", i - 2) }
            )
        })
        .collect();
    let text = format!("graph @main({}) -> (y: f32[7]) {{\n{}  return %298\n}}\n", params.join(", "), lines.concat());
    for profile in DeviceProfile::all() {
        let limit = profile.max_storage_buffers as usize;
        // A group of so many additions reads one value more than that and writes one.
        let (most, reason) = match limit - 2 < DEPTH_LIMIT {
            true => (limit - 2, format!("{} bindings", limit + 1)),
            false => (DEPTH_LIMIT, format!("depth limit is {DEPTH_LIMIT}")),
        };
        let name = profile.name.clone();
        let (groups, remarks, m) = fuse(&text, &FuseOps::default(), profile);
        for f in m.functions.values().filter(|f| f.primitive) {
            assert!(f.params().len() + f.results().len() <= limit, "{name}");
        }
        let sizes: Vec<usize> = groups.iter().map(|g| g.split(' ').count()).collect();
        assert!(sizes.iter().all(|n| *n <= most), "{name}: {sizes:?}");
        assert_eq!(groups.len(), 299usize.div_ceil(most), "{name}");
        assert!(remarks.iter().any(|r| r.contains(&reason)), "{name}: {remarks:?}");
    }
}

#[test]
fn off_makes_single_groups_and_form_operands_stay_inside() {
    let text = "const @s : i64[2] = [4, 9]\ngraph @main(%x: f32[1,4,3,3]) -> (y: f32[4,9]) {\n  %s = const @s\n  \
                %0 = reshape %x, %s : f32[4,9]\n  %1 = relu %0 : f32[4,9]\n  return %1\n}\n";
    let off = FuseOps { mode: Some(FuseMode::Off), ..FuseOps::default() };
    let (groups, _, m) = fuse(text, &off, DeviceProfile::baseline());
    assert_eq!(groups, ["reshape", "relu"]);
    assert!(m.functions.values().filter(|f| f.primitive).all(|f| f.params().len() == 1));
    let (groups, _, _) = fuse(text, &FuseOps::default(), DeviceProfile::baseline());
    assert_eq!(groups, ["reshape relu"]);
}

fn full(x: &str, body: &str, result: &str, last: &str) -> (Vec<String>, Vec<String>) {
    let lines: Vec<String> = body.lines().map(|l| format!("  {}\n", l.trim())).collect();
    let text = format!(
        "const @eps : f32[] = [0.001]\nconst @g : f32[6] = random(2)\ngraph @main(%x: {x}) -> ({result}) {{\n  \
         %eps = const @eps\n  %g = const @g\n{}  return {last}\n}}\n",
        lines.concat()
    );
    let (groups, remarks, _) = fuse(&text, &FuseOps::default(), DeviceProfile::lavapipe());
    (groups, remarks)
}

#[test]
fn softmax_and_layer_norm_written_out_are_one_group() {
    let softmax = "%0 = reduce %x {kind=max, axes=[1], keepdims=true} : f32[5,1]
        %1 = sub %x, %0 : f32[5,6]
        %2 = exp %1 : f32[5,6]
        %3 = reduce %2 {axes=[1], keepdims=true} : f32[5,1]
        %4 = div %2, %3 : f32[5,6]";
    let (groups, remarks) = full("f32[5,6]", softmax, "y: f32[5,6]", "%4");
    assert_eq!(groups, ["reduce sub exp reduce div"]);
    assert!(remarks.iter().any(|r| r.starts_with("row-chain")), "{remarks:?}");
    let norm = "%0 = reduce %x {kind=mean, axes=[2], keepdims=true} : f32[2,5,1]
        %1 = sub %x, %0 : f32[2,5,6]
        %2 = mul %1, %1 : f32[2,5,6]
        %3 = reduce %2 {kind=mean, axes=[2], keepdims=true} : f32[2,5,1]
        %4 = add %3, %eps : f32[2,5,1]
        %5 = sqrt %4 : f32[2,5,1]
        %6 = div %1, %5 : f32[2,5,6]
        %7 = mul %6, %g : f32[2,5,6]
        %8 = relu %7 : f32[2,5,6]";
    let (groups, _) = full("f32[2,5,6]", norm, "y: f32[2,5,6]", "%8");
    assert_eq!(groups, ["reduce sub mul reduce add sqrt div mul relu"]);
    // An escape of the exponentials keeps the chain apart.
    let (groups, _) = full("f32[5,6]", softmax, "y: f32[5,6], e: f32[5,6]", "%4, %2");
    assert!(groups.len() > 1, "{groups:?}");
}

#[test]
fn a_sum_takes_its_epilogue() {
    let body = "%0 = reduce %x {axes=[1]} : f32[5]\n%1 = relu %0 : f32[5]\n%2 = mul %1, %eps : f32[5]";
    let (groups, remarks) = full("f32[5,6]", body, "y: f32[5]", "%2");
    assert_eq!(groups, ["reduce relu mul"]);
    assert!(remarks.iter().any(|r| r.starts_with("reduction-epilogue")), "{remarks:?}");
    // Spread over its own row again it is a chain, over anything else the epilogue would repeat the sum.
    let body = "%0 = reduce %x {axes=[1], keepdims=true} : f32[5,1]
        %1 = relu %0 : f32[5,1]
        %2 = mul %1, %x : f32[5,6]";
    let (groups, remarks) = full("f32[5,6]", body, "y: f32[5,6]", "%2");
    assert_eq!(groups, ["reduce relu mul"]);
    assert!(remarks.iter().any(|r| r.starts_with("row-chain")), "{remarks:?}");
    let body = body.replace("mul %1, %x", "mul %1, %g");
    let (groups, _) = full("f32[5,7]", &body, "y: f32[5,6]", "%2");
    assert_eq!(groups, ["reduce", "relu mul"]);
}

/// Softmax in front of a convolution would be computed again for each of its reads; the reason says so with times, and
/// the kinds are its detail.
#[test]
fn reasons_say_what_computing_again_would_take() {
    let text = "const @w : f32[64,32,3,3] = random(1)
graph @main(%x: f32[1,32,28,28]) -> (y: f32[1,64,28,28]) {
  %w = const @w
  %0 = softmax %x {axes=[1]} : f32[1,32,28,28] !name(\"soft\")
  %1 = conv %0, %w {pads=[1,1,1,1]} : f32[1,64,28,28] !name(\"after\")
  return %1
}
";
    let mut m = parse_module(text).unwrap();
    let mut cx = PassContext::new(DeviceProfile::named("ada").unwrap());
    run_pass(&FuseOps::default(), &mut m, &mut cx).unwrap();
    let remark = cx.remarks.iter().find(|r| r.message.starts_with("soft not fused into after")).unwrap();
    let message = &remark.message;
    assert!(message.contains("after reads each element of soft 9 x 64 times: computed again"), "{message}");
    let times = message.split("would take ").nth(1).unwrap();
    let [again, once] = [0, 1].map(|i| times.split(" instead of ").nth(i).unwrap().split(' ').collect::<Vec<_>>());
    assert_eq!(again[1], once[1], "one unit: {message}");
    assert!(again[0].parse::<f64>().unwrap() > once[0].parse::<f64>().unwrap(), "{message}");
    assert!(!message.contains("fusable") && remark.detail.contains("soft is out-elementwise-fusable"), "{remark:?}");
}

/// A processor has the channels of a pixel as lanes of a depthwise convolution; stored in another order, it would have
/// none. The sums of a tile are stored in any order.
#[test]
fn a_transpose_stays_apart_where_it_would_cost_the_lanes() {
    let made = |weights: &str, group: u32| {
        let text = format!(
            "const @w : f32[{weights},3,3] = random(1)
graph @main(%x: f32[1,14,14,96]) -> (y: f32[1,96,14,14]) {{
  %w = const @w
  %0 = conv %x, %w {{pads=[1,1,1,1], layout=nhwc, group={group}}} : f32[1,14,14,96]
  %1 = transpose %0 {{perm=[0,3,1,2]}} : f32[1,96,14,14]
  return %1
}}
"
        );
        fuse(&text, &FuseOps::default(), DeviceProfile::processor(2, [14, 32]))
    };
    let (groups, _, _) = made("96,96", 1);
    assert_eq!(groups, ["conv transpose"]);
    let (groups, remarks, _) = made("96,1", 96);
    assert_eq!(groups, ["conv", "transpose"], "{remarks:#?}");
    assert!(remarks.iter().any(|r| r.starts_with("permuted-store: ") && r.contains(" as one, ")), "{remarks:#?}");
}

#[test]
fn the_anchor_of_a_group_is_its_convolution_or_else_its_sum() {
    let anchors = |m: &Module| -> Vec<String> {
        let groups = m.functions.values().filter(|f| f.primitive);
        groups.map(|f| group_anchor(m, f).map_or("none".into(), |n| f.nodes[n].op.name().to_string())).collect()
    };
    let text = "const @w : f32[4,4,1,1] = random(1)
graph @main(%x: f32[1,4,3,3]) -> (y: f32[1,3,3]) {
  %w = const @w
  %0 = conv %x, %w : f32[1,4,3,3]
  %1 = relu %0 : f32[1,4,3,3]
  %2 = exp %1 : f32[1,4,3,3]
  %3 = reduce %2 {axes=[1], keepdims=false} : f32[1,3,3]
  %4 = relu %3 : f32[1,3,3]
  return %4
}
";
    let pass = FuseOps { mode: Some(FuseMode::Classic), ..FuseOps::default() };
    let (groups, _, m) = fuse(text, &pass, DeviceProfile::lavapipe());
    assert_eq!(groups, ["conv relu exp", "reduce", "relu"]);
    assert_eq!(anchors(&m), ["conv", "reduce", "none"]);
}
