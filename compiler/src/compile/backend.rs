//! The rules and the code generator that make kernels of tensor functions.

use crate::plan::EmitKernel;
use crate::schedule::{ScheduleProvider, ScheduleTarget};

/// Everything that turns tensor functions into kernels for a device.
#[derive(Clone, Copy)]
pub(super) struct Backend<'a> {
    pub target: ScheduleTarget<'a>,
    pub emitter: &'a dyn EmitKernel,
    pub schedules: &'a dyn ScheduleProvider,
}

/// Called with a stage, the number done and the total.
pub type Progress<'a> = &'a mut dyn FnMut(&str, usize, usize);
