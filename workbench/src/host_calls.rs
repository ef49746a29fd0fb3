//! `--host-call` and `--host-functions`: nodes replaced by host functions, with the change in time.

use crate::error::{Error, Result};
use crate::settings::Settings;
use benches::statistics::Statistics;
use compiler::attr::{AttrStruct, Attrs};
use compiler::compile::Compiled;
use compiler::name::Name;
use compiler::passes::ReplaceWithHostCalls;
use compiler::plan;
use runtime_gpu::{Edge, HostCallTime, HostFunctions, Resident};
use schemars::JsonSchema;
use serde::Serialize;

/// A call of a host function or an external target.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub struct HostFunctionTime {
    /// The function, or the region.
    pub function: Option<String>,
    /// The node.
    pub name: String,
    /// An id of `groups`.
    pub group: usize,
    /// It works on device buffers; else on tensors in host memory.
    pub on_device: bool,
    /// Of the tensors that it reads and gives, for a region of an external target; else 0.
    pub bytes: u64,
    /// Of one call alone, with its tensors' way to the host and back.
    pub us_median: f64,
    /// Tensors on their way to a call on the host, and from it.
    pub edges: Vec<EdgeTime>,
}

/// A tensor of a call.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub struct EdgeTime {
    /// `operand N` or `result N`.
    pub tensor: String,
    /// It is read; else it is given.
    pub operand: bool,
    /// Moved between host and device; 0 if the tensor is, or stays, on the host, and on the CPU.
    pub bytes: u64,
    /// For which the host waits for it.
    pub us_median: f64,
}

/// The functions of a program of one's own with those of the libraries that the command line names.
///
/// # Errors
/// A library that cannot be loaded.
pub fn functions(settings: &Settings, own: &HostFunctions) -> Result<HostFunctions> {
    let mut functions = own.clone();
    for path in &settings.host_functions {
        weft::host_library::load(path, &mut functions).map_err(|why| {
            Error::usage(format!("--host-functions {}: {why}", path.display())).help(
                "a library exports `weft_host_functions` or `weft_prepared_functions`, as docs/weft_host_functions.h \
                 declares them",
            )
        })?;
    }
    Ok(functions)
}

/// The pass that `--host-call` asks for; none without.
///
/// # Errors
/// A text that is not `NODE=FUNCTION`.
pub fn replacing_pass(settings: &Settings) -> Result<Option<(String, Attrs)>> {
    let mut pass = ReplaceWithHostCalls::default();
    for text in &settings.host_call {
        let parts = text.rsplit_once('=').filter(|(node, function)| !node.is_empty() && !function.is_empty());
        let Some((node, function)) = parts else {
            return Err(Error::usage(format!("--host-call {text}: needs NODE=FUNCTION, or op:NAME=FUNCTION")));
        };
        let function = Name::new(function);
        pass.nodes.push(node.into());
        pass.functions.push(function);
        if settings.functions.is_on_device(function) && !pass.on_device.contains(&function) {
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
pub fn times(c: &Compiled, resident: &mut Resident<'_>, rounds: usize) -> Result<Vec<HostFunctionTime>> {
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
            let us_median = median(calls.iter().filter_map(|c| Some(c.edges.get(i)?.us)).collect());
            EdgeTime { tensor, operand: e.operand, bytes: e.bytes, us_median }
        };
        Some(HostFunctionTime {
            function: g.host_function.map(|f| f.to_string()),
            name: g.layer.to_string(),
            group: first.group,
            on_device: on_device(first.group),
            bytes: g.bytes,
            us_median: median(calls.iter().map(|c| c.us).collect()),
            edges: first.edges.iter().enumerate().map(edge).collect(),
        })
    };
    Ok(times.iter().filter_map(row).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_a_node_and_a_function() {
        let settings = |text: &str| Settings { host_call: vec![text.into()], ..Settings::default() };
        for wrong in ["conv1", "=f", "conv1="] {
            assert!(replacing_pass(&settings(wrong)).is_err(), "{wrong}");
        }
        let (name, options) = replacing_pass(&settings("op:relu=f")).expect("fits").expect("is asked for");
        let pass = ReplaceWithHostCalls::from_attrs(&options).expect("its own options");
        assert_eq!(
            (name.as_str(), pass.nodes, pass.functions),
            (ReplaceWithHostCalls::NAME, vec!["op:relu".into()], vec!["f".into()])
        );
        assert!(replacing_pass(&Settings::default()).expect("nothing").is_none());
    }
}
