//! The native module of the Python package `weft_nn`: loads, compiles and runs networks by the library `weft`.
//!
//! Compilations and runs release Python's lock, and end on Ctrl-C (`interrupt`). Errors become `weft_nn.Error` with
//! code, place and help (`errors`); arrays are shared with tensors where their memory allows it (`arrays`). Passes,
//! host functions, external targets and importers in Python are called with the lock (`passes`, `host`, `targets`,
//! `importers`); what they raise is raised again.

mod arrays;
mod attributes;
mod command;
mod compile;
mod device_tensor;
mod edit;
mod errors;
mod forms;
mod given;
mod graph;
mod host;
mod importers;
mod interrupt;
mod json;
mod matches;
mod model;
mod nodes;
mod passes;
mod ports;
mod reference;
mod region;
mod schedules;
mod session;
mod targets;
mod tools;
mod trace;

use pyo3::prelude::*;

/// The native part of `weft_nn`.
#[pymodule]
mod _native {
    #[pymodule_export]
    use crate::command::command;
    #[pymodule_export]
    use crate::compile::compile;
    #[pymodule_export]
    use crate::compile::devices;
    #[pymodule_export]
    use crate::device_tensor::DeviceTensor;
    #[pymodule_export]
    use crate::forms::NodeForm;
    #[pymodule_export]
    use crate::forms::TensorForm;
    #[pymodule_export]
    use crate::graph::Module;
    #[pymodule_export]
    use crate::importers::add_importer;
    #[pymodule_export]
    use crate::interrupt::leave;
    #[pymodule_export]
    use crate::matches::Match;
    #[pymodule_export]
    use crate::model::Model;
    #[pymodule_export]
    use crate::model::load;
    #[pymodule_export]
    use crate::model::metadata;
    #[pymodule_export]
    use crate::nodes::Node;
    #[pymodule_export]
    use crate::nodes::Value;
    #[pymodule_export]
    use crate::ports::Port;
    #[pymodule_export]
    use crate::region::Region;
    #[pymodule_export]
    use crate::schedules::Kernel;
    #[pymodule_export]
    use crate::session::Session;
    #[pymodule_export]
    use crate::targets::add_target;
    #[pymodule_export]
    use crate::tools::bisect;
    #[pymodule_export]
    use crate::tools::tune;
    #[pymodule_export]
    use crate::tools::version;
    #[pymodule_export]
    use crate::trace::Trace;

    /// True for a build without optimisation.
    #[pymodule_export]
    const DEBUG: bool = cfg!(debug_assertions);
}
