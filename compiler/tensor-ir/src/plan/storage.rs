//! Host tensors to storage form and back: what [`Encoding`] means in bytes.

use crate::dtype::DType;
use crate::fault::Fault;
use crate::plan::BufferView;
use crate::tensor::{Tensor, TensorMut, reserve};
use crate::tir::Encoding;
use std::borrow::Cow;

/// Elements that are converted at once.
const PORTION: usize = 1024;

/// The tensor's bytes in storage form, not padded.
///
/// # Errors
/// When a value does not fit the storage form (an i64 beyond i32), or there is no room.
pub fn encode_tensor(t: &Tensor, encoding: Encoding) -> Result<Cow<'_, [u8]>, Fault> {
    if is_stored_as_it_is(encoding, t.dtype()) {
        return Ok(Cow::Borrowed(&t.bytes()[..]));
    }
    let mut out = reserve(t.len().saturating_mul(4))?;
    encode_portions(t, encoding, &mut |part| out.extend_from_slice(part))?;
    Ok(Cow::Owned(out))
}

/// Calls `write` with the tensor's bytes in storage form, in order: all at once, or in portions if they are converted.
///
/// # Errors
/// As [`encode_tensor`].
pub fn encode_portions(t: &Tensor, encoding: Encoding, write: &mut dyn FnMut(&[u8])) -> Result<(), Fault> {
    let dtype = t.dtype();
    if is_stored_as_it_is(encoding, dtype) {
        write(t.bytes());
        return Ok(());
    }
    let in_words = match encoding {
        Encoding::Native => dtype == DType::Bool || dtype.is_int(),
        Encoding::Narrow => dtype.is_int(),
        _ => false,
    };
    if !in_words {
        return Err(format!("no storage form {encoding:?} for {dtype}").into());
    }
    let mut words = [0i32; PORTION];
    for part in t.bytes().chunks(PORTION * dtype.size()) {
        let elements = part.chunks_exact(dtype.size());
        let n = elements.len();
        for (word, element) in words.iter_mut().zip(elements) {
            let v = integer(dtype, element);
            *word = i32::try_from(v).map_err(|_| format!("the value {v} of a {dtype} tensor does not fit 32 bits"))?;
        }
        write(bytemuck::cast_slice(&words[..n]));
    }
    Ok(())
}

/// True if the bytes of a host tensor are those of the storage form.
pub fn is_stored_as_it_is(encoding: Encoding, dtype: DType) -> bool {
    matches!(
        (encoding, dtype),
        (Encoding::Native, DType::F32 | DType::I32 | DType::U32 | DType::F16 | DType::I64 | DType::U64 | DType::F64)
            | (Encoding::HalfPair, DType::F16 | DType::BF16)
            | (Encoding::ByteQuad, DType::U8 | DType::I8 | DType::Bool)
    )
}

/// The integer in `bytes`, little-endian; a bool is 0 or 1.
fn integer(dtype: DType, bytes: &[u8]) -> i64 {
    let signed = matches!(dtype, DType::I8 | DType::I16 | DType::I32 | DType::I64);
    let negative = signed && bytes.last().is_some_and(|b| b & 0x80 != 0);
    let mut all = [if negative { 0xff } else { 0 }; 8];
    all[..bytes.len()].copy_from_slice(bytes);
    match dtype {
        DType::Bool => i64::from(bytes != [0]),
        _ => i64::from_le_bytes(all),
    }
}

/// True when tensors of this type have this storage form.
pub(super) fn has_form(encoding: Encoding, dtype: DType) -> bool {
    is_stored_as_it_is(encoding, dtype)
        || matches!(encoding, Encoding::Native | Encoding::Narrow) && dtype.is_int()
        || (encoding, dtype) == (Encoding::Native, DType::Bool)
}

/// Bytes of `n` elements in storage form, not padded.
fn bytes_of(n: usize, dtype: DType, encoding: Encoding) -> usize {
    match (encoding, dtype) {
        (Encoding::HalfPair, _) | (Encoding::Native, DType::F16) => n * 2,
        (Encoding::ByteQuad, _) => n,
        (Encoding::Native, DType::I64 | DType::U64 | DType::F64) => n * 8,
        _ => n * 4,
    }
}

/// Bytes of a tensor of the plan in storage form, in whole words.
pub fn stored_bytes(view: &BufferView) -> u64 {
    bytes_of(view.shape.iter().product(), view.dtype, view.encoding).next_multiple_of(4) as u64
}

/// A host tensor from bytes in storage form.
///
/// # Errors
/// When there are too few bytes, or there is no room.
pub fn decode_tensor(bytes: &[u8], dtype: DType, shape: &[usize], encoding: Encoding) -> Result<Tensor, Fault> {
    if is_stored_as_it_is(encoding, dtype) && dtype != DType::Bool {
        let raw = raw(bytes, dtype, shape.iter().product(), encoding)?;
        let mut data = reserve(raw.len())?;
        data.extend_from_slice(raw);
        return Ok(Tensor::from_bytes(dtype, shape.to_vec(), data.into())?);
    }
    let mut out = TensorMut::zeros(dtype, shape.to_vec())?;
    decode_into(bytes, encoding, &mut out)?;
    Ok(out.freeze())
}

/// Writes a host tensor from bytes in storage form.
///
/// # Errors
/// When there are too few bytes.
pub fn decode_into(bytes: &[u8], encoding: Encoding, out: &mut TensorMut) -> Result<(), Fault> {
    let dtype = out.dtype();
    let raw = raw(bytes, dtype, out.shape().iter().product(), encoding)?;
    let to = out.bytes_mut();
    match (encoding, dtype) {
        (Encoding::ByteQuad, DType::Bool) => to.iter_mut().zip(raw).for_each(|(to, &b)| *to = u8::from(b != 0)),
        _ if is_stored_as_it_is(encoding, dtype) => to.copy_from_slice(raw),
        (Encoding::Native, DType::Bool) => {
            to.iter_mut().zip(raw.chunks_exact(4)).for_each(|(to, word)| *to = u8::from(word != [0; 4]));
        }
        (Encoding::Native | Encoding::Narrow, d) if d.is_int() => {
            let high = |word: &[u8]| d == DType::I64 && word[3] & 0x80 != 0;
            for (to, word) in to.chunks_exact_mut(d.size()).zip(raw.chunks_exact(4)) {
                let n = to.len().min(4);
                to[..n].copy_from_slice(&word[..n]);
                to[n..].fill(if high(word) { 0xff } else { 0 });
            }
        }
        (e, d) => return Err(format!("no storage form {e:?} for {d}").into()),
    }
    Ok(())
}

/// The bytes of `n` elements among those given.
fn raw(bytes: &[u8], dtype: DType, n: usize, encoding: Encoding) -> Result<&[u8], Fault> {
    let need = bytes_of(n, dtype, encoding);
    let enough = bytes.get(..need);
    enough.ok_or_else(|| format!("a {dtype} tensor of {n} elements needs {need} bytes, got {}", bytes.len()).into())
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
        let many = Tensor::from_vec(vec![3000], (0..3000).map(|i| (i - 1500) * 700_001).collect::<Vec<i64>>());
        let unsigned = Tensor::from_vec(vec![3], vec![0u64, 7, 1 << 30]);
        let short = Tensor::from_vec(vec![4], vec![-3i16, 0, i16::MAX, i16::MIN]);
        let words = Tensor::from_vec(vec![2], vec![u16::MAX, 3]);
        for (t, e) in [
            (&brain, Encoding::HalfPair),
            (&bytes, Encoding::ByteQuad),
            (&f, Encoding::HalfPair),
            (&f, Encoding::Native),
            (&b, Encoding::ByteQuad),
            (&b, Encoding::Native),
            (&i, Encoding::Narrow),
            (&many, Encoding::Narrow),
            (&unsigned, Encoding::Narrow),
            (&short, Encoding::Native),
            (&words, Encoding::Native),
            (&bytes, Encoding::Native),
        ] {
            let mut bytes = encode_tensor(t, e).unwrap().into_owned();
            bytes.resize(e.storage_bytes(t.dtype(), t.len() as u64) as usize, 0);
            assert_eq!(&decode_tensor(&bytes, t.dtype(), t.shape(), e).unwrap(), t, "{e:?}");
        }
        assert!(encode_tensor(&Tensor::ints(&[1 << 40]), Encoding::Narrow).is_err());
    }
}
