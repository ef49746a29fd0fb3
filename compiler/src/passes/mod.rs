//! Passes: one file each, one line each in the `passes!` table.
//!
//! A pass is a struct of typed options ([`attr_struct!`](crate::attr_struct)) that implements [`Pass`]; the struct's
//! text name is the pass's name, and the file's name with dashes. Options come from [`PassContext::config`] or from a
//! pipeline's text (`fuse-ops {max_group=4}`).
//!
//! Semantics of [`PassContext`] and [`Sequential`] follow TVM: in a sequence a pass above the context's opt level is
//! skipped unless the context requires it; disabled ones never run; the passes that a pass requires run before it.
//!
//! Deliberately absent: files, environment, clocks. Time comes through [`Clock`].

mod absorb_transposes;
mod annotate_target;
mod apply_schedules;
pub mod auto_layout;
mod canonicalize_ops;
mod combine_parallel;
mod combine_parallel_conv;
mod combine_parallel_matmul;
mod concat_parts;
mod context;
mod count_results;
mod eliminate_common_subexpr;
mod eliminate_dead;
mod fold_batch_norm;
mod fold_constants;
mod fold_scale_axis;
mod function_pass;
pub mod fuse_ops;
pub mod fusion_kind;
mod infer_types;
mod inline_external;
mod inline_functions;
mod instrument;
mod integer_products;
mod lift_lambdas;
mod lower;
mod merge_composite;
mod merge_regions;
pub mod mixed_precision;
#[cfg(test)]
mod one_estimate_tests;
mod partition_graph;
mod pipeline;
mod print_ir;
mod remove_unused_functions;
mod replace_with_host_calls;
pub mod rewriter;
mod round_rows;
pub mod rules;
mod scaled_weights;
mod scopes;
mod sequential;
mod simplify;
mod specialize_functions;
mod split_to_slices;
mod to_a_normal_form;
mod to_basic_block_normal_form;
mod transposed_phases;
mod winograd;

pub use annotate_target::external_passes;
pub use auto_layout::{AlterLayout, LayoutAnswer, LayoutQuestion};
pub use context::{AmpMode, Clock, FuseMode, LayoutMode, PassContext, PassStats};
pub use function_pass::{FunctionPass, Functions, GraphFunctions, OneTensorFunction, TensorFunctions};
pub use instrument::{IrPrinter, PassInfo, PassInstrument, PassTimer};
pub use mixed_precision::{KeepF32, halve_ports};
pub use pipeline::{PipelineOptions, check_own_passes, default_pipeline};
pub use sequential::{Sequential, run_pass};
pub use to_a_normal_form::check_a_normal_form;
pub use to_basic_block_normal_form::check_basic_block_normal_form;

use crate::attr::{AttrStruct, Attrs};
use crate::graph::Module;
use crate::name::Name;
use std::sync::Arc;

/// Whose fault it is that a pass failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum PassErrorKind {
    /// The request is wrong: an unknown pass or option.
    Request,
    /// The module that came in, or the pass itself.
    Module,
}

/// Why a pass failed, with the node where known.
#[derive(Debug, Clone, thiserror::Error)]
#[error("pass {pass}: {message}")]
pub struct PassError {
    /// The pass.
    pub pass: String,
    /// The error.
    pub message: String,
    /// Whose fault it is.
    pub kind: PassErrorKind,
}
impl PassError {
    /// An error of the pass `pass` about the module.
    pub fn new(pass: &str, message: impl Into<String>) -> PassError {
        PassError { pass: pass.to_string(), message: message.into(), kind: PassErrorKind::Module }
    }
    /// An error about the request for the pass `pass`: its name or its options.
    pub fn request(pass: &str, message: impl Into<String>) -> PassError {
        PassError { kind: PassErrorKind::Request, ..PassError::new(pass, message) }
    }
}

/// A pass over a module. A pass over one function at a time is a [`FunctionPass`], which implements this trait
/// automatically.
pub trait Pass: PassBase {
    /// The opt level from which it runs by default (0 always).
    fn opt_level(&self) -> u8;
    /// Passes that must run right before this one for correct results on any module. Passes that only improve its
    /// results are ordered by the pipeline.
    fn required(&self) -> &'static [&'static str] {
        &[]
    }
    /// Rewrites the module; returns whether anything changed.
    ///
    /// # Errors
    /// Only on invalid modules.
    fn run(&self, module: &mut Module, cx: &mut PassContext) -> Result<bool, PassError>;
}

/// The object-safe face of a pass's option struct; implemented for all of them.
pub trait PassBase: Send + Sync {
    /// Name: the file's name with dashes.
    fn name(&self) -> &'static str;
    /// Options that differ from their defaults.
    fn options(&self) -> Attrs;
}
impl<T: AttrStruct> PassBase for T {
    fn name(&self) -> &'static str {
        T::NAME
    }
    fn options(&self) -> Attrs {
        self.to_attrs()
    }
}

/// A row of the pass table.
#[derive(Clone, Copy)]
pub struct PassDef {
    /// Name in text.
    pub name: &'static str,
    /// Builds the pass from its options.
    pub from_attrs: fn(&Attrs) -> Result<Box<dyn Pass>, String>,
}
impl PassDef {
    /// The row of a pass type. `PassDef::of::<MyPass>()` in [`PassContext::registry`] registers a pass of another
    /// crate.
    pub fn of<T: Pass + AttrStruct>() -> PassDef {
        PassDef { name: T::NAME, from_attrs: |a| Ok(Box::new(T::from_attrs(a)?)) }
    }
}

impl PartialEq for PassDef {
    fn eq(&self, other: &PassDef) -> bool {
        self.name == other.name
    }
}
impl std::fmt::Debug for PassDef {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

type Run = dyn Fn(&mut Module, &mut PassContext) -> Result<bool, PassError> + Send + Sync;

/// A function as a pass, for [`PipelineOptions::own`]. It runs at any opt level. It may run
/// several times in a compilation (calibration, a second try for a driver), so it must do the same each time.
///
/// ```
/// use compiler::passes::{OwnPass, PipelineOptions, default_pipeline};
///
/// let count = OwnPass::new("count-nodes", |module, _| {
///     println!("{}", module.main().walk().len());
///     Ok(false)
/// });
/// let options = PipelineOptions { own: vec![count.before("fuse-ops")], ..PipelineOptions::default() };
/// assert!(default_pipeline(&options).windows(2).any(|pair| pair == ["count-nodes", "fuse-ops"]));
/// ```
#[derive(Clone)]
pub struct OwnPass {
    name: &'static str,
    before: Option<String>,
    run: Arc<Run>,
}

impl OwnPass {
    /// A pass that runs on the model as it was read: right behind `infer-types`, after those given before it.
    pub fn new(
        name: impl Into<Name>,
        run: impl Fn(&mut Module, &mut PassContext) -> Result<bool, PassError> + Send + Sync + 'static,
    ) -> OwnPass {
        OwnPass { name: name.into().as_str(), before: None, run: Arc::new(run) }
    }
    /// The same, right before the first pass of this name.
    pub fn before(self, pass: impl Into<String>) -> OwnPass {
        OwnPass { before: Some(pass.into()), ..self }
    }
}

impl PassBase for OwnPass {
    fn name(&self) -> &'static str {
        self.name
    }
    fn options(&self) -> Attrs {
        Attrs::new()
    }
}

impl Pass for OwnPass {
    fn opt_level(&self) -> u8 {
        0
    }
    fn run(&self, module: &mut Module, cx: &mut PassContext) -> Result<bool, PassError> {
        (self.run)(module, cx)
    }
}

impl std::fmt::Debug for OwnPass {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} before {:?}", self.name, self.before)
    }
}
/// The same function at the same place, not merely one of the same name.
impl PartialEq for OwnPass {
    fn eq(&self, other: &OwnPass) -> bool {
        Arc::ptr_eq(&self.run, &other.run) && self.before == other.before
    }
}

/// The pass table: `module::Type`. Beside its `mod` line this is the one line a pass needs outside its own file.
macro_rules! passes {
    ($($module:ident :: $pass:ident),* $(,)?) => {
        $(pub use $module::$pass;)*
        /// Every pass.
        pub static PASSES: &[PassDef] = &[$(PassDef {
            name: <$module::$pass as AttrStruct>::NAME,
            from_attrs: |a| Ok(Box::new(<$module::$pass as AttrStruct>::from_attrs(a)?)),
        }),*];
    };
}

passes! {
    infer_types::InferTypes,
    lift_lambdas::LiftLambdas,
    specialize_functions::SpecializeFunctions,
    inline_functions::InlineFunctions,
    count_results::CountResults,
    simplify::Simplify,
    fold_constants::FoldConstants,
    fold_batch_norm::FoldBatchNorm,
    integer_products::IntegerProducts,
    round_rows::RoundRows,
    eliminate_common_subexpr::EliminateCommonSubexpr,
    apply_schedules::ApplySchedules,
    eliminate_dead::EliminateDead,
    canonicalize_ops::CanonicalizeOps,
    fold_scale_axis::FoldScaleAxis,
    combine_parallel_conv::CombineParallelConv,
    combine_parallel_matmul::CombineParallelMatmul,
    remove_unused_functions::RemoveUnusedFunctions,
    replace_with_host_calls::ReplaceWithHostCalls,
    merge_composite::MergeComposite,
    annotate_target::AnnotateTarget,
    merge_regions::MergeRegions,
    partition_graph::PartitionGraph,
    inline_external::InlineExternal,
    lower::Lower,
    to_basic_block_normal_form::ToBasicBlockNormalForm,
    to_a_normal_form::ToANormalForm,
    print_ir::PrintIr,
    mixed_precision::MixedPrecision,
    auto_layout::AutoLayout,
    transposed_phases::TransposedPhases,
    winograd::Winograd,
    split_to_slices::SplitToSlices,
    absorb_transposes::AbsorbTransposes,
    fuse_ops::FuseOps,
    concat_parts::ConcatParts,
}

/// The table row of a pass name.
pub fn find_pass(name: &str) -> Option<&'static PassDef> {
    PASSES.iter().find(|d| d.name == name)
}
