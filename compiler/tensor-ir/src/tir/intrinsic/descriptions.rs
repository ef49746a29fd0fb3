//! What each intrinsic does, as loops over blocks.

use super::{Intrinsic, MatrixRole, WORD};
use crate::dtype::DType;
use crate::int::Int;
use crate::name::Name;
use crate::tir::{
    Block, Buffer, BufferId, Combiner, Encoding, Expr, For, LoopKind, Reduce, Scope, StageSet, Stmt, TensorFunction,
};

pub(super) fn fragment(f: &mut TensorFunction, role: MatrixRole, dtype: DType, size: [i64; 2]) -> BufferId {
    buffer(f, role.word(), dtype, size, Scope::Fragment(role))
}

pub(super) fn buffer(f: &mut TensorFunction, name: &str, dtype: DType, size: [i64; 2], scope: Scope) -> BufferId {
    let shape = size.map(Int::new).to_vec();
    f.buffers.push(Buffer { name: name.into(), dtype, shape, scope, encoding: Encoding::Native })
}

/// A description of one block in loops `i`, `j`, `k` of these extents.
pub(super) fn describe(
    name: String,
    extents: &[Int],
    make: impl FnOnce(&mut TensorFunction, &[Int]) -> (BufferId, Vec<Int>, Expr, Option<Reduce>),
) -> Intrinsic {
    let mut f = TensorFunction::new(name.as_str());
    let names: Vec<Name> = ["i", "j", "k"].into_iter().take(extents.len()).map(Name::new).collect();
    let vars: Vec<Int> = names.iter().map(|v| Int::var(*v)).collect();
    let (buffer, indices, value, reduce) = make(&mut f, &vars);
    let (guards, stages) = (vec![], StageSet::default());
    let block = Block { name: Name::new(&name), guards, buffer, indices, value, reduce, stages };
    f.body = names.iter().zip(extents).rev().fold(Stmt::Block(Box::new(block)), |body, (var, n)| {
        Stmt::For(Box::new(For { var: *var, extent: n.clone(), kind: LoopKind::Serial, body }))
    });
    Intrinsic { name, description: f }
}

pub(super) fn fill([m, n]: [i64; 2], t: DType) -> Intrinsic {
    describe(format!("fill_{m}x{n}_{t}"), &[m, n].map(Int::new), |f, v| {
        (fragment(f, MatrixRole::C, t, [m, n]), v.to_vec(), Expr::constant(0.0, t), None)
    })
}

pub(super) fn load(role: MatrixRole, [rows, columns]: [i64; 2], t: DType) -> Intrinsic {
    describe(format!("load_{}_{rows}x{columns}_{t}", role.word()), &[rows, columns].map(Int::new), |f, v| {
        let memory = buffer(f, "memory", t, [rows, columns], Scope::Shared);
        (fragment(f, role, t, [rows, columns]), v.to_vec(), Expr::load(memory, v.to_vec()), None)
    })
}

pub(super) fn store([m, n]: [i64; 2], t: DType) -> Intrinsic {
    describe(format!("store_{m}x{n}_{t}"), &[m, n].map(Int::new), |f, v| {
        let c = fragment(f, MatrixRole::C, t, [m, n]);
        (buffer(f, "memory", t, [m, n], Scope::Shared), v.to_vec(), Expr::load(c, v.to_vec()), None)
    })
}

pub(super) fn multiply_add([m, n, k]: [i64; 3], ab: DType, cr: DType) -> Intrinsic {
    describe(format!("multiply_add_{m}x{n}x{k}_{ab}_{cr}"), &[m, n, k].map(Int::new), |f, v| {
        let (a, b) = (fragment(f, MatrixRole::A, ab, [m, k]), fragment(f, MatrixRole::B, ab, [k, n]));
        let c = fragment(f, MatrixRole::C, cr, [m, n]);
        let element = |b: BufferId, at: [usize; 2]| Expr::load(b, at.map(|d| v[d].clone()).to_vec()).cast(ab, cr);
        let reduce = Some(Reduce { combiner: Combiner::Sum, init: false });
        (c, v[..2].to_vec(), element(a, [0, 2]) * element(b, [2, 1]), reduce)
    })
}

pub(super) fn dot4(t: DType) -> Intrinsic {
    describe(format!("dot4_{t}"), &[WORD].map(Int::new), |f, v| {
        let shape = || vec![Int::new(WORD)];
        let (scope, encoding) = (Scope::Shared, Encoding::ByteQuad);
        let [a, b] = ["a", "b"]
            .map(|name| f.buffers.push(Buffer { name: name.into(), dtype: t, shape: shape(), scope, encoding }));
        let (scope, encoding) = (Scope::Register, Encoding::Native);
        let c = Buffer { name: "c".into(), dtype: DType::I32, shape: vec![Int::new(1)], scope, encoding };
        let element = |b: BufferId| Expr::load(b, v.to_vec()).cast(t, DType::I32);
        let reduce = Some(Reduce { combiner: Combiner::Sum, init: false });
        (f.buffers.push(c), vec![Int::new(0)], element(a) * element(b), reduce)
    })
}

/// The operand of casts to f32, which holds all values of f16 and bf16, and of bytes to i32.
pub(super) fn narrowest<'e>(e: &'e Expr, f: &TensorFunction) -> &'e Expr {
    match e {
        Expr::Cast(to, a) if becomes(a.dtype(f), *to) => narrowest(a, f),
        _ => e,
    }
}

/// True if every element of the one type is the same number in the other, which is multiplied.
pub(super) fn becomes(from: DType, to: DType) -> bool {
    match to {
        DType::F32 => matches!(from, DType::F16 | DType::BF16),
        DType::I32 => matches!(from, DType::I8 | DType::U8),
        _ => false,
    }
}
