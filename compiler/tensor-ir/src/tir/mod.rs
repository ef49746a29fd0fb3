//! Tensor IR: one tensor function is a few blocks of loops over buffers.
//!
//! A [`TensorFunction`] starts as a sequence of perfect loop nests, one per *stage*: `compute` (a block that stores a
//! value) or `reduce` (a block that combines a value into its element). Schedule instructions rewrite the nests; the
//! result is a sequence of [`Stmt::Kernel`]s, each lowered to one shader. Unlike TVM's, blocks use loop variables
//! directly.
//!
//! Conventions that always hold:
//! - Loop variables are unique in a function, loops start at 0 and step by 1.
//! - A block's *reduction loops* are the enclosing loops whose variable its store indices do not use; for a buffer that
//!   is not global, only loops inside the innermost one that holds all accesses of the buffer count, since outer loops
//!   repeat the buffer's whole life ([`TensorFunction::reduction_loops`]). A reduce block with `init: true` sets the
//!   element to the combiner's identity when every reduction loop is at 0.
//! - [`Expr::Select`] is lazy: only the chosen side is evaluated, so a load is in bounds when its condition says so.
//! - Loops bound to a thread or group axis run in parallel. Two loops bound to the same axis share the index; threads
//!   beyond the end of a shorter loop skip it. Statements of a workgroup run in lockstep: each statement sees the
//!   writes of the one before to shared memory and subgroup buffers.
//! - Indices are in elements of the buffer's logical shape; the physical order is row-major.
//!
//! Deliberately absent: pointers, aliasing between parameters, while loops, recursion.

pub mod analysis;
mod block;
pub mod canonical;
mod combiner;
mod expr;
mod fingerprint;
mod functions;
mod instruction;
pub mod intrinsic;
mod open;
pub mod operations;
mod param;
mod plain;
mod print_loops;
mod provenance;
mod rows;
mod update;
pub use crate::arena::BufferId;
pub use crate::int::{Cond, CondOp};
pub use analysis::FusionKind;
pub use combiner::Combiner;
pub use expr::{Expr, Scalar};
pub use functions::{BinaryOp, Domain, Real, UnaryOp, WithBinary, WithUnary, Work};
pub use instruction::{InstrRef, Instruction, Refusal};
pub use intrinsic::MatrixRole;
pub use param::{Access, Param, Update};
pub use print_loops::print_loops;
pub use provenance::{Provenance, StageSet};

use crate::dtype::DType;
use crate::int::{Bounds, Int, print::number};
use crate::name::Name;
use crate::{arena::Arena, bare};

/// Where a buffer lives.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, serde::Serialize, serde::Deserialize)]
pub enum Scope {
    /// Device memory: parameters and scratch between kernels.
    Global,
    /// Workgroup memory.
    Shared,
    /// Private to a thread.
    Register,
    /// Distributed over the lanes of a subgroup (TVM's "warp" scope): element `i` along dimension `lane_dim` is held by
    /// lane `i % size`. A lane stores only its own elements; loads may name any element and become broadcasts (constant
    /// lane) or shuffles. A buffer that only [`LoopKind::Combine`] loops read may be distributed over all threads along
    /// x, in any number of subgroups.
    Subgroup {
        /// The dimension that is distributed.
        lane_dim: u32,
        /// Lanes of the subgroup.
        size: u32,
    },
    /// Matrices of a subgroup (the last two dimensions), whose elements the device distributes over the lanes. Only
    /// nests of [`LoopKind::Tensor`] loops access it.
    Fragment(MatrixRole),
}

/// How elements are stored in a global buffer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, serde::Serialize, serde::Deserialize)]
pub enum Encoding {
    /// The shader type of the same name (f32, i32, u32; f16 if the device has it).
    #[default]
    Native,
    /// Two f16 in a u32.
    HalfPair,
    /// Four 8-bit values (u8, i8, bool) in a u32.
    ByteQuad,
    /// i64 or u64 whose values are proved to fit, as i32.
    Narrow,
}

impl Encoding {
    /// Bits of one element of `dtype` in device memory. Native small integers and bools take a whole 32-bit word.
    pub fn element_bits(self, dtype: DType) -> u32 {
        match self {
            Encoding::HalfPair => 16,
            Encoding::ByteQuad => 8,
            Encoding::Narrow => 32,
            Encoding::Native => match dtype {
                DType::F16 | DType::BF16 => 16,
                DType::U64 | DType::I64 | DType::F64 => 64,
                _ => 32,
            },
        }
    }
    /// Bytes of a device buffer of `numel` elements, padded to 16: vectors and packed words are stored whole.
    pub fn storage_bytes(self, dtype: DType, numel: u64) -> u64 {
        (numel * u64::from(self.element_bits(dtype))).div_ceil(8).next_multiple_of(16).max(16)
    }
}

/// A buffer.
#[derive(Clone, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
pub struct Buffer {
    /// Name, unique in the function.
    pub name: Name,
    /// Logical element type.
    pub dtype: DType,
    /// Shape.
    pub shape: Vec<Int>,
    /// Memory.
    pub scope: Scope,
    /// Storage form of a global buffer; bytes in workgroup memory or registers may be packed too.
    pub encoding: Encoding,
}
impl Buffer {
    /// Dtype and encoding of scratch memory with a word per element, so that threads may store single elements.
    pub fn unpacked(&self) -> (DType, Encoding) {
        match self.encoding {
            Encoding::HalfPair => (DType::F32, Encoding::Native),
            Encoding::Narrow => (self.dtype, Encoding::Narrow),
            Encoding::Native | Encoding::ByteQuad => (self.dtype, Encoding::Native),
        }
    }
    /// Number of elements.
    pub fn numel(&self) -> Int {
        crate::int::product(&self.shape)
    }
    /// Moves the buffer to another memory: only global buffers have a storage form of their own.
    pub fn move_to(&mut self, scope: Scope) {
        self.scope = scope;
        if scope != Scope::Global {
            self.encoding = Encoding::Native;
        }
    }
}

/// A physical rearrangement of a read parameter that the caller does once (prepacking): the tensor function
/// `packer` (one read parameter of the original shape, one write parameter of the packed shape).
#[derive(Clone, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
pub struct Prepack {
    /// The parameter whose buffer now has the packed shape.
    pub buffer: BufferId,
    /// The function that makes the packed form.
    pub packer: Box<TensorFunction>,
}

/// A tensor function.
#[derive(Clone, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
pub struct TensorFunction {
    /// Global name.
    pub name: Name,
    /// Parameters: reads first, then writes.
    pub params: Vec<Param>,
    /// Integer kernel parameters with their declared ranges (symbolic sizes, offsets), checked by the host.
    pub symbols: Vec<(Name, i64, i64)>,
    /// All buffers, parameters included.
    pub buffers: Arena<BufferId, Buffer>,
    /// The statements.
    pub body: Stmt,
    /// Instructions applied so far. When a function is saved as bytes, they are saved as text.
    #[serde(skip)]
    pub trace: Vec<InstrRef>,
    /// Instructions still to be applied to the body, in order (`schedule { ... }` in text); kept as text too.
    #[serde(skip)]
    pub pending: Vec<InstrRef>,
    /// Parameters that are prepacked.
    pub prepacks: Vec<Prepack>,
    /// Results that are stored in part.
    pub updates: Vec<Update>,
    /// The loops and blocks that the instructions of the trace made and changed.
    pub provenance: Provenance,
}

/// How a loop runs.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, serde::Serialize, serde::Deserialize)]
pub enum LoopKind {
    /// One iteration after another, at run time.
    Serial,
    /// Repeated in the shader's text.
    Unroll,
    /// The lanes of one vector operation; 2, 3 or 4 iterations.
    Vectorize,
    /// All iterations at once, each by the thread along x that stored the element it reads: subgroups combine the
    /// values of their threads, in an order that the device chooses.
    Combine,
    /// The workgroup's index along x, y or z (0, 1, 2).
    Group(u8),
    /// The thread's index in its workgroup along x, y or z.
    Local(u8),
    /// Iterations (tasks) that the subgroups of a workgroup share out, along x or y (0, 1). Each task has its own
    /// registers and fragments. No index depends on the subgroup size, and no value goes from one task to another in
    /// the loop.
    Subgroup(u8),
    /// Iterations that the lanes of a subgroup share out, inside a loop over subgroups, however many lanes there are.
    Lane,
    /// All iterations are one operation ([`intrinsic`]): of a subgroup on matrices, or of a thread on packed words.
    Tensor,
}
impl LoopKind {
    /// Word before `for` in text; none for a serial loop.
    pub fn word(self) -> Option<String> {
        let axis = |a: u8| ["x", "y", "z"].get(usize::from(a)).copied().unwrap_or("none");
        Some(match self {
            LoopKind::Serial => return None,
            LoopKind::Combine => "combine".to_string(),
            LoopKind::Lane => "lane".to_string(),
            LoopKind::Tensor => "tensor".to_string(),
            LoopKind::Subgroup(a) => format!("subgroup_{}", axis(a)),
            LoopKind::Unroll => "unroll".to_string(),
            LoopKind::Vectorize => "vectorize".to_string(),
            LoopKind::Group(a) => format!("group_{}", axis(a)),
            LoopKind::Local(a) => format!("local_{}", axis(a)),
        })
    }
}

/// A loop `for var in 0..extent`.
#[derive(Clone, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
pub struct For {
    /// The variable.
    pub var: Name,
    /// Number of iterations.
    pub extent: Int,
    /// How it runs.
    pub kind: LoopKind,
    /// The loop body.
    pub body: Stmt,
}

/// How a block reduces into its element.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub struct Reduce {
    /// The combiner.
    pub combiner: Combiner,
    /// Whether the block itself sets the identity first (before `decompose-reduction`).
    pub init: bool,
}

/// A leaf: one store under guards.
#[derive(Clone, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
pub struct Block {
    /// Name, unique in the function; schedule instructions refer to it.
    pub name: Name,
    /// The block runs if all of them hold.
    pub guards: Vec<Cond>,
    /// Destination.
    pub buffer: BufferId,
    /// Element.
    pub indices: Vec<Int>,
    /// The value; its dtype is the buffer's, except that a reduction accumulates in the buffer's dtype.
    pub value: Expr,
    /// Present when the value is combined into the element.
    pub reduce: Option<Reduce>,
    /// Stages of the unscheduled function that it computes.
    pub stages: StageSet,
}

/// Calls `f` with every block below `s` and the variables of its enclosing loops, outermost first.
fn visit_blocks<'a>(s: &'a Stmt, chain: &mut Vec<Name>, f: &mut dyn FnMut(&[Name], &'a Block)) {
    match s {
        Stmt::Seq(list) => list.iter().for_each(|s| visit_blocks(s, chain, f)),
        Stmt::For(l) => {
            chain.push(l.var);
            visit_blocks(&l.body, chain, f);
            chain.pop();
        }
        Stmt::Block(b) => f(chain, b),
        Stmt::Kernel(_, s) => visit_blocks(s, chain, f),
        Stmt::Barrier => {}
    }
}

/// A statement.
#[derive(Clone, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
pub enum Stmt {
    /// One after another.
    Seq(Vec<Stmt>),
    /// A loop.
    For(Box<For>),
    /// A leaf.
    Block(Box<Block>),
    /// A workgroup barrier (inserted by lowering; has no effect in the interpreter).
    Barrier,
    /// A kernel: everything inside is one dispatch. Only at the top level.
    Kernel(Name, Box<Stmt>),
}

/// A stage: a block with its perfect nest of loops, before scheduling.
#[derive(Clone, Debug)]
pub struct Stage<'a> {
    /// The loops, outermost first: `(variable, extent)`.
    pub loops: Vec<(Name, Int)>,
    /// The block.
    pub block: &'a Block,
}
impl Stage<'_> {
    /// Loops whose variable the store uses, in loop order.
    pub fn spatial(&self) -> Vec<(Name, Int)> {
        self.loops.iter().filter(|l| self.block.indices.iter().any(|i| i.uses(l.0))).cloned().collect()
    }
    /// Loops whose variable the store does not use (for a compute block there are none).
    pub fn reduction(&self) -> Vec<(Name, Int)> {
        self.loops.iter().filter(|l| !self.block.indices.iter().any(|i| i.uses(l.0))).cloned().collect()
    }
}

impl TensorFunction {
    /// A buffer as text names it: `%name`; a number for one that is not there.
    pub(crate) fn buffer_text(&self, b: BufferId) -> String {
        match self.buffers.get(b) {
            Some(buffer) => format!("%{}", bare::after_sigil(buffer.name.as_str())),
            None => number(b),
        }
    }
    /// An empty function.
    pub fn new(name: impl Into<Name>) -> TensorFunction {
        TensorFunction {
            name: name.into(),
            params: vec![],
            symbols: vec![],
            buffers: Arena::new(),
            body: Stmt::Seq(vec![]),
            trace: vec![],
            pending: vec![],
            prepacks: vec![],
            updates: vec![],
            provenance: Provenance::default(),
        }
    }
    /// Buffers of the read parameters.
    pub fn inputs(&self) -> impl Iterator<Item = BufferId> + '_ {
        self.params.iter().filter(|p| p.access == Access::Read).map(|p| p.buffer)
    }
    /// Buffers of the write parameters.
    pub fn outputs(&self) -> impl Iterator<Item = BufferId> + '_ {
        self.params.iter().filter(|p| p.access == Access::Write).map(|p| p.buffer)
    }
    /// The stages, when the body is still a sequence of perfect serial nests; `None` once scheduled otherwise.
    pub fn stages(&self) -> Option<Vec<Stage<'_>>> {
        let mut out = Vec::new();
        let list: &[Stmt] = match &self.body {
            Stmt::Seq(list) => list,
            one => std::slice::from_ref(one),
        };
        for s in list {
            let mut loops = Vec::new();
            let mut s = s;
            loop {
                match s {
                    Stmt::For(f) if f.kind == LoopKind::Serial => {
                        loops.push((f.var, f.extent.clone()));
                        s = &f.body;
                    }
                    Stmt::Block(block) => {
                        out.push(Stage { loops, block });
                        break;
                    }
                    _ => return None,
                }
            }
        }
        Some(out)
    }
    /// Variables of the reduction loops of block `name`, outermost first (see the module's conventions).
    pub fn reduction_loops(&self, name: Name) -> Vec<Name> {
        let mut chains: Vec<(&Block, Vec<Name>)> = Vec::new();
        visit_blocks(&self.body, &mut Vec::new(), &mut |chain, b| chains.push((b, chain.to_vec())));
        let Some((block, chain)) = chains.iter().find(|(b, _)| b.name == name) else { return vec![] };
        let mut outer = 0;
        if self.buffers[block.buffer].scope != Scope::Global {
            outer = chain.len();
            for (_, other) in chains.iter().filter(|(b, _)| b.accesses(block.buffer)) {
                outer = outer.min(chain.iter().zip(other).take_while(|(a, b)| a == b).count());
            }
        }
        chain[outer..].iter().copied().filter(|v| !block.indices.iter().any(|i| i.uses(*v))).collect()
    }
    /// The kernels, once scheduled: `(name, body)`.
    pub fn kernels(&self) -> Vec<(Name, &Stmt)> {
        match &self.body {
            Stmt::Kernel(n, s) => vec![(*n, s)],
            Stmt::Seq(list) => {
                list.iter().filter_map(|s| if let Stmt::Kernel(n, s) = s { Some((*n, &**s)) } else { None }).collect()
            }
            _ => vec![],
        }
    }
    /// Ranges of the declared symbols and of every loop variable.
    pub fn bounds(&self) -> Bounds {
        let mut b = Bounds::new();
        for (n, low, high) in &self.symbols {
            b.insert(*n, *low, *high);
        }
        self.body.visit(&mut |s| {
            if let Stmt::For(f) = s
                && let Some((_, high)) = crate::int::range(&f.extent, &b)
            {
                b.insert(f.var, 0, (high - 1).max(0));
            }
        });
        b
    }
}

impl Stmt {
    /// Calls `f` on every statement, parents first.
    pub fn visit<'a>(&'a self, f: &mut dyn FnMut(&'a Stmt)) {
        f(self);
        match self {
            Stmt::Seq(list) => list.iter().for_each(|s| s.visit(f)),
            Stmt::For(l) => l.body.visit(f),
            Stmt::Kernel(_, s) => s.visit(f),
            Stmt::Block(_) | Stmt::Barrier => {}
        }
    }
    /// Calls `f` on every statement, parents first, mutable.
    pub fn visit_mut(&mut self, f: &mut dyn FnMut(&mut Stmt)) {
        f(self);
        match self {
            Stmt::Seq(list) => list.iter_mut().for_each(|s| s.visit_mut(f)),
            Stmt::For(l) => l.body.visit_mut(f),
            Stmt::Kernel(_, s) => s.visit_mut(f),
            Stmt::Block(_) | Stmt::Barrier => {}
        }
    }
    /// All blocks, in order.
    pub fn blocks(&self) -> Vec<&Block> {
        let mut out = Vec::new();
        self.visit(&mut |s| {
            if let Stmt::Block(b) = s {
                out.push(&**b)
            }
        });
        out
    }
    /// A sequence without nested or one-element sequences.
    pub fn seq(list: Vec<Stmt>) -> Stmt {
        let mut flat = Vec::new();
        for s in list {
            match s {
                Stmt::Seq(inner) => flat.extend(inner),
                s => flat.push(s),
            }
        }
        if flat.len() == 1 { flat.pop().expect("one statement") } else { Stmt::Seq(flat) }
    }
}
