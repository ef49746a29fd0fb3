use super::*;
use crate::dtype::DType;
use crate::int::Int;
use crate::tir::BufferId;
use crate::tir::{Access, Block, Buffer, Combiner, Cond, Encoding, Expr, For, LoopKind, Param, Reduce, Scope, Stmt};

fn buffer(f: &mut TensorFunction, name: &str, shape: &[i64], scope: Scope) -> BufferId {
    f.buffers.push(Buffer {
        name: Name::new(name),
        dtype: DType::F32,
        shape: shape.iter().map(|&d| Int::new(d)).collect(),
        scope,
        encoding: Encoding::Native,
    })
}

fn param(f: &mut TensorFunction, name: &str, shape: &[i64], access: Access) -> BufferId {
    let b = buffer(f, name, shape, Scope::Global);
    f.params.push(Param { buffer: b, access });
    b
}

fn repeat(var: &str, extent: i64, kind: LoopKind, body: Stmt) -> Stmt {
    Stmt::For(Box::new(For { var: Name::new(var), extent: Int::new(extent), kind, body }))
}

fn store(name: &str, b: BufferId, indices: Vec<Int>, value: Expr) -> Block {
    Block { name: Name::new(name), guards: vec![], buffer: b, indices, value, reduce: None, stages: Default::default() }
}

fn leaf(b: Block) -> Stmt {
    Stmt::Block(Box::new(b))
}

fn v(name: &str) -> Int {
    Int::var(name)
}

fn kernel(body: Stmt) -> Stmt {
    Stmt::Kernel(Name::new("k"), Box::new(body))
}

fn ramp(n: usize) -> Tensor {
    Tensor::from_vec(vec![n], (0..n).map(|x| x as f32).collect())
}

/// Reverses each group of four through shared memory: needs that all threads store before any of them loads.
#[test]
fn shared_memory_is_seen_by_the_next_statement() {
    let mut f = TensorFunction::new("reverse");
    let (x, y) = (param(&mut f, "x", &[8], Access::Read), param(&mut f, "y", &[8], Access::Write));
    let s = buffer(&mut f, "s", &[4], Scope::Shared);
    let at = || v("g") * 4 + v("t");
    f.body = kernel(repeat(
        "g",
        2,
        LoopKind::Group(0),
        repeat(
            "t",
            4,
            LoopKind::Local(0),
            Stmt::Seq(vec![
                leaf(store("fill", s, vec![v("t")], Expr::load(x, vec![at()]))),
                Stmt::Barrier,
                leaf(store("take", y, vec![at()], Expr::load(s, vec![Int::new(3) - v("t")]))),
            ]),
        ),
    ));
    let y = run_scheduled(&f, &[ramp(8)]).unwrap().remove(0);
    assert_eq!(y.to_f32_vec(), [3., 2., 1., 0., 7., 6., 5., 4.]);
}

/// A tree reduction over the lanes of subgroup memory with a rotating shuffle.
#[test]
fn subgroup_lanes_read_each_other() {
    let mut f = TensorFunction::new("shuffle");
    let (x, y) = (param(&mut f, "x", &[8], Access::Read), param(&mut f, "y", &[8], Access::Write));
    let w = buffer(&mut f, "w", &[4], Scope::Subgroup { lane_dim: 0, size: 4 });
    let lane = || v("t").rem(4);
    let mut body = vec![leaf(store("fill", w, vec![lane()], Expr::load(x, vec![v("t")])))];
    for (i, step) in [1, 2].into_iter().enumerate() {
        let other = (lane() + step).rem(4);
        let sum = Expr::load(w, vec![lane()]) + Expr::load(w, vec![other]);
        body.push(leaf(store(&format!("step{i}"), w, vec![lane()], sum)));
    }
    body.push(leaf(store("out", y, vec![v("t")], Expr::load(w, vec![lane()]))));
    f.body = kernel(repeat("t", 8, LoopKind::Local(0), Stmt::Seq(body)));
    let out = run_scheduled(&f, &[ramp(8)]).unwrap().remove(0);
    assert_eq!(out.to_f32_vec(), [6., 6., 6., 6., 22., 22., 22., 22.]);

    let Stmt::Kernel(_, k) = &mut f.body else { unreachable!() };
    k.visit_mut(&mut |s| {
        if let Stmt::Block(b) = s
            && b.name == Name::new("step0")
        {
            b.indices = vec![(lane() + 1).rem(4)];
        }
    });
    assert!(run_scheduled(&f, &[ramp(8)]).unwrap_err().contains("lane 0 stores to [1]"));
}

/// Register buffers are private; a reduction starts over where an outer serial loop repeats the buffer's life.
#[test]
fn registers_are_private_and_reductions_start_anew() {
    let mut f = TensorFunction::new("sums");
    let (x, y) = (param(&mut f, "x", &[2, 3, 4], Access::Read), param(&mut f, "y", &[2, 3], Access::Write));
    let r = buffer(&mut f, "r", &[1], Scope::Register);
    let mut add = store("sum", r, vec![0.into()], Expr::load(x, vec![v("o"), v("t"), v("k")]));
    add.reduce = Some(Reduce { combiner: Combiner::Sum, init: true });
    f.body = kernel(repeat(
        "t",
        3,
        LoopKind::Local(0),
        repeat(
            "o",
            2,
            LoopKind::Serial,
            Stmt::Seq(vec![
                repeat("k", 4, LoopKind::Unroll, leaf(add)),
                leaf(store("out", y, vec![v("o"), v("t")], Expr::load(r, vec![0.into()]))),
            ]),
        ),
    ));
    let y = run_scheduled(&f, &[ramp(24).reshaped(vec![2, 3, 4])]).unwrap().remove(0);
    assert_eq!(y.to_f32_vec(), [6., 22., 38., 54., 70., 86.]);
}

/// Two loops on one axis share the index; the shorter one is skipped by the other threads, and guards hold per thread.
#[test]
fn shorter_loops_and_guards_skip() {
    let mut f = TensorFunction::new("edges");
    let (x, y) = (param(&mut f, "x", &[4], Access::Read), param(&mut f, "y", &[4], Access::Write));
    let mut three = store("three", y, vec![v("b")], Expr::load(x, vec![v("b")]) + Expr::constant(100.0, DType::F32));
    three.guards = vec![Cond::lt(v("b"), 1)];
    f.body = kernel(Stmt::Seq(vec![
        repeat("a", 4, LoopKind::Local(0), leaf(store("all", y, vec![v("a")], Expr::load(x, vec![v("a")])))),
        repeat("b", 3, LoopKind::Local(0), leaf(three)),
    ]));
    let y = run_scheduled(&f, &[ramp(4)]).unwrap().remove(0);
    assert_eq!(y.to_f32_vec(), [100., 1., 2., 3.]);
}

#[test]
fn accesses_are_checked() {
    let mut f = TensorFunction::new("bad");
    let (x, y) = (param(&mut f, "x", &[4], Access::Read), param(&mut f, "y", &[4], Access::Write));
    let body = |value: Expr| repeat("i", 4, LoopKind::Serial, leaf(store("shift", y, vec![v("i")], value)));
    let load = Expr::load(x, vec![v("i") + 1]);
    f.body = body(load.clone());
    let message = run_scheduled(&f, &[ramp(4)]).unwrap_err();
    assert_eq!(message, "block `shift`: index [4] is outside of `x` with shape [4]");
    // A select is lazy: the load is not evaluated where its condition fails.
    f.body = body(Expr::guarded(vec![Cond::lt(v("i"), 3)], load, Expr::constant(-1.0, DType::F32)));
    assert_eq!(run_scheduled(&f, &[ramp(4)]).unwrap()[0].to_f32_vec(), [1., 2., 3., -1.]);
}

#[test]
fn races_are_found() {
    let mut f = TensorFunction::new("race");
    let (x, y) = (param(&mut f, "x", &[4], Access::Read), param(&mut f, "y", &[1], Access::Write));
    let one = |value| kernel(repeat("t", 4, LoopKind::Local(0), leaf(store("w", y, vec![0.into()], value))));
    f.body = one(Expr::load(x, vec![v("t")]));
    assert!(run_scheduled(&f, &[ramp(4)]).unwrap_err().contains("threads 0 and 1 both write element 0 of `y`"));
    f.body = one(Expr::load(x, vec![2.into()]));
    assert_eq!(run_scheduled(&f, &[ramp(4)]).unwrap()[0].to_f32_vec(), [2.]);
}

#[test]
fn symbols_are_bound_and_checked() {
    let mut f = TensorFunction::new("sym");
    let (x, y) = (param(&mut f, "x", &[4], Access::Read), param(&mut f, "y", &[4], Access::Write));
    for b in [x, y] {
        f.buffers[b].shape = vec![v("n")];
    }
    f.symbols = vec![(Name::new("n"), 1, 10)];
    let mut nest = repeat("i", 4, LoopKind::Serial, leaf(store("copy", y, vec![v("i")], Expr::load(x, vec![v("i")]))));
    nest.visit_mut(&mut |s| {
        if let Stmt::For(l) = s {
            l.extent = v("n");
        }
    });
    f.body = nest;
    assert_eq!(run_scheduled(&f, &[ramp(6)]).unwrap()[0].shape(), [6]);
    assert!(run_scheduled(&f, &[ramp(11)]).unwrap_err().contains("declared 1 to 10"));
}
