//! Headings of options in help.

pub const DEVICE: &str = "Device";
pub const MODEL: &str = "Model";
pub const COMPILER: &str = "Compiler";
pub const OUTPUT: &str = "Output";
pub const INPUTS: &str = "Inputs";
