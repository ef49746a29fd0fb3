//! The native module of the Python package `weft_nn`: loads, compiles and runs networks by the library `weft`.
//!
//! Compilations and runs release Python's lock, and end on Ctrl-C (`interrupt`). Errors become `weft_nn.Error` with
//! code, place and help (`errors`); arrays are shared with tensors where their memory allows it (`arrays`).

mod arrays;
mod compile;
mod errors;
mod interrupt;
mod json;
mod measure;
mod model;
mod session;
mod trace;

use pyo3::prelude::*;

/// The native part of `weft_nn`.
#[pymodule]
mod _native {
    #[pymodule_export]
    use crate::compile::compile;
    #[pymodule_export]
    use crate::compile::devices;
    #[pymodule_export]
    use crate::model::Model;
    #[pymodule_export]
    use crate::model::Port;
    #[pymodule_export]
    use crate::model::load;
    #[pymodule_export]
    use crate::model::metadata;
    #[pymodule_export]
    use crate::session::Session;
    #[pymodule_export]
    use crate::trace::Trace;

    /// True for a build without optimisation.
    #[pymodule_export]
    const DEBUG: bool = cfg!(debug_assertions);
}
