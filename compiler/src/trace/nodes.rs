//! The source nodes of parts of kernels, and the lines of shaders of source nodes.

use super::{CompileTrace, Group, Kernel, KernelBlock, KernelLines};
use rustc_hash::FxHashMap;
use std::collections::BTreeSet;

impl Kernel {
    /// The name of its file without extension, given its position.
    pub fn file(&self, index: usize) -> String {
        crate::plan::kernel_file(index, &self.name)
    }
    /// The lines around line `line` that come from the same place.
    pub fn lines_at(&self, line: usize) -> Option<&KernelLines> {
        let line = u32::try_from(line).ok()?;
        let at = self.lines.partition_point(|l| l.first <= line).checked_sub(1)?;
        self.lines.get(at).filter(|l| line - l.first < l.count)
    }
    /// Stages of blocks; empty, which means all stages, if one of the blocks has none.
    fn stages_of(&self, blocks: &[u32]) -> Vec<u32> {
        let blocks: Vec<&KernelBlock> = blocks.iter().filter_map(|&b| self.blocks.get(b as usize)).collect();
        if blocks.iter().any(|b| b.stages.is_empty()) {
            return vec![];
        }
        let all: BTreeSet<u32> = blocks.iter().flat_map(|b| b.stages.iter().copied()).collect();
        all.into_iter().collect()
    }
    /// Every position is in range.
    pub(super) fn parts_fit(&self) -> bool {
        let (blocks, loops) = (self.blocks.len(), self.loops.len());
        self.loops.iter().all(|l| l.blocks.iter().all(|&b| (b as usize) < blocks))
            && self
                .lines
                .iter()
                .all(|l| l.block.is_none_or(|b| (b as usize) < blocks) && l.r#loop.is_none_or(|l| (l as usize) < loops))
    }
}

impl Group {
    /// Source nodes of stages of its tensor function; all of the group for none, or for stages that are not known.
    pub fn nodes_of_stages(&self, stages: &[u32]) -> Vec<&str> {
        let known: Option<Vec<&Vec<u32>>> = stages.iter().map(|&s| self.stages.get(s as usize)).collect();
        let positions: BTreeSet<u32> = known.unwrap_or_default().into_iter().flatten().copied().collect();
        match positions.is_empty() {
            true => self.origins.iter().map(String::as_str).collect(),
            false => positions.into_iter().map(|p| self.origins[p as usize].as_str()).collect(),
        }
    }
    /// Every position is in range.
    pub(super) fn stages_fit(&self) -> bool {
        self.stages.iter().flatten().all(|&p| (p as usize) < self.origins.len())
    }
}

impl CompileTrace {
    /// Source nodes of stages of a kernel's function, in all groups that run the kernel.
    pub fn nodes_of_stages(&self, kernel: usize, stages: &[u32]) -> Vec<&str> {
        let groups = self.groups_of(kernel).into_iter().map(|g| &self.groups[g]);
        let all: BTreeSet<&str> = groups.flat_map(|g| g.nodes_of_stages(stages)).collect();
        all.into_iter().collect()
    }
    /// Source nodes of a block of a kernel.
    pub fn nodes_of_block(&self, kernel: usize, block: usize) -> Vec<&str> {
        self.nodes_of_stages(kernel, &self.kernels[kernel].blocks[block].stages)
    }
    /// Source nodes of the body of a kernel's loop.
    pub fn nodes_of_loop(&self, kernel: usize, l: usize) -> Vec<&str> {
        let k = &self.kernels[kernel];
        self.nodes_of_stages(kernel, &k.stages_of(&k.loops[l].blocks))
    }
    /// Source nodes of the blocks that an instruction of a kernel's schedule names.
    pub fn nodes_of_instruction(&self, kernel: usize, instruction: usize) -> Vec<&str> {
        let stages = self.kernels[kernel].instructions.get(instruction);
        self.nodes_of_stages(kernel, stages.map_or(&[], Vec::as_slice))
    }
    /// Source nodes of a line of a kernel's WGSL text, from 0.
    pub fn nodes_of_line(&self, kernel: usize, line: usize) -> Vec<&str> {
        match self.kernels[kernel].lines_at(line) {
            Some(KernelLines { block: Some(b), .. }) => self.nodes_of_block(kernel, *b as usize),
            Some(KernelLines { r#loop: Some(l), .. }) => self.nodes_of_loop(kernel, *l as usize),
            _ => self.nodes_of_stages(kernel, &[]),
        }
    }
    /// Lines of WGSL that a source node became: kernel, first line from 0, count. Lines of whole kernels are left out.
    pub fn lines_of_node(&self, node: &str) -> Vec<(usize, u32, u32)> {
        let of_kernel = |k: usize| {
            let own = self.lines_with_nodes(k).into_iter().filter(|(_, nodes)| nodes.contains(&node));
            own.map(move |(l, _)| (k, l.first, l.count)).collect::<Vec<_>>()
        };
        (0..self.kernels.len()).flat_map(of_kernel).collect()
    }
    /// For each source node of a kernel, the number of WGSL lines that it became. Lines of the whole kernel are left
    /// out.
    pub fn line_counts(&self, kernel: usize) -> FxHashMap<&str, u32> {
        let mut out = FxHashMap::default();
        for (lines, nodes) in self.lines_with_nodes(kernel) {
            nodes.into_iter().for_each(|n| *out.entry(n).or_default() += lines.count);
        }
        out
    }
    /// Lines of a kernel that belong to a block or a loop, each with the source nodes of it.
    fn lines_with_nodes(&self, kernel: usize) -> Vec<(&KernelLines, Vec<&str>)> {
        let k = &self.kernels[kernel];
        let blocks: Vec<Vec<&str>> = (0..k.blocks.len()).map(|b| self.nodes_of_block(kernel, b)).collect();
        let loops: Vec<Vec<&str>> = (0..k.loops.len()).map(|l| self.nodes_of_loop(kernel, l)).collect();
        let nodes = |l: &KernelLines| match (l.block, l.r#loop) {
            (Some(b), _) => Some(blocks[b as usize].clone()),
            (None, around) => around.map(|l| loops[l as usize].clone()),
        };
        k.lines.iter().filter_map(|l| Some((l, nodes(l)?))).collect()
    }
}
