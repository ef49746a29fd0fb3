//! `--host-call` and `--host-functions`: nodes replaced by host functions, with the change in time.

use crate::args::Common;
use crate::error::{CliError, CliResult};
use crate::host_library::load_library;
use crate::output::{print_text, show_table, table};
use benches::statistics::Statistics;
use compiler::attr::{AttrStruct, Attrs};
use compiler::compile::Compiled;
use compiler::name::Name;
use compiler::passes::ReplaceWithHostCalls;
use compiler::plan;
use runtime_gpu::{Edge, HostCallTime, HostFunctions, Resident};
use serde_json::{Value, json};

/// The functions of a program of one's own with those of the libraries that the command line names.
///
/// # Errors
/// A library that cannot be loaded.
pub fn functions(common: &Common, own: &HostFunctions) -> CliResult<HostFunctions> {
    let mut functions = own.clone();
    common.host_functions.iter().try_for_each(|path| load_library(path, &mut functions))?;
    Ok(functions)
}

/// The pass that `--host-call` asks for; none without.
///
/// # Errors
/// A text that is not `NODE=FUNCTION`.
pub fn replacing_pass(common: &Common) -> CliResult<Option<(String, Attrs)>> {
    let mut pass = ReplaceWithHostCalls::default();
    for text in &common.host_call {
        let parts = text.rsplit_once('=').filter(|(node, function)| !node.is_empty() && !function.is_empty());
        let Some((node, function)) = parts else {
            return Err(CliError::usage(format!("--host-call {text}: needs NODE=FUNCTION, or op:NAME=FUNCTION")));
        };
        let function = Name::new(function);
        pass.nodes.push(node.into());
        pass.functions.push(function);
        if common.functions.is_on_device(function) && !pass.on_device.contains(&function) {
            pass.on_device.push(function);
        }
    }
    Ok((!pass.nodes.is_empty()).then(|| (ReplaceWithHostCalls::NAME.to_string(), pass.to_attrs())))
}

/// Median microseconds of each call of a host function over a few rounds, and bytes and microseconds of each tensor on
/// its way to it or from it.
///
/// # Errors
/// A failed run.
pub fn times(c: &Compiled, resident: &mut Resident<'_>, rounds: usize) -> CliResult<Value> {
    let mut times: Vec<Vec<HostCallTime>> = vec![];
    for _ in 0..rounds {
        for (i, call) in resident.time_host_calls()?.into_iter().enumerate() {
            match times.get_mut(i) {
                Some(row) => row.push(call),
                None => times.push(vec![call]),
            }
        }
    }
    let steps = c.plan.all_steps();
    let on_device = |group| {
        steps.iter().any(|s| matches!(s, plan::Step::Host(h) if h.group == group && h.device_function().is_some()))
    };
    let median = |times: Vec<f64>| Statistics::of(&times).median;
    let row = |calls: &Vec<HostCallTime>| {
        let first = calls.first()?;
        let g = &c.groups[first.group];
        let operands = first.edges.iter().filter(|e| e.operand).count();
        let edge = |(i, e): (usize, &Edge)| {
            let tensor = if e.operand { format!("operand {i}") } else { format!("result {}", i - operands) };
            json!({ "tensor": tensor, "operand": e.operand, "bytes": e.bytes,
                "us_median": median(calls.iter().filter_map(|c| Some(c.edges.get(i)?.us)).collect()) })
        };
        let edges: Vec<Value> = first.edges.iter().enumerate().map(edge).collect();
        Some(json!({ "function": g.host_function.map(|f| f.to_string()), "name": g.layer.to_string(),
            "group": first.group, "on_device": on_device(first.group), "bytes": g.bytes,
            "us_median": median(calls.iter().map(|c| c.us).collect()), "edges": edges }))
    };
    Ok(times.iter().filter_map(row).collect())
}

/// The cost or gain of the calls: the device's time with them, divided by the time without them.
pub fn beside(with: &Value, without: &Value) -> Value {
    let median = |v: &Value, key: &str| v[key]["median"].as_f64().unwrap_or(0.0);
    let ratio = |key: &str| median(with, key) / median(without, key).max(1e-9);
    json!({ "latency_ms": median(without, "latency_ms"), "device_ms": median(without, "device_ms"),
        "latency_ratio": ratio("latency_ms"), "device_ratio": ratio("device_ms") })
}

/// Shows the calls of a result of `weft bench`, and what they cost or gain.
///
/// # Errors
/// Where nothing can be written.
pub fn show(result: &Value) -> CliResult<()> {
    let calls = result["host_functions"].as_array().cloned().unwrap_or_default();
    if !calls.is_empty() {
        let mut t = table(&["host function", "node", "works on", "bytes", "us each", "bytes moved", "us waiting"]);
        for c in &calls {
            let place = if c["on_device"] == true { "device buffers" } else { "host tensors" };
            let text = |key: &str| c[key].as_str().unwrap_or("").to_string();
            let us = c["us_median"].as_f64().unwrap_or(0.0);
            let bytes = c["bytes"].as_u64().filter(|b| *b > 0).map_or("-".to_string(), |b| b.to_string());
            let edges = c["edges"].as_array().cloned().unwrap_or_default();
            let moved: u64 = edges.iter().filter_map(|e| e["bytes"].as_u64()).sum();
            let waits: f64 = edges.iter().filter_map(|e| e["us_median"].as_f64()).sum();
            let [us, waits] = [us, waits].map(|us| format!("{us:.1}"));
            t.add_row([text("function"), text("name"), place.into(), bytes, us, moved.to_string(), waits]);
        }
        show_table(&t)?;
        show_edges(&calls)?;
    }
    let plain = &result["without_host_calls"];
    let Some(before) = plain["device_ms"].as_f64() else { return Ok(()) };
    let now = result["device_ms"]["median"].as_f64().unwrap_or(0.0);
    let (word, ratio) = (if now > before { "cost" } else { "gain" }, plain["device_ratio"].as_f64().unwrap_or(0.0));
    print_text(&format!(
        "the host calls {word} {:.2} ms on the device: {now:.2} with them, {before:.2} without, a ratio of {ratio:.3}",
        (now - before).abs()
    ))
}

/// Shows the tensors on their way to calls on the host and from them.
fn show_edges(calls: &[Value]) -> CliResult<()> {
    let mut t = table(&["tensor", "from", "to", "bytes moved", "us waiting"]);
    for c in calls {
        let function = c["function"].as_str().unwrap_or("").to_string();
        for e in c["edges"].as_array().into_iter().flatten() {
            let bytes = e["bytes"].as_u64().unwrap_or(0);
            let there = if bytes > 0 { "device" } else { "host" }.to_string();
            let [from, to] = if e["operand"] == true { [there, function.clone()] } else { [function.clone(), there] };
            let (tensor, us) = (e["tensor"].as_str().unwrap_or("").to_string(), e["us_median"].as_f64().unwrap_or(0.0));
            t.add_row([tensor, from, to, bytes.to_string(), format!("{us:.1}")]);
        }
    }
    show_table(&t)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_a_node_and_a_function() {
        let common = |text: &str| Common { host_call: vec![text.into()], ..Common::default() };
        for wrong in ["conv1", "=f", "conv1="] {
            assert!(replacing_pass(&common(wrong)).is_err(), "{wrong}");
        }
        let (name, options) = replacing_pass(&common("op:relu=f")).expect("fits").expect("is asked for");
        let pass = ReplaceWithHostCalls::from_attrs(&options).expect("its own options");
        assert_eq!(
            (name.as_str(), pass.nodes, pass.functions),
            (ReplaceWithHostCalls::NAME, vec!["op:relu".into()], vec!["f".into()])
        );
        assert!(replacing_pass(&Common::default()).expect("nothing").is_none());
    }
}
