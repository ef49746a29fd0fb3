//! count-results: replaces ops whose number of results depends on data by ops of known sizes, which kernels compute,
//! and a slice to the actual number.
//!
//! ```text
//! %0 = compress %x, %c {axis=0, count=n} : f32[n,4]   =>   %0, %1 = call @counted %x, %c : f32[8,4], i64[1]
//!                                                          %2 = slice %0, %zero, %1 {axes=[0], dims=[n,4]} : f32[n,4]
//! ```
//!
//! The called function is made of ordinary ops ([`Op::counted`](crate::ops::Op::counted)); `inline-functions` replaces
//! the call by them. The host then only reads the number. Not changed: nodes in regions, operands of open sizes, and
//! operands that are too large to count on a device.

use super::rewriter::Rewriter;
use super::{Pass, PassContext, PassError};
use crate::attr::AttrStruct;
use crate::attr_struct;
use crate::graph::{Constant, FunctionBuilder, Module, NodeId, Origins};
use crate::name::Name;
use crate::ops::const_value;
use crate::ops::control::Call;
use crate::ops::counted::{Counted, CountedOperand, Counting};
use crate::ops::slice::Slice;
use crate::tensor::Tensor;

attr_struct! {
    /// Replaces ops that count by ops of known sizes.
    pub struct CountResults("count-results") {}
}

impl Pass for CountResults {
    fn opt_level(&self) -> u8 {
        0
    }
    fn run(&self, module: &mut Module, cx: &mut PassContext) -> Result<bool, PassError> {
        let f = module.main();
        let mut found = vec![];
        for n in f.blocks[f.body].nodes.clone() {
            let node = &module.main().nodes[n];
            if !node.op.defined_symbols().is_empty() && node.regions.is_empty() {
                found.extend(counted(module, n).map(|(callee, axes)| (n, callee, axes)));
            }
        }
        let changed = !found.is_empty();
        let entry = module.entry;
        let mut r = Rewriter::new(module, entry);
        for (n, callee, axes) in found {
            let name = r.f.nodes[n].name;
            let done = replace(&mut r, n, callee, &axes);
            done.map_err(|e| PassError::new(Self::NAME, format!("{name}: {}", e.message)))?;
            cx.applied(self, &[name], format!("{name} has room for all its results, and counts them"));
        }
        r.finish();
        Ok(changed)
    }
}

/// A function of what a node of the entry function gives, and the axis along which the results are counted; none where
/// the op cannot say it.
fn counted(module: &mut Module, n: NodeId) -> Option<(Name, Vec<Option<usize>>)> {
    let f = module.main();
    let node = f.nodes[n].clone();
    let types: Vec<_> = node.inputs.iter().map(|v| v.map(|v| f.ty(v).clone())).collect();
    if types.iter().flatten().any(|t| t.const_shape().is_none()) {
        return None;
    }
    let constants: Vec<_> = node.inputs.iter().map(|v| v.and_then(|v| const_value(module, f, v))).collect();
    let before: Vec<Name> = module.constants.keys().copied().collect();
    let callee = module.fresh_name("counted");
    let mut b = FunctionBuilder::new(module, callee);
    let mut operands = vec![];
    for (i, (ty, constant)) in types.into_iter().zip(constants).enumerate() {
        let value = ty.map(|ty| b.param(format!("p{i}").as_str(), ty));
        operands.push(CountedOperand { value, constant });
    }
    match node.op.counted(&mut Counting { b: &mut b }, &operands) {
        Some(Ok(Counted { results, count })) => {
            let values = results.iter().map(|r| r.0).chain([count]);
            let named: Vec<_> = values.enumerate().map(|(i, v)| (Name::new(&format!("r{i}")), v)).collect();
            b.finish(&named);
            name_nodes(module, callee, node.name);
            Some((callee, results.into_iter().map(|r| r.1).collect()))
        }
        _ => {
            drop(b);
            module.constants.retain(|name, _| before.contains(name));
            None
        }
    }
}

/// The nodes of a function are parts of the node `of`.
fn name_nodes(module: &mut Module, callee: Name, of: Name) {
    let f = &mut module.functions[&callee];
    for (i, (_, node)) in f.nodes.iter_mut().enumerate() {
        node.name = Name::new(&format!("{of}:{}_{i}", node.op.name()));
    }
}

fn replace(r: &mut Rewriter<'_>, n: NodeId, callee: Name, axes: &[Option<usize>]) -> crate::ops::OpResult<()> {
    r.normalize(n);
    let node = r.f.nodes[n].clone();
    let origins = node.origins.clone();
    let inputs: Vec<_> = node.inputs.iter().filter(|v| v.is_some()).copied().collect();
    let results = r.add_before(n, Call { callee }, inputs, node.name, origins.clone())?;
    let Some((&count, rooms)) = results.split_last() else { return Err("nothing is counted".into()) };
    let zero = r.constant_before(n, "zero", Constant::from_tensor(&Tensor::ints(&[0])), Origins::none());
    for ((&room, &axis), &old) in rooms.iter().zip(axes).zip(&node.outputs) {
        let Some(axis) = axis else {
            r.replace(old, room);
            continue;
        };
        let dims = r.f.ty(old).shape.clone();
        let slice = Slice { axes: vec![axis as i64], dims, ..Slice::default() };
        let operands = vec![Some(room), Some(zero), Some(count)];
        let new = r.add_before(n, slice, operands, node.name, origins.clone())?[0];
        r.replace(old, new);
    }
    r.erase(n);
    Ok(())
}
