//! Explanations of models and traces.
//!
//! A model is compiled first, and its trace is explained, so that a model and its trace give the same output.

use crate::error::{Error, Result};
use crate::executor::{compile_options, pipeline_for, target_profile};
use crate::inputs::Inputs;
use crate::models::load;
use crate::node_names;
use crate::parts::{Parts, compile_parts};
use crate::settings::Settings;
use compiler::compile::{CompileOptions, GroupKind};
use compiler::trace::{CompileTrace, Contents};
pub use graphview::explain::{Explained, Subject, record};
use graphview::explain::{NotExplained, Record};
use rustc_hash::FxHashSet;

/// An explanation to give.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// Path or zoo name of a model, or a trace or a bundle.
    pub model: String,
    /// Values for its inputs.
    pub input: Inputs,
    /// The subject.
    pub subject: Subject,
    /// Say more.
    pub verbose: bool,
    /// Everything else.
    pub settings: Settings,
}

/// Explains a model or a trace; of a layer each group, or kernel, in it.
///
/// # Errors
/// Those of loading and compiling, and of [`of_trace`].
pub fn explain(a: &Request) -> Result<Vec<Explained>> {
    let (trace, parts) = match crate::traces::given(&a.model, &a.settings)? {
        Some(trace) => (trace, None),
        None => compiled(a)?,
    };
    let mut all = of_layer(&trace, &a.subject, a.verbose)?;
    if let ([Explained { record: Record::Model(record), document }], Some(parts)) = (&mut all[..], parts) {
        document.say("\nParts: a run decides sizes, and all this is the part that is known before");
        parts.tell(document);
        record.parts = Some(parts.record());
    }
    Ok(all)
}

/// As [`of_trace`]; a name that no node or kernel has may be a layer's.
fn of_layer(trace: &CompileTrace, subject: &Subject, verbose: bool) -> Result<Vec<Explained>> {
    let why = match of_trace(trace, subject, verbose) {
        Ok(found) => return Ok(vec![found]),
        Err(why) => why,
    };
    let inside: Vec<Subject> = match subject {
        Subject::Node(name) => nodes_in(trace, name).into_iter().map(Subject::Node).collect(),
        Subject::Kernel(name) => kernels_in(trace, name).into_iter().map(Subject::Kernel).collect(),
        _ => vec![],
    };
    if !inside.is_empty() {
        return inside.iter().map(|s| of_trace(trace, s, verbose)).collect();
    }
    if let Subject::Kernel(name) = subject
        && let Some(&g) = graphview::names::find(trace, name).groups.first()
    {
        let how =
            if trace.groups[g].kind == GroupKind::View { "is a view, which costs nothing" } else { "runs on the host" };
        let help = "`weft explain MODEL --node NAME` says what is around it";
        return Err(Error::usage(format!("`{name}` has no kernel: it {how}")).help(help));
    }
    let near = match subject {
        Subject::Kernel(name) => crate::names::did_you_mean(name, graphview::names::all(trace)),
        _ => None,
    };
    Err(near.into_iter().fold(why, Error::help))
}

/// A node of each group that has nodes of the layer, in the order they run; the node itself of one that is in none.
fn nodes_in(trace: &CompileTrace, layer: &str) -> Vec<String> {
    let nodes: Vec<(&str, &str)> = trace.sources.iter().map(|s| (s.name.as_str(), s.op.as_str())).collect();
    let of_groups = trace.groups.iter().flat_map(|g| g.origins.iter().map(|o| (o.as_str(), "")));
    let nodes = if nodes.is_empty() { of_groups.collect() } else { nodes };
    let found: Vec<&str> = node_names::find(layer, &nodes).into_iter().map(|i| nodes[i].0).collect();
    let first = |g: &compiler::trace::Group| g.origins.iter().find(|o| found.contains(&o.as_str())).cloned();
    let mut out: Vec<String> = trace.groups.iter().filter_map(first).collect();
    let mut seen = FxHashSet::default();
    out.retain(|n| seen.insert(n.clone()));
    out
}

/// The kernels of a layer, or of one of its nodes; of each function one, since its kernels have the same choices.
fn kernels_in(trace: &CompileTrace, layer: &str) -> Vec<String> {
    let of_node = graphview::names::find(trace, layer).groups;
    let holds = |k: &&compiler::trace::Kernel| {
        node_names::in_layer(&k.name, layer) || k.function == layer || k.groups.iter().any(|g| of_node.contains(g))
    };
    let mut seen = FxHashSet::default();
    let each = trace.kernels.iter().filter(holds).filter(|k| seen.insert(k.function.as_str()));
    each.map(|k| k.name.clone()).collect()
}

/// Explains a trace.
///
/// # Errors
/// No such node or kernel; nothing was measured; a trace without stages.
pub fn of_trace(trace: &CompileTrace, subject: &Subject, verbose: bool) -> Result<Explained> {
    graphview::explain::of_trace(trace, subject, verbose).map_err(|e| match e {
        NotExplained::Unknown { why, help } => Error::usage(why).help(help),
        NotExplained::Lacking(why) => Error::input(why),
    })
}

/// The compilation of a model; of one in parts, of what is known before a run, with the parts.
fn compiled(a: &Request) -> Result<(CompileTrace, Option<Parts>)> {
    let given = crate::inputs::given(&a.input, &a.model, &a.settings)?;
    let module = load(&a.model, &a.settings, given.as_ref())?;
    let profile = target_profile(&a.settings)?;
    let inputs = crate::models::calibration_inputs(&module, given.as_ref(), &a.settings)?;
    // Estimates are told from the recorded stages.
    let record = a.verbose || matches!(a.subject, Subject::Kernel(_) | Subject::Left);
    let pipeline = pipeline_for(&module, &a.settings, &profile, &inputs)?;
    let options = CompileOptions { record, ..compile_options(pipeline, &a.settings, &profile)? };
    let c = compile_parts(module, &options, &a.settings, &profile)?;
    Ok((c.trace(&a.model, &options, Contents::Summary)?, c.parts))
}
