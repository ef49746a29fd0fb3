//! Runs and their results.

use crate::error::{Failure, WEFT_OK, WeftCode, WeftError, c_text, free, guarded, object};
use crate::registry::Running;
use crate::session::WeftSession;
use crate::tensor::{WeftBuffer, WeftTensor, listed, name_of, number, place, slice, tensor};
use std::ffi::CString;
use std::ptr::{null, null_mut};
use weft::dlpack::DLTensor;
use weft::{DType, Outputs, Tensor, TensorType};

/// The results of a run.
pub struct WeftOutputs {
    list: Vec<WeftTensor>,
    owned: Vec<(CString, Vec<i64>, Tensor)>,
}

// SAFETY: the pointers are to names, shapes and data that the value owns and never changes.
unsafe impl Send for WeftOutputs {}
// SAFETY: as above.
unsafe impl Sync for WeftOutputs {}

impl WeftOutputs {
    fn of(outputs: Outputs) -> WeftOutputs {
        let (mut list, mut owned) = (vec![], vec![]);
        for (name, t) in outputs {
            let (name, shape): (_, Vec<i64>) = (c_text(&name), t.shape().iter().map(|&n| n as i64).collect());
            list.push(WeftTensor {
                name: name.as_ptr(),
                r#type: number(t.dtype()),
                rank: shape.len(),
                shape: shape.as_ptr(),
                data: t.bytes().as_ptr().cast(),
            });
            owned.push((name, shape, t));
        }
        WeftOutputs { list, owned }
    }
    /// A result, by its place.
    pub(crate) fn tensor(&self, n: usize) -> Result<&Tensor, Failure> {
        let there = || Failure::usage(format!("there are {} results, and none at place {n}", self.owned.len()));
        self.owned.get(n).map(|o| &o.2).ok_or_else(there)
    }
}

/// An input has the type and shape of the network's.
fn check((dtype, shape): (DType, &[usize]), ty: &TensorType) -> Result<(), Failure> {
    if dtype != ty.dtype {
        return Err(Failure::input(format!("the tensor has elements of type {dtype}, not {}", ty.dtype)));
    }
    let fits = |(d, &n): (&weft::Dim, &usize)| d.as_const().is_none_or(|d| usize::try_from(d) == Ok(n));
    match shape.len() == ty.shape.len() && ty.shape.iter().zip(shape).all(fits) {
        true => Ok(()),
        false => Err(Failure::input(format!("the tensor has the shape {shape:?}"))
            .help("sizes that the model fixes change with the options shape., dim. or batch of weft_model_load")),
    }
}

impl WeftSession {
    /// A tensor of this type and shape can be the input of that name. An unknown name is left to the run.
    pub(crate) fn check(&self, name: &str, dtype: DType, shape: &[usize]) -> Result<(), Failure> {
        match self.input_types.iter().find(|i| i.0 == name) {
            Some((_, ty)) => check((dtype, shape), ty).map_err(|e| e.at(format!("input `{name}`: {ty:?}"))),
            None => Ok(()),
        }
    }
}

/// Runs once on copies of the inputs.
///
/// # Safety
/// As [`given`].
unsafe fn run(session: &WeftSession, inputs: *const WeftTensor, count: usize) -> Result<Outputs, Failure> {
    // SAFETY: as the function's own contract says.
    run_tensors(session, &unsafe { given(session, inputs, count) }?)
}

/// Copies of the inputs, by name.
///
/// # Safety
/// `inputs` points to `count` tensors whose names, shapes and data do not change during the call.
pub(crate) unsafe fn given(
    session: &WeftSession,
    inputs: *const WeftTensor,
    count: usize,
) -> Result<Vec<(&str, Tensor)>, Failure> {
    let names: Vec<&str> = session.input_types.iter().map(|i| i.0.as_str()).collect();
    // SAFETY: as the function's own contract says.
    let inputs = unsafe { slice(inputs, count, "the inputs") }?;
    let mut given: Vec<(&str, Tensor)> = vec![];
    for (n, t) in inputs.iter().enumerate() {
        // SAFETY: as the function's own contract says.
        let name = unsafe { name_of(t.name, n, &names, "input") }?;
        if given.iter().any(|g| g.0 == name) {
            return Err(Failure::input("the input is given twice").at(place(name)));
        }
        // SAFETY: as the function's own contract says.
        given.push((name, unsafe { tensor(t, name) }?));
    }
    Ok(given)
}

/// Runs once on tensors by name.
pub(crate) fn run_tensors(session: &WeftSession, given: &[(&str, Tensor)]) -> Result<Outputs, Failure> {
    for (name, tensor) in given {
        session.check(name, tensor.dtype(), tensor.shape())?;
    }
    let _running = Running::enter(&session.session).map_err(Failure::usage)?;
    Ok(session.session.run(given)?)
}

/// Runs once on copies of DLPack tensors in the network's order.
///
/// # Safety
/// `inputs` points to `count` tensors as [`DLTensor::to_tensor`] takes them.
unsafe fn run_dlpack(session: &WeftSession, inputs: *const DLTensor, count: usize) -> Result<Outputs, Failure> {
    // SAFETY: as the function's own contract says.
    let inputs = unsafe { slice(inputs, count, "the inputs") }?;
    let names = &session.input_types;
    if inputs.len() != names.len() {
        return Err(Failure::input(format!("the network has {} inputs, not {count}", names.len())));
    }
    let mut given = vec![];
    for ((name, _), t) in names.iter().zip(inputs) {
        // SAFETY: as the function's own contract says.
        given.push((name.as_str(), unsafe { t.to_tensor() }.map_err(|why| Failure::input(why).at(place(name)))?));
    }
    run_tensors(session, &given)
}

/// Copies results into memory of the caller's; nothing is written unless all fit.
///
/// # Safety
/// `buffers` points to `count` entries, each with a name as [`name_of`] takes it and `bytes` of memory at `data`.
unsafe fn copy(outputs: &Outputs, buffers: *const WeftBuffer, count: usize) -> Result<(), Failure> {
    let names: Vec<&str> = outputs.names().collect();
    // SAFETY: as the function's own contract says.
    let buffers = unsafe { slice(buffers, count, "the outputs") }?;
    let mut found = vec![];
    for (n, b) in buffers.iter().enumerate() {
        // SAFETY: as the function's own contract says.
        let name = unsafe { name_of(b.name, n, &names, "output") }?;
        let t = &outputs[name];
        let bytes = t.bytes();
        if bytes.len() != b.bytes || b.data.is_null() && !bytes.is_empty() {
            let text = format!(
                "the result is {}{:?}, {} bytes; there is room for {}",
                t.dtype(),
                t.shape(),
                bytes.len(),
                b.bytes
            );
            return Err(Failure::input(text).at(format!("output `{name}`")));
        }
        found.push((b.data, bytes));
    }
    for (to, bytes) in found {
        // SAFETY: `to` has as many bytes, as was just checked; results are in memory of Weft's.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to.cast(), bytes.len()) };
    }
    Ok(())
}

/// Runs once.
///
/// # Safety
/// `session` is a session of this library that is not freed during the call; `inputs` points to `count` tensors, each
/// with its shape and data, which do not change during the call; `error` is null or memory for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weft_run(
    session: *const WeftSession,
    inputs: *const WeftTensor,
    count: usize,
    error: *mut *mut WeftError,
) -> *mut WeftOutputs {
    // SAFETY: as the contract says.
    let run = || unsafe { run(object(session, "session")?, inputs, count) };
    // SAFETY: as the contract says.
    unsafe { guarded(error, run) }.map_or(null_mut(), |o| Box::into_raw(Box::new(WeftOutputs::of(o))))
}

/// Runs once on DLPack tensors in host memory, in the network's order.
///
/// # Safety
/// As [`weft_run`]; `inputs` points to `count` tensors with their shapes, strides and data.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weft_run_dlpack(
    session: *const WeftSession,
    inputs: *const DLTensor,
    count: usize,
    error: *mut *mut WeftError,
) -> *mut WeftOutputs {
    // SAFETY: as the contract says.
    let run = || unsafe { run_dlpack(object(session, "session")?, inputs, count) };
    // SAFETY: as the contract says.
    unsafe { guarded(error, run) }.map_or(null_mut(), |o| Box::into_raw(Box::new(WeftOutputs::of(o))))
}

/// Runs once, with results in memory of the caller's.
///
/// # Safety
/// As [`weft_run`]; `outputs` points to `output_count` buffers, each with as many bytes of memory as it says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weft_run_into(
    session: *const WeftSession,
    inputs: *const WeftTensor,
    count: usize,
    outputs: *const WeftBuffer,
    output_count: usize,
    error: *mut *mut WeftError,
) -> WeftCode {
    // SAFETY: as the contract says.
    let run = || unsafe { copy(&run(object(session, "session")?, inputs, count)?, outputs, output_count) };
    // SAFETY: as the contract says.
    unsafe { guarded(error, run) }.map_or_else(|code| code as WeftCode, |()| WEFT_OK)
}

/// The results of a run; null of none.
///
/// # Safety
/// `outputs` is null, or outputs of this library that are not freed during the call; `count` is null or memory for a
/// number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weft_outputs_tensors(outputs: *const WeftOutputs, count: *mut usize) -> *const WeftTensor {
    // SAFETY: as the contract says.
    unsafe { object(outputs, "outputs").map_or(null(), |o| listed(&o.list, count)) }
}

/// Frees the results of a run.
///
/// # Safety
/// `outputs` is null, or outputs of this library that nobody uses any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weft_outputs_free(outputs: *mut WeftOutputs) {
    // SAFETY: as the contract says.
    unsafe { free(outputs) }
}
