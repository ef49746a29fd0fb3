//! Results as DLPack's managed tensors.

use crate::error::{WeftError, guarded, object};
use crate::run::WeftOutputs;
use std::ffi::c_void;
use std::ptr::null_mut;
use weft::Tensor;
use weft::dlpack::DLTensor;

/// DLPack's `DLManagedTensor`: a tensor with the function that frees it.
#[repr(C)]
pub struct DLManagedTensor {
    /// The tensor.
    pub dl_tensor: DLTensor,
    /// What the deleter frees.
    pub manager_ctx: *mut c_void,
    /// Frees the tensor, whose user calls it once.
    pub deleter: Option<unsafe extern "C" fn(*mut DLManagedTensor)>,
}

/// What a managed tensor points to, and the tensor itself.
struct Managed {
    tensor: DLManagedTensor,
    shape: Vec<i64>,
    data: Tensor,
}

impl Managed {
    fn of(data: &Tensor) -> *mut DLManagedTensor {
        let mut shape: Vec<i64> = data.shape().iter().map(|&n| n as i64).collect();
        // DLPack's structure has no constant pointer; the header says that nobody writes there.
        let dl_tensor = DLTensor::dense(data.bytes().as_ptr().cast_mut(), data.dtype(), &mut shape);
        let tensor = DLManagedTensor { dl_tensor, manager_ctx: null_mut(), deleter: Some(delete) };
        let made = Box::into_raw(Box::new(Managed { tensor, shape, data: data.clone() }));
        // SAFETY: it was made just now, and nobody else has it.
        unsafe {
            (*made).tensor.manager_ctx = made.cast();
            (*made).tensor.dl_tensor.shape = (*made).shape.as_mut_ptr();
            (*made).tensor.dl_tensor.data = (*made).data.bytes().as_ptr().cast_mut().cast();
            &raw mut (*made).tensor
        }
    }
}

/// The deleter of a managed tensor.
///
/// # Safety
/// `tensor` is a tensor of [`Managed::of`] that nobody uses any more.
unsafe extern "C" fn delete(tensor: *mut DLManagedTensor) {
    if !tensor.is_null() {
        // SAFETY: `manager_ctx` is what `Managed::of` put there, and the user calls this once.
        drop(unsafe { Box::from_raw((*tensor).manager_ctx.cast::<Managed>()) });
    }
}

/// A result as a managed tensor.
///
/// # Safety
/// `outputs` is outputs of this library that are not freed during the call; `error` is null or memory for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weft_outputs_dlpack(
    outputs: *const WeftOutputs,
    n: usize,
    error: *mut *mut WeftError,
) -> *mut DLManagedTensor {
    // SAFETY: as the contract says.
    let managed = || unsafe { Ok(Managed::of(object(outputs, "outputs")?.tensor(n)?)) };
    // SAFETY: as the contract says.
    unsafe { guarded(error, managed) }.unwrap_or(null_mut())
}
