//! Tensors as the C interface has them: DLPack's structs (<https://dmlc.github.io/dlpack>).

use compiler::dtype::DType;
use std::ffi::{CStr, c_char, c_int, c_void};

/// DLPack's `DLDevice`.
#[derive(Clone, Copy)]
#[repr(C)]
struct DlDevice {
    kind: c_int,
    id: c_int,
}

/// DLPack's `kDLCPU`.
const HOST: c_int = 1;

/// DLPack's `DLDataType`.
#[derive(Clone, Copy)]
#[repr(C)]
struct DlType {
    code: u8,
    bits: u8,
    lanes: u16,
}

/// DLPack's `DLTensor`.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct DlTensor {
    data: *mut c_void,
    device: DlDevice,
    rank: c_int,
    dtype: DlType,
    shape: *mut i64,
    strides: *mut i64,
    byte_offset: u64,
}

/// Tensors with the memory of their shapes.
pub struct DlTensors {
    pub list: Vec<DlTensor>,
    _shapes: Vec<Vec<i64>>,
}

impl DlTensors {
    /// Tensors of these types. The data are the caller's, who keeps them for as long as the list is used.
    ///
    /// # Errors
    /// More dimensions than DLPack counts.
    pub fn of<'a>(tensors: impl Iterator<Item = (*const u8, DType, &'a [usize])>) -> Result<DlTensors, String> {
        let (mut list, mut shapes) = (vec![], vec![]);
        for (data, dtype, shape) in tensors {
            let mut shape: Vec<i64> = shape.iter().map(|&d| d as i64).collect();
            list.push(DlTensor {
                // DLPack's struct has no constant pointer; the interface takes operands as constant.
                data: data.cast_mut().cast(),
                device: DlDevice { kind: HOST, id: 0 },
                rank: c_int::try_from(shape.len()).map_err(|e| e.to_string())?,
                dtype: dl_type(dtype),
                shape: shape.as_mut_ptr(),
                strides: std::ptr::null_mut(),
                byte_offset: 0,
            });
            shapes.push(shape);
        }
        Ok(DlTensors { list, _shapes: shapes })
    }
}

/// DLPack's code of a type: 0 signed, 1 unsigned, 2 float, 4 bfloat, 6 bool.
fn dl_type(dtype: DType) -> DlType {
    let code = match dtype {
        DType::I8 | DType::I16 | DType::I32 | DType::I64 => 0,
        DType::U8 | DType::U16 | DType::U32 | DType::U64 => 1,
        DType::F16 | DType::F32 | DType::F64 => 2,
        DType::BF16 => 4,
        DType::Bool => 6,
    };
    DlType { code, bits: (dtype.size() * 8) as u8, lanes: 1 }
}

/// Room for what a function says of its failure.
const MESSAGE: usize = 512;

/// Calls a function with room for a message; its status and message as a result.
///
/// # Errors
/// The message of a function whose status is not 0.
pub fn said(call: impl FnOnce(*mut c_char, usize) -> c_int) -> Result<(), String> {
    let mut message = [0u8; MESSAGE];
    let status = call(message.as_mut_ptr().cast(), MESSAGE - 1);
    if status == 0 {
        return Ok(());
    }
    let text =
        CStr::from_bytes_until_nul(&message).map_or_else(|_| String::new(), |t| t.to_string_lossy().into_owned());
    Err(if text.is_empty() { format!("the library says {status}") } else { text })
}
