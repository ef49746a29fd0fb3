//! Passes that work on one function at a time: TVM's function passes and `PrimFunc` passes.
//!
//! A [`FunctionPass`] says which functions it is for and rewrites one of them; it is a [`Pass`] automatically. A pass
//! that needs the whole module (calls between functions, new names, a state that functions share) implements [`Pass`]
//! itself.

use super::rewriter::{Rewriter, rewrite_functions};
use super::{Pass, PassBase, PassContext, PassError};
use crate::graph::Module;
use crate::name::Name;
use crate::tir::TensorFunction;

/// A kind of function that passes may be for.
pub trait Functions: 'static {
    /// The form in which a pass gets one function.
    type One<'m>;
    /// Calls `go` for each function of the module, and puts it back; whether anything changed.
    ///
    /// # Errors
    /// The first of `go`; functions after it stay as they are.
    fn each(
        module: &mut Module,
        go: &mut dyn FnMut(&mut Self::One<'_>) -> Result<(), PassError>,
    ) -> Result<bool, PassError>;
}

/// Graph functions but for fused groups, each in a [`Rewriter`].
pub struct GraphFunctions;

/// Tensor functions.
pub struct TensorFunctions;

/// A tensor function that is taken out of its module while a pass looks at it.
pub struct OneTensorFunction<'m> {
    /// The module; meanwhile the function has no body in it.
    pub module: &'m Module,
    function: TensorFunction,
    changed: bool,
}

impl OneTensorFunction<'_> {
    /// The function.
    pub fn get(&self) -> &TensorFunction {
        &self.function
    }
    /// The function, to be changed.
    pub fn change(&mut self) -> &mut TensorFunction {
        self.changed = true;
        &mut self.function
    }
}

impl Functions for GraphFunctions {
    type One<'m> = Rewriter<'m>;
    fn each(
        module: &mut Module,
        go: &mut dyn FnMut(&mut Rewriter<'_>) -> Result<(), PassError>,
    ) -> Result<bool, PassError> {
        let mut done = Ok(());
        let changed = rewrite_functions(module, |r| {
            if done.is_ok() {
                done = go(r);
            }
        });
        done.map(|()| changed)
    }
}

impl Functions for TensorFunctions {
    type One<'m> = OneTensorFunction<'m>;
    fn each(
        module: &mut Module,
        go: &mut dyn FnMut(&mut OneTensorFunction<'_>) -> Result<(), PassError>,
    ) -> Result<bool, PassError> {
        let names: Vec<Name> = module.tensor_functions.keys().copied().collect();
        let mut changed = false;
        for name in names {
            let function = std::mem::replace(&mut module.tensor_functions[&name], TensorFunction::new(name));
            let mut one = OneTensorFunction { module, function, changed: false };
            let done = go(&mut one);
            let OneTensorFunction { function, changed: this, .. } = one;
            module.tensor_functions.insert(name, function);
            changed |= this;
            done?;
        }
        Ok(changed)
    }
}

/// A pass over one function at a time; implementing it makes a [`Pass`].
pub trait FunctionPass: PassBase {
    /// The functions it is for: [`GraphFunctions`] or [`TensorFunctions`].
    type Of: Functions;
    /// The opt level from which it runs by default (0 always).
    fn opt_level(&self) -> u8;
    /// Passes that must run before.
    fn required(&self) -> &'static [&'static str] {
        &[]
    }
    /// Rewrites one function.
    ///
    /// # Errors
    /// Only on invalid modules.
    fn run_on(&self, one: &mut <Self::Of as Functions>::One<'_>, cx: &mut PassContext) -> Result<(), PassError>;
}

impl<T: FunctionPass> Pass for T {
    fn opt_level(&self) -> u8 {
        FunctionPass::opt_level(self)
    }
    fn required(&self) -> &'static [&'static str] {
        FunctionPass::required(self)
    }
    fn run(&self, module: &mut Module, cx: &mut PassContext) -> Result<bool, PassError> {
        T::Of::each(module, &mut |one| self.run_on(one, cx))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attr_struct;
    use crate::ops::unary::Relu;
    use crate::passes::PassDef;
    use crate::passes::Sequential;
    use crate::text::{parse_module, print_module};

    attr_struct! {
        /// Notes the name of each tensor function, and drops the schedule of the one that is named.
        pub struct Unscheduled("test-unscheduled") {
            /// Which.
            pub name: Name = "".into(),
        }
    }
    impl FunctionPass for Unscheduled {
        type Of = TensorFunctions;
        fn opt_level(&self) -> u8 {
            0
        }
        fn run_on(&self, one: &mut OneTensorFunction<'_>, cx: &mut PassContext) -> Result<(), PassError> {
            let name = one.get().name;
            // The rest of the module is there meanwhile.
            assert_eq!(one.module.tensor_functions.len(), 2);
            cx.applied(self, &[name], "seen");
            if name == self.name {
                one.change().pending.clear();
            }
            if self.name == "nothing".into() { Err(PassError::new("test-unscheduled", "refused")) } else { Ok(()) }
        }
    }

    attr_struct! {
        /// Makes every node a relu.
        pub struct AllRelu("test-all-relu") {}
    }
    impl FunctionPass for AllRelu {
        type Of = GraphFunctions;
        fn opt_level(&self) -> u8 {
            1
        }
        fn run_on(&self, r: &mut Rewriter<'_>, _: &mut PassContext) -> Result<(), PassError> {
            for n in r.f.walk() {
                let inputs = r.f.nodes[n].inputs.clone();
                r.update(n, Relu {}.into(), inputs);
            }
            Ok(())
        }
    }

    fn text() -> String {
        let body =
            "  for i in 0..8 {\n    block b { %b[i] <- %a[i] * 2.0 }\n  }\n  schedule {\n    cut-kernel\n  }\n}\n";
        let one = |n: &str| format!("tensor @{n}(%a: f32[8], out %b: f32[8]) {{\n{body}");
        let graph = "graph @main(%x: f32[8]) -> (y: f32[8]) {\n  %0 = tanh %x\n  return %0\n}\n";
        [one("f"), one("g"), graph.into()].concat()
    }

    #[test]
    fn tensor_functions_one_after_another() {
        let mut m = parse_module(&text()).expect("parses");
        let mut cx = PassContext::default();
        let pass = |name: &str| Unscheduled { name: name.into() };
        assert!(!pass("").run(&mut m, &mut cx).expect("runs"));
        assert_eq!(cx.remarks.iter().map(|r| r.nodes[0].as_str()).collect::<Vec<_>>(), ["f", "g"]);
        assert!(pass("g").run(&mut m, &mut cx).expect("runs"));
        let left: Vec<bool> = m.tensor_functions.values().map(|f| f.pending.is_empty()).collect();
        assert_eq!(left, [false, true]);
        // What fails is put back too.
        let before = print_module(&m);
        assert!(pass("nothing").run(&mut m, &mut cx).is_err());
        assert_eq!(print_module(&m), before);
    }

    #[test]
    fn a_function_pass_is_a_pass_by_name() {
        let mut m = parse_module(&text()).expect("parses");
        let registry = vec![PassDef::of::<AllRelu>(), PassDef::of::<Unscheduled>()];
        let mut cx = PassContext { registry, ..PassContext::default() };
        Sequential::new(["test-all-relu", "test-unscheduled"]).run(&mut m, &mut cx).expect("runs");
        assert!(print_module(&m).contains("relu %x"));
        assert_eq!(cx.stats.iter().map(|s| s.changed).collect::<Vec<_>>(), [true, false]);
    }
}
