//! `weft extract`: a part of a model as a model of its own, with the values at the cut.

use crate::args::ExtractArgs;
use crate::output::{print_text, show_table, table, write_json};
use compiler::graph::{Module, TensorType, ValueId, input_ports};
use compiler::name::Name;
use compiler::tensor::Tensor;
use rustc_hash::FxHashMap;
use schemars::JsonSchema;
use serde::Serialize;
use std::path::{Path, PathBuf};
use workbench::arrays::write_npz;
use workbench::extract::{cut, named};
use workbench::models::{inputs_for, load};
use workbench::record::Versioned;
use workbench::values_by_name::{Named, NamedValue, exact_values, find, operands_of};
use workbench::written::write_file;
use workbench::{Error, Result};

/// A part that was cut out.
#[derive(Serialize, JsonSchema)]
pub struct ExtractedRecord<'a> {
    /// As it was given.
    model: &'a str,
    /// The part.
    file: &'a Path,
    /// Of the part, without constants.
    nodes: usize,
    /// In order.
    inputs: Vec<PortRecord>,
    /// In order.
    outputs: Vec<PortRecord>,
    /// The file of the values at the beginning of the part.
    with_inputs: Option<&'a PathBuf>,
    /// The file of the values at its end.
    with_outputs: Option<&'a PathBuf>,
}

/// An input or a result of the part.
#[derive(Serialize, JsonSchema)]
struct PortRecord {
    /// As runs take or give it.
    name: String,
    /// Of an element.
    dtype: String,
    /// Null for a dimension that is open.
    shape: Vec<Option<i64>>,
}

impl PortRecord {
    fn of((name, ty): &(Name, TensorType)) -> PortRecord {
        let shape = ty.shape.iter().map(|d| d.as_const()).collect();
        PortRecord { name: name.to_string(), dtype: ty.dtype.to_string(), shape }
    }
}

/// Cuts a part out of a model and writes it.
pub fn execute(a: &ExtractArgs) -> Result<()> {
    let given = workbench::inputs::given(&a.input, &a.model, &a.common)?;
    let module = load(&a.model, &a.common, given.as_ref())?;
    let (from, to) = (starts(&module, &a.from)?, ends(&module, &a.to)?);
    let part = cut(&module, &from, &to)?;
    let bytes = compiler::onnx::export_onnx(&part.module).map_err(|e| Error::input(e.to_string()))?;
    if a.with_inputs.is_some() || a.with_outputs.is_some() {
        let inputs = inputs_for(&module, given.as_ref(), &a.common)?;
        let wanted = |v: ValueId| part.inputs.contains(&v) || to.iter().any(|t| t.1 == v);
        let (exact, _) = exact_values(&module, &inputs, &a.common, wanted)?;
        let ports = input_ports(&part.module).into_iter().map(|p| p.0);
        write_values(a.with_inputs.as_deref(), ports.zip(part.inputs.iter().copied()), &exact)?;
        write_values(a.with_outputs.as_deref(), to.iter().copied(), &exact)?;
    }
    write_file(&a.output, &bytes)?;
    let round = input_ports(&module).into_iter().map(|p| p.0).filter(|p| !from.iter().any(|f| f.0 == *p));
    report(a, &part.module, &round.collect::<Vec<_>>())
}

/// Where a part begins that is to begin with these tensors or nodes.
fn starts(module: &Module, names: &[String]) -> Result<Vec<NamedValue>> {
    let mut out: Vec<NamedValue> = vec![];
    for name in names {
        let found = match find(module, name)? {
            Named::Tensor(v) => vec![v],
            Named::Nodes(list) => operands_of(module.main(), &list),
        };
        out.extend(found.into_iter().filter(|v| !out.iter().any(|o| o.1 == v.1)).collect::<Vec<_>>());
    }
    Ok(out)
}

/// Where it ends: the model's results where nothing is named.
fn ends(module: &Module, names: &[String]) -> Result<Vec<NamedValue>> {
    let f = module.main();
    match names {
        [] => Ok(f.result_names.iter().copied().zip(f.results().iter().copied()).collect()),
        names => workbench::values_by_name::ends(module, names),
    }
}

/// Writes named values of a run, where a file is asked for.
fn write_values(
    path: Option<&Path>,
    names: impl Iterator<Item = NamedValue>,
    exact: &FxHashMap<ValueId, Tensor>,
) -> Result<()> {
    let Some(path) = path else { return Ok(()) };
    Ok(write_npz(path, &named(names, exact)?)?)
}

/// Shows inputs and results of the part; `going_round` are inputs of the model that were not asked for.
fn report(a: &ExtractArgs, part: &Module, going_round: &[Name]) -> Result<()> {
    let f = part.main();
    let nodes = workbench::values_by_name::nodes_of(f).count();
    let results: Vec<(Name, TensorType)> = f.result_names.iter().copied().zip(f.result_types.iter().cloned()).collect();
    let inputs = input_ports(part);
    let record = ExtractedRecord {
        model: &a.model,
        file: &a.output,
        nodes,
        inputs: inputs.iter().map(PortRecord::of).collect(),
        outputs: results.iter().map(PortRecord::of).collect(),
        with_inputs: a.with_inputs.as_ref(),
        with_outputs: a.with_outputs.as_ref(),
    };
    if write_json(&a.common, &Versioned::new(record))? {
        return Ok(());
    }
    let mut rows = table(&["", "tensor", "dtype", "shape"]);
    for (side, (name, ty)) in inputs.iter().map(|p| ("input", p)).chain(results.iter().map(|p| ("output", p))) {
        rows.add_row([side.to_string(), name.to_string(), ty.dtype.to_string(), dims_of(ty)]);
    }
    show_table(&rows)?;
    print_text(&format!("{nodes} nodes in {}", a.output.display()))?;
    let cut: Vec<&str> = inputs.iter().map(|i| i.0.as_str()).filter(|i| going_round.contains(&Name::new(i))).collect();
    if !a.from.is_empty() && !cut.is_empty() {
        let text = format!(
            "note: the part goes back to {}, by a way round --from; `--from` may name more tensors",
            cut.join(", ")
        );
        print_text(&text)?;
    }
    match (&a.with_inputs, &a.with_outputs) {
        (Some(i), Some(o)) => print_text(&format!(
            "next: weft compare {} -i {} --against {}",
            a.output.display(),
            i.display(),
            o.display()
        )),
        (Some(i), None) => print_text(&format!("next: weft run {} -i {}", a.output.display(), i.display())),
        _ => Ok(()),
    }
}

/// `1x3xn`
fn dims_of(ty: &TensorType) -> String {
    let dims: Vec<String> = ty.shape.iter().map(ToString::to_string).collect();
    if dims.is_empty() { "scalar".into() } else { dims.join("x") }
}
