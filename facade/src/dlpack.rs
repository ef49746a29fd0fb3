//! Tensors of [DLPack](https://dmlc.github.io/dlpack) in host memory, for interfaces in C.

use crate::{DType, Tensor, TensorMut};
use std::ffi::{CStr, c_char, c_void};
use std::ptr::null_mut;

/// DLPack's `kDLCPU`.
const HOST: i32 = 1;

/// Room for what a function says of its failure, in bytes.
const MESSAGE: usize = 512;

/// DLPack's `DLDevice`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct DLDevice {
    /// 1 is host memory.
    pub device_type: i32,
    /// Which of several devices.
    pub device_id: i32,
}

/// DLPack's `DLDataType`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct DLDataType {
    /// 0 signed, 1 unsigned, 2 float, 4 bfloat, 6 bool.
    pub code: u8,
    /// Bits of a lane.
    pub bits: u8,
    /// Always 1 here.
    pub lanes: u16,
}

impl DLDataType {
    /// DLPack's name of an element type.
    pub fn of(dtype: DType) -> DLDataType {
        let code = match dtype {
            DType::I8 | DType::I16 | DType::I32 | DType::I64 => 0,
            DType::U8 | DType::U16 | DType::U32 | DType::U64 => 1,
            DType::F16 | DType::F32 | DType::F64 => 2,
            DType::BF16 => 4,
            DType::Bool => 6,
        };
        DLDataType { code, bits: (dtype.size() * 8) as u8, lanes: 1 }
    }
    /// The element type; `None` for one that Weft does not have.
    pub fn dtype(self) -> Option<DType> {
        DType::ALL.iter().copied().find(|&d| DLDataType::of(d) == self)
    }
}

/// DLPack's `DLTensor`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct DLTensor {
    /// The memory.
    pub data: *mut c_void,
    /// Where it is.
    pub device: DLDevice,
    /// The number of dimensions.
    pub ndim: i32,
    /// The element type.
    pub dtype: DLDataType,
    /// Sizes in elements, outermost first.
    pub shape: *mut i64,
    /// Elements from one to the next along each dimension; null: dense and row-major.
    pub strides: *mut i64,
    /// Bytes from `data` to the first element.
    pub byte_offset: u64,
}

impl DLTensor {
    /// A dense tensor at `data`, which has the sizes of `shape`.
    pub fn dense(data: *mut u8, dtype: DType, shape: &mut [i64]) -> DLTensor {
        DLTensor {
            data: data.cast(),
            device: DLDevice { device_type: HOST, device_id: 0 },
            ndim: shape.len() as i32,
            dtype: DLDataType::of(dtype),
            shape: shape.as_mut_ptr(),
            strides: null_mut(),
            byte_offset: 0,
        }
    }

    /// A copy of the elements.
    ///
    /// # Errors
    /// Memory of a device, types that Weft does not have, sizes that are none.
    ///
    /// # Safety
    /// `shape`, and `strides` if it is not null, point to `ndim` numbers; `data` points to the elements that these
    /// describe. None of them changes during the call.
    pub unsafe fn to_tensor(&self) -> Result<Tensor, String> {
        // SAFETY: as the function's own contract says.
        let Layout { dtype, shape, strides, first } = unsafe { self.layout() }?;
        let (size, count) = (dtype.size(), shape.iter().product::<usize>());
        let mut bytes = vec![0; size * count];
        for (n, to) in bytes.chunks_exact_mut(size).enumerate() {
            // SAFETY: the element lies in the memory that the tensor describes.
            let from = unsafe { first.offset(offset(n, &shape, &strides) * size as isize) };
            // SAFETY: as above; `to` is memory of this function's.
            unsafe { std::ptr::copy_nonoverlapping(from, to.as_mut_ptr(), size) };
        }
        Tensor::from_bytes(dtype, shape, bytes.into())
    }

    /// Writes the elements of `t`, which has the same type and shape.
    ///
    /// # Errors
    /// Another type or shape; then nothing is written.
    ///
    /// # Safety
    /// As [`DLTensor::to_tensor`], with memory that nobody else uses during the call.
    pub unsafe fn write(&self, t: &Tensor) -> Result<(), String> {
        // SAFETY: as the function's own contract says.
        let Layout { dtype, shape, strides, first } = unsafe { self.layout() }?;
        if dtype != t.dtype() || shape != t.shape() {
            return Err(format!("the result is {}{:?}, and the memory {dtype}{shape:?}", t.dtype(), t.shape()));
        }
        let size = dtype.size();
        for (n, from) in t.bytes().chunks_exact(size).enumerate() {
            // SAFETY: the element lies in the memory that the tensor describes.
            let to = unsafe { first.offset(offset(n, &shape, &strides) * size as isize) };
            // SAFETY: as above; the elements of a tensor of Weft's are its own.
            unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), to, size) };
        }
        Ok(())
    }

    /// # Safety
    /// As [`DLTensor::to_tensor`].
    unsafe fn layout(&self) -> Result<Layout, String> {
        if self.device.device_type != HOST {
            let kind = self.device.device_type;
            return Err(format!("its memory is of the DLPack device type {kind}, and 1 (host memory) is needed"));
        }
        let DLDataType { code, bits, lanes } = self.dtype;
        let dtype = self.dtype.dtype();
        let dtype = dtype.ok_or(format!("there is no DLPack type of code {code}, {bits} bits and {lanes} lanes"))?;
        let rank = usize::try_from(self.ndim).map_err(|_| format!("it has {} dimensions", self.ndim))?;
        let numbers = |at: *mut i64| match (at.is_null(), rank) {
            (_, 0) => Some(vec![]),
            (true, _) => None,
            // SAFETY: it points to `ndim` numbers, as the function's own contract says.
            (false, _) => Some(unsafe { std::slice::from_raw_parts(at, rank) }.to_vec()),
        };
        let sizes = numbers(self.shape).ok_or("its shape is NULL")?;
        let shape: Option<Vec<usize>> = sizes.iter().map(|&n| usize::try_from(n).ok()).collect();
        let shape = shape.filter(|s| {
            let bytes = s.iter().try_fold(dtype.size(), |a, &n| a.checked_mul(n));
            bytes.is_some_and(|n| isize::try_from(n).is_ok())
        });
        let shape = shape.ok_or_else(|| format!("{sizes:?} is no shape"))?;
        let dense = || {
            let mut strides = vec![1; rank];
            (1..rank).rev().for_each(|d| strides[d - 1] = strides[d] * sizes[d]);
            strides
        };
        let strides = numbers(self.strides).unwrap_or_else(dense);
        if self.data.is_null() && !shape.contains(&0) {
            return Err("its data is NULL".into());
        }
        let first = self.data.cast::<u8>().wrapping_add(self.byte_offset as usize);
        Ok(Layout { dtype, shape, strides, first })
    }
}

/// What a tensor describes.
struct Layout {
    dtype: DType,
    shape: Vec<usize>,
    strides: Vec<i64>,
    first: *mut u8,
}

/// Where element `n` is, in elements.
fn offset(mut n: usize, shape: &[usize], strides: &[i64]) -> isize {
    let mut at = 0;
    for (size, stride) in shape.iter().zip(strides).rev() {
        at += (n % size) as isize * *stride as isize;
        n /= size;
    }
    at
}

/// Tensors with the memory of their shapes.
pub struct DLTensors {
    /// The tensors.
    pub list: Vec<DLTensor>,
    _shapes: Vec<Vec<i64>>,
}

impl DLTensors {
    /// Dense tensors of these types and shapes. The data are the caller's, who keeps them for as long as the list is
    /// used.
    pub fn of<'a>(tensors: impl Iterator<Item = (*const u8, DType, &'a [usize])>) -> DLTensors {
        let (mut list, mut shapes) = (vec![], vec![]);
        for (data, dtype, shape) in tensors {
            let mut shape: Vec<i64> = shape.iter().map(|&d| d as i64).collect();
            // Functions take operands as constant; DLPack's structure has no constant pointer.
            list.push(DLTensor::dense(data.cast_mut(), dtype, &mut shape));
            shapes.push(shape);
        }
        DLTensors { list, _shapes: shapes }
    }
}

/// Calls a function in C with room for a text that ends in 0; its status, 0 where it succeeds, as a result.
///
/// # Errors
/// What the function says of its failure.
pub fn said(call: impl FnOnce(*mut c_char, usize) -> i32) -> Result<(), String> {
    let mut message = [0u8; MESSAGE];
    let status = call(message.as_mut_ptr().cast(), MESSAGE - 1);
    if status == 0 {
        return Ok(());
    }
    let text =
        CStr::from_bytes_until_nul(&message).map_or_else(|_| String::new(), |t| t.to_string_lossy().into_owned());
    Err(if text.is_empty() { format!("the function says {status}") } else { text })
}

/// Calls a function in C on tensors of Weft's: with the operands, the results, and as [`said`] does. An operand and the
/// result in its place are one tensor.
///
/// # Errors
/// What the function says of its failure.
pub fn call(
    call: impl FnOnce(&[DLTensor], &mut [DLTensor], *mut c_char, usize) -> i32,
    inputs: &[Tensor],
    outputs: &mut [TensorMut],
) -> Result<(), String> {
    let mut given = DLTensors::of(inputs.iter().map(|t| (t.bytes().as_ptr(), t.dtype(), t.shape())));
    let mut written = DLTensors::of(outputs.iter_mut().map(|t| {
        let (data, dtype) = (t.bytes_mut().as_mut_ptr().cast_const(), t.dtype());
        (data, dtype, t.shape())
    }));
    for (result, &tensor) in outputs.iter().zip(&written.list) {
        if let Some(operand) = result.in_place_of().and_then(|i| given.list.get_mut(i)) {
            *operand = tensor;
        }
    }
    said(|message, room| call(&given.list, &mut written.list, message, room))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strides_and_offsets_are_followed() {
        let mut data: Vec<f32> = (0..24).map(|n| n as f32).collect();
        let (mut shape, mut strides) = ([2i64, 3], [-1i64, 8]);
        let mut t = DLTensor::dense(data.as_mut_ptr().cast(), DType::F32, &mut shape);
        t.strides = strides.as_mut_ptr();
        t.byte_offset = 4;
        // SAFETY: the elements 1 and 0, 9 and 8, 17 and 16 are in `data`.
        let copy = unsafe { t.to_tensor() }.expect("a tensor");
        assert_eq!(copy, Tensor::from_vec(vec![2, 3], vec![1f32, 9.0, 17.0, 0.0, 8.0, 16.0]));
        // SAFETY: as above.
        unsafe { t.write(&Tensor::from_vec(vec![2, 3], vec![-1f32, -2.0, -3.0, -4.0, -5.0, -6.0])) }.expect("fits");
        assert_eq!((data[0], data[1], data[8], data[17], data[2]), (-4.0, -1.0, -5.0, -3.0, 2.0));
    }

    #[test]
    fn what_is_no_tensor_of_the_host_is_refused() {
        let mut data = [0f32; 4];
        let mut shape = [4i64];
        let whole = DLTensor::dense(data.as_mut_ptr().cast(), DType::F32, &mut shape);
        let cuda = DLTensor { device: DLDevice { device_type: 2, device_id: 0 }, ..whole };
        let lanes = DLTensor { dtype: DLDataType { lanes: 4, ..whole.dtype }, ..whole };
        let without = DLTensor { data: null_mut(), ..whole };
        let shapeless = DLTensor { shape: null_mut(), ..whole };
        for (t, words) in
            [(cuda, "device type 2"), (lanes, "4 lanes"), (without, "data is NULL"), (shapeless, "shape is NULL")]
        {
            // SAFETY: nothing is read of a tensor that is refused.
            let why = unsafe { t.to_tensor() }.expect_err("it is refused");
            assert!(why.contains(words), "{why}");
        }
        let mut negative = [-4i64];
        let t = DLTensor::dense(data.as_mut_ptr().cast(), DType::F32, &mut negative);
        // SAFETY: as above.
        assert!(unsafe { t.to_tensor() }.is_err());
        // SAFETY: as above.
        assert!(unsafe { whole.write(&Tensor::from_vec(vec![2], vec![0f32; 2])) }.is_err());
    }
}
