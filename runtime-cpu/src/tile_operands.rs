//! A register tile as a value: its operands, how they are combined, and the steps on its sums.

/// How the operands of a tile are combined.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Kind {
    /// An element of each left row times the columns of the right operand.
    Product,
    /// The columns of each left row times those of the right operand.
    Lanes,
    /// The columns of each left row times one element of the right operand, the same for all rows.
    Scaled,
    /// The columns of each left row, added up; there is no right operand.
    Sum,
    /// Their maximum; NaN if one is.
    Max,
    /// Their minimum; NaN if one is.
    Min,
    /// As a product, with a right operand of f16.
    Halves,
    /// As `Lanes`, of i32.
    LaneWords,
    /// The same with a left operand of u8.
    LaneBytes,
    /// As a product, of integers: an element is a word, an i32.
    Words,
    /// A word is two i16.
    Pairs,
    /// A word is four bytes: of the left operand u8, of the right one i8.
    Bytes,
}

impl Kind {
    /// Sums of products of integers, which are i32 as bits.
    pub(crate) fn is_of_integers(self) -> bool {
        self.has_words() || matches!(self, Kind::LaneWords | Kind::LaneBytes)
    }
    /// Those of words of both operands. Rows have a pointer each.
    pub(crate) fn has_words(self) -> bool {
        matches!(self, Kind::Words | Kind::Pairs | Kind::Bytes)
    }
}

/// A step of an epilogue: `sum = sum op operand`.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    /// A number for all.
    Add(f32),
    Mul(f32),
    /// NaN stays NaN; the number is none.
    Max(f32),
    Min(f32),
    /// An element for each column.
    AddColumns(*const f32),
    MulColumns(*const f32),
    /// An element for each, rows so far apart.
    AddEach(*const f32, isize),
    MulEach(*const f32, isize),
    /// An element for each row, so far apart.
    AddRows(*const f32, isize),
    MulRows(*const f32, isize),
    /// Keeps the sums where the results go: there are registers for one of each alone.
    Keep,
    /// The sums that were kept last.
    AddKept,
    MulKept,
    /// A number that divides.
    Div(f32),
    /// The same with its reciprocal, where quotients are rounded to integers.
    DivBy(f32, f32),
    /// To the nearest integer, ties to even.
    Round,
    /// Integers, as bits: a number for all, and one for each column.
    AddInt(f32),
    AddIntColumns(*const f32),
    SubIntColumns(*const f32),
    /// From an i32.
    ToFloat,
    /// To an i32 between two numbers.
    ToInt(f32, f32),
}

/// A tile. Elements of integers are words of 32 bits, with any alignment. Whoever makes one has
/// proved that all that it names is in bounds.
pub(crate) struct Operands<'a> {
    pub kind: Kind,
    /// The first row of the left operand.
    pub left: *const f32,
    /// From one row of the left operand to the next.
    pub row_stride: isize,
    /// A pointer for each row, tap after tap, where rows lie unevenly; else none.
    pub table: &'a [*const f32],
    /// Rows of the table.
    pub table_rows: usize,
    /// From one element of a row to the next.
    pub left_stride: isize,
    /// From one column to the next, of the operand that has columns.
    pub lane_stride: usize,
    /// The first row of the right operand; anything where there is none.
    pub right: *const f32,
    /// From one row of the right operand to the next.
    pub right_stride: isize,
    /// Where the left and the right operand of each tap begin.
    pub taps: &'a [[isize; 2]],
    /// Elements of the reduction in each tap.
    pub depth: usize,
    /// The first column that is computed.
    pub first_column: usize,
    /// The end of the columns.
    pub columns: usize,
    /// What sums begin with; `None`: what lies at `out`.
    pub initial: Option<f32>,
    pub steps: &'a [Step],
    pub out: *mut f32,
    /// From one row of results to the next.
    pub out_stride: isize,
    /// Where results go that are bytes, and the distance of rows there; `out` has then what steps keep.
    pub bytes: Option<(*mut u8, isize)>,
}

impl Operands<'_> {
    /// A product of nothing, for all that is not named.
    pub(crate) const NONE: Operands<'static> = Operands {
        bytes: None,
        kind: Kind::Product,
        left: std::ptr::null(),
        row_stride: 0,
        table: &[],
        table_rows: 0,
        left_stride: 1,
        lane_stride: 1,
        right: std::ptr::null(),
        right_stride: 0,
        taps: &[],
        depth: 1,
        first_column: 0,
        columns: 0,
        initial: None,
        steps: &[],
        out: std::ptr::null_mut(),
        out_stride: 0,
    };
}
