use super::*;
use crate::interpreter::run_function;
use crate::passes::{EliminateDead, Simplify, run_pass};
use crate::text::{parse_module, random_tensor};

/// Canonicalises a body over `%x`; checks the ops that are left, and that the results agree.
fn check(x: &str, result: &str, body: &str, left: &[&str]) {
    let last = body.lines().count() - 1;
    let lines: Vec<String> = body.lines().map(|l| format!("  {}\n", l.trim())).collect();
    let numbers = [
        ("one", "1.0"),
        ("half", "0.5"),
        ("two", "2.0"),
        ("three", "3.0"),
        ("six", "6.0"),
        ("root", "1.41421354"),
        ("eps", "1e-5"),
        ("low", "-0.25"),
        ("zero", "0.0"),
        ("pi", "0.797884583"),
        ("cubic", "0.0447149985"),
    ];
    let constants: String = numbers.iter().map(|(n, v)| format!("const @{n} : f32[] = [{v}]\n")).collect();
    let reads: String = numbers.iter().map(|(n, _)| format!("  %{n} = const @{n}\n")).collect();
    let text = format!(
        "{constants}const @w : f32[4,2,3,3] = random(1)\nconst @b : f32[4] = random(2)\nconst @c : f32[4,1,1] = random(3)\n\
         const @m : f32[3,4] = random(4)\ngraph @main(%x: f32[{x}]) -> (y: f32[{result}]) {{\n{reads}  %w = const @w\n  \
         %b = const @b\n  %c = const @c\n  %m = const @m\n{}  return %{last}\n}}\n",
        lines.concat()
    );
    let mut m = parse_module(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    let ty = m.main().ty(m.main().params()[0]).clone();
    let x = random_tensor(ty.dtype, &ty.const_shape().unwrap(), 5);
    let want = run_function(&m, m.entry, std::slice::from_ref(&x)).unwrap();
    let mut cx = PassContext::default();
    run_pass(&CanonicalizeOps::default(), &mut m, &mut cx).unwrap();
    run_pass(&Simplify::default(), &mut m, &mut cx).unwrap();
    run_pass(&EliminateDead {}, &mut m, &mut cx).unwrap();
    let f = m.main();
    let ops: Vec<_> = f.walk().iter().map(|&n| f.nodes[n].op.name()).filter(|&o| o != "const").collect();
    assert_eq!(ops, left, "{text}\n{:?}", cx.remarks);
    let got = run_function(&m, m.entry, &[x]).unwrap();
    for (a, b) in got[0].to_f32_vec().iter().zip(&want[0].to_f32_vec()) {
        assert!((a - b).abs() <= 1e-5 * (1.0 + b.abs()), "{text}: {got:?} {want:?}");
    }
}

/// A body over `f32[2,3]` with one line for each op.
fn small(ops: &[&str], left: &[&str]) {
    let lines: Vec<String> = ops.iter().enumerate().map(|(i, o)| format!("%{i} = {o} : f32[2,3]")).collect();
    check("2,3", "2,3", &lines.join("\n"), left);
}

#[test]
fn functions_of_constants() {
    small(&["sub %x, %three", "div %0, %two"], &["add", "mul"]);
    small(&["div %x, %three"], &["div"]);
    small(&["max %x, %low", "min %half, %0"], &["clip"]);
    small(&["max %zero, %x"], &["relu"]);
    small(&["clip %x, %low, %half"], &["clip"]);
    small(&["exp %x", "div %one, %0"], &["exp", "reciprocal"]);
    small(&["neg %x", "exp %0", "add %one, %1", "reciprocal %2"], &["sigmoid"]);
}

#[test]
fn activations_written_out() {
    small(&["sigmoid %x", "mul %0, %x"], &["swish"]);
    small(&["softplus %x", "tanh %0", "mul %x, %1"], &["mish"]);
    small(&["add %x, %three", "clip %0 {min=0.0, max=6.0}", "mul %x, %1", "div %2, %six"], &["hard_swish"]);
    small(&["add %x, %three", "clip %0 {min=0.0, max=6.0}", "div %1, %six", "mul %2, %x"], &["hard_swish"]);
    small(&["div %x, %root", "erf %0", "add %1, %one", "mul %x, %2", "mul %3, %half"], &["gelu"]);
    small(&["div %x, %root", "erf %0", "add %one, %1", "mul %half, %x", "mul %3, %2"], &["gelu"]);
    let tanh = ["pow %x, %three", "mul %0, %cubic", "add %x, %1", "mul %pi, %2", "tanh %3", "add %4, %one"];
    small(&[&tanh[..], &["mul %x, %5", "mul %half, %6"]].concat(), &["gelu"]);
    // Something else in place of x.
    small(&["exp %x", "sigmoid %x", "mul %0, %1"], &["exp", "sigmoid", "mul"]);
}

#[test]
fn normalisations_written_out() {
    let softmax = "%0 = reduce %x {kind=max, axes=[1], keepdims=true} : f32[2,1,4]\n%1 = sub %x, %0 : f32[2,3,4]\n\
                   %2 = exp %1 : f32[2,3,4]\n%3 = reduce %2 {axes=[1], keepdims=true} : f32[2,1,4]\n%4 = div %2, %3 : f32[2,3,4]";
    check("2,3,4", "2,3,4", softmax, &["softmax"]);
    check("2,3,4", "2,3,4", &format!("{softmax}\n%5 = log %4 : f32[2,3,4]"), &["log_softmax"]);
    let other =
        softmax.replace("%2 {axes=[1], keepdims=true} : f32[2,1,4]", "%2 {axes=[2], keepdims=true} : f32[2,3,1]");
    // Over another axis than the maximum: a softmax of what is left of x.
    check("2,3,4", "2,3,4", &other, &["reduce", "sub", "softmax"]);
    let group = "%0 = reshape %x {shape=[2,4,18]}\n%1 = instance_norm %0, %b, %b\n%2 = reshape %1 {shape=[2,8,3,3]}";
    check("2,8,3,3", "2,8,3,3", group, &["group_norm"]);
    check("2,8,3,3", "2,8,3,3", &format!("{group}\n%3 = mul %half, %2\n%4 = add %3, %three"), &["group_norm"]);
    check("2,4,3,3", "2,4,3,3", &group.replace("18", "9").replace("8", "4"), &["group_norm"]);
    // Factors of the columns, not of the channels.
    let wide = group.replace("18", "24").replace("3,3", "3,4");
    check("2,8,3,4", "2,8,3,4", &format!("{wide}\n%3 = mul %2, %m"), &["group_norm", "mul"]);
    let mean = "{kind=mean, axes=[2], keepdims=true} : f32[2,3,1]";
    let layer = format!(
        "%0 = reduce %x {mean}\n%1 = sub %x, %0 : f32[2,3,4]\n%2 = pow %1, %two : f32[2,3,4]\n%3 = reduce %2 {mean}\n\
         %4 = add %3, %eps : f32[2,3,1]\n%5 = sqrt %4 : f32[2,3,1]\n%6 = div %1, %5 : f32[2,3,4]\n%7 = mul %6, %b : f32[2,3,4]\n\
         %8 = add %b, %7 : f32[2,3,4]"
    );
    check("2,3,4", "2,3,4", &layer, &["layer_norm"]);
    let rms = format!(
        "%0 = mul %x, %x : f32[2,3,4]\n%1 = reduce %0 {mean}\n%2 = add %1, %eps : f32[2,3,1]\n%3 = sqrt %2 : f32[2,3,1]\n\
         %4 = reciprocal %3 : f32[2,3,1]\n%5 = mul %x, %4 : f32[2,3,4]\n%6 = mul %5, %b : f32[2,3,4]"
    );
    check("2,3,4", "2,3,4", &rms, &["rms_norm"]);
}

#[test]
fn pools_over_everything_are_global() {
    let pool = |x: &str, attrs: &str, out: &str, left: &[&str]| {
        check(x, out, &format!("%0 = average_pool %x {{{attrs}}} : f32[{out}]"), left);
    };
    pool("1,2,5,4", "kernel=[5,4]", "1,2,1,1", &["global_average_pool"]);
    pool("1,2,5,4", "kernel=[5,4], strides=[3,3]", "1,2,1,1", &["global_average_pool"]);
    pool("1,2,5,4", "kernel=[4,4]", "1,2,2,1", &["average_pool"]);
    pool("1,2,3,3", "kernel=[3,3], pads=[1,1,1,1], strides=[3,3]", "1,2,1,1", &["average_pool"]);
    check("1,2,5,4", "1,2,1,1", "%0 = max_pool %x {kernel=[5,4]} : f32[1,2,1,1]", &["global_max_pool"]);
    let mean = "%0 = reduce %x {kind=mean, axes=[2,3], keepdims=true} : f32[1,2,1,1]";
    check("1,2,5,4", "1,2,1,1", mean, &["global_average_pool"]);
}

#[test]
fn constants_become_biases() {
    let t = ": f32[1,4,3,3]";
    check("1,2,5,5", "1,4,3,3", &format!("%0 = conv %x, %w {t}\n%1 = add %0, %c {t}"), &["conv"]);
    check(
        "1,2,5,5",
        "1,4,3,3",
        &format!("%0 = conv %x, %w, %b {t}\n%1 = add %c, %0 {t}\n%2 = add %1, %half {t}"),
        &["conv"],
    );
    check(
        "1,2,5,5",
        "1,4,3,3",
        &format!("%0 = conv %x, %w {t}\n%1 = add %0, %c {t}\n%2 = mul %0, %1 {t}"),
        &["conv", "add", "mul"],
    );
    check("5,3", "5,4", "%0 = gemm %x, %m {alpha=0.5} : f32[5,4]\n%1 = add %0, %b : f32[5,4]", &["gemm"]);
    let m = "%0 = gemm %x, %m, %b {alpha=0.5, beta=3.0} : f32[5,4]";
    check("5,3", "5,4", m, &["gemm"]);
}
