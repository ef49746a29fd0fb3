//! Networks whose sizes are decided at run time: `weft compile` compiles the part with known sizes and lists the
//! others.
//!
//! `parts` in its JSON has, for each part, where it runs, its nodes, operands and results (with null for dimensions
//! that are not known yet), and the symbols that are read or decided there.

use crate::document::Document;
use crate::error::{Code, Error, Result};
use crate::executor::{compile_options, compile_with, pipeline_for};
use crate::settings::Settings;
use compiler::compile::{
    CompileError, CompileOptions, Compiled, NetworkParts, PartValue, compile_graph, split_network,
};
use compiler::graph::{Function, Module, NodeId, TensorType, input_ports};
use compiler::name::Name;
use compiler::ops::control::{Const, Loop};
use compiler::profile::DeviceProfile;
use compiler::remark::{Remark, RemarkKind};
use compiler::tensor::Tensor;
use compiler::trace::{CompileTrace, Contents};
use graphview::explain::record::{PartNode, PartRecord, SizeRecord, ValueRecord};

/// Where a node or a part runs.
const DEVICE: &str = "device";
const HOST: &str = "host";
/// A part that is compiled when a run has decided its sizes.
const DECIDED: &str = "decided";
/// The part that is known before a run.
const BEFORE: &str = "before";

/// Nodes of a part that a remark names.
const NAMED: usize = 12;

/// A compiled module. If it decides sizes at run time, only its head is compiled, and the parts are listed.
pub struct Parted {
    /// The compilation of the module, or of its head.
    pub compiled: Compiled,
    /// The parts; none of a network whose sizes are known.
    pub parts: Option<Parts>,
    /// The graphs of the parts behind the head, where the compilation is recorded: kernels need their sizes.
    rest: Vec<(&'static str, Compiled)>,
}

impl Parted {
    /// The trace, with the graphs of all parts.
    ///
    /// # Errors
    /// Code 3 when a weight cannot be read.
    pub fn trace(&self, model: &str, options: &CompileOptions, contents: Contents) -> Result<CompileTrace> {
        let head = crate::traces::of(model, &self.compiled, options, contents)?;
        if self.rest.is_empty() {
            return Ok(head);
        }
        let known = self.parts.as_ref().and_then(|p| p.0.first()).is_some_and(|p| p.name == BEFORE);
        let mut parts = if known { vec![(BEFORE.to_string(), head)] } else { vec![] };
        for (name, c) in &self.rest {
            parts.push((name.to_string(), crate::traces::of(model, c, options, contents)?));
        }
        CompileTrace::join(model, parts).map_err(|e| Error::new(Code::Bug, e.to_string()))
    }
}

/// The parts of a network, in the order they run.
pub struct Parts(Vec<Part>);

struct Part {
    name: &'static str,
    runs: &'static str,
    nodes: Vec<PartNode>,
    inputs: Vec<(Name, TensorType)>,
    results: Vec<(Name, TensorType)>,
    /// Symbols that are known when the part begins.
    reads: Vec<Size>,
    /// Symbols that its nodes define at run time.
    decides: Vec<Size>,
}

/// A size that a run decides.
struct Size {
    symbol: Name,
    /// The node that has it in a result.
    node: Name,
    /// The values that determine it, each with the node that computes it; empty if the node itself has to run.
    from: Vec<String>,
}

impl Size {
    fn said(&self, verb: &str) -> String {
        let from = if self.from.is_empty() { String::new() } else { format!(" from {}", self.from.join(" and ")) };
        format!("{verb} {} of {}{from}", self.symbol, self.node)
    }
    /// Says what keeps the network from being one compilation.
    fn remark(&self) -> Remark {
        let message = match self.from.is_empty() {
            true => format!("`{}` decides the size `{}` as it runs", self.node, self.symbol),
            false => {
                format!("`{}` has the size `{}`, which {} decides", self.node, self.symbol, self.from.join(" and "))
            }
        };
        Remark {
            pass: Name::new("plan"),
            kind: RemarkKind::Missed,
            nodes: vec![self.node],
            message,
            detail: String::new(),
        }
    }
}

/// The value of a part that another one takes, for messages: its name and the node that computes it.
fn source(stages: &NetworkParts, v: PartValue) -> String {
    let of = |f: &Function, n: usize| {
        let v = f.results()[n];
        let node = f.def_node(v).map(|n| &f.nodes[n]);
        match (f.values[v].name, node) {
            (Some(name), Some(node)) => format!("`{name}` of {} ({})", node.name, node.op.name()),
            (None, Some(node)) => format!("{} ({})", node.name, node.op.name()),
            (name, None) => format!("`{}`", name.unwrap_or_else(|| Name::new(""))),
        }
    };
    match v {
        PartValue::Input(n) => format!("the input `{}`", input_ports(&stages.head)[n].0),
        PartValue::Head(n) => of(stages.head.main(), n),
        PartValue::Sizing(n) => of(stages.sizing.main(), n),
    }
}

/// Compiles a module, or its head if sizes are decided at run time.
///
/// # Errors
/// As [`compile_with`]; a network that only the interpreter runs.
pub fn compile_parts(
    module: Module,
    options: &CompileOptions,
    settings: &Settings,
    profile: &DeviceProfile,
) -> Result<Parted> {
    let why = match compile_with(module.clone(), options, settings, profile) {
        Ok(compiled) => return Ok(Parted { compiled, parts: None, rest: vec![] }),
        Err(CompileError::NeedsCpu(why)) => why,
        Err(e) => return Err(e.into()),
    };
    compile_before(&module, options, settings, profile)?.ok_or_else(|| CompileError::NeedsCpu(why).into())
}

/// Compiles the head of a network that decides sizes at run time; `None` if no node does.
///
/// # Errors
/// As [`compile_with`].
pub fn compile_before(
    module: &Module,
    options: &CompileOptions,
    settings: &Settings,
    profile: &DeviceProfile,
) -> Result<Option<Parted>> {
    let Some(stages) = split_network(module).map_err(CompileError::from)? else { return Ok(None) };
    let known = !stages.head.main().results().is_empty();
    let mut compiled = match compile_with(stages.head.clone(), options, settings, profile) {
        Ok(compiled) => compiled,
        Err(CompileError::NeedsCpu(_)) => compile_graph(stages.head.clone(), options, profile)?,
        Err(e) => return Err(e.into()),
    };
    let parts = Parts::of(&stages, known, compiled.plan.dispatches().next().is_some());
    let mut rest = vec![];
    for (name, module) in [("deciding", &stages.sizing), ("after", &stages.tail)] {
        if options.record && !module.main().results().is_empty() {
            rest.push((name, compile_graph(module.clone(), options, profile)?));
        }
    }
    compiled.remarks.extend(parts.0.iter().skip(usize::from(known)).map(Part::remark));
    compiled.remarks.extend(parts.0.iter().flat_map(|p| p.reads.iter().chain(&p.decides)).map(Size::remark));
    Ok(Some(Parted { compiled, parts: Some(parts), rest }))
}

/// The trace of a compilation for a profile, with its stages; measurements are still to be put in.
pub fn recorded(
    model: &str,
    module: Module,
    settings: &Settings,
    profile: &DeviceProfile,
    inputs: &[Tensor],
) -> Result<CompileTrace> {
    let pipeline = pipeline_for(&module, settings, profile, inputs)?;
    let options = CompileOptions { record: true, ..compile_options(pipeline, settings, profile)? };
    compile_parts(module, &options, settings, profile)?.trace(model, &options, Contents::Full)
}

impl Parts {
    fn of(stages: &NetworkParts, known: bool, dispatches: bool) -> Parts {
        let mut parts = vec![];
        if known {
            parts.push(Part::of(BEFORE, if dispatches { DEVICE } else { HOST }, &stages.head));
        }
        let sizing = stages.sizing.main();
        if !sizing.results().is_empty() {
            let loops = sizing.walk().iter().any(|&n| sizing.nodes[n].op.is::<Loop>());
            parts.push(Part::of("deciding", if loops { DEVICE } else { HOST }, &stages.sizing));
        }
        let mut after = Part::of("after", DECIDED, &stages.tail);
        let sized = |node: Name| stages.sized.iter().find(|s| stages.tail.main().nodes[s.node].name == node);
        (after.reads, after.decides) = after.decides.into_iter().partition(|size| sized(size.node).is_some());
        for size in &mut after.reads {
            let operands = sized(size.node).into_iter().flat_map(|s| &s.operands);
            size.from = operands.map(|o| source(stages, o.1)).collect();
        }
        parts.push(after);
        Parts(parts)
    }

    /// `parts` of the record of `weft compile`.
    pub fn record(&self) -> Vec<PartRecord> {
        self.0.iter().map(Part::record).collect()
    }

    /// The parts as a table.
    pub fn tell(&self, out: &mut Document) {
        let row = |p: &Part| {
            let runs = match p.runs {
                DECIDED => "where a run has decided its sizes",
                DEVICE => "on the device",
                _ => "on the host",
            };
            let host = p.nodes.iter().filter(|n| n.runs == HOST);
            let said = |verb: &str, list: &[Size]| -> Vec<String> { list.iter().map(|size| size.said(verb)).collect() };
            vec![
                p.name.to_string(),
                runs.into(),
                p.nodes.len().to_string(),
                host.map(|n| n.name.as_str()).collect::<Vec<_>>().join(", "),
                [said("reads", &p.reads), said("decides", &p.decides)].concat().join(", "),
            ]
        };
        out.table(&["part", "runs", "nodes", "on the host", "sizes"], self.0.iter().map(row));
    }
}

impl Part {
    /// Says in a compilation of what comes before that this part is not in it.
    fn remark(&self) -> Remark {
        let mut names: Vec<String> = self.nodes.iter().take(NAMED).map(|n| format!("{} ({})", n.name, n.op)).collect();
        names.extend(self.nodes.len().checked_sub(NAMED + 1).map(|more| format!("{} more", more + 1)));
        let runs = if self.runs == DECIDED { "compiled when a run has decided its sizes" } else { "a part of its own" };
        let message = format!("{runs}: {}", names.join(", "));
        Remark { pass: Name::new("plan"), kind: RemarkKind::Missed, nodes: vec![], message, detail: String::new() }
    }
    fn of(name: &'static str, runs: &'static str, module: &Module) -> Part {
        let f = module.main();
        let nodes: Vec<NodeId> = f.blocks[f.body].nodes.clone();
        let named = f.result_names.iter().copied().zip(f.result_types.iter().cloned());
        let symbols = |&n: &NodeId| f.nodes[n].op.defined_symbols().into_iter().map(move |s| (s, n));
        Part {
            name,
            runs,
            nodes: nodes.iter().filter(|&&n| !f.nodes[n].op.is::<Const>()).map(|&n| node(f, n)).collect(),
            inputs: input_ports(module),
            results: named.collect(),
            reads: vec![],
            decides: (nodes.iter().flat_map(symbols))
                .map(|(symbol, n)| Size { symbol, node: f.nodes[n].name, from: vec![] })
                .collect(),
        }
    }

    fn record(&self) -> PartRecord {
        let size =
            |s: &Size| SizeRecord { symbol: s.symbol.to_string(), node: s.node.to_string(), from: s.from.clone() };
        let value = |(name, ty): &(Name, TensorType)| ValueRecord {
            name: name.to_string(),
            dtype: ty.dtype.to_string(),
            shape: ty.shape.iter().map(|d| d.as_const()).collect(),
            shape_expr: ty.shape.iter().map(ToString::to_string).collect(),
        };
        PartRecord {
            name: self.name,
            runs: self.runs,
            nodes: self.nodes.clone(),
            inputs: self.inputs.iter().map(value).collect(),
            results: self.results.iter().map(value).collect(),
            reads: self.reads.iter().map(size).collect(),
            decides: self.decides.iter().map(size).collect(),
        }
    }
}

/// A node with a tensor expression, or whose sizes as attributes give it one, or control flow, is for the device.
fn node(f: &Function, n: NodeId) -> PartNode {
    let node = &f.nodes[n];
    let kernel = node.op.has_compute() || !node.op.size_operands().is_empty() || !node.regions.is_empty();
    PartNode { name: node.name, op: node.op.name(), runs: if kernel { DEVICE } else { HOST } }
}

#[cfg(test)]
mod tests {
    use super::*;
    use compiler::text::parse_module;

    #[test]
    fn what_is_not_known_is_null_and_read_by_name() {
        let text = "graph @main(%x: f32[2,4]) -> (a: i64[2,found]) {\n  %0 = relu %x : f32[2,4]\n  \
            %1 = non_zero %0 {count=found} : i64[2,found]\n  return %1\n}\n";
        let module = parse_module(text).expect("parses");
        let stages = split_network(&module).expect("splits").expect("decides a size");
        let parts = Parts::of(&stages, true, true).record();
        assert_eq!((parts[0].name, parts[0].runs), ("before", "device"));
        let after = &parts[1];
        assert_eq!((after.name, after.runs), ("after", "decided"));
        assert_eq!(after.results[0].shape, [Some(2), None]);
        assert_eq!(after.results[0].shape_expr, ["2", "found"]);
        assert_eq!(after.reads[0].symbol, "found");
        let from = &after.reads[0].from[0];
        assert!(from.contains("non_zero"), "{from}");
        assert!(after.decides.is_empty());
    }
}
