//! `weft compare`: compares the results of a device with another way of computing them.
//!
//! A comparison names both sides. Comparing a side with itself proves nothing and is refused.

mod cause;
mod data;
mod keep;
mod side;

use crate::args::CompareArgs;
use crate::arrays::Named;
use crate::error::{CliError, CliResult, Code};
use crate::executor::{Device, calibrated_pipeline, execute_with, profile_on};
use crate::models::{inputs_for, load};
use crate::node_errors::{NodeError, node_errors};
use crate::output::{log_once, print_text, show_table, table, verdict, write_json};
use crate::parts::recorded;
use crate::precision::on_this_device;
use crate::range_checks::{count_out_of_range, out_of_range_json, print_out_of_range};
use cause::{Cause, Run, cause_of};
use compiler::agreement::{Difference, Tolerance};
use compiler::calibrate::{Stored, storage_of};
use compiler::compile::lost_positions;
use compiler::dtype::DType;
use compiler::passes::mixed_precision::keep_list;
use compiler::profile::Nan;
use compiler::trace::{self, Errors};
use keep::Found;
pub use side::reference_of;
use side::{Reference, Side, differences, judge_all_in_f32, refuse_itself};
use std::path::Path;

/// Compares a device with a reference.
pub fn execute(a: &CompareArgs) -> CliResult<()> {
    refuse_itself(a)?;
    keep::refuse_without_f16(a)?;
    if let Some(folder) = &a.data {
        warn_of_lost_nan(a);
        return data::execute(a, folder);
    }
    let given = crate::inputs::given(&a.input, &a.model, &a.common)?;
    let module = load(&a.model, &a.common, given.as_ref())?;
    let inputs = inputs_for(&module, given.as_ref(), &a.common)?;
    let device = crate::executor::open_device(&a.common)?;
    warn_of_lost_nan(a);
    let counted = a.check_indices.then(|| count_out_of_range(&module, &inputs, &a.common)).transpose()?;
    let profile = profile_on(&a.common, &device)?;
    let (pipeline, chosen) = calibrated_pipeline(&module, &a.common, &profile, &inputs)?;
    let executor = execute_with(module.clone(), pipeline.clone(), &a.common, &device, &profile, false)?;
    let mixed = executor.is_mixed();
    if judge_all_in_f32(a, &device, mixed)? {
        return Ok(());
    }
    let names = executor.output_names();
    let (got, place) = executor.run_unchecked(&inputs)?;
    let lost = lost_positions(&module, &inputs, &got);
    drop(executor);
    let result = Side::of_run(&device, place, if mixed { &a.common.amp } else { "off" });
    let reference = Reference::open(a, &module, &device, &inputs)?;
    let (want, against) = reference.run(&a.common, &module, &device, &inputs, &result)?;
    drop(reference);
    let rows = differences(a, &names, &got, &want, mixed)?;
    let pass = lost.is_empty() && rows.iter().all(|r| r.1.pass);
    let nodes = node_errors(a, &module, &inputs, &device, &pipeline)?;
    let (module, inputs, device, profile, pipeline) = (&module, &inputs[..], &device, &profile, &pipeline);
    let run = Run { module, inputs, device, profile, pipeline, chosen: &chosen, mixed };
    let stored = match mixed {
        true => storage_of(module, &on_this_device(&a.common, pipeline), profile).ok(),
        false => None,
    };
    let cause = cause_of(a, &run, &rows)?;
    let keep = a.write_keep.as_ref().map(|path| write_keep(a, &run, &want, path)).transpose()?;
    if let Some(path) = &a.output {
        let mut trace = recorded(&a.model, module.clone(), &a.common, profile, inputs)?;
        trace.errors = Some(errors(a, device, mixed, &nodes, &rows));
        crate::trace::write(path, &trace, &a.common)?;
    }
    let failing = || nodes.iter().find(|n| !n.difference.pass).map(|n| n.name.clone());
    let mut json = serde_json::json!({
        "schema": 1, "model": a.model, "pass": pass, "device": crate::device::describe(device),
        "result": result, "against": against,
        "outputs": rows.iter().map(|(n, d)| with_name(n, None, d)).collect::<Vec<_>>(),
        "nodes": nodes.iter().map(|n| with_name(&n.name, Some(&n.op), &n.difference)).collect::<Vec<_>>(),
        "first_failing": cause.as_ref().and_then(|c| failing().or_else(|| c.node())),
        "mixed": stored.map(|s| serde_json::json!({ "nodes": s.nodes, "kept": s.kept, "fp32_bytes": s.single, "saved_bytes": s.saved })),
        "cause": cause.as_ref().map(Cause::to_json),
        "keep": keep,
        "lost_positions": lost,
    });
    if let Some(found) = &counted {
        json["out_of_range"] = out_of_range_json(found);
    }
    if !write_json(&a.common, &json)? {
        print_text(&format!("{} against {}", result.name(), against.name()))?;
        if let Some(s) = stored {
            print_text(&stored_text(&s))?;
        }
        print_table(a, &rows, &nodes)?;
        lost.iter().try_for_each(|l| print_text(&format!("{l}: a fault of a kernel, which found nothing")))?;
        cause.iter().try_for_each(|c| c.print(a))?;
        counted.as_deref().map_or(Ok(()), print_out_of_range)?;
    }
    if pass {
        return Ok(());
    }
    Err(differs(&rows, lost, mixed && keep.is_none()))
}

/// That results differ or hold lost positions, and perhaps what to do.
fn differs(rows: &[(String, Difference)], lost: Vec<String>, advise: bool) -> CliError {
    let differ = rows.iter().filter(|r| !r.1.pass).map(|r| format!("{}: {}", r.0, r.1.why));
    let why: Vec<String> = differ.chain(lost).collect();
    let e = CliError::new(Code::Check, format!("results differ: {}", why.join("; ")));
    match advise {
        true => {
            e.help("--write-keep F looks for the smallest list of nodes to keep in f32 with which the results agree")
        }
        false => e,
    }
}

/// The effect of mixed precision, in one line.
fn stored_text(s: &Stored) -> String {
    let mb = |bytes: u64| bytes as f64 / 1e6;
    let (kept, nodes) = (s.kept, s.nodes);
    format!(
        "f16 saves {:.2} of {:.2} MB of weights and intermediates; {kept} of {nodes} nodes are kept in f32",
        mb(s.saved),
        mb(s.single)
    )
}

/// Looks for a keep list and writes it; for JSON.
fn write_keep(a: &CompareArgs, run: &Run<'_>, want: &Named, path: &Path) -> CliResult<serde_json::Value> {
    let Found { passes, patterns, measured, about } = keep::find(a, run, want)?;
    crate::output::write_file(path, keep_list(&patterns, &about).as_bytes())?;
    Ok(serde_json::json!({ "passes": passes, "patterns": patterns, "measured": measured }))
}

/// A comparison that passes says less where kernels may lose a NaN.
fn warn_of_lost_nan(a: &CompareArgs) {
    if a.common.nan == Nan::Fast.name() {
        let text = "warning: --nan fast: these kernels may hide a NaN; without it Max, Min, Relu, Clip, Sign and pools keep it";
        log_once(&a.common, text);
    }
}

/// The differences as a trace holds them.
fn errors(
    a: &CompareArgs,
    device: &Device,
    mixed: bool,
    nodes: &[NodeError],
    outputs: &[(String, Difference)],
) -> Errors {
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
        against: a.against.clone(),
        cumulative: a.cumulative,
        tolerance: Tolerance::new(dtype, a.rtol, a.atol).whole(),
        nodes: nodes.iter().map(|n| error(&n.name, &n.difference, n.accumulated)).collect(),
        outputs: outputs.iter().map(|(n, d)| error(n, d, None)).collect(),
    }
}

fn print_table(a: &CompareArgs, rows: &[(String, Difference)], nodes: &[NodeError]) -> CliResult<()> {
    let mut t = table(&["", "output", "max abs", "max rel", "rel l2", "cosine", "nan, inf"]);
    for (n, d) in rows {
        t.add_row([
            verdict(d.pass),
            n.as_str().into(),
            format!("{:.3e}", d.max_abs).into(),
            format!("{:.3e}", d.max_rel).into(),
            format!("{:.3e}", d.rel_l2).into(),
            if d.cosine.is_nan() { "-".into() } else { format!("{:.7}", d.cosine).into() },
            (d.nan + d.inf).into(),
        ]);
    }
    show_table(&t)?;
    let bad: Vec<_> = nodes.iter().filter(|n| !n.difference.pass || a.common.verbose > 0).collect();
    if !bad.is_empty() {
        let mut t = table(&["", "node", "op", "max abs", "rel l2", "max magnitude", "nan, inf"]);
        for NodeError { name, op, difference: d, .. } in bad {
            t.add_row([
                verdict(d.pass),
                name.as_str().into(),
                op.as_str().into(),
                format!("{:.3e}", d.max_abs).into(),
                format!("{:.3e}", d.rel_l2).into(),
                format!("{:.3e}", d.max_magnitude).into(),
                (d.nan + d.inf).into(),
            ]);
        }
        show_table(&t)?;
    }
    Ok(())
}

/// The figures of one tensor for JSON.
fn with_name(name: &str, op: Option<&str>, d: &Difference) -> serde_json::Value {
    let mut v = serde_json::json!({ "name": name });
    if let Some(op) = op {
        v["op"] = op.into();
    }
    if let (Some(o), Ok(serde_json::Value::Object(rest))) = (v.as_object_mut(), serde_json::to_value(d)) {
        o.extend(rest);
        o.insert("tolerance_used".into(), d.used.into());
    }
    v
}
