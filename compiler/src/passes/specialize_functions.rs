//! specialize-functions: removes function values that are known at compile time. An application of one becomes a call
//! of the function, and a function that takes one as an argument is copied for it (recursive functions too).
//!
//! ```text
//! %f = function @scale %k                                      %y = call @twice_scale %k, %x
//! %y = call @twice %f, %x                              =>
//!                                                              graph @twice_scale(%k: f32[], %x: f32[4]) -> f32[4] {
//! graph @twice(%f: function(f32[4]) -> f32[4], %x: f32[4])       %0 = call @scale %k, %x
//!     -> f32[4] { %0 = apply %f, %x                              %1 = call @scale %k, %0
//!     %1 = apply %f, %0; return %1 }                             return %1 }
//! ```
//!
//! Captured values become operands, also between the calls of a recursive function. A call that returns a function is
//! inlined. If an `if` chooses between two functions, the use moves into an `if` of the same condition. Function values
//! that are known only at run time stay: parameters of loops, results of recursion, and any beyond `max_functions` or
//! `max_depth`.

mod choices;

use super::infer_types::instantiated;
use super::remove_unused_functions::reachable;
use super::to_a_normal_form::ToANormalForm;
use super::{Pass, PassContext, PassError};
use crate::arena::Id;
use crate::attr_struct;
use crate::graph::{CopyNodes, Function, Module, Node, NodeId, Origins, ValueDef, ValueId};
use crate::name::Name;
use crate::ops::OpRef;
use crate::ops::control::{Call, If};
use crate::ops::function_values::{Apply, FunctionValue};
use rustc_hash::{FxHashMap, FxHashSet};

attr_struct! {
    /// Replaces known function values by calls.
    pub struct SpecializeFunctions("specialize-functions") {
        /// Functions that it makes, at most.
        pub max_functions: usize = 256,
        /// Functions that it makes for calls in others that it made, one in another, at most: recursion that wraps a
        /// function once more in each call has no end of them, and each applies twice as many.
        pub max_depth: usize = 16,
    }
}

impl Pass for SpecializeFunctions {
    fn opt_level(&self) -> u8 {
        0
    }
    fn run(&self, module: &mut Module, cx: &mut PassContext) -> Result<bool, PassError> {
        if !module.functions.values().any(has_function_values) {
            return Ok(false);
        }
        instantiated(module, "specialize-functions")?;
        ToANormalForm {}.run(module, cx)?;
        let mut made = Made { options: self, copies: FxHashMap::default(), depths: FxHashMap::default() };
        let mut seen: FxHashSet<Name> = FxHashSet::default();
        let mut open = vec![module.entry];
        while let Some(name) = open.pop() {
            if !seen.insert(name) || !module.functions.contains_key(&name) {
                continue;
            }
            let mut f = module.functions[&name].clone();
            while made.rewrite_one(module, &mut f, cx) {}
            remove_unused_values(&mut f);
            open.extend(f.walk().iter().filter_map(|&n| f.nodes[n].op.callee()));
            module.functions.insert(name, f);
        }
        let reached = reachable(module, [module.entry]);
        module.functions.retain(|n, f| reached.contains(n) || !has_function_values(f));
        for f in module.functions.values().filter(|f| reached.contains(&f.name)) {
            report(self, f, cx);
        }
        Ok(true)
    }
}

/// True when a value of the function is a function value.
fn has_function_values(f: &Function) -> bool {
    !f.primitive && f.values.iter().any(|(_, v)| v.ty.is_function())
}

/// The function of value `v`, with its captured values.
fn known(f: &Function, v: ValueId) -> Option<(Name, Vec<ValueId>)> {
    let (n, value) = f.def_op::<FunctionValue>(v)?;
    Some((value.callee, f.nodes[n].inputs.iter().flatten().copied().collect()))
}

/// Reports the remaining function values, and why they remain.
fn report(pass: &SpecializeFunctions, f: &Function, cx: &mut PassContext) {
    for n in f.walk() {
        let node = &f.nodes[n];
        let function = node.inputs.iter().flatten().find(|v| f.ty(**v).is_function());
        let Some(&v) = function.filter(|_| node.op.is::<Apply>() || node.op.is::<Call>()) else { continue };
        let why = match f.values[v].def {
            ValueDef::Arg(b, _) if b == f.body => "is a parameter".to_string(),
            ValueDef::Arg(..) => "goes from one iteration of a loop to the next".to_string(),
            ValueDef::Result(d, _) if f.nodes[d].op.is::<FunctionValue>() => {
                let (most, depth) = (pass.max_functions, pass.max_depth);
                format!("is known, and {most} functions were made of others, or {depth} for calls in each other")
            }
            ValueDef::Result(d, _) => format!("is what `{}` ({}) gives", f.nodes[d].name, f.nodes[d].op.name()),
        };
        cx.missed(
            pass,
            &[node.name],
            format!("{} in @{} stays: its function {} {why}", node.name, f.name, f.describe_value(v)),
        );
    }
}

/// A function with some of its parameters known: their positions, the functions and how many values each captured.
type Copied = (Name, Vec<(usize, Name, usize)>);

/// The functions that were made.
struct Made<'a> {
    options: &'a SpecializeFunctions,
    copies: FxHashMap<Copied, Name>,
    /// How many functions that were made each of them is in.
    depths: FxHashMap<Name, usize>,
}

impl Made<'_> {
    /// Rewrites the first node of `f` whose function value is known; false where there is none.
    fn rewrite_one(&mut self, module: &mut Module, f: &mut Function, cx: &mut PassContext) -> bool {
        f.walk().into_iter().any(|n| self.rewrite(module, f, n, cx))
    }

    fn rewrite(&mut self, module: &mut Module, f: &mut Function, n: NodeId, cx: &mut PassContext) -> bool {
        let node = &f.nodes[n];
        let (name, callee) = (node.name, node.op.downcast::<Call>().map(|c| c.callee));
        if node.op.is::<FunctionValue>() || callee.is_none() && !node.op.is::<Apply>() {
            return false;
        }
        if node.outputs.iter().any(|&v| f.ty(v).is_function())
            && let Some(callee) = callee.filter(|&c| c != f.name && !recursive(module, c))
        {
            inline(&module.functions[&callee], f, n);
            cx.applied(self.options, &[name], format!("{name} gives a function: it is the nodes of @{callee}"));
            return true;
        }
        let functions = node.inputs.iter().enumerate().filter_map(|(i, v)| Some((i, (*v)?)));
        let functions: Vec<(usize, ValueId)> = functions.filter(|(_, v)| f.ty(*v).is_function()).collect();
        if functions.is_empty() {
            return false;
        }
        let chosen = functions.iter().find(|(_, v)| f.def_op::<If>(*v).is_some());
        if let Some(&(i, v)) = chosen {
            let split = choices::split(module, f, n, (i, v));
            if split {
                cx.applied(self.options, &[name], format!("{name} is done for either of two functions"));
            }
            return split;
        }
        let values: Option<Vec<_>> = functions.iter().map(|&(i, v)| known(f, v).map(|k| (i, k))).collect();
        let Some(values) = values else { return false };
        let Some(callee) = callee else {
            let Some((_, (callee, captured))) = values.into_iter().next() else { return false };
            let inputs = captured.into_iter().map(Some).chain(f.nodes[n].inputs[1..].iter().copied()).collect();
            (f.nodes[n].op, f.nodes[n].inputs) = (OpRef::new(Call { callee }), inputs);
            cx.applied(self.options, &[name], format!("{name} calls @{callee}"));
            return true;
        };
        let Some(copy) = self.copy(module, f.name, callee, &values) else { return false };
        let mut inputs = vec![];
        for (i, &v) in f.nodes[n].inputs.iter().enumerate() {
            match values.iter().find(|k| k.0 == i) {
                Some((_, (_, captured))) => inputs.extend(captured.iter().copied().map(Some)),
                None => inputs.push(v),
            }
        }
        (f.nodes[n].op, f.nodes[n].inputs) = (OpRef::new(Call { callee: copy }), inputs);
        cx.applied(
            self.options,
            &[name],
            format!("{name} calls @{copy}, which is @{callee} for the functions it passes"),
        );
        true
    }

    /// The function with these parameters known, what they captured in their places.
    fn copy(
        &mut self,
        module: &mut Module,
        caller: Name,
        callee: Name,
        values: &[(usize, (Name, Vec<ValueId>))],
    ) -> Option<Name> {
        let key = (callee, values.iter().map(|(i, (name, captured))| (*i, *name, captured.len())).collect());
        if let Some(&copy) = self.copies.get(&key) {
            return Some(copy);
        }
        let depth_of = |name: Name| self.depths.get(&name).copied().unwrap_or(0);
        let depth = depth_of(caller).max(depth_of(callee)) + 1;
        if self.copies.len() >= self.options.max_functions || depth > self.options.max_depth {
            return None;
        }
        let passed: Vec<&str> = values.iter().map(|(_, (name, _))| name.as_str()).collect();
        let name = module.fresh_name(&format!("{callee}_{}", passed.join("_")));
        let copy = specialized(module, callee, name, values)?;
        module.functions.insert(name, copy);
        self.copies.insert(key, name);
        self.depths.insert(name, depth);
        Some(name)
    }
}

fn specialized(
    module: &Module,
    callee: Name,
    name: Name,
    values: &[(usize, (Name, Vec<ValueId>))],
) -> Option<Function> {
    let from = module.functions.get(&callee)?;
    let mut f = Function::new(name);
    let block = f.body;
    let mut map: FxHashMap<ValueId, ValueId> = FxHashMap::default();
    let param = |f: &mut Function, like: &Function, v: ValueId| {
        let def = ValueDef::Arg(block, f.blocks[block].args.len());
        let new = f.fresh_value(like.ty(v).clone(), def, like.values[v].name);
        f.blocks[block].args.push(new);
        new
    };
    for (i, &p) in from.params().iter().enumerate() {
        let Some((_, (function, captured))) = values.iter().find(|k| k.0 == i) else {
            map.insert(p, param(&mut f, from, p));
            continue;
        };
        let known = module.functions.get(function)?;
        let inputs = known.params().iter().take(captured.len()).map(|&v| Some(param(&mut f, known, v))).collect();
        let id = NodeId::from_index(f.nodes.len());
        let value = f.fresh_value(from.ty(p).clone(), ValueDef::Result(id, 0), from.values[p].name);
        f.nodes.push(Node {
            op: OpRef::new(FunctionValue { callee: *function }),
            inputs,
            outputs: vec![value],
            regions: vec![],
            name: *function,
            origins: Origins::none(),
            block: Some(block),
        });
        f.blocks[block].nodes.push(id);
        map.insert(p, value);
    }
    let mut copy = CopyNodes::new(from, map);
    copy.nodes(from.body, &mut f, block);
    f.blocks[block].results = from.results().iter().map(|v| copy.map[v]).collect();
    (f.result_types, f.result_names) = (from.result_types.clone(), from.result_names.clone());
    Some(f)
}

/// Puts the nodes of `callee` in the place of its call `n`.
fn inline(callee: &Function, f: &mut Function, n: NodeId) {
    let Some(block) = f.nodes[n].block else { return };
    let operands = f.nodes[n].inputs.iter().flatten().copied();
    let mut copy = CopyNodes::new(callee, callee.params().iter().copied().zip(operands).collect());
    copy.origins = f.nodes[n].origins.clone();
    let at = f.blocks[block].nodes.iter().position(|&m| m == n).unwrap_or(0);
    let behind = f.blocks[block].nodes.split_off(at + 1);
    f.blocks[block].nodes.pop();
    copy.nodes(callee.body, f, block);
    f.blocks[block].nodes.extend(behind);
    f.nodes[n].block = None;
    let outputs = f.nodes[n].outputs.clone();
    let replaced: FxHashMap<ValueId, ValueId> =
        outputs.into_iter().zip(callee.results().iter().map(|r| copy.map[r])).collect();
    f.replace_uses_many(&|v| replaced.get(&v).copied().unwrap_or(v));
}

/// True when calls lead from the function back to it.
fn recursive(module: &Module, name: Name) -> bool {
    let callees = |f: &Function| f.walk().into_iter().filter_map(|n| f.nodes[n].op.callee()).collect::<Vec<_>>();
    let Some(f) = module.functions.get(&name) else { return true };
    reachable(module, callees(f)).contains(&name)
}

/// Removes function values that nothing uses, results of an `if` that are such, and an `if` of which nothing is left.
fn remove_unused_values(f: &mut Function) {
    loop {
        let uses = f.count_uses();
        let unused = |v: ValueId| f.ty(v).is_function() && uses[v.index()] == 0;
        let nodes = f.walk();
        let empty = |n: NodeId| {
            let node = &f.nodes[n];
            node.op.is::<If>() && node.outputs.is_empty() && node.regions.iter().all(|&r| f.blocks[r].nodes.is_empty())
        };
        let value = |n: NodeId| f.nodes[n].op.is::<FunctionValue>() && f.nodes[n].outputs.iter().all(|&v| unused(v));
        let dead = |n: &&NodeId| value(**n) || empty(**n);
        let dead: FxHashSet<NodeId> = nodes.iter().filter(dead).copied().collect();
        let pruned = nodes.iter().find_map(|&n| {
            let node = &f.nodes[n];
            let at = node.outputs.iter().position(|&v| unused(v)).filter(|_| node.op.is::<If>())?;
            Some((n, at))
        });
        if let Some((n, at)) = pruned {
            prune(f, n, at);
        } else if dead.is_empty() {
            return;
        }
        f.remove_nodes(&dead);
    }
}

/// Removes a result of an `if`.
fn prune(f: &mut Function, n: NodeId, at: usize) {
    f.nodes[n].outputs.remove(at);
    for r in f.nodes[n].regions.clone() {
        f.blocks[r].results.remove(at);
    }
    for (i, v) in f.nodes[n].outputs.clone().into_iter().enumerate() {
        f.values[v].def = ValueDef::Result(n, i);
    }
}
