//! Constants of a module.

use crate::bare;
use crate::dtype::DType;
use crate::graph::Constant;
use crate::name::Name;
use crate::tensor::{ConstData, Tensor};
use bytes::Bytes;
use half::{bf16, f16};
use tensor_ir::text::print_type;

/// One line: `const @name : f32[2] = [1.0, 2.0]`; a large one by the few words that stand for its data, or by
/// reference, without data.
pub fn print_constant(name: Name, c: &Constant, inline_elements: usize) -> String {
    let head = format!("const @{} : {}", bare::after_sigil(name.as_str()), print_type(&c.ty()));
    let elements = c.shape.iter().try_fold(1usize, |a, &d| a.checked_mul(d)).unwrap_or(usize::MAX);
    let value = match &c.data {
        ConstData::Lazy(source) => source.initial_text(),
        ConstData::Inline(bytes) if elements > inline_elements && is_uniform(bytes, c.dtype.size()) => {
            splat(c.dtype, bytes)
        }
        ConstData::Inline(_) => None,
    };
    let listed = || c.load().ok().filter(|_| elements <= inline_elements).map(|t| print_elements(&t));
    match value.or_else(listed) {
        Some(v) => format!("{head} = {v}\n"),
        None => format!("{head}\n"),
    }
}

/// The text of a constant whose elements are all the first one.
fn splat(dtype: DType, bytes: &Bytes) -> Option<String> {
    let one = Tensor::from_bytes(dtype, vec![], bytes.slice(..dtype.size())).ok()?;
    element_texts(&one).map(|t| format!("splat({})", t.concat()))
}

/// True when every element has the same bytes.
fn is_uniform(bytes: &[u8], size: usize) -> bool {
    bytes.len() >= size && bytes.chunks_exact(size).all(|c| c == &bytes[..size])
}

fn print_elements(t: &Tensor) -> String {
    match element_texts(t) {
        Some(list) => format!("[{}]", list.join(", ")),
        None => {
            let digits: String = t.bytes().iter().map(|b| format!("{b:02x}")).collect();
            format!("hex(\"{digits}\")")
        }
    }
}

/// Text of every element that reads back with the same bits; `None` where a number has none (payloads of NaN, bools
/// that are neither 0 nor 1).
fn element_texts(t: &Tensor) -> Option<Vec<String>> {
    macro_rules! ints {
        ($t:ty) => {
            Some(t.as_slice::<$t>()?.iter().map(|x| x.to_string()).collect())
        };
    }
    macro_rules! floats {
        ($t:ty, $wide:ty) => {
            t.as_slice::<$t>()?
                .iter()
                .map(|&x| {
                    let text = format!("{:?}", <$wide>::from(x)).replace("NaN", "nan");
                    (!x.is_nan() || x.to_bits() == <$t>::NAN.to_bits()).then_some(text)
                })
                .collect()
        };
    }
    match t.dtype() {
        DType::Bool => t
            .bytes()
            .iter()
            .map(|b| match b {
                0 => Some("false".to_string()),
                1 => Some("true".to_string()),
                _ => None,
            })
            .collect(),
        DType::U8 => ints!(u8),
        DType::I8 => ints!(i8),
        DType::U16 => ints!(u16),
        DType::I16 => ints!(i16),
        DType::U32 => ints!(u32),
        DType::I32 => ints!(i32),
        DType::U64 => ints!(u64),
        DType::I64 => ints!(i64),
        DType::F16 => floats!(f16, f32),
        DType::BF16 => floats!(bf16, f32),
        DType::F32 => floats!(f32, f32),
        DType::F64 => floats!(f64, f64),
    }
}
