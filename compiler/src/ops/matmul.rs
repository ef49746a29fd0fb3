//! Matrix products.

use super::broadcast::{broadcast_dims, operand_index, unify_dims};
use super::conv::{check_operand_dtypes, macs_of};
use super::permute::{permute, stored_index};
use super::weights::{Bias, Channels};
use super::{InferContext, Op, OpResult, Precision, WeightChannels};
use crate::attr_struct;
use crate::dtype::DType;
use crate::graph::{TensorType, ValueId};
use crate::int::Int;
use crate::ops::onnx::{ExportContext, ImportContext, OnnxAttr, OnnxImport};
use crate::te::ComputeContext;
use crate::tir::{BinaryOp, BufferId, Combiner, Expr, UnaryOp};

attr_struct! {
    /// Matrix product of the last two axes with broadcasting of the leading ones, as NumPy's `matmul`: a rank-1 operand
    /// is a row on the left, a column on the right, and its axis is left out of the result. Products of bytes are i32.
    pub struct MatMul("matmul") {}
}

/// A matrix product's operands seen as matrices: batch dimensions, rows or columns, and the contracted size.
struct ProductDims {
    batch: Vec<Int>,
    rows: Option<Int>,
    columns: Option<Int>,
    depth: Int,
}

fn check_depth(a: &Int, b: &Int) -> OpResult<Int> {
    unify_dims(a, b).map_err(|_| format!("cannot contract {a} columns with {b} rows").into())
}

fn check_number(dtype: DType) -> OpResult<()> {
    if dtype == DType::Bool { Err("operands are bool".into()) } else { Ok(()) }
}

impl ProductDims {
    fn of(a: &[Int], b: &[Int]) -> OpResult<ProductDims> {
        if a.is_empty() || b.is_empty() {
            return Err("an operand is a scalar".into());
        }
        let (batch_a, batch_b) = (&a[..a.len().saturating_sub(2)], &b[..b.len().saturating_sub(2)]);
        Ok(ProductDims {
            batch: broadcast_dims(batch_a, batch_b)?,
            rows: (a.len() > 1).then(|| a[a.len() - 2].clone()),
            columns: (b.len() > 1).then(|| b[b.len() - 1].clone()),
            depth: check_depth(&a[a.len() - 1], &b[b.len().saturating_sub(2)])?,
        })
    }
    fn shape(&self) -> Vec<Int> {
        self.batch.iter().chain(&self.rows).chain(&self.columns).cloned().collect()
    }
}

impl Op for MatMul {
    fn arity(&self) -> (usize, usize) {
        (2, 2)
    }
    fn infer(&self, cx: &InferContext<'_>) -> OpResult<Vec<TensorType>> {
        let (a, b) = (cx.require(0)?, cx.require(1)?);
        Ok(vec![TensorType::new(a.dtype.product(), infer_product(cx, &a.shape, &b.shape)?)])
    }
    fn compute(&self, cx: &mut ComputeContext<'_>) -> OpResult<()> {
        compute_product(cx, [&[], &[]], &[])
    }
    fn precision(&self) -> Precision {
        Precision::Always
    }
    fn weight_channels(&self, rank: usize) -> Option<WeightChannels> {
        let data = Channels::Axis(rank.checked_sub(2)?);
        let results = Channels::Axis(rank - 1);
        Some(WeightChannels { results, data, layout: None, data_transposed: false, bias: None })
    }
    fn export(&self, cx: &mut ExportContext<'_>) -> OpResult<()> {
        cx.simple("MatMul", vec![]);
        Ok(())
    }
    fn macs(&self, inputs: &[Option<&TensorType>], outputs: &[&TensorType]) -> u64 {
        let depth = inputs.first().copied().flatten().and_then(|a| a.shape.last());
        depth.map_or(0, |k| macs_of(&(outputs[0].numel() * k)))
    }
}

/// Shape of the product of operands of these shapes, whose types the context has.
pub(super) fn infer_product(cx: &InferContext<'_>, a: &[Int], b: &[Int]) -> OpResult<Vec<Int>> {
    check_operand_dtypes(cx)?;
    check_number(cx.require(0)?.dtype)?;
    Ok(ProductDims::of(a, b)?.shape())
}

/// The product of operands 0 and 1 read in the orders `read`, written in the order `write` (permutations; empty for
/// none).
pub(super) fn compute_product(cx: &mut ComputeContext<'_>, read: [&[usize]; 2], write: &[usize]) -> OpResult<()> {
    let (a, b) = (cx.require(0)?, cx.require(1)?);
    let ordered = |s: Vec<Int>, p: &[usize]| if p.is_empty() { s } else { permute(&s, p) };
    let (sa, sb) = (ordered(cx.shape(a), read[0]), ordered(cx.shape(b), read[1]));
    let p = ProductDims::of(&sa, &sb)?;
    let out = cx.output_type(0).clone();
    let (acc, left, right) = (out.dtype.accumulator(), cx.dtype(a), cx.dtype(b));
    let sum = cx.reduce("", &out.shape, acc, std::slice::from_ref(&p.depth), Combiner::Sum, |o, r| {
        let o = stored_index(o, write);
        let (batch, rest) = o.split_at(p.batch.len());
        let (row, column) = (p.rows.as_ref().map(|_| &rest[0]), p.columns.as_ref().map(|_| &rest[rest.len() - 1]));
        let mut ia = operand_index(batch, &p.batch, &sa[..sa.len().saturating_sub(2)]);
        ia.extend(row.cloned());
        ia.push(r[0].clone());
        let mut ib = operand_index(batch, &p.batch, &sb[..sb.len().saturating_sub(2)]);
        ib.push(r[0].clone());
        ib.extend(column.cloned());
        let (ia, ib) = (stored_index(&ia, read[0]), stored_index(&ib, read[1]));
        Expr::load(a, ia).cast(left, acc) * Expr::load(b, ib).cast(right, acc)
    });
    let result = narrow(cx, sum, &out);
    cx.output(0, result);
    Ok(())
}

/// Converts an accumulator to the result type in a stage of its own, where they differ.
pub(super) fn narrow(cx: &mut ComputeContext<'_>, sum: BufferId, out: &TensorType) -> BufferId {
    let acc = cx.dtype(sum);
    if acc == out.dtype {
        return sum;
    }
    cx.compute("cast", &out.shape, out.dtype, |o| Expr::load(sum, o.to_vec()).cast(acc, out.dtype))
}

attr_struct! {
    /// `alpha * a * b + beta * c` of matrices, with `a` and `b` transposed on request and an optional `c` that
    /// broadcasts to the result.
    pub struct Gemm("gemm") {
        /// Factor of the product.
        pub alpha: f64 = 1.0,
        /// Factor of the addend.
        pub beta: f64 = 1.0,
        /// `a` is stored as `[k, m]`.
        pub trans_a: bool = false,
        /// `b` is stored as `[n, k]`.
        pub trans_b: bool = false,
    }
}
impl Gemm {
    /// Rows, columns and contracted size.
    fn sizes(&self, a: &[Int], b: &[Int]) -> OpResult<[Int; 3]> {
        let ([a0, a1], [b0, b1]) = (a, b) else {
            return Err(format!("needs matrices, got shapes {a:?} and {b:?}").into());
        };
        let (m, ka) = if self.trans_a { (a1, a0) } else { (a0, a1) };
        let (kb, n) = if self.trans_b { (b1, b0) } else { (b0, b1) };
        Ok([m.clone(), n.clone(), check_depth(ka, kb)?])
    }
}
impl Op for Gemm {
    fn arity(&self) -> (usize, usize) {
        (2, 3)
    }
    fn infer(&self, cx: &InferContext<'_>) -> OpResult<Vec<TensorType>> {
        let (a, b) = (cx.require(0)?, cx.require(1)?);
        check_operand_dtypes(cx)?;
        check_number(a.dtype)?;
        let [m, n, _] = self.sizes(&a.shape, &b.shape)?;
        let out = TensorType::new(a.dtype, vec![m, n]);
        if let Some(c) = cx.input(2) {
            let fits = |c: &Int, o: &Int| c.is(1) || c.as_const().is_none() || o.as_const().is_none() || c == o;
            if c.rank() > 2 || !c.shape.iter().rev().zip(out.shape.iter().rev()).all(|(c, o)| fits(c, o)) {
                return Err(format!("addend of shape {:?} does not broadcast to {:?}", c.shape, out.shape).into());
            }
        }
        Ok(vec![out])
    }
    fn compute(&self, cx: &mut ComputeContext<'_>) -> OpResult<()> {
        let (a, b) = (cx.require(0)?, cx.require(1)?);
        let [m, n, k] = self.sizes(&cx.shape(a), &cx.shape(b))?;
        let out = TensorType::new(cx.output_type(0).dtype, vec![m, n]);
        let (acc, right) = (out.dtype.accumulator(), cx.dtype(b));
        let sum = cx.reduce("", &out.shape, acc, &[k], Combiner::Sum, |o, r| {
            let (m, n, k) = (o[0].clone(), o[1].clone(), r[0].clone());
            let ia = if self.trans_a { vec![k.clone(), m] } else { vec![m, k.clone()] };
            let ib = if self.trans_b { vec![n, k] } else { vec![k, n] };
            Expr::load(a, ia).cast(out.dtype, acc) * Expr::load(b, ib).cast(right, acc)
        });
        let addend = cx.input(2).filter(|_| self.beta != 0.0).map(|c| (c, cx.shape(c), cx.dtype(c)));
        if addend.is_none() && self.alpha == 1.0 {
            let result = narrow(cx, sum, &out);
            cx.output(0, result);
            return Ok(());
        }
        // Factors of integer products are whole numbers in practice; f32 keeps others right.
        let wide = if self.alpha.fract() == 0.0 && self.beta.fract() == 0.0 { acc } else { DType::F32.max(acc) };
        let result = cx.compute("bias", &out.shape, out.dtype, |o| {
            let mut value = Expr::load(sum, o.to_vec()).cast(acc, wide);
            if self.alpha == 0.0 && wide.is_float() {
                // 0 times what is not finite is NaN; a driver may take any product with 0 for 0.
                let [nan, inf] = [UnaryOp::IsNan, UnaryOp::IsInf].map(|op| Expr::unary(op, value.clone()));
                let number = |v: f64| Expr::constant(v, wide);
                value = Expr::select(Expr::binary(BinaryOp::Or, nan, inf), number(f64::NAN), number(0.0));
            } else if self.alpha != 1.0 {
                value = value * Expr::constant(self.alpha, wide);
            }
            if let Some((c, shape, from)) = &addend {
                let c = Expr::load(*c, operand_index(o, &out.shape, shape)).cast(*from, wide);
                value = value + if self.beta == 1.0 { c } else { c * Expr::constant(self.beta, wide) };
            }
            value.cast(wide, out.dtype)
        });
        cx.output(0, result);
        Ok(())
    }
    fn precision(&self) -> Precision {
        Precision::Always
    }
    fn single_operands(&self) -> &'static [usize] {
        &[2]
    }
    fn weight_channels(&self, _rank: usize) -> Option<WeightChannels> {
        let (k, n) = if self.trans_b { (1, 0) } else { (0, 1) };
        let (results, data) = (Channels::Axis(n), Channels::Axis(k));
        let bias = Some(Bias { factor: self.beta, plain: Gemm { beta: 1.0, ..self.clone() }.into() });
        Some(WeightChannels { results, data, layout: None, data_transposed: self.trans_a, bias })
    }
    fn export(&self, cx: &mut ExportContext<'_>) -> OpResult<()> {
        cx.simple(
            "Gemm",
            vec![
                ("alpha", OnnxAttr::Float(self.alpha as f32)),
                ("beta", OnnxAttr::Float(self.beta as f32)),
                ("transA", OnnxAttr::Int(self.trans_a as i64)),
                ("transB", OnnxAttr::Int(self.trans_b as i64)),
            ],
        );
        Ok(())
    }
    fn macs(&self, inputs: &[Option<&TensorType>], outputs: &[&TensorType]) -> u64 {
        let Some(Some(a)) = inputs.first() else { return 0 };
        macs_of(&(outputs[0].numel() * &a.shape[if self.trans_a { 0 } else { 1 }]))
    }
}

fn import_matmul(cx: &mut ImportContext<'_, '_>) -> OpResult<Vec<ValueId>> {
    let inputs = [cx.input(0)?, cx.input(1)?];
    Ok(vec![cx.add(MatMul {}, &inputs)?])
}

pub(super) fn import_gemm(cx: &mut ImportContext<'_, '_>) -> OpResult<Vec<ValueId>> {
    let op = Gemm {
        alpha: cx.attrs.float("alpha").unwrap_or(1.0),
        beta: cx.attrs.float("beta").unwrap_or(1.0),
        trans_a: cx.attrs.int("transA").unwrap_or(0) != 0,
        trans_b: cx.attrs.int("transB").unwrap_or(0) != 0,
    };
    let inputs = cx.inputs.clone();
    cx.add_multi(op, inputs)
}

/// ONNX importers of this family.
pub const ONNX: &[OnnxImport] = &[
    OnnxImport { op_type: "MatMul", domain: "", since: 1, import: import_matmul },
    OnnxImport { op_type: "Gemm", domain: "", since: 7, import: import_gemm },
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::testing::{assert_close, random, run, transposed, try_run};
    use crate::tensor::Tensor;

    #[test]
    fn leading_axes_broadcast_and_vectors_lose_their_axis() {
        let shape = |a: &[usize], b: &[usize]| run(MatMul {}, &[&random(a, 1), &random(b, 2)]).shape().to_vec();
        assert_eq!(shape(&[4], &[4]), [0usize; 0]);
        assert_eq!(shape(&[4], &[2, 4, 3]), [2, 3]);
        assert_eq!(shape(&[2, 3, 4], &[4]), [2, 3]);
        assert_eq!(shape(&[5, 1, 2, 4], &[3, 4, 6]), [5, 3, 2, 6]);
        let (a, b) = (random(&[3, 2, 4], 1), random(&[4, 5], 2));
        let whole = run(MatMul {}, &[&a, &b]);
        let rows = run(MatMul {}, &[&a.reshaped(vec![6, 4]), &b]);
        assert_close(&whole.reshaped(vec![6, 5]), &rows, 1e-6);
        let ints = |shape: &[usize], v: &[i64]| Tensor::from_vec(shape.to_vec(), v.to_vec());
        let got = run(MatMul {}, &[&ints(&[2, 2], &[1, 2, 3, 4]), &ints(&[2, 1], &[5, 6])]);
        assert_eq!(got.to_i64_vec(), [17, 39]);
    }

    #[test]
    fn gemm_agrees_with_matmul() {
        let (a, b) = (random(&[3, 4], 1), random(&[4, 5], 2));
        let product = run(MatMul {}, &[&a, &b]);
        let (at, bt) = (transposed(&a, &[1, 0]), transposed(&b, &[1, 0]));
        for (trans_a, trans_b) in [(false, false), (true, false), (false, true), (true, true)] {
            let op = Gemm { trans_a, trans_b, ..Gemm::default() };
            let got = run(op, &[if trans_a { &at } else { &a }, if trans_b { &bt } else { &b }]);
            assert_close(&got, &product, 1e-6);
        }
        for c in [vec![], vec![1], vec![5], vec![3, 1], vec![3, 5]] {
            let addend = random(&c, 3);
            let op = Gemm { alpha: 0.5, beta: 2.0, ..Gemm::default() };
            let got = run(op, &[&a, &b, &addend]);
            let full = addend.to_f64_vec();
            let at = |i: usize| match c[..] {
                [] | [1] => full[0],
                [5] => full[i % 5],
                [3, 1] => full[i / 5],
                _ => full[i],
            };
            let want = product.to_f64_vec().into_iter().enumerate().map(|(i, p)| 0.5 * p + 2.0 * at(i));
            assert_close(&got, &Tensor::from_f64(DType::F32, vec![3, 5], want.collect::<Vec<_>>()), 1e-6);
        }
    }

    #[test]
    fn factors_of_zero() {
        let (a, b, nan) = (random(&[2, 3], 1), random(&[3, 2], 2), Tensor::from_vec(vec![2], vec![f32::NAN, 1.0]));
        let product = run(MatMul {}, &[&a, &b]);
        assert_close(&run(Gemm { beta: 0.0, ..Gemm::default() }, &[&a, &b, &nan]), &product, 1e-6);
        let without = run(Gemm { alpha: 0.0, ..Gemm::default() }, &[&a, &b, &random(&[2], 3)]);
        assert_eq!(without.to_f64_vec(), random(&[2], 3).to_f64_vec().repeat(2));
        let rows = Tensor::from_vec(vec![2, 1], vec![f32::INFINITY, 2.0]);
        let got = run(Gemm { alpha: 0.0, ..Gemm::default() }, &[&rows, &random(&[1, 1], 2)]).to_f64_vec();
        assert!(got[0].is_nan() && got[1] == 0.0, "{got:?}");
    }

    #[test]
    fn a_product_of_nothing_is_zero() {
        let empty = |shape: &[usize]| Tensor::zeros(DType::F32, shape.to_vec());
        let got = run(MatMul {}, &[&empty(&[2, 0]), &empty(&[0, 3])]);
        assert_eq!((got.shape(), got.to_f64_vec()), (&[2, 3][..], vec![0.0; 6]));
        let got = run(Gemm { beta: 2.0, ..Gemm::default() }, &[&empty(&[1, 0]), &empty(&[0, 2]), &random(&[2], 1)]);
        assert_eq!(got.to_f64_vec(), random(&[2], 1).to_f64_vec().iter().map(|c| 2.0 * c).collect::<Vec<_>>());
        assert_eq!(run(MatMul {}, &[&empty(&[2, 0]), &empty(&[0])]).to_f64_vec(), [0.0; 2]);
    }

    #[test]
    fn shapes_that_do_not_fit_are_refused() {
        let refusal = |a: &[usize], b: &[usize]| try_run(MatMul {}, &[&random(a, 1), &random(b, 2)]).unwrap_err();
        assert!(refusal(&[2, 3], &[4, 2]).contains("contract"));
        assert!(refusal(&[2, 2, 3], &[3, 3, 2]).contains("broadcast"));
        assert!(refusal(&[], &[3]).contains("scalar"));
        assert!(refusal(&[2, 0], &[4, 3]).contains("contract"));
    }
}
