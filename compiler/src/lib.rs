//! Weft's compiler: graph IR, ops, passes, tensor IR, schedules, the CPU executor, ONNX in and out, the compile trace.
//!
//! Knows no wgpu, no files, no environment and no clock: what it needs from outside comes through traits
//! ([`tensor::DataSource`] and those of the compile driver).

pub mod agreement;
pub mod arena;
pub mod attr;
mod bare;
pub mod calibrate;
pub mod check;
pub mod compile;
pub mod cost;
pub mod cpu;
pub mod dtype;
pub mod fault;
pub mod fingerprint;
pub mod graph;
pub mod inspect;
pub mod int;
pub mod lowering;
pub mod name;
pub mod onnx;
pub mod ops;
pub mod passes;
pub mod pattern;
pub mod plan;
pub mod profile;
pub mod registry;
pub mod remark;
pub mod report;
pub mod schedule;
pub mod te;
pub mod tensor;
pub mod tensor_type;
pub mod text;
pub mod tir;
pub mod trace;
pub mod traffic;
pub mod verify;

/// The code of docs/add-a-pass.md, as a test.
#[cfg(doctest)]
#[doc = include_str!("../../docs/add-a-pass.md")]
struct AddAPass;
