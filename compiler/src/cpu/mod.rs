//! The CPU executor: the oracle that everything else is compared with, and the device of last resort.
//!
//! - [`run_function`] and [`Interpreter`] run graph functions node by node, at concrete shapes.
//! - [`eval_node`] runs one op; constant folding calls it. [`eval_expression`] runs just its tensor expression.
//! - [`HostFunctions`] are what `call_host` nodes call.
//! - [`run_tensor_function`] runs the stages of an unscheduled tensor function with vectors and threads.
//! - [`run_scheduled`] interprets any tensor function, scheduled or not, in lockstep and with every access checked.
//!
//! Always holds: an op's meaning comes from its tensor expression (or its host evaluation), never from a second
//! implementation here; contractions differ only in the order of their sum.
//!
//! Deliberately absent: approximations, a thread pool of its own, files and clocks.

mod bind;
mod closures;
mod graph;
mod host_functions;
mod lockstep;
mod node;
mod ranges;
mod scalar;
mod stage;

pub(crate) use graph::collect_uses;
pub use graph::{ExecError, Interpreter, MAX_CALL_DEPTH, peak_bytes, run_function};
pub use host_functions::HostFunctions;
pub(crate) use lockstep::sample_kernels;
pub use lockstep::{run_scheduled, run_scheduled_on_subgroups, run_scheduled_with};
pub use node::{eval_expression, eval_node};
pub use ranges::NodeOutOfRange;
pub use stage::{run_tensor_function, run_tensor_function_with};
