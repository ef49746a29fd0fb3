//! `weft compare`: what a device gives, held against another way of computing the same.
//!
//! A comparison names both sides. One whose sides are the same says nothing, however well they agree, and is refused.

mod data;
mod side;

use crate::args::CompareArgs;
use crate::error::{CliError, CliResult, Code};
use crate::executor::{Device, profile_on};
use crate::models::{inputs_for, load};
use crate::node_errors::{NodeError, node_errors, nodes_to_keep};
use crate::output::{print_text, table, verdict, write_json};
use crate::parts::recorded;
use crate::precision::write_keep_list;
use compiler::agreement::Difference;
use compiler::trace::{self, Errors};
use side::{Reference, Side, differences, refuse_all_in_f32, refuse_itself};

/// Compares a device with a reference.
pub fn execute(a: &CompareArgs) -> CliResult<()> {
    refuse_itself(a)?;
    if let Some(folder) = &a.data {
        return data::execute(a, folder);
    }
    let given = crate::inputs::given(&a.input, &a.model, &a.common)?;
    let module = load(&a.model, &a.common, given.as_ref())?;
    let inputs = inputs_for(&module, given.as_ref(), &a.common)?;
    let device = crate::executor::open_device(&a.common)?;
    let executor = crate::executor::execute(module.clone(), &a.common, &device, &inputs)?;
    let mixed = executor.is_mixed();
    refuse_all_in_f32(a, &device, mixed)?;
    let names = executor.output_names();
    let (got, place) = executor.run_placed(&inputs)?;
    drop(executor);
    let result = Side::of_run(&device, place, if mixed { &a.common.amp } else { "off" });
    let reference = Reference::open(a, &module, &device, &inputs)?;
    let (want, against) = reference.run(&a.common, &module, &device, &inputs, &result)?;
    drop(reference);
    let rows = differences(a, &names, &got, &want, mixed)?;
    let pass = rows.iter().all(|r| r.1.pass);
    let nodes = node_errors(a, &module, &inputs, &device)?;
    if let Some(path) = &a.write_keep {
        write_keep_list(path, &nodes_to_keep(a, &module, &inputs, &device, &nodes, pass)?)?;
    }
    if let Some(path) = &a.output {
        let mut trace = recorded(&a.model, module.clone(), &a.common, &profile_on(&a.common, &device)?, &inputs)?;
        trace.errors = Some(errors(a, &device, &nodes, &rows));
        crate::trace::write(path, &trace, &a.common)?;
    }
    let failing = nodes.iter().find(|n| !n.difference.pass).map(|n| n.name.clone());
    let json = serde_json::json!({
        "schema": 1, "model": a.model, "pass": pass, "device": crate::device::describe(&device),
        "result": result, "against": against,
        "outputs": rows.iter().map(|(n, d)| with_name(n, None, d)).collect::<Vec<_>>(),
        "nodes": nodes.iter().map(|n| with_name(&n.name, Some(&n.op), &n.difference)).collect::<Vec<_>>(),
        "first_failing": if pass { None } else { failing.or_else(|| rows.iter().find(|r| !r.1.pass).map(|r| r.0.clone())) },
    });
    if !write_json(&a.common, &json)? {
        print_text(&format!("{} against {}", result.name(), against.name()))?;
        print_table(a, &rows, &nodes)?;
    }
    if pass {
        return Ok(());
    }
    let why: Vec<String> = rows.iter().filter(|r| !r.1.pass).map(|r| format!("{}: {}", r.0, r.1.why)).collect();
    Err(CliError::new(Code::Check, format!("results differ: {}", why.join("; "))))
}

/// The differences as a trace holds them.
fn errors(a: &CompareArgs, device: &Device, nodes: &[NodeError], outputs: &[(String, Difference)]) -> Errors {
    let error = |name: &str, d: &Difference| trace::NodeError {
        name: name.to_string(),
        max_abs: d.max_abs,
        rel_l2: d.rel_l2,
        max_magnitude: d.max_magnitude,
        pass: d.pass,
    };
    Errors {
        device: device.label(),
        against: a.against.clone(),
        cumulative: a.cumulative,
        nodes: nodes.iter().map(|n| error(&n.name, &n.difference)).collect(),
        outputs: outputs.iter().map(|(n, d)| error(n, d)).collect(),
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
            format!("{:.7}", d.cosine).into(),
            (d.nan + d.inf).into(),
        ]);
    }
    print_text(&t.to_string())?;
    let bad: Vec<_> = nodes.iter().filter(|n| !n.difference.pass || a.common.verbose > 0).collect();
    if !bad.is_empty() {
        let mut t = table(&["", "node", "op", "max abs", "rel l2", "max magnitude", "nan, inf"]);
        for NodeError { name, op, difference: d } in bad {
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
        print_text(&t.to_string())?;
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
