//! The verifier of tensor functions. A function that it refuses is always a bug of the pass (or the text) that made it.
//! It runs after every pass in debug builds.
//!
//! Checked for a tensor function:
//! - parameters: distinct global buffers, reads before writes, reads are never stored to;
//! - buffers: distinct names, positive extents, encodings that suit the dtype and only on global buffers, subgroup
//!   buffers with a lane dimension and a power of two of lanes;
//! - symbols: distinct, not empty ranges;
//! - loops: distinct variables, positive extents, axes x, y or z, vectorised ones of 2, 3 or 4 iterations;
//! - blocks: distinct names; index expressions use only variables in scope, and as many indices as the buffer has
//!   dimensions; loads inside index expressions are of integers; divisors are positive;
//! - values: operands of one dtype, conditions are bool, and the stored value has the buffer's dtype;
//! - stores to subgroup buffers use the loop bound to `local_x` along the lane dimension;
//! - kernels stand at the top level only, with distinct names; a buffer that is not global is used in one kernel,
//!   outside of kernels in one nest;
//! - a reduction that sets its identity itself has no condition that may skip the first iteration of its loops;
//! - loops over lanes and operations on matrices are inside loops over subgroups, and not inside loops over threads;
//!   the nest of an operation is that of its intrinsic; in kernels, only operations access fragments;
//! - updates: a write parameter, and a read parameter of its form that is in no other update;
//! - prepacks: a read parameter, packed by a valid function with one read and one write parameter of its shape.
//!
//! Not checked here: that accesses are in bounds, that results are written completely, and that threads do not race
//! ([`check`](crate::check) proves these for functions from files); that index arithmetic does not overflow (proved
//! when kernels are emitted).

mod error;
mod subgroups;
mod tensor;

pub use error::VerifyError;

use crate::tir::TensorFunction;

/// Checks one tensor function.
///
/// # Errors
/// Every broken rule.
pub fn verify_tensor_function(f: &TensorFunction) -> Result<(), Vec<VerifyError>> {
    let mut errors = Vec::new();
    tensor::verify(f, &mut errors);
    if errors.is_empty() { Ok(()) } else { Err(errors) }
}

#[cfg(test)]
mod tests;
