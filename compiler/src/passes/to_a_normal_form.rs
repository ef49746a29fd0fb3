//! to-a-normal-form: one flat sequence of bindings per block. Scopes that only group bindings are dissolved.
//!
//! ```text
//! %0 = let {                               %1 = exp %x
//!   %1 = exp %x                    =>      %2 = neg %1
//!   %2 = let { %3 = neg %1; yield %3 }
//!   yield %2
//! }
//! ```
//!
//! In Weft, operands are always names, and a value that is used twice is bound once. So of TVM's pass of this name,
//! only this remains. The regions of an `if` stay, since only one of them runs.

use super::rewriter::Rewriter;
use super::{FunctionPass, GraphFunctions, PassContext, PassError};
use crate::attr_struct;
use crate::graph::Module;
use crate::ops::control::Let;

attr_struct! {
    /// Dissolves `let` scopes.
    pub struct ToANormalForm("to-a-normal-form") {}
}

impl FunctionPass for ToANormalForm {
    type Of = GraphFunctions;
    fn opt_level(&self) -> u8 {
        0
    }
    fn run_on(&self, r: &mut Rewriter<'_>, cx: &mut PassContext) -> Result<(), PassError> {
        for n in r.f.walk() {
            if !r.f.nodes[n].op.is::<Let>() || r.is_dead(n) {
                continue;
            }
            let [body] = r.f.nodes[n].regions[..] else { continue };
            let name = r.f.nodes[n].name;
            r.splice(n, body);
            cx.applied(self, &[name], format!("the scope of {name} is dissolved"));
        }
        Ok(())
    }
}

/// Checks that a module is in A-normal form.
///
/// # Errors
/// One sentence for each scope that is left.
pub fn check_a_normal_form(module: &Module) -> Result<(), Vec<String>> {
    let functions = module.functions.values();
    let errors: Vec<String> = functions
        .flat_map(|f| f.walk().into_iter().map(move |n| (f, &f.nodes[n])))
        .filter(|(_, node)| node.op.is::<Let>())
        .map(|(f, node)| format!("@{}: {} is a scope of its own", f.name, node.name))
        .collect();
    if errors.is_empty() { Ok(()) } else { Err(errors) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interpreter::run_function;
    use crate::passes::run_pass;
    use crate::tensor::Tensor;
    use crate::text::parse_module;

    #[test]
    fn nested_scopes_become_one_sequence() {
        let text = "graph @main(%x: f32[2]) -> (y: f32[2]) {\n  %0 = let : f32[2] {\n    %1 = exp %x : f32[2]\n    \
            %2 = let : f32[2] {\n      %3 = neg %1 : f32[2]\n      yield %3\n    }\n    %4 = add %2, %1 : f32[2]\n    \
            yield %4\n  }\n  %5 = abs %0 : f32[2]\n  return %5\n}\n";
        let mut m = parse_module(text).unwrap_or_else(|e| panic!("{e}"));
        let x = [Tensor::from_vec(vec![2], vec![0.5f32, -1.0])];
        let want = run_function(&m, m.entry, &x).unwrap();
        assert_eq!(check_a_normal_form(&m).unwrap_err().len(), 2);
        assert!(run_pass(&ToANormalForm {}, &mut m, &mut PassContext::default()).unwrap());
        check_a_normal_form(&m).unwrap();
        let f = m.main();
        let ops: Vec<_> = f.walk().iter().map(|&n| f.nodes[n].op.name()).collect();
        assert_eq!(ops, ["exp", "neg", "add", "abs"]);
        assert_eq!(run_function(&m, m.entry, &x).unwrap(), want);
    }
}
