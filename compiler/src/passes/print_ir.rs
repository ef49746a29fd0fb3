//! print-ir: prints the module without changing it.
//!
//! ```text
//! fold-constants, print-ir {label="folded"}, fuse-ops
//! ```
//!
//! Like TVM's `PrintIR` in a `Sequential`. The text goes to [`PassContext::printed`] under the label; the command
//! prints it to stderr.

use super::{Pass, PassContext, PassError};
use crate::attr_struct;
use crate::graph::Module;

attr_struct! {
    /// Prints the module.
    pub struct PrintIr("print-ir") {
        /// Above the text; empty for the name of the pass that ran before.
        pub label: String = String::new(),
    }
}

impl Pass for PrintIr {
    fn opt_level(&self) -> u8 {
        0
    }
    fn run(&self, module: &mut Module, cx: &mut PassContext) -> Result<bool, PassError> {
        let label = match (self.label.is_empty(), cx.stats.last()) {
            (false, _) => self.label.clone(),
            (true, Some(last)) => format!("after {}", last.name),
            (true, None) => "input".to_string(),
        };
        cx.printed.push((label, crate::text::print_module(module)));
        Ok(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::passes::Sequential;
    use crate::text::{parse_module, print_module};

    #[test]
    fn the_text_between_two_passes() {
        let text = "graph @main(%x: f32[2]) -> (y: f32[2]) {\n  %0 = relu %x : f32[2]\n  %1 = exp %x : f32[2]\n  return %0\n}\n";
        let mut m = parse_module(text).unwrap();
        let before = print_module(&m);
        let mut cx = PassContext::default();
        Sequential::new(["print-ir", "eliminate-dead", "print-ir"]).run(&mut m, &mut cx).unwrap();
        let after = print_module(&m);
        assert_eq!(cx.printed, [("input".to_string(), before), ("after eliminate-dead".to_string(), after)]);
    }
}
