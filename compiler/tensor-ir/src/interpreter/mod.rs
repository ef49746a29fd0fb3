//! The interpreter of tensor functions. It is the reference for kernels, and it runs them if there is no device.
//!
//! - [`run_tensor_function`] runs the stages of an unscheduled tensor function with vectors and threads.
//! - [`run_scheduled`] interprets any tensor function, scheduled or not, in lockstep and with every access checked.
//!
//! Always holds: both compute the same; contractions differ only in the order of their sum.
//!
//! Deliberately absent: approximations, a thread pool of its own, files and clocks.

mod bind;
mod lockstep;
pub mod scalar;
mod shapes;
mod stage;

pub(crate) use lockstep::sample_kernels;
pub use lockstep::{run_scheduled, run_scheduled_on_subgroups, run_scheduled_with};
pub use stage::{StageKind, execute, run_tensor_function, run_tensor_function_with, stage_kinds};
