//! `weft compare`: what a device gives, held against another way of computing the same.
//!
//! A comparison names both sides. One whose sides are the same says nothing, however well they agree, and is refused.

use crate::args::CompareArgs;
use crate::arrays::{Named, read_npz};
use crate::error::{CliError, CliResult, Code};
use crate::executor::{CPU_EXECUTOR, Device, Executor, profile_on, recorded, run_on_cpu_watched};
use crate::models::{inputs_for, load};
use crate::node_errors::{NodeError, node_errors, nodes_to_keep};
use crate::output::{print_text, table, verdict, write_json};
use crate::precision::write_keep_list;
use compiler::agreement::{Difference, Tolerance, agree};
use compiler::dtype::DType;
use compiler::tensor::Tensor;
use compiler::trace::{self, Errors};

/// Compares a device with a reference.
pub fn execute(a: &CompareArgs) -> CliResult<()> {
    refuse_itself(a)?;
    let given = crate::inputs::given(&a.input, &a.model, &a.common)?;
    let module = load(&a.model, &a.common, given.as_ref())?;
    let inputs = inputs_for(&module, given.as_ref(), &a.common)?;
    let device = Device::open(&a.common)?;
    let executor = Executor::new(module.clone(), &a.common, &device, &inputs)?;
    let names = executor.output_names();
    let (got, place) = executor.run_placed(&inputs)?;
    drop(executor);
    let result = Side::of_run(&device, place, &a.common.amp);
    let (reference, against) = reference(a, &module, &inputs, &names, &device, &result)?;
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
    if let Some(path) = &a.output {
        let mut trace = recorded(&a.model, module.clone(), &a.common, &profile_on(&a.common, &device)?, &inputs)?;
        trace.errors = Some(errors(a, &device, &nodes, &rows));
        crate::trace::write(path, &trace, &a.common)?;
    }
    let failing = nodes.iter().find(|n| !n.difference.pass).map(|n| n.name.clone());
    let json = serde_json::json!({
        "schema": 1, "model": a.model, "pass": pass, "device": device.describe(),
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

/// Refuses what needs no run to be seen as a comparison of a thing with itself.
fn refuse_itself(a: &CompareArgs) -> CliResult<()> {
    let same = match a.against.as_str() {
        "fp32" => a.common.amp == "off",
        "cpu" => a.common.amp == "off" && a.common.device == "cpu",
        _ => false,
    };
    if !same {
        return Ok(());
    }
    let help = match a.against.as_str() {
        "fp32" => "ask for --amp fp16 or auto, or compare with cpu or a file of results",
        _ => "choose another --device (`weft devices` lists what is there), --amp fp16, or a file of results",
    };
    let asked = if a.against == "cpu" { " --device cpu" } else { "" };
    Err(CliError::usage(format!("--against {} with --amp off{asked} holds a thing against itself", a.against))
        .help(help))
}

/// One side of a comparison.
#[derive(PartialEq, Debug, serde::Serialize)]
struct Side {
    /// Name, backend, driver and type; none for a file.
    device: Option<serde_json::Value>,
    /// Where its steps ran.
    place: Option<&'static str>,
    /// Mixed precision.
    amp: Option<String>,
    /// The file that it was read from.
    file: Option<String>,
}

impl Side {
    /// What a run gave. Where the device could not run the model, the run was the CPU executor's.
    fn of_run(device: &Device, place: &'static str, amp: &str) -> Side {
        let device = if place == CPU_EXECUTOR { Device::Cpu.describe() } else { device.describe() };
        Side { device: Some(device), place: Some(place), amp: Some(amp.into()), file: None }
    }
    fn of_file(path: &str) -> Side {
        Side { device: None, place: None, amp: None, file: Some(path.into()) }
    }
    fn name(&self) -> String {
        let device = self.device.as_ref().and_then(|d| d["name"].as_str()).unwrap_or("");
        match (&self.file, self.amp.as_deref()) {
            (Some(file), _) => file.clone(),
            (None, Some("off") | None) => format!("{device}, fp32"),
            (None, Some(amp)) => format!("{device}, --amp {amp}"),
        }
    }
    /// Refuses a comparison of `self` with itself, which the device's missing or being unable has led to.
    fn differs_from(&self, other: &Side) -> CliResult<()> {
        if self != other {
            return Ok(());
        }
        let text = format!("no device ran the model: {} would be held against itself", self.name());
        Err(CliError::new(Code::Device, text)
            .help("`weft devices` lists what is there; -v says why the device was not used"))
    }
}

/// The results to compare with, and whose they are.
fn reference(
    a: &CompareArgs,
    module: &compiler::graph::Module,
    inputs: &[Tensor],
    names: &[String],
    device: &Device,
    result: &Side,
) -> CliResult<(Named, Side)> {
    match a.against.as_str() {
        "cpu" => {
            let side = Side::of_run(&Device::Cpu, CPU_EXECUTOR, "off");
            result.differs_from(&side)?;
            let results = run_on_cpu_watched(module, inputs, &a.common, "reference", |_, _, _| ())?;
            Ok((names.iter().cloned().zip(results).collect(), side))
        }
        "fp32" => {
            let plain = crate::args::Common { amp: "off".into(), keep_f32: vec![], ..a.common.clone() };
            let e = Executor::new(module.clone(), &plain, device, inputs)?;
            let (values, place) = e.run_placed(inputs)?;
            Ok((e.output_names().into_iter().zip(values).collect(), Side::of_run(device, place, "off")))
        }
        file => {
            let path = std::path::Path::new(file);
            if !path.exists() {
                return Err(CliError::usage(format!(
                    "--against {file}: needs cpu, fp32, or a file of results that exists"
                )));
            }
            Ok((read_npz(path)?, Side::of_file(file)))
        }
    }
}
