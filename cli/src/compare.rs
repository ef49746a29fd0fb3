//! `weft compare`, and what agreement of two tensors means.

use crate::args::CompareArgs;
use crate::arrays::{Named, read_npz};
use crate::error::{CliError, CliResult, Code};
use crate::executor::{Device, Executor, run_on_cpu_watched};
use crate::models::{inputs_for, load};
use crate::node_errors::{NodeError, node_errors, nodes_to_keep};
use crate::output::{print_text, table, verdict, write_json};
use crate::precision::write_keep_list;
use compiler::agreement::{Difference, Tolerance, agree};
use compiler::dtype::DType;
use compiler::tensor::Tensor;

/// Compares a device with a reference.
pub fn execute(a: &CompareArgs) -> CliResult<()> {
    let given = crate::inputs::given(&a.input, &a.model, &a.common)?;
    let module = load(&a.model, &a.common, given.as_ref())?;
    let inputs = inputs_for(&module, given.as_ref(), &a.common)?;
    let device = Device::open(&a.common)?;
    let executor = Executor::new(module.clone(), &a.common, &device, &inputs)?;
    let names = executor.output_names();
    let got = executor.run(&inputs)?;
    drop(executor);
    let reference = reference(a, &module, &inputs, &names, &device)?;
    let half = a.common.amp != "off";
    let mut rows = Vec::new();
    for (name, t) in names.iter().zip(&got) {
        let (_, want) = reference
            .iter()
            .find(|(n, _)| n == name)
            .ok_or_else(|| CliError::input(format!("the reference has no output `{name}`")))?;
        let tol = Tolerance::new(if half { DType::F16 } else { t.dtype() }, a.rtol, a.atol);
        rows.push((name.clone(), agree(t, want, &tol)));
    }
    let pass = rows.iter().all(|r| r.1.pass);
    let nodes = node_errors(a, &module, &inputs, &device)?;
    if let Some(path) = &a.write_keep {
        write_keep_list(path, &nodes_to_keep(a, &module, &inputs, &device, &nodes, pass)?)?;
    }
    let failing = nodes.iter().find(|n| !n.difference.pass).map(|n| n.name.clone());
    let json = serde_json::json!({
        "schema": 1, "model": a.model, "pass": pass, "device": device.describe(),
        "outputs": rows.iter().map(|(n, d)| with_name(n, None, d)).collect::<Vec<_>>(),
        "nodes": nodes.iter().map(|n| with_name(&n.name, Some(&n.op), &n.difference)).collect::<Vec<_>>(),
        "first_failing": if pass { None } else { failing.or_else(|| rows.iter().find(|r| !r.1.pass).map(|r| r.0.clone())) },
    });
    if !write_json(&a.common, &json)? {
        print_table(a, &rows, &nodes)?;
    }
    if pass {
        return Ok(());
    }
    let why: Vec<String> = rows.iter().filter(|r| !r.1.pass).map(|r| format!("{}: {}", r.0, r.1.why)).collect();
    Err(CliError::new(Code::Check, format!("results differ: {}", why.join("; "))))
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

fn with_name(name: &str, op: Option<&str>, d: &Difference) -> serde_json::Value {
    let mut v = serde_json::json!({ "name": name });
    if let Some(op) = op {
        v["op"] = op.into();
    }
    if let (Some(o), Ok(serde_json::Value::Object(rest))) = (v.as_object_mut(), serde_json::to_value(d)) {
        o.extend(rest);
    }
    v
}

fn reference(
    a: &CompareArgs,
    module: &compiler::graph::Module,
    inputs: &[Tensor],
    names: &[String],
    device: &Device,
) -> CliResult<Named> {
    match a.against.as_str() {
        "cpu" => {
            let results = run_on_cpu_watched(module, inputs, &a.common, "reference", |_, _, _| ())?;
            Ok(names.iter().cloned().zip(results).collect())
        }
        "fp32" => {
            let plain = crate::args::Common { amp: "off".into(), keep_f32: vec![], ..a.common.clone() };
            let e = Executor::new(module.clone(), &plain, device, inputs)?;
            Ok(e.output_names().into_iter().zip(e.run(inputs)?).collect())
        }
        file => {
            let path = std::path::Path::new(file);
            if !path.exists() {
                return Err(CliError::usage(format!(
                    "--against {file}: needs cpu, fp32, or a file of results that exists"
                )));
            }
            read_npz(path)
        }
    }
}
