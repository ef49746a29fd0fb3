//! The C interface of Weft (`include/weft.h`, `docs/c.md`), over the library alone.
//!
//! Objects are boxes that C holds as opaque pointers. Every function catches panics, since none may unwind into C, and
//! returns errors with the code, place and help that the command shows.

mod device_tensor;
mod dlpack;
mod error;
mod functions;
mod measure;
mod model;
mod options;
mod registry;
mod run;
mod session;
mod tensor;

pub use device_tensor::*;
pub use dlpack::*;
pub use error::*;
pub use functions::*;
pub use measure::*;
pub use model::*;
pub use registry::*;
pub use run::*;
pub use session::*;
pub use tensor::*;

/// Weft's version, as text that ends in 0.
#[unsafe(no_mangle)]
pub extern "C" fn weft_version() -> *const std::ffi::c_char {
    const VERSION: &std::ffi::CStr =
        match std::ffi::CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
            Ok(text) => text,
            Err(_) => c"",
        };
    VERSION.as_ptr()
}
