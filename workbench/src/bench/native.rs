//! Calls of host functions on the processor.

use crate::host_calls::{EdgeTime, HostFunctionTime};
use compiler::compile::Compiled;
use compiler::plan::{HostStep, Step};
use compiler::trace::{Kind, RunSpans};

/// The calls of host functions and external targets, with their times in the recorded run. No tensor is moved to them:
/// the buffers of kernels are in the host's memory.
pub fn calls(compiled: &Compiled, recorded: &RunSpans) -> Vec<HostFunctionTime> {
    let steps = compiled.plan.all_steps();
    let called = steps.iter().filter_map(|s| match s {
        Step::Host(h) if h.call.is_some() => Some(h),
        _ => None,
    });
    let row = |h: &HostStep| {
        let g = &compiled.groups[h.group];
        let own = recorded.rows.iter().filter(|r| r.kind == Kind::Step && r.group == Some(h.group));
        let us = own.map(|r| r.ms * 1e3 / r.count.max(1) as f64).fold(0.0, |sum, us| sum + us);
        let edge = |operand: bool, word: &str, i: usize| EdgeTime {
            tensor: format!("{word} {i}"),
            operand,
            bytes: 0,
            us_median: 0.0,
        };
        let operands = (0..h.inputs.len()).map(|i| edge(true, "operand", i));
        HostFunctionTime {
            function: g.host_function.map(|f| f.to_string()),
            name: g.layer.to_string(),
            group: h.group,
            on_device: false,
            bytes: g.bytes,
            us_median: us,
            edges: operands.chain((0..h.outputs.len()).map(|i| edge(false, "result", i))).collect(),
        }
    };
    called.map(row).collect()
}
