//! inline-functions: replaces calls of graph functions by the callee's nodes.
//!
//! ```text
//! graph @main(%x) {                          graph @main(%x) {
//!   %0 = call @f %x                            %0 = relu %x
//!   %1 = call @f %0                    =>      %1 = relu %0
//!   return %1                                  return %1
//! }                                          }
//! graph @f(%a) { %0 = relu %a; return %0 }
//! ```
//!
//! A call stays if the callee calls itself, directly or through others; if the callee defines sizes of its own, which
//! two calls would mix up; or if the function would grow beyond `max_nodes`. Calls of fused groups are not inlined.

use super::infer_types::instantiated;
use super::{Pass, PassContext, PassError};
use crate::attr_struct;
use crate::graph::{CopyNodes, EXPANSION_LIMIT, Function, Module, ValueDef, ValueId};
use crate::name::Name;
use crate::ops::control::Call;
use rustc_hash::{FxHashMap, FxHashSet};

attr_struct! {
    /// Puts the nodes of graph functions where they are called.
    pub struct InlineFunctions("inline-functions") {
        /// Nodes that a function may have afterwards.
        pub max_nodes: usize = EXPANSION_LIMIT as usize,
    }
}

impl Pass for InlineFunctions {
    fn opt_level(&self) -> u8 {
        0
    }
    fn run(&self, module: &mut Module, cx: &mut PassContext) -> Result<bool, PassError> {
        let mut changed = instantiated(module, "inline-functions")?;
        for name in callees_first(module) {
            let f = &module.functions[&name];
            if f.primitive || !f.walk().iter().any(|&n| f.nodes[n].op.is::<Call>()) {
                continue;
            }
            let mut f = f.clone();
            if self.inline_into(module, &mut f, cx) {
                changed = true;
                module.functions.insert(name, f);
            }
        }
        Ok(changed)
    }
}

impl InlineFunctions {
    fn inline_into(&self, module: &Module, f: &mut Function, cx: &mut PassContext) -> bool {
        let mut replaced: FxHashMap<ValueId, ValueId> = FxHashMap::default();
        let mut size = f.live_nodes();
        let mut defined: FxHashSet<Name> = FxHashSet::default();
        for block in f.blocks.ids().collect::<Vec<_>>() {
            let nodes = std::mem::take(&mut f.blocks[block].nodes);
            for n in nodes {
                let callee = f.nodes[n].op.downcast::<Call>().and_then(|c| module.functions.get(&c.callee));
                let Some(callee) = callee.filter(|c| !c.primitive) else {
                    f.blocks[block].nodes.push(n);
                    continue;
                };
                let name = f.nodes[n].name;
                size += callee.live_nodes();
                if let Some(why) = self.refused(module, callee, size, &mut defined) {
                    size -= callee.live_nodes();
                    cx.missed(self, &[name], format!("{name} stays a call: {why}"));
                    f.blocks[block].nodes.push(n);
                    continue;
                }
                cx.applied(self, &[name], format!("{name} is the {} nodes of @{}", callee.live_nodes(), callee.name));
                let resolve = |v: ValueId| replaced.get(&v).copied().unwrap_or(v);
                let operands = f.nodes[n].inputs.iter().flatten().map(|&v| resolve(v));
                let mut copy = CopyNodes::new(callee, callee.params().iter().copied().zip(operands).collect());
                copy.origins = f.nodes[n].origins.clone();
                copy.nodes(callee.body, f, block);
                for (&old, result) in f.nodes[n].outputs.clone().iter().zip(callee.results()) {
                    let new = copy.map[result];
                    if f.values[new].name.is_none() && matches!(f.values[new].def, ValueDef::Result(..)) {
                        f.values[new].name = f.values[old].name;
                    }
                    replaced.insert(old, new);
                }
                f.nodes[n].block = None;
            }
        }
        // A result may itself be what another call was replaced by.
        let resolve = |mut v: ValueId| {
            while let Some(&next) = replaced.get(&v) {
                v = next;
            }
            v
        };
        f.replace_uses_many(&resolve);
        !replaced.is_empty()
    }

    /// Why a call of `callee` stays, in a function that would have `size` nodes then.
    fn refused(
        &self,
        module: &Module,
        callee: &Function,
        size: usize,
        defined: &mut FxHashSet<Name>,
    ) -> Option<String> {
        if calls_itself(module, callee.name) {
            return Some(format!("@{} calls itself", callee.name));
        }
        if size > self.max_nodes {
            return Some(format!("there would be {size} nodes, more than {}", self.max_nodes));
        }
        for n in callee.walk() {
            for symbol in callee.nodes[n].op.defined_symbols() {
                if !defined.insert(symbol) {
                    return Some(format!("it defines the size `{symbol}`, as another call does"));
                }
            }
        }
        None
    }
}

/// The graph functions that `f` calls.
fn callees(f: &Function) -> Vec<Name> {
    f.walk().iter().filter_map(|&n| f.nodes[n].op.downcast::<Call>().map(|c| c.callee)).collect()
}

/// The functions of the module, each behind those it calls, as far as they do not call each other.
fn callees_first(module: &Module) -> Vec<Name> {
    let mut seen: FxHashSet<Name> = FxHashSet::default();
    let mut out = vec![];
    // A function is entered, then its callees, then it is left.
    let mut open: Vec<(Name, bool)> = module.functions.keys().rev().map(|&n| (n, false)).collect();
    while let Some((name, left)) = open.pop() {
        if left {
            out.push(name);
        } else if seen.insert(name) {
            open.push((name, true));
            let called = module.functions.get(&name).map(callees).unwrap_or_default();
            open.extend(called.into_iter().filter(|c| module.functions.contains_key(c)).map(|c| (c, false)));
        }
    }
    out
}

/// True when calls lead from the function back to it.
fn calls_itself(module: &Module, name: Name) -> bool {
    let mut seen: FxHashSet<Name> = FxHashSet::default();
    let mut open = module.functions.get(&name).map(callees).unwrap_or_default();
    while let Some(callee) = open.pop() {
        if callee == name {
            return true;
        }
        if seen.insert(callee) {
            open.extend(module.functions.get(&callee).map(callees).unwrap_or_default());
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interpreter::run_function;
    use crate::passes::run_pass;
    use crate::tensor::Tensor;
    use crate::text::parse_module;

    const TEXT: &str = "graph @main(%c: bool[], %x: f32[2]) -> (y: f32[2]) {\n  %0 = call @twice %x : f32[2]\n  \
        %1 = if %c : f32[2] {\n    %2 = call @twice %0 : f32[2]\n    yield %2\n  } {\n    yield %0\n  }\n  \
        %3 = call @down %c, %1 : f32[2]\n  return %3\n}\n\
        graph @twice(%a: f32[2]) -> f32[2] {\n  %0 = call @step %a : f32[2]\n  %1 = call @step %0 : f32[2]\n  return %1\n}\n\
        graph @step(%a: f32[2]) -> f32[2] {\n  %0 = add %a, %a : f32[2]\n  return %0\n}\n\
        graph @down(%c: bool[], %a: f32[2]) -> f32[2] {\n  %0 = if %c : f32[2] {\n    %1 = not %c : bool[]\n    \
        %2 = call @down %1, %a : f32[2]\n    yield %2\n  } {\n    yield %a\n  }\n  return %0\n}\n";

    #[test]
    fn calls_become_nodes_but_for_recursion() {
        let mut m = parse_module(TEXT).unwrap_or_else(|e| panic!("{e}"));
        let inputs = |c| {
            [Tensor::from_f64(crate::dtype::DType::Bool, vec![], [c]), Tensor::from_vec(vec![2], vec![0.5f32, -1.0])]
        };
        let run = |m: &Module| [0.0, 1.0].map(|c| run_function(m, m.entry, &inputs(c)).unwrap());
        let want = run(&m);
        let mut cx = PassContext::default();
        assert!(run_pass(&InlineFunctions::default(), &mut m, &mut cx).unwrap());
        crate::verify::verify_module(&m).unwrap_or_else(|e| panic!("{e:?}"));
        assert_eq!(run(&m), want);
        let f = m.main();
        let ops: Vec<_> = f.walk().iter().map(|&n| f.nodes[n].op.name()).collect();
        assert_eq!(ops, ["add", "add", "if", "add", "add", "call"]);
        assert!(cx.remarks.iter().any(|r| r.message.contains("@down calls itself")), "{:?}", cx.remarks);
    }

    #[test]
    fn a_function_does_not_grow_without_end() {
        let mut m = parse_module(TEXT).unwrap_or_else(|e| panic!("{e}"));
        run_pass(&InlineFunctions { max_nodes: 8 }, &mut m, &mut PassContext::default()).unwrap();
        assert!(m.main().live_nodes() <= 8);
        crate::verify::verify_module(&m).unwrap_or_else(|e| panic!("{e:?}"));
    }
}
