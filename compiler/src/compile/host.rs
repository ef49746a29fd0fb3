//! What host steps compute, and the part of the module that they need.

use crate::cpu::Interpreter;
use crate::graph::{Function, Module, NodeId};
use crate::ops::control::{Call, CallHost};
use crate::plan::{HostCall, HostComputation};
use indexmap::IndexMap;
use std::sync::Arc;

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
pub(super) fn host_computation(module: &Arc<Module>, main: &Function, n: NodeId) -> HostComputation {
    let module = module.clone();
    let node = &main.nodes[n];
    let op = node.op.clone();
    if let Some(function) = op.downcast::<Call>().map(|c| c.callee) {
        return Arc::new(move |inputs, functions| {
            Interpreter::new(&module).with_host(functions).run(function, &inputs).map_err(|e| e.to_string())
        });
    }
    if let Some(call) = op.downcast::<CallHost>().cloned() {
        let shapes: Vec<_> = node.outputs.iter().map(|&v| main.ty(v).const_shape()).collect();
        return Arc::new(move |inputs, functions| functions.call(&call, inputs, &shapes));
    }
    let present: Vec<bool> = node.inputs.iter().map(|v| v.is_some()).collect();
    Arc::new(move |inputs, _| {
        let mut given = inputs.into_iter();
        let operands: Vec<_> = present.iter().map(|&p| if p { given.next() } else { None }).collect();
        Ok(crate::cpu::eval_node(&op, &operands, &module)?)
    })
}

/// The host function that the node calls.
pub(super) fn host_call(main: &Function, n: NodeId) -> Option<HostCall> {
    let call = main.nodes[n].op.downcast::<CallHost>()?;
    Some(HostCall { function: call.callee, on_device: call.on_device })
}

/// True when the node is a call of a host function that works on device buffers.
pub(super) fn is_device_call(main: &Function, n: NodeId) -> bool {
    host_call(main, n).is_some_and(|c| c.on_device)
}
