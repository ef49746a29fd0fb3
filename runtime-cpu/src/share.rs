//! Values of leaves, put in a form that costs less: what occurs several times is computed once, a choice by a
//! comparison of floats computes both sides and picks, a polynomial is one operation.
//!
//! ```text
//! (s + b) * select((s + b) < 0, exp(s + b), 1)   ->   let x = s + b;  x * choose(x < 0, exp(x), 1)
//! (3 * x + 2) * x + 1                            ->   polynomial(x, [3, 2, 1])
//! ```

use crate::program::Value;
use tensor_ir::dtype::DType;
use tensor_ir::tir::BinaryOp::{self, Add, Mul};
use tensor_ir::tir::analysis::shared::{Part, Uses};

/// `v` with what it is computed of before: [`Value::Let`] `(i)` is the value of number `i`.
///
/// A branch of a select is computed only for the lanes that take it, since it may load what the others must not. What
/// loads nothing but what is loaded in any case is computed for all lanes.
pub(crate) fn share(v: Value) -> (Vec<Value>, Value) {
    let mut all = Arena { nodes: vec![] };
    let root = all.intern(v);
    let uses = Uses::of(&all.nodes, root);
    let is_kept = |i: &usize| uses.count[*i] > 1 && uses.safe[*i] && all.is_work(*i);
    let kept: Vec<usize> = (0..all.nodes.len()).filter(is_kept).collect();
    let tree = Tree { all: &all, safe: &uses.safe, kept: &kept };
    let lets = kept.iter().map(|&i| tree.whole(i)).collect();
    let value = if kept.contains(&root) { tree.at(root) } else { tree.whole(root) };
    (lets, value)
}

/// Its operands are named by their number: `Value::Let`.
impl Part for Value {
    fn operands(&self) -> Vec<usize> {
        self.operands().into_iter().filter_map(|v| if let Value::Let(i) = v { Some(*i) } else { None }).collect()
    }
    fn sure_operands(&self) -> usize {
        if matches!(self, Value::Select(..)) { 1 } else { usize::MAX }
    }
    fn is_load(&self) -> bool {
        // An element that is in its buffer in any case may be loaded for all lanes.
        matches!(self, Value::Load(a) if !a.certain)
    }
}

/// Each value once. Operands are named by their number: `Value::Let`.
struct Arena {
    nodes: Vec<Value>,
}

impl Arena {
    fn intern(&mut self, mut v: Value) -> usize {
        for operand in v.operands_mut() {
            let taken = std::mem::replace(operand, Value::I(0));
            *operand = Value::Let(self.intern(taken));
        }
        match self.nodes.iter().position(|n| same(n, &v)) {
            Some(i) => i,
            None => {
                self.nodes.push(v);
                self.nodes.len() - 1
            }
        }
    }
    /// False for what costs nothing: numbers, and loads, which read where the elements lie.
    fn is_work(&self, i: usize) -> bool {
        !matches!(self.nodes[i], Value::F(_) | Value::D(_) | Value::I(_) | Value::Load(_))
    }
}

/// Equal, also in the sign of zero.
fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::F(a), Value::F(b)) => a.to_bits() == b.to_bits(),
        (Value::D(a), Value::D(b)) => a.to_bits() == b.to_bits(),
        (a, b) => a == b,
    }
}

/// Values as trees again.
struct Tree<'a> {
    all: &'a Arena,
    safe: &'a [bool],
    kept: &'a [usize],
}

impl Tree<'_> {
    fn at(&self, i: usize) -> Value {
        match self.kept.binary_search(&i) {
            Ok(n) => Value::Let(n),
            Err(_) => self.whole(i),
        }
    }
    fn whole(&self, i: usize) -> Value {
        let mut v = self.all.nodes[i].clone();
        for operand in v.operands_mut() {
            if let Value::Let(o) = operand {
                *operand = self.at(*o);
            }
        }
        match v {
            Value::Select(c, a, b) if self.safe[i] => choice(*c, *a, *b),
            v => polynomial(v),
        }
    }
}

/// A select by a comparison, or by another bool of each lane, picks from both sides.
fn choice(c: Value, a: Value, b: Value) -> Value {
    match c {
        Value::Binary(op, dtype, x, y) if op.is_comparison() => Value::Choose(op, dtype, Box::new([*x, *y, a, b])),
        Value::All(_) => Value::Select(Box::new(c), Box::new(a), Box::new(b)),
        c => Value::Choose(BinaryOp::Ne, DType::Bool, Box::new([c, Value::I(0), a, b])),
    }
}

/// `p * x + c`, where `p` is a polynomial of the same `x`; see [`coefficients`].
fn polynomial(v: Value) -> Value {
    let Value::Binary(Add, _, a, b) = &v else { return v };
    let found = match (&**a, &**b) {
        (Value::Binary(Mul, _, p, x), Value::F(c)) | (Value::F(c), Value::Binary(Mul, _, p, x)) => {
            let either = [(p, x), (x, p)].into_iter().find_map(|(p, x)| Some((x, coefficients(p, x)?)));
            either.map(|(x, numbers)| Value::Polynomial(x.clone(), numbers.into_iter().chain([*c]).collect()))
        }
        _ => None,
    };
    found.unwrap_or(v)
}

/// The numbers of a polynomial of `x`, that of the highest power first: `2 * x + 1`, or one of a higher degree.
fn coefficients(p: &Value, x: &Value) -> Option<Vec<f32>> {
    if !matches!(x, Value::Let(_) | Value::Load(_)) {
        return None;
    }
    match p {
        Value::Polynomial(of, numbers) if **of == *x => Some(numbers.clone()),
        Value::Binary(Add, _, a, b) => match (&**a, &**b) {
            (Value::Binary(Mul, _, a, b), Value::F(c)) | (Value::F(c), Value::Binary(Mul, _, a, b)) => {
                match (&**a, &**b) {
                    (Value::F(first), of) | (of, Value::F(first)) if of == x => Some(vec![*first, *c]),
                    _ => None,
                }
            }
            _ => None,
        },
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::{Condition, Index};
    use crate::program::Access;
    use tensor_ir::int::CondOp;
    use tensor_ir::tir::{BinaryOp, UnaryOp};

    fn load(buffer: usize) -> Value {
        Value::Load(Access {
            buffer,
            index: Index::default(),
            strides: None,
            column_stride: None,
            inside: None,
            certain: false,
        })
    }
    fn binary(op: BinaryOp, a: Value, b: Value) -> Value {
        Value::Binary(op, DType::F32, Box::new(a), Box::new(b))
    }
    fn exp(a: Value) -> Value {
        Value::Unary(UnaryOp::Exp, DType::F32, Box::new(a))
    }

    #[test]
    fn what_occurs_twice_is_computed_once() {
        let x = || binary(Add, load(0), load(1));
        let condition = binary(BinaryOp::Lt, x(), Value::F(0.0));
        let select = Value::Select(Box::new(condition), Box::new(exp(x())), Box::new(Value::F(1.0)));
        let (lets, value) = share(binary(Mul, x(), select));
        assert_eq!(lets, [x()]);
        let sides = [Value::Let(0), Value::F(0.0), exp(Value::Let(0)), Value::F(1.0)];
        let choose = Value::Choose(BinaryOp::Lt, DType::F32, Box::new(sides));
        assert_eq!(value, binary(Mul, Value::Let(0), choose));
    }

    /// What only lanes load that take a branch is computed for these alone, however often.
    #[test]
    fn loads_under_conditions_stay_there() {
        let all = Value::All(vec![Condition { op: CondOp::Lt, index: Index::default() }]);
        let side = binary(Mul, exp(load(0)), exp(load(0)));
        let v = Value::Select(Box::new(all), Box::new(side), Box::new(Value::F(0.0)));
        assert_eq!(share(v.clone()), (vec![], v));
        // Beside a load for all lanes it is shared.
        let (lets, _) = share(binary(Add, exp(load(0)), binary(Mul, exp(load(0)), load(0))));
        assert_eq!(lets, [exp(load(0))]);
    }

    #[test]
    fn polynomials_are_one_operation_from_the_second_degree_on() {
        let times = |p: Value, c: f32| binary(Add, binary(Mul, p, load(0)), Value::F(c));
        let line = times(Value::F(3.0), 2.0);
        assert_eq!(share(line.clone()).1, line);
        let cubic = times(times(line, 1.0), -0.0);
        let (lets, value) = share(cubic);
        assert_eq!((lets, value), (vec![], Value::Polynomial(Box::new(load(0)), vec![3.0, 2.0, 1.0, -0.0])));
    }

    #[test]
    fn zeros_of_both_signs_are_two_numbers() {
        let v = binary(Add, exp(Value::F(0.0)), exp(Value::F(-0.0)));
        assert_eq!(share(v.clone()), (vec![], v));
    }
}
