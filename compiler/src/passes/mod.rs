//! Passes: one file each, one line each in the [`passes!`] table.
//!
//! Semantics of [`PassContext`] follow TVM: a pass above the context's opt level is skipped, unless it is required;
//! disabled ones never run; required passes of a pass run first. Owner of the details: this module.

use crate::graph::Module;
use crate::remark::Remark;

/// Why a pass failed: always a bug or bad input, with the node where known.
#[derive(Debug, Clone, thiserror::Error)]
#[error("pass {pass}: {message}")]
pub struct PassError {
    /// The pass.
    pub pass: &'static str,
    /// What went wrong.
    pub message: String,
}

/// One pass over a module.
pub trait Pass {
    /// Name: the file's name with dashes.
    fn name(&self) -> &'static str;
    /// The level from which it runs by default (0 always).
    fn opt_level(&self) -> u8;
    /// Passes that must run before.
    fn required(&self) -> &'static [&'static str] {
        &[]
    }
    /// Rewrites the module; returns whether anything changed.
    ///
    /// # Errors
    /// Only on invalid modules.
    fn run(&self, module: &mut Module, cx: &mut PassContext) -> Result<bool, PassError>;
}

/// What passes share.
pub struct PassContext {
    /// Opt level; 2 by default.
    pub opt_level: u8,
    /// The device compiled for.
    pub profile: crate::profile::DeviceProfile,
    /// Remarks so far.
    pub remarks: Vec<Remark>,
}
