//! Logical element types. How they are stored in a buffer is [`crate::tir::Encoding`]'s business.

use std::fmt;
use std::str::FromStr;

/// A logical element type.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, serde::Serialize, serde::Deserialize)]
#[allow(missing_docs)]
pub enum DType {
    Bool,
    U8,
    I8,
    U16,
    I16,
    U32,
    I32,
    U64,
    I64,
    F16,
    BF16,
    F32,
    F64,
}

/// A number as the integer type of a dtype (bool: whether it is not 0), as i64: integers wrap, floats saturate.
macro_rules! as_integer {
    ($x:expr, $dtype:expr) => {
        match $dtype {
            DType::Bool => ($x != Default::default()) as i64,
            DType::U8 => $x as u8 as i64,
            DType::I8 => $x as i8 as i64,
            DType::U16 => $x as u16 as i64,
            DType::I16 => $x as i16 as i64,
            DType::U32 => $x as u32 as i64,
            DType::I32 => $x as i32 as i64,
            DType::U64 => $x as u64 as i64,
            _ => $x as i64,
        }
    };
}

impl DType {
    /// Every type, in declaration order.
    pub const ALL: [DType; 13] = [
        DType::Bool,
        DType::U8,
        DType::I8,
        DType::U16,
        DType::I16,
        DType::U32,
        DType::I32,
        DType::U64,
        DType::I64,
        DType::F16,
        DType::BF16,
        DType::F32,
        DType::F64,
    ];
    /// Bytes of one element in host memory.
    pub fn size(self) -> usize {
        match self {
            DType::Bool | DType::U8 | DType::I8 => 1,
            DType::U16 | DType::I16 | DType::F16 | DType::BF16 => 2,
            DType::U32 | DType::I32 | DType::F32 => 4,
            DType::U64 | DType::I64 | DType::F64 => 8,
        }
    }
    /// `x` in the width of this integer type (0 or 1 of bool): it wraps.
    #[inline(always)]
    pub fn wrap(self, x: i64) -> i64 {
        as_integer!(x, self)
    }
    /// `x` truncated to this integer type: it saturates, and NaN gives 0.
    #[inline(always)]
    pub fn saturate(self, x: f64) -> i64 {
        as_integer!(x, self)
    }
    /// `x` rounded to this float type.
    #[inline(always)]
    pub fn round(self, x: f64) -> f64 {
        match self {
            DType::F16 => half::f16::from_f32(x as f32).to_f64(),
            DType::BF16 => half::bf16::from_f32(x as f32).to_f64(),
            DType::F32 => x as f32 as f64,
            _ => x,
        }
    }
    /// f16, bf16, f32 or f64.
    pub fn is_float(self) -> bool {
        matches!(self, DType::F16 | DType::BF16 | DType::F32 | DType::F64)
    }
    /// A signed or unsigned integer; not bool.
    pub fn is_int(self) -> bool {
        !self.is_float() && self != DType::Bool
    }
    /// A signed number.
    pub fn is_signed(self) -> bool {
        self.is_float() || matches!(self, DType::I8 | DType::I16 | DType::I32 | DType::I64)
    }
    /// The type that sums of this type are kept in: f32 for the narrow floats, else the type itself.
    pub fn accumulator(self) -> DType {
        match self {
            DType::F16 | DType::BF16 => DType::F32,
            other => other,
        }
    }
    /// The type of products of this type and of their sums: i32 for bytes, else the type itself.
    pub fn product(self) -> DType {
        match self {
            DType::I8 | DType::U8 => DType::I32,
            other => other,
        }
    }
    /// The lowest finite value of a number type, as a constant for an empty maximum; 0 for bool.
    pub fn lowest(self) -> f64 {
        match self {
            DType::F16 => -65504.0,
            DType::BF16 | DType::F32 => f32::MIN as f64,
            DType::F64 => f64::MIN,
            DType::I8 => i8::MIN as f64,
            DType::I16 => i16::MIN as f64,
            DType::I32 => i32::MIN as f64,
            DType::I64 => i64::MIN as f64,
            DType::Bool | DType::U8 | DType::U16 | DType::U32 | DType::U64 => 0.0,
        }
    }
    /// Name in `.weft` text: `f32`, `bool` ...
    pub fn name(self) -> &'static str {
        match self {
            DType::Bool => "bool",
            DType::U8 => "u8",
            DType::I8 => "i8",
            DType::U16 => "u16",
            DType::I16 => "i16",
            DType::U32 => "u32",
            DType::I32 => "i32",
            DType::U64 => "u64",
            DType::I64 => "i64",
            DType::F16 => "f16",
            DType::BF16 => "bf16",
            DType::F32 => "f32",
            DType::F64 => "f64",
        }
    }
}
impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
impl FromStr for DType {
    type Err = String;
    fn from_str(text: &str) -> Result<DType, String> {
        DType::ALL.into_iter().find(|t| t.name() == text).ok_or_else(|| format!("`{text}` is no element type"))
    }
}
