//! From kernels to source nodes and back: blocks, loops, instructions and lines of shaders.
//!
//! A kernel knows which stages of its tensor function each part computes; a group knows the source nodes of each stage.
//! Equal groups share kernels, so a part of a kernel leads to the nodes of all these groups, or of one group if that is
//! given.

use crate::name::Name;
use crate::plan::LineSpan;
use crate::tir::{LoopKind, Stmt, TensorFunction};
use serde::{Deserialize, Serialize};

/// A block of a kernel.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct KernelBlock {
    /// Name in the tensor function.
    pub name: String,
    /// Stages that it computes; none where they are not known.
    pub stages: Vec<u32>,
}

/// A loop of a kernel.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct KernelLoop {
    /// Variable.
    pub var: String,
    /// Number of iterations.
    pub extent: String,
    /// How it runs: `for`, `unroll`, `vectorize`, `group_x`, `local_x` ...
    pub kind: String,
    /// The instruction of the schedule that made it; none for a loop that was there before.
    pub maker: Option<u32>,
    /// Blocks inside, by their positions.
    pub blocks: Vec<u32>,
}

/// Neighbouring lines of a kernel's WGSL text that come from the same place.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct KernelLines {
    /// The first line, from 0.
    pub first: u32,
    /// How many.
    pub count: u32,
    /// The block, by its position; none for the head or the end of a loop around several.
    pub block: Option<u32>,
    /// The innermost loop around, by its position.
    pub r#loop: Option<u32>,
}

/// The parts of a kernel in a trace.
#[derive(Default)]
pub(crate) struct KernelParts {
    pub instructions: Vec<Vec<u32>>,
    pub blocks: Vec<KernelBlock>,
    pub loops: Vec<KernelLoop>,
    pub lines: Vec<KernelLines>,
}

impl KernelParts {
    /// Of kernel `name` of `f`.
    pub fn of(f: &TensorFunction, name: Name, lines: &[LineSpan]) -> KernelParts {
        let mut parts = KernelParts::default();
        if let Some((_, body)) = f.kernels().into_iter().find(|k| k.0 == name) {
            parts.collect(f, body, &mut Vec::new());
        }
        let stages = |i| f.provenance.stages(i).map_or(vec![], |s| s.iter().map(|s| s as u32).collect());
        parts.instructions = (0..f.trace.len()).map(stages).collect();
        let block = |n: Name| parts.blocks.iter().position(|b| b.name == n.as_str()).map(|i| i as u32);
        let around = |n: Name| parts.loops.iter().position(|l| l.var == n.as_str()).map(|i| i as u32);
        parts.lines = lines
            .iter()
            .map(|l| KernelLines {
                first: l.first,
                count: l.count,
                block: l.block.and_then(block),
                r#loop: l.r#loop.and_then(around),
            })
            .collect();
        parts
    }

    fn collect(&mut self, f: &TensorFunction, s: &Stmt, around: &mut Vec<usize>) {
        match s {
            Stmt::Seq(list) => list.iter().for_each(|s| self.collect(f, s, around)),
            Stmt::Kernel(_, s) => self.collect(f, s, around),
            Stmt::For(l) => {
                around.push(self.loops.len());
                self.loops.push(KernelLoop {
                    var: l.var.to_string(),
                    extent: l.extent.to_string(),
                    kind: kind_word(l.kind),
                    maker: f.provenance.maker(l.var).map(|i| i as u32),
                    blocks: vec![],
                });
                self.collect(f, &l.body, around);
                around.pop();
            }
            Stmt::Block(b) => {
                let at = self.blocks.len() as u32;
                around.iter().for_each(|&l| self.loops[l].blocks.push(at));
                let stages = b.stages.iter().map(|s| s as u32).collect();
                self.blocks.push(KernelBlock { name: b.name.to_string(), stages });
            }
            Stmt::Barrier => {}
        }
    }
}

fn kind_word(kind: LoopKind) -> String {
    kind.word().unwrap_or_else(|| "for".into())
}
