//! The tensor-IR interpreter: runs any statement exactly as the conventions of [`crate::tir`] say.
//!
//! Workgroups of a kernel run one after another. Inside a workgroup, each leaf statement is executed for all threads
//! before the next statement; within a statement all threads read before any of them writes. Every index is checked
//! against its buffer, and stores to subgroup buffers are checked against the lane.
//!
//! Anything that is a race on a device is an error here: two threads store different values to one element in one
//! statement, or both reduce into it; a thread reads an element that another one stores in the same statement; a
//! workgroup reads an element that another one of the same kernel stores, or stores a different value there.
//!
//! It is slow and simple on purpose: it is the reference for schedules.

mod code;
mod interpret;
mod launch;
mod machine;
mod memory;
mod sample;
mod value;

use super::bind::bind;
use crate::name::Name;
use crate::tensor::Tensor;
use crate::tir::TensorFunction;
pub(in crate::interpreter) use interpret::interpret;
pub(crate) use sample::sample_kernels;

/// Runs a tensor function, scheduled or not. Operands that have a prepacking are given unpacked; symbols are bound by
/// the operands' shapes. Results are in parameter order.
///
/// # Errors
/// Operands that do not fit; any access out of bounds, with block, buffer and index; a race within one statement.
pub fn run_scheduled(f: &TensorFunction, inputs: &[Tensor]) -> Result<Vec<Tensor>, String> {
    run_scheduled_with(f, &[], inputs)
}

/// [`run_scheduled`] with values for symbols that the operands' shapes do not bind.
///
/// # Errors
/// As [`run_scheduled`].
pub fn run_scheduled_with(
    f: &TensorFunction,
    symbols: &[(Name, i64)],
    inputs: &[Tensor],
) -> Result<Vec<Tensor>, String> {
    bind(f, symbols, inputs)?.run(None)
}

/// [`run_scheduled`] on subgroups of `size` threads. Subgroup i runs task i; with fewer subgroups than tasks, they
/// continue in rounds. Lanes share out loops.
///
/// # Errors
/// As [`run_scheduled`]; workgroups that are no whole number of subgroups.
pub fn run_scheduled_on_subgroups(f: &TensorFunction, inputs: &[Tensor], size: usize) -> Result<Vec<Tensor>, String> {
    bind(f, &[], inputs)?.run(Some(size))
}

#[cfg(test)]
mod tests;
