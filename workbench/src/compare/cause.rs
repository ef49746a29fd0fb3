//! Finds the cause of a failing comparison: errors along the graph, the node at which the tolerance is exceeded, and
//! the cost of keeping it in f32.
//!
//! For mixed precision, the interpreter rounds the same values that the compiled kernels store in f16. If that result
//! is within the tolerance, and without mixed precision, the device runs again with every node's result as an output.

use super::nodes::{NodeError, node_errors};
use super::record::CauseRecord;
use super::request::Request;
use crate::error::Result;
use crate::executor::Device;
use crate::precision::on_this_device;
use crate::progress::{Progress, log};
use compiler::agreement::{Difference, Tolerance};
use compiler::calibrate::{Accumulated, accumulate};
use compiler::dtype::DType;
use compiler::graph::Module;
use compiler::name::Name;
use compiler::passes::PipelineOptions;
use compiler::profile::DeviceProfile;
use compiler::tensor::Tensor;

/// Where a failure comes from.
#[derive(Default)]
pub struct Cause {
    /// Of mixed precision.
    pub rounding: Option<Accumulated>,
    /// The device's errors with those before them.
    pub device: Vec<NodeError>,
    /// The node that gives the first failing result.
    pub producer: Option<(String, String)>,
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
pub fn cause_of(a: &Request, run: &Run<'_>, rows: &[(String, Difference)]) -> Result<Option<Cause>> {
    let Some(at) = rows.iter().position(|r| !r.1.pass) else { return Ok(None) };
    let mut cause = Cause { producer: producer(run.module, at), ..Cause::default() };
    if run.mixed {
        let mut bar = Progress::new(&a.settings, &[]);
        let mut progress = |runs: f64| bar.report("cause", (runs * 10.0) as usize, 100);
        let tolerance = Tolerance::new(DType::F16, a.against.rtol, a.against.atol);
        let pipeline = on_this_device(&a.settings, run.pipeline);
        match accumulate(run.module, &pipeline, run.profile, run.inputs, tolerance, &mut progress) {
            Ok(found) => cause.rounding = Some(found),
            Err(e) => log(&a.settings, format!("cause: not found by rounding, since {e}")),
        }
    }
    if cause.rounding.as_ref().is_none_or(|r| r.used <= 1.0) {
        let along = Request { cumulative: true, ..a.clone() };
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

    /// As `--json` has it.
    pub fn record(&self) -> CauseRecord {
        let rounding = self.rounding.as_ref();
        CauseRecord {
            node: self.node(),
            tolerance_used: rounding.map(|r| r.used),
            saved_bytes: rounding.map(|r| r.saved),
            along: rounding.map(|r| r.points.clone()),
            passed_at: rounding.and_then(|r| r.passed.clone()),
        }
    }
}
