//! Elements of packed words, and buffers of halves that are declared as words on devices with f16.
//!
//! Memory whose words of bytes are copied by sixteen neighbours at a time is declared in vectors of four words: a copy
//! is then one load. Compilers join single words only where they see how these are aligned.
//!
//! Some drivers' compilers join neighbouring loads of words, but not of halves. If a driver's compiler recognises the
//! way that halves are taken from words (`DeviceProfile::half_words`), such memory is declared as 32-bit words: Mesa
//! for NVIDIA recognises 16-bit integers; Mesa for AMD and Intel removes a conversion to f32 and back. Elements that
//! are only copied are then copied as words, also under conditions (`words.rs`).

use crate::access::{Form, resolve_form};
use crate::lanes::Lane;
use crate::tree::{Leaf, Node};
use rustc_hash::{FxHashMap, FxHashSet};
use tensor_ir::dtype::DType;
use tensor_ir::int::{Facts, Int, divisor};
use tensor_ir::profile::{DeviceProfile, HalfWords};
use tensor_ir::tir::{BufferId, Encoding, Expr, Scalar, Scope, TensorFunction};

/// Lanes of a leaf that copies words: the bytes of one, or the halves of two.
pub(crate) const LANES: u8 = 4;
/// Elements of a vector.
pub(crate) const VECTOR: i64 = LANES as i64;
/// Words of the widest load.
pub(crate) const WORDS: i64 = 4;

/// A buffer that is accessed by whole vectors alone.
pub(crate) struct Vectors<'u> {
    /// Where they begin.
    pub of: &'u FxHashSet<Int>,
    pub written: bool,
}

impl Vectors<'_> {
    /// All come in groups of `size`, each group from a multiple of its elements on.
    fn are_groups(&self, size: i64, ranges: &mut Facts) -> bool {
        self.of.iter().all(|i| {
            let mut at = |place: i64| ranges.simplify(&(i.clone() + place * VECTOR));
            let first = (0..size).map(|n| at(-n)).find(|first| divisor(first) % (size * VECTOR) == 0);
            first.is_some_and(|f| (0..size).all(|n| self.of.contains(&ranges.simplify(&(f.clone() + n * VECTOR)))))
        })
    }
}

/// Buffers of bytes that are read by copies of words alone, sixteen neighbours at a time.
pub(crate) fn joined_words(
    f: &TensorFunction,
    root: &Node,
    vectors: &FxHashMap<BufferId, Vectors<'_>>,
    ranges: &mut Facts,
) -> FxHashSet<BufferId> {
    let packed = |b: BufferId| f.buffers[b].encoding == Encoding::ByteQuad;
    let memory = |b: &BufferId| f.buffers[*b].scope == Scope::Global && packed(*b);
    let (mut copied, mut read) = (FxHashSet::default(), FxHashSet::default());
    root.visit_leaves(&mut |leaf| {
        let copies = packed(leaf.buffer) && is_copy_of_words(f, leaf, f.buffers[leaf.buffer].dtype, &packed, ranges);
        leaf.visit_loads(&mut |b, _| {
            if copies {
                copied.insert(b)
            } else {
                read.insert(b)
            };
        });
    });
    copied.retain(|b| memory(b) && !read.contains(b));
    copied.retain(|b| vectors.get(b).is_some_and(|v| !v.written && v.are_groups(WORDS, ranges)));
    copied
}

/// The buffers of halves that are declared as words, with the elements of a unit. With
/// [`HalfWords::Integers`](tensor_ir::profile::HalfWords::Integers): device memory that is read by vectors of eight,
/// which then are one load. Otherwise: device memory that is copied, and the registers of such copies, so that halves
/// that are stored together are not separated.
pub(crate) fn joined_halves(
    f: &TensorFunction,
    root: &Node,
    profile: &DeviceProfile,
    vectors: &FxHashMap<BufferId, Vectors<'_>>,
    ranges: &mut Facts,
) -> FxHashMap<BufferId, u32> {
    let mut joined = FxHashMap::default();
    let Some(way) = profile.half_words() else { return joined };
    let halves = |b: BufferId, scope: Scope| {
        let buffer = &f.buffers[b];
        let native = buffer.dtype == DType::F16 && buffer.encoding == Encoding::Native && buffer.scope == scope;
        vectors.get(&b).filter(|_| native)
    };
    let memory = |b: BufferId| halves(b, Scope::Global).filter(|v| !v.written);
    let unit = |v: &Vectors<'_>, ranges: &mut Facts| VECTOR as u32 * if v.are_groups(2, ranges) { 2 } else { 1 };
    if way == HalfWords::Integers {
        joined.extend(vectors.keys().filter_map(|b| Some((*b, unit(memory(*b)?, ranges)))));
        joined.retain(|_, unit| i64::from(*unit) > VECTOR);
        return joined;
    }
    let mut leaves = Vec::new();
    root.visit_leaves(&mut |leaf| leaves.push(leaf));
    let mut copied = FxHashSet::default();
    let mut registers: FxHashMap<BufferId, bool> = FxHashMap::default();
    for leaf in leaves {
        let copies = is_copy_of_halves(f, leaf, &|b| memory(b).is_some(), ranges);
        if f.buffers[leaf.buffer].scope == Scope::Register {
            let held = registers.entry(leaf.buffer).or_insert_with(|| halves(leaf.buffer, Scope::Register).is_some());
            *held &= copies;
        }
        if copies {
            copied.extend(leaf.value.loads().iter().map(|l| l.0));
        }
    }
    joined.extend(registers.into_iter().filter(|r| r.1).map(|(b, _)| (b, VECTOR as u32)));
    joined.extend(copied.into_iter().filter_map(|b| Some((b, unit(memory(b)?, ranges)))));
    joined
}

/// The word whose lanes are all this constant.
pub(crate) fn word_of_constant(s: Scalar, t: DType) -> Option<u32> {
    match (s, t) {
        (Scalar::Float(v), DType::F16) => Some(u32::from(::half::f16::from_f64(v).to_bits()) * 0x1_0001),
        (Scalar::Int(v), DType::I8 | DType::U8 | DType::Bool) => Some(u32::from_le_bytes([v as u8; 4])),
        _ => None,
    }
}

/// True if the lanes of a value of type `t` come from words of `packed` buffers, from a select of two such values, or
/// from constants.
pub(crate) fn is_of_words(
    f: &TensorFunction,
    e: &Expr,
    (lane, t): (Lane, DType),
    packed: &dyn Fn(BufferId) -> bool,
    ranges: &mut Facts,
) -> bool {
    match e {
        Expr::Const(s, own) => *own == t && word_of_constant(*s, t).is_some(),
        Expr::Load(b, ix) => packed(*b) && f.buffers[*b].dtype == t && is_whole(f, *b, ix, lane, ranges),
        Expr::Select(c, a, b) => {
            let mut differs = false;
            c.visit_ints(&mut |i| differs |= i.uses(lane.var));
            let alike = !differs && c.loads().is_empty();
            alike && is_of_words(f, a, (lane, t), packed, ranges) && is_of_words(f, b, (lane, t), packed, ranges)
        }
        _ => false,
    }
}

/// The lanes are neighbours from a word's first on.
fn is_whole(f: &TensorFunction, b: BufferId, ix: &[Int], lane: Lane, ranges: &mut Facts) -> bool {
    let form = resolve_form(&f.buffers[b], ix, Some(lane), ranges);
    matches!(form, Form::Run { count: LANES, align, .. } if align >= i64::from(LANES))
}

/// True when a leaf copies vectors of halves, from `memory` alone, to whole vectors.
fn is_copy_of_halves(f: &TensorFunction, leaf: &Leaf, memory: &dyn Fn(BufferId) -> bool, ranges: &mut Facts) -> bool {
    is_copy_of_words(f, leaf, DType::F16, memory, ranges)
}

/// The same for elements of type `t`.
fn is_copy_of_words(
    f: &TensorFunction,
    leaf: &Leaf,
    t: DType,
    memory: &dyn Fn(BufferId) -> bool,
    ranges: &mut Facts,
) -> bool {
    let Some(lane) = leaf.lane.filter(|_| leaf.combiner.is_none() && leaf.tensor.is_empty() && !leaf.across) else {
        return false;
    };
    !leaf.value.loads().is_empty()
        && f.buffers[leaf.buffer].dtype == t
        && is_whole(f, leaf.buffer, &leaf.indices, lane, ranges)
        && is_of_words(f, &leaf.value, (lane, t), memory, ranges)
}
