//! Functions of open sizes: the rules choose for typical sizes, and their trace is applied to the function as it is.
//!
//! Rules reason in numbers; instructions do not need them. A trace that was proposed for some size gives, applied to the open
//! function, a kernel for all sizes: what divides there only by chance is guarded here. A trace that needs a number (a loop to
//! unroll, an array of threads' own memory) is refused, and the next one tried: for sizes that divide by nothing, then of the rules that
//! take anything.

use super::{Scheduled, script, units};
use crate::check::check_proposal;
use crate::int::const_dims;
use crate::profile::DeviceProfile;
use crate::schedule::{ScheduleError, apply_pending};
use crate::tir::{BufferId, Scope, TensorFunction};

/// Schedules a function that has symbols.
pub(super) fn schedule(
    f: &TensorFunction,
    constants: &[BufferId],
    profile: &DeviceProfile,
) -> Result<Scheduled, ScheduleError> {
    let plain = DeviceProfile { asked_rules: vec!["elementwise".into(), "direct".into()], ..profile.clone() };
    let mut refused = vec![];
    for (profile, more) in [(profile, 0), (profile, 1), (&plain, 0), (&plain, 1)] {
        let proposed = units::schedule(&f.at_typical_sizes(more), constants, profile, &script::NOTHING)?;
        match applied(f, &proposed) {
            Ok(function) => {
                let Scheduled { rule, mut applied, declined, .. } = proposed;
                applied.insert(0, format!("for open sizes, with tiles chosen for {}", typical(f, more)));
                return Ok(Scheduled { function, rule, applied, declined: [declined, refused].concat() });
            }
            Err(why) => refused.push(format!("the schedule for {}: {why}", typical(f, more))),
        }
    }
    let message = format!("no schedule goes with all sizes: {}", refused.join("; "));
    Err(ScheduleError { instruction: format!("schedule @{}", f.name), message, loops: None })
}

/// `n = 256, m = 256`
fn typical(f: &TensorFunction, more: i64) -> String {
    let one = |s: &(crate::name::Name, i64, i64)| {
        format!("{} = {}", s.0, (crate::int::typical_size((s.1, s.2)) + more).min(s.2))
    };
    f.symbols.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// The open function with the trace of what was proposed for some sizes.
fn applied(f: &TensorFunction, proposed: &Scheduled) -> Result<TensorFunction, String> {
    let mut open = f.clone();
    open.pending = proposed.function.trace.clone();
    apply_pending(&mut open).map_err(|e| e.to_string())?;
    let unknown = |b: &crate::tir::Buffer| b.scope != Scope::Global && const_dims(&b.shape).is_none();
    let used: Vec<BufferId> = open.body.blocks().iter().map(|b| b.buffer).collect();
    if let Some((_, b)) = open.buffers.iter().find(|(id, b)| used.contains(id) && unknown(b)) {
        return Err(format!("`{}` would have {:?} elements in a workgroup's or thread's own memory", b.name, b.shape));
    }
    check_proposal(&open).map_err(|e| e.message)?;
    Ok(open)
}
