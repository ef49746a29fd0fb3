//! Functions of open sizes: the rules choose for typical sizes, and their trace is applied to the open function.
//!
//! Rules compute with numbers; instructions do not need them. So the rules schedule the function at typical sizes
//! ([`typical_size`](crate::int::typical_size)), and their trace is applied to the open function. A loop that is
//! divided evenly only at the typical sizes gets a guard here. If an instruction needs a number (a loop to unroll, an
//! array in registers), the trace is refused, and the next attempt is made: at sizes without divisors, then without
//! cutting concatenations apart, then without the rules whose instructions did not apply, each for the unit that it had
//! taken; at last with the rules `elementwise` and `direct` only.
//!
//! A vector that would cross the end of a row at other sizes is loaded element by element: each thread then has one
//! result of a row.

use super::decline::Decline;
use super::predict::prepared;
use super::script::{Choice, FUNCTION, NOTHING, RULE as RULE_POINT, Script, WHOLE};
use super::sketch::Sketch;
use super::{Scheduled, units};
use crate::attr::Attr;
use crate::check::check_proposal;
use crate::int::{self, Int, const_dims};
use crate::name::Name;
use crate::schedule::loops::loops_around_block;
use crate::schedule::{
    Axis, Choose, DecomposeReduction, InstrRef, ScheduleError, ScheduleOptions, ScheduleTarget, Unroll, apply_pending,
};
use crate::tir::{BufferId, LoopKind, Scope, Stage, Stmt, TensorFunction};

/// Schedules a function that has symbols.
pub(super) fn schedule(
    f: &TensorFunction,
    constants: &[BufferId],
    target: ScheduleTarget<'_>,
) -> Result<Scheduled, ScheduleError> {
    let plain = ScheduleOptions { rules: vec!["elementwise".into(), "direct".into()], ..target.options.clone() };
    let mut refused = Refused::default();
    let [nothing, whole] = [&NOTHING, &WHOLE].map(|s| s.with_open(&open_loops(f, constants, target)));
    let attempts = [(target, false, &nothing), (target, true, &nothing), (target, false, &whole)];
    for (target, prime, script) in attempts {
        if let Some(done) = attempt(f, constants, target, prime, script, &mut refused)? {
            return Ok(done);
        }
    }
    let mut script = whole.clone();
    while let Some((unit, rule)) = refused.by.take().filter(|(unit, rule)| script.bar(*unit, rule)) {
        refused.reasons.push(format!("without rule {rule} for {unit}"));
        match attempt(f, constants, target, false, &script, &mut refused) {
            Ok(Some(done)) => return Ok(done),
            Ok(None) => {}
            // Without its rules nothing takes the unit.
            Err(e) => refused.reasons.push(e.message),
        }
    }
    for prime in [false, true] {
        if let Some(done) = attempt(f, constants, plain.on(target.profile), prime, &whole, &mut refused)? {
            return Ok(done);
        }
    }
    let mut refused = refused.reasons;
    match loop_by_loop(f, constants, target) {
        Ok(function) => {
            let applied = vec!["for open sizes: a workgroup for each iteration of the outer loops".to_string()];
            return Ok(Scheduled { function, rule: RULE, applied, declined: refused, compromise: true });
        }
        Err(why) => refused.push(format!("loop by loop: {why}")),
    }
    let message = format!("no schedule goes with all sizes: {}", refused.join("; "));
    Err(ScheduleError { instruction: format!("schedule @{}", f.name), message, loops: None })
}

/// The loops of open length on a processor, whose rules keep them out of the memory of a task: loops of the function as
/// it is, and as rules begin with it.
fn open_loops(f: &TensorFunction, constants: &[BufferId], target: ScheduleTarget<'_>) -> Vec<Name> {
    if target.profile.model().shaders {
        return vec![];
    }
    let mut open = vec![];
    let mut note = |f: &TensorFunction| {
        f.body.visit(&mut |s| {
            if let Stmt::For(l) = s {
                open.extend(l.extent.as_const().is_none().then_some(l.var));
            }
        });
    };
    note(f);
    prepared(f, constants, target).iter().for_each(note);
    open
}

/// Traces that do not apply to all sizes.
#[derive(Default)]
struct Refused {
    reasons: Vec<String>,
    /// The unit and the rule of the last one's instruction, where it is one of a rule's.
    by: Option<(Name, String)>,
}

/// Schedules the function at typical sizes, and applies the trace to all; none, and a reason more, if it does not
/// apply.
fn attempt(
    f: &TensorFunction,
    constants: &[BufferId],
    target: ScheduleTarget<'_>,
    prime: bool,
    script: &Script,
    refused: &mut Refused,
) -> Result<Option<Scheduled>, ScheduleError> {
    let sizes = f.typical_sizes(prime);
    let (typical, shown) = (f.with_sizes(&sizes.iter().copied().collect()), list(&sizes));
    let proposed = units::schedule(&typical, constants, target, script)?;
    let function = match applied(f, &proposed, target) {
        Ok(function) => function,
        Err(Misfit { why, by }) => {
            *refused =
                Refused { reasons: [&refused.reasons[..], &[format!("the schedule for {shown}: {why}")]].concat(), by };
            return Ok(None);
        }
    };
    let single = single_results(&proposed, script).filter(|_| scattered(&function) > scattered(&proposed.function));
    let single = single.and_then(|script| {
        let proposed = units::schedule(&typical, constants, target, &script).ok()?;
        let single = applied(f, &proposed, target).ok()?;
        (scattered(&single) < scattered(&function)).then_some((single, proposed))
    });
    if single.is_some() {
        refused.reasons.push(format!("vectors for {shown}: for other sizes their lanes are in two rows"));
    }
    let (function, proposed) = single.unwrap_or((function, proposed));
    let Scheduled { rule, mut applied, declined, .. } = proposed;
    let compromise = !refused.reasons.is_empty();
    applied.insert(0, format!("for open sizes, with tiles chosen for {shown}"));
    let declined = [declined, std::mem::take(&mut refused.reasons)].concat();
    Ok(Some(Scheduled { function, rule, applied, declined, compromise }))
}

/// Schedules a function that has symbols by a script.
///
/// # Errors
/// As for [`units::schedule`]; or its trace for typical sizes does not apply to all sizes.
pub(super) fn schedule_by(
    f: &TensorFunction,
    constants: &[BufferId],
    target: ScheduleTarget<'_>,
    script: &Script,
) -> Result<Scheduled, ScheduleError> {
    let sizes = f.typical_sizes(false);
    let typical = f.with_sizes(&sizes.iter().copied().collect());
    let script = script.with_open(&open_loops(f, constants, target));
    let proposed = units::schedule(&typical, constants, target, &script)?;
    let function = applied(f, &proposed, target).map_err(|Misfit { why, .. }| ScheduleError {
        instruction: format!("schedule @{}", f.name),
        message: format!("the schedule for {} does not go with all sizes: {why}", list(&sizes)),
        loops: None,
    })?;
    Ok(Scheduled { function, ..proposed })
}

/// The rule name of functions whose loops are bound without other changes.
const RULE: &str = super::LOOP_BY_LOOP;

/// Binds the outer loops of each nest to workgroups without splitting or fusing them, so no arithmetic is needed to
/// prove which elements each stores.
fn loop_by_loop(
    f: &TensorFunction,
    constants: &[BufferId],
    target: ScheduleTarget<'_>,
) -> Result<TensorFunction, String> {
    let mut sketch = Sketch::new(f.clone(), constants, target, &WHOLE);
    sketch.inline_all();
    let stages = sketch.f.stages().ok_or("its loops are no sequence of perfect nests")?;
    let outer = |s: &Stage<'_>| {
        let spatial = s.spatial();
        let bound = s.loops.iter().take_while(|l| l.1.is(1) || spatial.contains(l));
        bound.map(|l| l.0).collect::<Vec<Name>>()
    };
    let spatial: Vec<Vec<Name>> = stages.iter().map(outer).collect();
    // A reduction over nothing stores what it begins with.
    let bounds = sketch.f.bounds();
    let empty = |s: &Stage<'_>| {
        let inner: Vec<_> = s.loops.iter().filter(|l| !s.spatial().contains(l) && !l.1.is(1)).collect();
        let some = inner.iter().all(|l| int::prove(&l.1, 1, i64::MAX, &bounds));
        inner.first().filter(|_| !some).map(|l| (s.block.name, l.0))
    };
    let empty: Vec<(Name, Name)> = stages.iter().filter_map(empty).collect();
    for (block, at) in empty {
        sketch.apply(DecomposeReduction { block, at }).map_err(|e| e.to_string())?;
    }
    for loops in spatial {
        for (l, axis) in loops.into_iter().zip([Axis::GroupZ, Axis::GroupY, Axis::GroupX]) {
            sketch.bind(l, axis).map_err(|e| e.to_string())?;
        }
    }
    let results: Vec<BufferId> = f.outputs().collect();
    sketch.require_whole_words(&results, &[]).map_err(|Decline(why)| why)?;
    let open = sketch.finish().map_err(|e| e.to_string())?;
    check_proposal(&open, f).map_err(|e| e.message)?;
    Ok(open)
}

/// The choices for the same schedule without vectors, if its vectors are optional.
fn single_results(proposed: &Scheduled, script: &Script) -> Option<Script> {
    let (point, one) = (Name::new("vector"), Attr::Int(1));
    let lines = proposed.function.trace.iter().filter_map(Choose::of_instruction);
    let vectors = lines.filter(|c| c.point == point && c.value != one && c.of.contains(&one));
    let choices: Vec<Choice> = vectors.map(|c| Choice { unit: c.unit, point, value: one.clone() }).collect();
    (!choices.is_empty()).then(|| script.with_choices(&choices))
}

/// Accesses to device memory by the lanes of vectors that do not follow each other there.
fn scattered(f: &TensorFunction) -> usize {
    let bounds = f.bounds();
    let mut count = 0;
    for b in f.body.blocks() {
        let around = loops_around_block(f, b.name).unwrap_or_default();
        let Some(lane) = around.iter().rev().find(|l| l.kind == LoopKind::Vectorize) else { continue };
        let apart = |buffer: BufferId, indices: &[Int]| {
            let shape = &f.buffers[buffer].shape;
            let differ = f.buffers[buffer].scope == Scope::Global && indices.iter().any(|i| i.uses(lane.var));
            let flat = int::simplify(&int::flatten_index(indices, shape), &bounds);
            let step = flat.clone() - flat.substitute(lane.var, &Int::new(0)) - Int::var(lane.var);
            differ && !int::simplify(&step, &bounds).is(0)
        };
        count += b.value.loads().iter().filter(|(buffer, indices)| apart(*buffer, indices)).count();
        count += usize::from(apart(b.buffer, &b.indices));
    }
    count
}

/// `n = 256, m = 256`
fn list(sizes: &[(Name, i64)]) -> String {
    sizes.iter().map(|(symbol, n)| format!("{symbol} = {n}")).collect::<Vec<_>>().join(", ")
}

/// Why a trace that was proposed for some sizes does not apply to all.
struct Misfit {
    why: String,
    /// The unit and the rule of the instruction at fault, where it is one of a rule's.
    by: Option<(Name, String)>,
}

impl From<String> for Misfit {
    fn from(why: String) -> Misfit {
        Misfit { why, by: None }
    }
}

/// The open function with a trace that was proposed for some sizes, behind what was applied to it before. Memory of a
/// workgroup or thread has a known size; a processor's task may have as much as a run needs.
fn applied(f: &TensorFunction, proposed: &Scheduled, target: ScheduleTarget<'_>) -> Result<TensorFunction, Misfit> {
    let mut trace = proposed.function.trace.get(f.trace.len()..).unwrap_or_default().to_vec();
    let mut open = loop {
        let mut open = f.clone();
        open.pending = trace.clone();
        let Err(e) = apply_pending(&mut open) else { break open };
        // A loop of open length stays a loop.
        let at = open.trace.len() - f.trace.len();
        if !trace.get(at).is_some_and(|i| i.as_any().is::<Unroll>()) {
            return Err(Misfit { why: e.to_string(), by: chosen_rule(trace.get(..at).unwrap_or_default()) });
        }
        trace.remove(at);
    };
    open.pending.clear();
    let shaders = target.profile.model().shaders;
    let unknown = |b: &crate::tir::Buffer| shaders && b.scope != Scope::Global && const_dims(&b.shape).is_none();
    let used: Vec<BufferId> = open.body.blocks().iter().map(|b| b.buffer).collect();
    if let Some((_, b)) = open.buffers.iter().find(|(id, b)| used.contains(id) && unknown(b)) {
        return Err(
            format!("`{}` would have {:?} elements in a workgroup's or thread's own memory", b.name, b.shape).into()
        );
    }
    check_proposal(&open, f).map_err(|e| e.message)?;
    Ok(open)
}

/// The unit that the last instructions of a trace schedule, and its rule.
fn chosen_rule(trace: &[InstrRef]) -> Option<(Name, String)> {
    let mut lines = trace.iter().rev().filter_map(Choose::of_instruction);
    let line = lines.find(|c| [FUNCTION, RULE_POINT].contains(&c.point.as_str()))?;
    let Attr::Str(rule) = &line.value else { return None };
    Some((line.unit, rule.clone()))
}
