//! Adding elements around a tensor.

use super::host_copy::for_each_index;
use super::permute::{PermutedOp, normalize_axes, permute};
use super::reshape::loop_bounds;
use super::{DataLayout, InferContext, Op, OpRef, OpResult, PackedForm, PackedOp};
use crate::dtype::DType;
use crate::fault::Fault;
use crate::graph::{TensorType, ValueId};
use crate::int::{Bounds, Int, simplify};
use crate::name::Name;
use crate::ops::onnx::{ExportContext, ImportContext, OnnxAttr, OnnxImport};
use crate::te::ComputeContext;
use crate::tensor::Tensor;
use crate::tir::{Cond, Expr};
use crate::{attr_enum, attr_struct};

attr_enum! {
    /// The source of padded elements.
    pub enum PadMode {
        /// A constant.
        Constant = "constant",
        /// The nearest element.
        Edge = "edge",
        /// The mirror image, without the edge itself.
        Reflect = "reflect",
        /// The other end.
        Wrap = "wrap",
    }
}

attr_struct! {
    /// Adds `pads` elements before and after each dimension; negative pads take elements away. The constant is the
    /// attribute `value`, or the optional scalar operand 1. Where the pads are known only at run time they are
    /// operand 2 (with their axes in operand 3), and `dims` names the result's dims.
    pub struct Pad("pad") {
        /// Elements before each dimension, then after each.
        pub pads: Vec<Int> = vec![],
        /// Where they come from.
        pub mode: PadMode = PadMode::Constant,
        /// The constant.
        pub value: f64 = 0.0,
        /// Result dims where the pads are operands.
        pub dims: Vec<Int> = vec![],
    }
}
impl Pad {
    fn check(&self, rank: usize) -> OpResult<()> {
        match self.pads.len() == 2 * rank {
            true => Ok(()),
            false => Err(format!("{} pads for rank {rank}", self.pads.len()).into()),
        }
    }
    /// Index in a dimension of size `d` of the element that is `i` elements right of the first one.
    fn source(&self, i: Int, d: &Int, bounds: &Bounds) -> Int {
        let at = match self.mode {
            PadMode::Constant => i,
            PadMode::Edge => i.max(0).min(d.clone() - 1),
            PadMode::Wrap => i.rem(d),
            PadMode::Reflect if d.is(1) => Int::new(0),
            PadMode::Reflect => {
                let period = (d.clone() - 1) * 2;
                let r = i.rem(&period);
                r.min(period - &r)
            }
        };
        simplify(&at, bounds)
    }
}
impl Op for Pad {
    fn arity(&self) -> (usize, usize) {
        (1, 4)
    }
    fn data_constants(&self) -> Vec<f64> {
        vec![self.value]
    }
    fn infer(&self, cx: &InferContext<'_>) -> OpResult<Vec<TensorType>> {
        let x = cx.require(0)?;
        if let Some(v) = cx.input(1)
            && (v.dtype != x.dtype || !v.numel().is(1))
        {
            return Err(format!("the constant is {v:?}, not one {}", x.dtype).into());
        }
        if !self.dims.is_empty() {
            return Ok(vec![TensorType::new(x.dtype, self.dims.clone())]);
        }
        let rank = x.rank();
        self.check(rank)?;
        let padded = |i: usize| {
            let d = x.shape[i].clone() + &self.pads[i] + &self.pads[i + rank];
            let d = simplify(&d, &Bounds::new());
            match (d.as_const(), x.shape[i].as_const()) {
                (Some(c), _) if c < 0 => Err(format!("dimension {i} would be {c}").into()),
                (Some(c), Some(0)) if c > 0 && self.mode != PadMode::Constant => {
                    Err(format!("dimension {i} has no element to repeat").into())
                }
                _ => Ok(d),
            }
        };
        Ok(vec![TensorType::new(x.dtype, (0..rank).map(padded).collect::<OpResult<_>>()?)])
    }
    fn compute(&self, cx: &mut ComputeContext<'_>) -> OpResult<()> {
        let x = cx.require(0)?;
        let (ty, shape) = (cx.output_type(0).clone(), cx.shape(x));
        self.check(shape.len())?;
        let value = match cx.input(1) {
            Some(b) => Expr::load(b, vec![Int::new(0); cx.shape(b).len()]),
            None => Expr::constant(self.value, ty.dtype),
        };
        let rank = shape.len();
        let out = cx.compute("", &ty.shape, ty.dtype, |index| {
            let bounds = loop_bounds(index, &ty.shape);
            let mut conds = Vec::new();
            let mut at = index.to_vec();
            for d in 0..rank {
                let (before, after) = (&self.pads[d], &self.pads[d + rank]);
                if before.is(0) && after.is(0) {
                    continue;
                }
                at[d] = self.source(simplify(&(at[d].clone() - before), &bounds), &shape[d], &bounds);
                if self.mode == PadMode::Constant {
                    if before.as_const().is_none_or(|c| c > 0) {
                        conds.push(Cond::ge(&at[d], 0));
                    }
                    if after.as_const().is_none_or(|c| c > 0) {
                        conds.push(Cond::lt(&at[d], &shape[d]));
                    }
                }
            }
            Expr::guarded(conds, Expr::load(x, at), value)
        });
        cx.output(0, out);
        Ok(())
    }
    fn has_compute(&self) -> bool {
        self.dims.is_empty()
    }
    fn eval_host(&self, inputs: &[Option<Tensor>]) -> Option<OpResult<Vec<Tensor>>> {
        if self.dims.is_empty() {
            return None;
        }
        let operand = |i: usize| inputs.get(i).and_then(Option::as_ref);
        let (x, pads) = (operand(0)?, operand(2)?.to_i64_vec());
        let axes = operand(3).map(Tensor::to_i64_vec);
        let value = operand(1).cloned().unwrap_or_else(|| Tensor::from_f64(x.dtype(), vec![1], [self.value]));
        Some(self.pad_host(x, &pads, axes, &value).map(|t| vec![t]))
    }
    fn defined_symbols(&self) -> Vec<Name> {
        self.dims.iter().filter_map(Int::as_var).collect()
    }
    fn size_operands(&self) -> &'static [usize] {
        &[2, 3]
    }
    fn with_sizes(&self, operands: &[Option<Tensor>]) -> OpResult<(OpRef, Vec<Option<usize>>)> {
        let list = |i: usize| operands.get(i).and_then(Option::as_ref).map(Tensor::to_i64_vec);
        let rank = self.dims.len();
        let axes = list(3).map_or(Ok((0..rank).collect()), |a| normalize_axes(&a, rank))?;
        let pads = spread(&list(2).ok_or("the pads are missing")?, &axes, rank, 0)?;
        let pads = pads.into_iter().map(Int::new).collect();
        Ok((Pad { pads, dims: vec![], ..self.clone() }.into(), vec![Some(0), Some(1)]))
    }
    fn permuted(&self, perm: &[usize], cx: &InferContext<'_>) -> Option<PermutedOp> {
        if !self.dims.is_empty() || self.pads.len() != 2 * perm.len() {
            return None;
        }
        let (before, after) = self.pads.split_at(perm.len());
        let op = Pad { pads: [permute(before, perm), permute(after, perm)].concat(), ..self.clone() };
        let mut out = PermutedOp::uniform(op, perm, 1, 1);
        if cx.input(1).is_some() {
            out.operands.push((1, None));
        }
        Some(out)
    }
    fn packed(&self, layout: DataLayout, cx: &InferContext<'_>) -> Option<OpResult<PackedOp>> {
        if !self.dims.is_empty() || self.pads.len() != 8 {
            return Some(Err("its pads are not known".into()));
        }
        let (before, after) = self.pads.split_at(4);
        if !before[1].is(0) || !after[1].is(0) {
            return Some(Err(format!("it pads the channels, which {} splits", layout.title()).into()));
        }
        let none = [Int::new(0)];
        let op = Pad { pads: [before, &none, after, &none].concat(), ..self.clone() };
        let mut out = PackedOp::uniform(op, 1, 1);
        if cx.input(1).is_some() {
            out.operands.push((1, PackedForm::AsIs));
        }
        Some(Ok(out))
    }
    fn export(&self, cx: &mut ExportContext<'_>) -> OpResult<()> {
        let pads = match self.dims.is_empty() {
            true => cx.ints(&self.pads)?,
            false => cx.input(2),
        };
        let mut inputs = vec![cx.input(0), pads];
        let given = cx.input(1);
        if !given.is_empty() {
            inputs.push(given);
        } else if self.mode == PadMode::Constant {
            let value = Tensor::from_f64(cx.output_types[0].dtype, vec![], [self.value]);
            inputs.push(cx.constant(value));
        }
        let axes = cx.input(3);
        if !axes.is_empty() {
            inputs.resize(3, String::new());
            inputs.push(axes);
        }
        let outputs = cx.outputs.clone();
        cx.node("Pad", inputs, outputs, vec![("mode", OnnxAttr::Str(self.mode.name().into()))]);
        Ok(())
    }
}

/// Pads of all dimensions from the pads of some.
fn spread<T: Clone>(pads: &[T], axes: &[usize], rank: usize, zero: T) -> OpResult<Vec<T>> {
    if pads.len() != 2 * axes.len() {
        return Err(format!("{} pads for {} axes", pads.len(), axes.len()).into());
    }
    let mut out = vec![zero; 2 * rank];
    for (i, &a) in axes.iter().enumerate() {
        out[a] = pads[i].clone();
        out[a + rank] = pads[i + axes.len()].clone();
    }
    Ok(out)
}

impl Pad {
    fn pad_host(&self, x: &Tensor, pads: &[i64], axes: Option<Vec<i64>>, fill: &Tensor) -> OpResult<Tensor> {
        let rank = x.shape().len();
        let axes = axes.map_or(Ok((0..rank).collect()), |a| normalize_axes(&a, rank))?;
        let pads = spread(pads, &axes, rank, 0)?;
        let size = |d: usize| (x.shape()[d] as i64).saturating_add(pads[d]).saturating_add(pads[d + rank]);
        let shape = super::host_copy::check_sizes(&(0..rank).map(size).collect::<Vec<_>>())?;
        super::host_copy::check_count(x.dtype(), &shape)?;
        if self.mode != PadMode::Constant && x.is_empty() {
            return Err("there is no element to repeat".into());
        }
        let width = x.dtype().size();
        let mut out = Vec::with_capacity(shape.iter().product::<usize>() * width);
        for_each_index(&shape, |index| {
            let mut at = Some(0usize);
            for (d, &i) in index.iter().enumerate() {
                let size = Int::from(x.shape()[d]);
                let i = self
                    .source(Int::new((i as i64).saturating_sub(pads[d])), &size, &Bounds::new())
                    .as_const()
                    .unwrap_or(-1);
                let inside = usize::try_from(i).ok().filter(|&i| i < x.shape()[d]);
                at = at.and_then(|at| inside.map(|i| at * x.shape()[d] + i));
            }
            match at {
                Some(at) => out.extend_from_slice(&x.bytes()[at * width..(at + 1) * width]),
                None => out.extend_from_slice(fill.bytes()),
            }
        });
        Ok(Tensor::from_bytes(x.dtype(), shape, out.into())?)
    }
}

/// ONNX importers.
pub const ONNX: &[OnnxImport] = &[
    OnnxImport { op_type: "Pad", domain: "", since: 2, import: import_attributes },
    OnnxImport { op_type: "Pad", domain: "", since: 11, import: import_operands },
];

fn import_mode(cx: &ImportContext<'_, '_>) -> OpResult<PadMode> {
    let mode = cx.attrs.str("mode").unwrap_or("constant");
    PadMode::parse(mode).ok_or_else(|| Fault::unsupported(format!("mode `{mode}` is unsupported")))
}

fn import_attributes(cx: &mut ImportContext<'_, '_>) -> OpResult<Vec<ValueId>> {
    let x = cx.input(0)?;
    let pads = cx.attrs.ints("pads").ok_or("attribute `pads` is missing")?.iter().map(|&p| Int::new(p)).collect();
    let value = cx.attrs.float("value").unwrap_or(0.0);
    let op = Pad { pads, mode: import_mode(cx)?, value, dims: vec![] };
    Ok(vec![cx.add(op, &[x])?])
}

fn import_operands(cx: &mut ImportContext<'_, '_>) -> OpResult<Vec<ValueId>> {
    let x = cx.input(0)?;
    let (ty, mode) = (cx.ty(0)?, import_mode(cx)?);
    let constant = cx.const_number(2);
    let value = constant.unwrap_or(0.0);
    let value_operand = if constant.is_some() { None } else { cx.opt(2) };
    let axes = if cx.opt(3).is_some() { cx.const_ints(3) } else { Some((0..ty.rank() as i64).collect()) };
    let (op, mut inputs) = match (cx.int_values(1), axes) {
        (Some(pads), Some(axes)) => {
            let pads = spread(&pads, &normalize_axes(&axes, ty.rank())?, ty.rank(), Int::new(0))?;
            (Pad { pads, mode, value, dims: vec![] }, vec![Some(x), value_operand])
        }
        _ => {
            if cx.ty(1)?.dtype != DType::I64 {
                return Err("the pads are not i64".into());
            }
            let dims = (0..ty.rank()).map(|i| cx.fresh_dim("pad", i)).collect();
            let op = Pad { pads: vec![], mode, value, dims };
            (op, vec![Some(x), value_operand, cx.opt(1), cx.opt(3)])
        }
    };
    while inputs.last() == Some(&None) {
        inputs.pop();
    }
    cx.add_multi(op, inputs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::testing::{random, run, try_run};

    fn ints(v: &[i64]) -> Vec<Int> {
        v.iter().map(|&i| Int::new(i)).collect()
    }

    #[test]
    fn modes() {
        let x = Tensor::ints(&[1, 2, 3]);
        let of =
            |mode, before, after| run(Pad { pads: ints(&[before, after]), mode, ..Pad::default() }, &[&x]).to_i64_vec();
        assert_eq!(of(PadMode::Constant, 1, 2), [0, 1, 2, 3, 0, 0]);
        assert_eq!(of(PadMode::Edge, 2, 1), [1, 1, 1, 2, 3, 3]);
        assert_eq!(of(PadMode::Reflect, 2, 2), [3, 2, 1, 2, 3, 2, 1]);
        assert_eq!(of(PadMode::Reflect, 5, 0), [2, 1, 2, 3, 2, 1, 2, 3]);
        assert_eq!(of(PadMode::Wrap, 2, 4), [2, 3, 1, 2, 3, 1, 2, 3, 1]);
        assert_eq!(of(PadMode::Constant, -1, 1), [2, 3, 0]);
        assert_eq!(of(PadMode::Edge, -1, -2), [0i64; 0]);
        assert!(try_run(Pad { pads: ints(&[-2, -2]), ..Pad::default() }, &[&x]).is_err());
        assert!(try_run(Pad { pads: ints(&[1]), ..Pad::default() }, &[&x]).is_err());
    }

    #[test]
    fn a_value_of_64_bits_is_kept() {
        let (x, far) = (Tensor::ints(&[1, 2]), Tensor::ints(&[(1 << 60) + 1]));
        let op = Pad { pads: vec![], dims: vec![Int::var("a")], ..Pad::default() };
        let host = op.eval_host(&[Some(x), Some(far), Some(Tensor::ints(&[1, 0]))]);
        assert_eq!(host.unwrap().unwrap()[0].to_i64_vec(), [(1 << 60) + 1, 1, 2]);
    }

    #[test]
    fn pads_at_run_time_give_the_same_on_the_host() {
        let x = random(&[2, 3], 1);
        for mode in PadMode::ALL {
            let known = Pad { pads: ints(&[1, -1, 2, 3]), mode: *mode, value: 7.0, dims: vec![] };
            let unknown = Pad { pads: vec![], dims: vec![Int::var("a"), Int::var("b")], ..known.clone() };
            let host = unknown.eval_host(&[Some(x.clone()), None, Some(Tensor::ints(&[1, -1, 2, 3]))]);
            assert_eq!(host.unwrap().unwrap()[0], run(known, &[&x]), "{mode}");
        }
    }
}
