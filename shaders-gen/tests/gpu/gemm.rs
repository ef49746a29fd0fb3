//! Matrix products: register tiles, shared-memory tiles, tiles spread over a subgroup.

use crate::build::*;
use crate::device::gpu;
use crate::{assert_close, random, run};
use compiler::dtype::DType;
use compiler::tir::{Access, BufferId, Combiner, Expr, LoopKind, Scope, Stmt, TensorFunction};
use shaders_gen::emit_kernel;

use LoopKind::{Group, Local, Serial, Unroll, Vectorize};

struct Gemm {
    f: TensorFunction,
    a: BufferId,
    b: BufferId,
    c: BufferId,
    size: [usize; 3],
}

fn gemm(m: i64, n: i64, k: i64) -> Gemm {
    let mut f = TensorFunction::new("gemm");
    let a = param(&mut f, "a", DType::F32, &[m, k], Access::Read);
    let b = param(&mut f, "b", DType::F32, &[k, n], Access::Read);
    let c = param(&mut f, "c", DType::F32, &[m, n], Access::Write);
    Gemm { f, a, b, c, size: [m as usize, n as usize, k as usize] }
}

impl Gemm {
    /// Runs and compares; returns the WGSL.
    fn check(&self) -> String {
        let [m, n, k] = self.size;
        let (a, b) = (random(m * k, 1), random(k * n, 2));
        let got = run(&self.f, &gpu().profile, &[(self.a, &a), (self.b, &b)], self.c);
        let mut want = vec![0.0f32; m * n];
        for i in 0..m {
            for p in 0..k {
                for j in 0..n {
                    want[i * n + j] += a[i * k + p] * b[p * n + j];
                }
            }
        }
        assert_close(&got, &want, 1e-4);
        let k = emit_kernel(&self.f, "k".into(), &gpu().profile).expect("emits");
        assert!(k.bounds_proved, "{}", k.wgsl);
        k.wgsl
    }
}

/// 4x4 outputs a thread, all in registers, rows of vectors.
#[test]
fn register_tiles() {
    let mut g = gemm(32, 64, 24);
    let acc = buffer(&mut g.f, "acc", DType::F32, &[4, 4], Scope::Register);
    let (row, col) = (v("ty") * 4 + v("i"), v("gx") * 32 + v("tx") * 4 + v("j"));
    let product = Expr::load(g.a, vec![v("ty") * 4 + v("i1"), v("k")])
        * Expr::load(g.b, vec![v("k"), v("gx") * 32 + v("tx") * 4 + v("j1")]);
    let body = Stmt::Seq(vec![
        nest(&[("i0", 4, Unroll), ("j0", 4, Vectorize)], store("zero", acc, vec![v("i0"), v("j0")], f32c(0.0))),
        nest(
            &[("k", 24, Serial), ("i1", 4, Unroll), ("j1", 4, Vectorize)],
            update("acc", Combiner::Sum, false, acc, vec![v("i1"), v("j1")], product),
        ),
        nest(
            &[("i", 4, Unroll), ("j", 4, Vectorize)],
            store("c", g.c, vec![row, col], Expr::load(acc, vec![v("i"), v("j")])),
        ),
    ]);
    kernel(&mut g.f, nest(&[("gx", 2, Group(0)), ("ty", 8, Local(1)), ("tx", 8, Local(0))], body));
    let wgsl = g.check();
    assert!(wgsl.contains("fma(") && wgsl.contains("array<vec4<f32>>"), "{wgsl}");
    assert!(!wgsl.contains("workgroupBarrier"), "{wgsl}");
}

/// 16x16 tiles through workgroup memory; barriers are derived.
#[test]
fn shared_tiles() {
    let mut g = gemm(32, 48, 40);
    let at = buffer(&mut g.f, "a_tile", DType::F32, &[16, 8], Scope::Shared);
    let bt = buffer(&mut g.f, "b_tile", DType::F32, &[8, 16], Scope::Shared);
    let acc = buffer(&mut g.f, "acc", DType::F32, &[4], Scope::Register);
    let row = |i: &str| v("gy") * 16 + v(i);
    let k = |i: &str| v("ko") * 8 + v(i);
    let copy_a = nest(
        &[("ar", 16, Local(1)), ("ac", 2, Local(0)), ("av", 4, Vectorize)],
        store(
            "a_tile",
            at,
            vec![v("ar"), v("ac") * 4 + v("av")],
            Expr::load(g.a, vec![row("ar"), v("ko") * 8 + v("ac") * 4 + v("av")]),
        ),
    );
    let copy_b = nest(
        &[("br", 8, Local(1)), ("bc", 4, Local(0)), ("bv", 4, Vectorize)],
        store(
            "b_tile",
            bt,
            vec![v("br"), v("bc") * 4 + v("bv")],
            Expr::load(g.b, vec![k("br"), v("gx") * 16 + v("bc") * 4 + v("bv")]),
        ),
    );
    let product = Expr::load(at, vec![v("ty"), v("ki")]) * Expr::load(bt, vec![v("ki"), v("tx") * 4 + v("j1")]);
    let multiply = nest(
        &[("ki", 8, Unroll), ("j1", 4, Vectorize)],
        update("acc", Combiner::Sum, false, acc, vec![v("j1")], product),
    );
    let body = Stmt::Seq(vec![
        repeat("j0", 4, Vectorize, store("zero", acc, vec![v("j0")], f32c(0.0))),
        repeat("ko", 5, Serial, Stmt::Seq(vec![copy_a, copy_b, multiply])),
        repeat(
            "j",
            4,
            Vectorize,
            store("c", g.c, vec![row("ty"), v("gx") * 16 + v("tx") * 4 + v("j")], Expr::load(acc, vec![v("j")])),
        ),
    ]);
    let loops = [("gx", 3, Group(0)), ("gy", 2, Group(1)), ("ty", 16, Local(1)), ("tx", 4, Local(0))];
    kernel(&mut g.f, nest(&loops, body));
    let wgsl = g.check();
    assert_eq!(wgsl.matches("workgroupBarrier").count(), 2, "{wgsl}");
    assert!(wgsl.contains("var<workgroup> a_tile: array<vec4<f32>, 32>"), "{wgsl}");
}

/// One subgroup a workgroup: a lane owns 4 columns; rows of `a` are loaded by lanes and spread by broadcast.
#[test]
fn subgroup_tiles() {
    let size = gpu().profile.fixed_subgroup().expect("this test needs subgroup operations of one size");
    let lanes = i64::from(size);
    let rows = 12;
    let mut g = gemm(2 * rows, 8 * lanes, 16);
    let at = buffer(&mut g.f, "a_lanes", DType::F32, &[16, 4], Scope::Subgroup { lane_dim: 0, size });
    let acc = buffer(&mut g.f, "acc", DType::F32, &[rows, 4], Scope::Register);
    let groups = (rows + lanes - 1) / lanes;
    let row = v("gy") * rows + (v("s") * lanes + v("t")).min(rows - 1);
    let copy = nest(
        &[("s", groups, Unroll), ("t", lanes, Local(0)), ("kv", 4, Vectorize)],
        store("a_lanes", at, vec![v("s") * lanes + v("t"), v("kv")], Expr::load(g.a, vec![row, v("ko") * 4 + v("kv")])),
    );
    let col = |j: &str| v("gx") * (4 * lanes) + v("lane") * 4 + v(j);
    let product = Expr::load(at, vec![v("r1"), v("k")]) * Expr::load(g.b, vec![v("ko") * 4 + v("k"), col("j1")]);
    let multiply = nest(
        &[("r1", rows, Unroll), ("k", 4, Unroll), ("j1", 4, Vectorize)],
        update("acc", Combiner::Sum, false, acc, vec![v("r1"), v("j1")], product),
    );
    let body = Stmt::Seq(vec![
        nest(&[("r0", rows, Unroll), ("j0", 4, Vectorize)], store("zero", acc, vec![v("r0"), v("j0")], f32c(0.0))),
        repeat("ko", 4, Serial, Stmt::Seq(vec![copy, multiply])),
        nest(
            &[("r", rows, Unroll), ("j", 4, Vectorize)],
            store("c", g.c, vec![v("gy") * rows + v("r"), col("j")], Expr::load(acc, vec![v("r"), v("j")])),
        ),
    ]);
    g.f.buffers[at].shape[0] = compiler::int::Int::new(groups * lanes);
    kernel(&mut g.f, nest(&[("gx", 2, Group(0)), ("gy", 2, Group(1)), ("lane", lanes, Local(0))], body));
    let wgsl = g.check();
    assert!(wgsl.contains("subgroupBroadcast(") && !wgsl.contains("subgroupShuffle"), "{wgsl}");
    assert_eq!(wgsl.matches("subgroupBroadcast(").count() as i64, rows * 4, "{wgsl}");
}

/// Reads of a lane that is known only at run time become shuffles.
#[test]
fn subgroup_shuffle() {
    let size = gpu().profile.fixed_subgroup().expect("this test needs subgroup operations of one size");
    let lanes = i64::from(size);
    let mut f = TensorFunction::new("reverse");
    let x = param(&mut f, "x", DType::F32, &[2 * lanes], Access::Read);
    let y = param(&mut f, "y", DType::F32, &[2 * lanes], Access::Write);
    let held = buffer(&mut f, "held", DType::F32, &[2 * lanes], Scope::Subgroup { lane_dim: 0, size });
    let own = |s: &str| v(s) * lanes + v("lane");
    let body = Stmt::Seq(vec![
        repeat("s", 2, Unroll, store("held", held, vec![own("s")], Expr::load(x, vec![own("s")]))),
        repeat(
            "u",
            2,
            Unroll,
            store("y", y, vec![own("u")], Expr::load(held, vec![(own("u") * -1) + (2 * lanes - 1)])),
        ),
    ]);
    kernel(&mut f, repeat("lane", lanes, Local(0), body));
    let data = random(2 * lanes as usize, 3);
    let got = run(&f, &gpu().profile, &[(x, &data)], y);
    let want: Vec<f32> = data.iter().rev().copied().collect();
    assert_close(&got, &want, 0.0);
}

/// 1024^3 as the software drivers like it (`b` packed by column tile), timed: run with `--ignored --nocapture`.
#[test]
#[ignore = "a measurement"]
fn subgroup_speed() {
    let size = gpu().profile.fixed_subgroup().expect("this test needs subgroup operations of one size");
    let lanes = i64::from(size);
    let rows = 32;
    let mut g = gemm(1024, 1024, 1024);
    g.f.buffers[g.b].shape = [1024 / (4 * lanes), 1024, 4 * lanes].map(compiler::int::Int::new).to_vec();
    let groups = (rows + lanes - 1) / lanes;
    let at = buffer(&mut g.f, "a_lanes", DType::F32, &[groups * lanes, 4], Scope::Subgroup { lane_dim: 0, size });
    let acc = buffer(&mut g.f, "acc", DType::F32, &[rows, 4], Scope::Register);
    let row = v("gy") * rows + (v("s") * lanes + v("t")).min(rows - 1);
    let copy = nest(
        &[("s", groups, Unroll), ("t", lanes, Local(0)), ("kv", 4, Vectorize)],
        store("a_lanes", at, vec![v("s") * lanes + v("t"), v("kv")], Expr::load(g.a, vec![row, v("ko") * 4 + v("kv")])),
    );
    let col = |j: &str| v("gx") * (4 * lanes) + v("lane") * 4 + v(j);
    let product = Expr::load(at, vec![v("r1"), v("k")])
        * Expr::load(g.b, vec![v("gx"), v("ko") * 4 + v("k"), v("lane") * 4 + v("j1")]);
    let multiply = nest(
        &[("r1", rows, Unroll), ("k", 4, Unroll), ("j1", 4, Vectorize)],
        update("acc", Combiner::Sum, false, acc, vec![v("r1"), v("j1")], product),
    );
    let body = Stmt::Seq(vec![
        nest(&[("r0", rows, Unroll), ("j0", 4, Vectorize)], store("zero", acc, vec![v("r0"), v("j0")], f32c(0.0))),
        repeat("ko", 256, Serial, Stmt::Seq(vec![copy, multiply])),
        nest(
            &[("r", rows, Unroll), ("j", 4, Vectorize)],
            store("c", g.c, vec![v("gy") * rows + v("r"), col("j")], Expr::load(acc, vec![v("r"), v("j")])),
        ),
    ]);
    kernel(
        &mut g.f,
        nest(&[("gx", 1024 / (4 * lanes), Group(0)), ("gy", 1024 / rows, Group(1)), ("lane", lanes, Local(0))], body),
    );
    let start = std::time::Instant::now();
    let k = emit_kernel(&g.f, "k".into(), &gpu().profile).expect("emits");
    println!("emitted in {:?}", start.elapsed());
    gpu().measure(&g.f, &k, 2.0 * 1024f64.powi(3));
}
