//! Constant weights of few bits, or with a scale for each block of them, that `DequantizeLinear` reads: they stay
//! packed ([`DequantizeBlocks`]).

use crate::dtype::DType;
use crate::fault::Fault;
use crate::graph::{Constant, ValueId};
use crate::int::{Int, const_dims};
use crate::ops::OpResult;
use crate::ops::binary::Add;
use crate::ops::broadcast::Expand;
use crate::ops::control::Const;
use crate::ops::dequantize_blocks::DequantizeBlocks;
use crate::ops::narrow::Narrow;
use crate::ops::onnx::ImportContext;
use crate::ops::permute::normalize_axis;
use crate::ops::transpose::Transpose;
use crate::tensor::{ConstData, DataSource};
use bytes::Bytes;
use std::sync::Arc;

/// How weights lie, and how they are packed: rows of whole blocks.
#[derive(Clone)]
struct Rows {
    /// Axes of the weights that tell rows apart, then those along a row.
    perm: Vec<usize>,
    /// How many of them are along a row.
    along: usize,
    shape: Vec<usize>,
    bits: usize,
    /// Integers of a block.
    block: usize,
    signed: bool,
}

impl Rows {
    /// The rows of weights whose scales are one number, one for each position along `axis`, or one for each `block`
    /// along it (0 where there are none).
    fn new(shape: Vec<usize>, axis: Option<usize>, block: usize, (bits, signed): (usize, bool)) -> Option<Rows> {
        let others = |axis: usize| (0..shape.len()).filter(move |a| *a != axis);
        // Products read matrices `[k, n]` along `k`.
        let first = axis.unwrap_or(if shape.len() == 2 { 1 } else { 0 });
        let (perm, along): (Vec<usize>, usize) = match block {
            // Channels of images come last: a word has neighbours of one tap.
            0 => (
                [first].into_iter().chain(others(first).skip(1)).chain(others(first).take(1)).collect(),
                shape.len() - 1,
            ),
            _ => (others(first).chain([first]).collect(), 1),
        };
        let mut rows = Rows { perm, along, shape, bits, block, signed };
        if block == 0 {
            rows.block = rows.size().next_multiple_of(32 / bits);
        }
        let whole = rows.bytes().is_some_and(|bytes| bytes > 0) && rows.along > 0;
        (whole && rows.shape.iter().all(|n| *n > 0)).then_some(rows)
    }
    /// The dimensions in the order of `perm`.
    fn moved(&self) -> Vec<usize> {
        self.perm.iter().map(|a| self.shape[*a]).collect()
    }
    /// Integers along a row.
    fn size(&self) -> usize {
        self.moved()[self.lead()..].iter().product()
    }
    /// How many axes tell rows apart.
    fn lead(&self) -> usize {
        self.perm.len() - self.along
    }
    /// Bytes of a row, if its blocks fill them.
    fn bytes(&self) -> Option<usize> {
        let bits = self.size().div_ceil(self.block).checked_mul(self.block)?.checked_mul(self.bits)?;
        bits.is_multiple_of(8).then_some(bits / 8)
    }
    /// Where the elements along some of the moved axes lie.
    fn places(&self, axes: &[usize]) -> Vec<usize> {
        let stride = |a: usize| self.shape[a + 1..].iter().product::<usize>();
        axes.iter().fold(vec![0], |all, a| {
            all.iter().flat_map(|at| (0..self.shape[*a]).map(move |i| at + i * stride(*a))).collect()
        })
    }
    /// Packs the integers, of which each has a byte; signed ones have half of their range added.
    fn pack(&self, data: &[u8]) -> Option<Vec<u8>> {
        let (rows, along) = self.perm.split_at(self.lead());
        let (rows, along) = (self.places(rows), self.places(along));
        let (each, mask) = (8 / self.bits, ((1u32 << self.bits) - 1) as u8);
        let flip = if self.signed { 1 << (self.bits - 1) } else { 0 };
        let bytes = self.bytes()?;
        let mut out = vec![0u8; bytes.checked_mul(rows.len())?];
        for (row, to) in rows.iter().zip(out.chunks_exact_mut(bytes)) {
            for (to, places) in to.iter_mut().zip(along.chunks(each)) {
                for (i, place) in places.iter().enumerate() {
                    *to |= ((data.get(row + place)? ^ flip) & mask) << (i * self.bits);
                }
            }
        }
        Some(out)
    }
}

/// Weights that are packed each time they are read.
struct Packed {
    source: Arc<dyn DataSource>,
    rows: Rows,
}
impl DataSource for Packed {
    fn read(&self) -> Result<Bytes, Fault> {
        let packed = self.rows.pack(&self.source.read()?);
        Ok(packed.ok_or("the data of weights are shorter than their shape")?.into())
    }
    fn identity(&self) -> Option<String> {
        let Rows { perm, shape, bits, block, .. } = &self.rows;
        self.source.identity().map(|of| format!("{shape:?} by {perm:?} in {bits} bits and blocks of {block}, of {of}"))
    }
}

/// The result of `DequantizeLinear` of constant weights of fewer than 8 bits, or in blocks; `None` for others.
///
/// # Errors
/// An error of inference.
pub(super) fn decoded(cx: &mut ImportContext<'_, '_>, stored: Option<Narrow>, to: DType) -> OpResult<Option<ValueId>> {
    let (ty, scale) = (cx.ty(0)?, cx.ty(1)?);
    let block = cx.attrs.int("block_size").unwrap_or(0);
    let kind = match (stored, ty.dtype) {
        (Some(n @ (Narrow::I2 | Narrow::I4 | Narrow::U2 | Narrow::U4)), _) => (n.bits(), n.carrier() == DType::I8),
        (None, DType::I8 | DType::U8) if block > 0 => (8, ty.dtype == DType::I8),
        _ => return Ok(None),
    };
    let same = cx.narrow.get(2).copied().flatten() == stored || cx.opt(2).is_none();
    let known = cx.b.function.def_op::<Const>(cx.input(0)?).map(|c| c.1.name);
    let known = known.and_then(|name| cx.b.module.constants.get(&name).map(|c| (name, c.data.clone())));
    let (Some((name, data)), Some(shape), true) = (known, const_dims(&ty.shape), same && scale.dtype == to) else {
        return Ok(None);
    };
    let one = scale.rank() == 0 || (scale.rank() == 1 && scale.shape[0].is(1) && block == 0);
    let axis = match one {
        true => None,
        false => Some(normalize_axis(cx.attrs.int("axis").unwrap_or(1), shape.len())?),
    };
    let by_block = block > 0 && scale.rank() == shape.len();
    let by_channel = block == 0 && scale.rank() == 1 && axis.is_some_and(|a| scale.shape[0] == ty.shape[a]);
    // Scales of other shapes are refused where they are spread.
    let usual = (one && block == 0 || by_block || by_channel) && matches!(to, DType::F32 | DType::F16);
    let of_block = usize::try_from(block).ok().filter(|_| usual && shape.len() > 1);
    let Some(rows) = of_block.and_then(|block| Rows::new(shape, axis, block, kind)) else { return Ok(None) };
    let blocks = rows.size().div_ceil(rows.block);
    let mut lead: Vec<Int> = rows.perm[..rows.lead()].iter().map(|a| ty.shape[*a].clone()).collect();
    let scale_shape: Option<Vec<usize>> = const_dims(&scale.shape);
    lead.push(Int::new(blocks as i64));
    if by_block && scale_shape.is_none_or(|s| rows.perm.iter().map(|a| Int::new(s[*a] as i64)).ne(lead.clone())) {
        return Ok(None);
    }
    cx.take_narrow(2);
    let packed = constant_of(cx, name.as_str(), data, &rows)?;
    let scale = cx.input(1)?;
    let scale = in_rows(cx, scale, &rows, by_block, &lead)?;
    let mut operands = vec![packed, scale];
    let half = if rows.signed { 1i64 << (rows.bits - 1) } else { 0 };
    if let Some(zero) = cx.opt(2) {
        let zero = cx.cast(zero, DType::I32)?;
        let half = cx.number(half as f64, DType::I32);
        let zero = cx.add(Add {}, &[zero, half])?;
        let zero = cx.cast(zero, DType::U8)?;
        operands.push(in_rows(cx, zero, &rows, by_block, &lead)?);
    } else if !rows.signed {
        let zero = cx.number(0.0, DType::U8);
        operands.push(in_rows(cx, zero, &rows, false, &lead)?);
    }
    let (bits, block, size) = (rows.bits as i64, rows.block as i64, rows.size() as i64);
    let wide = cx.add(DequantizeBlocks { bits, block, size, rounds: false }, &operands)?;
    let moved = rows.moved().iter().map(|n| Int::new(*n as i64)).collect();
    let wide = if rows.along == 1 { wide } else { cx.reshape(wide, moved)? };
    let mut back = vec![0; rows.perm.len()];
    rows.perm.iter().enumerate().for_each(|(i, a)| back[*a] = i);
    Ok(Some(if back.is_sorted() { wide } else { cx.add(Transpose { perm: back }, &[wide])? }))
}

/// The packed rows as a constant: of u32 where they are whole words.
fn constant_of(cx: &mut ImportContext<'_, '_>, name: &str, data: ConstData, rows: &Rows) -> OpResult<ValueId> {
    let bytes = rows.bytes().unwrap_or(0);
    let (dtype, last) = if bytes.is_multiple_of(4) { (DType::U32, bytes / 4) } else { (DType::U8, bytes) };
    let shape: Vec<usize> = rows.moved()[..rows.lead()].iter().copied().chain([last]).collect();
    let data = match data {
        ConstData::Inline(data) => {
            ConstData::Inline(rows.pack(&data).ok_or("the data of weights are shorter than their shape")?.into())
        }
        ConstData::Lazy(source) => ConstData::Lazy(Arc::new(Packed { source, rows: rows.clone() })),
    };
    let name = cx.b.module.fresh_name(&format!("{name}_words"));
    cx.b.module.constants.insert(name, Constant { dtype, shape, data });
    Ok(cx.b.const_ref(name))
}

/// Scales or zero points as one for each block of each row, `shape`.
fn in_rows(
    cx: &mut ImportContext<'_, '_>,
    v: ValueId,
    rows: &Rows,
    by_block: bool,
    shape: &[Int],
) -> OpResult<ValueId> {
    if by_block {
        let perm = rows.perm.clone();
        return if perm.is_sorted() { Ok(v) } else { cx.add(Transpose { perm }, &[v]) };
    }
    // One number, or one a row, each of which is one block.
    let ty = cx.type_of(v);
    let column: Vec<Int> = match ty.shape.iter().any(|n| !n.is(1)) {
        true => shape.to_vec(),
        false => vec![Int::new(1); shape.len()],
    };
    let v = cx.reshape(v, column.clone())?;
    if column == shape { Ok(v) } else { cx.add(Expand { shape: shape.to_vec(), ..Expand::default() }, &[v]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_packed_along_the_axis_of_blocks() {
        // [k, n] = [4, 2], blocks of 2 along k: row n has the integers of column n.
        let rows = Rows::new(vec![4, 2], Some(0), 2, (4, false)).expect("whole bytes");
        assert_eq!((rows.size(), rows.bytes()), (4, Some(2)));
        assert_eq!(rows.pack(&[1, 2, 3, 4, 5, 6, 7, 8]), Some(vec![0x31, 0x75, 0x42, 0x86]));
        assert_eq!(rows.pack(&[1, 2, 3]), None, "too short");
        // A scale for each of the first axis: rows are all that is behind it, filled up to whole words.
        let rows = Rows::new(vec![2, 1, 3], Some(0), 0, (4, true)).expect("rows");
        assert_eq!((rows.block, rows.bytes()), (8, Some(4)));
        let packed = [0x98, 0x07, 0, 0, 0x10, 0x02, 0, 0];
        assert_eq!(rows.pack(&[0, 1, 255, 248, 249, 250]), Some(packed.to_vec()));
    }

    #[test]
    fn rows_of_parts_of_bytes_are_not_packed() {
        assert!(Rows::new(vec![3, 5], Some(1), 3, (4, false)).is_some(), "two blocks of 12 bits");
        assert!(Rows::new(vec![3, 3], Some(1), 3, (4, false)).is_none(), "one of 12 bits");
    }
}
