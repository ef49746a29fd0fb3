//! Compiled networks on a device.

use crate::error::{Failure, WeftError, c_text, free, guarded, object};
use crate::model::{Source, WeftModel, options};
use crate::options::Request;
use crate::registry::WeftFunctions;
use crate::tensor::{Ports, WeftPort, listed};
use std::collections::HashMap;
use std::ffi::{CString, c_char};
use std::ptr::{null, null_mut};
use std::sync::{Arc, Mutex, PoisonError};
use weft::{Device, HostFunctions, Session, TensorType};
use workbench::executor::{library_options, pipeline_options, profile_on};

/// A network that is ready to run.
pub struct WeftSession {
    pub(crate) session: Arc<Session>,
    inputs: Ports,
    pub(crate) outputs: Arc<Ports>,
    pub(crate) input_types: Vec<(String, TensorType)>,
    pub(crate) device: Device,
    /// The functions that the network may call.
    pub(crate) functions: HostFunctions,
    label: CString,
    place: CString,
}

/// The devices that this process has opened, by name and threads: sessions on one share kernels, weights and its queue.
static DEVICES: Mutex<Option<HashMap<(String, usize), Device>>> = Mutex::new(None);

/// The device of that name, opened once.
fn device_of(name: &str, threads: usize) -> Result<Device, weft::Error> {
    let mut devices = DEVICES.lock().unwrap_or_else(PoisonError::into_inner);
    let devices = devices.get_or_insert_default();
    let key = (name.to_string(), threads);
    if let Some(device) = devices.get(&key) {
        return Ok(device.clone());
    }
    let device = Device::with_threads(name, threads)?;
    devices.insert(key, device.clone());
    Ok(device)
}

impl WeftSession {
    fn open(model: &WeftModel, request: Request, functions: Option<&WeftFunctions>) -> Result<WeftSession, Failure> {
        weft::external::register()?;
        let mut settings = request.settings.clone();
        let own = functions.map(WeftFunctions::host_functions).unwrap_or_default();
        settings.functions = workbench::host_calls::functions(&settings, &own)?;
        workbench::tuning::provide(&mut settings, false)?;
        let device = device_of(&settings.device, settings.threads.map_or(0, |n| n as usize))?;
        let profile = profile_on(&settings, &device)?;
        let options = library_options(&settings, pipeline_options(&settings)?, (&device, &profile))?;
        let options = options.runs_in_flight(request.runs_in_flight);
        let compiled = match &model.source {
            Source::Model(m) => {
                match [("require_compiled", request.require_compiled), ("allow_native", request.allow_native)]
                    .iter()
                    .find(|asked| asked.1)
                {
                    Some((key, _)) => return Err(Failure::usage(format!("{key} is for bundles, and this is a model"))),
                    None => m.compile(&options)?,
                }
            }
            Source::Bundle(b) => {
                if let Some(key) = request.of_compilation() {
                    let text = format!("{key} does not apply to a bundle, which is compiled already");
                    return Err(Failure::usage(text).help("compile the model itself with it"));
                }
                let bundle = if request.allow_native { b.clone().allow_native() } else { b.clone() };
                bundle.compile(&options, request.require_compiled)?
            }
        };
        let session = compiled.session(&device)?;
        Ok(WeftSession {
            inputs: Ports::of(session.inputs()),
            outputs: model.outputs.clone(),
            input_types: session.inputs(),
            functions: settings.functions,
            label: c_text(&device.label()),
            device,
            place: c_text(session.place()),
            session: Arc::new(session),
        })
    }
}

/// Compiles a model and opens a session.
///
/// # Safety
/// `model` is a model of this library that is not freed during the call; `options` is null or text that ends in 0;
/// `error` is null or memory for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weft_compile(
    model: *const WeftModel,
    options: *const c_char,
    error: *mut *mut WeftError,
) -> *mut WeftSession {
    // SAFETY: as the contract says; no functions are none.
    unsafe { weft_compile_with(model, options, null(), error) }
}

/// Compiles a model that may call functions, and opens a session.
///
/// # Safety
/// As [`weft_compile`]; `functions` is null, or functions of this library that are not freed during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weft_compile_with(
    model: *const WeftModel,
    options: *const c_char,
    functions: *const WeftFunctions,
    error: *mut *mut WeftError,
) -> *mut WeftSession {
    // SAFETY: as the contract says.
    let open = || unsafe {
        let (model, text) = (object(model, "model")?, self::options(options)?.unwrap_or_default());
        WeftSession::open(model, Request::parse(text)?, functions.as_ref())
    };
    // SAFETY: as the contract says.
    unsafe { guarded(error, open) }.map_or(null_mut(), |s| Box::into_raw(Box::new(s)))
}

/// The inputs of a session; null of none.
///
/// # Safety
/// `session` is null, or a session of this library that is not freed during the call; `count` is null or memory for a
/// number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weft_session_inputs(session: *const WeftSession, count: *mut usize) -> *const WeftPort {
    // SAFETY: as the contract says.
    unsafe { object(session, "session").map_or(null(), |s| listed(s.inputs.as_slice(), count)) }
}

/// The results of a session; null of none.
///
/// # Safety
/// As [`weft_session_inputs`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weft_session_outputs(session: *const WeftSession, count: *mut usize) -> *const WeftPort {
    // SAFETY: as the contract says.
    unsafe { object(session, "session").map_or(null(), |s| listed(s.outputs.as_slice(), count)) }
}

/// The device of a session; null of none.
///
/// # Safety
/// As [`weft_session_inputs`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weft_session_device(session: *const WeftSession) -> *const c_char {
    // SAFETY: as the contract says.
    unsafe { object(session, "session") }.map_or(null(), |s| s.label.as_ptr())
}

/// Where a run takes place; null of none.
///
/// # Safety
/// As [`weft_session_inputs`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weft_session_place(session: *const WeftSession) -> *const c_char {
    // SAFETY: as the contract says.
    unsafe { object(session, "session") }.map_or(null(), |s| s.place.as_ptr())
}

/// Frees a session.
///
/// # Safety
/// `session` is null, or a session of this library that nobody uses any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weft_session_free(session: *mut WeftSession) {
    // SAFETY: as the contract says.
    unsafe { free(session) }
}
