//! Provenance: the origin of blocks, loops and instructions of a scheduled function.
//!
//! A *stage* is a block of the unscheduled function, by its position. Every block knows the stages that it computes;
//! every loop and block knows the instruction of the trace that made it; every instruction knows the stages of the
//! blocks that it names. The group of a function knows the source nodes of each stage, so every part of a kernel leads
//! to source nodes. Stages are positions, not names, because groups of different nodes share equal functions.
//!
//! Provenance also keeps the declared shapes of parameters whose buffers an instruction reshaped: callers use the
//! declared shapes (`declared_shape`).
//!
//! Always holds: provenance is ignored by `Eq` and by fingerprints.

use super::{Block, BufferId, Stmt, TensorFunction};
use crate::attr::Attr;
use crate::int::Int;
use crate::name::Name;
use crate::tir::InstrRef;
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

/// Positions of stages, in order; empty if not known.
#[derive(Clone, Debug, Default, serde::Serialize, serde::Deserialize)]
#[serde(from = "Vec<u32>", into = "Vec<u32>")]
pub struct StageSet(SmallVec<[u32; 4]>);

impl From<Vec<u32>> for StageSet {
    fn from(list: Vec<u32>) -> StageSet {
        StageSet(list.into())
    }
}

impl From<StageSet> for Vec<u32> {
    fn from(set: StageSet) -> Vec<u32> {
        set.0.into_vec()
    }
}

impl PartialEq for StageSet {
    fn eq(&self, _: &StageSet) -> bool {
        true
    }
}

impl StageSet {
    /// One stage.
    pub fn one(stage: usize) -> StageSet {
        StageSet(SmallVec::from_slice(&[stage as u32]))
    }
    /// Adds the stages of `other`.
    pub fn extend(&mut self, other: &StageSet) {
        for &s in &other.0 {
            if let Err(at) = self.0.binary_search(&s) {
                self.0.insert(at, s);
            }
        }
    }
    /// The positions.
    pub fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        self.0.iter().map(|&s| s as usize)
    }
    /// True when no stage is known.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// The loops and blocks that the instructions of a trace made and changed.
#[derive(Clone, Debug, Default, serde::Serialize, serde::Deserialize)]
pub struct Provenance {
    made_by: FxHashMap<Name, u32>,
    changed: Vec<StageSet>,
    /// By the buffer's name.
    declared: FxHashMap<Name, Vec<Int>>,
}

impl PartialEq for Provenance {
    fn eq(&self, _: &Provenance) -> bool {
        true
    }
}

impl Provenance {
    /// The instruction (by its position in the trace) that made the loop or block `name`; `None` if it is from the
    /// unscheduled function.
    pub fn maker(&self, name: Name) -> Option<usize> {
        self.made_by.get(&name).map(|&i| i as usize)
    }
    /// Stages of the blocks that an instruction is about: those it names, and those in loops or with buffers that it
    /// names; all of them when it names none.
    pub fn stages(&self, instruction: usize) -> Option<&StageSet> {
        self.changed.get(instruction)
    }
}

impl TensorFunction {
    /// The shape of a parameter for callers. The elements are in the same order in the buffer's own shape.
    pub fn declared_shape(&self, b: BufferId) -> &[Int] {
        let buffer = &self.buffers[b];
        self.provenance.declared.get(&buffer.name).unwrap_or(&buffer.shape)
    }

    /// Rewrites the shapes for callers.
    pub(crate) fn map_declared_shapes(&mut self, f: &mut dyn FnMut(&Int) -> Int) {
        self.provenance.declared.values_mut().flatten().for_each(|d| *d = f(d));
    }

    /// Keeps the present shape of a parameter for callers.
    pub(crate) fn keep_declared_shape(&mut self, b: BufferId) {
        let buffer = &self.buffers[b];
        self.provenance.declared.entry(buffer.name).or_insert_with(|| buffer.shape.clone());
    }

    /// Makes the blocks of an unscheduled function its stages.
    pub fn number_stages(&mut self) {
        let mut next = 0;
        self.body.visit_mut(&mut |s| {
            if let Stmt::Block(b) = s {
                b.stages = StageSet::one(next);
                next += 1;
            }
        });
    }

    /// Notes that `i` made this function of `before`.
    pub(crate) fn note_instruction(&mut self, before: &TensorFunction, i: &InstrRef) {
        let index = self.trace.len() as u32;
        let old = defined_names(&before.body);
        for name in defined_names(&self.body) {
            if !old.contains(&name) {
                self.provenance.made_by.insert(name, index);
            }
        }
        self.provenance.changed.push(before.stages_of(i));
    }

    /// Notes that `i` left this function as it is.
    pub(crate) fn note_mention(&mut self, i: &InstrRef) {
        let stages = self.stages_of(i);
        self.provenance.changed.push(stages);
    }

    /// Stages of the blocks that an instruction is about ([`Provenance::stages`]).
    fn stages_of(&self, i: &InstrRef) -> StageSet {
        let mut texts = FxHashSet::default();
        i.attrs().values().for_each(|a| collect_texts(a, &mut texts));
        let mut named = StageSet::default();
        let mut all = StageSet::default();
        self.visit_blocks(&mut |loops, block| {
            let buffer = self.buffers[block.buffer].name;
            let reads = || block.value.loads().into_iter().map(|l| self.buffers[l.0].name);
            let mut mentioned = loops.iter().copied().chain([block.name, buffer]).chain(reads());
            if mentioned.any(|n| texts.contains(n.as_str())) {
                named.extend(&block.stages);
            }
            all.extend(&block.stages);
        });
        if named.is_empty() { all } else { named }
    }

    /// Calls `f` with each block and the variables of the loops around it, outermost first.
    pub fn visit_blocks<'a>(&'a self, f: &mut dyn FnMut(&[Name], &'a Block)) {
        super::visit_blocks(&self.body, &mut Vec::new(), f);
    }
}

/// Names of loops and blocks.
fn defined_names(body: &Stmt) -> FxHashSet<Name> {
    let mut out = FxHashSet::default();
    body.visit(&mut |s| {
        match s {
            Stmt::For(l) => out.insert(l.var),
            Stmt::Block(b) => out.insert(b.name),
            _ => false,
        };
    });
    out
}

fn collect_texts(a: &Attr, out: &mut FxHashSet<String>) {
    match a {
        Attr::Str(text) => {
            out.insert(text.clone());
        }
        Attr::List(list) => list.iter().for_each(|a| collect_texts(a, out)),
        Attr::Int(_) | Attr::Float(_) | Attr::Bool(_) | Attr::DType(_) | Attr::Expr(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use crate::name::Name;
    use crate::schedule::apply_pending;
    use crate::text::parse_tensor_function;
    use crate::tir::TensorFunction;

    const FUNCTION: &str = "tensor @f(%x: f32[8,4], out %y: f32[8]) {
  buffer %t: f32[8,4]
  buffer %s: f32[8]
  for i in 0..8 { for k in 0..4 { block t { %t[i, k] <- %x[i, k] * 2.0 } } }
  for j in 0..8 { for l in 0..4 { block s reduce sum init { %s[j] <- %t[j, l] } } }
  for m in 0..8 { block y { %y[m] <- max(%s[m], 0.0) } }
  schedule {
    inline {block=t}
    split {loop=m, factors=[0,4], into=[a,b]}
    bind {loop=b, axis=local_x}
    cut-kernel
  }
}
";

    fn function() -> TensorFunction {
        let mut f = parse_tensor_function(FUNCTION).expect("it parses");
        f.number_stages();
        apply_pending(&mut f).expect("it schedules");
        f
    }

    #[test]
    fn blocks_keep_the_stages_they_compute() {
        let f = function();
        let of = |name: &str| {
            let blocks = f.body.blocks();
            let b = blocks.iter().find(|b| b.name.as_str() == name).expect("the block").stages.clone();
            b.iter().collect::<Vec<_>>()
        };
        assert_eq!((of("s"), of("y")), (vec![0, 1], vec![2]));
    }

    #[test]
    fn loops_know_their_instruction_and_instructions_their_stages() {
        let f = function();
        let maker = |name: &str| f.provenance.maker(Name::new(name));
        assert_eq!((maker("j"), maker("a"), maker("b"), maker("y")), (None, Some(1), Some(1), None));
        let stages = |i: usize| f.provenance.stages(i).expect("an instruction").iter().collect::<Vec<_>>();
        assert_eq!((stages(0), stages(1), stages(2), stages(3)), (vec![0, 1], vec![2], vec![2], vec![0, 1, 2]));
        assert!(f.provenance.stages(4).is_none());
    }
}
