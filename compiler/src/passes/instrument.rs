//! Callbacks around passes: printing, timing, one's own.

use super::{PassContext, PassStats};
use crate::graph::Module;
use std::sync::{Arc, Mutex};

/// What an instrument is told about a pass.
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
