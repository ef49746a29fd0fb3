//! Cases of ops: one node each, among values of which some are f16 in mixed precision.

use compiler::graph::{FunctionBuilder, Module};
use compiler::name::Name;
use compiler::ops::unary::Abs;
use compiler::text::parse_module;

/// Channels, height and width.
pub type Shape = (usize, usize, usize);

/// All sizes above 1, one channel, one row, one element, one column.
pub const SHAPES: [Shape; 5] = [(4, 6, 8), (1, 6, 8), (4, 1, 8), (1, 1, 1), (4, 6, 1)];

/// Ops without a case: parts of the IR itself, and those that passes make with forms of their own.
pub const WITHOUT: [&str; 14] = [
    "const",
    "call",
    "call_tensor",
    "call_host",
    "if",
    "let",
    "loop",
    "trap",
    "composite",
    "external",
    "function",
    "lambda",
    "apply",
    "layout_transform",
];

/// What cases work on. In mixed precision `x` is f16, computed from f16; `u` is f32; `p` lies in 0..1.
const VALUES: &str = "const @k : f32[$c,$c,1,1] = random(11)
const @w : f32[2,$c,3,3] = random(1)
const @w1 : f32[$c,2,3,3] = random(2)
const @b : f32[2] = random(3)
const @ch : f32[$c] = random(4)
const @pos : f32[$c] = splat(0.5)
const @col : f32[1,$c,1,1] = random(5)
const @row : f32[$w] = random(6)
const @m : f32[$w,5] = random(7)
const @mt : f32[5,$w] = random(8)
const @left : f32[5,$h] = random(9)
const @five : f32[5] = random(10)
const @i0 : i64[2] = [0, 0]
const @ic : i64[1,$c,$h,1] = zeros
const @nd : i64[1,2] = zeros
const @one : i64[1] = [1]
const @zero : i64[1] = [0]
const @three : i32[] = [3]
const @four : f32[] = [4.0]
const @upd : f32[1,$c,$h,1] = random(12)
const @updnd : f32[1,$h,$w] = random(13)
const @yes : bool[1,1,$h,$w] = random(14)
const @keep : bool[$c] = splat(true)
const @ints : i32[1,$c,$h,$w] = random(15)
const @words : u32[1,$c,$h,$w] = random(16)
const @bytes : u8[4] = [1, 2, 200, 255]
const @step : f32[1] = [0.25]
const @bounds : f32[3] = [-0.5, 0.01, 0.7]
const @offset : f32[1,18,$h,$w] = random(17)
const @rois : f32[2,4] = [0.0, 0.0, 1.0, 1.0, 0.0, 0.0, 3.0, 2.0]
const @boxes : f32[1,3,4] = random(18)
const @most : i64[] = [2]
const @kernels : f32[4,4,3,3] = random(19)
graph @main(%in: f32[1,$c,$h,$w], %side: f32[1,$c,$h,$w], %sq: f32[2,3,3], %cols: f32[1,4,9], %sig: f32[1,16,2], %line: f32[1,16], %grid: f32[1,3,3,2], %scores: f32[1,2,3], %tile: f32[4,4,3,6]) -> (x: f32[1,$c,$h,$w]) {
  %x = conv %in, %k
  %u = log_softmax %side {axes=[3]}
  %p = sigmoid %x
  %flat = reshape %x {shape=[-1,$w]}
";

/// For each op nodes: `$c`, `$h` and `$w` stand for sizes, and a second result is named.
pub const CASES: &[(&str, &[&str])] = &[
    ("conv", &["conv %x, %w {pads=[1,1,1,1]}", "conv %u, %w, %b {pads=[1,1,1,1]}"]),
    ("matmul", &["matmul %x, %m", "matmul %left, %x", "matmul %u, %m"]),
    ("gemm", &["gemm %flat, %m", "gemm %flat, %mt, %five {trans_b=true}"]),
    ("permuted_matmul", &["permuted_matmul %x, %mt {perm_b=[1,0]}"]),
    ("batch_norm", &["batch_norm %x, %ch, %ch, %ch, %pos"]),
    ("max_pool", &["max_pool %x {kernel=[2,2], pads=[1,1,1,1]}", "max_pool %u {kernel=[1,1], indices=true}"]),
    ("average_pool", &["average_pool %x {kernel=[2,2], pads=[1,1,1,1]}"]),
    ("lp_pool", &["lp_pool %x {kernel=[2,2], pads=[1,1,1,1]}"]),
    ("global_average_pool", &["global_average_pool %x"]),
    ("global_max_pool", &["global_max_pool %x"]),
    ("softmax", &["softmax %x {axes=[1]}", "softmax %x {axes=[3]}"]),
    ("log_softmax", &["log_softmax %x {axes=[1]}"]),
    ("neg", &["neg %x"]),
    ("abs", &["abs %x"]),
    ("exp", &["exp %x"]),
    ("log", &["log %p"]),
    ("sqrt", &["sqrt %p"]),
    ("reciprocal", &["reciprocal %p"]),
    ("sin", &["sin %x"]),
    ("cos", &["cos %x"]),
    ("tan", &["tan %p"]),
    ("asin", &["asin %p"]),
    ("acos", &["acos %p"]),
    ("atan", &["atan %x"]),
    ("sinh", &["sinh %x"]),
    ("cosh", &["cosh %x"]),
    ("tanh", &["tanh %x"]),
    ("asinh", &["asinh %x"]),
    ("acosh", &["acosh %four"]),
    ("atanh", &["atanh %p"]),
    ("floor", &["floor %p"]),
    ("ceil", &["ceil %p"]),
    ("round", &["round %p"]),
    ("sign", &["sign %p"]),
    ("not", &["not %yes"]),
    ("bit_not", &["bit_not %ints"]),
    ("erf", &["erf %x"]),
    ("is_nan", &["is_nan %x"]),
    ("identity", &["identity %x"]),
    ("relu", &["relu %x"]),
    ("sigmoid", &["sigmoid %x"]),
    ("softplus", &["softplus %x"]),
    ("softsign", &["softsign %x"]),
    ("hard_swish", &["hard_swish %x"]),
    ("mish", &["mish %x"]),
    ("gelu", &["gelu %x", "gelu %x {approximate=tanh}"]),
    ("hard_sigmoid", &["hard_sigmoid %x"]),
    ("leaky_relu", &["leaky_relu %x"]),
    ("elu", &["elu %x"]),
    ("celu", &["celu %x"]),
    ("selu", &["selu %x"]),
    ("thresholded_relu", &["thresholded_relu %p {alpha=2.0}"]),
    ("shrink", &["shrink %p {lambd=2.0}"]),
    ("swish", &["swish %x"]),
    ("is_inf", &["is_inf %x"]),
    ("clip", &["clip %x {min=-0.5, max=0.5}"]),
    ("cast", &["cast %x {to=f16}", "cast %yes {to=f32}"]),
    ("add", &["add %x, %u", "add %x, %col", "add %row, %x"]),
    ("sub", &["sub %x, %u", "sub %col, %x"]),
    ("mul", &["mul %x, %u", "mul %x, %col"]),
    ("div", &["div %x, %four", "div %u, %four"]),
    ("pow", &["pow %p, %col", "pow %p, %u"]),
    ("min", &["min %x, %u", "min %x, %col"]),
    ("max", &["max %x, %u", "max %x, %col"]),
    ("prelu", &["prelu %x, %col", "prelu %u, %x"]),
    ("equal", &["equal %x, %x"]),
    ("greater", &["greater %x, %u"]),
    ("greater_or_equal", &["greater_or_equal %x, %x"]),
    ("less", &["less %u, %p"]),
    ("less_or_equal", &["less_or_equal %x, %x"]),
    ("and", &["and %yes, %yes"]),
    ("or", &["or %yes, %yes"]),
    ("xor", &["xor %yes, %yes"]),
    ("bit_and", &["bit_and %ints, %three"]),
    ("bit_or", &["bit_or %ints, %three"]),
    ("bit_xor", &["bit_xor %ints, %three"]),
    ("mod", &["mod %ints, %three", "mod %p, %four {fmod=true}"]),
    ("bit_shift", &["bit_shift %words, %words"]),
    ("where", &["where %yes, %x, %u", "where %yes, %col, %x"]),
    ("expand", &["expand %col {shape=[1,$c,$h,$w]}", "expand %x {shape=[2,$c,$h,$w]}"]),
    ("tile", &["tile %x {repeats=[1,2,1,2]}"]),
    ("reshape", &["reshape %x {shape=[0,-1]}", "reshape %x {shape=[$h,$w,$c]}"]),
    ("flatten", &["flatten %x {axis=2}"]),
    ("squeeze", &["squeeze %x {axes=[0]}"]),
    ("unsqueeze", &["unsqueeze %x {axes=[0]}"]),
    ("transpose", &["transpose %x {perm=[0,2,3,1]}", "transpose %x {perm=[3,1,0,2]}"]),
    ("shape", &["shape %x"]),
    ("size", &["size %x"]),
    ("concat", &["concat %x, %u {axis=1}", "concat %u, %x {axis=3}", "concat %x, %p, %u {axis=2}"]),
    ("insert", &["insert %upd, %u {axis=3, starts=[1], size=$w}"]),
    ("split", &["split %x {axis=3, sizes=[1,7]}"]),
    (
        "slice",
        &["slice %x {starts=[0], ends=[1], axes=[2]}", "slice %x {starts=[-1], ends=[-100], axes=[1], steps=[-1]}"],
    ),
    ("pad", &["pad %x {pads=[0,0,1,1,0,0,1,1]}", "pad %x {pads=[0,1,0,0,0,1,0,0], mode=edge}"]),
    ("gather", &["gather %x, %i0 {axis=1}", "gather %x, %zero {axis=3}"]),
    ("gather_elements", &["gather_elements %x, %ic {axis=3}"]),
    ("gather_nd", &["gather_nd %x, %nd"]),
    ("conv_transpose", &["conv_transpose %x, %w1", "conv_transpose %u, %w1, %b {strides=[2,2]}"]),
    ("layer_norm", &["layer_norm %x, %row {axis=3, epsilon=0.1}", "layer_norm %x, %row, %row {axis=3, epsilon=0.1}"]),
    ("rms_norm", &["rms_norm %x, %row {axis=3, epsilon=0.1}"]),
    ("instance_norm", &["instance_norm %x, %ch, %ch {epsilon=0.1}"]),
    ("group_norm", &["group_norm %x, %ch, %ch {epsilon=0.1}"]),
    ("lrn", &["lrn %x {size=3, alpha=0.5}"]),
    ("lp_norm", &["lp_norm %x {axis=1}"]),
    (
        "reduce",
        &[
            "reduce %x {kind=sum, axes=[1]}",
            "reduce %x {kind=mean, axes=[2,3], keepdims=true}",
            "reduce %x {kind=max, axes=[1], keepdims=true}",
            "reduce %x {kind=prod, axes=[3]}",
            "reduce %x {kind=l2, axes=[1]}",
            "reduce %x {kind=log_sum_exp, axes=[1,3]}",
        ],
    ),
    ("reduce_at", &["reduce_at %x, %one {kind=max, dims=[1,$h,$w]}"]),
    ("arg_reduce", &["arg_reduce %x {axis=1}"]),
    ("hardmax", &["hardmax %side {axes=[1]}"]),
    ("resize", &["resize %x {scales=[1.0,1.0,2.0,2.0]}", "resize %x {scales=[1.0,1.0,2.0,2.0], mode=linear}"]),
    ("full", &["full {shape=[1,$c,$h,$w], value=0.5}"]),
    ("range", &["range %three, _, %three {size=4}"]),
    ("eye_like", &["eye_like %flat"]),
    ("one_hot", &["one_hot %i0, %b {depth=3}"]),
    ("depth_to_space", &["depth_to_space %x {block=2}"]),
    ("space_to_depth", &["space_to_depth %x {block=2}"]),
    ("trilu", &["trilu %x"]),
    ("cumsum", &["cumsum %x {axis=1}"]),
    ("cumprod", &["cumprod %x {axis=3}"]),
    (
        "scatter_elements",
        &["scatter_elements %x, %ic, %upd {axis=3}", "scatter_elements %x, %ic, %upd {axis=3, reduction=add}"],
    ),
    ("scatter_nd", &["scatter_nd %x, %nd, %updnd"]),
    ("top_k", &["top_k %x {k=1, axis=1}"]),
    ("non_zero", &["non_zero %x {count=found}"]),
    ("compress", &["compress %x, %keep {axis=1, count=kept}"]),
    ("unique", &["unique %ints {count=distinct}"]),
    ("non_max_suppression", &["non_max_suppression %boxes, %scores, %most {count=chosen}"]),
    ("einsum", &["einsum %x, %m {equation=\"nchw,wv->nchv\"}", "einsum %row, %x {equation=\"w,nchw->c\"}"]),
    ("reverse_sequence", &["reverse_sequence %x, %one {batch_axis=0, time_axis=1}"]),
    ("tensor_scatter", &["tensor_scatter %x, %u, %zero {axis=2}", "tensor_scatter %x, %u, %zero {axis=2, size=9}"]),
    ("bit_cast", &["bit_cast %side {to=i32}"]),
    ("unpack_bits", &["unpack_bits %bytes"]),
    ("dequantize_blocks", &["dequantize_blocks %bytes, %step {block=8, size=8}"]),
    ("bucketize", &["bucketize %p, %bounds"]),
    ("det", &["det %sq"]),
    ("roi_align", &["roi_align %x, %rois, %i0 {height=2, width=2, samples=2}"]),
    ("deform_conv", &["deform_conv %x, %w, %offset {pads=[1,1,1,1]}"]),
    ("col2im", &["col2im %cols {image=[4,4], kernel=[2,2]}"]),
    ("dft", &["dft %sig {axis=1}"]),
    ("frames", &["frames %line {length=4, step=2}"]),
    ("grid_sample", &["grid_sample %x, %grid"]),
    ("winograd_input", &["winograd_input %x {tile=2, pads=[1,1,1,1]}"]),
    ("winograd_weights", &["winograd_weights %kernels {tile=2}"]),
    ("winograd_output", &["winograd_output %tile {tile=2, height=4, width=6}"]),
];

/// The case in a graph: its results, and a user of the first one if that is a float.
///
/// # Errors
/// An op that does not take these shapes.
pub fn module_of(line: &str, (c, h, w): Shape) -> Result<Module, String> {
    let sized =
        |text: &str| text.replace("$c", &c.to_string()).replace("$h", &h.to_string()).replace("$w", &w.to_string());
    let constants = VALUES.lines().filter_map(|l| l.strip_prefix("const @")?.split_once(' ')).map(|l| l.0);
    let constants: String = constants.map(|name| format!("  %{name} = const @{name}\n")).collect();
    let (head, body) = VALUES.split_once("{\n").unwrap_or_default();
    let text = format!("{head}{{\n{constants}{body}  RESULTS{line}\n  return %x\n}}\n");
    let results = |n: usize| (0..n).map(|i| format!("%r{i}")).collect::<Vec<_>>().join(", ");
    let parsed = |n: usize| parse_module(&sized(&text.replace("RESULTS", &format!("{} = ", results(n)))));
    let one = parsed(1).map_err(|e| format!("{line}: {e}"));
    // Which ops have several results is theirs to say.
    let mut m = one.or_else(|e| (2..=4).find_map(|n| parsed(n).ok()).ok_or(e))?;
    with_user(&mut m)?;
    Ok(m)
}

/// Makes the results of the last node those of the function, and adds a function of the first one.
fn with_user(m: &mut Module) -> Result<(), String> {
    let entry = m.entry;
    let f = m.functions.shift_remove(&entry).ok_or("the entry is missing")?;
    let last = *f.blocks[f.body].nodes.last().ok_or("there is no node")?;
    let made = f.nodes[last].outputs.clone();
    let float = f.ty(made[0]).dtype.is_float();
    let mut b = FunctionBuilder::resume(m, f);
    let mut results: Vec<(Name, _)> = made.iter().enumerate().map(|(i, &v)| (Name::new(&format!("r{i}")), v)).collect();
    if float {
        let user = b.add(Abs {}, &[made[0]]).map_err(|e| e.to_string())?;
        results.push((Name::new("user"), user));
    }
    b.finish(&results);
    Ok(())
}
