//! apply-schedules: applies the instructions in the `schedule` block of each tensor function.
//!
//! ```text
//! tensor @f(out %y: f32[8]) {                           tensor @f(out %y: f32[8]) {
//!   for i in 0..8 {                                       kernel y {
//!     block y { %y[i] <- 1.0 }                              group_x for i in 0..8 {
//!   }                                           =>            block y { %y[i] <- 1.0 }
//!   schedule {                                              }
//!     bind {loop=i, axis=group_x}                         }
//!     cut-kernel                                          applied { ... }
//!   }                                                   }
//! }
//! ```
//!
//! If a choice was edited, the rules are asked again, for the profile of the context. The block becomes the function's
//! record of applied instructions, and the result is checked for races, accesses out of bounds and missing elements
//! ([`check`](crate::check)). A function without the block does not change.

use super::{FunctionPass, OneTensorFunction, PassContext, PassError, TensorFunctions};
use crate::attr_struct;
use crate::graph::{Module, ValueId};
use crate::name::Name;
use crate::ops::control::{CallTensor, Const};
use crate::schedule::accept;
use crate::schedule::rules::follow_choices;
use crate::tir::BufferId;
use rustc_hash::{FxHashMap, FxHashSet};

attr_struct! {
    /// Replays schedules that came as text.
    pub struct ApplySchedules("apply-schedules") {}
}

impl FunctionPass for ApplySchedules {
    type Of = TensorFunctions;
    fn opt_level(&self) -> u8 {
        0
    }
    fn run_on(&self, one: &mut OneTensorFunction<'_>, cx: &mut PassContext) -> Result<(), PassError> {
        if one.get().pending.is_empty() {
            return Ok(());
        }
        let constants = constant_operands(one.module, one.get().name);
        let f = one.change();
        let inputs = f.inputs().enumerate();
        let own: Vec<BufferId> = inputs.filter(|(i, _)| constants.get(i) == Some(&true)).map(|(_, b)| b).collect();
        follow_choices(f, &own, cx.target()).map_err(|e| fail(&format!("@{}: {e}", f.name)))?;
        let count = f.pending.len();
        accept(f).map_err(|e| fail(&e.to_string()))?;
        cx.applied(self, &[], format!("applied {count} instructions to @{}", f.name));
        Ok(())
    }
}

fn fail(message: &str) -> PassError {
    PassError::new("apply-schedules", message.to_string())
}

/// For each operand of the tensor function `callee`, by its position: whether all calls give a constant.
fn constant_operands(module: &Module, callee: Name) -> FxHashMap<usize, bool> {
    let mut out = FxHashMap::default();
    for f in module.functions.values() {
        let constants: FxHashSet<ValueId> = f
            .walk()
            .into_iter()
            .filter(|&n| f.nodes[n].op.is::<Const>())
            .flat_map(|n| f.nodes[n].outputs.clone())
            .collect();
        for n in f.walk() {
            if f.nodes[n].op.downcast::<CallTensor>().is_none_or(|call| call.callee != callee) {
                continue;
            }
            for (i, v) in f.nodes[n].inputs.iter().enumerate() {
                let constant = v.is_some_and(|v| constants.contains(&v));
                out.entry(i).and_modify(|all| *all &= constant).or_insert(constant);
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::passes::Sequential;
    use crate::text::{parse_module, print_module};

    #[test]
    fn a_changed_factor_gives_another_nest() {
        let text = |factor: usize| {
            format!(
                "tensor @f(%x: f32[64], out %y: f32[64]) {{\n  for i in 0..64 {{\n    block y {{ %y[i] <- %x[i] + 1.0 }}\n  }}\n  \
                 schedule {{\n    split {{loop=i, factors=[0,{factor}], into=[a,b]}}\n    cut-kernel\n  }}\n}}\n"
            )
        };
        for factor in [8, 16] {
            let mut m = parse_module(&text(factor)).expect("parses");
            let mut cx = PassContext::default();
            Sequential::new(["apply-schedules"]).run(&mut m, &mut cx).expect("applies");
            let printed = print_module(&m);
            assert!(printed.contains(&format!("for b in 0..{factor} {{")), "{printed}");
            assert!(printed.contains("applied {") && !printed.contains("schedule {"), "{printed}");
        }
        let mut m = parse_module(&text(0)).expect("parses");
        let e = Sequential::new(["apply-schedules"]).run(&mut m, &mut PassContext::default()).expect_err("two zeros");
        assert!(e.to_string().contains("@f: split"), "{e}");
    }
}
