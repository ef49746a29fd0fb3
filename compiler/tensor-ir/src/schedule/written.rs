//! Schedules a function by instructions that are written: text from a file, an expert's template, a kept edit.

use super::rules::{Scheduled, WRITTEN, follow_choices};
use super::{ScheduleError, ScheduleTarget, accept, apply_pending};
use crate::check::{Refused, check_kernels};
use crate::tir::{BufferId, TensorFunction};

/// Schedules `f` by its pending instructions. If choices in them were edited, the rules are asked again for their
/// units, and the result is checked as a whole. `constants` are operands that may be packed beforehand.
///
/// # Errors
/// An instruction that does not apply, a value that a choice cannot take, a block outside of all kernels, an operand
/// that is packed and is no constant.
pub fn schedule_as_written(
    f: &TensorFunction,
    constants: &[BufferId],
    target: ScheduleTarget<'_>,
) -> Result<Scheduled, ScheduleError> {
    let mut function = f.clone();
    let mut applied = vec!["scheduled as it is written".to_string()];
    if follow_choices(&mut function, constants, target)? {
        accept(&mut function).map_err(refused)?;
        applied.push("rules were asked again where a choice was edited".into());
    } else {
        apply_pending(&mut function)?;
    }
    check_kernels(&function).map_err(refused)?;
    if let Some(p) = function.prepacks.iter().find(|p| !constants.contains(&p.buffer)) {
        let message = format!("%{} is packed beforehand, but is no constant", function.buffers[p.buffer].name);
        return Err(ScheduleError { instruction: String::new(), message, loops: None });
    }
    Ok(Scheduled { function, rule: WRITTEN, applied, declined: vec![], compromise: false })
}

fn refused(e: Refused) -> ScheduleError {
    ScheduleError { instruction: String::new(), message: e.message, loops: e.loops }
}
