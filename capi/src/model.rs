//! Networks and bundles before compilation.

use crate::error::{Failure, WeftError, free, guarded, object, text};
use crate::options::loading;
use crate::tensor::{Ports, WeftPort, listed, slice};
use std::ffi::{c_char, c_void};
use std::path::Path;
use std::ptr::{null, null_mut};
use std::sync::Arc;
use weft::plain_files::{BUNDLE_MAGIC, begins_as_bundle};
use weft::{Bundle, Model, Sizes};

/// A network, or a bundle.
pub struct WeftModel {
    pub(crate) source: Source,
    inputs: Ports,
    pub(crate) outputs: Arc<Ports>,
}

/// The source of a session.
pub(crate) enum Source {
    Model(Box<Model>),
    Bundle(Bundle),
}

impl WeftModel {
    fn of(model: &Model, source: impl FnOnce() -> Source) -> WeftModel {
        let inputs = Ports::of(model.inputs());
        let outputs = Arc::new(Ports::of(model.outputs().into_iter().zip(model.output_types())));
        WeftModel { source: source(), inputs, outputs }
    }
    fn network(model: Model) -> WeftModel {
        WeftModel::of(&model.clone(), || Source::Model(Box::new(model)))
    }
    fn bundle(bundle: Bundle, options: Option<&str>) -> Result<WeftModel, Failure> {
        if options.is_some_and(|o| !o.trim().is_empty()) {
            return Err(Failure::usage("a bundle has its sizes already: it takes no options when it is loaded"));
        }
        Ok(WeftModel::of(&bundle.model()?, || Source::Bundle(bundle)))
    }
    fn load(path: &str, options: Option<&str>) -> Result<WeftModel, Failure> {
        if begins_as_bundle(Path::new(path)) {
            return WeftModel::bundle(Bundle::open(path)?, options);
        }
        let (sizes, allows_native) = options.map_or(Ok((Sizes::default(), false)), loading)?;
        if allows_native && Path::new(path).extension().is_none_or(|e| e != "weft") {
            return Err(not_native());
        }
        Ok(WeftModel::network(Model::load_native(path, &sizes, allows_native)?))
    }
    fn from_bytes(bytes: &[u8], options: Option<&str>) -> Result<WeftModel, Failure> {
        if bytes.starts_with(BUNDLE_MAGIC) {
            return WeftModel::bundle(Bundle::from_bytes(bytes.to_vec())?, options);
        }
        let (sizes, allows_native) = options.map_or(Ok((Sizes::default(), false)), loading)?;
        // No ONNX model is text: its first field, of whatever number, has control characters.
        let is_text = |b: &u8| !b.is_ascii_control() || b.is_ascii_whitespace();
        Ok(WeftModel::network(match std::str::from_utf8(bytes) {
            Ok(text) if bytes.iter().all(is_text) => {
                Model::from_native_text(text, allows_native)?.with_sizes(&sizes)?
            }
            _ if allows_native => return Err(not_native()),
            _ => Model::from_onnx_with(bytes.to_vec(), &sizes)?,
        }))
    }
}

fn not_native() -> Failure {
    Failure::usage("allow_native is for texts and bundles, and this is an ONNX model")
}

/// Options that may be left out.
///
/// # Safety
/// As [`text`].
pub(crate) unsafe fn options<'a>(at: *const c_char) -> Result<Option<&'a str>, Failure> {
    // SAFETY: as the function's own contract says.
    if at.is_null() { Ok(None) } else { unsafe { text(at, "the options") }.map(Some) }
}

/// Loads a file.
///
/// # Safety
/// `path` and `options` are texts that end in 0, `options` or null; `error` is null or memory for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weft_model_load(
    path: *const c_char,
    options: *const c_char,
    error: *mut *mut WeftError,
) -> *mut WeftModel {
    // SAFETY: as the contract says.
    let load = || unsafe { WeftModel::load(text(path, "the path")?, self::options(options)?) };
    // SAFETY: as the contract says.
    unsafe { guarded(error, load) }.map_or(null_mut(), |m| Box::into_raw(Box::new(m)))
}

/// Loads the bytes of a file.
///
/// # Safety
/// `data` points to `size` bytes; the others are as for [`weft_model_load`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weft_model_from_bytes(
    data: *const c_void,
    size: usize,
    options: *const c_char,
    error: *mut *mut WeftError,
) -> *mut WeftModel {
    // SAFETY: as the contract says.
    let load =
        || unsafe { WeftModel::from_bytes(slice(data.cast::<u8>(), size, "the data")?, self::options(options)?) };
    // SAFETY: as the contract says.
    unsafe { guarded(error, load) }.map_or(null_mut(), |m| Box::into_raw(Box::new(m)))
}

/// The inputs of a model; null of none.
///
/// # Safety
/// `model` is null, or a model of this library that is not freed during the call; `count` is null or memory for a
/// number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weft_model_inputs(model: *const WeftModel, count: *mut usize) -> *const WeftPort {
    // SAFETY: as the contract says.
    unsafe { object(model, "model").map_or(null(), |m| listed(m.inputs.as_slice(), count)) }
}

/// The results of a model; null of none.
///
/// # Safety
/// As [`weft_model_inputs`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weft_model_outputs(model: *const WeftModel, count: *mut usize) -> *const WeftPort {
    // SAFETY: as the contract says.
    unsafe { object(model, "model").map_or(null(), |m| listed(m.outputs.as_slice(), count)) }
}

/// Frees a model.
///
/// # Safety
/// `model` is null, or a model of this library that nobody uses any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weft_model_free(model: *mut WeftModel) {
    // SAFETY: as the contract says.
    unsafe { free(model) }
}
