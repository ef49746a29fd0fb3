//! `weft inspect`

use crate::args::InspectArgs;
use crate::args::shared::refuse_for_trace;
use crate::error::{CliError, CliResult, Code};
use crate::models::{is_path, load_open, read_onnx};
use crate::output::{print_text, si, table, write_json};
use compiler::inspect::{Inspection, inspect_module};
use compiler::int::Dim;
use std::path::Path;

/// Shows what is in each model.
pub fn execute(a: &InspectArgs) -> CliResult<()> {
    if let Some(trace) = a.models.iter().find(|m| crate::trace::is_trace(m)) {
        refuse_for_trace(&a.common, trace)?;
        return crate::trace::inspect(&a.models, &a.common);
    }
    let mut all = Vec::new();
    for m in &a.models {
        all.push((m, look(m, a)?));
    }
    let values: Vec<serde_json::Value> = all.iter().map(|(_, i)| i.to_json()).collect();
    let json = if let [one] = values.as_slice() { one.clone() } else { values.into() };
    if !write_json(&a.common, &json)? {
        for (m, i) in &all {
            show(m, i)?;
        }
    }
    match all.iter().find(|(_, i)| !i.unsupported.is_empty()) {
        Some((m, i)) => {
            Err(CliError::new(Code::Unsupported, format!("{} operators are not supported", i.unsupported.len()))
                .at(m.as_str()))
        }
        None => Ok(()),
    }
}

fn look(model: &str, a: &InspectArgs) -> CliResult<Inspection> {
    let path = Path::new(model);
    if is_path(model) && path.extension().is_none_or(|e| e != "weft") {
        let (bytes, external) = read_onnx(path)?;
        return compiler::onnx::inspect_onnx(bytes, &*external).map_err(|e| CliError::from(e).at(model));
    }
    Ok(inspect_module(&load_open(model, &a.common)?))
}

fn show(model: &str, i: &Inspection) -> CliResult<()> {
    print_text(model)?;
    let mut t = table(&["", "name", "dtype", "shape"]);
    for (kind, ports) in [("input", &i.inputs), ("output", &i.outputs)] {
        for p in ports {
            let dims = |s: &Vec<Dim>| s.iter().map(Dim::to_string).collect::<Vec<_>>().join(",");
            let shape = p.shape.as_ref().map_or("unknown".into(), |s| format!("[{}]", dims(s)));
            t.add_row([kind.to_string(), p.name.clone(), p.dtype.to_string(), shape]);
        }
    }
    print_text(&t.to_string())?;
    let mut t = table(&["op", "count"]);
    for (op, n) in &i.ops {
        t.add_row([op.clone(), n.to_string()]);
    }
    print_text(&t.to_string())?;
    let json = i.to_json();
    let number = |k: &str| json[k].as_f64().map_or("unknown".to_string(), |v| si(v).trim().to_string());
    print_text(&format!("opset {}   parameters {}   MACs {}", json["opset"], number("parameters"), number("macs")))?;
    for u in &i.unsupported {
        print_text(&format!("unsupported: {} {}", u.op, u.why))?;
    }
    Ok(())
}
