//! Finds the cause of a failing comparison: errors along the graph, the node at which the tolerance is exceeded, and
//! the cost of keeping it in f32.
//!
//! For mixed precision, the interpreter rounds the same values that the compiled kernels store in f16. If that result
//! is within the tolerance, and without mixed precision, the device runs again with every node's result as an output.

use crate::args::CompareArgs;
use crate::error::CliResult;
use crate::executor::Device;
use crate::node_errors::{NodeError, node_errors};
use crate::output::{Progress, log, print_text, show_table, table};
use crate::precision::on_this_device;
use compiler::agreement::{Difference, Tolerance};
use compiler::calibrate::{Accumulated, Passed, Point, accumulate};
use compiler::dtype::DType;
use compiler::graph::Module;
use compiler::name::Name;
use compiler::passes::PipelineOptions;
use compiler::passes::mixed_precision::escape_pattern;
use compiler::profile::DeviceProfile;
use compiler::tensor::Tensor;
use serde_json::{Value, json};

/// Nodes that the table of errors names, at most: those that add most.
const ROWS: usize = 12;

/// Where a failure comes from.
#[derive(Default)]
pub struct Cause {
    /// Of mixed precision.
    rounding: Option<Accumulated>,
    /// The device's errors with those before them.
    device: Vec<NodeError>,
    /// The node that gives the first failing result.
    producer: Option<(String, String)>,
}

/// The model and the device of the run.
pub struct Run<'r> {
    pub module: &'r Module,
    pub inputs: &'r [Tensor],
    pub device: &'r Device,
    pub profile: &'r DeviceProfile,
    pub pipeline: &'r PipelineOptions,
    /// The nodes that calibration keeps in f32, as names of the model.
    pub chosen: &'r [Name],
    /// It stores something in f16.
    pub mixed: bool,
}

/// Looks for the cause of differences; `None` where the results agree.
///
/// # Errors
/// An error of a run on the device. For a graph that the interpreter cannot run with rounding, there are no errors
/// along the graph.
pub fn cause_of(a: &CompareArgs, run: &Run<'_>, rows: &[(String, Difference)]) -> CliResult<Option<Cause>> {
    let Some(at) = rows.iter().position(|r| !r.1.pass) else { return Ok(None) };
    let mut cause = Cause { producer: producer(run.module, at), ..Cause::default() };
    if run.mixed {
        let mut bar = Progress::new(&a.common, &[]);
        let mut progress = |runs: f64| bar.report("cause", (runs * 10.0) as usize, 100);
        let tolerance = Tolerance::new(DType::F16, a.rtol, a.atol);
        let pipeline = on_this_device(&a.common, run.pipeline);
        match accumulate(run.module, &pipeline, run.profile, run.inputs, tolerance, &mut progress) {
            Ok(found) => cause.rounding = Some(found),
            Err(e) => log(&a.common, format!("cause: not found by rounding, since {e}")),
        }
    }
    if cause.rounding.as_ref().is_none_or(|r| r.used <= 1.0) {
        let along = CompareArgs { cumulative: true, ..a.clone() };
        cause.device = node_errors(&along, run.module, run.inputs, run.device, run.pipeline)?;
    }
    Ok(Some(cause))
}

/// The node that gives result `i` of the model.
fn producer(module: &Module, i: usize) -> Option<(String, String)> {
    let f = module.main();
    let n = f.def_node(*f.results().get(i)?)?;
    Some((f.nodes[n].name.to_string(), f.nodes[n].op.name().to_string()))
}

impl Cause {
    /// The node that it leads to.
    pub fn node(&self) -> Option<String> {
        let failing = self.device.iter().find(|n| !n.difference.pass).map(|n| n.name.clone());
        let passed = || self.rounding.as_ref()?.passed.as_ref().map(|p| p.node.to_string());
        failing.or_else(passed).or_else(|| self.producer.as_ref().map(|p| p.0.clone()))
    }

    pub fn to_json(&self) -> Value {
        let point =
            |p: &Point| json!({ "name": p.node.as_str(), "op": p.op, "rel_l2": p.error, "tolerance_used": p.used });
        let passed = |p: &Passed| {
            json!({ "name": p.node.as_str(), "op": p.op, "before": p.before, "after": p.after, "kept": p.kept, "bytes": p.bytes,
                "keep": p.keep.iter().map(|n| escape_pattern(n.as_str())).collect::<Vec<_>>() })
        };
        let rounding = self.rounding.as_ref();
        json!({
            "node": self.node(),
            "tolerance_used": rounding.map(|r| r.used),
            "saved_bytes": rounding.map(|r| r.saved),
            "along": rounding.map(|r| r.points.iter().map(point).collect::<Vec<_>>()),
            "passed_at": rounding.and_then(|r| r.passed.as_ref()).map(passed),
        })
    }

    /// For people.
    pub fn print(&self, a: &CompareArgs) -> CliResult<()> {
        if let Some(r) = &self.rounding {
            print_points(a, r)?;
            if let Some(p) = &r.passed {
                print_text(&passed_text(r, p))?;
            }
        }
        if let Some(n) = self.device.iter().find(|n| !n.difference.pass) {
            let why = &n.difference.why;
            return print_text(&format!("on the device, the first node that departs is {} ({}): {why}", n.name, n.op));
        }
        match (&self.rounding, &self.producer) {
            (None | Some(Accumulated { passed: None, .. }), Some((name, op))) => {
                print_text(&format!("no node departs by itself; what fails is given by {name} ({op})"))
            }
            _ => Ok(()),
        }
    }
}

/// Nodes whose errors are larger than all before them, those that add most; all of them with `-v`.
fn print_points(a: &CompareArgs, r: &Accumulated) -> CliResult<()> {
    let mut most = 0.0f64;
    let mut rising: Vec<(f64, usize)> = Vec::new();
    for (i, p) in r.points.iter().enumerate().filter(|(_, p)| p.error > 0.0) {
        let more = if most.is_infinite() { 0.0 } else { p.error - most };
        if more > 0.0 || a.common.verbose > 0 {
            rising.push((more, i));
        }
        most = most.max(p.error);
    }
    if a.common.verbose == 0 {
        rising.sort_by(|x, y| y.0.total_cmp(&x.0));
        rising.truncate(ROWS);
        rising.sort_by_key(|r| r.1);
    }
    let mut t = table(&["errors along the graph", "op", "rel l2", "of the tolerance"]);
    for p in rising.into_iter().map(|(_, i)| &r.points[i]) {
        let figures = [format!("{:.3e}", p.error), format!("{:.2}", p.used)];
        t.add_row([p.node.to_string(), p.op.clone()].into_iter().chain(figures));
    }
    show_table(&t)
}

fn passed_text(r: &Accumulated, p: &Passed) -> String {
    let (node, op) = (p.node, &p.op);
    let whole = match r.used <= 1.0 {
        false => format!("the tolerance is passed at {node} ({op})"),
        true => format!("rounding alone takes {:.2} of the tolerance, most of it up to {node} ({op})", r.used),
    };
    let keep: Vec<String> = p.keep.iter().map(|n| format!("--keep-f32 '{}'", escape_pattern(n.as_str()))).collect();
    format!(
        "{whole}: the results take {:.2} of it with the roundings before, {:.2} with this one\n\
         with {} it stays in f32, for {} of the {} bytes that f16 saves; the results then take {:.2} of the tolerance",
        p.before,
        p.after,
        keep.join(" "),
        p.bytes,
        r.saved,
        p.kept
    )
}
