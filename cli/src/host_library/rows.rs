//! Tables of functions, and calls of them.

use super::dlpack::{DlTensor, DlTensors, said};
use compiler::tensor::{Tensor, TensorMut};
use libloading::{Library, Symbol};
use runtime_gpu::HostFunctions;
use std::ffi::{CStr, c_char, c_int};
use std::sync::Arc;

/// A row of a library's table of functions.
pub trait Row {
    /// The function that gives the table.
    const SYMBOL: &'static [u8];
    /// The version of the interface, which the library is asked for.
    const INTERFACE: u32;
    /// Null ends the table.
    fn name(&self) -> *const c_char;
    /// Registers the function, which keeps the library loaded.
    ///
    /// # Errors
    /// What the row lacks.
    fn register(&self, name: &str, library: &Arc<Library>, functions: &mut HostFunctions) -> Result<(), String>;
}

/// Registers the rows of a table; false if the library has none.
pub fn register_table<R: Row>(library: &Arc<Library>, functions: &mut HostFunctions) -> Result<bool, String> {
    // SAFETY: the header declares this type for the symbol.
    let table = unsafe { library.get::<unsafe extern "C" fn(u32) -> *const R>(R::SYMBOL) };
    let Ok(table): Result<Symbol<'_, _>, _> = table else { return Ok(false) };
    // SAFETY: it takes a number and gives a table, as declared.
    let rows = unsafe { table(R::INTERFACE) };
    if rows.is_null() {
        return Err(format!("does not have version {} of the interface", R::INTERFACE));
    }
    for i in 0.. {
        // SAFETY: the table has rows up to the one without a name, which is not passed.
        let row = unsafe { &*rows.add(i) };
        if row.name().is_null() {
            break;
        }
        // SAFETY: a name is a text that ends in 0.
        let name = unsafe { CStr::from_ptr(row.name()) }.to_str().map_err(|e| format!("name {i}: {e}"))?;
        row.register(name, library, functions).map_err(|why| format!("`{name}` {why}"))?;
    }
    Ok(true)
}

/// Calls a function of the library with operands, results and room for a message.
///
/// # Errors
/// What the function says.
pub fn run_on(
    inputs: &[Tensor],
    outputs: &mut [TensorMut],
    call: impl FnOnce(&[DlTensor], &mut [DlTensor], *mut c_char, usize) -> c_int,
) -> Result<(), String> {
    let mut given = DlTensors::of(inputs.iter().map(|t| (t.bytes().as_ptr(), t.dtype(), t.shape())))?;
    let mut written = DlTensors::of(outputs.iter_mut().map(|t| {
        let (data, dtype) = (t.bytes_mut().as_mut_ptr().cast_const(), t.dtype());
        (data, dtype, t.shape())
    }))?;
    // An operand and the result in its place are one tensor.
    for (result, &tensor) in outputs.iter().zip(&written.list) {
        if let Some(operand) = result.in_place_of().and_then(|i| given.list.get_mut(i)) {
            *operand = tensor;
        }
    }
    said(|message, room| call(&given.list, &mut written.list, message, room))
}
