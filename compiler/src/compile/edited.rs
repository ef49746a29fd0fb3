//! A tensor function with an edited schedule, compiled alone: what the viewer and `weft edit` try.

use super::{CompileOptions, Compiled, compile, function_alone};
use crate::check::check_function;
use crate::plan::EmitKernel;
use crate::schedule::ScheduleTarget;
use crate::schedule::estimator::estimate;
use crate::text::parse_instructions;
use crate::tir::TensorFunction;
use std::fmt;

/// A schedule that applies.
#[derive(Debug)]
pub struct Edited {
    /// A module that calls the function once, with its kernels.
    pub compiled: Compiled,
    /// The function as it is scheduled. If a choice was edited, the rules have rewritten the following instructions.
    pub function: TensorFunction,
    /// Nanoseconds of its kernels by the cost model, if that can weigh them.
    pub estimated_ns: Option<f64>,
}

/// Why a schedule is refused: the message, and the loops with the culprit's line marked by `>`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EditRefused {
    /// The error.
    pub message: String,
    /// The loops, a line each.
    pub loops: Vec<String>,
}

impl EditRefused {
    /// Of an error's text, which has the loops below its message, indented.
    pub fn new(text: &str) -> EditRefused {
        let is_loop = |l: &&str| l.starts_with("  ") || l.starts_with('>');
        let (loops, message): (Vec<&str>, Vec<&str>) = text.lines().partition(is_loop);
        EditRefused { message: message.join("\n"), loops: loops.into_iter().map(str::to_string).collect() }
    }
}

impl fmt::Display for EditRefused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        self.loops.iter().try_for_each(|l| write!(f, "\n{l}"))
    }
}

/// Compiles the unscheduled `f` alone with a schedule in text, one instruction a line. `constants` are the positions of
/// operands that are constants.
///
/// # Errors
/// Text that does not parse, an instruction that does not apply, loops that are not proved, kernels that the target
/// cannot have.
pub fn compile_edited(
    f: &TensorFunction,
    constants: &[usize],
    schedule: &str,
    target: ScheduleTarget<'_>,
    emitter: &dyn EmitKernel,
) -> Result<Edited, EditRefused> {
    let refused = |text: String| EditRefused::new(&text);
    let parsed = parse_instructions(schedule);
    // The place of a mistake is shown with its line, which is no loop.
    let pending = parsed.map_err(|e| EditRefused { message: e.to_string(), loops: vec![] })?;
    let new = TensorFunction { pending, ..f.clone() };
    let module = function_alone(&new, constants).map_err(refused)?;
    let mut options = CompileOptions::default();
    options.pipeline.scheduling.clone_from(target.options);
    let compiled = compile(module, &options, target.profile, emitter, &mut |_, _, _| ());
    let compiled = compiled.map_err(|e| refused(e.to_string()))?;
    let function = compiled.module.tensor_functions.get(&f.name).cloned();
    let function = function.ok_or_else(|| refused("the function was not lowered".into()))?;
    // Instructions are checked when they are applied; here the whole function is checked, as for text from a file.
    check_function(&function).map_err(|e| refused(e.to_string()))?;
    let sum = |e: crate::schedule::estimate::Estimate| e.kernels.iter().map(|k| k.cost.total()).sum::<f64>();
    let estimated_ns = estimate(&function, &[], target).ok().map(sum);
    Ok(Edited { compiled, function, estimated_ns })
}
