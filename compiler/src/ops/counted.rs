//! Ops whose number of results depends on data (`non_zero`, `compress`, `unique`, `non_max_suppression`), expressed by
//! ops of known sizes.
//!
//! Each result is allocated at its upper bound; the first `count` entries are valid
//! ([`Op::counted`](super::Op::counted)). The pass `count-results`, which `compile::split_network` runs, applies this;
//! the host then reads only the count. Running sums of blocks find the positions of the entries that stay. Suppression
//! is a loop of rounds over all classes at once, for up to 256 boxes per class. `unique` compares each slice with each
//! other one, for up to 2,048 slices.

use super::OpRef;
use super::binary::{Add, Div, LessOrEqual, Min, Mod, Mul, Sub};
use super::cast::Cast;
use super::concat::Concat;
use super::gather::Gather;
use super::pad::Pad;
use super::reduce::{Reduce, ReduceKind};
use super::reshape::{Reshape, Unsqueeze};
use super::scan::CumSum;
use super::slice::Slice;
use crate::dtype::DType;
use crate::graph::{BuildError, FunctionBuilder, TensorType, ValueId};
use crate::int::{Int, const_dims};
use crate::tensor::Tensor;

/// The most elements that are counted on a device; more are for the host.
pub(super) const MOST_COUNTED: usize = 1 << 20;

/// The results of a counted op.
pub struct Counted {
    /// Each result is allocated at its upper bound; the first `count` entries along the axis are valid. Without an axis
    /// the whole result is valid.
    pub results: Vec<(ValueId, Option<usize>)>,
    /// The number of valid entries: `i64[1]`.
    pub count: ValueId,
}

/// An operand of a counted op: its value in the new function, and its constant value if it has one.
#[derive(Clone)]
pub struct CountedOperand {
    /// The value; `None` if the operand is absent.
    pub value: Option<ValueId>,
    /// The constant.
    pub constant: Option<Tensor>,
}

/// Builds the results of a counted op, with positions in i32.
pub struct Counting<'b, 'm> {
    /// The function.
    pub b: &'b mut FunctionBuilder<'m>,
}

type Built = Result<ValueId, BuildError>;

impl Counting<'_, '_> {
    /// A node.
    pub(super) fn add(&mut self, op: impl Into<OpRef>, operands: &[ValueId]) -> Built {
        self.b.add(op, operands)
    }
    /// A number.
    pub(super) fn number(&mut self, value: f64, dtype: DType) -> ValueId {
        self.b.constant("number", &Tensor::from_f64(dtype, vec![], [value]))
    }
    fn integer(&mut self, value: usize) -> ValueId {
        self.number(value as f64, DType::I32)
    }
    /// Type of a value.
    pub(super) fn ty(&self, v: ValueId) -> TensorType {
        self.b.ty(v).clone()
    }
    /// The sizes of a value; `None` if not known.
    pub(super) fn shape(&self, v: ValueId) -> Option<Vec<usize>> {
        const_dims(&self.b.ty(v).shape)
    }
    /// A value in another shape.
    pub(super) fn reshape(&mut self, v: ValueId, shape: &[usize]) -> Built {
        let shape = shape.iter().map(|&d| Int::from(d)).collect();
        self.add(Reshape::to(shape), &[v])
    }
    /// A value in another element type.
    pub(super) fn cast(&mut self, v: ValueId, to: DType) -> Built {
        if self.b.ty(v).dtype == to { Ok(v) } else { self.add(Cast::new(to), &[v]) }
    }
    /// `0, 1 ... n - 1`.
    pub(super) fn indices(&mut self, n: usize) -> ValueId {
        self.b.constant("indices", &Tensor::from_f64(DType::I32, vec![n], (0..n).map(|i| i as f64)))
    }
    /// The coordinates of a flat index within `shape`, one value for each dimension.
    pub(super) fn coordinates(&mut self, flat: ValueId, shape: &[usize]) -> Result<Vec<ValueId>, BuildError> {
        let mut out = vec![];
        for (d, &extent) in shape.iter().enumerate() {
            let stride = self.integer(shape[d + 1..].iter().product());
            let extent = self.integer(extent);
            let at = self.add(Div {}, &[flat, stride])?;
            out.push(self.add(Mod { fmod: false }, &[at, extent])?);
        }
        Ok(out)
    }
    /// Values of rank 1 side by side, along a new axis.
    pub(super) fn stack(&mut self, values: &[ValueId], axis: usize) -> Built {
        let axes = vec![axis as i64];
        let rows = values.iter().map(|&v| self.add(Unsqueeze { axes: axes.clone() }, &[v]));
        let rows = rows.collect::<Result<Vec<_>, _>>()?;
        self.add(Concat { axis: axis as i64 }, &rows)
    }

    /// The positions at which `flags` (`i32[n]`, 0 or 1) are 1, in order, as `i32[n]` (the rest has any valid index);
    /// and their number, `i64[1]`.
    ///
    /// The `j`-th place is the number of elements up to which no more than `j` flags are 1. Running sums of blocks and
    /// within each make that some `n * sqrt(n)` comparisons.
    pub(super) fn places(&mut self, flags: ValueId, n: usize) -> Result<(ValueId, ValueId), BuildError> {
        let block = n.isqrt().next_power_of_two().max(16);
        // At least two blocks: with one block there would be nothing to select, and no kernel computes that.
        let blocks = n.div_ceil(block).max(2);
        let room = Pad { pads: vec![Int::new(0), Int::from(blocks * block - n)], ..Pad::default() };
        let flags = self.add(room, &[flags])?;
        let flags = self.reshape(flags, &[blocks, block])?;
        let within = self.add(CumSum { axis: 1, ..CumSum::default() }, &[flags])?;
        let sums = self.add(Reduce { kind: ReduceKind::Sum, axes: vec![1], keepdims: false }, &[flags])?;
        let upto = self.add(CumSum { axis: 0, ..CumSum::default() }, &[sums])?;
        let before = self.add(Sub {}, &[upto, sums])?;
        let count = self.add(part(blocks - 1, blocks), &[upto])?;
        let count = self.cast(count, DType::I64)?;

        let wanted = self.indices(n);
        let last = self.integer(blocks - 1);
        let rank = self.add(Unsqueeze { axes: vec![1] }, &[wanted])?;
        let passed = self.no_more(upto, rank)?;
        let of = self.add(Min {}, &[passed, last])?;
        let left = self.add(Gather { axis: 0 }, &[before, of])?;
        let left = self.add(Sub {}, &[wanted, left])?;
        let left = self.add(Unsqueeze { axes: vec![1] }, &[left])?;
        let row = self.add(Gather { axis: 0 }, &[within, of])?;
        let inside = self.no_more(row, left)?;
        let (size, end) = (self.integer(block), self.integer(n - 1));
        let first = self.add(Mul {}, &[of, size])?;
        let place = self.add(Add {}, &[first, inside])?;
        Ok((self.add(Min {}, &[place, end])?, count))
    }
    /// For each row of `limits` (`[n, 1]`) how many elements of `sums` are no more.
    fn no_more(&mut self, sums: ValueId, limits: ValueId) -> Built {
        let fits = self.add(LessOrEqual {}, &[sums, limits])?;
        let fits = self.cast(fits, DType::I32)?;
        self.add(Reduce { kind: ReduceKind::Sum, axes: vec![1], keepdims: false }, &[fits])
    }
}

/// The elements from `start` to `end` of a list.
fn part(start: usize, end: usize) -> Slice {
    Slice { starts: vec![Int::from(start)], ends: vec![Int::from(end)], axes: vec![0], ..Slice::default() }
}
