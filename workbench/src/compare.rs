//! Compares the results of a device with another way of computing them.
//!
//! A comparison names both sides. Comparing a side with itself proves nothing and is refused.

mod cause;
mod data;
mod keep;
pub mod nodes;
mod peer;
pub mod record;
mod request;
mod roundings;
mod side;
mod steps;

use crate::arrays::Named;
pub use crate::compare::nodes::NodeError;
use crate::compare::nodes::node_errors;
use crate::device::DeviceRecord;
use crate::error::{Code, Error, Result};
use crate::executor::{Device, calibrated_pipeline, execute_with, profile_on};
use crate::match_models::{ModelDiff, match_modules};
use crate::models::{Chance, inputs_for, load};
use crate::parts::recorded;
use crate::precision::{on_this_device, rounded_as_there};
use crate::range_checks::count_out_of_range;
use crate::record::Versioned;
pub use cause::Cause;
use cause::{Run, cause_of};
use compiler::agreement::{Difference, Tolerance};
use compiler::calibrate::{Stored, storage_of};
use compiler::compile::lost_positions;
use compiler::dtype::DType;
use compiler::graph::Module;
use compiler::interpreter::NodeOutOfRange;
use compiler::passes::mixed_precision::keep_list;
use compiler::trace::{self, CompileTrace, Errors};
pub use data::{Case, FolderComparison, Output, Row, WORST, over_folder};
use keep::Found;
pub use peer::{Peer, RUNS as PEER_RUNS};
pub use record::Keep;
use record::{
    Compared, ComparisonRecord, DifferenceRecord, NothingToCompare, Record, ResultRecord, ResultsRecord, TimesBeside,
};
pub use request::{Against, Request};
use roundings::Parts;
pub use roundings::Rounded;
pub use side::Side;
pub use side::reference_of;
use side::{Reference, differences, refuse_all_in_f32, refuse_itself, warn_of_lost_nan};

/// The outcome of a comparison.
#[derive(Default)]
pub struct Comparison {
    /// Name of the model.
    pub model: String,
    /// All results agree.
    pub pass: bool,
    /// The device.
    pub device: DeviceRecord,
    /// Both sides; none where there was nothing to compare.
    pub sides: Option<[Side; 2]>,
    /// The results by name.
    pub outputs: Vec<(String, Difference)>,
    /// The nodes, where they were looked at.
    pub nodes: Vec<NodeError>,
    /// The savings of mixed precision.
    pub stored: Option<Stored>,
    /// Where results differ and the network rounds: its parts on the reference's integers, by which it is judged then.
    pub rounded: Option<Rounded>,
    /// Where a failure comes from.
    pub cause: Option<Cause>,
    /// The nodes of this model and of the other one that is the reference.
    pub models: Option<Box<ModelDiff>>,
    /// The keep list that was asked for.
    pub keep: Option<Keep>,
    /// Results that hold the mark of a position that was not found.
    pub lost: Vec<String>,
    /// Elements out of range, where they were counted.
    pub out_of_range: Option<Vec<NodeOutOfRange>>,
    /// The trace that was asked for.
    pub trace: Option<Box<CompileTrace>>,
    /// Something is stored in f16.
    pub mixed: bool,
    /// The medians of a run here and of one in another runtime, in milliseconds, if there is one beside.
    pub times_ms: Option<[f64; 2]>,
}

/// Compares a device with a reference.
///
/// # Errors
/// A side that would be held against itself; what loading, compiling and running say.
pub fn compare(a: &Request) -> Result<Comparison> {
    refuse_itself(a)?;
    keep::refuse_without_f16(a)?;
    let settings = &a.settings;
    let given = crate::inputs::given(&a.input, &a.model, settings)?;
    let module = load(&a.model, settings, given.as_ref())?;
    let inputs = inputs_for(&module, given.as_ref(), settings)?;
    let chance = Chance::of(&module, &inputs, given.as_ref());
    let device = crate::executor::open_device(settings)?;
    warn_of_lost_nan(a);
    let counted = a.check_indices.then(|| count_out_of_range(&module, &inputs, settings)).transpose()?;
    let profile = profile_on(settings, &device)?;
    let (pipeline, chosen) = calibrated_pipeline(&module, settings, &profile, &inputs).map_err(|e| chance.blamed(e))?;
    let (module, rounded) = rounded_as_there(module, settings, &pipeline, &profile)?;
    let executor = execute_with(module.clone(), pipeline.clone(), settings, &device, &profile, false)?;
    let mixed = executor.is_mixed();
    let mut out =
        Comparison { model: a.model.clone(), device: crate::device::describe(&device), mixed, ..Default::default() };
    if refuse_all_in_f32(a, &device, mixed)? {
        return Ok(Comparison { pass: true, ..out });
    }
    let names = executor.output_names();
    let (got, place) = executor.run_unchecked(&inputs).map_err(|e| chance.blamed(e))?;
    out.lost = lost_positions(&module, &inputs, &got);
    let own_ms = a.peer.as_ref().map(|_| timed(|| Ok(executor.run_unchecked(&inputs).map(drop)?))).transpose()?;
    drop(executor);
    let result = Side::of_run(&device, place, if mixed { &settings.amp } else { "off" });
    let reference = Reference::open(a, &module, &device, &inputs)?;
    let (want, against) = reference.run(settings, &module, &device, &inputs, &result)?;
    out.times_ms = own_ms.zip(reference.ms()).map(|(own, peer)| [own, peer]);
    let mut parts = Parts { a, module: &module, device: &device, pipeline: &pipeline, compiled: None };
    (out.outputs, out.rounded) = parts.judge(&reference, &inputs, (&names, &got), &want, [mixed, rounded])?;
    drop(parts);
    out.pass = out.lost.is_empty() && out.outputs.iter().all(|r| r.1.pass);
    let other = reference.model().filter(|_| !out.pass || a.nodes);
    let matched =
        |(other, file): (&Module, &str)| match_modules([&a.model, file], [&module, other], &inputs, None, settings);
    out.models = other.map(matched).transpose()?.map(Box::new);
    drop(reference);
    out.nodes = node_errors(a, &module, &inputs, &device, &pipeline)?;
    let (module, inputs, device, profile, pipeline) = (&module, &inputs[..], &device, &profile, &pipeline);
    let run = Run { module, inputs, device, profile, pipeline, chosen: &chosen, mixed };
    if mixed {
        out.stored = storage_of(module, &on_this_device(settings, pipeline), profile).ok();
    }
    if !a.against.is_model() {
        out.cause = cause_of(a, &run, &out.outputs)?;
    }
    out.keep = a.keep.then(|| find_keep(a, &run, &want)).transpose()?;
    if a.trace {
        let mut trace = recorded(&a.model, module.clone(), settings, profile, inputs)?;
        trace.errors = Some(errors(a, device, mixed, &out.nodes, &out.outputs));
        out.trace = Some(Box::new(trace));
    }
    Ok(Comparison { sides: Some([result, against]), out_of_range: counted, ..out })
}

/// The median of as many runs as the other runtime is timed in, in milliseconds.
fn timed(mut run: impl FnMut() -> Result<()>) -> Result<f64> {
    let mut all = Vec::with_capacity(PEER_RUNS);
    for _ in 0..PEER_RUNS {
        let start = std::time::Instant::now();
        run()?;
        all.push(start.elapsed().as_secs_f64() * 1e3);
    }
    all.sort_by(f64::total_cmp);
    Ok((all[(PEER_RUNS - 1) / 2] + all[PEER_RUNS / 2]) / 2.0)
}

impl Comparison {
    /// As `--json` has it.
    pub fn record(&self) -> Versioned<Record<ComparisonRecord>> {
        let Some([result, against]) = self.sides.clone() else {
            return Versioned::new(Record::Nothing(NothingToCompare::of(&self.model, &self.device)));
        };
        let failing = || self.nodes.iter().find(|n| !n.difference.pass).map(|n| n.name.clone());
        let compared = Compared {
            model: self.model.clone(),
            pass: self.pass,
            device: self.device.clone(),
            result,
            against,
            outputs: self.outputs.iter().map(|(n, d)| DifferenceRecord::of(n, d)).collect(),
            nodes: self.nodes.iter().map(DifferenceRecord::of_node).collect(),
            first_failing: self.cause.as_ref().and_then(|c| failing().or_else(|| c.node())),
        };
        Versioned::new(Record::Compared(Box::new(ComparisonRecord {
            compared,
            mixed: self.stored,
            rounded: self.rounded.clone(),
            cause: self.cause.as_ref().map(Cause::record),
            models: self.models.as_deref().cloned(),
            keep: self.keep.clone(),
            lost_positions: self.lost.clone(),
            out_of_range: self.out_of_range.clone(),
            times: self.times_ms.map(|[own_ms, peer_ms]| TimesBeside { own_ms, peer_ms }),
        })))
    }

    /// The error of a comparison that does not pass.
    pub fn failure(&self) -> Option<Error> {
        let advise = self.mixed && self.keep.is_none();
        (!self.pass).then(|| differs(&self.outputs, &self.lost, advise))
    }
}

/// Compares results, which an open session gave, with those of a reference by name; `mixed`: the session stores values
/// in f16, whose tolerance then counts. The record has no sides.
///
/// # Errors
/// A reference without one of the results.
pub fn of_results(got: &Named, want: &Named, mixed: bool, against: &Against) -> Result<ResultsRecord> {
    let a = Request { against: against.clone(), ..Request::default() };
    let (names, got): (Vec<String>, Vec<_>) = got.iter().cloned().unzip();
    let rows = differences(&a, &names, &got, want, mixed)?;
    let row = |(name, d): &(String, Difference)| ResultRecord {
        difference: DifferenceRecord::of(name, d),
        pass: d.pass,
        why: d.why.clone(),
    };
    Ok(ResultsRecord { pass: rows.iter().all(|r| r.1.pass), outputs: rows.iter().map(row).collect() })
}

/// That results differ or hold lost positions, and perhaps what to do.
fn differs(rows: &[(String, Difference)], lost: &[String], advise: bool) -> Error {
    let differ = rows.iter().filter(|r| !r.1.pass).map(|r| format!("{}: {}", r.0, r.1.why));
    let why: Vec<String> = differ.chain(lost.iter().cloned()).collect();
    let e = Error::new(Code::Check, format!("results differ: {}", why.join("; ")));
    match advise {
        true => {
            e.help("--write-keep F looks for the smallest list of nodes to keep in f32 with which the results agree")
        }
        false => e,
    }
}

/// Looks for a keep list.
fn find_keep(a: &Request, run: &Run<'_>, want: &Named) -> Result<Keep> {
    let Found { passes, patterns, measured, about } = keep::find(a, run, want)?;
    let text = keep_list(&patterns, &about);
    Ok(Keep { passes, patterns, measured, text })
}

/// The differences as a trace holds them.
fn errors(a: &Request, device: &Device, mixed: bool, nodes: &[NodeError], outputs: &[(String, Difference)]) -> Errors {
    let error = |name: &str, d: &Difference, accumulated: Option<f64>| trace::NodeError {
        name: name.to_string(),
        max_abs: d.max_abs,
        rel_l2: d.rel_l2,
        max_magnitude: d.max_magnitude,
        pass: d.pass,
        accumulated,
    };
    let dtype = if mixed { DType::F16 } else { DType::F32 };
    Errors {
        device: device.label(),
        against: a.against.against.clone(),
        cumulative: a.cumulative,
        tolerance: Tolerance::new(dtype, a.against.rtol, a.against.atol).whole(),
        nodes: nodes.iter().map(|n| error(&n.name, &n.difference, n.accumulated)).collect(),
        outputs: outputs.iter().map(|(n, d)| error(n, d, None)).collect(),
    }
}
