//! The `weft` command with an added pass: `scale-constants` multiplies every constant by a factor.
//!
//! ```text
//! cargo run -p weft-command --example scale_constants -- opt net.weft --passes "scale-constants {factor=3.0}"
//! ```

use compiler::attr_struct;
use compiler::graph::{Constant, Module};
use compiler::passes::{Pass, PassContext, PassDef, PassError};
use compiler::tensor::Tensor;
use std::process::ExitCode;

attr_struct! {
    /// Multiplies every constant by `factor`.
    pub struct ScaleConstants("scale-constants") {
        /// The factor.
        pub factor: f64 = 2.0,
    }
}

impl Pass for ScaleConstants {
    fn opt_level(&self) -> u8 {
        0
    }
    fn run(&self, module: &mut Module, cx: &mut PassContext) -> Result<bool, PassError> {
        for (name, c) in module.constants.iter_mut().filter(|c| c.1.dtype.is_float()) {
            let t = c.load().map_err(|e| PassError::new("scale-constants", e))?;
            let scaled = t.to_f64_vec().into_iter().map(|x| x * self.factor);
            *c = Constant::from_tensor(&Tensor::from_f64(t.dtype(), t.shape().to_vec(), scaled));
            cx.applied(self, &[*name], format!("@{name} times {}", self.factor));
        }
        Ok(true)
    }
}

fn main() -> ExitCode {
    let extensions = cli::Extensions { passes: vec![PassDef::of::<ScaleConstants>()], ..cli::Extensions::default() };
    cli::run(std::env::args_os(), extensions)
}
