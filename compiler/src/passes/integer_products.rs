//! integer-products: convolutions and matrix products of quantised values become products of bytes with sums in i32.
//!
//! ```text
//! %1 = mul (sub (cast %x), %zx), %sx       %1 = conv %x2, %w2 {pad_value=z}
//! %2 = mul (cast @w), %sw              =>  %2 = sub %1, z * sums of @w2
//! %y = conv %1, %2, %b                     %y = add (mul (cast %2), sx * sw), %b
//!
//! %1 = sub (cast %x), %zx              =>  %1 = matmul %x2, %w2
//! %y = matmul %1, (cast @w)                %y = sub %1, (%zx - 128) * sums of @w2
//! ```
//!
//! Both operands become i8: for u8, 128 is subtracted from values and zero points (`z` is `%zx` minus 128, and the
//! padding value). If the device multiplies u8 and i8 as well (`MachineModel::mixes_bytes`), data of u8 stays. After
//! the product, the zero point of the data times the sums of the weights is subtracted. The zero point of the weights
//! is subtracted from the weights. Every sum is exact: the values between `DequantizeLinear` and `QuantizeLinear`,
//! which a model computes in floats, are rounded once, by the scale. If a condition does not hold, the product is not
//! changed, and a remark names the condition.
//!
//! The pass runs if the device multiplies words of four bytes at once (`ScheduleTarget::multiplies_bytes`); otherwise
//! quantised models remain products of floats. The kernels use the intrinsics `dot4_i8` and `dot4_u8`
//! ([`crate::tir::intrinsic`]).

use super::rewriter::{Rewriter, rewrite_functions};
use super::scaled_weights::constant_of;
use super::{Pass, PassContext, PassError};
use crate::attr_struct;
use crate::dtype::DType;
use crate::fault::Fault;
use crate::graph::{Constant, Module, NodeId, Origins, ValueId};
use crate::int::Int;
use crate::interpreter::eval_node;
use crate::name::Name;
use crate::ops::OpRef;
use crate::ops::binary::{Add, Mul, Sub};
use crate::ops::cast::Cast;
use crate::ops::conv::Conv;
use crate::ops::matmul::{Gemm, MatMul};
use crate::ops::reshape::Reshape;
use crate::ops::transpose::Transpose;
use crate::tensor::Tensor;

attr_struct! {
    /// Makes products of quantised values products of bytes.
    pub struct IntegerProducts("integer-products") {
        /// On devices too that multiply the bytes of a word one by one.
        pub always: bool = false,
    }
}

/// Subtracted from a u8 to make it an i8.
const SHIFT: f64 = 128.0;
/// Sums of i32 go so far; a byte and its zero point are at most 255 apart.
const MOST: f64 = i32::MAX as f64 / 256.0;

impl Pass for IntegerProducts {
    fn opt_level(&self) -> u8 {
        2
    }
    fn run(&self, module: &mut Module, cx: &mut PassContext) -> Result<bool, PassError> {
        let slow = !self.always && !cx.target().multiplies_bytes();
        let (device, mixed) = (cx.profile.name.clone(), cx.profile.model().mixes_bytes);
        Ok(rewrite_functions(module, |r| {
            for n in r.f.walk() {
                r.normalize(n);
                let Some(product) = QuantisedProduct::of(r, n) else { continue };
                let name = r.f.nodes[n].name;
                let done = match slow {
                    true => Err(format!("{device} multiplies the bytes of a word one by one")),
                    false => product.and_then(|p| QuantisedProduct { mixed, ..p }.replace(r, n)),
                };
                match done {
                    Ok(()) => cx.applied(self, &[name], format!("{name} multiplies bytes and adds up in i32")),
                    Err(why) => cx.missed(self, &[name], format!("{name} does not multiply bytes: {why}")),
                }
            }
        }))
    }
}

/// A quantised operand: bytes, their zero point, and their scale.
#[derive(Clone, Copy)]
struct Quantised {
    bytes: ValueId,
    zero: Option<ValueId>,
    scale: Option<ValueId>,
}

impl Quantised {
    /// `(cast(bytes) - zero) * scale` in f32, or `cast(bytes) - zero` in i32.
    fn of(r: &Rewriter<'_>, v: ValueId) -> Option<Quantised> {
        let (math, mut v, mut scale) = (r.f.ty(v).dtype, r.resolve(v), None);
        if math == DType::F32 {
            let [a, s] = made_by::<Mul>(r, v)?;
            (v, scale) = (a, Some(s));
        }
        let zero = made_by::<Sub>(r, v);
        let (cast, zero) = zero.map_or((v, None), |[a, z]| (a, Some(z)));
        let (n, op) = r.f.def_op::<Cast>(cast)?;
        let bytes = r.resolve(r.f.nodes[n].inputs.first().copied().flatten()?);
        let fits = op.to == math && matches!(math, DType::F32 | DType::I32);
        let is_byte = matches!(r.f.ty(bytes).dtype, DType::I8 | DType::U8);
        (fits && is_byte).then_some(Quantised { bytes, zero, scale })
    }
}

/// The two operands of the op `T` that makes `v`.
fn made_by<T: 'static>(r: &Rewriter<'_>, v: ValueId) -> Option<[ValueId; 2]> {
    let (n, _) = r.f.def_op::<T>(r.resolve(v))?;
    match r.f.nodes[n].inputs[..] {
        [Some(a), Some(b)] => Some([r.resolve(a), r.resolve(b)]),
        _ => None,
    }
}

/// The value of a constant, read or computed from constants.
fn tensor_of(r: &Rewriter<'_>, v: ValueId, what: &str) -> Result<Tensor, String> {
    evaluated(r, v)?.ok_or_else(|| format!("{what} is not constant"))
}

/// The value, where it depends on constants alone.
fn evaluated(r: &Rewriter<'_>, v: ValueId) -> Result<Option<Tensor>, String> {
    if let Some((_, c)) = constant_of(r, Some(v)) {
        return c.load().map(Some).map_err(|e: Fault| e.to_string());
    }
    let Some(node) = r.f.def_node(r.resolve(v)).map(|n| &r.f.nodes[n]) else { return Ok(None) };
    if node.inputs.is_empty() || node.outputs.len() != 1 || !node.regions.is_empty() || node.op.effects().stateful {
        return Ok(None);
    }
    let mut inputs = Vec::with_capacity(node.inputs.len());
    for input in &node.inputs {
        let known = input.map(|v| evaluated(r, v)).transpose()?;
        match known {
            Some(None) => return Ok(None),
            other => inputs.push(other.flatten()),
        }
    }
    let out = eval_node(&node.op, &inputs, r.module).map_err(|e| e.to_string())?;
    Ok(out.into_iter().next())
}

/// A product of two quantised operands.
struct QuantisedProduct {
    data: Quantised,
    weights: Quantised,
    conv: Option<Conv>,
    /// The weights of a matrix product are stored as `[n, k]`.
    by_column: bool,
    /// Data of u8 is multiplied with weights of i8.
    mixed: bool,
}

/// Weights as bytes without a zero point.
struct Weights {
    value: ValueId,
    /// For each result channel, where they are constant: the sum of its weights, and that of their magnitudes.
    sums: Option<Vec<(f64, f64)>>,
}

impl QuantisedProduct {
    /// The product that `n` is; why not, where one operand is quantised and the other is not.
    fn of(r: &Rewriter<'_>, n: NodeId) -> Option<Result<QuantisedProduct, String>> {
        let node = &r.f.nodes[n];
        let conv = node.op.downcast::<Conv>().cloned();
        let gemm = node.op.downcast::<Gemm>();
        if conv.is_none() && gemm.is_none() && !node.op.is::<MatMul>() {
            return None;
        }
        let [x, w] = [node.inputs[0]?, node.inputs[1]?];
        let (data, weights) = (Quantised::of(r, x), Quantised::of(r, w));
        Some(match (data, weights) {
            (None, None) => return None,
            _ if gemm.is_some_and(|g| g.alpha != 1.0 || g.beta != 1.0) => Err("it has factors of its own".into()),
            _ if gemm.is_some_and(|g| g.trans_a) => Err("its data is transposed".into()),
            (Some(data), Some(weights)) => {
                let by_column = gemm.is_some_and(|g| g.trans_b);
                Ok(QuantisedProduct { data, weights, conv, by_column, mixed: false })
            }
            (None, _) => Err("its data is not quantised".into()),
            (_, None) => Err("its weights are not quantised".into()),
        })
    }

    fn replace(self, r: &mut Rewriter<'_>, n: NodeId) -> Result<(), String> {
        if !self.mixed && self.conv.as_ref().is_some_and(|c| c.group != 1) {
            return Err("each of its groups sees few channels".into());
        }
        let scale = self.scale(r)?;
        let node = r.f.nodes[n].clone();
        let place = InsertionPoint { at: n, name: node.name, origins: node.origins.clone() };
        let pad = self.padding(r)?;
        let weights = self.weights(r, &place)?;
        self.check(r, &weights, scale.is_some())?;
        let data = match r.f.ty(self.data.bytes).dtype {
            DType::U8 if !self.mixed => place.shifted(r, self.data.bytes)?,
            _ => self.data.bytes,
        };
        let columns = match self.by_column {
            true => place.add(r, Transpose { perm: vec![1, 0] }, vec![Some(weights.value)], "columns")?,
            false => weights.value,
        };
        let mut inputs = vec![Some(data), Some(columns)];
        let bias = node.inputs.get(2).copied().flatten();
        if self.conv.is_none() && scale.is_none() && bias.is_some() {
            return Err("it adds integers".into());
        }
        inputs.extend(bias.filter(|_| scale.is_none()).map(Some));
        let op: OpRef = match &self.conv {
            Some(conv) => Conv { pad_value: pad, ..conv.clone() }.into(),
            None => MatMul {}.into(),
        };
        let mut result = place.add(r, op, inputs, "bytes")?;
        if let Some(correction) = self.correction(r, &place, &weights)? {
            result = place.add(r, Sub {}, vec![Some(result), Some(correction)], "exact")?;
        }
        if let Some(scale) = scale {
            result = place.add(r, Cast::new(DType::F32), vec![Some(result)], "sums")?;
            let scale = place.constant(r, "scale", &scale);
            result = place.add(r, Mul {}, vec![Some(result), Some(scale)], "scaled")?;
            if let Some(mut bias) = bias {
                if self.conv.is_some() {
                    let shape = self.of_channels(r, bias);
                    bias = place.add(r, Reshape { shape, ..Reshape::default() }, vec![Some(bias)], "bias")?;
                }
                result = place.add(r, Add {}, vec![Some(result), Some(bias)], "biased")?;
            }
        }
        r.replace_node(n, result).map_err(|own| format!("its result is {own:?}, and of bytes {:?}", r.f.ty(result)))
    }

    /// The shape in which one value for each channel of a convolution meets its result.
    fn of_channels(&self, r: &Rewriter<'_>, channels: ValueId) -> Vec<Int> {
        let rest = r.f.ty(self.weights.bytes).rank() - 2;
        r.f.ty(channels).shape.iter().cloned().chain(std::iter::repeat_n(Int::new(1), rest)).collect()
    }

    /// The product of both scales, in f32, as it meets the result; none for products of integers.
    fn scale(&self, r: &Rewriter<'_>) -> Result<Option<Tensor>, String> {
        let (Some(x), Some(w)) = (self.data.scale, self.weights.scale) else { return Ok(None) };
        let (x, w) = (tensor_of(r, x, "the data's scale")?, tensor_of(r, w, "the weights' scale")?);
        if x.len() != 1 {
            return Err("the data has more than one scale".into());
        }
        let (factor, all) = (x.to_f32_vec()[0], w.to_f32_vec());
        let shape = self.per_result(r, w.shape(), "scales")?;
        Ok(Some(Tensor::from_vec(shape, all.into_iter().map(|s| s * factor).collect())))
    }

    /// The shape of values of the weights' result channels, given in a shape that meets the weights, as it meets the
    /// result.
    fn per_result(&self, r: &Rewriter<'_>, shape: &[usize], what: &str) -> Result<Vec<usize>, String> {
        let count: usize = shape.iter().product();
        let weights = r.f.ty(self.weights.bytes);
        let axis = if self.by_row() { 0 } else { weights.rank() - 1 };
        let from_end = weights.rank() - axis;
        let along = shape.len() >= from_end && shape[shape.len() - from_end] == count;
        match count {
            1 => Ok(vec![]),
            _ if along && self.conv.is_some() => Ok([vec![count], vec![1; weights.rank() - 2]].concat()),
            _ if along => Ok(vec![count]),
            _ => Err(format!("the weights' {what} of shape {shape:?} do not go along the results")),
        }
    }

    /// The value of a convolution's padding: the data's zero point as an i8.
    fn padding(&self, r: &Rewriter<'_>) -> Result<i64, String> {
        if self.conv.is_none() {
            return Ok(0);
        }
        let zero = match self.data.zero {
            Some(z) => tensor_of(r, z, "the data's zero point, which stands in the padding,")?.to_f64_vec(),
            None => vec![0.0],
        };
        match zero[..] {
            [z] => Ok((z - self.data_shift(r)) as i64),
            _ => Err("the data has more than one zero point".into()),
        }
    }

    fn data_shift(&self, r: &Rewriter<'_>) -> f64 {
        if r.f.ty(self.data.bytes).dtype == DType::U8 && !self.mixed { SHIFT } else { 0.0 }
    }

    /// The weights as i8 without their zero points.
    fn weights(&self, r: &mut Rewriter<'_>, place: &InsertionPoint) -> Result<Weights, String> {
        let Quantised { bytes, zero, .. } = self.weights;
        let signed = r.f.ty(bytes).dtype == DType::I8;
        let zero = zero.map(|z| tensor_of(r, z, "the weights' zero point")).transpose()?;
        let zeros = zero.as_ref().map_or(vec![0.0], Tensor::to_f64_vec);
        if constant_of(r, Some(bytes)).is_none() {
            let shift = if signed { 0.0 } else { SHIFT };
            if zeros.iter().any(|z| *z != shift) {
                return Err(format!("its weights are not constant, and have another zero point than {shift}"));
            }
            let value = if signed { bytes } else { place.shifted(r, bytes)? };
            return Ok(Weights { value, sums: None });
        }
        let all = tensor_of(r, bytes, "weights")?;
        let [channels, inner] = self.channels(all.shape());
        if let Some(z) = &zero {
            self.per_result(r, z.shape(), "zero points")?;
        }
        let channel = |i: usize| i / inner % channels;
        let values: Vec<f64> =
            all.to_f64_vec().into_iter().enumerate().map(|(i, v)| v - zeros[channel(i) % zeros.len()]).collect();
        if let Some(v) = values.iter().find(|v| !(-128.0..=127.0).contains(*v)) {
            return Err(format!("{v} among its weights, their zero point taken off, is no i8"));
        }
        let mut sums = vec![(0.0, 0.0); channels];
        for (i, v) in values.iter().enumerate() {
            let s = &mut sums[channel(i)];
            (s.0, s.1) = (s.0 + v, s.1 + v.abs());
        }
        let same = signed && zeros.iter().all(|z| *z == 0.0);
        let exact = || Tensor::from_f64(DType::I8, all.shape().to_vec(), values.iter().copied());
        let value = if same { bytes } else { place.constant(r, "weights", &exact()) };
        Ok(Weights { value, sums: Some(sums) })
    }

    /// Result channels are the weights' first axis, and not their last.
    fn by_row(&self) -> bool {
        self.conv.is_some() || self.by_column
    }

    /// Result channels of weights of this shape, and elements behind a channel's.
    fn channels(&self, shape: &[usize]) -> [usize; 2] {
        match self.by_row() {
            true => [shape[0], shape[1..].iter().product()],
            false => [shape.last().copied().unwrap_or(1), 1],
        }
    }

    /// Sums stay in i32, where those of floats had no such border.
    fn check(&self, r: &Rewriter<'_>, weights: &Weights, floats: bool) -> Result<(), String> {
        let whole = r.f.ty(self.weights.bytes);
        let depth = match (self.by_row(), whole.shape.len()) {
            (true, _) => crate::int::product(&whole.shape[1..]),
            (false, rank) => whole.shape[rank.saturating_sub(2)].clone(),
        };
        let most = match &weights.sums {
            Some(sums) => sums.iter().map(|s| s.1).fold(0.0, f64::max),
            None => depth.as_const().map_or(f64::INFINITY, |k| k as f64 * SHIFT),
        };
        if floats && most > MOST { Err("its sums may be larger than i32".into()) } else { Ok(()) }
    }

    /// The correction of the results: the data's zero point (of i8) times the sums of the weights. `None` if that is 0.
    fn correction(
        &self,
        r: &mut Rewriter<'_>,
        place: &InsertionPoint,
        weights: &Weights,
    ) -> Result<Option<ValueId>, String> {
        let shift = self.data_shift(r);
        let known = match self.data.zero {
            Some(z) => tensor_of(r, z, "the zero point").ok().map(|t| t.to_f64_vec()),
            None => Some(vec![0.0]),
        };
        if known.as_ref().is_some_and(|z| z.iter().all(|z| *z == shift)) {
            return Ok(None);
        }
        let sums = weights.sums.as_ref().ok_or("its data has a zero point, and its weights are not constant")?;
        if self.conv.is_none() && r.f.ty(self.weights.bytes).rank() > 2 {
            return Err("its data has a zero point, and its weights are more than one matrix".into());
        }
        let shape = match self.conv {
            Some(_) => [vec![sums.len()], vec![1; r.f.ty(self.weights.bytes).rank() - 2]].concat(),
            None if r.f.ty(self.weights.bytes).rank() == 1 => vec![],
            None => vec![sums.len()],
        };
        let of = |factor: f64| Tensor::from_f64(DType::I32, shape.clone(), sums.iter().map(|s| s.0 * factor));
        if let Some([z]) = known.as_deref() {
            return Ok(Some(place.constant(r, "zero", &of(z - shift))));
        }
        let zero = self.data.zero.ok_or("its data has no zero point")?;
        let zero = place.add(r, Cast::new(DType::I32), vec![Some(zero)], "zero")?;
        let shift = place.constant(r, "shift", &Tensor::scalar(shift as i32));
        let zero = place.add(r, Sub {}, vec![Some(zero), Some(shift)], "zero")?;
        let sums = place.constant(r, "weights", &of(1.0));
        place.add(r, Mul {}, vec![Some(zero), Some(sums)], "zero").map(Some)
    }
}

/// Where new nodes stand, and what they come from.
struct InsertionPoint {
    at: NodeId,
    name: Name,
    origins: Origins,
}

impl InsertionPoint {
    fn add(
        &self,
        r: &mut Rewriter<'_>,
        op: impl Into<OpRef>,
        inputs: Vec<Option<ValueId>>,
        label: &str,
    ) -> Result<ValueId, String> {
        let name = Name::new(&format!("{}.{label}", self.name));
        let added = r.add_before(self.at, op, inputs, name, self.origins.clone());
        added.map(|values| values[0]).map_err(|e| e.to_string())
    }
    fn constant(&self, r: &mut Rewriter<'_>, label: &str, t: &Tensor) -> ValueId {
        let name = format!("{}.{label}", self.name);
        r.constant_before(self.at, &name, Constant::from_tensor(t), self.origins.clone())
    }
    /// A u8 less 128, as an i8.
    fn shifted(&self, r: &mut Rewriter<'_>, v: ValueId) -> Result<ValueId, String> {
        let v = self.add(r, Cast::new(DType::I32), vec![Some(v)], "wide")?;
        let shift = self.constant(r, "shift", &Tensor::scalar(SHIFT as i32));
        let v = self.add(r, Sub {}, vec![Some(v), Some(shift)], "shifted")?;
        self.add(r, Cast::new(DType::I8), vec![Some(v)], "signed")
    }
}

#[cfg(test)]
mod tests;
