//! Host functions from a shared library with a C interface (`docs/weft_host_functions.h`).
//!
//! Tensors are DLPack tensors (<https://dmlc.github.io/dlpack>) in host memory, dense and row-major. The caller
//! allocates the memory of results. A function must not keep pointers to its arguments.

use crate::error::{CliError, CliResult};
use compiler::dtype::DType;
use compiler::tensor::{Tensor, TensorMut};
use libloading::{Library, Symbol};
use runtime_gpu::HostFunctions;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::path::Path;
use std::sync::Arc;

/// The version of the interface, which the library is asked for.
const INTERFACE: u32 = 1;

/// Room for what a function says of its failure.
const MESSAGE: usize = 512;

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
struct DlTensor {
    data: *mut c_void,
    device: DlDevice,
    rank: c_int,
    dtype: DlType,
    shape: *mut i64,
    strides: *mut i64,
    byte_offset: u64,
}

/// A function of the library: 0 where it succeeds, else a message of at most `room` bytes is at `message`.
type Call = unsafe extern "C" fn(
    inputs: *const DlTensor,
    input_count: usize,
    outputs: *mut DlTensor,
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
            run(call, inputs, outputs)
        });
    }
    Ok(())
}

fn run(call: Call, inputs: &[Tensor], outputs: &mut [TensorMut]) -> Result<(), String> {
    let mut shapes: Vec<Vec<i64>> =
        inputs.iter().map(Tensor::shape).chain(outputs.iter().map(TensorMut::shape)).map(in_i64).collect();
    let (of_inputs, of_outputs) = shapes.split_at_mut(inputs.len());
    let given = inputs.iter().zip(of_inputs).map(|(t, shape)| {
        // The interface takes inputs as constant; DLPack's struct has no constant pointer.
        tensor(t.bytes().as_ptr().cast_mut(), t.dtype(), shape)
    });
    let mut given = given.collect::<Result<Vec<_>, _>>()?;
    let written = outputs.iter_mut().zip(of_outputs).map(|(t, shape)| {
        let dtype = t.dtype();
        tensor(t.bytes_mut().as_mut_ptr(), dtype, shape)
    });
    let mut written = written.collect::<Result<Vec<_>, _>>()?;
    // An operand and the result in its place are one tensor.
    for (result, &tensor) in outputs.iter().zip(&written) {
        if let Some(operand) = result.in_place_of().and_then(|i| given.get_mut(i)) {
            *operand = tensor;
        }
    }
    let mut message = [0u8; MESSAGE];
    // SAFETY: pointers and counts are those of tensors that live until the call returns; the header says what a
    // function may do.
    let status = unsafe {
        call(given.as_ptr(), given.len(), written.as_mut_ptr(), written.len(), message.as_mut_ptr().cast(), MESSAGE - 1)
    };
    if status == 0 {
        return Ok(());
    }
    let text =
        CStr::from_bytes_until_nul(&message).map_or_else(|_| String::new(), |t| t.to_string_lossy().into_owned());
    Err(if text.is_empty() { format!("the library says {status}") } else { text })
}

fn in_i64(shape: &[usize]) -> Vec<i64> {
    shape.iter().map(|&d| d as i64).collect()
}

fn tensor(data: *mut u8, dtype: DType, shape: &mut [i64]) -> Result<DlTensor, String> {
    let rank = c_int::try_from(shape.len()).map_err(|e| e.to_string())?;
    Ok(DlTensor {
        data: data.cast(),
        device: DlDevice { kind: HOST, id: 0 },
        rank,
        dtype: dl_type(dtype),
        shape: shape.as_mut_ptr(),
        strides: std::ptr::null_mut(),
        byte_offset: 0,
    })
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
