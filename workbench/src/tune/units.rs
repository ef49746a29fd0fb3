//! The tensor functions of a network, and where its time goes.

use super::runs::{Runs, Taken};
use crate::error::{Code, Error, Result};
use crate::names::did_you_mean;
use crate::node_names;
use compiler::compile::{Compiled, GroupKind, constant_operands, operand_buffers};
use compiler::name::Name;
use compiler::plan::PlanKernel;
use compiler::profile::DeviceProfile;
use compiler::schedule::{InstrRef, Workload};
use compiler::tir::{BufferId, TensorFunction};
use compiler::trace::Ceilings;
use std::collections::BTreeMap;
use weft::FunctionLine;

/// Bytes that the last-level cache may have where its size is not known.
const CACHE: u64 = 32 << 20;

/// A tensor function of a network, and its time.
pub struct Unit {
    /// Unscheduled.
    pub function: TensorFunction,
    /// The first group that calls it, as tables call it; the function's own name where none is known.
    pub label: String,
    /// Positions of operands that are constants, and their buffers.
    pub positions: Vec<usize>,
    /// Its constant operands.
    pub constants: Vec<BufferId>,
    /// Its key in the database.
    pub workload: Workload,
    /// Microseconds of all its dispatches in a run.
    pub us: f64,
    /// Calls in a run.
    pub calls: usize,
    /// Operations in floating point, and bytes of its operands, of all calls.
    pub flops: f64,
    /// Bytes of its operands and results.
    pub bytes: f64,
}

impl Unit {
    /// A function of the network, with its schedule; `None` for one with open sizes, or that is not scheduled. Its time
    /// is not known.
    pub fn of(compiled: &Compiled, name: Name, profile: &DeviceProfile) -> Option<(Unit, Vec<InstrRef>)> {
        let before = compiled.unscheduled.get(&name)?;
        if before.pending.is_empty() || !before.symbols.is_empty() {
            return None;
        }
        let function = TensorFunction { pending: vec![], ..before.clone() };
        let positions = constant_operands(&compiled.module, name);
        let mut unit = Unit::new(function, positions, profile);
        if let Some(first) = compiled.groups.iter().find(|g| g.tensor_function == Some(name)) {
            unit.label.clone_from(&first.label);
        }
        Some((unit, before.pending.clone()))
    }

    /// An unscheduled function of fixed sizes, whose time is not known.
    pub fn new(function: TensorFunction, positions: Vec<usize>, profile: &DeviceProfile) -> Unit {
        let constants = operand_buffers(&function, &positions);
        let workload = Workload::of(&function, &constants, profile);
        let label = function.name.to_string();
        Unit { function, label, positions, constants, workload, us: 0.0, calls: 0, flops: 0.0, bytes: 0.0 }
    }

    /// The share of the device's peak rates that it reaches. What caches may hold is not bound by memory.
    pub fn part_of_roof(&self, c: &Ceilings, profile: &DeviceProfile) -> f64 {
        let cached = self.bytes / self.calls.max(1) as f64 <= profile.cache_bytes.max(CACHE) as f64;
        // Operations in a microsecond are 10^6 in a second.
        let rate = |count: f64| count / self.us.max(1e-3) / 1e3;
        c.fraction(rate(self.flops), if cached { 0.0 } else { rate(self.bytes) })
    }
}

/// The tensor functions that a name means: a kernel as tables call it or one of its nodes, the function itself, or
/// all of
/// a layer, those with most multiply-accumulates first.
///
/// # Errors
/// There is none.
pub fn owners(compiled: &Compiled, name: &str) -> Result<Vec<Name>> {
    let kernels = &compiled.plan.kernels;
    if let Some(k) = kernels.iter().find(|k| k.name == name) {
        return Ok(vec![k.function]);
    }
    if let Some(f) = compiled.unscheduled.keys().find(|f| f.as_str() == name) {
        return Ok(vec![*f]);
    }
    // `layer1` of `layer1+relu/relu_0`.
    let own = |k: &PlanKernel| node_names::base(k.name.split('/').next().unwrap_or(&k.name)) == node_names::base(name);
    let of_nodes = || compiled.groups.iter().filter(|g| g.origins.iter().any(|o| o.as_str() == name));
    let of_label = || compiled.groups.iter().filter(|g| g.label == name);
    let found: [Vec<Name>; 4] = [
        // Equal groups share a function, whose kernels are called after the first of them.
        of_label().filter_map(|g| g.tensor_function).collect(),
        kernels.iter().find(|k| own(k)).map(|k| k.function).into_iter().collect(),
        of_nodes().filter_map(|g| g.tensor_function).collect(),
        kernels.iter().filter(|k| node_names::in_layer(&k.name, name)).map(|k| k.function).collect(),
    ];
    let mut found = found.into_iter().find(|list| !list.is_empty()).unwrap_or_default();
    found.retain(|f| compiled.unscheduled.contains_key(f));
    let work = |f: &Name| compiled.unscheduled[f].multiply_accumulates().as_const().unwrap_or(0);
    found.sort_by_key(|f| std::cmp::Reverse(work(f)));
    found.dedup();
    if !found.is_empty() {
        return Ok(found);
    }
    if of_label().chain(of_nodes()).any(|g| g.kind == GroupKind::View) {
        return Err(Error::usage(format!("`{name}` has no kernel: it is a view, which costs nothing"))
            .help("`weft explain MODEL --node NAME` says what is around it"));
    }
    let known = kernels.iter().map(|k| k.name.clone()).chain(compiled.unscheduled.keys().map(|f| f.to_string()));
    let near = did_you_mean(name, known.collect());
    Err(Error::usage(format!("there is no kernel `{name}`"))
        .help(near.unwrap_or_else(|| "`weft compile MODEL` lists the kernels".into())))
}

/// The time of a function in a network, and how often it is called.
pub struct Timed {
    /// Its line in the database.
    pub line: FunctionLine,
    /// How often a run calls it.
    pub calls: usize,
}

/// Times of the functions of a network in which nothing is open.
pub fn timed(executor: &weft::Session, profile: &DeviceProfile, runs: &Runs) -> Result<Vec<Timed>> {
    let one = |unit: Unit| {
        let calls = unit.calls;
        let line = FunctionLine {
            device: unit.workload.device,
            form: unit.function.form(&unit.constants).to_string(),
            name: unit.function.name.to_string(),
            us: unit.us / calls as f64,
            withdrawn: false,
            weft: env!("CARGO_PKG_VERSION").into(),
        };
        Timed { line, calls }
    };
    Ok(units(executor, profile, runs)?.into_iter().map(one).collect())
}

/// The functions that rules scheduled, those with the most time in these runs first.
///
/// # Errors
/// A model whose kernels are not known before a run.
pub fn units(executor: &weft::Session, profile: &DeviceProfile, runs: &Runs) -> Result<Vec<Unit>> {
    let compiled = executor.compilation().ok_or_else(|| Error::new(Code::Bug, "a session without its compilation"))?;
    let times = runs.functions(compiled);
    let mut work: BTreeMap<&str, [f64; 2]> = BTreeMap::new();
    for d in compiled.plan.dispatches() {
        let own = work.entry(compiled.plan.kernels[d.kernel].function.as_str()).or_default();
        *own = [own[0] + d.flops as f64, own[1] + d.bytes as f64];
    }
    let mut out = Vec::new();
    for (name, before) in &compiled.unscheduled {
        let Some(&Taken { us, calls }) = times.get(name.as_str()) else { continue };
        if let Some((unit, _)) = Unit::of(compiled, before.name, profile) {
            let [flops, bytes] = work.get(name.as_str()).copied().unwrap_or_default();
            out.push(Unit { us, calls, flops, bytes, ..unit });
        }
    }
    out.sort_by(|a, b| b.us.total_cmp(&a.us));
    Ok(out)
}
