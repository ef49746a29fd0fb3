//! Weft's tensor IR: tensor functions with their text, verifier, interpreter, proofs, schedules and cost estimate, and
//! the plans that are made of their kernels.
//!
//! This crate knows no graphs, no ops and no passes: `weft-compiler` has those, and depends on this crate. Code
//! generators need this crate alone ([`plan::EmitKernel`]).
//!
//! This crate uses no wgpu, no files, no environment and no clock.

// Tests share a file with other crates, which name this one.
#[cfg(test)]
extern crate self as tensor_ir;

pub mod arena;
pub mod attr;
pub mod bare;
pub mod check;
pub mod dtype;
pub mod fault;
pub mod fingerprint;
pub mod int;
pub mod interpreter;
pub mod name;
pub mod plan;
pub mod profile;
pub mod recent;
pub mod registry;
pub mod schedule;
pub mod te;
pub mod tensor;
pub mod tensor_type;
pub mod text;
pub mod tir;
pub mod traffic;
pub mod verify;
