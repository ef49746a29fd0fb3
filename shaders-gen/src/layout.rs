//! Declarations of a kernel's buffers: storage words, vector units, bindings and slices.
//!
//! Memory is a sequence of *units*; a unit is 1, 2 or 4 *words*, and a word holds one element, two halves or four
//! bytes. A buffer has vector units if some aligned run uses them; other accesses then select components. Device
//! buffers are padded to 16 bytes, so the last vector of a flat store may reach into the padding (its condition `flat <
//! numel` is tested for the first lane only).
//!
//! In packed halves (`Encoding::HalfPair`) one thread writes whole words: a flat vectorised store does so, and its tail
//! reaches into the buffer's padding. A tile that ends inside a word (odd rows) is written to f32 memory, and one more
//! kernel packs it.

use crate::access::{Form, local_numel, resolve_form};
use crate::builder::Kind;
use crate::error::EmitError;
use crate::joined::{VECTOR, Vectors, WORDS, joined_halves, joined_words};
use crate::tree::{Leaf, Node};
use rustc_hash::{FxHashMap, FxHashSet};
use tensor_ir::dtype::DType;
use tensor_ir::int::{Facts, Int};
use tensor_ir::name::Name;
use tensor_ir::plan::Binding;
use tensor_ir::profile::DeviceProfile;
use tensor_ir::profile::quirks::MATRICES_OF_SINGLE_ELEMENTS;
use tensor_ir::tir::{Access as Direction, BufferId, Encoding, Scope, TensorFunction};

/// How an element is held in a word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Word {
    F32,
    F16,
    I32,
    U32,
    /// f16 rounded, held as f32 (memory of a device without f16).
    RoundedHalf,
    /// Two f16 in a u32.
    Halves,
    /// The same on a device that has f16: of device memory that is read, and of registers that words are copied to and
    /// from.
    JoinedHalves,
    /// Two bf16 in a u32.
    BrainHalves,
    /// Four bytes in a u32, sign-extended on load or not.
    Bytes {
        signed: bool,
    },
}

impl Word {
    /// Scalar kind of a storage word.
    pub fn kind(self) -> Kind {
        match self {
            Word::F32 | Word::RoundedHalf => Kind::F32,
            Word::F16 => Kind::F16,
            Word::I32 => Kind::I32,
            Word::U32 | Word::Halves | Word::JoinedHalves | Word::BrainHalves | Word::Bytes { .. } => Kind::U32,
        }
    }
    /// Elements of a word.
    pub fn pack(self) -> u32 {
        match self {
            Word::Halves | Word::JoinedHalves | Word::BrainHalves => 2,
            Word::Bytes { .. } => 4,
            _ => 1,
        }
    }
    /// Bytes of a word.
    pub fn bytes(self) -> u32 {
        if self == Word::F16 { 2 } else { 4 }
    }
}

/// The form of one buffer.
#[derive(Clone, Debug)]
pub(crate) struct StorageLayout {
    pub word: Word,
    /// Words of a unit: 1, 2 or 4.
    pub width: u32,
    /// Elements, where the shape is constant.
    pub numel: Option<u64>,
    /// Every unit index is a constant.
    pub constant: bool,
    /// Read by this kernel.
    pub read: bool,
    /// Written by this kernel.
    pub written: bool,
    /// Number of slices and elements of each; one slice unless the buffer is beyond a binding.
    pub slices: u32,
    pub slice_elements: u64,
}

impl StorageLayout {
    /// Elements of a unit.
    pub fn unit(&self) -> i64 {
        i64::from(self.width * self.word.pack())
    }
    /// Units, where the shape is constant.
    pub fn units(&self) -> Option<u64> {
        self.numel.map(|n| n.div_ceil(self.unit().unsigned_abs()))
    }
}

/// The kernel's accesses to one buffer.
#[derive(Default, Debug)]
struct Usage {
    runs: FxHashSet<u8>,
    /// Where vectors of four begin.
    vectors: FxHashSet<Int>,
    bases: Vec<Int>,
    read: bool,
    written: bool,
    /// Matrices of subgroups are loaded from it or stored to it.
    matrices: bool,
}

/// The layouts of all buffers that a kernel uses.
pub(crate) fn plan_layouts(
    f: &TensorFunction,
    root: &Node,
    profile: &DeviceProfile,
    ranges: &mut Facts,
) -> Result<FxHashMap<BufferId, StorageLayout>, EmitError> {
    let mut usage: FxHashMap<BufferId, Usage> = FxHashMap::default();
    // An operand is in the memory of the result that this kernel updates it to.
    let mut stored = FxHashSet::default();
    root.visit_leaves(&mut |leaf| {
        stored.insert(leaf.buffer);
    });
    let memory = |b: BufferId| Some(f.memory_of(b)).filter(|m| stored.contains(m)).unwrap_or(b);
    let mut seen: FxHashSet<(BufferId, Vec<Int>, Option<Name>)> = FxHashSet::default();
    root.visit_leaves(&mut |leaf| {
        let mut note = |b: BufferId, ix: &[Int]| {
            let lane = leaf.lane.filter(|l| ix.iter().any(|i| i.uses(l.var)));
            if seen.insert((b, ix.to_vec(), lane.map(|l| l.var))) {
                note_access(f, usage.entry(memory(b)).or_default(), b, ix, leaf, ranges);
            }
        };
        leaf.visit_loads(&mut note);
        note(leaf.buffer, &leaf.indices);
        leaf.visit_loads(&mut |b, _| usage.entry(memory(b)).or_default().read = true);
        let target = usage.entry(leaf.buffer).or_default();
        target.written = true;
        target.read |= leaf.combiner.is_some();
    });
    let of_vectors = |u: &Usage| !u.matrices && !u.vectors.is_empty() && u.bases.iter().all(|i| u.vectors.contains(i));
    let vectors =
        usage.iter().filter(|(_, u)| of_vectors(u)).map(|(b, u)| (*b, Vectors { of: &u.vectors, written: u.written }));
    let vectors = vectors.collect();
    let joined = joined_halves(f, root, profile, &vectors, ranges);
    let words = joined_words(f, root, &vectors, ranges);
    let mut layouts = FxHashMap::default();
    for (b, u) in usage {
        let mut layout = plan_layout(f, b, &u, profile, joined.get(&b).copied())?;
        if u.matrices && profile.quirks.has(&MATRICES_OF_SINGLE_ELEMENTS) {
            layout.width = 1;
        }
        if words.contains(&b) {
            layout.width = WORDS as u32;
        }
        layouts.insert(b, layout);
    }
    for u in &f.updates {
        if let (Some(of), Some(layout)) = (u.of.filter(|b| memory(*b) != *b), layouts.get(&u.result)) {
            layouts.insert(of, layout.clone());
        }
    }
    Ok(layouts)
}

fn note_access(f: &TensorFunction, u: &mut Usage, b: BufferId, indices: &[Int], leaf: &Leaf, ranges: &mut Facts) {
    u.matrices |= !leaf.tensor.is_empty();
    if matches!(f.buffers[b].scope, Scope::Fragment(_)) {
        return;
    }
    // A packed word is read as a whole.
    let whole = |i: &Int| leaf.tensor.iter().fold(i.clone(), |i, (v, _)| i.substitute(*v, &Int::new(0)));
    let indices: Vec<Int> = match f.buffers[b].encoding {
        Encoding::ByteQuad => indices.iter().map(whole).collect(),
        _ => indices.to_vec(),
    };
    match resolve_form(&f.buffers[b], &indices, leaf.lane, ranges) {
        Form::One(i) => u.bases.push(i),
        Form::Run { base, count, align } => {
            if align >= i64::from(count) {
                u.runs.insert(count);
                if i64::from(count) == VECTOR {
                    u.vectors.insert(base.clone());
                }
            } else {
                u.bases.extend((0..i64::from(count)).map(|v| ranges.simplify(&(base.clone() + v))));
            }
            u.bases.push(base);
        }
        Form::Each(list) => u.bases.extend(list),
    }
}

fn plan_layout(
    f: &TensorFunction,
    b: BufferId,
    u: &Usage,
    profile: &DeviceProfile,
    joined: Option<u32>,
) -> Result<StorageLayout, EmitError> {
    let buffer = &f.buffers[b];
    let word = word_of(buffer.dtype, buffer.encoding, buffer.scope, profile)
        .map_err(|why| EmitError::unsupported(format!("buffer `{}`: {why}", buffer.name)))?;
    let word = if joined.is_some() { Word::JoinedHalves } else { word };
    let elements = match (u.runs.contains(&4), u.runs.contains(&2)) {
        _ if joined.is_some() => joined.unwrap_or(0),
        (true, _) => 4,
        (_, true) => 2,
        _ => 1,
    };
    let width = (elements / word.pack()).max(1);
    let numel = match buffer.scope {
        Scope::Global => buffer.numel().as_const().and_then(|n| u64::try_from(n).ok()),
        _ => Some(u64::from(local_numel(buffer)?)),
    };
    let constant = u.bases.iter().all(|i| i.as_const().is_some());
    let (read, written) = (u.read, u.written);
    let mut layout = StorageLayout { word, width, numel, constant, read, written, slices: 1, slice_elements: u64::MAX };
    if buffer.scope == Scope::Global
        && let Some(n) = numel
    {
        let bytes = buffer.encoding.storage_bytes(buffer.dtype, n);
        if bytes > profile.max_binding {
            layout.slice_elements = profile.slice_bytes() * 8 / u64::from(buffer.encoding.element_bits(buffer.dtype));
            layout.slices = profile.bindings_for(bytes);
        }
    }
    Ok(layout)
}

/// The word that holds an element.
fn word_of(dtype: DType, encoding: Encoding, scope: Scope, profile: &DeviceProfile) -> Result<Word, String> {
    let global = scope == Scope::Global;
    match encoding {
        Encoding::HalfPair if global => match dtype {
            DType::F16 => return Ok(Word::Halves),
            DType::BF16 => return Ok(Word::BrainHalves),
            _ => return Err(format!("{dtype} cannot be stored in pairs of halves")),
        },
        Encoding::ByteQuad => match dtype {
            DType::U8 | DType::Bool => return Ok(Word::Bytes { signed: false }),
            DType::I8 => return Ok(Word::Bytes { signed: true }),
            _ => return Err(format!("{dtype} cannot be stored in bytes")),
        },
        _ => {}
    }
    match dtype {
        DType::F32 => Ok(Word::F32),
        DType::F16 if profile.f16 => Ok(Word::F16),
        DType::F16 if !global => Ok(Word::RoundedHalf),
        DType::F16 => Err("the device has no f16; it needs the half-pair encoding".into()),
        DType::BF16 if !global => Ok(Word::F32),
        DType::BF16 => Err("bf16 has no native shader type; it needs the half-pair encoding".into()),
        DType::Bool | DType::U8 | DType::U16 | DType::U32 => Ok(Word::U32),
        DType::I8 | DType::I16 | DType::I32 => Ok(Word::I32),
        DType::I64 | DType::U64 if !global || encoding == Encoding::Narrow => Ok(Word::I32),
        DType::I64 | DType::U64 => Err(format!("{dtype} needs the narrow encoding")),
        DType::F64 => Err("f64 has no shader type".into()),
    }
}

/// The bindings of a kernel: parameters in order, then scratch, each with its slices. An operand that the kernel
/// updates is bound as the result.
pub(crate) fn plan_bindings(f: &TensorFunction, layouts: &FxHashMap<BufferId, StorageLayout>) -> Vec<Binding> {
    let params = f.params.iter().map(|p| p.buffer);
    let scratch = f.buffers.ids().filter(|b| !f.params.iter().any(|p| p.buffer == *b));
    let mut out = Vec::new();
    for b in params.chain(scratch) {
        let Some(layout) = layouts.get(&b).filter(|_| f.buffers[b].scope == Scope::Global) else { continue };
        let memory = f.memory_of(b);
        if memory != b && layouts.get(&memory).is_some_and(|l| l.written) {
            continue;
        }
        let access = if layout.written { Direction::Write } else { Direction::Read };
        out.extend((0..layout.slices).map(|slice| Binding { buffer: b, slice, access }));
    }
    out
}
