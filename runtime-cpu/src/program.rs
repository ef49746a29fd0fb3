//! What a kernel is made of: loops around leaves, all sizes known.

use crate::decoding::Decoding;
use crate::form::Form;
pub(crate) use crate::index::Extent;
use crate::index::{Clamp, Condition, Index, Slot};
use crate::strip_program::Strips;
use crate::tile::Kind;
use tensor_ir::dtype::DType;
use tensor_ir::tir::{BinaryOp, Combiner, UnaryOp, Work as FunctionWork};

/// A kernel for known sizes.
#[derive(Debug)]
pub(crate) struct Program {
    /// The parallel loops over workgroups, outermost first: slots that share an axis, and its extent.
    pub groups: Vec<(Vec<Slot>, i64)>,
    /// The buffers of the function, by their number.
    pub buffers: Vec<Memory>,
    /// Slots of variables.
    pub slots: usize,
    /// What a task does.
    pub body: Vec<Node>,
    /// Buffers that are widened before, by number, and their elements.
    pub widened: Vec<(usize, usize)>,
}

/// A buffer of a program.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Memory {
    pub form: Form,
    /// Elements of task memory; 0 for what is bound or not used by the kernel.
    pub own: usize,
}

/// A step of a task.
#[derive(Debug)]
pub(crate) enum Node {
    Loop(Slot, i64, Vec<Node>),
    /// A loop over workgroups: runs once in each of them, and in none beyond its extent.
    Within(Slot, i64, Vec<Node>),
    Leaf(Box<Leaf>),
    Tile(Box<RegisterTile>),
}

/// A block with the loops around it that hold nothing else. The last one or two loops are computed many elements at a
/// time.
#[derive(Clone, Debug)]
pub(crate) struct Leaf {
    /// Loops, outermost first.
    pub loops: Vec<Extent>,
    pub rows: Extent,
    pub columns: Extent,
    /// Conditions of the value on the rows alone, and on the columns alone: between the places where one begins or ends
    /// to hold, no lane needs a mask.
    pub cuts: [Vec<Condition>; 2],
    pub guards: Vec<Condition>,
    pub store: Access,
    /// Values that are computed first, one after another: [`Value::Let`].
    pub lets: Vec<Value>,
    pub value: Value,
    pub reduce: Option<Reduction>,
    /// The value reads the buffer that is stored to.
    pub reads_own: bool,
    /// The leaf as strips, if it is one of floats at even places.
    pub strips: Option<Box<Strips>>,
    /// The leaf as one that decodes weights, if it does that alone.
    pub decoding: Option<Box<Decoding>>,
}

impl Leaf {
    /// Its loops of several iterations, outermost first.
    pub(crate) fn several(&self) -> Vec<Extent> {
        self.loops.iter().chain([&self.rows, &self.columns]).copied().filter(|e| e.count > 1).collect()
    }
}

/// How a leaf reduces.
#[derive(Clone, Debug)]
pub(crate) struct Reduction {
    pub combiner: Combiner,
    /// Type of the element.
    pub dtype: DType,
    /// Reduction loops that set the identity when all of them are at 0.
    pub init: Option<Vec<Slot>>,
    /// The lanes of a chunk are all combined into one element.
    pub across: bool,
}

/// A place in a buffer.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Access {
    pub buffer: usize,
    pub index: Index,
    /// Strides along the rows and columns of a leaf; `None` if the place is computed row by row, or lane by lane.
    pub strides: Option<[i64; 2]>,
    /// The stride along the columns of a leaf, if only its rows lie unevenly: `x[w / 2, c]`.
    pub column_stride: Option<i64>,
    /// The same place where limits change nothing, if it has strides there.
    pub inside: Option<Box<Inside>>,
    /// The place is in the buffer in every iteration of all loops.
    pub certain: bool,
}

/// A place without the limits that it is held between: `min(i, 196)` is `i` but in the last tile.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Inside {
    pub index: Index,
    pub strides: [i64; 2],
    pub clamps: Vec<Clamp>,
}

impl Access {
    pub(crate) fn new(buffer: usize, index: Index, lanes: [Slot; 2]) -> Access {
        let strides = |i: &Index| Some([i.stride(lanes[0])?, i.stride(lanes[1])?]);
        let along = strides(&index);
        let inside = || {
            let (plain, clamps) = index.without_clamps();
            Some(Box::new(Inside { strides: strides(&plain)?, index: plain, clamps }))
        };
        let column_stride = if along.is_none() { index.stride(lanes[1]) } else { None };
        Access {
            buffer,
            strides: along,
            column_stride,
            inside: if along.is_none() { inside() } else { None },
            index,
            certain: false,
        }
    }
}

/// A value of a leaf.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Value {
    F(f32),
    D(f64),
    I(i64),
    Load(Access),
    Index(Index, DType),
    Unary(UnaryOp, DType, Box<Value>),
    Binary(BinaryOp, DType, Box<Value>, Box<Value>),
    All(Vec<Condition>),
    /// The second or the third for the lanes that take it.
    Select(Box<Value>, Box<Value>, Box<Value>),
    Cast(DType, DType, Box<Value>),
    /// A value that was computed before, by its number in the leaf.
    Let(usize),
    /// The third where the first two compare so, else the fourth: both are computed.
    Choose(BinaryOp, DType, Box<[Value; 4]>),
    /// `(c0 * x + c1) * x + ...` in f32.
    Polynomial(Box<Value>, Vec<f32>),
}

impl Value {
    /// Adds the conditions that differ between the iterations of `of` alone, each once.
    pub(crate) fn conditions_on(&self, of: Slot, other: Slot, to: &mut Vec<Condition>) {
        if let Value::All(list) = self {
            for c in list {
                let alone = c.index.stride(of).is_some_and(|step| step != 0) && c.index.stride(other) == Some(0);
                if alone && !to.contains(c) {
                    to.push(c.clone());
                }
            }
        }
        self.operands().into_iter().for_each(|v| v.conditions_on(of, other, to));
    }
    /// True if it takes as long as an exponential.
    pub(crate) fn is_costly(&self) -> bool {
        let own = matches!(self, Value::Unary(op, ..) if op.work() == FunctionWork::Exponential);
        own || self.operands().into_iter().any(Value::is_costly)
    }
    /// The value with another variable in the place of one; `None` if that occurs otherwise than in places.
    pub(crate) fn with_variable(&self, from: Slot, to: Slot) -> Option<Value> {
        let mut out = self.clone();
        match &mut out {
            Value::Load(a) => a.index = a.index.with_variable(from, to)?,
            Value::Index(..) | Value::All(_) => return None,
            _ => {}
        }
        for operand in out.operands_mut() {
            *operand = operand.with_variable(from, to)?;
        }
        Some(out)
    }
    /// Puts `by` in the place of each part that is `what`; false if there is none.
    pub(crate) fn replace(&mut self, what: &Value, by: &Value) -> bool {
        if self.is_same(what) {
            *self = by.clone();
            return true;
        }
        self.operands_mut().into_iter().fold(false, |any, v| v.replace(what, by) | any)
    }
    /// Equal, whatever the lanes of the leaf are.
    fn is_same(&self, other: &Value) -> bool {
        let same = match (self, other) {
            (Value::Load(a), Value::Load(b)) => {
                return a.buffer == b.buffer && a.index.without(&[]) == b.index.without(&[]);
            }
            (Value::F(a), Value::F(b)) => return a.to_bits() == b.to_bits(),
            (Value::Unary(a, s, _), Value::Unary(b, t, _)) => (a, s) == (b, t),
            (Value::Binary(a, s, ..), Value::Binary(b, t, ..)) => (a, s) == (b, t),
            (Value::Cast(a, s, _), Value::Cast(b, t, _)) => (a, s) == (b, t),
            _ => false,
        };
        same && self.operands().into_iter().zip(other.operands()).all(|(a, b)| a.is_same(b))
    }
    /// True if loads that differ with the variable are all of this buffer.
    pub(crate) fn reads_alone(&self, buffer: usize, variable: Slot) -> bool {
        let own = match self {
            Value::Load(a) => a.buffer == buffer || !a.index.uses(variable),
            _ => true,
        };
        own && self.operands().into_iter().all(|v| v.reads_alone(buffer, variable))
    }
    pub(crate) fn operands(&self) -> Vec<&Value> {
        match self {
            Value::F(_) | Value::D(_) | Value::I(_) | Value::Load(_) | Value::Index(..) => vec![],
            Value::All(_) | Value::Let(_) => vec![],
            Value::Unary(_, _, a) | Value::Cast(_, _, a) | Value::Polynomial(a, _) => vec![a],
            Value::Binary(_, _, a, b) => vec![a, b],
            Value::Select(c, a, b) => vec![c, a, b],
            Value::Choose(_, _, all) => all.iter().collect(),
        }
    }
    pub(crate) fn operands_mut(&mut self) -> Vec<&mut Value> {
        match self {
            Value::F(_) | Value::D(_) | Value::I(_) | Value::Load(_) | Value::Index(..) => vec![],
            Value::All(_) | Value::Let(_) => vec![],
            Value::Unary(_, _, a) | Value::Cast(_, _, a) | Value::Polynomial(a, _) => vec![a],
            Value::Binary(_, _, a, b) => vec![a, b],
            Value::Select(c, a, b) => vec![c, a, b],
            Value::Choose(_, _, all) => all.iter_mut().collect(),
        }
    }
}

/// Rows x columns of sums in registers: `acc[i, j] += left[i, k] * right[k, j]`, over the taps of the loops around it.
/// A nest of tensor loops, or a reduction whose lanes lie next to each other (see [`Kind`]).
#[derive(Debug)]
pub(crate) struct RegisterTile {
    pub kind: Kind,
    /// Where the left and the right operand of each tap begin: the reduction loops around the tile, all done at once.
    pub taps: Vec<[isize; 2]>,
    /// The least and the greatest of these.
    pub reach: [(i64, i64); 2],
    pub rows: i64,
    pub columns: i64,
    /// Elements of the reduction in each tap.
    pub depth: i64,
    pub start: Start,
    pub acc: Access,
    /// From one row of sums to the next.
    pub acc_row: i64,
    pub left: Access,
    /// Limits of the left operand's place. Where they change nothing, rows and taps lie evenly.
    pub clamps: Vec<Clamp>,
    /// The reduction loops around the tile, outermost first.
    pub tap_loops: Vec<Extent>,
    /// The variable of the rows.
    pub row: Slot,
    /// The variable of the columns.
    pub column: Slot,
    /// The variable of the depth of a nest of tensor loops.
    pub inner: Slot,
    /// From one row of the left operand to the next; none where rows lie unevenly.
    pub row_stride: Option<i64>,
    /// From one element of a row to the next.
    pub left_stride: i64,
    /// From one column to the next, of the operand that has columns.
    pub lane_stride: i64,
    /// Where these do not hold, a row of the left operand adds nothing; see `padding`.
    pub conditions: Vec<RowCondition>,
    /// The same for columns of the operand whose lanes are adjacent.
    pub across: Vec<RowCondition>,
    /// What such a row is for an extremum, if that is not the number that changes nothing.
    pub padding: Option<f32>,
    /// Each of its elements, for a product of integers.
    pub integer_padding: i64,
    /// None for kinds without it.
    pub right: Option<Access>,
    /// The right operand is decoded, and in no buffer.
    pub decoding: Option<Box<Decoding>>,
    /// The right operand for the next row of results; 0 where all rows share one.
    pub right_row: i64,
    /// From one row of the right operand to the next.
    pub right_stride: i64,
    pub epilogue: Option<Epilogue>,
    /// Conditions that hold for the first rows, or for the first columns: nobody reads the others.
    pub ends: Vec<End>,
    /// Conditions that hold for the first columns: the others have places of their own, [`RegisterTile::held`].
    pub limits: Vec<End>,
    /// The places of both operands with all limits.
    pub held: [Option<Index>; 2],
    /// Blocks of the function that are part of this tile.
    pub blocks: usize,
}

/// A condition that holds for the first rows or columns of a tile.
#[derive(Clone, Debug)]
pub(crate) struct End {
    /// The condition in the first row or column.
    pub condition: Condition,
    /// By how much its index grows from one to the next.
    pub step: i64,
    pub of_columns: bool,
}

/// What the sums of a tile begin with.
#[derive(Clone, Debug)]
pub(crate) enum Start {
    /// What is there.
    Kept,
    /// A number.
    Number(f32),
    /// A number when all these variables are 0, else what is there.
    First(f32, Vec<Slot>),
}

/// A condition on the rows of a tile, or on its columns.
#[derive(Debug)]
pub(crate) struct RowCondition {
    pub condition: Condition,
    /// What its index has more in the next row or column, where that is the same everywhere.
    pub step: Option<i64>,
    /// What its index has more in each tap.
    pub taps: Vec<i64>,
    /// The least and the greatest of these.
    pub reach: (i64, i64),
}

/// What is computed of a tile's sums, and where that is stored.
#[derive(Debug)]
pub(crate) struct Epilogue {
    pub steps: Vec<Step>,
    pub store: Access,
    /// From one row of results to the next.
    pub store_row: i64,
}

/// A step of an epilogue, with numbers in place of elements that do not move.
#[derive(Debug)]
pub(crate) struct Step {
    pub op: StepOp,
    pub operand: Operand,
}

/// What a step does with a sum and its operand.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum StepOp {
    Add,
    Mul,
    /// Of a number that is not NaN.
    Max,
    /// Of a number that is not NaN.
    Min,
    /// Keeps the sum, which a later step multiplies with or adds.
    Keep,
    /// By a number.
    Div,
    /// To the nearest integer; there is no operand.
    Round,
    /// Of integers, also of a number's bits.
    AddInt,
    SubInt,
    /// From an integer; there is no operand.
    ToFloat,
    /// To a byte of this type; there is no operand.
    ToByte(DType),
}

/// The operand of a step.
#[derive(Debug)]
pub(crate) enum Operand {
    Number(f32),
    /// What was kept.
    Kept,
    /// An element for each column; and from one row to the next, if that is another one.
    Elements(Access, Option<i64>),
    /// An element for each row, so far apart.
    Rows(Access, i64),
}
