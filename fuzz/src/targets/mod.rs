//! The entry points of Weft that are fuzzed. A new one needs a file, its `mod` line and its row in [`TARGETS`].

pub mod model;
pub mod npz;
pub mod onnx;
pub mod schedule;
pub mod text;
pub mod trace;

use crate::target::Target;

/// Every target.
pub static TARGETS: &[Target] = &[onnx::TARGET, text::TARGET, schedule::TARGET, trace::TARGET, npz::TARGET];

/// The target of a name.
pub fn find(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|t| t.name == name)
}
