//! Runs passes one after another, by TVM's rules.

use super::context::count_nodes;
use super::{Pass, PassContext, PassError, PassInfo, PassStats};
use crate::attr::Attrs;
use crate::graph::Module;

/// A list of passes: names with options, or passes given as values.
#[derive(Default)]
pub struct Sequential {
    steps: Vec<Step>,
}

enum Step {
    Named(String, Option<Attrs>),
    Pass(Box<dyn Pass>),
}

impl Sequential {
    /// The passes `names`, with the options that the context has for them.
    pub fn new<S: AsRef<str>>(names: impl IntoIterator<Item = S>) -> Sequential {
        Sequential { steps: names.into_iter().map(|n| Step::Named(n.as_ref().to_string(), None)).collect() }
    }
    /// Adds the pass `name` with the options that the context has for it.
    pub fn then_named(mut self, name: &str) -> Sequential {
        self.steps.push(Step::Named(name.to_string(), None));
        self
    }
    /// Adds the pass `name` with options of its own.
    pub fn then_with(mut self, name: &str, options: Attrs) -> Sequential {
        self.steps.push(Step::Named(name.to_string(), Some(options)));
        self
    }
    /// Adds a pass.
    pub fn then(mut self, pass: impl Pass + 'static) -> Sequential {
        self.steps.push(Step::Pass(Box::new(pass)));
        self
    }
    /// Runs each pass that the context enables; the passes it requires run right before it, whatever their level, but
    /// never when disabled.
    ///
    /// # Errors
    /// An unknown pass or option, or what a pass says. The module is then as the failing pass left it.
    pub fn run(&self, module: &mut Module, cx: &mut PassContext) -> Result<bool, PassError> {
        let mut changed = false;
        for step in &self.steps {
            let built;
            let pass: &dyn Pass = match step {
                Step::Pass(p) => &**p,
                Step::Named(n, options) => {
                    built = match options {
                        Some(o) => cx.build_with(n, o)?,
                        None => cx.build(n)?,
                    };
                    &*built
                }
            };
            if !cx.enabled(pass.name(), pass.opt_level()) {
                continue;
            }
            for name in pass.required() {
                if !cx.disabled.iter().any(|d| d == name) {
                    let required = cx.build(name)?;
                    changed |= run_pass(&*required, module, cx)?;
                }
            }
            changed |= run_pass(pass, module, cx)?;
        }
        Ok(changed)
    }
}

/// Runs one pass between its instruments, records its statistics, and verifies the module where the context says so.
/// Opt level and required passes are [`Sequential`]'s business.
///
/// # Errors
/// An error of the pass or the verifier.
pub fn run_pass(pass: &dyn Pass, module: &mut Module, cx: &mut PassContext) -> Result<bool, PassError> {
    let required = cx.required.iter().any(|n| n == pass.name());
    let info = PassInfo { name: pass.name(), opt_level: pass.opt_level(), required };
    let run = cx.with_instruments(|list, cx| {
        let mut run = true;
        for i in list.iter_mut().filter(|_| !required) {
            run &= i.should_run(module, info);
        }
        if run {
            list.iter_mut().for_each(|i| i.before_pass(module, info, cx));
        }
        run
    });
    if !run {
        return Ok(false);
    }
    let clock = cx.clock.clone();
    let now = || clock.as_ref().map_or(0.0, |c| c.now_ms());
    let (nodes_before, start) = (count_nodes(module), now());
    let changed = pass.run(module, cx)?;
    let ms = now() - start;
    let stats = PassStats { name: pass.name().into(), ms, nodes_before, nodes_after: count_nodes(module), changed };
    if cx.verify {
        verify_after(pass, module)?;
    }
    cx.with_instruments(|list, cx| list.iter_mut().for_each(|i| i.after_pass(module, info, &stats, cx)));
    cx.stats.push(stats);
    Ok(changed)
}

/// A module that the verifier refuses after a pass is a bug of that pass.
fn verify_after(pass: &dyn Pass, module: &Module) -> Result<(), PassError> {
    crate::verify::verify_module(module).map_err(|errors| {
        let list: Vec<String> = errors.iter().map(ToString::to_string).collect();
        PassError::new(pass.name(), format!("left an invalid module: {}", list.join("; ")))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attr_struct;
    use crate::passes::{PassDef, PassInstrument};
    use std::sync::{Arc, Mutex};

    attr_struct! {
        /// Records that it ran, at level 1.
        pub struct First("test-first") {}
    }
    attr_struct! {
        /// Records that it ran, at level 3; needs `First`.
        pub struct Third("test-third") {
            /// An option.
            pub size: i64 = 1,
        }
    }
    impl Pass for First {
        fn opt_level(&self) -> u8 {
            1
        }
        fn run(&self, _: &mut Module, cx: &mut PassContext) -> Result<bool, PassError> {
            cx.applied(self, &[], "ran");
            Ok(true)
        }
    }
    impl Pass for Third {
        fn opt_level(&self) -> u8 {
            3
        }
        fn required(&self) -> &'static [&'static str] {
            &["test-first"]
        }
        fn run(&self, _: &mut Module, cx: &mut PassContext) -> Result<bool, PassError> {
            cx.applied(self, &[], format!("size {}", self.size));
            Ok(false)
        }
    }

    fn empty() -> Module {
        let mut m = Module::new("main");
        crate::graph::FunctionBuilder::new(&mut m, "main").finish(&[]);
        m
    }

    fn ran(setup: impl FnOnce(&mut PassContext)) -> Vec<String> {
        let mut cx =
            PassContext { registry: vec![PassDef::of::<First>(), PassDef::of::<Third>()], ..PassContext::default() };
        setup(&mut cx);
        let mut module = empty();
        Sequential::new(["test-third"]).run(&mut module, &mut cx).unwrap();
        cx.stats.iter().map(|s| s.name.clone()).collect()
    }

    #[test]
    fn levels_required_and_disabled_follow_tvm() {
        assert_eq!(PassContext::default().opt_level, 2);
        assert!(ran(|_| ()).is_empty());
        assert_eq!(ran(|cx| cx.opt_level = 3), ["test-first", "test-third"]);
        assert_eq!(ran(|cx| cx.required.push("test-third".into())), ["test-first", "test-third"]);
        assert!(ran(|cx| (cx.opt_level, cx.disabled) = (3, vec!["test-third".into()])).is_empty());
        assert_eq!(ran(|cx| (cx.opt_level, cx.disabled) = (3, vec!["test-first".into()])), ["test-third"]);
    }

    #[test]
    fn options_and_unknown_names() {
        let mut cx =
            PassContext { registry: vec![PassDef::of::<First>(), PassDef::of::<Third>()], ..PassContext::default() };
        cx.opt_level = 3;
        cx.config.push(("test-third".into(), Attrs::from_iter([("size".to_string(), crate::attr::Attr::Int(7))])));
        let mut module = empty();
        Sequential::new(["test-third"]).run(&mut module, &mut cx).unwrap();
        assert_eq!(cx.remarks.last().unwrap().message, "size 7");
        let bad = Attrs::from_iter([("sise".to_string(), crate::attr::Attr::Int(7))]);
        let e = Sequential::default().then_with("test-third", bad).run(&mut module, &mut cx).unwrap_err();
        assert!(e.to_string().contains("no attribute `sise`"), "{e}");
        let e = Sequential::new(["nothing"]).run(&mut module, &mut cx).unwrap_err();
        assert!(e.to_string().contains("known: test-first"), "{e}");
    }

    struct Log(Arc<Mutex<Vec<String>>>, bool);
    impl PassInstrument for Log {
        fn enter_context(&mut self) {
            self.0.lock().unwrap().push("enter".into());
        }
        fn exit_context(&mut self) {
            self.0.lock().unwrap().push("exit".into());
        }
        fn should_run(&mut self, _: &Module, p: PassInfo) -> bool {
            self.0.lock().unwrap().push(format!("should {}", p.name));
            self.1
        }
        fn before_pass(&mut self, _: &Module, p: PassInfo, _: &mut PassContext) {
            self.0.lock().unwrap().push(format!("before {}", p.name));
        }
        fn after_pass(&mut self, _: &Module, p: PassInfo, s: &PassStats, _: &mut PassContext) {
            self.0.lock().unwrap().push(format!("after {} {}", p.name, s.changed));
        }
    }

    #[test]
    fn instruments_are_called_in_order() {
        let log = Arc::new(Mutex::new(vec![]));
        for allow in [true, false] {
            let mut cx = PassContext { registry: vec![PassDef::of::<First>()], ..PassContext::default() };
            cx.instruments.push(Box::new(Log(log.clone(), allow)));
            cx.scope(|cx| Sequential::new(["test-first"]).run(&mut empty(), cx)).unwrap();
        }
        let want = ["enter", "should test-first", "before test-first", "after test-first true", "exit"];
        let skipped = ["enter", "should test-first", "exit"];
        assert_eq!(*log.lock().unwrap(), [&want[..], &skipped[..]].concat());
    }
}
