//! Constants that stand in a bundle as kernels read them, and their way back.
//!
//! A packer copies elements of its source to other places and fills gaps. Which element comes from where is found by
//! running it on the elements' own numbers, digit by digit, so that every element type holds them exactly.

use compiler::dtype::DType;
use compiler::plan::PlanBuffer;
use compiler::plan::storage::decode_tensor;
use compiler::tensor::Tensor;
use compiler::text::{parse_tensor_function, print_tensor_function};
use compiler::tir::{Encoding, TensorFunction};
use runtime_cpu::{Isa, pack_constant};
use serde::{Deserialize, Serialize};

/// The base of the digits: they fit all element types but bool.
const BASE: usize = 128;

/// How the data of a constant are packed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Packing {
    /// The packer, as text.
    packer: String,
    encoding: Option<Encoding>,
}

impl Packing {
    /// Packs `source` for a buffer. `None` if it cannot be had back from the packed data: then it is packed when a
    /// session opens.
    pub(super) fn of(source: &Tensor, packer: &TensorFunction, buffer: &PlanBuffer) -> Option<(Packing, Vec<u8>)> {
        let bytes = pack_constant(buffer, source.clone(), Some(packer), Isa::best()).ok()?;
        let packing = Packing { packer: print_tensor_function(packer), encoding: buffer.encoding };
        let back = packing.unpack(&bytes, source.dtype(), source.shape()).ok()?;
        (back.bytes() == source.bytes()).then_some((packing, bytes))
    }

    /// The source of packed data.
    ///
    /// # Errors
    /// Data of another packer.
    pub(super) fn unpack(&self, bytes: &[u8], dtype: DType, shape: &[usize]) -> Result<Tensor, String> {
        let packer = parse_tensor_function(&self.packer).map_err(|e| e.to_string())?;
        let result = packer.outputs().next().ok_or("the packer has no result")?;
        let elements = packer.buffers[result].numel().as_const().and_then(|n| usize::try_from(n).ok());
        let elements = elements.ok_or("the packer has open sizes")?;
        let packed_type = packer.buffers[result].dtype;
        if packed_type != dtype {
            return Err(format!("the packer makes {packed_type} of {dtype}"));
        }
        let encoding = self.encoding.unwrap_or(Encoding::Native);
        let read = |bytes: &[u8]| decode_tensor(bytes, dtype, &[elements], encoding).map_err(String::from);
        let packed = read(bytes)?;
        let buffer =
            PlanBuffer { content: compiler::plan::Content::Pool, bytes: 0, slice_bytes: 0, encoding: self.encoding };
        let count: usize = shape.iter().product();
        // For each packed element the number of its source, from 1; 0 is a gap.
        let mut origin = vec![0; elements];
        let mut scale = 1;
        while scale <= count {
            let digits = Tensor::from_f64(dtype, shape.to_vec(), (1..=count).map(|n| (n / scale % BASE) as f64));
            let packed_digits = read(&pack_constant(&buffer, digits, Some(&packer), Isa::best())?)?;
            origin.iter_mut().zip(packed_digits.to_f64_vec()).for_each(|(n, digit)| *n += digit as usize * scale);
            scale *= BASE;
        }
        let size = dtype.size();
        let mut out = vec![0; count * size];
        for (element, &n) in packed.bytes().chunks_exact(size).zip(&origin) {
            if let Some(to) = n.checked_sub(1).and_then(|n| out.get_mut(n * size..(n + 1) * size)) {
                to.copy_from_slice(element);
            }
        }
        Tensor::from_bytes(dtype, shape.to_vec(), out.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use compiler::plan::Content;

    fn packed(text: &str, source: &Tensor) -> Option<(Packing, Vec<u8>)> {
        let packer = parse_tensor_function(text).expect("a function");
        let encoding = Some(Encoding::Native);
        Packing::of(source, &packer, &PlanBuffer { content: Content::Pool, bytes: 0, slice_bytes: 0, encoding })
    }

    #[test]
    fn what_is_moved_and_padded_comes_back() {
        let text = "tensor @pack(%w: f32[200,90], out %p: f32[90,208]) {
  for i in 0..90 { for j in 0..208 { block p { %p[i, j] <- select(all(j < 200), %w[min(j, 199), i], 0.0) } } }
}
";
        let source = Tensor::from_f64(DType::F32, vec![200, 90], (0..18_000).map(|n| f64::from(n) * 0.37 - 9.0));
        let (packing, bytes) = packed(text, &source).expect("it comes back");
        assert_eq!(bytes.len(), 90 * 208 * 4);
        assert_eq!(packing.unpack(&bytes, DType::F32, &[200, 90]).expect("unpacks"), source);
        assert!(packing.unpack(&bytes[4..], DType::F32, &[200, 90]).is_err());
    }

    #[test]
    fn what_is_computed_or_left_out_does_not() {
        let source = Tensor::from_f64(DType::F32, vec![300], (0..300).map(f64::from));
        let computed = "tensor @pack(%w: f32[300], out %p: f32[300]) {
  for i in 0..300 { block p { %p[i] <- %w[i] * 0.5 } }
}
";
        let left_out = "tensor @pack(%w: f32[300], out %p: f32[299]) {
  for i in 0..299 { block p { %p[i] <- %w[i] } }
}
";
        assert!(packed(computed, &source).is_none() && packed(left_out, &source).is_none());
    }
}
