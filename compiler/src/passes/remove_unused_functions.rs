//! remove-unused-functions: removes graph functions and tensor functions that no call reaches from the entry function,
//! and constants that only these read.
//!
//! ```text
//! graph @main ... { call @a ... }
//! graph @a ...                              graph @main ... { call @a ... }
//! graph @b ... { call @a ... }      =>      graph @a ...
//! const @only_in_b
//! ```
//!
//! `keep` names further functions that may be called from outside. Prepacking functions belong to their tensor
//! function, not to the module.

use super::{Pass, PassContext, PassError};
use crate::attr_struct;
use crate::graph::Module;
use crate::name::Name;
use crate::ops::control::{CallHost, Const};
use rustc_hash::FxHashSet;

attr_struct! {
    /// Removes functions without calls.
    pub struct RemoveUnusedFunctions("remove-unused-functions") {
        /// Functions that stay besides the entry.
        pub keep: Vec<Name> = vec![],
    }
}

impl Pass for RemoveUnusedFunctions {
    fn opt_level(&self) -> u8 {
        0
    }
    fn run(&self, module: &mut Module, cx: &mut PassContext) -> Result<bool, PassError> {
        if let Some(missing) = self.keep.iter().find(|n| !is_function(module, n)) {
            return Err(PassError::new("remove-unused-functions", format!("keep: there is no function @{missing}")));
        }
        let reached = reachable(module, self.keep.iter().copied().chain([module.entry]));
        let all = module.functions.keys().chain(module.tensor_functions.keys());
        let gone: Vec<Name> = all.copied().filter(|n| !reached.contains(n)).collect();
        module.functions.retain(|n, _| reached.contains(n));
        module.tensor_functions.retain(|n, _| reached.contains(n));
        for name in &gone {
            cx.applied(self, &[*name], format!("@{name} is called by nobody"));
        }
        let constants = remove_unread_constants(module);
        Ok(!gone.is_empty() || constants)
    }
}

fn is_function(module: &Module, name: &Name) -> bool {
    module.functions.contains_key(name) || module.tensor_functions.contains_key(name)
}

/// The functions that calls reach from `roots`, the roots included.
pub(super) fn reachable(module: &Module, roots: impl IntoIterator<Item = Name>) -> FxHashSet<Name> {
    let mut reached = FxHashSet::default();
    let mut work: Vec<Name> = roots.into_iter().collect();
    while let Some(name) = work.pop() {
        if !reached.insert(name) {
            continue;
        }
        let Some(f) = module.functions.get(&name) else { continue };
        for n in f.walk() {
            let op = &f.nodes[n].op;
            work.extend(op.callee());
            work.extend(op.downcast::<CallHost>().and_then(CallHost::reference_function));
        }
    }
    reached
}

/// Removes constants that no node reads; returns whether there were any.
pub(super) fn remove_unread_constants(module: &mut Module) -> bool {
    let before = module.constants.len();
    let mut read = FxHashSet::default();
    for f in module.functions.values() {
        read.extend(f.walk().iter().filter_map(|&n| f.nodes[n].op.downcast::<Const>().map(|c| c.name)));
    }
    module.constants.retain(|n, _| read.contains(n));
    before != module.constants.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::passes::run_pass;
    use crate::text::parse_module;

    const TEXT: &str = "const @k : f32[2] = [1.0, 2.0]\ngraph @main(%x: f32[2]) -> (y: f32[2]) {\n  \
        %0 = call @a %x : f32[2]\n  return %0\n}\ngraph @a(%x: f32[2]) -> (y: f32[2]) {\n  %0 = relu %x : f32[2]\n  \
        return %0\n}\ngraph @b(%x: f32[2]) -> (y: f32[2]) {\n  %k = const @k\n  %0 = add %x, %k : f32[2]\n  \
        %1 = call @c %0 : f32[2]\n  return %1\n}\ngraph @c(%x: f32[2]) -> (y: f32[2]) {\n  %0 = call @b %x : f32[2]\n  \
        return %0\n}\n";

    fn left(pass: RemoveUnusedFunctions) -> (Vec<String>, usize) {
        let mut m = parse_module(TEXT).unwrap_or_else(|e| panic!("{e}"));
        run_pass(&pass, &mut m, &mut PassContext::default()).unwrap();
        (m.functions.keys().map(|n| n.to_string()).collect(), m.constants.len())
    }

    #[test]
    fn recursive_functions_that_nobody_calls_go_with_their_constants() {
        assert_eq!(left(RemoveUnusedFunctions::default()), (vec!["main".into(), "a".into()], 0));
        let keep = RemoveUnusedFunctions { keep: vec![Name::new("c")] };
        assert_eq!(left(keep), (["main", "a", "b", "c"].map(String::from).to_vec(), 1));
    }
}
