//! Support for tests of instructions: small functions to schedule, instructions from text, and the comparison of
//! results. The interpreter refuses accesses out of bounds and races, and gives NaN for elements that were never
//! written.

mod composite;
mod functions;
mod proposals;

pub use functions::*;
pub use proposals::*;

use super::{InstrRef, apply};
use crate::dtype::DType;
use crate::int::Int;
use crate::tensor::Tensor;
use crate::tir::{Combiner, Cond, Expr, TensorFunction};

/// Windows behind a convolution: their size and steps along height and width, padding before and behind, the combiner.
pub struct PoolingSpec {
    pub kernel: [i64; 2],
    pub stride: [i64; 2],
    pub pad: i64,
    pub combiner: Combiner,
}

/// `conv` 3x3 without padding on `x[n, h, w, c_in]`, or with the channels first, then bias and rectifier, then windows
/// of that: blocks conv, t, y.
pub fn conv_windows(first: bool, [n, c_in, h, w, oc]: [i64; 5], p: &PoolingSpec) -> TensorFunction {
    let at = |n: Int, c: Int, y: Int, x: Int| if first { vec![n, c, y, x] } else { vec![n, y, x, c] };
    let part = |i: &[Int]| -> [Int; 4] {
        let (c, y, x) = if first { (1, 2, 3) } else { (3, 1, 2) };
        [&i[0], &i[c], &i[y], &i[x]].map(Clone::clone)
    };
    let shape = |n: i64, c: i64, y: i64, x: i64| if first { [n, c, y, x] } else { [n, y, x, c] };
    let (oh, ow) = (h - 2, w - 2);
    let size = |d: usize, o: i64| (o + 2 * p.pad - p.kernel[d]) / p.stride[d] + 1;
    function(&[("x", &shape(n, c_in, h, w)), ("w", &[3, 3, c_in, oc]), ("bias", &[oc])], |c, ids| {
        let (x, wt, bias) = (ids[0], ids[1], ids[2]);
        let wide = ints(&shape(n, oc, oh, ow));
        let acc = stage(c, "conv", |c| {
            c.reduce("", &wide, DType::F32, &ints(&[3, 3, c_in]), Combiner::Sum, |s, r| {
                let [b, o, y, x1] = part(s);
                let load = Expr::load(x, at(b, r[2].clone(), y + &r[0], x1 + &r[1]));
                load * Expr::load(wt, vec![r[0].clone(), r[1].clone(), r[2].clone(), o])
            })
        });
        let t = stage(c, "t", |c| {
            c.compute("", &wide, DType::F32, |i| {
                let sum = Expr::load(acc, i.to_vec()) + Expr::load(bias, vec![part(i)[1].clone()]);
                sum.max(Expr::constant(0.0, DType::F32))
            })
        });
        let out = ints(&shape(n, oc, size(0, oh), size(1, ow)));
        stage(c, "y", |c| {
            c.reduce("", &out, DType::F32, &ints(&p.kernel), p.combiner, |s, r| {
                let [b, o, y, x] = part(s);
                let (y, x) = (y * p.stride[0] + &r[0] - p.pad, x * p.stride[1] + &r[1] - p.pad);
                let conds = [(&y, oh), (&x, ow)].map(|(i, n)| [Cond::ge(i.clone(), 0), Cond::lt(i.clone(), n)]);
                let conds = if p.pad > 0 { conds.concat() } else { vec![] };
                Expr::guarded(conds, Expr::load(t, at(b, o, y, x)), Expr::constant(-1.0, DType::F32))
            })
        })
    })
}

/// Winograd's transform of data (`input`) or of products, in NHWC with tails: as the ops of the compiler compute them.
pub fn tiles(input: bool) -> TensorFunction {
    parsed(if input { include_str!("winograd_input.weft") } else { include_str!("winograd_output.weft") })
}

/// One instruction from its text.
pub fn instruction(text: &str) -> InstrRef {
    let list = crate::text::parse_instructions(text).unwrap_or_else(|e| panic!("{text}: {e}"));
    assert_eq!(list.len(), 1, "{text}");
    let printed = list[0].text();
    assert_eq!(crate::text::parse_instructions(&printed).expect("parses"), list, "{printed}");
    list[0].clone()
}

/// `f` with instructions applied; panics on a refusal.
pub fn scheduled(f: &TensorFunction, instructions: &[&str]) -> TensorFunction {
    let mut f = f.clone();
    for text in instructions {
        apply(&mut f, instruction(text)).unwrap_or_else(|e| panic!("{e}\n{}", super::print_loops(&f, &f.body, None)));
    }
    f
}

/// The error of one instruction.
pub fn refusal(f: &TensorFunction, text: &str) -> String {
    apply(&mut f.clone(), instruction(text)).expect_err("a refusal").to_string()
}

/// The elements of all results, by the interpreter.
pub fn evaluate(f: &TensorFunction) -> Vec<f64> {
    if let Err(errors) = crate::verify::verify_tensor_function(f) {
        panic!("{errors:?}\n{}", super::print_loops(f, &f.body, None));
    }
    let text = || super::print_loops(f, &f.body, None);
    let out = crate::interpreter::run_scheduled(f, &inputs_of(f)).unwrap_or_else(|e| panic!("{e}\n{}", text()));
    out.iter().flat_map(Tensor::to_f64_vec).collect()
}

/// Asserts that both functions compute the same on random inputs, up to rounding.
pub fn assert_same(a: &TensorFunction, b: &TensorFunction) {
    assert_close(&evaluate(a), &evaluate(b), b);
}

/// Asserts that these are the results of `b`, up to rounding.
fn assert_close(want: &[f64], got: &[f64], b: &TensorFunction) {
    assert_eq!(want.len(), got.len(), "number of elements");
    for (n, (x, y)) in want.iter().zip(got).enumerate() {
        let close = (x - y).abs() <= 2e-5 * (1.0 + x.abs());
        assert!(close, "element {n}: {x} became {y}\n{}", super::print_loops(b, &b.body, None));
    }
}

#[test]
fn every_instruction_has_a_header_a_filetest_and_a_row_of_documentation() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let read = |path: String| std::fs::read_to_string(root.join(&path)).unwrap_or_else(|e| panic!("{path}: {e}"));
    let docs = read("docs/schedule.md".into());
    for def in super::INSTRUCTIONS.iter() {
        let file = def.name.replace('-', "_");
        let source = read(format!("compiler/tensor-ir/src/schedule/{file}.rs"));
        let head: String = source.lines().take_while(|l| l.starts_with("//!")).collect();
        assert!(head.contains(&format!("`{}`:", def.name)), "the header of {file}.rs does not name the instruction");
        assert!(head.contains("Before -> after"), "the header of {file}.rs has no before -> after");
        assert!(read(format!("filetests/schedule/{file}.weft")).contains(def.name), "{file}.weft");
        assert!(docs.contains(&format!("| `{} {{", def.name)), "docs/schedule.md has no row for {}", def.name);
    }
}
