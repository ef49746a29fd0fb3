//! Errors, and the border that no panic crosses.

use std::ffi::{CStr, CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::null;
use weft::{Advice, Code, Spelling};

/// Why a call failed.
pub struct WeftError {
    code: Code,
    message: CString,
    place: Option<CString>,
    help: Option<CString>,
}

/// `WEFT_OK`, or a [`Code`].
pub type WeftCode = i32;

/// The code of a call that succeeded.
pub const WEFT_OK: WeftCode = 0;

/// Options as C has them.
struct KeyValues;

impl Spelling for KeyValues {
    fn option(&self, name: &str) -> String {
        format!("{}=", name.replace('-', "_"))
    }
    fn dims(&self, sizes: &[(&str, String)]) -> String {
        sizes.iter().map(|(name, size)| format!("dim.{name}={size}")).collect::<Vec<_>>().join(" ")
    }
    fn whole_shape(&self) -> &'static str {
        "shape.INPUT=..."
    }
    fn or_inputs(&self) -> &'static str {
        ""
    }
    fn host_functions(&self) -> &'static str {
        "weft_functions_add registers a function, and weft_compile_with takes the functions (docs/c.md)"
    }
}

/// The failure of a call.
pub(crate) struct Failure(Advice);

impl Failure {
    fn new(code: Code, message: impl Into<String>) -> Failure {
        Failure(Advice { code, message: message.into(), place: None, help: None })
    }
    pub(crate) fn usage(message: impl Into<String>) -> Failure {
        Failure::new(Code::Usage, message)
    }
    pub(crate) fn input(message: impl Into<String>) -> Failure {
        Failure::new(Code::Input, message)
    }
    pub(crate) fn message(&self) -> &str {
        &self.0.message
    }
    pub(crate) fn at(mut self, place: impl Into<String>) -> Failure {
        self.0.place = Some(place.into());
        self
    }
    pub(crate) fn help(mut self, help: impl Into<String>) -> Failure {
        self.0.help = Some(help.into());
        self
    }
}

impl From<weft::Error> for Failure {
    fn from(e: weft::Error) -> Failure {
        Failure(e.advice(&KeyValues))
    }
}

impl From<workbench::Error> for Failure {
    fn from(e: workbench::Error) -> Failure {
        Failure(e.spelled(&KeyValues))
    }
}

/// Text for C; what stands behind a 0 is cut off.
pub(crate) fn c_text(text: &str) -> CString {
    let end = text.find('\0').unwrap_or(text.len());
    CString::new(&text[..end]).unwrap_or_default()
}

/// The text at `text`.
///
/// # Safety
/// `text` is null, or text that ends in 0 and does not change during the call.
pub(crate) unsafe fn text<'a>(text: *const c_char, what: &str) -> Result<&'a str, Failure> {
    if text.is_null() {
        return Err(Failure::usage(format!("{what} is NULL")));
    }
    // SAFETY: as the function's own contract says.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().map_err(|_| Failure::usage(format!("{what} is not UTF-8 text")))
}

/// The object at `at`.
///
/// # Safety
/// `at` is null, or an object of this library that is not freed during the call.
pub(crate) unsafe fn object<'a, T>(at: *const T, what: &str) -> Result<&'a T, Failure> {
    // SAFETY: as the function's own contract says.
    unsafe { at.as_ref() }.ok_or_else(|| Failure::usage(format!("the {what} is NULL")))
}

/// Frees an object.
///
/// # Safety
/// `at` is null, or an object of this library that nobody uses any more.
pub(crate) unsafe fn free<T>(at: *mut T) {
    if !at.is_null() {
        // SAFETY: the object was made by `Box::into_raw`, and is freed once, as the contract says.
        drop(unsafe { Box::from_raw(at) });
    }
}

/// Runs `f`. If it fails or panics, the code of the error is returned, and the error is put where `error` points.
///
/// # Safety
/// `error` is null, or points to memory for a pointer.
pub(crate) unsafe fn guarded<T>(error: *mut *mut WeftError, f: impl FnOnce() -> Result<T, Failure>) -> Result<T, Code> {
    let caught = catch_unwind(AssertUnwindSafe(f)).unwrap_or_else(|payload| {
        let text = payload.downcast_ref::<String>().map(String::as_str).or(payload.downcast_ref::<&str>().copied());
        let message = format!("internal error: {}", text.unwrap_or("unknown"));
        Err(Failure::new(Code::Bug, message).help("please report this with the model and the call"))
    });
    caught.map_err(|Failure(a)| {
        if !error.is_null() {
            let [place, help] = [a.place, a.help].map(|t| t.map(|t| c_text(&t)));
            let made = Box::new(WeftError { code: a.code, message: c_text(&a.message), place, help });
            // SAFETY: `error` points to memory for a pointer, as the contract says.
            unsafe { error.write(Box::into_raw(made)) };
        }
        a.code
    })
}

/// The kind of an error; `WEFT_OK` of none.
///
/// # Safety
/// `error` is null, or an error of this library that is not freed during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weft_error_code(error: *const WeftError) -> WeftCode {
    // SAFETY: as the contract says.
    unsafe { error.as_ref() }.map_or(WEFT_OK, |e| e.code as WeftCode)
}

/// What is wrong.
///
/// # Safety
/// As [`weft_error_code`]; the text lives as long as the error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weft_error_message(error: *const WeftError) -> *const c_char {
    // SAFETY: as the contract says.
    unsafe { error.as_ref() }.map_or(null(), |e| e.message.as_ptr())
}

/// Where, or null.
///
/// # Safety
/// As [`weft_error_message`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weft_error_place(error: *const WeftError) -> *const c_char {
    // SAFETY: as the contract says.
    unsafe { error.as_ref() }.and_then(|e| e.place.as_ref()).map_or(null(), |t| t.as_ptr())
}

/// What to do, or null.
///
/// # Safety
/// As [`weft_error_message`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weft_error_help(error: *const WeftError) -> *const c_char {
    // SAFETY: as the contract says.
    unsafe { error.as_ref() }.and_then(|e| e.help.as_ref()).map_or(null(), |t| t.as_ptr())
}

/// Frees an error.
///
/// # Safety
/// `error` is null, or an error of this library that nobody uses any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weft_error_free(error: *mut WeftError) {
    // SAFETY: as the contract says.
    unsafe { free(error) }
}
