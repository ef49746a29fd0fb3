//! Typed views of host tensors, and aligned memory that can become a host tensor.

use crate::dtype::DType;
use crate::fault::Fault;
use crate::tensor::{Tensor, filled};
use bytes::Bytes;
use half::{bf16, f16};
use std::borrow::Cow;

/// The elements of a tensor in their own type; bools are bytes of 0 or 1.
pub(super) enum View<'a> {
    Bool(&'a [u8]),
    U8(Cow<'a, [u8]>),
    I8(Cow<'a, [i8]>),
    U16(Cow<'a, [u16]>),
    I16(Cow<'a, [i16]>),
    U32(Cow<'a, [u32]>),
    I32(Cow<'a, [i32]>),
    U64(Cow<'a, [u64]>),
    I64(Cow<'a, [i64]>),
    F16(Cow<'a, [f16]>),
    BF16(Cow<'a, [bf16]>),
    F32(Cow<'a, [f32]>),
    F64(Cow<'a, [f64]>),
}

impl<'a> View<'a> {
    pub(super) fn of(t: &'a Tensor) -> View<'a> {
        macro_rules! go {
            ($($t:ident)*) => {
                match t.dtype() {
                    DType::Bool => View::Bool(t.bytes()),
                    $(DType::$t => View::$t(t.as_slice().unwrap_or(Cow::Borrowed(&[]))),)*
                }
            };
        }
        go!(U8 I8 U16 I16 U32 I32 U64 I64 F16 BF16 F32 F64)
    }
    /// Element `i` as an index; `None` outside or for floats.
    pub(super) fn index(&self, i: i64) -> Option<i64> {
        let i = usize::try_from(i).ok()?;
        match self {
            View::Bool(v) => v.get(i).map(|&x| x as i64),
            View::U8(v) => v.get(i).map(|&x| x as i64),
            View::I8(v) => v.get(i).map(|&x| x as i64),
            View::U16(v) => v.get(i).map(|&x| x as i64),
            View::I16(v) => v.get(i).map(|&x| x as i64),
            View::U32(v) => v.get(i).map(|&x| x as i64),
            View::I32(v) => v.get(i).map(|&x| x as i64),
            View::U64(v) => v.get(i).map(|&x| x as i64),
            View::I64(v) => v.get(i).copied(),
            View::F16(_) | View::BF16(_) | View::F32(_) | View::F64(_) => None,
        }
    }
}

/// Zeroed memory with the alignment of every element type.
pub(super) struct Storage {
    words: Vec<u64>,
    bytes: usize,
}
impl Storage {
    pub(super) fn new(bytes: usize) -> Result<Storage, Fault> {
        Ok(Storage { words: filled(bytes.div_ceil(8), 0)?, bytes })
    }
    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut bytemuck::cast_slice_mut(&mut self.words)[..self.bytes]
    }
    pub(super) fn into_tensor(self, dtype: DType, shape: Vec<usize>) -> Result<Tensor, String> {
        Tensor::from_bytes(dtype, shape, Bytes::from_owner(self))
    }
}
impl AsRef<[u8]> for Storage {
    fn as_ref(&self) -> &[u8] {
        &bytemuck::cast_slice(&self.words)[..self.bytes]
    }
}
