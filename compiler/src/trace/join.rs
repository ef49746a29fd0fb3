//! One trace of a network that runs in parts, from the traces of its parts.
//!
//! Groups, kernels, buffers, steps and times stand behind each other in the order of the parts. The text of a stage is
//! the texts of the parts, each behind a line `; part NAME`; [`texts_of_parts`] takes them apart again.

use super::{Call, CompileTrace, DispatchTime, Group, Kernel, Stage, Step, TextDelta, Times, TraceError, TracePart};
use crate::passes::PassStats;
use rustc_hash::FxHashSet;

/// The line before the text of a part.
const MARK: &str = "; part ";

/// The texts of the parts of a stage with their names. A network that is one part has no name.
pub fn texts_of_parts(stage: &str) -> Vec<(&str, &str)> {
    if !stage.starts_with(MARK) {
        return vec![("", stage)];
    }
    let starts: Vec<usize> = std::iter::once(0)
        .chain(stage.match_indices('\n').map(|(i, _)| i + 1).filter(|&i| stage[i..].starts_with(MARK)))
        .collect();
    let end = |k: usize| starts.get(k + 1).copied().unwrap_or(stage.len());
    let parts = starts.iter().enumerate().map(|(k, &start)| &stage[start + MARK.len()..end(k)]);
    parts.map(|p| p.split_once('\n').unwrap_or((p, ""))).collect()
}

/// The name of a function of a part in a joined trace, where functions of two parts may have the same name.
pub fn name_in_part(part: &str, function: &str) -> String {
    if part.is_empty() { function.to_string() } else { format!("{part}.{function}") }
}

impl CompileTrace {
    /// The trace of a network from those of its parts, in the order they run.
    ///
    /// # Errors
    /// [`TraceError::Damaged`] when the stages of a part cannot be restored.
    pub fn join(model: &str, parts: Vec<(String, CompileTrace)>) -> Result<CompileTrace, TraceError> {
        let stages = joined_stages(&parts)?;
        let Some(longest) = parts.iter().map(|p| &p.1).max_by_key(|t| t.passes.len()) else {
            return Ok(CompileTrace::default());
        };
        let mut out = CompileTrace {
            model: model.into(),
            weft: longest.weft.clone(),
            profile: longest.profile.clone(),
            profile_name: longest.profile_name.clone(),
            options: longest.options.clone(),
            passes: joined_passes(&longest.passes, &parts),
            dims: parts[0].1.dims.clone(),
            stages,
            ..CompileTrace::default()
        };
        let (mut called, mut times) = (vec![], [vec![], vec![]]);
        for (name, part) in parts {
            out.take(&name, part, &mut called, &mut times);
        }
        out.plan.functions.iter_mut().for_each(|f| f.first += out.plan.steps.len());
        out.plan.steps.append(&mut called);
        if let Some(t) = &mut out.times {
            t.dispatches = times.concat();
        }
        Ok(out)
    }

    /// Adds a part. Steps of functions and their times are collected apart, since they stand behind all others.
    fn take(&mut self, name: &str, part: CompileTrace, called: &mut Vec<Step>, times: &mut [Vec<DispatchTime>; 2]) {
        let at = Offsets {
            group: self.groups.len(),
            kernel: self.kernels.len(),
            buffer: self.plan.buffers.len(),
            function: self.plan.functions.len(),
        };
        self.parts.push(TracePart { name: name.into(), group: at.group, kernel: at.kernel, host_ms: None });
        self.sources.extend(part.sources);
        self.remarks.extend(part.remarks);
        let known: FxHashSet<String> = self.weights.iter().map(|w| w.name.clone()).collect();
        self.weights.extend(part.weights.into_iter().filter(|w| !known.contains(&w.name)));
        self.groups.extend(part.groups.into_iter().map(|g| at.of_group(name, g)));
        let names: FxHashSet<String> = self.kernels.iter().map(|k| k.name.clone()).collect();
        self.kernels.extend(part.kernels.into_iter().map(|k| at.of_kernel(name, &names, k)));
        let first = part.plan.functions.first().map_or(part.plan.steps.len(), |f| f.first);
        let own = part.plan.steps[..first].iter().map(|s| if let Step::Gpu(list) = s { list.len() } else { 0 }).sum();
        let mut steps = part.plan.steps.into_iter().map(|s| at.of_step(s));
        self.plan.steps.extend(steps.by_ref().take(first));
        let from = called.len();
        called.extend(steps);
        self.plan.functions.extend(part.plan.functions.into_iter().map(|mut f| {
            f.first = f.first - first + from;
            f.buffers.iter_mut().for_each(|b| *b += at.buffer);
            f
        }));
        self.plan.buffers.extend(part.plan.buffers);
        let view = |mut v: super::BufferView| {
            v.buffer += at.buffer;
            v
        };
        if self.parts.len() == 1 {
            self.plan.inputs = part.plan.inputs.into_iter().map(view).collect();
        }
        self.plan.outputs = part.plan.outputs.into_iter().map(view).collect();
        self.memory.weights += part.memory.weights;
        self.memory.activations_peak += part.memory.activations_peak;
        self.memory.activations_naive += part.memory.activations_naive;
        self.transposes.activation += part.transposes.activation;
        self.transposes.weight_folded += part.transposes.weight_folded;
        self.transposes.weight_runtime += part.transposes.weight_runtime;
        self.compile_ms += part.compile_ms;
        self.timings.extend(part.timings.into_iter().map(|(what, ms)| (name_in_part(name, &what), ms)));
        if let Some(t) = part.times {
            let (entry, behind) = t.dispatches.split_at(usize::min(own, t.dispatches.len()));
            times[0].extend_from_slice(entry);
            times[1].extend_from_slice(behind);
            self.times.get_or_insert_with(|| Times { dispatches: vec![], ..t.clone() });
        }
    }

    /// Index of the part that a kernel is of; 0 for a network that is one part.
    pub fn part_of_kernel(&self, kernel: usize) -> usize {
        self.parts.iter().rposition(|p| p.kernel <= kernel).unwrap_or(0)
    }
    /// The name of a part, with how often it runs where that is more than once: `deciding.body x501`.
    pub fn part_title(&self, part: usize) -> String {
        let own = self.calls().filter(|c| self.part_of_group(c.group) == part).map(|c| c.runs);
        match own.min() {
            Some(runs) if runs > 1 => format!("{} x{runs}", self.parts[part].name),
            _ => self.parts[part].name.clone(),
        }
    }
    /// Dispatches of a kernel in a run: where it was measured, in all iterations of loops.
    pub fn dispatches_of_kernel(&self, kernel: usize) -> u64 {
        self.calls().filter(|c| c.kernel == kernel).map(|c| c.runs).sum()
    }
    /// Says how often a run executes each dispatch: FLOPs and bytes become those of all iterations, as times are. A
    /// dispatch that a run leaves out counts once.
    pub fn count_runs(&mut self, counts: &[u64]) {
        let mut counts = counts.iter();
        for step in &mut self.plan.steps {
            let Step::Gpu(calls) = step else { continue };
            for (c, &n) in calls.iter_mut().zip(&mut counts) {
                let more = n.saturating_sub(1);
                let (flops, bytes) = (c.flops.saturating_mul(more), c.bytes.saturating_mul(more));
                let g = &mut self.groups[c.group];
                (g.flops, g.bytes) = (g.flops.saturating_add(flops), g.bytes.saturating_add(bytes));
                c.runs = n.max(1);
                (c.flops, c.bytes) = (c.flops.saturating_add(flops), c.bytes.saturating_add(bytes));
            }
        }
    }
    /// Index of the part that a group is of.
    pub fn part_of_group(&self, group: usize) -> usize {
        self.parts.iter().rposition(|p| p.group <= group).unwrap_or(0)
    }
}

/// What stands before a part in the lists of the whole.
struct Offsets {
    group: usize,
    kernel: usize,
    buffer: usize,
    function: usize,
}

impl Offsets {
    fn of_group(&self, part: &str, mut g: Group) -> Group {
        g.reads.iter_mut().for_each(|r| *r += self.group);
        g.function = name_in_part(part, &g.function);
        g
    }
    fn of_kernel(&self, part: &str, taken: &FxHashSet<String>, mut k: Kernel) -> Kernel {
        k.groups.iter_mut().for_each(|g| *g += self.group);
        if taken.contains(&k.name) {
            k.name = name_in_part(part, &k.name);
        }
        k
    }
    fn of_call(&self, mut c: Call) -> Call {
        (c.kernel, c.group) = (c.kernel + self.kernel, c.group + self.group);
        c.buffers.iter_mut().for_each(|b| b.0 += self.buffer);
        c
    }
    fn of_step(&self, mut s: Step) -> Step {
        let buffers = |list: &mut Vec<usize>| list.iter_mut().for_each(|b| *b += self.buffer);
        let pairs = |list: &mut Vec<(usize, usize)>| {
            list.iter_mut().for_each(|(a, b)| (*a, *b) = (*a + self.buffer, *b + self.buffer));
        };
        match &mut s {
            Step::Gpu(list) => *list = list.drain(..).map(|c| self.of_call(c)).collect(),
            Step::Host { group, inputs, outputs } => {
                *group += self.group;
                buffers(inputs);
                buffers(outputs);
            }
            Step::Copy { from, to } => (*from, *to) = (*from + self.buffer, *to + self.buffer),
            Step::Branch { group, condition, .. } => {
                (*group, *condition) = (*group + self.group, *condition + self.buffer);
            }
            Step::Loop { group, reads, keeps, .. } => {
                *group += self.group;
                buffers(reads);
                buffers(keeps);
            }
            Step::Call { group, callee, arguments, results } => {
                (*group, *callee) = (*group + self.group, *callee + self.function);
                pairs(arguments);
                pairs(results);
            }
        }
        s
    }
}

/// The passes of the part that has most of them, each with the sums over all parts.
fn joined_passes(longest: &[PassStats], parts: &[(String, CompileTrace)]) -> Vec<PassStats> {
    let sum = |i: usize| {
        let mut same = parts.iter().filter_map(|p| p.1.passes.get(i)).filter(|s| s.name == longest[i].name);
        let first = same.next()?.clone();
        Some(same.fold(first, |a, b| PassStats {
            ms: a.ms + b.ms,
            nodes_before: a.nodes_before + b.nodes_before,
            nodes_after: a.nodes_after + b.nodes_after,
            changed: a.changed || b.changed,
            name: a.name,
        }))
    };
    (0..longest.len()).filter_map(sum).collect()
}

/// The stages of all parts. A part that has fewer (the host interprets it) keeps its last graph.
fn joined_stages(parts: &[(String, CompileTrace)]) -> Result<Vec<Stage>, TraceError> {
    let texts: Vec<Vec<String>> = parts.iter().map(|p| p.1.stage_texts()).collect::<Result<_, _>>()?;
    let longest = parts.iter().map(|p| &p.1.stages).max_by_key(|s| s.len()).map_or(&[][..], Vec::as_slice);
    let graphs = parts.iter().map(|p| p.1.passes.len() + 1).max().unwrap_or(0);
    let (mut before, mut out) = (String::new(), vec![]);
    for (i, stage) in longest.iter().enumerate() {
        let mut text = String::new();
        for ((name, _), own) in parts.iter().zip(&texts) {
            // Behind the graphs stand tensor functions, which such a part has not.
            let chunk = own.get(i).or(own.last().filter(|_| i < graphs));
            chunk.into_iter().for_each(|t| text += &format!("{MARK}{name}\n{t}"));
        }
        out.push(Stage { label: stage.label.clone(), delta: TextDelta::between(&before, &text) });
        before = text;
    }
    Ok(out)
}
