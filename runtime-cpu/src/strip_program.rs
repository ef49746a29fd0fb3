//! The parts of a leaf that runs as strips; see `strips`.

use crate::along::Along;
use crate::index::{Condition, Extent, Index, Slot};
use tensor_ir::dtype::DType;
use tensor_ir::tir::{BinaryOp, Combiner, UnaryOp};

/// A leaf as strips.
#[derive(Clone, Debug)]
pub(crate) struct Strips {
    /// Loops around the lanes, outermost first.
    pub loops: Vec<Extent>,
    pub rows: Extent,
    pub columns: Extent,
    /// Some operand or the result lies next to itself along the rows, and not along the columns.
    pub transposes: bool,
    pub guards: Vec<Condition>,
    /// Where conditions on the rows, and on the columns, begin or end to hold.
    pub cuts: [Vec<Condition>; 2],
    pub choices: Vec<Vec<Condition>>,
    /// Places that are read; the last place is the one that is stored to.
    pub places: Vec<Place>,
    /// The steps for each set of choices that hold, by its bits; the bit above them: a reduction begins.
    pub codes: Vec<Code>,
    /// Registers of a strip.
    pub registers: usize,
    /// All lanes are combined into one element.
    pub fold: Option<(Combiner, DType)>,
    /// The lanes of each row are, into one of its own.
    pub by_row: bool,
    /// Where lanes go besides, before they are combined: the next leaf reads them there.
    pub keeps: Option<usize>,
    /// Loops of a reduction that begins where all of them are at 0.
    pub begins: Option<Vec<Slot>>,
}

/// A place in a buffer, with what it has more along rows and columns.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Place {
    pub buffer: usize,
    pub index: Index,
    pub along: Along,
}

impl Place {
    /// A place with strides along both.
    pub(crate) fn of(buffer: usize, index: &Index, lanes: [Slot; 2]) -> Option<Place> {
        let strides = [index.stride(lanes[0])?, index.stride(lanes[1])?];
        Some(Place { buffer, index: index.clone(), along: Along::Even(strides) })
    }
    /// Any place that is known before the kernel runs but for where its lanes begin.
    pub(crate) fn any(buffer: usize, index: &Index, lanes: [Extent; 2]) -> Option<Place> {
        let (index, along) = Along::of(index, lanes)?;
        Some(Place { buffer, index, along })
    }
}

/// A value that all lanes of a part share.
#[derive(Clone, Debug)]
pub(crate) enum Uniform {
    Number(f32),
    Load(usize),
    Index(Index),
    /// An integer of at most 32 bits; registers and uniforms have it as the bits of a number.
    Int(i32),
    IntLoad(usize),
    IntIndex(Index),
    Unary(UnaryOp, usize),
    Binary(BinaryOp, [usize; 2]),
    /// The third where the first two compare so, else the fourth.
    Choose(BinaryOp, [usize; 4]),
}

/// An operand of a step.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Operand {
    Uniform(usize),
    /// Lanes at a place, by its number.
    Place(usize),
    Register(usize),
}

/// A step of a chain: an operation on a lane and an operand.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Link<T> {
    /// From an integer.
    ToFloat,
    Add(T),
    Sub(T),
    /// The operand less the lane.
    SubFrom(T),
    Mul(T),
    Div(T),
    /// By a number, with its reciprocal, where quotients are rounded to integers.
    DivBy(f32, f32),
    /// The operand divided by the lane.
    DivFrom(T),
    Max(T),
    Min(T),
    Neg,
    Abs,
    Round,
    Exp,
    /// `(c0 * x + c1) * x + ...`, by the numbers: the first uniform, and how many there are.
    Polynomial(usize, usize),
    /// To an integer between these.
    ToInt(f32, f32),
}

impl<T: Copy> Link<T> {
    /// The same with another operand.
    pub(crate) fn map<U>(self, f: impl FnOnce(T) -> U) -> Link<U> {
        match self {
            Link::ToFloat => Link::ToFloat,
            Link::Add(x) => Link::Add(f(x)),
            Link::Sub(x) => Link::Sub(f(x)),
            Link::SubFrom(x) => Link::SubFrom(f(x)),
            Link::Mul(x) => Link::Mul(f(x)),
            Link::Div(x) => Link::Div(f(x)),
            Link::DivBy(x, reciprocal) => Link::DivBy(x, reciprocal),
            Link::DivFrom(x) => Link::DivFrom(f(x)),
            Link::Max(x) => Link::Max(f(x)),
            Link::Min(x) => Link::Min(f(x)),
            Link::Neg => Link::Neg,
            Link::Abs => Link::Abs,
            Link::Round => Link::Round,
            Link::Exp => Link::Exp,
            Link::Polynomial(first, count) => Link::Polynomial(first, count),
            Link::ToInt(low, high) => Link::ToInt(low, high),
        }
    }
    /// Its operand.
    pub(crate) fn operand(self) -> Option<T> {
        let mut found = None;
        self.map(|x| found = Some(x));
        found
    }
}

/// The work of a step.
#[derive(Clone, Debug)]
pub(crate) enum Work {
    Unary(UnaryOp, Operand),
    Binary(BinaryOp, [Operand; 2]),
    /// `(c0 * x + c1) * x + ...`.
    Polynomial(Operand, Vec<f32>),
    Choose(BinaryOp, [Operand; 4]),
    /// Steps on the same lanes, one after another.
    Chain(Operand, Vec<Link<Operand>>),
    /// The value of an index, and how it grows.
    Ramp(Index, Along),
    Ints(IntWork),
}

/// The work of a step on integers of at most 32 bits, or as such.
#[derive(Clone, Debug)]
pub(crate) enum IntWork {
    Unary(UnaryOp, DType, Operand),
    Binary(BinaryOp, DType, [Operand; 2]),
    /// Of two floats.
    Compare(BinaryOp, [Operand; 2]),
    /// Of a float.
    Test(UnaryOp, Operand),
    /// The third where the first two compare so, else the fourth; these are lanes of any type.
    Choose(BinaryOp, [Operand; 4]),
    ToFloat(Operand),
    /// Of a float.
    ToInt(DType, Operand),
    Wrap(DType, Operand),
    Ramp(Index, Along),
}

impl Work {
    pub(crate) fn operands(&self) -> Vec<Operand> {
        match self {
            Work::Unary(_, a) | Work::Polynomial(a, _) => vec![*a],
            Work::Chain(a, links) => [*a].into_iter().chain(links.iter().filter_map(|l| l.operand())).collect(),
            Work::Binary(_, all) => all.to_vec(),
            Work::Choose(_, all) => all.to_vec(),
            Work::Ramp(..) => vec![],
            Work::Ints(work) => match work {
                IntWork::Unary(_, _, a) | IntWork::Test(_, a) | IntWork::ToFloat(a) => vec![*a],
                IntWork::ToInt(_, a) | IntWork::Wrap(_, a) => vec![*a],
                IntWork::Binary(_, _, all) | IntWork::Compare(_, all) => all.to_vec(),
                IntWork::Choose(_, all) => all.to_vec(),
                IntWork::Ramp(..) => vec![],
            },
        }
    }
}

/// A step, and the register of its result.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub work: Work,
    pub to: usize,
}

/// The steps over a strip.
#[derive(Clone, Debug, Default)]
pub(crate) struct Code {
    pub uniforms: Vec<Uniform>,
    pub steps: Vec<Step>,
    pub result: Option<Operand>,
    /// Places that are read, by uniforms too.
    pub reads: Vec<usize>,
    /// Places that are operands of steps, or the result.
    pub strips: Vec<usize>,
    /// Those of them whose elements may be bytes as they lie.
    pub bytes: Vec<usize>,
    pub registers: usize,
    /// The result is an integer.
    pub is_int: bool,
}
