//! Elementwise choice.

use super::broadcast::{broadcast_dims, operand_index};
use super::{InferContext, Op, OpResult};
use crate::attr_struct;
use crate::dtype::DType;
use crate::graph::TensorType;
use crate::int::Dim;
use crate::ops::onnx::{ExportContext, OnnxImport};
use crate::te::ComputeContext;
use crate::tir::Expr;

attr_struct! {
    /// Operand 1 where the bool operand 0 is true, operand 2 elsewhere; all three broadcast.
    pub struct Where("where") {}
}
impl Op for Where {
    fn arity(&self) -> (usize, usize) {
        (3, 3)
    }
    fn keeps_elements(&self) -> bool {
        true
    }
    fn infer(&self, cx: &InferContext<'_>) -> OpResult<Vec<TensorType>> {
        let (c, a, b) = (cx.require(0)?, cx.require(1)?, cx.require(2)?);
        if c.dtype != DType::Bool {
            return Err(format!("the condition is {}, not bool", c.dtype).into());
        }
        if a.dtype != b.dtype {
            return Err(format!("the choices are {} and {}", a.dtype, b.dtype).into());
        }
        let shape = broadcast_dims(&c.shape, &broadcast_dims(&a.shape, &b.shape)?)?;
        Ok(vec![TensorType::new(a.dtype, shape)])
    }
    fn infer_value(&self, cx: &InferContext<'_>) -> Option<Vec<Dim>> {
        let all = [cx.int_input(0)?, cx.int_input(1)?, cx.int_input(2)?];
        let n = all.iter().map(Vec::len).find(|&n| n != 1).unwrap_or(1);
        if all.iter().any(|v| v.len() != n && v.len() != 1) {
            return None;
        }
        let at = |v: &Vec<Dim>, i: usize| if v.len() == 1 { v[0].clone() } else { v[i].clone() };
        (0..n)
            .map(|i| {
                let (a, b) = (at(&all[1], i), at(&all[2], i));
                if a == b {
                    return Some(a);
                }
                let c = at(&all[0], i);
                Some(match c.as_const() {
                    Some(0) => b,
                    Some(_) => a,
                    None => b.clone() + c * (a - b),
                })
            })
            .collect()
    }
    fn compute(&self, cx: &mut ComputeContext<'_>) -> OpResult<()> {
        let operands = [cx.require(0)?, cx.require(1)?, cx.require(2)?];
        let shapes = operands.map(|b| cx.shape(b));
        let ty = cx.output_type(0).clone();
        let out = cx.compute("", &ty.shape, ty.dtype, |i| {
            let load = |n: usize| Expr::load(operands[n], operand_index(i, &ty.shape, &shapes[n]));
            Expr::select(load(0), load(1), load(2))
        });
        cx.output(0, out);
        Ok(())
    }
    fn export(&self, cx: &mut ExportContext<'_>) -> OpResult<()> {
        cx.simple("Where", vec![]);
        Ok(())
    }
}

/// ONNX importers.
pub const ONNX: &[OnnxImport] = &[OnnxImport {
    op_type: "Where",
    domain: "",
    since: 9,
    import: |cx| {
        let operands = [cx.input(0)?, cx.input(1)?, cx.input(2)?];
        Ok(vec![cx.add(Where {}, &operands)?])
    },
}];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::testing::{run, try_run};
    use crate::tensor::Tensor;

    #[test]
    fn all_three_operands_broadcast() {
        let c = Tensor::from_f64(DType::Bool, vec![2, 1], [1.0, 0.0]);
        let (a, b) = (Tensor::ints(&[1, 2, 3]), Tensor::from_vec(vec![], vec![9i64]));
        let out = run(Where {}, &[&c, &a, &b]);
        assert_eq!((out.shape(), out.to_i64_vec()), (&[2, 3][..], vec![1, 2, 3, 9, 9, 9]));
        assert!(try_run(Where {}, &[&a, &a, &b]).is_err());
    }
}
