//! Weft's compiler: graph IR, ops, passes, the interpreter of graphs, ONNX in and out, compilation and its trace.
//!
//! Tensor IR and everything about it is the crate `tensor_ir`. Its modules are exported here under their names;
//! [`interpreter`], [`text`] and [`verify`] add to those of the same name.
//!
//! Knows no wgpu, no files, no environment and no clock: what it needs from outside comes through traits
//! ([`tensor::DataSource`] and those of the compile driver).

pub mod agreement;
pub mod calibrate;
pub mod compile;
pub mod cost;
pub mod external;
pub mod graph;
pub mod inspect;
pub mod interpreter;
pub mod lowering;
pub mod onnx;
pub mod ops;
pub mod passes;
pub mod pattern;
pub mod profile_file;
pub mod remark;
pub mod report;
pub mod text;
pub mod trace;
pub mod verify;

pub use tensor_ir::{
    arena, attr, attr_enum, attr_struct, bare, candidate, check, define_id, dtype, fault, fingerprint, int, name, plan,
    profile, recent, registry, schedule, te, tensor, tensor_type, tir, traffic,
};

/// The code of docs/add-a-pass.md, as a test.
#[cfg(doctest)]
#[doc = include_str!("../../docs/add-a-pass.md")]
struct AddAPass;
