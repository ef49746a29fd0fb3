//! `weft run`

use crate::args::RunArgs;
use crate::output::print_text;
use crate::report::report;
use bytes::Bytes;
use compiler::agreement::{Tolerance, agree};
use compiler::graph::Module;
use compiler::name::Name;
use compiler::onnx::{ValueData, ValueKind, element_name, parse_value_proto};
use compiler::tensor::Tensor;
use compiler::text::{compare_modules, parse_module, print_module};
use std::path::Path;
use weft::plain_files::read_plain;
use workbench::arrays::{Named, write_arrays};
use workbench::executor::{Device, execute_cached};
use workbench::models::{Chance, inputs_for, load, load_with_values};
use workbench::range_checks::count_out_of_range;
use workbench::values_by_name::{values, with_results};
use workbench::{Code, Error, Result};

/// Runs a model once.
pub fn execute(a: &RunArgs) -> Result<()> {
    let device = workbench::executor::open_device(&a.common)?;
    if let Some(dir) = &a.test_dir {
        let agreed = run_test_dir(a, dir, &device)?;
        let constants = match agreed.constants.is_empty() {
            true => String::new(),
            false => format!("; made constants: {}", agreed.constants.join(", ")),
        };
        return print_text(&format!("pass: {} results agree ({}{constants})", agreed.results, agreed.place));
    }
    let bundle = workbench::bundles::opened(&a.model, &a.common, a.bundle.0)?;
    let given = workbench::inputs::given(&a.input, &a.model, &a.common)?;
    let state = &a.common.state;
    let module = state.time("import", || match &bundle {
        Some(bundle) => Ok(bundle.model()?.into_module()),
        None => load(&a.model, &a.common, given.as_ref()),
    })?;
    let inputs = inputs_for(&module, given.as_ref(), &a.common)?;
    let counted = a.check_indices.then(|| count_out_of_range(&module, &inputs, &a.common)).transpose()?;
    let executor = match &bundle {
        Some(_) if !a.dump.is_empty() => {
            return Err(Error::usage("--dump compiles the model, and a bundle is compiled"));
        }
        Some(bundle) => workbench::bundles::session(bundle, &a.common, &device, a.bundle.require_compiled)?,
        None => execute_cached(with_dumped(a, module.clone())?, &a.common, &device, &inputs)?,
    };
    let chance = Chance::of(&module, &inputs, given.as_ref());
    let ran = state.time("run", || executor.run_in_order(&inputs));
    let results = ran.map_err(|e| chance.blamed(e))?;
    let outputs: Named = executor.output_names().into_iter().zip(results).collect();
    if let Some(path) = &a.output {
        write_arrays(path, &outputs)?;
    }
    report(a, &device, &outputs, given.is_none(), counted.as_deref())
}

/// The module with the tensors of `--dump` as results, where they are none yet: what fusion would hide is then computed
/// for its own sake.
fn with_dumped(a: &RunArgs, module: Module) -> Result<Module> {
    if a.dump.is_empty() {
        return Ok(module);
    }
    let mut more = values(&module, &a.dump)?;
    more.retain(|v| !module.main().results().contains(&v.1));
    Ok(with_results(&module, &more))
}

/// The tensors of `input_0.pb` or `output_0.pb` and so on, whose names and kinds the model has as `values`: element `i`
/// of a sequence `x` is
/// `x.i`, an optional that is not there has none. Names that the model does not have stand for those of their places.
fn protos(dir: &Path, prefix: &str, values: &[(String, ValueKind)]) -> Result<Named> {
    let mut out = Vec::new();
    for i in 0.. {
        let path = dir.join(format!("{prefix}_{i}.pb"));
        if !path.exists() {
            break;
        }
        let bytes = read_plain(&path).map_err(|e| Error::input(format!("cannot read {}: {e}", path.display())))?;
        let kind = values.get(i).map_or(ValueKind::Tensor, |v| v.1);
        let parsed = parse_value_proto(Bytes::from(bytes), kind);
        let (mut name, data) = parsed.map_err(|e| Error::from(e).at(path.display().to_string()))?;
        if !values.iter().any(|v| v.0 == name) {
            name = values.get(i).map(|v| v.0.clone()).unwrap_or_default();
        }
        match data {
            ValueData::Nothing => {}
            ValueData::Tensor(t) => out.push((name, t)),
            ValueData::Sequence(list) => {
                out.extend(list.into_iter().enumerate().map(|(i, t)| (element_name(&name, i), t)));
            }
        }
    }
    Ok(out)
}

/// The most elements of an input that becomes a constant.
const SIZES_LIMIT: usize = 64;

/// Test cases have sizes and axes as inputs, which are constants in real models. If the model cannot be imported
/// without their values (`error` says why), the small inputs after the first become constants; if that is not enough,
/// also a first input with a single element. Also returns the names of these inputs.
fn load_with_sizes(a: &RunArgs, given: &mut Named, error: Error) -> Result<(Module, Vec<String>)> {
    if a.constant_inputs == "never" {
        return Err(error);
    }
    for first_too in [false, true] {
        let small = |(i, (_, t)): (usize, &(String, Tensor))| {
            let size = t.shape().len() <= 1 && t.len() <= SIZES_LIMIT;
            size && (i > 0 || first_too && t.len() == 1)
        };
        let sizes: Vec<bool> = given.iter().enumerate().map(small).collect();
        let picked = given.iter().zip(&sizes).filter(|(_, s)| **s);
        let values: Vec<(Name, Tensor)> = picked.map(|((n, t), _)| (Name::new(n), t.clone())).collect();
        if let Ok(module) = load_with_values(&a.model, &a.common, Some(given), &values) {
            let mut sizes = sizes.into_iter();
            given.retain(|_| sizes.next() != Some(true));
            return Ok((module, values.iter().map(|v| v.0.to_string()).collect()));
        }
    }
    Err(error)
}

/// A test case that passed.
pub struct Agreed {
    /// Results compared.
    pub results: usize,
    /// Where they were computed.
    pub place: &'static str,
    /// Inputs that became constants.
    pub constants: Vec<String>,
}

/// True when a size depends on data.
fn has_open_sizes(module: &Module) -> bool {
    let f = module.main();
    f.walk().iter().any(|&n| !f.nodes[n].op.defined_symbols().is_empty())
}

/// `parse(print(m)) == m`: the many test cases hold the text of imported models too.
fn text_says_all(m: &Module) -> Result<()> {
    let bug = |e: String| Error::new(Code::Bug, format!("the text of the model: {e}"));
    let again = parse_module(&print_module(m)).map_err(|e| bug(e.to_string()))?;
    compare_modules(m, &again).map_err(bug)
}

/// Runs an ONNX test case: inputs by position where their names are empty, outputs compared.
pub fn run_test_dir(a: &RunArgs, dir: &Path, device: &Device) -> Result<Agreed> {
    let [inputs, results] = workbench::models::values(&a.model, &a.common)?;
    let mut given = protos(dir, "input", &inputs)?;
    let expected = protos(dir, "output", &results)?;
    if !dir.join("output_0.pb").exists() {
        return Err(Error::input(format!("{} holds no output_0.pb", dir.display())));
    }
    let (mut module, mut constants) =
        load(&a.model, &a.common, Some(&given)).map(|m| (m, vec![])).or_else(|e| load_with_sizes(a, &mut given, e))?;
    if !matches!(device, Device::Interpreter) && has_open_sizes(&module) {
        // Sizes that only a run defines are for the interpreter; a device wants to know them.
        let none = Error::usage("no sizes are given");
        (module, constants) = load_with_sizes(a, &mut given, none).unwrap_or((module, constants));
    }
    if cfg!(debug_assertions) {
        text_says_all(&module)?;
    }
    let inputs = inputs_for(&module, Some(&given), &a.common)?;
    let executor = workbench::executor::execute(module, &a.common, device, &inputs)?;
    let outputs = executor.run_in_order(&inputs)?;
    let names = executor.output_names();
    let mut failed = Vec::new();
    for (i, (got, (_, want))) in outputs.iter().zip(&expected).enumerate() {
        let why = disagreement(a, got, want);
        failed.extend(why.map(|w| format!("{}: {w}", names[i])));
    }
    if outputs.len() != expected.len() {
        failed.push(format!("{} results, {} expected", outputs.len(), expected.len()));
    }
    if failed.is_empty() {
        return Ok(Agreed { results: expected.len(), place: executor.place(), constants });
    }
    Err(Error::new(Code::Check, format!("results differ: {}", failed.join("; "))).at(dir.display().to_string()))
}

/// How a result differs from the expected one: in type, in any bit of integers and bools, beyond the tolerance of
/// floats.
fn disagreement(a: &RunArgs, got: &Tensor, want: &Tensor) -> Option<String> {
    if got.dtype() != want.dtype() {
        return Some(format!("type {}, expected {}", got.dtype(), want.dtype()));
    }
    let tolerance = match want.dtype().is_float() || a.rtol.is_some() || a.atol.is_some() {
        true => Tolerance::new(want.dtype(), a.rtol, a.atol),
        false => Tolerance::uniform(0.0),
    };
    let e = agree(got, want, &tolerance);
    (!e.pass).then_some(e.why)
}
