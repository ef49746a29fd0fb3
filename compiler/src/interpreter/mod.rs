//! The interpreter of graphs: the reference for everything else, and the executor if there is no device.
//!
//! - [`run_function`] and [`Interpreter`] run graph functions node by node, at concrete shapes.
//! - [`eval_node`] runs one op; constant folding calls it. [`eval_expression`] runs only its tensor expression.
//! - [`HostFunctions`] are the functions that `call_host` nodes call.
//! - Tensor functions run in [`tensor_ir::interpreter`], whose functions are exported here too.
//!
//! Always holds: an op's meaning comes from its tensor expression (or its host evaluation), never from a second
//! implementation here. The interpreter rounds after every op.
//!
//! Deliberately absent: approximations, a thread pool of its own, files and clocks.

mod closures;
mod graph;
mod host_functions;
mod node;
mod ranges;

pub(crate) use graph::collect_uses;
pub use graph::{ExecError, Interpreter, MAX_CALL_DEPTH, peak_bytes, run_function};
use host_functions::HostCalls;
pub use host_functions::HostFunctions;
pub(crate) use host_functions::{declared_results, host_site};
pub use node::{eval_expression, eval_node};
pub use ranges::NodeOutOfRange;
pub use tensor_ir::interpreter::{
    run_scheduled, run_scheduled_on_subgroups, run_scheduled_with, run_tensor_function, run_tensor_function_with,
};
