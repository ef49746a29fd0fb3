//! infer-types: infers the type of every value again, callees before callers, with canonical dimensions.
//!
//! ```text
//! %x: f32[n*1 + 0,4]                        %x: f32[n,4]
//! %0 = relu %x : f32[n*1 + 0,4]     =>      %0 = relu %x : f32[n,4]
//! ```
//!
//! A graph function that is called with different sizes becomes one function per size ([`instantiate_functions`]).

use super::{Pass, PassContext, PassError};
use crate::attr_struct;
use crate::graph::{BlockId, Function, Module, TensorType, instantiate_functions};
use crate::name::Name;
use crate::ops::InferContext;
use rustc_hash::FxHashSet;

attr_struct! {
    /// Infers all types again.
    pub struct InferTypes("infer-types") {}
}

impl Pass for InferTypes {
    fn opt_level(&self) -> u8 {
        0
    }
    fn run(&self, module: &mut Module, _cx: &mut PassContext) -> Result<bool, PassError> {
        let mut changed = instantiated(module, "infer-types")?;
        for name in callees_first(module) {
            let mut f = std::mem::replace(&mut module.functions[&name], Function::new(name));
            let done = infer_function(module, &mut f);
            module.functions.insert(name, f);
            changed |= done?;
        }
        Ok(changed)
    }
}

/// [`instantiate_functions`] at the start of the pass of this name, which takes calls to be of the types that the
/// callee has.
pub(super) fn instantiated(module: &mut Module, pass: &str) -> Result<bool, PassError> {
    instantiate_functions(module).map_err(|e| PassError::request(pass, e.to_string()))
}

/// Functions in an order where callees come before callers (recursive ones where the recursion is first met).
fn callees_first(module: &Module) -> Vec<Name> {
    let mut done = FxHashSet::default();
    let mut order = Vec::new();
    for &start in module.functions.keys() {
        let mut stack = vec![(start, false)];
        while let Some((name, leave)) = stack.pop() {
            let Some(f) = module.functions.get(&name) else { continue };
            if leave {
                order.push(name);
            } else if done.insert(name) {
                stack.push((name, true));
                stack.extend(f.walk().iter().filter_map(|&n| Some((f.nodes[n].op.callee()?, false))));
            }
        }
    }
    order
}

fn infer_function(module: &Module, f: &mut Function) -> Result<bool, PassError> {
    let mut changed = false;
    for (_, block) in f.blocks.iter() {
        for &v in &block.args {
            let ty = f.values[v].ty.clone().canonical();
            changed |= std::mem::replace(&mut f.values[v].ty, ty.clone()) != ty;
        }
    }
    let body = f.body;
    changed |= infer_block(module, f, body)?;
    let types: Vec<TensorType> = f.results().iter().map(|&v| f.ty(v).clone()).collect();
    changed |= types != f.result_types;
    f.result_types = types;
    Ok(changed)
}

fn infer_block(module: &Module, f: &mut Function, block: BlockId) -> Result<bool, PassError> {
    let mut changed = false;
    for n in f.blocks[block].nodes.clone() {
        changed |= f.set_argument_types(n);
        for r in f.nodes[n].regions.clone() {
            changed |= infer_block(module, f, r)?;
        }
        let node = &f.nodes[n];
        let types = node.op.infer(&InferContext::new(module, f, &node.inputs, &node.regions));
        let types = types.map_err(|e| {
            PassError::new("infer-types", format!("@{}, {} `{}`: {e}", f.name, node.op.name(), node.name))
        })?;
        let outputs = f.nodes[n].outputs.clone();
        if types.len() != outputs.len() {
            let message =
                format!("@{}, `{}`: {} results, inferred {}", f.name, f.nodes[n].name, outputs.len(), types.len());
            return Err(PassError::new("infer-types", message));
        }
        for (v, ty) in outputs.into_iter().zip(types) {
            let ty = ty.canonical();
            changed |= f.values[v].ty != ty;
            f.values[v].ty = ty;
        }
    }
    Ok(changed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::passes::run_pass;
    use crate::text::parse_module;

    #[test]
    fn parameters_become_canonical_and_results_follow() {
        let text =
            "graph @main(%x: f32[n*1 + 0,4]) -> f32[n*1 + 0,4] {\n  %0 = relu %x : f32[n*1 + 0,4]\n  return %0\n}\n";
        let mut m = parse_module(text).unwrap();
        assert!(run_pass(&InferTypes {}, &mut m, &mut PassContext::default()).is_ok());
        assert_eq!(m.main().result_types[0].shape[0].as_var(), Some(Name::new("n")));
        assert!(!run_pass(&InferTypes {}, &mut m, &mut PassContext::default()).unwrap());
    }
}
