//! A search for what makes a result wrong.

use crate::arrays::Named;
use crate::inputs::Inputs;
use crate::options;
use crate::settings::Settings;
use std::path::PathBuf;

options! {
    /// The right results, and how closely they are met.
    pub struct Right {
        /// Right results: reference (the interpreter, in f32), or a file of results, which may hold inner tensors by
        /// name
        against: String = "reference" in Own { value: "reference|ref.npz" };
        /// Relative tolerance
        rtol: Option<f64> = "" in Own;
        /// Absolute tolerance, as a share of the largest magnitude
        atol: Option<f64> = "" in Own;
    }
    also {
        /// The right results in memory, by name; then no file is read.
        results: Named,
    }
}

impl Right {
    /// The interpreter is right.
    pub fn is_reference(&self) -> bool {
        self.against == "reference" && self.results.is_empty()
    }
}

/// A search for what makes a result wrong.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// A path or a zoo name.
    pub model: String,
    /// Values for its inputs.
    pub input: Inputs,
    /// The right results.
    pub right: Right,
    /// Folder of the reproducer; none: beside nothing, named after the model.
    pub folder: Option<PathBuf>,
    /// Everything else.
    pub settings: Settings,
}
