//! What a target consists of.

use super::options::TargetOptions;
use super::region::Region;
use crate::cost::NodeForm;
use crate::pattern::{Found, Pattern, Subject};
use crate::tensor::{Tensor, TensorMut};

/// A library or code generator that runs parts of a graph.
pub trait ExternalTarget: Send + Sync {
    /// Name in `--external` and in text: a word.
    fn name(&self) -> &'static str;
    /// Its options, each with one sentence of help. Every target also has `min_macs`.
    fn options(&self) -> &'static [(&'static str, &'static str)] {
        &[]
    }
    /// The options that name a program, a library or a folder of this machine. The command line and the caller set
    /// them; a network from a file must not.
    fn machine_options(&self) -> &'static [&'static str] {
        &[]
    }
    /// Checks the values of its options, whenever options are read.
    ///
    /// # Errors
    /// A value that an option does not take, with those that it takes.
    fn check_options(&self, _options: &TargetOptions) -> Result<(), String> {
        Ok(())
    }
    /// Whether it runs code of the machine: a library, or code that it has a compiler build. A network from elsewhere
    /// may ask for that only if the user allows it.
    fn is_native(&self) -> bool {
        true
    }
    /// Checks that the target can run here with these options, before anything is compiled for it.
    ///
    /// # Errors
    /// What the machine lacks, for example a library, and how to get it.
    fn check(&self, _options: &TargetOptions) -> Result<(), String> {
        Ok(())
    }
    /// Whether it runs this node, which stands alone: a predicate over the op's attributes and the operands' types.
    ///
    /// # Errors
    /// Why not, for `weft explain`: `no relu of f16`.
    fn supports(&self, node: &NodeForm, options: &TargetOptions) -> Result<(), String>;
    /// Patterns of several nodes, the preferred ones first. A match becomes a `composite` that the target takes.
    fn patterns(&self) -> Vec<ExternalPattern> {
        vec![]
    }
    /// Nanoseconds of a run of the region, without the copies of what crosses its border; `None`: the target takes all
    /// that it supports.
    fn estimate(&self, _region: &Region, _options: &TargetOptions) -> Option<f64> {
        None
    }
    /// Makes whatever a run needs: called once for each call site and list of sizes. All types of the region are fixed,
    /// and its constants are in it.
    ///
    /// # Errors
    /// Why the region cannot run.
    fn prepare(&self, region: Region, options: &TargetOptions) -> Result<Box<dyn Prepared>, String>;
}

/// A region that is ready to run. It is freed by dropping it.
pub trait Prepared: Send + Sync {
    /// Computes `outputs`, dense and row-major as `inputs` are, of the types of the region.
    ///
    /// # Errors
    /// Why the run failed.
    fn run(&self, inputs: &[Tensor], outputs: &mut [TensorMut]) -> Result<(), String>;
}

/// A row of a target's pattern table.
pub struct ExternalPattern {
    /// Name without the target's: `conv2d_bias_relu`.
    pub name: &'static str,
    /// The nodes.
    pub pattern: Pattern,
    /// Whether the target runs this match, or why not.
    pub check: Box<MatchCheck>,
}

/// A check of a match.
pub type MatchCheck = dyn Fn(&dyn Subject, &Found) -> Result<(), String> + Send + Sync;

impl ExternalPattern {
    /// A row whose matches are all taken.
    pub fn new(name: &'static str, pattern: Pattern) -> ExternalPattern {
        ExternalPattern { name, pattern, check: Box::new(|_, _| Ok(())) }
    }
    /// The row with a check of each match.
    pub fn check(
        self,
        check: impl Fn(&dyn Subject, &Found) -> Result<(), String> + Send + Sync + 'static,
    ) -> ExternalPattern {
        ExternalPattern { check: Box::new(check), ..self }
    }
}
