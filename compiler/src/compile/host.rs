//! What host steps compute, and the part of the module that they need.

use crate::graph::{Function, Module, NodeId};
use crate::ops::control::Call;
use crate::tensor::Tensor;
use indexmap::IndexMap;
use std::sync::Arc;

/// The computation of a host step.
pub(super) type HostFunction = Arc<dyn Fn(&[Tensor]) -> Result<Vec<Tensor>, String> + Send + Sync>;

/// What host steps need of the module: functions and constants, no tensor functions.
pub(super) fn host_module(m: &Module) -> Module {
    Module {
        entry: m.entry,
        functions: m.functions.clone(),
        tensor_functions: IndexMap::new(),
        constants: m.constants.clone(),
    }
}

/// Node `n` of `main` on tensors in host memory.
pub(super) fn host_function(module: &Arc<Module>, main: &Function, n: NodeId) -> HostFunction {
    let module = module.clone();
    let op = main.nodes[n].op.clone();
    if let Some(function) = op.downcast::<Call>().map(|c| c.callee) {
        return Arc::new(move |inputs| crate::cpu::run_function(&module, function, inputs).map_err(|e| e.to_string()));
    }
    let present: Vec<bool> = main.nodes[n].inputs.iter().map(|v| v.is_some()).collect();
    Arc::new(move |inputs| {
        let mut given = inputs.iter().cloned();
        let operands: Vec<_> = present.iter().map(|&p| if p { given.next() } else { None }).collect();
        Ok(crate::cpu::eval_node(&op, &operands, &module)?)
    })
}
