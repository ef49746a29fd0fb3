//! Values of the interpreter: numbers, or fingerprints that identify how a value was computed.

use super::super::scalar::{Num, binary, cast, identity, unary};
use crate::dtype::DType;
use crate::tir::{BinaryOp, Combiner, UnaryOp};
use rustc_hash::FxHasher;
use std::hash::{Hash, Hasher};

/// A value of the interpreter.
pub(super) trait Value: Copy {
    /// A constant or an index.
    fn number(n: Num) -> Self;
    /// `op a`.
    fn unary(op: UnaryOp, dtype: DType, a: Self) -> Self;
    /// `a op b`.
    fn binary(op: BinaryOp, dtype: DType, a: Self, b: Self) -> Self;
    /// A conversion.
    fn cast(from: DType, to: DType, a: Self) -> Self;
    /// A choice whose condition is not known.
    fn either(condition: Self, a: Self, b: Self) -> Self;
    /// The content of memory that nothing was stored to.
    fn untouched(address: Address, dtype: DType, undefined: bool) -> Self;
    /// True when both are certainly one value.
    fn same(self, other: Self) -> bool;
    /// The truth of a condition, where known.
    fn truth(self) -> Option<bool>;
    /// The value as an index.
    fn int(self) -> i64;
    /// False when it was computed from memory that nothing was stored to.
    fn is_defined(self) -> bool;
    /// The identity of a combiner.
    fn identity(c: Combiner, dtype: DType) -> Self {
        Self::number(identity(c, dtype))
    }
}

/// An address in memory: buffer, instance, element.
pub(super) type Address = (usize, usize, usize);

impl Value for Num {
    fn number(n: Num) -> Num {
        n
    }
    fn unary(op: UnaryOp, dtype: DType, a: Num) -> Num {
        unary(op, dtype, a)
    }
    fn binary(op: BinaryOp, dtype: DType, a: Num, b: Num) -> Num {
        binary(op, dtype, a, b)
    }
    fn cast(from: DType, to: DType, a: Num) -> Num {
        cast(from, to, a)
    }
    fn either(condition: Num, a: Num, b: Num) -> Num {
        if Num::truth(condition) { a } else { b }
    }
    /// NaN, or a value that is unlikely to be right.
    fn untouched(_: Address, dtype: DType, _: bool) -> Num {
        if dtype.is_float() { Num::F(f64::NAN) } else { Num::I(dtype.wrap(0x5a)) }
    }
    fn same(self, other: Num) -> bool {
        Num::same(self, other)
    }
    fn truth(self) -> Option<bool> {
        Some(Num::truth(self))
    }
    fn int(self) -> i64 {
        Num::int(self)
    }
    fn is_defined(self) -> bool {
        true
    }
}

/// A hash of how a value was computed, down to the elements of the operands. Integers also have a number; for elements
/// of operands it is invented data.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fingerprint {
    hash: u64,
    known: Option<Num>,
    defined: bool,
}

fn mix(parts: impl Hash) -> u64 {
    let mut h = FxHasher::default();
    parts.hash(&mut h);
    h.finish()
}

impl Fingerprint {
    fn computed(parts: impl Hash, known: Option<Num>, defined: bool) -> Fingerprint {
        Fingerprint { hash: mix(parts), known, defined }
    }
}

impl Value for Fingerprint {
    fn number(n: Num) -> Fingerprint {
        let hash = match n {
            Num::F(x) => mix((0u8, x.to_bits())),
            Num::I(x) => mix((1u8, x)),
        };
        Fingerprint { hash, known: Some(n), defined: true }
    }
    fn unary(op: UnaryOp, dtype: DType, a: Fingerprint) -> Fingerprint {
        Self::computed((2u8, op, dtype, a.hash), a.known.map(|a| unary(op, dtype, a)), a.defined)
    }
    fn binary(op: BinaryOp, dtype: DType, a: Fingerprint, b: Fingerprint) -> Fingerprint {
        let known = a.known.zip(b.known).map(|(a, b)| binary(op, dtype, a, b));
        Self::computed((3u8, op, dtype, a.hash, b.hash), known, a.defined && b.defined)
    }
    fn cast(from: DType, to: DType, a: Fingerprint) -> Fingerprint {
        Self::computed((4u8, to, a.hash), a.known.map(|a| cast(from, to, a)), a.defined)
    }
    fn either(c: Fingerprint, a: Fingerprint, b: Fingerprint) -> Fingerprint {
        Self::computed((5u8, c.hash, a.hash, b.hash), None, c.defined && a.defined && b.defined)
    }
    fn untouched(address: Address, dtype: DType, undefined: bool) -> Fingerprint {
        let hash = mix((6u8, address));
        let known = (!dtype.is_float()).then_some(Num::I((hash % 5) as i64));
        Fingerprint { hash, known, defined: !undefined }
    }
    fn same(self, other: Fingerprint) -> bool {
        self.hash == other.hash
    }
    fn truth(self) -> Option<bool> {
        self.known.map(Num::truth)
    }
    fn int(self) -> i64 {
        self.known.map_or(0, Num::int)
    }
    fn is_defined(self) -> bool {
        self.defined
    }
}
