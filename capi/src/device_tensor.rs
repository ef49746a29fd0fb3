//! Tensors that stay where a session computes.

use crate::error::{Failure, WEFT_OK, WeftCode, WeftError, c_text, free, guarded, object};
use crate::registry::Running;
use crate::session::WeftSession;
use crate::tensor::{Ports, WeftPort, WeftTensor, name_of, slice, tensor};
use std::ffi::{CString, c_char, c_void};
use std::ptr::{null, null_mut};
use std::sync::Arc;
use weft::{DType, Device, DeviceTensor, RunInput, RunTensor, Tensor, TensorType};

/// A tensor that stays where a session computes.
pub struct WeftDeviceTensor {
    kept: Kept,
    port: Ports,
    device: CString,
}

/// Where the elements are.
enum Kept {
    Device(DeviceTensor, Device),
    /// For sessions that compute in host memory.
    Host(Tensor),
}

impl Kept {
    /// Of a tensor of a session on `device`.
    fn of(t: RunTensor, device: &Device) -> Kept {
        match t {
            RunTensor::Device(t) => Kept::Device(t, device.clone()),
            RunTensor::Host(t) => Kept::Host(t),
        }
    }
    /// Type and shape.
    fn form(&self) -> (DType, &[usize]) {
        match self {
            Kept::Device(t, _) => (t.dtype(), t.shape()),
            Kept::Host(t) => (t.dtype(), t.shape()),
        }
    }
    /// The tensor in host memory, once the device is done.
    fn read(&self) -> Result<Tensor, Failure> {
        match self {
            Kept::Device(t, device) => Ok(pollster::block_on(device.read(t))?),
            Kept::Host(t) => Ok(t.clone()),
        }
    }
    /// True if a session on `device` can use it without a copy to host memory.
    fn is_on(&self, device: &Device) -> bool {
        match (self, device) {
            (Kept::Device(_, Device::Gpu(own)), Device::Gpu(other)) => Arc::ptr_eq(own, other),
            _ => false,
        }
    }
}

impl WeftDeviceTensor {
    fn of(name: &str, kept: Kept) -> WeftDeviceTensor {
        let (dtype, shape) = kept.form();
        let port = Ports::of([(name.to_string(), TensorType::fixed(dtype, shape))]);
        let device = match &kept {
            Kept::Device(_, device) => c_text(&device.label()),
            Kept::Host(_) => c"host memory".into(),
        };
        WeftDeviceTensor { kept, port, device }
    }

    /// Uploads a tensor for an input.
    ///
    /// # Safety
    /// The name, shape and data of `given` do not change during the call.
    unsafe fn upload(session: &WeftSession, given: &WeftTensor) -> Result<WeftDeviceTensor, Failure> {
        let names: Vec<&str> = session.input_types.iter().map(|i| i.0.as_str()).collect();
        // SAFETY: as the function's own contract says.
        let name = unsafe { name_of(given.name, 0, &names, "input") }?;
        // SAFETY: as the function's own contract says.
        let tensor = unsafe { tensor(given, name) }?;
        session.check(name, tensor.dtype(), tensor.shape())?;
        let placed = session.session.input_where_read(name, &tensor)?;
        Ok(WeftDeviceTensor::of(name, Kept::of(placed, &session.device)))
    }
}

/// Runs once; results stay on the device if the network runs there as a whole.
fn run(session: &WeftSession, inputs: &[&WeftDeviceTensor]) -> Result<Vec<WeftDeviceTensor>, Failure> {
    let names = session.input_types.iter().map(|i| i.0.as_str());
    for (name, given) in names.clone().zip(inputs) {
        let (dtype, shape) = given.kept.form();
        session.check(name, dtype, shape)?;
    }
    let _running = Running::enter(&session.session).map_err(Failure::usage)?;
    let there = session.session.keeps_tensors_on_device();
    // What is elsewhere goes through host memory.
    let read =
        |t: &&WeftDeviceTensor| if there && t.kept.is_on(&session.device) { Ok(None) } else { t.kept.read().map(Some) };
    let copies = inputs.iter().map(read).collect::<Result<Vec<_>, _>>()?;
    if !there {
        let given: Vec<(&str, Tensor)> = names.zip(copies.into_iter().flatten()).collect();
        let results = session.session.run(&given)?;
        return Ok(results.into_iter().map(|(name, t)| WeftDeviceTensor::of(&name, Kept::Host(t))).collect());
    }
    let mut given: Vec<(&str, RunInput<'_>)> = vec![];
    for ((name, t), copy) in names.zip(inputs).zip(&copies) {
        given.push((
            name,
            match (&t.kept, copy) {
                (Kept::Device(t, _), None) => RunInput::Device(t),
                (Kept::Host(t), _) | (_, Some(t)) => RunInput::Host(t),
            },
        ));
    }
    let results = session.session.run_to_tensors(&given)?;
    Ok(results.into_iter().map(|(name, t)| WeftDeviceTensor::of(&name, Kept::of(t, &session.device))).collect())
}

/// Runs once on tensors in the network's order, and puts a pointer to each result at `outputs`.
///
/// # Safety
/// `inputs` points to `count` tensors of this library that are not freed during the call; `outputs` points to memory
/// for `output_count` pointers.
unsafe fn run_on_device(
    session: &WeftSession,
    (inputs, count): (*const *mut WeftDeviceTensor, usize),
    (outputs, output_count): (*mut *mut WeftDeviceTensor, usize),
) -> Result<(), Failure> {
    // SAFETY: as the function's own contract says.
    let inputs = unsafe { slice(inputs, count, "the inputs") }?;
    // SAFETY: as the function's own contract says.
    let inputs = inputs.iter().map(|&t| unsafe { object(t.cast_const(), "tensor") }).collect::<Result<Vec<_>, _>>()?;
    for (what, wanted, given) in
        [("inputs", session.input_types.len(), count), ("results", session.outputs.as_slice().len(), output_count)]
    {
        if wanted != given {
            return Err(Failure::input(format!("the network has {wanted} {what}, not {given}")));
        }
    }
    if outputs.is_null() && output_count > 0 {
        return Err(Failure::usage("there is no memory for the results: the outputs are NULL"));
    }
    for (n, tensor) in run(session, &inputs)?.into_iter().take(output_count).enumerate() {
        // SAFETY: there is memory for `output_count` pointers.
        unsafe { outputs.add(n).write(Box::into_raw(Box::new(tensor))) };
    }
    Ok(())
}

/// Copies the elements to memory of the caller's.
///
/// # Safety
/// `data` has `bytes` bytes.
unsafe fn read(tensor: &WeftDeviceTensor, data: *mut c_void, bytes: usize) -> Result<(), Failure> {
    let (dtype, shape) = tensor.kept.form();
    let needed = shape.iter().product::<usize>() * dtype.size();
    if needed != bytes || data.is_null() && needed > 0 {
        let text = format!("the tensor is {dtype}{shape:?}, {needed} bytes; there is room for {bytes}");
        return Err(Failure::input(text));
    }
    let copy = tensor.kept.read()?;
    if needed > 0 {
        // SAFETY: `data` has as many bytes, as was just checked.
        unsafe { std::ptr::copy_nonoverlapping(copy.bytes().as_ptr(), data.cast(), needed) };
    }
    Ok(())
}

/// Uploads a tensor for an input, for many runs.
///
/// # Safety
/// `session` is a session of this library that is not freed during the call; `tensor` is a tensor with its shape and
/// data, which do not change during the call; `error` is null or memory for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weft_to_device(
    session: *const WeftSession,
    tensor: *const WeftTensor,
    error: *mut *mut WeftError,
) -> *mut WeftDeviceTensor {
    // SAFETY: as the contract says.
    let upload = || unsafe { WeftDeviceTensor::upload(object(session, "session")?, object(tensor, "tensor")?) };
    // SAFETY: as the contract says.
    unsafe { guarded(error, upload) }.map_or(null_mut(), |t| Box::into_raw(Box::new(t)))
}

/// Runs once on tensors that are on the device, and leaves the results there.
///
/// # Safety
/// `session` is a session of this library, and `inputs` points to `count` tensors of this library, that are not freed
/// during the call; `outputs` points to memory for `output_count` pointers; `error` is null or memory for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weft_run_on_device(
    session: *const WeftSession,
    inputs: *const *mut WeftDeviceTensor,
    count: usize,
    outputs: *mut *mut WeftDeviceTensor,
    output_count: usize,
    error: *mut *mut WeftError,
) -> WeftCode {
    // SAFETY: as the contract says.
    let run = || unsafe { run_on_device(object(session, "session")?, (inputs, count), (outputs, output_count)) };
    // SAFETY: as the contract says.
    unsafe { guarded(error, run) }.map_or_else(|code| code as WeftCode, |()| WEFT_OK)
}

/// Copies the elements of a tensor to host memory.
///
/// # Safety
/// `tensor` is a tensor of this library that is not freed during the call; `data` has `bytes` bytes; `error` is null or
/// memory for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weft_device_tensor_read(
    tensor: *const WeftDeviceTensor,
    data: *mut c_void,
    bytes: usize,
    error: *mut *mut WeftError,
) -> WeftCode {
    // SAFETY: as the contract says.
    let read = || unsafe { read(object(tensor, "tensor")?, data, bytes) };
    // SAFETY: as the contract says.
    unsafe { guarded(error, read) }.map_or_else(|code| code as WeftCode, |()| WEFT_OK)
}

/// Name, type and shape of a tensor; null of none.
///
/// # Safety
/// `tensor` is null, or a tensor of this library that is not freed during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weft_device_tensor_port(tensor: *const WeftDeviceTensor) -> *const WeftPort {
    // SAFETY: as the contract says.
    unsafe { object(tensor, "tensor") }.map_or(null(), |t| t.port.as_slice().as_ptr())
}

/// The device of a tensor; null of none.
///
/// # Safety
/// As [`weft_device_tensor_port`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weft_device_tensor_device(tensor: *const WeftDeviceTensor) -> *const c_char {
    // SAFETY: as the contract says.
    unsafe { object(tensor, "tensor") }.map_or(null(), |t| t.device.as_ptr())
}

/// Frees a tensor.
///
/// # Safety
/// `tensor` is null, or a tensor of this library that nobody uses any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weft_device_tensor_free(tensor: *mut WeftDeviceTensor) {
    // SAFETY: as the contract says.
    unsafe { free(tensor) }
}
