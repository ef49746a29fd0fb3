//! fold-scale-axis: a constant factor per channel moves into the weights of the convolution or matrix product before it
//! (backward) or after it (forward), through ops that preserve the factor.
//!
//! ```text
//! %0 = conv %x, %w, %b                     %0 = conv %x, %w2, %b2      w2 = w * s, b2 = b * s
//! %1 = relu %0                      =>     %1 = relu %0
//! %2 = mul %1, %s
//!
//! %0 = mul %x, %s                          %0 = max_pool %x
//! %1 = max_pool %0                  =>     %1 = conv %0, %w2           w2 = w * s along the data's channels
//! %2 = conv %1, %w
//! ```
//!
//! Positively homogeneous ops (relu, leaky relu, max pooling) preserve factors above 0. Homogeneous ops (average
//! pooling), products with constants and (backward) sums with constants preserve every factor; the constants of sums
//! are scaled too. Not changed: a factor that is not constant or varies along other axes, results with other users, and
//! large weights with other readers, which would be stored twice. New weights are computed when they are read.

use super::rewriter::Rewriter;
use super::scaled_weights::{constant_of, scale_weights};
use super::{FunctionPass, GraphFunctions, PassContext, PassError};
use crate::attr_struct;
use crate::graph::{Constant, Module, NodeId, TensorType, ValueId};
use crate::interpreter::eval_node;
use crate::ops::binary::{Add, Div, Mul};
use crate::ops::weights::Channels;
use crate::ops::{Homogeneity, OpRef, WeightChannels};
use crate::pattern::{Found, Pattern, any, any_op, any_op_from, commuted, constant, dominator, either, is, op, var};
use crate::tensor::Tensor;

/// Weights above this many bytes are not copied for one of several readers.
const SHARED_LIMIT: usize = 64 << 10;

attr_struct! {
    /// Moves constant factors into weights.
    pub struct FoldScaleAxis("fold-scale-axis") {
        /// Into the anchor before.
        pub backward: bool = true,
        /// Into the anchor behind.
        pub forward: bool = true,
    }
}

impl FunctionPass for FoldScaleAxis {
    type Of = GraphFunctions;
    fn opt_level(&self) -> u8 {
        3
    }
    fn run_on(&self, r: &mut Rewriter<'_>, cx: &mut PassContext) -> Result<(), PassError> {
        let (backward, forward) = (backward_pattern(), forward_pattern());
        let (scale, anchor) = (scale(), anchor());
        let mut declined = Vec::new();
        for n in r.f.walk() {
            r.normalize(n);
            let [output] = r.f.nodes[n].outputs[..] else { continue };
            if self.backward && scale.find(r, output).is_some() && !r.is_dead(n) {
                declined.extend(self.visit(r, n, &backward, true, cx).err().map(|why| (n, why)));
            }
            if self.forward && anchor.find(r, output).is_some() && !r.is_dead(n) {
                declined.extend(self.visit(r, n, &forward, false, cx).err().map(|why| (n, why)));
            }
        }
        // A product that no anchor before it takes may have found one behind it.
        for (n, why) in declined.into_iter().filter(|(n, _)| !r.is_dead(*n)) {
            cx.missed(self, &[r.f.nodes[n].name], why);
        }
        Ok(())
    }
}

/// A convolution or matrix product with constant weights.
fn anchor() -> Pattern {
    let weighted = any_op_from([any(), constant()]).when("weighted", |s, v| {
        let f = s.function();
        let node = f.def_node(s.resolve(v)).map(|n| &f.nodes[n]);
        node.is_some_and(|n| n.inputs[1].is_some_and(|w| n.op.weight_channels(f.ty(w).rank()).is_some()))
    });
    weighted.float()
}
/// A product with a constant, or a division by one.
fn scale() -> Pattern {
    let factor = || constant().named("factor");
    either([commuted::<Mul>(var("x"), factor()), op::<Div>([var("x"), factor()])]).float()
}
/// What a factor of its operand passes through.
fn keeps_factor() -> Pattern {
    let homogeneous = any_op([any()]).property("homogeneous", |op| op.homogeneity() != Homogeneity::None);
    either([homogeneous, commuted::<Mul>(any(), constant())])
}
fn backward_pattern() -> Pattern {
    dominator(anchor().named("anchor"), either([keeps_factor(), is::<Add>()]), scale())
}
fn forward_pattern() -> Pattern {
    dominator(scale().named("scale"), keeps_factor(), anchor().named("anchor"))
}

/// Everything that a fold needs, checked.
struct Fold {
    /// The product that goes.
    scale: NodeId,
    /// Its operand.
    data: ValueId,
    /// The anchor that takes the factor.
    anchor: NodeId,
    weights: Constant,
    /// The anchor's bias or addend, scaled.
    bias: Option<Constant>,
    /// Sums on the way, with the position of their constant and its scaled form.
    sums: Vec<(NodeId, usize, Constant)>,
}

impl FoldScaleAxis {
    /// Folds one match; an error says why not.
    fn visit(
        &self,
        r: &mut Rewriter<'_>,
        n: NodeId,
        pattern: &Pattern,
        backward: bool,
        cx: &mut PassContext,
    ) -> Result<(), String> {
        let name = r.f.nodes[n].name;
        let found = match pattern.matches(r, r.f.nodes[n].outputs[0]) {
            Ok(found) => found,
            // Most anchors have no factor before them: nothing is to be said there.
            Err(why) => return if backward { Err(format!("the factor of {name} stays: {why}")) } else { Ok(()) },
        };
        let fold = plan(r, n, &found, backward).map_err(|why| format!("no factor moved at {name}: {why}"))?;
        let (scale, anchor) = (r.f.nodes[fold.scale].name, r.f.nodes[fold.anchor].name);
        apply(r, fold);
        cx.applied(self, &[anchor, scale], format!("the factor of {scale} moved into the weights of {anchor}"));
        Ok(())
    }
}

fn plan(r: &Rewriter<'_>, n: NodeId, found: &Found, backward: bool) -> Result<Fold, String> {
    let anchor = r.f.def_node(r.resolve(found.value("anchor"))).ok_or("the anchor is a parameter")?;
    let scale = match found.get("scale") {
        Some(v) => r.f.def_node(r.resolve(v)).ok_or("the product is a parameter")?,
        None => n,
    };
    let (anchor_name, inputs) = (r.f.nodes[anchor].name, r.f.nodes[anchor].inputs.clone());
    let (weights_value, data) = (inputs[1].ok_or("it has no weights")?, found.value("x"));
    let how = (r.f.nodes[anchor].op)
        .weight_channels(r.f.ty(weights_value).rank())
        .ok_or_else(|| format!("{anchor_name} has no weights to scale"))?;
    let (_, weights) = constant_of(r, Some(weights_value)).ok_or("its weights are not constant")?;
    if weights.byte_len() > SHARED_LIMIT && r.num_uses(weights_value) > 1 {
        return Err(format!("{} others read the weights of {anchor_name}", r.num_uses(weights_value) - 1));
    }
    let ty = r.f.ty(r.f.nodes[scale].outputs[0]).clone();
    let before = r.f.ty(r.resolve(data));
    if before.shape != ty.shape {
        return Err(format!("{} broadcasts its operand {before:?} to {ty:?}", r.f.nodes[scale].name));
    }
    let axis = if backward { how.result_axis(ty.rank()) } else { how.data_axis(ty.rank()) };
    let (_, mut constant) = constant_of(r, found.get("factor")).ok_or("the factor is not constant")?;
    if r.f.nodes[scale].op.is::<Div>() {
        let t = constant.load()?;
        let inverse = t.to_f64_vec().into_iter().map(|d| 1.0 / d);
        constant = Constant::from_tensor(&Tensor::from_f64(t.dtype(), t.shape().to_vec(), inverse));
    }
    let factor = channel_factor(&constant, &ty, axis)?;
    check_path(r, &found.between, &ty, axis, &factor)?;
    let channels = if backward { how.results } else { how.data };
    let weights = scale_weights(weights, &factor, channels)
        .ok_or_else(|| format!("the weights of {anchor_name} do not have {} channels", factor.len()))?;
    let bias = match inputs.get(2).copied().flatten().filter(|_| backward) {
        Some(b) => Some(scale_bias(r, b, &factor, &how, anchor)?),
        None => None,
    };
    let sums = if backward { scale_sums(r, &found.between, &constant)? } else { vec![] };
    Ok(Fold { scale, data: r.resolve(data), anchor, weights, bias, sums })
}

/// The factor of each channel (or one for all) when `c` varies along `axis` only.
fn channel_factor(c: &Constant, ty: &TensorType, axis: usize) -> Result<Vec<f64>, String> {
    let rank = ty.rank();
    let channel = (c.shape.len() + axis).checked_sub(rank);
    if c.shape.len() > rank || c.shape.iter().enumerate().any(|(i, &d)| d != 1 && Some(i) != channel) {
        return Err(format!("a factor of shape {:?} does not vary along axis {axis} of {ty:?} only", c.shape));
    }
    let factor = c.load()?.to_f64_vec();
    match factor.iter().all(|f| f.is_finite()) {
        true => Ok(factor),
        false => Err("a factor is not finite".into()),
    }
}

/// The way between anchor and product keeps the channels where they are, and their factors.
fn check_path(
    r: &Rewriter<'_>,
    between: &[NodeId],
    ty: &TensorType,
    axis: usize,
    factor: &[f64],
) -> Result<(), String> {
    for &n in between {
        let node = &r.f.nodes[n];
        let own = r.f.ty(node.outputs[0]);
        if own.rank() != ty.rank() || own.shape[axis] != ty.shape[axis] {
            return Err(format!("{} makes {own:?}, whose channels differ from {ty:?}", node.name));
        }
        let linear = node.op.homogeneity() == Homogeneity::Full || node.op.is::<Mul>() || node.op.is::<Add>();
        if let Some(f) = factor.iter().find(|&&f| !linear && f <= 0.0) {
            return Err(format!("{} keeps only factors above 0, and one is {f}", node.name));
        }
        if node.op.layout().is_some_and(|l| l.data_layout().channel_axis(ty.rank()) != Some(axis)) {
            return Err(format!("{} pools along the channels", node.name));
        }
    }
    Ok(())
}

/// The anchor's bias (or addend of a product) times the factor.
fn scale_bias(
    r: &Rewriter<'_>,
    bias: ValueId,
    factor: &[f64],
    how: &WeightChannels,
    anchor: NodeId,
) -> Result<Constant, String> {
    let name = r.f.nodes[anchor].name;
    let (_, c) = constant_of(r, Some(bias)).ok_or_else(|| format!("the bias of {name} is not constant"))?;
    if how.layout.is_some() || factor.len() == 1 || c.shape.last() == Some(&factor.len()) {
        let last = c.shape.len().saturating_sub(1);
        let scalar = c.shape.is_empty().then(|| Constant { shape: vec![1], ..c.clone() });
        let scaled = scale_weights(scalar.unwrap_or(c.clone()), factor, Channels::Axis(last));
        return scaled
            .map(|s| Constant { shape: c.shape.clone(), ..s })
            .ok_or_else(|| format!("the bias of {name} does not have {} channels", factor.len()));
    }
    if c.shape.iter().product::<usize>() != 1 {
        return Err(format!("the addend of {name} has shape {:?}", c.shape));
    }
    let value = c.load()?.to_f64_vec()[0];
    let scaled = Tensor::from_f64(c.dtype, vec![factor.len()], factor.iter().map(|f| f * value));
    Ok(Constant::from_tensor(&scaled))
}

/// The constants of sums on the way, times the factor.
fn scale_sums(
    r: &Rewriter<'_>,
    between: &[NodeId],
    factor: &Constant,
) -> Result<Vec<(NodeId, usize, Constant)>, String> {
    let mut out = vec![];
    for &n in between.iter().filter(|&&n| r.f.nodes[n].op.is::<Add>()) {
        let node = &r.f.nodes[n];
        for (i, v) in node.inputs.iter().enumerate() {
            let Some((_, c)) = constant_of(r, *v) else { continue };
            let product: OpRef = Mul {}.into();
            let scaled = eval_node(&product, &[Some(c.load()?), Some(factor.load()?)], &Module::new("none"))?;
            out.push((n, i, scaled.first().map(Constant::from_tensor).ok_or("no product")?));
        }
    }
    Ok(out)
}

fn apply(r: &mut Rewriter<'_>, fold: Fold) {
    let Fold { scale, data, anchor, weights, bias, sums } = fold;
    let origins = r.f.nodes[scale].origins.clone();
    r.absorb_origins(anchor, &origins);
    let node = r.f.nodes[anchor].clone();
    let base = constant_of(r, node.inputs[1]).map_or(node.name, |c| c.0);
    let mut inputs = node.inputs.clone();
    inputs[1] = Some(r.constant_before(anchor, &format!("{base}.scaled"), weights, node.origins.clone()));
    if let Some(bias) = bias {
        inputs[2] = Some(r.constant_before(anchor, &format!("{base}.scaled_bias"), bias, node.origins.clone()));
    }
    r.update(anchor, node.op.clone(), inputs);
    for (n, i, c) in sums {
        let sum = r.f.nodes[n].clone();
        let mut inputs = sum.inputs.clone();
        inputs[i] = Some(r.constant_before(n, &format!("{}.scaled", sum.name), c, sum.origins.clone()));
        r.update(n, sum.op.clone(), inputs);
    }
    r.replace(r.f.nodes[scale].outputs[0], data);
    r.erase(scale);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interpreter::run_function;
    use crate::passes::run_pass;
    use crate::text::{parse_module, random_tensor};

    /// Folds a body over `%x`; checks the ops that are left, and that the results agree.
    fn check(x: &str, result: &str, body: &str, left: &[&str]) -> Vec<String> {
        let last = body.lines().count() - 1;
        let lines: Vec<String> = body.lines().map(|l| format!("  {}\n", l.trim())).collect();
        let text = format!(
            "const @w : f32[4,2,3,3] = random(1)\nconst @b : f32[4] = random(2)\nconst @s : f32[4,1,1] = [0.5, 2.0, 3.0, 0.25]\n\
             const @n : f32[4,1,1] = [0.5, -2.0, 3.0, 0.25]\nconst @two : f32[1,2,1,1] = [3.0, 0.5]\nconst @m : f32[3,4] = random(3)\n\
             const @v : f32[4] = [2.0, -1.0, 0.5, 4.0]\nconst @k : f32[] = [3.0]\n\
             graph @main(%x: f32[{x}]) -> (y: f32[{result}]) {{\n  %w = const @w\n  %b = const @b\n  %s = const @s\n  %n = const @n\n  \
             %two = const @two\n  %m = const @m\n  %v = const @v\n  %k = const @k\n{}  return %{last}\n}}\n",
            lines.concat()
        );
        let mut m = parse_module(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
        let ty = m.main().ty(m.main().params()[0]).clone();
        let x = random_tensor(ty.dtype, &ty.const_shape().unwrap(), 5);
        let want = run_function(&m, m.entry, std::slice::from_ref(&x)).unwrap();
        let mut cx = PassContext::default();
        run_pass(&FoldScaleAxis::default(), &mut m, &mut cx).unwrap();
        let f = m.main();
        let ops: Vec<_> = f.walk().iter().map(|&n| f.nodes[n].op.name()).filter(|&o| o != "const").collect();
        assert_eq!(ops, left, "{text}\n{:?}", cx.remarks);
        let got = run_function(&m, m.entry, &[x]).unwrap();
        for (a, b) in got[0].to_f32_vec().iter().zip(&want[0].to_f32_vec()) {
            assert!((a - b).abs() <= 1e-5 * (1.0 + b.abs()), "{text}: {got:?} {want:?}");
        }
        cx.remarks.iter().map(|r| r.message.clone()).collect()
    }

    const T: &str = ": f32[1,4,3,3]";

    #[test]
    fn backward_through_what_keeps_a_factor() {
        let conv = format!("%0 = conv %x, %w, %b {T}\n");
        check("1,2,5,5", "1,4,3,3", &format!("{conv}%1 = mul %0, %n {T}"), &["conv"]);
        check("1,2,5,5", "1,4,3,3", &format!("{conv}%1 = div %0, %n {T}"), &["conv"]);
        check("1,2,5,5", "1,4,3,3", &format!("{conv}%1 = relu %0 {T}\n%2 = mul %s, %1 {T}"), &["conv", "relu"]);
        let sums = format!("{conv}%1 = add %0, %n {T}\n%2 = add %1, %1 {T}\n%3 = mul %2, %n {T}");
        check("1,2,5,5", "1,4,3,3", &sums, &["conv", "add", "add"]);
        let grouped = format!("%0 = conv %x, %w {{group=2}} {T}\n%1 = mul %0, %k {T}");
        check("1,4,5,5", "1,4,3,3", &grouped, &["conv"]);
        let pool = "%0 = conv_transpose %x, %w {group=2} : f32[1,4,5,5]\n\
                    %1 = average_pool %0 {kernel=[2,2], pads=[1,1,1,1]} : f32[1,4,6,6]\n%2 = mul %1, %n : f32[1,4,6,6]";
        check("1,4,3,3", "1,4,6,6", pool, &["conv_transpose", "average_pool"]);
    }

    #[test]
    fn backward_into_matrix_products() {
        check("5,3", "5,4", "%0 = matmul %x, %m : f32[5,4]\n%1 = mul %0, %v : f32[5,4]", &["matmul"]);
        let gemm = "%0 = gemm %x, %m, %b {alpha=0.5, beta=2.0} : f32[5,4]\n%1 = mul %v, %0 : f32[5,4]";
        check("5,3", "5,4", gemm, &["gemm"]);
        check("5,3", "5,4", "%0 = gemm %x, %m, %k : f32[5,4]\n%1 = mul %0, %v : f32[5,4]", &["gemm"]);
        check(
            "4,5",
            "5,3",
            "%0 = gemm %x, %m {trans_a=true, trans_b=true} : f32[5,3]\n%1 = mul %0, %k : f32[5,3]",
            &["gemm"],
        );
    }

    #[test]
    fn forward_into_the_data_channels() {
        let conv = "%0 = mul %x, %two : f32[1,2,5,5]\n%1 = max_pool %0 {kernel=[2,2], strides=[1,1]} : f32[1,2,4,4]\n\
                    %2 = conv %1, %w {pads=[1,1,1,1]} : f32[1,4,4,4]";
        check("1,2,5,5", "1,4,4,4", conv, &["max_pool", "conv"]);
        let gemm = "%0 = mul %v, %x : f32[5,4]\n%1 = gemm %0, %m {trans_b=true} : f32[5,3]";
        check("5,4", "5,3", gemm, &["gemm"]);
        let grouped = format!("%0 = mul %x, %n : f32[1,4,5,5]\n%1 = conv %0, %w {{group=2}} {T}");
        check("1,4,5,5", "1,4,3,3", &grouped, &["conv"]);
    }

    #[test]
    fn what_stops_it_is_said() {
        let conv = format!("%0 = conv %x, %w, %b {T}\n");
        let says = |body: &str, left: &[&str], why: &str| {
            let remarks = check("1,2,5,5", "1,4,3,3", body, left);
            assert!(remarks.iter().any(|m| m.contains(why)), "{remarks:?}");
        };
        says(
            &format!("{conv}%1 = relu %0 {T}\n%2 = mul %1, %n {T}"),
            &["conv", "relu", "mul"],
            "keeps only factors above 0, and one is -2",
        );
        says(
            &format!("{conv}%1 = mul %0, %n {T}\n%2 = add %0, %1 {T}"),
            &["conv", "mul", "add"],
            "`conv_8` is used outside of the region",
        );
        says(
            &format!("{conv}%1 = exp %0 {T}\n%2 = mul %1, %n {T}"),
            &["conv", "exp", "mul"],
            "`exp_9` leads to no parent",
        );
    }

    #[test]
    fn a_factor_that_broadcasts_its_operand_stays() {
        let conv = "%0 = mul %x, %two : f32[1,2,5,5]\n%1 = max_pool %0 {kernel=[2,2], strides=[1,1]} : f32[1,2,4,4]\n\
                    %2 = conv %1, %w {pads=[1,1,1,1]} : f32[1,4,4,4]";
        check("1,1,5,5", "1,4,4,4", conv, &["mul", "max_pool", "conv"]);
    }
}
