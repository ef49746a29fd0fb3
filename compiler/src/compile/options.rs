//! How to compile.

use super::kept_kernels::KeepKernels;
use super::measure::KernelTimes;
use crate::int::DimRanges;
use crate::passes::{Clock, PipelineOptions};
use crate::schedule::ScheduleProvider;
use std::sync::Arc;

/// How to compile.
#[derive(Clone, Default)]
pub struct CompileOptions {
    /// Passes and modes.
    pub pipeline: PipelineOptions,
    /// Time, for the passes' statistics.
    pub clock: Option<Arc<dyn Clock>>,
    /// Verify the module after each pass, and plans (debug builds always do).
    pub verify: bool,
    /// Record the text of each stage, for a full [`CompileTrace`](crate::trace::CompileTrace).
    pub record: bool,
    /// Times on the device; costs are estimated without them.
    pub measurements: Option<Arc<KernelTimes>>,
    /// The ranges of open dimensions.
    pub dims: DimRanges,
    /// Storage for kernels of open sizes.
    pub keep: Option<Arc<dyn KeepKernels>>,
    /// Schedules functions that have no schedule; `None` means the rules.
    pub schedules: Option<Arc<dyn ScheduleProvider>>,
}
