//! `weft inspect`

use crate::args::{Common, InspectArgs};
use crate::output::{print_text, show_table, table, write_json};
use compiler::inspect::{Inspection, inspect_module};
use compiler::int::Dim;
use compiler::onnx::{ImportError, ImportOptions, inspect_onnx, onnx_inputs};
use std::path::Path;
use weft::files::read_onnx;
use workbench::figures::si;
use workbench::models::{is_onnx, load, load_open, sizes};
use workbench::record::Versioned;
use workbench::{Code, Error, Result};

/// Shows what is in each model.
pub fn execute(a: &InspectArgs) -> Result<()> {
    if let [one] = &a.models[..]
        && let Some(bundle) = workbench::bundles::find(one)?
    {
        a.common.refuse_but(one, &[])?;
        return crate::bundle::inspect(&bundle, one, &a.common);
    }
    if let Some(trace) = a.models.iter().find(|m| workbench::traces::is_trace(m)) {
        a.common.refuse_but(trace, &[])?;
        return crate::trace::inspect(&a.models, &a.common);
    }
    let (mut all, mut failed) = (Vec::new(), None);
    for m in &a.models {
        // A file that is no model keeps the others; its error ends the command.
        match look(m, a) {
            Ok(seen) => all.push((m, seen)),
            Err(e) if a.models.len() == 1 => return Err(e),
            Err(e) => failed = failed.or(Some(e)),
        }
    }
    let records: Vec<_> = all.iter().map(|(_, i)| Versioned::new(i)).collect();
    let written = match (&records[..], &a.models[..]) {
        ([one], [_]) => write_json(&a.common, one)?,
        _ => write_json(&a.common, &records)?,
    };
    if !written {
        for (m, i) in &all {
            show(m, i)?;
        }
    }
    match all.iter().find(|(_, i)| !i.unsupported.is_empty()) {
        Some((m, i)) => {
            let count = i.unsupported.len();
            Err(Error::new(Code::Unsupported, format!("{count} operators are not supported")).at(m.as_str()))
        }
        None => failed.map_or(Ok(()), Err),
    }
}

/// The summary of a model.
fn look(model: &str, a: &InspectArgs) -> Result<Inspection> {
    let c = &a.common;
    let sized = c.batch.is_some() || !c.dim.is_empty() || !c.shape.is_empty();
    if is_onnx(model) {
        return look_at_onnx(model, c, sized);
    }
    let module = if sized { load(model, c, None)? } else { load_open(model, c)? };
    Ok(inspect_module(&module))
}

/// A model is shown with its dimensions open where it can be imported so. Otherwise what counts is whether a
/// compilation imports it, with the sizes that it would choose; where those have to be given, a line says which.
fn look_at_onnx(model: &str, common: &Common, sized: bool) -> Result<Inspection> {
    let (bytes, external) = read_onnx(Path::new(model))?;
    let look = |options: &ImportOptions| inspect_onnx(bytes.clone(), &*external, options);
    let fail = |e: ImportError| Error::from(e).at(model);
    let open = look(&ImportOptions::default());
    let ports = onnx_inputs(bytes.clone(), &[]);
    let whole = matches!(&open, Ok(i) if i.unsupported.is_empty());
    let ports = match ports {
        Ok(ports) if sized || !whole => ports,
        _ => return open.map_err(fail),
    };
    let decided = sizes(&ports, common, None, false).and_then(|s| Ok(s.decide(&ports)?.closed()));
    match (decided, open) {
        (Ok(shapes), _) => look(&ImportOptions { shapes, ..ImportOptions::default() }).map_err(fail),
        (Err(e), Ok(i)) if !sized => Ok(Inspection { unsupported: vec![], open: Some(e.message), ..i }),
        (Err(e), _) => Err(e.at(model)),
    }
}

fn show(model: &str, i: &Inspection) -> Result<()> {
    print_text(model)?;
    let mut t = table(&["", "name", "dtype", "shape"]);
    for (kind, ports) in [("input", &i.inputs), ("output", &i.outputs)] {
        for p in ports {
            let dims = |s: &Vec<Dim>| s.iter().map(Dim::to_string).collect::<Vec<_>>().join(",");
            let shape = p.shape.as_ref().map_or("unknown".into(), |s| format!("[{}]", dims(s)));
            t.add_row([kind.to_string(), p.name.clone(), p.dtype.to_string(), shape]);
        }
    }
    show_table(&t)?;
    let mut t = table(&["op", "count"]);
    for (op, n) in &i.ops {
        t.add_row([op.clone(), n.to_string()]);
    }
    show_table(&t)?;
    let number = |n: Option<u64>| n.map_or("unknown".to_string(), |n| si(n as f64).trim().to_string());
    let opset = i.opset.map_or("null".to_string(), |n| n.to_string());
    print_text(&format!("opset {opset}   parameters {}   MACs {}", number(Some(i.parameters)), number(i.macs)))?;
    if !i.quantised.is_empty() {
        let mut t = table(&["quantised", "tensors", "parameters"]);
        for q in &i.quantised {
            t.add_row([q.form.clone(), q.tensors.to_string(), si(q.parameters as f64).trim().to_string()]);
        }
        show_table(&t)?;
    }
    if let Some(open) = &i.open {
        print_text(&format!("open sizes: {open}; what is supported depends on them"))?;
    }
    i.unsupported.iter().try_for_each(|u| print_text(&format!("unsupported: {} {}", u.op, u.why)))
}
