//! Host tensors to storage form and back: what [`Encoding`] means in bytes.

use compiler::dtype::DType;
use compiler::tensor::Tensor;
use compiler::tir::Encoding;
use std::borrow::Cow;

/// The tensor's bytes in storage form, not padded.
///
/// # Errors
/// When a value does not fit the storage form (an i64 beyond i32).
pub fn encode_tensor(t: &Tensor, encoding: Encoding) -> Result<Cow<'_, [u8]>, String> {
    let words = |v: Vec<i32>| Cow::Owned(bytemuck::cast_slice::<i32, u8>(&v).to_vec());
    Ok(match (encoding, t.dtype()) {
        (Encoding::Native, DType::F32 | DType::I32 | DType::U32 | DType::F16)
        | (Encoding::HalfPair, DType::F16 | DType::BF16)
        | (Encoding::ByteQuad, DType::U8 | DType::I8 | DType::Bool) => Cow::Borrowed(&t.bytes()[..]),
        (Encoding::Native, DType::Bool) => words(t.bytes().iter().map(|&b| (b != 0) as i32).collect()),
        (Encoding::Narrow | Encoding::Native, _) if t.dtype().is_int() => {
            let values = t.to_i64_vec();
            let narrow: Result<Vec<i32>, String> = values
                .iter()
                .map(|&v| {
                    i32::try_from(v)
                        .map_err(|_| format!("the value {v} of a {} tensor does not fit 32 bits", t.dtype()))
                })
                .collect();
            words(narrow?)
        }
        (e, d) => return Err(format!("no storage form {e:?} for {d}")),
    })
}

/// A host tensor from bytes in storage form.
///
/// # Errors
/// When there are too few bytes.
pub fn decode_tensor(bytes: &[u8], dtype: DType, shape: &[usize], encoding: Encoding) -> Result<Tensor, String> {
    let n: usize = shape.iter().product();
    let need = match (encoding, dtype) {
        (Encoding::HalfPair, _) | (Encoding::Native, DType::F16) => n * 2,
        (Encoding::ByteQuad, _) => n,
        _ => n * 4,
    };
    let raw = bytes
        .get(..need)
        .ok_or_else(|| format!("a {dtype} tensor of {n} elements needs {need} bytes, got {}", bytes.len()))?;
    let word = |i: usize| i32::from_le_bytes([raw[4 * i], raw[4 * i + 1], raw[4 * i + 2], raw[4 * i + 3]]);
    match (encoding, dtype) {
        (Encoding::Native, DType::Bool) => {
            let v: Vec<u8> = (0..n).map(|i| (word(i) != 0) as u8).collect();
            Tensor::from_bytes(dtype, shape.to_vec(), v.into())
        }
        (Encoding::ByteQuad, DType::Bool) => {
            let v: Vec<u8> = raw.iter().map(|&b| (b != 0) as u8).collect();
            Tensor::from_bytes(dtype, shape.to_vec(), v.into())
        }
        (Encoding::Narrow, DType::I64) => {
            Ok(Tensor::from_vec(shape.to_vec(), (0..n).map(|i| word(i) as i64).collect::<Vec<_>>()))
        }
        (Encoding::Narrow, DType::U64) => {
            Ok(Tensor::from_vec(shape.to_vec(), (0..n).map(|i| word(i) as u32 as u64).collect::<Vec<_>>()))
        }
        (Encoding::Native, DType::F32 | DType::I32 | DType::U32 | DType::F16)
        | (Encoding::HalfPair, DType::F16 | DType::BF16)
        | (Encoding::ByteQuad, DType::U8 | DType::I8) => Tensor::from_bytes(dtype, shape.to_vec(), raw.to_vec().into()),
        (Encoding::Native, d) if d.is_int() => Ok(Tensor::from_f64(d, shape.to_vec(), (0..n).map(|i| word(i) as f64))),
        (e, d) => Err(format!("no storage form {e:?} for {d}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use half::{bf16, f16};

    #[test]
    fn every_storage_form_round_trips() {
        let f = Tensor::from_vec(vec![3], [1.0f32, -2.5, 65504.0].map(f16::from_f32).to_vec());
        let b = Tensor::from_f64(DType::Bool, vec![5], [1.0, 0.0, 1.0, 1.0, 0.0]);
        let i = Tensor::ints(&[-7, 1 << 20, 0]);
        let brain = Tensor::from_vec(vec![3], [1.0f32, -2.5, 1e30].map(bf16::from_f32).to_vec());
        let bytes = Tensor::from_vec(vec![5], vec![-3i8, 0, 127, -128, 5]);
        for (t, e) in [
            (&brain, Encoding::HalfPair),
            (&bytes, Encoding::ByteQuad),
            (&f, Encoding::HalfPair),
            (&f, Encoding::Native),
            (&b, Encoding::ByteQuad),
            (&b, Encoding::Native),
            (&i, Encoding::Narrow),
        ] {
            let mut bytes = encode_tensor(t, e).unwrap().into_owned();
            bytes.resize(e.storage_bytes(t.dtype(), t.len() as u64) as usize, 0);
            assert_eq!(&decode_tensor(&bytes, t.dtype(), t.shape(), e).unwrap(), t, "{e:?}");
        }
        assert!(encode_tensor(&Tensor::ints(&[1 << 40]), Encoding::Narrow).is_err());
    }
}
