//! A trace with indices for fast look-ups.

use crate::once::visit;
use crate::units::{milliseconds, si};
use compiler::calibrate::StoredRange;
use compiler::compile::GroupKind;
use compiler::graph::Module;
use compiler::profile::DeviceProfile;
use compiler::remark::Remark;
use compiler::text::parse_module;
use compiler::trace::{CompileTrace, Group, TraceError, WeightSummary, texts_of_parts};
use graphview::layers::relative;
use graphview::picture::{Node, Picture};
use graphview::scene::short;
use rustc_hash::FxHashMap;

/// A trace, the text of its stages, and indices from boxes to groups, times and errors.
pub struct Document {
    trace: CompileTrace,
    texts: Vec<String>,
    /// Number of stages that are graphs: the source, and one after each pass.
    graphs: usize,
    by_function: FxHashMap<String, usize>,
    by_node: FxHashMap<String, Vec<usize>>,
    errors: FxHashMap<String, usize>,
    ranges: FxHashMap<String, Vec<usize>>,
    times: Vec<Option<f64>>,
    /// Of each group: dispatches with their kernels.
    calls: Vec<Vec<(usize, usize)>>,
    /// For each group, the groups that read it.
    readers: Vec<Vec<usize>>,
    /// Of each group: remarks about its border.
    borders: Vec<Vec<usize>>,
    /// The size of the compilation in one line.
    about: String,
    /// Kernels are tensor IR, which a processor runs; else shaders.
    tensor_ir: bool,
    /// Remarks about each node.
    remarks: FxHashMap<String, Vec<usize>>,
    /// Milliseconds of a run.
    run_ms: f64,
    /// Summaries of the model's constants by name.
    weights: FxHashMap<String, usize>,
    /// Of each constant that is packed: its type, such as `i4 block 32 [1024,1024]`.
    packed: FxHashMap<String, String>,
}

/// Packed constants by the remarks of the import: the detail is the name, the message ends with the type.
fn packed(trace: &CompileTrace) -> FxHashMap<String, String> {
    let imports = trace.remarks.iter().filter(|r| r.pass.as_str() == "import");
    imports.filter_map(|r| Some((r.detail.clone(), r.message.rsplit_once(" is ")?.1.to_string()))).collect()
}

/// Remarks by the names of the nodes that they are about.
fn remarks_by_node(trace: &CompileTrace) -> FxHashMap<String, Vec<usize>> {
    let mut out: FxHashMap<String, Vec<usize>> = FxHashMap::default();
    for (i, r) in trace.remarks.iter().enumerate() {
        r.nodes.iter().for_each(|n| out.entry(n.to_string()).or_default().push(i));
    }
    out
}

impl Document {
    /// Indexes a trace.
    ///
    /// # Errors
    /// When its stages cannot be restored.
    pub fn new(trace: CompileTrace) -> Result<Document, TraceError> {
        let texts = trace.stage_texts()?;
        let mut by_node: FxHashMap<String, Vec<usize>> = FxHashMap::default();
        for (i, g) in trace.groups.iter().enumerate() {
            for name in g.origins.iter().chain(&g.nodes) {
                let list = by_node.entry(name.clone()).or_default();
                if list.last() != Some(&i) {
                    list.push(i);
                }
            }
        }
        let mut calls = vec![vec![]; trace.groups.len()];
        trace.calls().enumerate().for_each(|(i, c)| calls[c.group].push((i, c.kernel)));
        let errors = trace.errors.iter().flat_map(|e| e.nodes.iter().enumerate());
        let mut ranges: FxHashMap<String, Vec<usize>> = FxHashMap::default();
        for (i, r) in trace.ranges.iter().flat_map(|r| r.values.iter().enumerate()) {
            ranges.entry(r.name.as_str().to_string()).or_default().push(i);
        }
        Ok(Document {
            graphs: (trace.passes.len() + 1).min(texts.len()),
            by_function: trace.groups.iter().enumerate().map(|(i, g)| (g.function.clone(), i)).collect(),
            errors: errors.map(|(i, e)| (e.name.clone(), i)).collect(),
            ranges,
            times: (0..trace.groups.len()).map(|g| trace.time_of_group(g).map(|t| t.us / 1000.0)).collect(),
            calls,
            readers: trace.readers(),
            borders: trace.border_remarks(),
            packed: packed(&trace),
            about: about_run(&trace),
            tensor_ir: serde_json::from_str(&trace.profile)
                .is_ok_and(|p: DeviceProfile| p.machine.register_tile().is_some()),
            remarks: remarks_by_node(&trace),
            run_ms: trace.run_ms(),
            weights: trace.weights.iter().enumerate().map(|(i, w)| (w.name.clone(), i)).collect(),
            by_node,
            texts,
            trace,
        })
    }
    /// The trace.
    pub fn trace(&self) -> &CompileTrace {
        &self.trace
    }
    /// The size of the compilation and its times, and the ranges of open sizes.
    pub fn about(&self) -> &str {
        &self.about
    }
    /// Whether kernels are tensor IR, which a processor runs, and no shaders.
    pub fn runs_tensor_ir(&self) -> bool {
        self.tensor_ir
    }
    /// The remarks about a group, in order.
    pub fn remarks_of_group(&self, group: usize) -> Vec<usize> {
        let g = &self.trace.groups[group];
        let names = g.origins.iter().chain(&g.nodes);
        let mut out: Vec<usize> = names.filter_map(|n| self.remarks.get(n)).flatten().copied().collect();
        out.sort_unstable();
        out.dedup();
        out
    }
    /// Milliseconds of a run; 0 if it was not timed.
    pub fn run_ms(&self) -> f64 {
        self.run_ms
    }
    /// The summary of one of the model's constants.
    pub fn weight(&self, name: &str) -> Option<&WeightSummary> {
        self.weights.get(name.trim_start_matches('@')).map(|&i| &self.trace.weights[i])
    }
    /// The type of a constant whose elements share words, such as `i4 block 32 [1024,1024]`; `None` for a plain one.
    pub fn packed(&self, constant: &str) -> Option<&str> {
        self.packed.get(constant.trim_start_matches('@')).map(String::as_str)
    }
    /// Every constant whose elements share words, with its type.
    pub fn all_packed(&self) -> impl Iterator<Item = (&str, &str)> {
        self.packed.iter().map(|(name, ty)| (name.as_str(), ty.as_str()))
    }
    /// Text of a stage; empty past the last one.
    pub fn text(&self, stage: usize) -> &str {
        self.texts.get(stage).map_or("", String::as_str)
    }
    /// Number of stages.
    pub fn stages(&self) -> usize {
        self.texts.len()
    }
    /// The last stage that is a graph; those behind it are tensor functions.
    pub fn last_graph(&self) -> usize {
        self.graphs.saturating_sub(1)
    }
    /// The stage with the same graph as `stage`: the last one up to it that changed something.
    pub fn graph_of(&self, stage: usize) -> usize {
        let last = stage.min(self.last_graph());
        (1..=last).rev().find(|&s| !self.trace.stages[s].delta.is_empty()).unwrap_or(0)
    }
    /// The picture of a stage.
    ///
    /// # Errors
    /// When its text does not parse.
    pub fn picture(&self, stage: usize) -> Result<Picture, String> {
        Picture::of_stage(self.text(stage)).map_err(|e| self.not_parsed(stage, &e))
    }
    fn not_parsed(&self, stage: usize, why: &str) -> String {
        let label = self.trace.stages.get(stage).map_or("", |s| s.label.as_str());
        format!("the stage `{label}` does not parse: {why}")
    }
    /// The module of the last stage `label`, of the tensor functions, and the device that it is for; of a network in
    /// parts that of part `part`.
    ///
    /// # Errors
    /// When the trace has no such stage, its text does not parse, or its device is unknown.
    pub fn functions(&self, label: &str, part: usize) -> Result<(Module, DeviceProfile), String> {
        let at = self.trace.stages.iter().rposition(|s| s.label == label);
        let at =
            at.ok_or_else(|| format!("this trace has no {label} tensor functions: `weft compile -o` stores them"))?;
        let profile = serde_json::from_str(&self.trace.profile);
        let profile = profile.map_err(|e| format!("the trace's device is not one that this Weft knows: {e}"))?;
        let name = self.trace.parts.get(part).map_or("", |p| p.name.as_str());
        let text = texts_of_parts(self.text(at)).into_iter().find(|p| p.0 == name).map_or("", |p| p.1);
        Ok((parse_module(text).map_err(|e| self.not_parsed(at, &e.to_string()))?, profile))
    }
    /// The groups of a box: itself, or the groups with its source nodes.
    pub fn groups_of(&self, node: &Node) -> Vec<usize> {
        if let Some(&g) = node.callee.as_ref().and_then(|c| self.by_function.get(c)) {
            return vec![g];
        }
        visit(node.origins.len());
        let mut list: Vec<usize> = node.origins.iter().flat_map(|o| self.groups_of_source(o)).copied().collect();
        list.sort_unstable();
        list.dedup();
        list
    }
    /// Groups that a source node went into.
    pub fn groups_of_source(&self, name: &str) -> &[usize] {
        self.by_node.get(name).map_or(&[], Vec::as_slice)
    }
    /// The group that a box is.
    pub fn group_of(&self, node: &Node) -> Option<usize> {
        node.callee.as_ref().and_then(|c| self.by_function.get(c)).copied()
    }
    /// Dispatches of a group, by their positions in the plan, with their kernels.
    pub fn calls_of(&self, group: usize) -> &[(usize, usize)] {
        self.calls.get(group).map_or(&[], Vec::as_slice)
    }
    /// Groups that read the results of a group.
    pub fn readers_of(&self, group: usize) -> &[usize] {
        self.readers.get(group).map_or(&[], Vec::as_slice)
    }
    /// Why two groups, the second of which reads the first, were not fused.
    pub fn border_between(&self, from: usize, to: usize) -> Vec<&Remark> {
        self.borders.get(from).map_or_else(Vec::new, |own| self.trace.border_between(from, to, own))
    }
    /// Why nothing more followed in a group's kernel.
    pub fn border_of(&self, group: usize) -> Vec<String> {
        self.trace.border_of_group(group, &self.borders[group], &self.readers[group])
    }
    /// A short name of the layer that a fused group is; `None` for other boxes.
    pub fn layer_of(&self, node: &Node) -> Option<String> {
        let label = &self.trace.groups[self.group_of(node)?].label;
        // Behind the layer stands what is fused with it, which the box says itself.
        Some(label.split('+').next().unwrap_or(label).to_string())
    }
    /// Milliseconds of a group on the device, where they were measured.
    pub fn time_of_group(&self, group: usize) -> Option<f64> {
        self.times.get(group).copied().flatten()
    }
    /// The title of the frame of a part of a network: its name, how often it runs, its time, and whether the host
    /// computes it.
    pub fn part_title(&self, node: &Node) -> Option<String> {
        let (part, host) = self.part_of(node)?;
        let place = if host.is_some() { " on the host" } else { "" };
        let time = self.time_of(node).map(|ms| format!(", {}{place}", milliseconds(ms)));
        Some(format!("part: {}{}", self.trace.part_title(part), time.unwrap_or_default()))
    }
    /// The part that a box is the frame of, and milliseconds of it on the host.
    fn part_of(&self, node: &Node) -> Option<(usize, Option<f64>)> {
        let name = node.key.strip_prefix("part ")?;
        let at = self.trace.parts.iter().position(|p| p.name == name)?;
        Some((at, self.trace.parts[at].host_ms))
    }
    /// Milliseconds of the groups that a box is in; of the frame of a part, of all of it.
    pub fn time_of(&self, node: &Node) -> Option<f64> {
        if let Some((part, host)) = self.part_of(node) {
            let groups = (0..self.times.len()).filter(|&g| self.trace.part_of_group(g) == part);
            return groups.filter_map(|g| self.time_of_group(g)).chain(host).reduce(|a, b| a + b);
        }
        self.groups_of(node).into_iter().filter_map(|g| self.time_of_group(g)).reduce(|a, b| a + b)
    }
    /// The text of a layer's box: its name as it is said inside of the layer `within`, its nodes, and the sums of its
    /// groups.
    pub fn layer_lines(&self, node: &Node, within: &str) -> Vec<String> {
        let mut lines = vec![short(&relative(&node.op, within)), node.name.clone()];
        let groups = self.groups_of(node);
        let sum = |of: fn(&Group) -> u64| groups.iter().map(|&g| of(&self.trace.groups[g])).sum::<u64>() as f64;
        let time = self.time_of(node).map(milliseconds);
        let (flops, bytes) = (sum(|g| g.flops), sum(|g| g.bytes));
        let with_unit = |x: f64, unit: &str| {
            let text = si(x);
            let digits = text.trim_end_matches(char::is_alphabetic);
            (x > 0.0).then(|| format!("{digits} {}{unit}", &text[digits.len()..]))
        };
        let (work, moved) = (with_unit(flops, "FLOP"), with_unit(bytes, "B"));
        lines.extend(time);
        lines.extend(work.into_iter().chain(moved).reduce(|a, b| format!("{a}, {b}")));
        lines
    }
    /// The largest relative error among the source nodes of a box, and whether it is within the tolerance.
    pub fn error_of(&self, node: &Node) -> Option<(f64, bool)> {
        visit(node.origins.len());
        let list = &self.trace.errors.as_ref()?.nodes;
        let own = node.origins.iter().filter_map(|o| self.errors.get(o)).map(|&i| (list[i].rel_l2, list[i].pass));
        own.max_by(|a, b| a.0.total_cmp(&b.0))
    }
    /// The ranges in f16 of the results of a box, over the inputs of a folder.
    pub fn ranges_of(&self, node: &Node) -> impl Iterator<Item = &StoredRange> {
        let list = self.trace.ranges.as_ref().map_or(&[][..], |r| &r.values);
        node.origins.iter().filter_map(|o| self.ranges.get(o)).flatten().map(move |&i| &list[i])
    }
    /// The largest magnitude of the results of a box, where it was looked at: over the inputs of a folder if those were
    /// measured.
    pub fn magnitude_of(&self, node: &Node) -> Option<f64> {
        if self.trace.ranges.is_some() {
            return self.ranges_of(node).map(|r| r.largest).max_by(f64::total_cmp);
        }
        let list = &self.trace.errors.as_ref()?.nodes;
        let own = node.origins.iter().filter_map(|o| self.errors.get(o)).map(|&i| list[i].max_magnitude);
        own.max_by(f64::total_cmp)
    }
    /// The largest relative error among the source nodes of a box with those of the nodes before.
    pub fn accumulated_error_of(&self, node: &Node) -> Option<f64> {
        let errors = self.trace.errors.as_ref()?;
        let own = node.origins.iter().filter_map(|o| self.errors.get(o)).map(|&i| &errors.nodes[i]);
        let each = own.filter_map(|n| if errors.cumulative { Some(n.rel_l2) } else { n.accumulated });
        each.max_by(f64::total_cmp)
    }
}

/// The size of a compilation and its times, and the ranges of open sizes.
fn about_run(t: &CompileTrace) -> String {
    let parts = if t.parts.is_empty() { String::new() } else { format!("{} parts, ", t.parts.len()) };
    let sizes = [t.sources.len(), t.groups.len(), t.calls().count(), t.kernels.len()];
    let [nodes, groups, dispatches, kernels] = sizes;
    let mut text = format!(
        "for {}: {parts}{nodes} nodes, {groups} groups, {dispatches} dispatches of {kernels} kernels, compiled in {}",
        t.profile_name,
        milliseconds(t.compile_ms)
    );
    if let Some(times) = &t.times {
        text += &format!(", runs in {}", milliseconds(times.latency_ms));
    }
    let open = t.dims.iter().map(|d| format!("{} {}..{}", d.name, d.low, d.high));
    let open: Vec<String> = open.collect();
    if open.is_empty() { text } else { format!("{text}; open: {}", open.join(", ")) }
}

/// A group in one line.
pub fn group_title(index: usize, g: &Group) -> String {
    let how = match g.kind {
        GroupKind::Kernel => format!("by {}", g.rule),
        GroupKind::View => "a view".to_string(),
        GroupKind::Host => "on the host".to_string(),
        GroupKind::Control => "control flow".to_string(),
    };
    let anchor = g.anchor.as_ref().map_or(String::new(), |a| format!(", anchor {a}"));
    let layout = g.layout.as_ref().map_or(String::new(), |l| format!(", {l}"));
    format!("{index}  {} ({how}{anchor}{layout})", g.ops.join(" + "))
}
