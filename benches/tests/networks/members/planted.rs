//! Ops that say of themselves that they are in a class, and are not: their cases find them.

use super::check_member;
use compiler::attr_struct;
use compiler::dtype::DType;
use compiler::graph::TensorType;
use compiler::int::Int;
use compiler::ops::{InferContext, Op, OpDef, OpResult, PermutedOp, Precision, register_op};
use compiler::te::ComputeContext;
use compiler::tir::Expr;
use weft::Device;

attr_struct! {
    /// A sum that claims to take an f32 operand beside f16 data, and casts nothing.
    pub struct Mixing("planted_mixing") {}
}
impl Op for Mixing {
    fn arity(&self) -> (usize, usize) {
        (2, 2)
    }
    fn infer(&self, cx: &InferContext<'_>) -> OpResult<Vec<TensorType>> {
        Ok(vec![cx.require(0)?.clone()])
    }
    fn compute(&self, cx: &mut ComputeContext<'_>) -> OpResult<()> {
        let (a, b, ty) = (cx.require(0)?, cx.require(1)?, cx.output_type(0).clone());
        let out = cx.compute("", &ty.shape, ty.dtype, |i| {
            Expr::load(a, i.to_vec()) + Expr::load(b, vec![Int::new(0), i[1].clone(), Int::new(0), Int::new(0)])
        });
        cx.output(0, out);
        Ok(())
    }
    fn precision(&self) -> Precision {
        Precision::Always
    }
    fn single_operands(&self) -> &'static [usize] {
        &[1]
    }
}

attr_struct! {
    /// Data times the number of its channel, which claims to be the same under any order of the axes.
    pub struct ByChannel("planted_by_channel") {}
}
impl Op for ByChannel {
    fn arity(&self) -> (usize, usize) {
        (1, 1)
    }
    fn infer(&self, cx: &InferContext<'_>) -> OpResult<Vec<TensorType>> {
        Ok(vec![cx.require(0)?.clone()])
    }
    fn compute(&self, cx: &mut ComputeContext<'_>) -> OpResult<()> {
        let (x, ty) = (cx.require(0)?, cx.output_type(0).clone());
        let out = cx.compute("", &ty.shape, ty.dtype, |i| {
            Expr::load(x, i.to_vec()) * Expr::Index(i[1].clone(), DType::I32).cast(DType::I32, ty.dtype)
        });
        cx.output(0, out);
        Ok(())
    }
    fn permuted(&self, perm: &[usize], _cx: &InferContext<'_>) -> Option<PermutedOp> {
        Some(PermutedOp::uniform(ByChannel {}, perm, 1, 1))
    }
}

#[test]
fn a_member_that_does_not_fit_is_found() {
    register_op(OpDef::of::<Mixing>(), &[]).unwrap_or_else(|e| panic!("{e}"));
    register_op(OpDef::of::<ByChannel>(), &[]).unwrap_or_else(|e| panic!("{e}"));
    let cpu = [Device::cpu(2).unwrap_or_else(|e| panic!("{e}"))];
    for (name, line, mode) in [
        ("planted_mixing", "planted_mixing %x, %col", "--amp fp16"),
        ("planted_by_channel", "planted_by_channel %x", "--layout nhwc"),
    ] {
        let faults = check_member(name, &[line], &cpu, &mut 0);
        println!("{}", faults.first().map_or("", |f| f.lines().next().unwrap_or_default()));
        assert!(faults.iter().any(|f| f.contains(mode)), "{name}: {faults:?}");
    }
}
