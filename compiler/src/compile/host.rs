//! The computations of host steps, and the part of the module that they need.

use super::callees::Joined;
use crate::arena::Id;
use crate::external::{CallSite, Region, TargetSpec};
use crate::fault::Fault;
use crate::graph::{Function, Module, NodeId, TensorType, ValueId};
use crate::int::Dim;
use crate::interpreter::{ExecError, Interpreter, declared_results, host_site};
use crate::name::Name;
use crate::ops::control::{Call, CallHost, CallTensor};
use crate::plan::{BufferView, HostCall, HostComputation, HostStep, Plan, Step};
use crate::tensor::Tensor;
use rustc_hash::FxHashMap;
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
    let Joined { module, main, .. } = joined(module);
    let module = Arc::new(module);
    each_host_step(plan, &mut |h| {
        let node = NodeId::from_index(h.node as usize);
        if !(main.walk().contains(&node) && main.nodes[node].name == h.name) {
            return Err(format!("the module has no node `{}` where the plan has it", h.name));
        }
        let (inputs, outputs) = (main.nodes[node].inputs.iter().flatten(), main.nodes[node].outputs.iter());
        if !(are_of_types(&h.inputs, &main, inputs) && are_of_types(&h.outputs, &main, outputs)) {
            return Err(format!("the node `{}` has other operands or results than the plan says", h.name));
        }
        h.run = host_computation(&module, &main, node);
        Ok(())
    })
}

/// True when each view has the type of its value, as far as that is known before a run.
pub fn are_of_types<'v>(views: &[BufferView], f: &Function, values: impl Iterator<Item = &'v ValueId>) -> bool {
    let types: Vec<_> = values.map(|&v| f.ty(v)).collect();
    let same = |(view, ty): (&BufferView, &&TensorType)| {
        view.dtype == ty.dtype && ty.const_shape().is_none_or(|shape| shape == view.shape)
    };
    types.len() == views.len() && views.iter().zip(&types).all(same)
}

/// Gives the host steps of a plan whose module is `from` the numbers that their nodes have in `to`, which was read from
/// the text of `from`.
///
/// # Errors
/// A host step whose node is not in `from`.
pub fn renumber_host_steps(plan: &mut Plan, from: &Module, to: &Module) -> Result<(), String> {
    let (from, to) = (joined(from).main.walk(), joined(to).main.walk());
    each_host_step(plan, &mut |h| {
        let there = from.iter().position(|n| n.index() == h.node as usize).and_then(|at| to.get(at));
        let node = there.ok_or_else(|| format!("the module has no node for the host step `{}`", h.name))?;
        h.node = node.index() as u32;
        Ok(())
    })
}

/// The part of the module that host steps need, and its entry function, which host steps number the nodes of.
fn joined(module: &Module) -> Joined {
    let main = module.main();
    Joined::of(host_module(module, main, main.walk().into_iter()))
}

/// Calls `f` for every host step of the plan.
fn each_host_step(plan: &mut Plan, f: &mut dyn FnMut(&mut HostStep) -> Result<(), String>) -> Result<(), String> {
    fn each(steps: &mut [Step], f: &mut dyn FnMut(&mut HostStep) -> Result<(), String>) -> Result<(), String> {
        for step in steps {
            match step {
                Step::Host(h) => f(h)?,
                Step::Branch(b) => {
                    each(&mut b.then, f)?;
                    each(&mut b.otherwise, f)?;
                }
                Step::Loop(l) => each(&mut l.body, f)?,
                Step::Gpu(_) | Step::Copy { .. } | Step::Call(_) => {}
            }
        }
        Ok(())
    }
    each(&mut plan.steps, f)?;
    plan.functions.iter_mut().try_for_each(|function| each(&mut function.body, f))
}

/// Node `n` of `main` on tensors in host memory.
pub(super) fn host_computation(module: &Arc<Module>, main: &Function, n: NodeId) -> HostComputation {
    let module = module.clone();
    let node = &main.nodes[n];
    let op = node.op.clone();
    if let Some(function) = op.downcast::<Call>().map(|c| c.callee) {
        return Arc::new(move |inputs, functions| {
            Interpreter::new(&module).with_host(functions).run(function, &inputs).map_err(fault_of)
        });
    }
    if let Some(call) = op.downcast::<CallHost>().filter(|c| c.external_target().is_some()) {
        return external_computation(&module, call);
    }
    if let Some(call) = op.downcast::<CallHost>().cloned() {
        let operands: Vec<Vec<Dim>> = node.inputs.iter().flatten().map(|&v| main.ty(v).shape.clone()).collect();
        let results: Vec<Vec<Dim>> = node.outputs.iter().map(|&v| main.ty(v).shape.clone()).collect();
        let site = host_site(main, n, &call);
        return Arc::new(move |inputs, functions| {
            let sizes = open_sizes(&operands, &inputs);
            let size = |d: &Dim| usize::try_from(d.eval(&|v| sizes.get(&v).copied())?).ok();
            let shapes: Vec<_> = results.iter().map(|s| s.iter().map(size).collect()).collect();
            Ok(functions.call(&site, inputs, &declared_results(&call, &shapes))?)
        });
    }
    let present: Vec<bool> = node.inputs.iter().map(|v| v.is_some()).collect();
    Arc::new(move |inputs, _| {
        let mut given = inputs.into_iter();
        let operands: Vec<_> = present.iter().map(|&p| if p { given.next() } else { None }).collect();
        crate::interpreter::eval_node(&op, &operands, &module)
    })
}

/// The error of a run as a fault of the same kind.
fn fault_of(e: ExecError) -> Fault {
    let message = e.to_string();
    match e {
        ExecError::Node { why, .. } => Fault { message, ..why },
        _ => message.into(),
    }
}

/// The sizes of open dimensions that the shapes of operands show.
fn open_sizes(operands: &[Vec<Dim>], given: &[Tensor]) -> FxHashMap<Name, i64> {
    let pairs = operands.iter().zip(given).flat_map(|(shape, t)| shape.iter().zip(t.shape()));
    pairs.filter_map(|(d, &n)| Some((d.as_var()?, n as i64))).collect()
}

/// A region that an external target runs.
fn external_computation(module: &Module, call: &CallHost) -> HostComputation {
    let region = Region::of(module, call.reference);
    let spec = TargetSpec::new(call.target, &call.options);
    match spec.and_then(|spec| Ok((spec, region.ok_or_else(|| format!("there is no function @{}", call.reference))?))) {
        Ok((spec, region)) => {
            let site = CallSite::new(spec, region);
            Arc::new(move |inputs, _| Ok(site.run(&inputs)?))
        }
        Err(why) => Arc::new(move |_, _| Err(why.clone().into())),
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
