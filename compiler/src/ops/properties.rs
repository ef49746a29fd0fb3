//! Properties of ops, as values. Everything that a pass has to know about an op is a property of [`Op`](super::Op),
//! defined in the op's file: `commutes`, `is_idempotent`, `is_nonnegative`, `clamp_bounds`, `homogeneity`,
//! `broadcasts`, `weight_channels`, `is_view`, `keeps_elements`, `moves_axes`, `callee`, layouts, precision.
//!
//! Passes name by type only the IR's own ops (`ops/control.rs`), the ops of an equation (`passes/simplify`,
//! `passes/canonicalize_ops`), and the op that the pass is about. A tidy test lists the last (`NAMED_OPS`).

/// How an op decodes its first operand.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Decoding {
    /// Each element becomes a wider one.
    Elements,
    /// Integers of so many bits share elements along the last axis, of whose integers the first `size` count; operand 1
    /// has a scale for each `block` of them, operand 2 a zero point where there are some.
    Blocks {
        /// Bits of an integer.
        bits: i64,
        /// Integers of a block.
        block: i64,
        /// Integers that count along the last axis.
        size: i64,
    },
}

/// How mixed precision treats an op.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Precision {
    /// Gains from f16 operands (convolution, matmul).
    Always,
    /// Runs in the type its operands already have.
    Follow,
    /// Stays in f32 (sums of many terms, exponentials, statistics).
    Never,
}

/// Effects of an op besides its results.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Effects {
    /// Same operands may give other results, or something outside changes: keeps its order, is never merged, folded or
    /// removed.
    pub stateful: bool,
}

/// Homogeneity in operand 0: `f(a x) = a f(x)`, with a factor `a` per element for an elementwise op, or per channel for
/// an op with a data layout.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Homogeneity {
    /// It does not pass through.
    #[default]
    None,
    /// Factors above 0 do (positively homogeneous functions).
    Positive,
    /// Every factor does.
    Full,
}
