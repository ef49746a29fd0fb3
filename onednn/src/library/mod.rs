//! oneDNN's C interface, versions 2 and 3, loaded at run time: the only `unsafe` code of this crate.
//!
//! In version 2 descriptors are structs that the caller keeps; in version 3 they are handles, and the numbers of
//! algorithms moved. Pointers to descriptors are passed in both, so most functions have one form. What the library
//! gives is kept in types that free it, each with the library it came from.

mod call;
mod loaded;
mod memories;
mod numbers;
mod others;
mod primitives;

pub use loaded::{Descriptor, Library};
pub use memories::Memories;
pub use numbers::{binary_number, eltwise_number};
pub use primitives::{Pool, Post, Primitive, Tensors, Window};

/// Numbers of the arguments of a primitive.
pub mod argument {
    /// Data; where a reorder reads.
    pub const SOURCE: i32 = 1;
    /// The result.
    pub const DESTINATION: i32 = 17;
    /// Weights.
    pub const WEIGHTS: i32 = 33;
    /// Bias.
    pub const BIAS: i32 = 41;
    /// The second operand of a function of two.
    pub const SECOND: i32 = 2;
    /// Mean and variance of a batch norm, its scale and its shift.
    pub const STATISTICS: [i32; 4] = [49, 50, 51, 52];
    /// The `i`-th operand of a concatenation.
    pub fn multiple(i: usize) -> i32 {
        1024 + i as i32
    }
    /// The operand of the `i`-th post-op in a version of the library.
    pub fn post_op(i: usize, major: i32) -> i32 {
        let base = if major >= 3 { 32768 } else { 16384 };
        (base * (i as i32 + 1)) | SECOND
    }
}
