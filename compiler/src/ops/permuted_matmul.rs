//! Matrix products that read and write their dimensions in another order.

use super::matmul::{compute_product, infer_product};
use super::permute::permute;
use super::{InferContext, Op, OpResult, Precision};
use crate::attr_struct;
use crate::graph::TensorType;
use crate::ops::onnx::{ExportContext, OnnxAttr, OnnxImport};
use crate::te::ComputeContext;

/// ONNX importers: none makes these ops as they are.
pub const ONNX: &[OnnxImport] = &[];

attr_struct! {
    /// `transpose(matmul(transpose(a, perm_a), transpose(b, perm_b)), perm_out)` with the transposes in its index maps.
    /// `absorb-transposes` makes it, for example for the heads of attention.
    pub struct PermutedMatMul("permuted_matmul") {
        /// Order in which the first operand is read; empty for the original order.
        pub perm_a: Vec<usize> = vec![],
        /// Order in which the second operand is read; empty for the original order.
        pub perm_b: Vec<usize> = vec![],
        /// Order in which the result is written; empty for as it comes.
        pub perm_out: Vec<usize> = vec![],
    }
}

impl PermutedMatMul {
    fn read(&self, i: usize) -> &[usize] {
        if i == 0 { &self.perm_a } else { &self.perm_b }
    }
}

/// `list` in the order `perm`; as it stands for an empty one.
fn ordered<T: Clone>(list: &[T], perm: &[usize]) -> Vec<T> {
    if perm.is_empty() { list.to_vec() } else { permute(list, perm) }
}

fn check(perm: &[usize], rank: usize, what: &str) -> OpResult<()> {
    let mut sorted = perm.to_vec();
    sorted.sort_unstable();
    let fits = perm.is_empty() || sorted.iter().copied().eq(0..rank);
    if fits { Ok(()) } else { Err(format!("{what} {perm:?} is no permutation of {rank} dimensions").into()) }
}

impl Op for PermutedMatMul {
    fn arity(&self) -> (usize, usize) {
        (2, 2)
    }
    fn infer(&self, cx: &InferContext<'_>) -> OpResult<Vec<TensorType>> {
        let mut shapes = Vec::with_capacity(2);
        for i in 0..2 {
            let ty = cx.require(i)?;
            check(self.read(i), ty.rank(), if i == 0 { "perm_a" } else { "perm_b" })?;
            shapes.push(ordered(&ty.shape, self.read(i)));
        }
        let shape = infer_product(cx, &shapes[0], &shapes[1])?;
        check(&self.perm_out, shape.len(), "perm_out")?;
        Ok(vec![TensorType::new(cx.require(0)?.dtype, ordered(&shape, &self.perm_out))])
    }
    fn compute(&self, cx: &mut ComputeContext<'_>) -> OpResult<()> {
        compute_product(cx, [&self.perm_a, &self.perm_b], &self.perm_out)
    }
    fn precision(&self) -> Precision {
        Precision::Always
    }
    fn export(&self, cx: &mut ExportContext<'_>) -> OpResult<()> {
        let perm = |p: &[usize]| vec![("perm", OnnxAttr::Ints(p.iter().map(|&d| d as i64).collect()))];
        let mut operands = Vec::with_capacity(2);
        for i in 0..2 {
            let mut name = cx.input(i);
            if !self.read(i).is_empty() {
                let moved = cx.fresh();
                cx.node("Transpose", vec![name], vec![moved.clone()], perm(self.read(i)));
                name = moved;
            }
            operands.push(name);
        }
        let out = cx.outputs.clone();
        if self.perm_out.is_empty() {
            cx.node("MatMul", operands, out, vec![]);
        } else {
            let product = cx.emit("MatMul", operands);
            cx.node("Transpose", vec![product], out, perm(&self.perm_out));
        }
        Ok(())
    }
    fn macs(&self, inputs: &[Option<&TensorType>], outputs: &[&TensorType]) -> u64 {
        let depth = inputs.first().copied().flatten().and_then(|a| ordered(&a.shape, &self.perm_a).pop());
        depth.map_or(0, |k| super::conv::macs_of(&(outputs[0].numel() * k)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::matmul::MatMul;
    use crate::ops::permute::invert;
    use crate::ops::testing::{assert_close, random, run, transposed, try_run};

    #[test]
    fn is_the_product_with_transposes_around() {
        let (a, b) = (random(&[2, 3, 4, 5], 1), random(&[2, 3, 5, 6], 2));
        let want = run(MatMul {}, &[&a, &b]);
        for perm in [[0, 2, 1, 3], [0, 2, 3, 1], [3, 1, 0, 2], [1, 0, 2, 3]] {
            let back = invert(&perm);
            let op = PermutedMatMul { perm_a: perm.to_vec(), ..Default::default() };
            assert_close(&run(op, &[&transposed(&a, &back), &b]), &want, 1e-6);
            let op = PermutedMatMul { perm_b: perm.to_vec(), ..Default::default() };
            assert_close(&run(op, &[&a, &transposed(&b, &back)]), &want, 1e-6);
            let op = PermutedMatMul { perm_out: perm.to_vec(), ..Default::default() };
            assert_close(&run(op, &[&a, &b]), &transposed(&want, &perm), 1e-6);
            let all = PermutedMatMul { perm_a: perm.to_vec(), perm_b: perm.to_vec(), perm_out: perm.to_vec() };
            let operands = [transposed(&a, &back), transposed(&b, &back)];
            assert_close(&run(all, &[&operands[0], &operands[1]]), &transposed(&want, &perm), 1e-6);
        }
        let wrong = PermutedMatMul { perm_b: vec![0, 1], ..Default::default() };
        assert!(try_run(wrong, &[&a, &b]).unwrap_err().contains("perm_b"));
    }
}
