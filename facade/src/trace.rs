//! The record of a compilation.

use crate::emitters::emitter;
use crate::error::Error;
use crate::model::Model;
use crate::options::Options;
use compiler::compile::CompileOptions;
use compiler::profile::DeviceProfile;
use compiler::trace::{CompileTrace, Contents};

impl Model {
    /// Compiles with `options`, and records each stage under the title `name`: what `weft explain`, `weft report` and
    /// `weft view` read.
    ///
    /// # Errors
    /// As [`Model::compile`]; a model whose sizes data decide, which is compiled in parts; a weight that cannot be
    /// read.
    pub fn trace(&self, name: &str, options: &Options) -> Result<CompileTrace, Error> {
        let options = self.ranged(options);
        let recorded = CompileOptions { record: true, ..options.compile_options() };
        let profile = options.profile.clone().unwrap_or_else(DeviceProfile::baseline);
        let compiled = options.watch.compile(self.module().clone(), &recorded, &profile)?;
        let trace = CompileTrace::new(name, &compiled, &recorded, emitter(&profile), Contents::Full);
        trace.map_err(|e| Error::Input(e.to_string()))
    }
}
