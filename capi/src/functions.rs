//! The functions of a registry's interface.

use crate::error::{Failure, WEFT_OK, WeftCode, WeftError, free, guarded, object, text};
use crate::registry::{Function, HostFunction, WeftCall, WeftFunctions, WeftRelease};
use crate::session::WeftSession;
use std::ffi::{c_char, c_void};
use std::sync::Arc;
use weft::dlpack::DLTensor;

/// No functions.
#[unsafe(no_mangle)]
pub extern "C" fn weft_functions_new() -> *mut WeftFunctions {
    Box::into_raw(Box::default())
}

/// Registers a function of the program.
///
/// # Safety
/// `functions` is functions of this library that are not freed during the call; `name` is text that ends in 0; `call`
/// may be called with `data` by any thread until `release` is called with it; `error` is null or memory for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weft_functions_add(
    functions: *mut WeftFunctions,
    name: *const c_char,
    call: WeftCall,
    data: *mut c_void,
    release: WeftRelease,
    error: *mut *mut WeftError,
) -> WeftCode {
    // SAFETY: as the contract says.
    let add = || unsafe {
        let call = call.ok_or_else(|| Failure::usage("the function is NULL"))?;
        let (functions, name) = (object(functions, "functions")?, text(name, "the name")?);
        // The data of a function that is not registered stay the caller's.
        functions.registry.add(name, || Function::Host(Arc::new(HostFunction { call, data, release })))
    };
    // SAFETY: as the contract says.
    unsafe { guarded(error, add) }.map_or_else(|code| code as WeftCode, |()| WEFT_OK)
}

/// Registers a compiled network.
///
/// # Safety
/// As [`weft_functions_add`]; `session` is a session of this library that is not freed during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weft_functions_add_session(
    functions: *mut WeftFunctions,
    name: *const c_char,
    session: *const WeftSession,
    error: *mut *mut WeftError,
) -> WeftCode {
    // SAFETY: as the contract says.
    let add = || unsafe {
        let session = object(session, "session")?.session.clone();
        object(functions, "functions")?.registry.add(text(name, "the name")?, || Function::Network(session))
    };
    // SAFETY: as the contract says.
    unsafe { guarded(error, add) }.map_or_else(|code| code as WeftCode, |()| WEFT_OK)
}

/// Calls a function by its name.
///
/// # Safety
/// `functions` is functions of this library that are not freed during the call; `name` is text that ends in 0; `inputs`
/// and `outputs` point to as many tensors as is said, in host memory, the outputs with memory to be written; `error` is
/// null or memory for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weft_functions_call(
    functions: *const WeftFunctions,
    name: *const c_char,
    inputs: *const DLTensor,
    count: usize,
    outputs: *mut DLTensor,
    output_count: usize,
    error: *mut *mut WeftError,
) -> WeftCode {
    // SAFETY: as the contract says.
    let call = || unsafe {
        let (functions, name) = (object(functions, "functions")?, text(name, "the name")?);
        functions.call(name, (inputs, count), (outputs, output_count))
    };
    // SAFETY: as the contract says.
    unsafe { guarded(error, call) }.map_or_else(|code| code as WeftCode, |()| WEFT_OK)
}

/// Frees functions.
///
/// # Safety
/// `functions` is null, or functions of this library that nobody uses any more, and no run calls.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weft_functions_free(functions: *mut WeftFunctions) {
    // SAFETY: as the contract says.
    unsafe { free(functions) }
}
