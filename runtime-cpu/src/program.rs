//! What a kernel is made of: loops around leaves, all sizes known.

use crate::index::{Clamp, Condition, Index, Slot};
use crate::memory::Form;
use tensor_ir::dtype::DType;
use tensor_ir::tir::{BinaryOp, Combiner, UnaryOp};

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
    Tile(Box<Tile>),
}

/// A loop of a leaf.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Extent {
    pub slot: Slot,
    pub count: i64,
}

/// A block with the loops around it that hold nothing else. The last one or two loops are computed many elements at a
/// time.
#[derive(Debug)]
pub(crate) struct Leaf {
    /// Loops, outermost first.
    pub loops: Vec<Extent>,
    pub rows: Extent,
    pub columns: Extent,
    pub guards: Vec<Condition>,
    pub store: Access,
    pub value: Value,
    pub reduce: Option<Reduction>,
    /// The value reads the buffer that is stored to.
    pub reads_own: bool,
}

/// How a leaf reduces.
#[derive(Debug)]
pub(crate) struct Reduction {
    pub combiner: Combiner,
    /// Type of the element.
    pub dtype: DType,
    /// Reduction loops that set the identity when all of them are at 0.
    pub init: Option<Vec<Slot>>,
    /// The lanes of a chunk are all combined into one element.
    pub across: bool,
    /// The sum, product or extremum of whole runs, where the loops that are taken at once come last in [`Leaf::loops`].
    pub run: Option<Run>,
}

/// A reduction of f32 whose lanes lie next to each other in memory: the taps of a window, or the rows of a matrix.
#[derive(Debug)]
pub(crate) struct Run {
    /// How many of the leaf's loops are reduced at once.
    pub taps: usize,
    /// The loop around them, along which places and conditions move evenly: what a tap reads is found once for all of
    /// it.
    pub walk: Option<Walk>,
    pub left: Tap,
    /// The other factor of a product.
    pub right: Option<Tap>,
}

/// A loop that a run walks along, and how far each iteration is from the one before.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Walk {
    pub along: Extent,
    pub store: i64,
    pub left: i64,
    pub right: i64,
}

/// An operand of a run.
#[derive(Debug)]
pub(crate) struct Tap {
    pub access: Access,
    /// Lanes are next to each other; else all read one element.
    pub moves: bool,
    /// Where these do not hold the operand is 0, and adds nothing; the lanes do not differ in them.
    pub conditions: Vec<Condition>,
}

/// A place in a buffer.
#[derive(Debug)]
pub(crate) struct Access {
    pub buffer: usize,
    pub index: Index,
    /// Strides along the rows and columns of a leaf; `None` if the place is computed lane by lane.
    pub strides: Option<[i64; 2]>,
}

/// A value of a leaf.
#[derive(Debug)]
pub(crate) enum Value {
    F(f32),
    D(f64),
    I(i64),
    Load(Access),
    Index(Index, DType),
    Unary(UnaryOp, DType, Box<Value>),
    Binary(BinaryOp, DType, Box<Value>, Box<Value>),
    All(Vec<Condition>),
    Select(Box<Value>, Box<Value>, Box<Value>),
    Cast(DType, DType, Box<Value>),
}

/// A nest of tensor loops: `acc[i, j] += left[i, k] * right[k, j]`, over the taps of the loops around it.
#[derive(Debug)]
pub(crate) struct Tile {
    /// The taps of the reduction loops around the tile, all done at once.
    pub taps: Vec<TapOffset>,
    /// The variables of those loops and of the tile's.
    pub inner: Vec<Slot>,
    pub rows: i64,
    pub columns: i64,
    /// Elements of the reduction in each tap.
    pub depth: i64,
    /// The sums begin at 0; else at what is there.
    pub fresh: bool,
    pub acc: Access,
    pub left: Access,
    /// Limits of the left operand's place. Where they change nothing, rows and taps lie evenly.
    pub clamps: Vec<Clamp>,
    /// The reduction loops around the tile, outermost first.
    pub tap_loops: Vec<Extent>,
    /// The variable of the rows.
    pub row: Slot,
    /// From one row of the left operand to the next; none where rows lie unevenly.
    pub row_stride: Option<i64>,
    /// From one element of a row to the next.
    pub left_stride: i64,
    /// Where these do not hold, a row of the left operand is 0; each with its step from row to row, if it moves evenly.
    pub conditions: Vec<(Condition, Option<i64>)>,
    pub right: Access,
    /// From one row of the right operand to the next.
    pub right_stride: i64,
}

/// Where a tap lies, from the first one.
#[derive(Debug, Default, Clone)]
pub(crate) struct TapOffset {
    pub left: i64,
    pub right: i64,
    /// What each condition's index has more.
    pub conditions: Vec<i64>,
}
