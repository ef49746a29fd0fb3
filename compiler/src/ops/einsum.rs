//! Einstein summation.

use super::unary::{Domain, check, math_dtype};
use super::{InferContext, Op, OpResult, Precision};
use crate::attr_struct;
use crate::fault::Fault;
use crate::graph::{TensorType, ValueId};
use crate::int::{Dim, Int};
use crate::ops::onnx::{ExportContext, ImportContext, OnnxAttr, OnnxImport};
use crate::te::ComputeContext;
use crate::tir::{Combiner, Expr};

attr_struct! {
    /// Sums of products of the operands' elements over the letters of `equation` that its result does not have.
    pub struct Einsum("einsum") {
        /// Such as `bij,bjk->bik`; `...` stands for leading dimensions that broadcast.
        pub equation: String = String::new(),
    }
}

/// A dimension's label: a letter, or the n-th from the right of those that `...` stands for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Label {
    Letter(char),
    Rest(usize),
}

struct Equation {
    operands: Vec<Vec<Label>>,
    result: Vec<Label>,
    /// Every label with its size, in order of first occurrence.
    sizes: Vec<(Label, Dim)>,
}
impl Equation {
    fn size(&self, label: Label) -> Dim {
        self.sizes.iter().find(|s| s.0 == label).map_or(Dim::new(1), |s| s.1.clone())
    }
    fn summed(&self) -> Vec<Label> {
        self.sizes.iter().map(|s| s.0).filter(|l| !self.result.contains(l)).collect()
    }
    /// Element of an operand for an assignment of the labels.
    fn index(&self, labels: &[Label], shape: &[Dim], at: &dyn Fn(Label) -> Int) -> Vec<Int> {
        let one = |(l, d): (&Label, &Dim)| if d.is(1) && !self.size(*l).is(1) { Int::new(0) } else { at(*l) };
        labels.iter().zip(shape).map(one).collect()
    }
}

/// Labels of one term of an equation; `rank` fixes what `...` stands for.
fn parse_term(term: &str, rank: Option<usize>, rest: usize) -> OpResult<Vec<Label>> {
    let letters = |s: &str| -> OpResult<Vec<Label>> {
        let letter = |c: char| {
            c.is_ascii_alphabetic().then_some(Label::Letter(c)).ok_or(Fault::from(format!("`{c}` is no letter")))
        };
        s.chars().map(letter).collect()
    };
    let Some((before, after)) = term.split_once("...") else { return letters(term) };
    let (before, after) = (letters(before)?, letters(after)?);
    let rest = match rank {
        Some(r) => {
            r.checked_sub(before.len() + after.len()).ok_or_else(|| format!("`{term}` does not fit rank {r}"))?
        }
        None => rest,
    };
    let middle = (0..rest).rev().map(Label::Rest);
    Ok(before.into_iter().chain(middle).chain(after).collect())
}

impl Einsum {
    fn parse(&self, shapes: &[Vec<Dim>]) -> OpResult<Equation> {
        let text: String = self.equation.chars().filter(|c| !c.is_whitespace()).collect();
        let (left, right) = match text.split_once("->") {
            Some((l, r)) => (l, Some(r)),
            None => (text.as_str(), None),
        };
        let terms: Vec<&str> = left.split(',').collect();
        if terms.len() != shapes.len() {
            return Err(format!("`{}` is about {} operands, got {}", self.equation, terms.len(), shapes.len()).into());
        }
        let mut sizes: Vec<(Label, Dim)> = Vec::new();
        let mut operands = Vec::new();
        for (term, shape) in terms.iter().zip(shapes) {
            let labels = parse_term(term, Some(shape.len()), 0)?;
            if labels.len() != shape.len() {
                return Err(format!("`{term}` does not fit shape {shape:?}").into());
            }
            for (l, d) in labels.iter().zip(shape) {
                match sizes.iter_mut().find(|s| s.0 == *l) {
                    None => sizes.push((*l, d.clone())),
                    Some(s) => {
                        let both = [std::slice::from_ref(&s.1), std::slice::from_ref(d)];
                        s.1 = super::broadcast::broadcast_dims(both[0], both[1])?.remove(0);
                    }
                }
            }
            operands.push(labels);
        }
        let rest = sizes.iter().filter(|s| matches!(s.0, Label::Rest(_))).count();
        let result = match right {
            Some(r) => parse_term(r, None, rest)?,
            None => implicit_result(&operands, rest),
        };
        if let Some(l) = result.iter().find(|l| !sizes.iter().any(|s| s.0 == **l)) {
            return Err(format!("{l:?} of the result is in no operand of `{}`", self.equation).into());
        }
        Ok(Equation { operands, result, sizes })
    }
}

/// Without `->` the result has `...` and then the letters that occur once, in alphabetical order.
fn implicit_result(operands: &[Vec<Label>], rest: usize) -> Vec<Label> {
    let letters: Vec<char> =
        operands.iter().flatten().filter_map(|l| if let Label::Letter(c) = l { Some(*c) } else { None }).collect();
    let mut once: Vec<char> =
        letters.iter().copied().filter(|c| letters.iter().filter(|d| *d == c).count() == 1).collect();
    once.sort_unstable();
    (0..rest).rev().map(Label::Rest).chain(once.into_iter().map(Label::Letter)).collect()
}

impl Op for Einsum {
    fn arity(&self) -> (usize, usize) {
        (1, usize::MAX)
    }
    fn infer(&self, cx: &InferContext<'_>) -> OpResult<Vec<TensorType>> {
        let types: Vec<&TensorType> = (0..cx.len()).map(|i| cx.require(i)).collect::<OpResult<_>>()?;
        let dtype = types[0].dtype;
        check(Domain::Number, dtype)?;
        if let Some(t) = types.iter().find(|t| t.dtype != dtype) {
            return Err(format!("operands are {dtype} and {}", t.dtype).into());
        }
        let equation = self.parse(&types.iter().map(|t| t.shape.clone()).collect::<Vec<_>>())?;
        Ok(vec![TensorType::new(dtype, equation.result.iter().map(|&l| equation.size(l)).collect())])
    }
    fn compute(&self, cx: &mut ComputeContext<'_>) -> OpResult<()> {
        let buffers = (0..cx.num_inputs()).map(|i| cx.require(i)).collect::<OpResult<Vec<_>>>()?;
        let shapes: Vec<Vec<Dim>> = buffers.iter().map(|&b| cx.shape(b)).collect();
        let equation = self.parse(&shapes)?;
        let ty = cx.output_type(0).clone();
        let (t, summed) = (math_dtype(ty.dtype), equation.summed());
        let product = |at: &dyn Fn(Label) -> Int| {
            let load = |n: usize| {
                let index = equation.index(&equation.operands[n], &shapes[n], at);
                Expr::load(buffers[n], index).cast(ty.dtype, t)
            };
            (1..buffers.len()).fold(load(0), |acc, n| acc * load(n))
        };
        let place = |labels: &[Label], l: Label| labels.iter().position(|x| *x == l);
        if summed.is_empty() {
            let out = cx.compute("", &ty.shape, ty.dtype, |i| {
                product(&|l| place(&equation.result, l).map_or(Int::new(0), |p| i[p].clone())).cast(t, ty.dtype)
            });
            cx.output(0, out);
            return Ok(());
        }
        let extents: Vec<Dim> = summed.iter().map(|&l| equation.size(l)).collect();
        let sum = cx.reduce("", &ty.shape, t, &extents, Combiner::Sum, |i, r| {
            product(&|l| match (place(&equation.result, l), place(&summed, l)) {
                (Some(p), _) => i[p].clone(),
                (None, Some(p)) => r[p].clone(),
                (None, None) => Int::new(0),
            })
        });
        let out = match t == ty.dtype {
            true => sum,
            false => cx.compute("narrow", &ty.shape, ty.dtype, |i| Expr::load(sum, i.to_vec()).cast(t, ty.dtype)),
        };
        cx.output(0, out);
        Ok(())
    }
    fn precision(&self) -> Precision {
        Precision::Always
    }
    fn macs(&self, inputs: &[Option<&TensorType>], _outputs: &[&TensorType]) -> u64 {
        let shapes: Option<Vec<Vec<Dim>>> = inputs.iter().map(|t| t.map(|t| t.shape.clone())).collect();
        let Some(Ok(equation)) = shapes.map(|s| self.parse(&s)) else { return 0 };
        let sizes: Option<Vec<i64>> = equation.sizes.iter().map(|s| s.1.as_const()).collect();
        sizes.map_or(0, |s| s.into_iter().product::<i64>() as u64)
    }
    fn export(&self, cx: &mut ExportContext<'_>) -> OpResult<()> {
        cx.simple("Einsum", vec![("equation", OnnxAttr::Str(self.equation.clone()))]);
        Ok(())
    }
}

/// ONNX importers.
pub const ONNX: &[OnnxImport] = &[OnnxImport { op_type: "Einsum", domain: "", since: 12, import: import_einsum }];

fn import_einsum(cx: &mut ImportContext<'_, '_>) -> OpResult<Vec<ValueId>> {
    let equation = cx.attrs.str("equation").ok_or("attribute `equation` is missing")?.to_string();
    let operands = (0..cx.inputs.len()).map(|i| cx.input(i)).collect::<Result<Vec<_>, _>>()?;
    Ok(vec![cx.add(Einsum { equation }, &operands)?])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::matmul::MatMul;
    use crate::ops::testing::{assert_close, random, run, transposed, try_run};

    #[test]
    fn products_sums_diagonals_and_broadcasting() {
        let (a, b) = (random(&[2, 3, 4], 1), random(&[2, 4, 5], 2));
        let of =
            |equation: &str, operands: &[&crate::tensor::Tensor]| run(Einsum { equation: equation.into() }, operands);
        let product = run(MatMul::default(), &[&a, &b]);
        assert_close(&of("bij,bjk->bik", &[&a, &b]), &product, 1e-6);
        assert_close(&of("...ij, ...jk", &[&a, &b]), &product, 1e-6);
        assert_close(&of("ijk->kij", &[&a]), &transposed(&a, &[2, 0, 1]), 0.0);
        let square = random(&[3, 3], 3);
        let v = square.to_f64_vec();
        assert_close(
            &of("ii->i", &[&square]),
            &crate::tensor::Tensor::from_f64(square.dtype(), vec![3], [v[0], v[4], v[8]]),
            0.0,
        );
        assert_eq!(of("ij->", &[&square]).shape(), [0usize; 0]);
        for (equation, n) in [("ij", 2), ("ij->ik", 1), ("i1", 1), ("ijk", 1), ("ab,bc", 1)] {
            assert!(try_run(Einsum { equation: equation.into() }, &vec![&square; n]).is_err(), "{equation}");
        }
    }
}
