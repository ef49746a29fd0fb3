//! Memory of a caller's that results are written to.

use crate::CpuError;
use tensor_ir::dtype::DType;
use tensor_ir::tensor::Tensor;

/// Memory of a caller's for a result, with the type and the shape of the array that lies there.
pub struct ResultMemory<'a> {
    /// Element type.
    pub dtype: DType,
    /// Dimensions.
    pub shape: &'a [usize],
    /// Its bytes, the elements in order.
    pub bytes: &'a mut [u8],
}

impl ResultMemory<'_> {
    /// Refuses a result that the memory is not for.
    ///
    /// # Errors
    /// Another type or shape.
    pub(crate) fn check(&self, name: &str, dtype: DType, shape: &[usize]) -> Result<(), CpuError> {
        if self.dtype == dtype && self.shape == shape {
            return Ok(());
        }
        let (given, made) = (format!("{}{:?}", self.dtype, self.shape), format!("{dtype}{shape:?}"));
        Err(CpuError::Input(format!("the memory for the result `{name}` is for {given}, the result is {made}")))
    }
    /// Copies a result there.
    ///
    /// # Errors
    /// A result of another type or shape.
    pub fn take(&mut self, name: &str, t: &Tensor) -> Result<(), CpuError> {
        self.check(name, t.dtype(), t.shape())?;
        self.bytes.copy_from_slice(t.bytes());
        Ok(())
    }
}
