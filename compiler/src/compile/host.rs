//! The computations of host steps, and the part of the module that they need.

use super::callees::join;
use crate::arena::Id;
use crate::external::{CallSite, Region, TargetSpec};
use crate::graph::{Function, Module, NodeId};
use crate::interpreter::{Interpreter, declared_results};
use crate::ops::control::{Call, CallHost, CallTensor};
use crate::plan::{HostCall, HostComputation, Plan, Step};
use std::sync::Arc;

/// The part of the module that host steps need: graph functions, constants, and the tensor functions that are called by
/// other functions or by `nodes` of `main`, which run on the host.
pub(super) fn host_module(m: &Module, main: &Function, nodes: impl Iterator<Item = NodeId>) -> Module {
    let own = nodes.map(|n| &main.nodes[n]);
    let others =
        m.functions.iter().filter(|f| *f.0 != m.entry).flat_map(|(_, f)| f.walk().into_iter().map(|n| &f.nodes[n]));
    let called = own.chain(others).filter(|n| n.op.is::<CallTensor>()).filter_map(|n| n.op.callee());
    let kept = called.filter_map(|name| Some((name, m.tensor_functions.get(&name)?.clone())));
    Module {
        entry: m.entry,
        functions: m.functions.clone(),
        tensor_functions: kept.collect(),
        constants: m.constants.clone(),
        dims: m.dims.clone(),
    }
}

/// Binds the computations of a saved plan's host steps. `module` is the plan's module after its passes
/// ([`super::compile_graph`]).
///
/// # Errors
/// A module that has no such node: another one's plan.
pub fn bind_host_steps(plan: &mut Plan, module: &Module) -> Result<(), String> {
    let main = module.main();
    let mut module = host_module(module, main, main.walk().into_iter());
    join(&mut module);
    let main = module.main().clone();
    let module = Arc::new(module);
    bind(&mut plan.steps, &module, &main)?;
    plan.functions.iter_mut().try_for_each(|f| bind(&mut f.body, &module, &main))
}

fn bind(steps: &mut [Step], module: &Arc<Module>, main: &Function) -> Result<(), String> {
    for step in steps {
        match step {
            Step::Host(h) => {
                let node = NodeId::from_index(h.node as usize);
                let there = main.walk().contains(&node) && main.nodes[node].name == h.name;
                if !there {
                    return Err(format!("the module has no node `{}` where the plan has it", h.name));
                }
                h.run = host_computation(module, main, node);
            }
            Step::Branch(b) => {
                bind(&mut b.then, module, main)?;
                bind(&mut b.otherwise, module, main)?;
            }
            Step::Loop(l) => bind(&mut l.body, module, main)?,
            Step::Gpu(_) | Step::Copy { .. } | Step::Call(_) => {}
        }
    }
    Ok(())
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
    if let Some(call) = op.downcast::<CallHost>().filter(|c| c.external_target().is_some()) {
        return external_computation(&module, call);
    }
    if let Some(call) = op.downcast::<CallHost>().cloned() {
        let shapes: Vec<_> = node.outputs.iter().map(|&v| main.ty(v).const_shape()).collect();
        return Arc::new(move |inputs, functions| {
            functions.call(call.callee, inputs, &declared_results(&call, &shapes))
        });
    }
    let present: Vec<bool> = node.inputs.iter().map(|v| v.is_some()).collect();
    Arc::new(move |inputs, _| {
        let mut given = inputs.into_iter();
        let operands: Vec<_> = present.iter().map(|&p| if p { given.next() } else { None }).collect();
        Ok(crate::interpreter::eval_node(&op, &operands, &module)?)
    })
}

/// A region that an external target runs.
fn external_computation(module: &Module, call: &CallHost) -> HostComputation {
    let region = Region::of(module, call.reference);
    let spec = TargetSpec::new(call.target, &call.options);
    match spec.and_then(|spec| Ok((spec, region.ok_or_else(|| format!("there is no function @{}", call.reference))?))) {
        Ok((spec, region)) => {
            let site = CallSite::new(spec, region);
            Arc::new(move |inputs, _| site.run(&inputs))
        }
        Err(why) => Arc::new(move |_, _| Err(why.clone())),
    }
}

/// The host function that the node calls.
pub(super) fn host_call(main: &Function, n: NodeId) -> Option<HostCall> {
    let call = main.nodes[n].op.downcast::<CallHost>()?;
    let external = call.external_target().is_some();
    Some(HostCall { function: call.callee, on_device: call.on_device, external })
}

/// True when the node is a call of a host function that works on device buffers.
pub(super) fn is_device_call(main: &Function, n: NodeId) -> bool {
    host_call(main, n).is_some_and(|c| c.on_device)
}
