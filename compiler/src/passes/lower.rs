//! lower: selected nodes become calls of tensor functions, whose text a person can read, change and schedule.
//!
//! ```text
//! %1 = relu %0        =>     %1 = call_tensor @lowered_relu_1 %0
//!                            tensor @lowered_relu_1(%p0: f32[n,4], out %relu_0: f32[n,4]) { symbol n ... block ... }
//! ```
//!
//! A node is selected by its name or the name of a source node, as a pattern (`*`, `?`), or by `op:` and a pattern of
//! its op; without patterns all nodes are selected. A node that calls a fused group becomes one call of that group's
//! tensor function. A function without a schedule fuses with its neighbours as the node did; a function that is given a
//! trace is called as it is. Small constants that may decide the form of a computation become numbers in the function;
//! other operands are parameters. Nodes without a tensor expression stay.
//!
//! Nodes can be lowered one by one: the calls stand beside ops that were not selected. Fused groups are lowered by the
//! same code ([`crate::lowering`]).

use super::replace_with_host_calls::{chosen, push};
use super::rewriter::Rewriter;
use super::{Pass, PassContext, PassError};
use crate::attr_struct;
use crate::graph::{Function, Module, Node, NodeId, TensorType, ValueDef, ValueId};
use crate::int::{DimRanges, Int};
use crate::lowering::lower_group;
use crate::name::Name;
use crate::ops::OpRef;
use crate::ops::control::{Call, CallHost, CallTensor, Const};
use crate::tir::TensorFunction;

/// The most elements of a constant that stands in a tensor function.
const INSIDE: i64 = 64;

attr_struct! {
    /// Lowers nodes to tensor functions.
    pub struct Lower("lower") {
        /// Which nodes: names of nodes, of source nodes or `op:NAME`, as patterns; none for all.
        pub nodes: Vec<String> = vec![],
    }
}

impl Pass for Lower {
    fn opt_level(&self) -> u8 {
        0
    }
    fn required(&self) -> &'static [&'static str] {
        &["infer-types"]
    }
    fn run(&self, module: &mut Module, cx: &mut PassContext) -> Result<bool, PassError> {
        let functions: Vec<Name> = module.functions.values().filter(|f| !f.primitive).map(|f| f.name).collect();
        let mut found = vec![false; self.nodes.len()];
        let mut changed = false;
        for name in functions {
            let mut r = Rewriter::new(module, name);
            for n in r.f.walk() {
                if self.is_chosen(&r.f.nodes[n], &mut found) {
                    self.lower(&mut r, n, cx);
                }
            }
            changed |= r.finish();
        }
        match found.iter().position(|f| !f) {
            Some(i) => Err(PassError::request("lower", format!("no node matches `{}`", self.nodes[i]))),
            None => Ok(changed),
        }
    }
}

impl Lower {
    fn is_chosen(&self, node: &Node, found: &mut [bool]) -> bool {
        if node.op.is::<Const>() || node.op.is::<CallHost>() || node.op.is::<CallTensor>() {
            return false;
        }
        let mut any = self.nodes.is_empty();
        for (pattern, found) in self.nodes.iter().zip(found) {
            let is = chosen(pattern, node);
            *found |= is;
            any |= is;
        }
        any
    }

    fn lower(&self, r: &mut Rewriter<'_>, n: NodeId, cx: &mut PassContext) {
        r.normalize(n);
        let name = r.f.nodes[n].name;
        match lowered(r, n) {
            Ok((callee, operands)) => match call(r, n, callee, operands) {
                Ok(callee) => cx.applied(self, &[name], format!("{name} is a call of the tensor function @{callee}")),
                Err(why) => cx.missed(self, &[name], format!("{name} stays: {why}")),
            },
            Err(why) => cx.missed(self, &[name], format!("{name} stays: {why}")),
        }
    }
}

/// The tensor function of a node, and the operands that it reads.
fn lowered(r: &Rewriter<'_>, n: NodeId) -> Result<(TensorFunction, Vec<ValueId>), String> {
    let node = &r.f.nodes[n];
    if !node.regions.is_empty() {
        return Err("it runs other nodes".into());
    }
    if node.op.effects().stateful {
        return Err("it has side effects".into());
    }
    let name = r.module.fresh_name(&format!("lowered_{}", node.name));
    let (function, operands) = match node.op.downcast::<Call>() {
        Some(call) => {
            let group = r.module.functions.get(&call.callee).filter(|f| f.primitive);
            let group = group.ok_or_else(|| format!("@{} is no fused group", call.callee))?;
            (group.clone(), node.inputs.iter().flatten().copied().collect())
        }
        None => alone(r, node),
    };
    let mut lowered = lower_group(r.module, &function, name).map_err(|e| e.why)?.function;
    lowered.declare_symbols(&DimRanges::default());
    Ok((lowered, operands))
}

/// A function that holds a node alone, and the operands that are its parameters.
fn alone(r: &Rewriter<'_>, node: &Node) -> (Function, Vec<ValueId>) {
    let mut g = Function::new(node.name);
    g.primitive = true;
    let (mut inputs, mut operands) = (vec![], vec![]);
    for v in &node.inputs {
        inputs.push(v.map(|v| {
            let ty = r.f.ty(v).clone();
            if let Some((_, c)) = r.f.def_op::<Const>(v).filter(|_| may_decide(&ty)) {
                return push(&mut g, OpRef::new(Const { name: c.name }), vec![], std::slice::from_ref(&ty), c.name)[0];
            }
            let (body, index) = (g.body, operands.len());
            let arg = g.fresh_value(ty, ValueDef::Arg(body, index), Some(Name::new(&format!("p{index}"))));
            g.blocks[body].args.push(arg);
            operands.push(v);
            arg
        }));
    }
    let types: Vec<TensorType> = node.outputs.iter().map(|&v| r.f.ty(v).clone()).collect();
    g.result_names = (0..types.len()).map(|i| Name::new(&format!("out{i}"))).collect();
    let results = push(&mut g, node.op.clone(), inputs, &types, node.name);
    let body = g.body;
    g.blocks[body].results = results;
    g.result_types = types;
    (g, operands)
}

/// True for sizes, axes and single numbers.
fn may_decide(ty: &TensorType) -> bool {
    let few = ty.numel().as_const().is_some_and(|n| n <= INSIDE);
    ty.numel().is(1) || (few && ty.dtype.is_int() && ty.rank() <= 1)
}

/// Puts a call of the function in the node's place.
fn call(r: &mut Rewriter<'_>, n: NodeId, f: TensorFunction, operands: Vec<ValueId>) -> Result<Name, String> {
    let node = r.f.nodes[n].clone();
    let callee = f.name;
    // A symbol that no operand's shape tells is one of the caller's.
    let shapes: Vec<_> = operands.iter().map(|&v| r.f.ty(v).shape.clone()).collect();
    let known = f.unify(f.inputs().zip(shapes.iter().map(Vec::as_slice)));
    let symbols: Vec<Name> = f.symbols.iter().map(|s| s.0).filter(|s| !known.contains_key(s)).collect();
    let sizes = symbols.iter().map(|&s| Int::var(s)).collect();
    r.module.tensor_functions.insert(callee, f);
    let operands = operands.into_iter().map(Some).collect();
    let results = r.add_before(n, CallTensor { callee, symbols, sizes }, operands, node.name, node.origins);
    let results = results.map_err(|e| e.message)?;
    for (&old, new) in node.outputs.iter().zip(results) {
        r.replace(old, new);
    }
    r.erase(n);
    Ok(callee)
}
