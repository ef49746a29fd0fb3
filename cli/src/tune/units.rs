//! The tensor functions of a network, and where its time goes.

use crate::error::CliResult;
use compiler::compile::{Compiled, constant_operands, operand_buffers};
use compiler::profile::DeviceProfile;
use compiler::schedule::Workload;
use compiler::tensor::Tensor;
use compiler::tir::{BufferId, TensorFunction};
use runtime_gpu::Session;
use std::collections::BTreeMap;
use weft::statistics::Statistics;

/// Runs of the network that say where its time goes.
const RUNS: usize = 3;

/// A tensor function of a network, and its time.
pub struct Unit {
    /// Unscheduled.
    pub function: TensorFunction,
    /// Positions of operands that are constants, and their buffers.
    pub positions: Vec<usize>,
    pub constants: Vec<BufferId>,
    pub workload: Workload,
    /// Microseconds of all its dispatches in a run.
    pub us: f64,
}

/// Median microseconds of each tensor function's dispatches in a run.
pub fn times(session: &Session, compiled: &Compiled, inputs: &[Tensor]) -> CliResult<BTreeMap<String, f64>> {
    let mut resident = session.resident(inputs)?;
    resident.run()?;
    let mut runs: Vec<BTreeMap<String, f64>> = Vec::new();
    for _ in 0..RUNS {
        let mut sums = BTreeMap::new();
        for (kernel, _, us) in resident.time_dispatches()?.1 {
            *sums.entry(compiled.plan.kernels[kernel].function.to_string()).or_insert(0.0) += us;
        }
        runs.push(sums);
    }
    let median = |name: &String| {
        let own: Vec<f64> = runs.iter().filter_map(|r| r.get(name).copied()).collect();
        Statistics::of(&own).median
    };
    Ok(runs[0].keys().map(|name| (name.clone(), median(name))).collect())
}

/// The functions that rules scheduled, those with the most time first.
pub fn units(compiled: &Compiled, profile: &DeviceProfile, times: &BTreeMap<String, f64>) -> Vec<Unit> {
    let mut out = Vec::new();
    for (name, before) in &compiled.unscheduled {
        let Some(&us) = times.get(name.as_str()) else { continue };
        if before.pending.is_empty() || !before.symbols.is_empty() {
            continue;
        }
        let function = TensorFunction { pending: vec![], ..before.clone() };
        let positions = constant_operands(&compiled.module, *name);
        let constants = operand_buffers(&function, &positions);
        let workload = Workload::of(&function, &constants, profile);
        out.push(Unit { function, positions, constants, workload, us });
    }
    out.sort_by(|a, b| b.us.total_cmp(&a.us));
    out
}
