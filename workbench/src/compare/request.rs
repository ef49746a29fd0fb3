//! A comparison to make.

use super::peer::Peer;
use crate::inputs::Inputs;
use crate::options;
use crate::settings::Settings;
use std::path::Path;

options! {
    /// The reference of a comparison, and its tolerances.
    pub struct Against {
        /// Compare with: reference (the interpreter; cpu is its old name), fp32, a file of results, or another model
        /// file on the interpreter
        against: String = "reference" in Own { value: "reference|fp32|ref.npz|b.onnx" };
        /// Relative tolerance
        rtol: Option<f64> = "" in Own;
        /// Absolute tolerance, as a share of the largest magnitude
        atol: Option<f64> = "" in Own;
    }
}

impl Against {
    /// The reference is another model.
    pub fn is_model(&self) -> bool {
        let extension = Path::new(&self.against).extension();
        extension.is_some_and(|e| ["onnx", "weft"].iter().any(|known| e.eq_ignore_ascii_case(known)))
    }
    /// The reference's old name becomes the new one.
    pub fn by_new_name(mut self) -> Against {
        if self.against == "cpu" {
            self.against = "reference".into();
        }
        self
    }
}

/// A comparison to make.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// A path or a zoo name.
    pub model: String,
    /// Values for its inputs.
    pub input: Inputs,
    /// The reference.
    pub against: Against,
    /// Errors of each node with the errors before it; otherwise each node alone gets exact inputs.
    pub cumulative: bool,
    /// Indices beyond a dimension and divisions of integers by 0 are counted, in a run of the interpreter.
    pub check_indices: bool,
    /// Look at each node.
    pub nodes: bool,
    /// Make the compile trace with the error of each node.
    pub trace: bool,
    /// Look for the smallest list of nodes to keep in f32.
    pub keep: bool,
    /// The reference is another runtime, whose time stands beside ours.
    pub peer: Option<Peer>,
    /// Say more.
    pub verbose: bool,
    /// Everything else.
    pub settings: Settings,
}
