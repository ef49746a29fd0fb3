//! Builds tensor functions statement by statement.

use compiler::dtype::DType;
use compiler::int::Int;
use compiler::tir::{
    Access, Block, Buffer, BufferId, Combiner, Cond, Encoding, Expr, For, LoopKind, Param, Reduce, Scope, Stmt,
    TensorFunction,
};

pub fn v(name: &str) -> Int {
    Int::var(name)
}

pub fn f32c(x: f64) -> Expr {
    Expr::constant(x, DType::F32)
}

pub fn buffer(f: &mut TensorFunction, name: &str, dtype: DType, shape: &[i64], scope: Scope) -> BufferId {
    f.buffers.push(Buffer {
        name: name.into(),
        dtype,
        shape: shape.iter().map(|&d| Int::new(d)).collect(),
        scope,
        encoding: Encoding::Native,
    })
}

pub fn param(f: &mut TensorFunction, name: &str, dtype: DType, shape: &[i64], access: Access) -> BufferId {
    let buffer = buffer(f, name, dtype, shape, Scope::Global);
    f.params.push(Param { buffer, access });
    buffer
}

pub fn repeat(var: &str, extent: i64, kind: LoopKind, body: Stmt) -> Stmt {
    Stmt::For(Box::new(For { var: var.into(), extent: Int::new(extent), kind, body }))
}

/// Several loops around one body, outermost first.
pub fn nest(loops: &[(&str, i64, LoopKind)], body: Stmt) -> Stmt {
    loops.iter().rev().fold(body, |body, (var, extent, kind)| repeat(var, *extent, *kind, body))
}

pub fn store(name: &str, buffer: BufferId, indices: Vec<Int>, value: Expr) -> Stmt {
    guarded(name, vec![], buffer, indices, value)
}

pub fn guarded(name: &str, guards: Vec<Cond>, buffer: BufferId, indices: Vec<Int>, value: Expr) -> Stmt {
    Stmt::Block(Box::new(Block {
        name: name.into(),
        guards,
        buffer,
        indices,
        value,
        reduce: None,
        stages: Default::default(),
    }))
}

pub fn update(name: &str, combiner: Combiner, init: bool, buffer: BufferId, indices: Vec<Int>, value: Expr) -> Stmt {
    let reduce = Some(Reduce { combiner, init });
    Stmt::Block(Box::new(Block {
        name: name.into(),
        guards: vec![],
        buffer,
        indices,
        value,
        reduce,
        stages: Default::default(),
    }))
}

pub fn kernel(f: &mut TensorFunction, body: Stmt) {
    f.body = Stmt::Kernel("k".into(), Box::new(body));
}
