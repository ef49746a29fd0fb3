//! Host functions from a shared library with a C interface (`docs/weft_host_functions.h`).
//!
//! Tensors are DLPack tensors (<https://dmlc.github.io/dlpack>) in host memory, dense and row-major. The caller
//! allocates the memory of results. A function must not keep pointers to its arguments.

use crate::error::{CliError, CliResult};
use libloading::{Library, Symbol};
use runtime_gpu::HostFunctions;
use std::ffi::{CStr, c_char, c_int};
use std::path::Path;
use std::sync::Arc;
use weft::dlpack::{self, DLTensor};

/// The version of the interface, which the library is asked for.
const INTERFACE: u32 = 1;

/// A function of the library: 0 where it succeeds, else a message of at most `room` bytes is at `message`.
type Call = unsafe extern "C" fn(
    inputs: *const DLTensor,
    input_count: usize,
    outputs: *mut DLTensor,
    output_count: usize,
    message: *mut c_char,
    room: usize,
) -> c_int;

/// A row of the library's table, which a row without a name ends.
#[repr(C)]
struct Entry {
    name: *const c_char,
    call: Option<Call>,
}

/// Gives the library's table; null where the library does not know the version of the interface.
type Table = unsafe extern "C" fn(interface: u32) -> *const Entry;

/// Registers the functions of the library at `path`. It stays loaded for as long as one of them is registered.
///
/// # Errors
/// A library that cannot be loaded, or has no table of host functions.
pub fn load_library(path: &Path, functions: &mut HostFunctions) -> CliResult<()> {
    let fail = |why: String| {
        CliError::usage(format!("--host-functions {}: {why}", path.display()))
            .help("a library exports `weft_host_functions`, as docs/weft_host_functions.h declares it")
    };
    // SAFETY: loading runs the library's own initialisers; the user names a library to be run.
    let library = unsafe { Library::new(path) }.map_err(|e| fail(format!("cannot be loaded: {e}")))?;
    let library = Arc::new(library);
    let entries = {
        // SAFETY: the header declares this type for the symbol.
        let table: Symbol<'_, Table> =
            unsafe { library.get(b"weft_host_functions") }.map_err(|e| fail(format!("has no table: {e}")))?;
        // SAFETY: it takes a number and gives a table, as declared.
        unsafe { table(INTERFACE) }
    };
    if entries.is_null() {
        return Err(fail(format!("does not have version {INTERFACE} of the interface")));
    }
    for i in 0.. {
        // SAFETY: the table has rows up to the one without a name, which is not passed.
        let entry = unsafe { &*entries.add(i) };
        if entry.name.is_null() {
            break;
        }
        // SAFETY: a name is a text that ends in 0.
        let name = unsafe { CStr::from_ptr(entry.name) }.to_str().map_err(|e| fail(format!("name {i}: {e}")))?;
        let call = entry.call.ok_or_else(|| fail(format!("`{name}` has no function")))?;
        let library = library.clone();
        functions.register_into(name, move |inputs, outputs| {
            let _loaded = &library;
            dlpack::call(
                // SAFETY: pointers and counts are those of tensors that live until the call returns; the header says
                // what a function may do.
                &mut |given, written, message, room| unsafe {
                    call(given.as_ptr(), given.len(), written.as_mut_ptr(), written.len(), message, room)
                },
                inputs,
                outputs,
            )
        });
    }
    Ok(())
}
