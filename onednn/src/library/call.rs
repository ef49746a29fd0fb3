//! Calls of the library's functions by name.

use std::ffi::{c_int, c_void};

pub(super) type Handle = *mut c_void;
pub(super) type Status = c_int;

/// The number of the element type.
pub(super) const F32: c_int = 3;

/// Calls a function of the library by name: `call!(library, "dnnl_stream_wait", (stream: Handle) -> Status)`.
macro_rules! call {
    ($library:expr, $name:literal, ($($value:expr => $ty:ty),* $(,)?) -> $result:ty) => {{
        // SAFETY: the signature is the one that oneDNN's header of this version declares.
        let found = unsafe { $library.get::<unsafe extern "C" fn($($ty),*) -> $result>(concat!($name, "\0").as_bytes()) };
        match found {
            // SAFETY: handles come from the library; pointers live until the call returns.
            Ok(f) => Ok(unsafe { f($($value),*) }),
            Err(e) => Err(format!("oneDNN has no {}: {e}", $name)),
        }
    }};
}
pub(super) use call;

/// An error of the library in words.
pub(super) fn done(what: &str, status: Result<Status, String>) -> Result<(), String> {
    match status? {
        0 => Ok(()),
        1 => Err(format!("oneDNN has no memory for {what}")),
        3 => Err(format!("oneDNN does not implement {what}")),
        other => Err(format!("oneDNN refuses {what} (status {other})")),
    }
}
