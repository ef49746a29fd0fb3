//! The ways into Weft: a file for each.

pub mod model;
pub mod npz;
pub mod onnx;
pub mod schedule;
pub mod text;
pub mod trace;
