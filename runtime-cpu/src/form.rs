//! How elements are stored.

use tensor_ir::dtype::DType;
use tensor_ir::tir::{Encoding, Scope};

/// How the elements of a buffer are stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Form {
    F32,
    F64,
    F16,
    BF16,
    I8,
    U8,
    I32,
    U32,
    I64,
    U64,
}

impl Form {
    /// The form of a buffer. Halves are f32 in task memory, as they are in a shader's registers.
    pub(crate) fn of(dtype: DType, encoding: Encoding, scope: Scope) -> Form {
        let global = scope == Scope::Global;
        match (encoding, dtype) {
            (Encoding::ByteQuad, DType::I8) => Form::I8,
            (Encoding::ByteQuad, _) => Form::U8,
            (_, DType::F16) if global => Form::F16,
            (_, DType::BF16) if global => Form::BF16,
            (_, DType::F16 | DType::BF16 | DType::F32) => Form::F32,
            (_, DType::F64) => Form::F64,
            (Encoding::Narrow, _) => Form::I32,
            (_, DType::I64) => Form::I64,
            (_, DType::U64) => Form::U64,
            (_, DType::U32 | DType::U16 | DType::U8 | DType::Bool) => Form::U32,
            _ => Form::I32,
        }
    }
    /// Elements are f32, or a shorter float that is f32 in registers.
    pub(crate) fn is_narrow_float(self) -> bool {
        matches!(self, Form::F32 | Form::F16 | Form::BF16)
    }
    /// Bytes of an element.
    pub(crate) fn size(self) -> usize {
        match self {
            Form::I8 | Form::U8 => 1,
            Form::F16 | Form::BF16 => 2,
            Form::F32 | Form::I32 | Form::U32 => 4,
            Form::F64 | Form::I64 | Form::U64 => 8,
        }
    }
}
