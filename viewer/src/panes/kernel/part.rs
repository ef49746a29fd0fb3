//! The part of a kernel (block, loop, instruction) that a line belongs to, so that it can be marked in all forms.

use compiler::plan::LineSpan;
use compiler::trace::{CompileTrace, Kernel};
use std::collections::BTreeSet;

/// A part of a kernel, by positions in the trace's lists.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct KernelPart {
    /// A block.
    pub block: Option<usize>,
    /// A loop.
    pub r#loop: Option<usize>,
    /// An instruction of the schedule.
    pub instruction: Option<usize>,
}

impl KernelPart {
    /// Of line `line` of the WGSL text: its block, else the innermost loop around it.
    pub fn of_wgsl(k: &Kernel, line: usize) -> KernelPart {
        let Some(l) = k.lines_at(line) else { return KernelPart::default() };
        let block = l.block.map(|b| b as usize);
        // The lines of a block are the block's; those of its loops lead to the loop.
        let around = l.r#loop.filter(|_| block.is_none()).map(|l| l as usize);
        KernelPart { block, r#loop: around, instruction: None }.with_maker(k)
    }
    /// Of line `line` of a form with these sources of lines, which name blocks and loops.
    pub fn of_span(k: &Kernel, spans: &[LineSpan], line: usize) -> KernelPart {
        let covers = |s: &&LineSpan| (s.first as usize..(s.first + s.count) as usize).contains(&line);
        let at = spans.partition_point(|s| s.first as usize <= line);
        let Some(span) = spans[..at].last().filter(covers) else { return KernelPart::default() };
        let block = span.block.and_then(|b| k.blocks.iter().position(|x| x.name == b.as_str()));
        let around = span.r#loop.filter(|_| block.is_none());
        let around = around.and_then(|l| k.loops.iter().position(|x| x.var == l.as_str()));
        KernelPart { block, r#loop: around, instruction: None }.with_maker(k)
    }
    /// Of a line of the tensor function's text: it opens a loop or a block.
    pub fn of_tensor(k: &Kernel, line: &str) -> KernelPart {
        let words: Vec<&str> = line.split(|c: char| !(c.is_alphanumeric() || c == '_' || c == '.')).collect();
        let behind = |word: &str| words.iter().position(|w| *w == word).and_then(|i| words.get(i + 1)).copied();
        let around = behind("for").and_then(|var| k.loops.iter().position(|l| l.var == var));
        let block = behind("block").and_then(|name| k.blocks.iter().position(|b| b.name == name));
        let around = if block.is_some() { None } else { around };
        KernelPart { block, r#loop: around, instruction: None }.with_maker(k)
    }
    /// Of an instruction.
    pub fn of_instruction(instruction: usize) -> KernelPart {
        KernelPart { instruction: Some(instruction), ..KernelPart::default() }
    }
    fn with_maker(self, k: &Kernel) -> KernelPart {
        let maker = self.r#loop.and_then(|l| k.loops.get(l)?.maker).map(|m| m as usize);
        KernelPart { instruction: maker, ..self }
    }
    /// Whether it is nothing at all.
    pub fn is_empty(self) -> bool {
        self == KernelPart::default()
    }
    /// Whether a line at `other` is to be marked while this place is chosen.
    pub fn covers(self, k: &Kernel, other: KernelPart) -> bool {
        if let Some(b) = self.block {
            return other.block == Some(b)
                || other.instruction.is_some_and(|i| about(k, i, b)) && other.r#loop.is_none();
        }
        if let Some(l) = self.r#loop {
            return other.r#loop == Some(l)
                || other.r#loop.is_none() && other.instruction.is_some() && other.instruction == self.instruction;
        }
        self.instruction.is_some() && other.instruction == self.instruction
    }
    /// Source nodes that it came from.
    pub fn nodes(self, t: &CompileTrace, kernel: usize) -> BTreeSet<String> {
        let list = match self {
            KernelPart { block: Some(b), .. } => t.nodes_of_block(kernel, b),
            KernelPart { r#loop: Some(l), .. } => t.nodes_of_loop(kernel, l),
            KernelPart { instruction: Some(i), .. } => t.nodes_of_instruction(kernel, i),
            _ => vec![],
        };
        list.into_iter().map(str::to_string).collect()
    }
    /// What it is, in words.
    pub fn words(self, k: &Kernel) -> String {
        let made = match self.instruction.and_then(|i| k.schedule.get(i).map(|s| (i, s))) {
            Some((i, text)) => format!("instruction {i}: {text}"),
            None => String::new(),
        };
        match self {
            KernelPart { block: Some(b), .. } => format!("block {}", k.blocks[b].name),
            KernelPart { r#loop: Some(l), .. } => {
                let l = &k.loops[l];
                let by =
                    if made.is_empty() { "there before the schedule".to_string() } else { format!("made by {made}") };
                format!("loop {} of {}, {}; {by}", l.var, l.extent, l.kind)
            }
            _ => made,
        }
    }
}

/// Whether an instruction is about a block: they share a stage.
fn about(k: &Kernel, instruction: usize, block: usize) -> bool {
    let stages = &k.blocks[block].stages;
    k.instructions.get(instruction).is_some_and(|list| list.iter().any(|s| stages.contains(s)))
}
