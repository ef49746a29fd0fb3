//! Host functions from a shared library with a C interface (`docs/weft_host_functions.h`).
//!
//! Tensors are DLPack tensors in host memory, dense and row-major. The caller allocates the memory of results. A
//! function must not keep pointers to its arguments, but for constants that it was prepared with.

mod prepared;
mod rows;

use crate::dlpack::{self, DLTensor};
use libloading::Library;
use rows::{Row, register_table};
use runtime_gpu::HostFunctions;
use std::ffi::{c_char, c_int};
use std::path::Path;
use std::sync::Arc;

/// A function of interface 1: 0 where it succeeds, else a message of at most `room` bytes is at `message`.
type Call = unsafe extern "C" fn(
    inputs: *const DLTensor,
    input_count: usize,
    outputs: *mut DLTensor,
    output_count: usize,
    message: *mut c_char,
    room: usize,
) -> c_int;

/// A row of the table of interface 1, which a row without a name ends.
#[repr(C)]
struct Entry {
    name: *const c_char,
    call: Option<Call>,
}

impl Row for Entry {
    const SYMBOL: &'static [u8] = b"weft_host_functions";
    const INTERFACE: u32 = 1;
    fn name(&self) -> *const c_char {
        self.name
    }
    fn register(&self, name: &str, library: &Arc<Library>, functions: &mut HostFunctions) -> Result<(), String> {
        let (call, library) = (self.call.ok_or("has no function")?, library.clone());
        functions.register_into(name, move |inputs, outputs| {
            let _loaded = &library;
            let call = |x: &[DLTensor], y: &mut [DLTensor], message, room| {
                // SAFETY: pointers and counts are those of tensors that live until the call returns; the header says
                // what a function may do.
                unsafe { call(x.as_ptr(), x.len(), y.as_mut_ptr(), y.len(), message, room) }
            };
            dlpack::call(call, inputs, outputs)
        });
        Ok(())
    }
}

/// Registers the functions of the library at `path`, of both interfaces. It stays loaded for as long as one of them is
/// registered.
///
/// # Errors
/// A library that cannot be loaded, or has no table of host functions.
pub fn load(path: &Path, functions: &mut HostFunctions) -> Result<(), String> {
    // SAFETY: loading runs the library's own initialisers; the user names a library to be run.
    let library = unsafe { Library::new(path) }.map_err(|e| format!("cannot be loaded: {e}"))?;
    let library = Arc::new(library);
    let plain = register_table::<Entry>(&library, functions)?;
    let prepared = register_table::<prepared::Entry>(&library, functions)?;
    if plain || prepared { Ok(()) } else { Err("has no table of functions".into()) }
}
