//! Callbacks around passes: printing, timing, or others.

use super::{PassContext, PassStats};
use crate::graph::Module;
use std::sync::{Arc, Mutex};

/// The information about a pass for an instrument.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PassInfo {
    /// Name.
    pub name: &'static str,
    /// Opt level.
    pub opt_level: u8,
    /// True when the context requires the pass: `should_run` is not asked then.
    pub required: bool,
}

/// Callbacks around passes, in the order TVM calls them: `should_run` of every instrument, then `before_pass` of every
/// instrument, the pass, `after_pass` of every instrument.
pub trait PassInstrument {
    /// The context is entered.
    fn enter_context(&mut self) {}
    /// The context is left.
    fn exit_context(&mut self) {}
    /// False skips the pass, unless the context requires it.
    fn should_run(&mut self, _module: &Module, _pass: PassInfo) -> bool {
        true
    }
    /// The pass is about to run.
    fn before_pass(&mut self, _module: &Module, _pass: PassInfo, _cx: &mut PassContext) {}
    /// The pass has run.
    fn after_pass(&mut self, _module: &Module, _pass: PassInfo, _stats: &PassStats, _cx: &mut PassContext) {}
}

/// Prints the module into [`PassContext::printed`] after each pass whose name is in `passes` (all when empty);
/// a pass that changed nothing is left out.
pub struct IrPrinter {
    /// Pass names; empty for all.
    pub passes: Vec<String>,
    /// Turns a module into text.
    pub print: fn(&Module) -> String,
}
impl PassInstrument for IrPrinter {
    fn after_pass(&mut self, module: &Module, pass: PassInfo, stats: &PassStats, cx: &mut PassContext) {
        if stats.changed && (self.passes.is_empty() || self.passes.iter().any(|p| p == pass.name)) {
            cx.printed.push((format!("after {}", pass.name), (self.print)(module)));
        }
    }
}

/// Collects `(pass, milliseconds)` through a shared list, nested passes included in their sequence's time.
#[derive(Clone, Default)]
pub struct PassTimer {
    /// The times so far.
    pub times: Arc<Mutex<Vec<(String, f64)>>>,
}
impl PassInstrument for PassTimer {
    fn after_pass(&mut self, _module: &Module, pass: PassInfo, stats: &PassStats, _cx: &mut PassContext) {
        if let Ok(mut times) = self.times.lock() {
            times.push((pass.name.to_string(), stats.ms));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::passes::Sequential;
    use crate::text::{parse_module, print_module};

    /// The graph of TVM's article on passes: conv, c + c, * 2, add, and two equal sums with a constant.
    const ARTICLE: &str = "const @w : f32[1,1,1,1] = [2.0]\nconst @c : f32[] = [1.5]\nconst @two : f32[] = [2.0]\n\
        graph @main(%x: f32[1,1,2,2]) -> (y: f32[1,1,2,2]) {\n  %w = const @w\n  %c = const @c\n  %two = const @two\n  \
        %0 = conv %x, %w : f32[1,1,2,2] !from(\"conv\")\n  %1 = add %c, %c : f32[] !from(\"twice\")\n  \
        %2 = mul %1, %two : f32[] !from(\"scaled\")\n  %3 = add %0, %2 : f32[1,1,2,2] !from(\"sum\")\n  \
        %4 = add %3, %c : f32[1,1,2,2] !from(\"left\")\n  %5 = add %3, %c : f32[1,1,2,2] !from(\"right\")\n  \
        %6 = add %4, %5 : f32[1,1,2,2] !from(\"result\")\n  return %6\n}\n";

    /// Writes down every callback; skips one pass; prints the result of another.
    struct Watch {
        skip: &'static str,
        print: &'static str,
        log: Arc<Mutex<String>>,
    }
    impl Watch {
        fn say(&self, line: &str) {
            let mut log = self.log.lock().unwrap();
            log.push_str(line);
            log.push('\n');
        }
    }
    impl PassInstrument for Watch {
        fn enter_context(&mut self) {
            self.say("enter");
        }
        fn exit_context(&mut self) {
            self.say("exit");
        }
        fn should_run(&mut self, _: &Module, pass: PassInfo) -> bool {
            self.say(&format!("should {} (level {}) run: {}", pass.name, pass.opt_level, pass.name != self.skip));
            pass.name != self.skip
        }
        fn before_pass(&mut self, module: &Module, pass: PassInfo, _: &mut PassContext) {
            self.say(&format!("before {}: {} nodes", pass.name, module.main().live_nodes()));
        }
        fn after_pass(&mut self, module: &Module, pass: PassInfo, stats: &PassStats, _: &mut PassContext) {
            let nodes = module.main().live_nodes();
            self.say(&format!("after {}: {nodes} nodes, changed: {}", pass.name, stats.changed));
            if pass.name == self.print {
                self.say(print_module(module).trim_end());
            }
        }
    }

    fn watch(skip: &'static str, required: &[&str]) -> String {
        let mut m = parse_module(ARTICLE).unwrap_or_else(|e| panic!("{e}"));
        let log = Arc::new(Mutex::new(String::new()));
        let mut cx = PassContext { opt_level: 3, ..PassContext::default() };
        cx.required = required.iter().map(|s| s.to_string()).collect();
        cx.instruments.push(Box::new(Watch { skip, print: "eliminate-common-subexpr", log: log.clone() }));
        let list = ["infer-types", "fold-constants", "eliminate-common-subexpr", "eliminate-dead"];
        cx.scope(|cx| Sequential::new(list).run(&mut m, cx)).unwrap();
        std::mem::take(&mut *log.lock().unwrap())
    }

    #[test]
    fn every_callback_of_a_sequence() {
        let want = r#"enter
should infer-types (level 0) run: true
before infer-types: 10 nodes
after infer-types: 10 nodes, changed: false
should fold-constants (level 2) run: true
before fold-constants: 10 nodes
after fold-constants: 10 nodes, changed: true
should eliminate-common-subexpr (level 3) run: true
before eliminate-common-subexpr: 10 nodes
after eliminate-common-subexpr: 9 nodes, changed: true
const @w : f32[1,1,1,1] = [2.0]
const @c : f32[] = [1.5]
const @two : f32[] = [2.0]
const @twice : f32[] = [3.0]
const @scaled : f32[] = [6.0]

graph @main(%x: f32[1,1,2,2]) -> (y: f32[1,1,2,2]) {
  %w = const @w : f32[1,1,1,1]
  %c = const @c : f32[]
  %two = const @two : f32[]
  %0 = conv %x, %w : f32[1,1,2,2] !from("conv")
  %1 = const @twice : f32[] !from("twice")
  %2 = const @scaled : f32[] !name("scaled") !from("scaled", "twice")
  %3 = add %0, %2 : f32[1,1,2,2] !from("sum")
  %4 = add %3, %c : f32[1,1,2,2] !name("left") !from("left", "right")
  %5 = add %4, %4 : f32[1,1,2,2] !from("result")
  return %5
}
should eliminate-dead (level 0) run: true
before eliminate-dead: 9 nodes
after eliminate-dead: 7 nodes, changed: true
exit
"#;
        assert_eq!(watch("", &[]), want);
    }

    #[test]
    fn should_run_skips_a_pass_unless_it_is_required() {
        let log = watch("eliminate-common-subexpr", &[]);
        assert!(log.contains("should eliminate-common-subexpr (level 3) run: false\nshould eliminate-dead"), "{log}");
        let log = watch("eliminate-common-subexpr", &["eliminate-common-subexpr"]);
        assert!(log.contains("9 nodes, changed: true\nconst @w"), "{log}");
        assert!(!log.contains("should eliminate-common-subexpr"), "a required pass is not asked about: {log}");
    }

    #[test]
    fn the_printer_shows_the_passes_asked_for() {
        let mut m = parse_module(ARTICLE).unwrap_or_else(|e| panic!("{e}"));
        let mut cx = PassContext::default();
        cx.instruments.push(Box::new(IrPrinter { passes: vec!["fold-constants".into()], print: print_module }));
        Sequential::new(["infer-types", "fold-constants"]).run(&mut m, &mut cx).unwrap();
        assert_eq!(cx.printed, [("after fold-constants".to_string(), print_module(&m))]);
    }
}
