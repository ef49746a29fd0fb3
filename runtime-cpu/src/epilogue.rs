//! Epilogues: a leaf that computes its results of a tile's sums, element by element, becomes part of the tile.

use crate::form::Form;
use crate::index::{Index, Slot};
use crate::program::{Access, Epilogue, Extent, Leaf, Node, Operand, RegisterTile, Start, Step, StepOp, Value};
use tensor_ir::dtype::DType;
use tensor_ir::tir::{BinaryOp, UnaryOp};

/// What is known of a buffer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Known {
    pub form: Form,
    /// Blocks that access it, if it is the task's own memory.
    pub own_blocks: Option<usize>,
    /// The kernel stores to it.
    pub written: bool,
}

/// Adds a node to a list; a tile takes the leaf before it that sets its sums, and the leaf after it that reads them.
pub(crate) fn push(out: &mut Vec<Node>, node: Node, buffers: &[Known]) {
    match (out.last_mut(), node) {
        (Some(Node::Leaf(l)), Node::Tile(mut t)) if matches!(t.start, Start::Kept) && begins(l, &t).is_some() => {
            t.start = begins(l, &t).map_or(Start::Kept, Start::Number);
            t.blocks += 1;
            out.pop();
            out.push(Node::Tile(t));
        }
        (Some(Node::Tile(t)), Node::Leaf(l)) => match epilogue(&l, t, buffers) {
            Some(e) => t.epilogue = Some(e),
            None => out.push(Node::Leaf(l)),
        },
        (_, node) => out.push(node),
    }
}

/// The number that a leaf sets all sums of a tile to, if it does that and nothing else.
fn begins(l: &Leaf, t: &RegisterTile) -> Option<f32> {
    let slots: Vec<Slot> = loops(l).map(|e| e.slot).collect();
    let elements = loops(l).map(|e| e.count).product::<i64>();
    let plain = l.guards.is_empty() && l.reduce.is_none() && l.store.buffer == t.acc.buffer;
    let same = elements == t.rows * t.columns && l.store.index.without(&slots) == place(&t.acc.index, t);
    match l.value {
        Value::F(x) if plain && same => Some(x),
        Value::I(0) if plain && same && t.kind.is_of_integers() => Some(0.0),
        _ => None,
    }
}

fn loops(l: &Leaf) -> impl Iterator<Item = Extent> {
    l.loops.iter().chain([&l.rows, &l.columns]).copied().filter(|e| e.count > 1)
}

/// Where the sums of a tile begin.
fn place(acc: &Index, t: &RegisterTile) -> Index {
    acc.without(&[t.row, t.column])
}

/// The epilogue that a leaf is, if it goes over a tile's sums once, which nothing else reads.
fn epilogue(l: &Leaf, t: &RegisterTile, buffers: &[Known]) -> Option<Epilogue> {
    let whole = matches!(t.start, Start::Number(_))
        && t.epilogue.is_none()
        && l.reduce.is_none()
        && !l.reads_own
        && l.lets.len() <= 1;
    let only = buffers[t.acc.buffer].own_blocks == Some(t.blocks + 1);
    if !whole || !only {
        return None;
    }
    let all: Vec<Extent> = loops(l).collect();
    let none = Extent { slot: usize::MAX, count: 1 };
    let [rows, columns] = match all[..] {
        [] => [none, none],
        [e] if t.rows == 1 => [none, e],
        [e] if t.columns == 1 => [e, none],
        [rows, columns] => [rows, columns],
        _ => return None,
    };
    if rows.count != t.rows || columns.count != t.columns {
        return None;
    }
    let lanes = Lanes { t, rows, columns, buffers };
    let [store_row, 1] = lanes.strides(&l.store)? else { return None };
    if t.ends.len() != l.guards.len() {
        return None;
    }
    let mut steps = vec![];
    // What occurs twice is kept: `x * clip(x / 6 + 0.5, 0, 1)`.
    if let [kept] = &l.lets[..] {
        lanes.steps(kept, &mut steps)?;
        steps.push(Step { op: StepOp::Keep, operand: Operand::Kept });
    }
    lanes.result(&l.value, buffers[l.store.buffer].form, &mut steps)?;
    Some(Epilogue { steps, store: l.store.clone(), store_row })
}

/// The value inside of conversions between floats of at most 32 bits, which keep f32 until they are stored.
fn without_casts(v: &Value) -> &Value {
    let short = |t: &DType| t.is_float() && t.size() <= 4;
    match v {
        Value::Cast(from, to, a) if short(from) && short(to) => without_casts(a),
        v => v,
    }
}

/// The lanes of an epilogue.
struct Lanes<'a> {
    t: &'a RegisterTile,
    rows: Extent,
    columns: Extent,
    buffers: &'a [Known],
}

impl Lanes<'_> {
    /// Strides along rows and columns; those of one row or column alone are 0 and 1.
    fn strides(&self, a: &Access) -> Option<[i64; 2]> {
        let row = a.index.stride(self.rows.slot)?;
        let column = a.index.stride(self.columns.slot)?;
        Some([row, if self.columns.count == 1 { 1 } else { column }])
    }
    /// Adds the steps that lead from the sums to what is stored.
    fn result(&self, v: &Value, form: Form, steps: &mut Vec<Step>) -> Option<()> {
        let integers = self.t.kind.is_of_integers();
        match (form, v) {
            (Form::I32, v) if integers => self.integer_steps(v, steps),
            (Form::I8 | Form::U8, v) if integers => self.byte_steps(v, steps),
            (form, v) if form.is_narrow_float() => self.steps(v, steps),
            _ => None,
        }
    }
    /// Adds the steps that lead from sums of integers to a byte.
    fn byte_steps(&self, v: &Value, steps: &mut Vec<Step>) -> Option<()> {
        let Value::Cast(DType::F32, to @ (DType::I8 | DType::U8), a) = v else { return None };
        self.steps(a, steps)?;
        steps.push(Step { op: StepOp::ToByte(*to), operand: Operand::Kept });
        Some(())
    }
    /// Adds the steps that lead from sums of integers to a value of integers.
    fn integer_steps(&self, v: &Value, steps: &mut Vec<Step>) -> Option<()> {
        match v {
            Value::Load(a) if a.buffer == self.t.acc.buffer => (self.is_sum(a) && steps.is_empty()).then_some(()),
            Value::Binary(op @ (BinaryOp::Add | BinaryOp::Sub), DType::I32, a, b) => {
                let first = self.reads_sum(a);
                let (sum, other) = if first { (a, b) } else { (b, a) };
                let negated = *op == BinaryOp::Sub;
                if negated && !first {
                    return None;
                }
                let step = match &**other {
                    Value::I(x) => {
                        let x = if negated { x.wrapping_neg() } else { *x };
                        Step { op: StepOp::AddInt, operand: Operand::Number(f32::from_bits(x as u32)) }
                    }
                    Value::Load(a) if a.buffer != self.t.acc.buffer && self.buffers[a.buffer].form == Form::I32 => {
                        let [0, 1] = self.strides(a)? else { return None };
                        let op = if negated { StepOp::SubInt } else { StepOp::AddInt };
                        Step { op, operand: Operand::Elements(a.clone(), None) }
                    }
                    _ => return None,
                };
                self.integer_steps(sum, steps)?;
                steps.push(step);
                Some(())
            }
            _ => None,
        }
    }
    /// Adds the steps that lead from the sums to a value.
    fn steps(&self, v: &Value, steps: &mut Vec<Step>) -> Option<()> {
        let integers = self.t.kind.is_of_integers();
        match without_casts(v) {
            Value::Cast(DType::I32, DType::F32, a) if integers => {
                self.integer_steps(a, steps)?;
                steps.push(Step { op: StepOp::ToFloat, operand: Operand::Kept });
                Some(())
            }
            Value::Cast(DType::I8 | DType::U8, DType::F32, a) if integers => {
                self.byte_steps(a, steps)?;
                steps.push(Step { op: StepOp::ToFloat, operand: Operand::Kept });
                Some(())
            }
            Value::Unary(UnaryOp::Round, DType::F32, a) if integers => {
                self.steps(a, steps)?;
                steps.push(Step { op: StepOp::Round, operand: Operand::Kept });
                Some(())
            }
            Value::Load(a) if a.buffer == self.t.acc.buffer && !integers => {
                // What was kept is no longer the sum.
                (self.is_sum(a) && !steps.iter().any(|s| s.op == StepOp::Keep)).then_some(())
            }
            Value::Let(0) => steps.last().is_some_and(|s| s.op == StepOp::Keep).then_some(()),
            Value::Binary(op, dtype, a, b) if dtype.is_float() && dtype.size() <= 4 => {
                let first =
                    self.reads_sum(a) && !matches!((without_casts(a), self.reads_sum(b)), (Value::Let(_), true));
                let (sum, other) = if first { (a, b) } else { (b, a) };
                let operand = self.operand(other)?;
                let (op, operand) = match (op, operand) {
                    (BinaryOp::Add, o) => (StepOp::Add, o),
                    (BinaryOp::Mul, o) => (StepOp::Mul, o),
                    (BinaryOp::Sub, Operand::Number(x)) if first => (StepOp::Add, Operand::Number(-x)),
                    (BinaryOp::Max, o @ Operand::Number(_)) => (StepOp::Max, o),
                    (BinaryOp::Min, o @ Operand::Number(_)) => (StepOp::Min, o),
                    (BinaryOp::Div, o @ Operand::Number(_)) if first && integers => (StepOp::Div, o),
                    _ => return None,
                };
                self.steps(sum, steps)?;
                steps.push(Step { op, operand });
                Some(())
            }
            _ => None,
        }
    }
    fn reads_sum(&self, v: &Value) -> bool {
        match v {
            Value::Load(a) => a.buffer == self.t.acc.buffer,
            Value::Let(_) => true,
            Value::Binary(_, _, a, b) => self.reads_sum(a) || self.reads_sum(b),
            Value::Cast(_, _, a) | Value::Unary(_, _, a) => self.reads_sum(a),
            _ => false,
        }
    }
    fn is_sum(&self, a: &Access) -> bool {
        let strides = [self.rows, self.columns].map(|e| a.index.stride(e.slot));
        let row = self.t.rows == 1 || strides[0] == Some(self.t.acc_row);
        let column = self.t.columns == 1 || strides[1] == Some(1);
        let rest = a.index.without(&[self.rows.slot, self.columns.slot]) == place(&self.t.acc.index, self.t);
        row && column && rest
    }
    fn operand(&self, v: &Value) -> Option<Operand> {
        match without_casts(v) {
            Value::F(x) if !x.is_nan() => Some(Operand::Number(*x)),
            Value::Let(0) => Some(Operand::Kept),
            Value::Load(a) if a.buffer != self.t.acc.buffer && self.buffers[a.buffer].form.is_narrow_float() => {
                match self.strides(a)? {
                    [row, 1] => Some(Operand::Elements(a.clone(), (row != 0).then_some(row))),
                    [row, 0] if self.buffers[a.buffer].form == Form::F32 => Some(Operand::Rows(a.clone(), row)),
                    _ => None,
                }
            }
            _ => None,
        }
    }
}
