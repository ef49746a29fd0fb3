//! Scheduling and reuse: tensor functions become kernels, and equal functions share one.
//!
//! Functions are equal if they have the same [`TensorFunction::fingerprint`] and the same constant parameters. Rules
//! and shader generator depend only on these and on the target (profile and options), which is the same for all.
//! Different functions are scheduled and emitted in parallel and independently, so names, order and text do not depend
//! on which is done first.

use super::backend::{Backend, Progress};
use super::error::CompileError;
use super::threads::each;
use crate::arena::Id;
use crate::check::check_kernels;
use crate::define_id;
use crate::fingerprint::Fingerprint;
use crate::int::{Cond, Int};
use crate::name::Name;
use crate::plan::{EmitFailure, EmittedKernel};
use crate::schedule::{RefusedCandidate, ScheduleTarget, Version, apply, has_own_schedule, rules, schedule_as_written};
use crate::tir::{BufferId, InstrRef, Stage, TensorFunction};
use crate::traffic;
use rustc_hash::{FxHashMap, FxHashSet};

define_id!(/// One of the different tensor functions of a module.
    FunctionId);

/// A tensor function to make kernels of.
#[derive(Debug)]
pub(super) struct Request {
    /// Unscheduled, or with the schedule that it came with.
    pub function: TensorFunction,
    /// Its parameters whose values are known when a session opens.
    pub constants: Vec<BufferId>,
}

/// The different requests, in the order in which they came.
pub(super) struct Requests {
    pub list: Vec<Request>,
    known: FxHashMap<(Fingerprint, Vec<BufferId>), FunctionId>,
    /// Names of the module's own tensor functions and of requests.
    taken: FxHashSet<Name>,
}

impl Requests {
    /// None yet, for a module with these tensor functions.
    pub fn new(own: impl Iterator<Item = Name>) -> Requests {
        Requests { list: vec![], known: FxHashMap::default(), taken: own.collect() }
    }

    /// The id of the request; an equal earlier request has the same id. A function of the module (`own`) keeps its
    /// name, unless it is requested again with other constants; other functions get a free name.
    pub fn add(&mut self, mut function: TensorFunction, constants: Vec<BufferId>, own: bool) -> FunctionId {
        let next = FunctionId::from_index(self.list.len());
        let id = *self.known.entry((function.fingerprint(), constants.clone())).or_insert(next);
        if id == next {
            let requested = |name: Name| self.list.iter().any(|r| r.function.name == name);
            if !own || requested(function.name) {
                function.name = self.free(function.name);
            }
            self.taken.insert(function.name);
            self.list.push(Request { function, constants });
        }
        id
    }

    /// `base`, `base_2`, `base_3` ...: the first that is not taken.
    fn free(&self, base: Name) -> Name {
        let numbered = (2..).map(|i| Name::new(&format!("{base}_{i}")));
        std::iter::once(base).chain(numbered).find(|n| !self.taken.contains(n)).unwrap_or(base)
    }

    /// Names of versions must be free too.
    fn name_versions(&self, built: &mut [Built]) {
        let mut taken = self.taken.clone();
        for v in built.iter_mut().flat_map(|b| &mut b.versions) {
            let base = v.built.function.name;
            let numbered = (2..).map(|i| Name::new(&format!("{base}_{i}")));
            let name = std::iter::once(base).chain(numbered).find(|n| !taken.contains(n)).unwrap_or(base);
            taken.insert(name);
            (v.built.function.name, v.built.before.name) = (name, name);
        }
    }

    /// Schedules and emits all of them; the progress is called on this thread.
    ///
    /// # Errors
    /// That of the first request that fails.
    pub fn build(&self, backend: Backend<'_>, progress: Progress<'_>) -> Result<Vec<Built>, CompileError> {
        let mut done: Vec<Option<Result<Built, CompileError>>> = self.list.iter().map(|_| None).collect();
        let (mut count, all) = (0, self.list.len());
        progress("kernels", count, all);
        each(all, &|i| build(&self.list[i], backend), &mut |i, built| {
            done[i] = Some(built);
            count += 1;
            progress("kernels", count, all);
        })
        .map_err(|message| CompileError::Bug { at: "scheduling".into(), message })?;
        let mut built = done.into_iter().flatten().collect::<Result<Vec<_>, _>>()?;
        self.name_versions(&mut built);
        Ok(built)
    }
}

/// A tensor function with its kernels.
pub(super) struct Built {
    /// Before scheduling, with the instructions of the schedule pending.
    pub before: TensorFunction,
    /// As scheduled.
    pub function: TensorFunction,
    /// The rule of the unit with the most work.
    pub rule: &'static str,
    /// Which rules took its units, and their tiles.
    pub applied: Vec<String>,
    /// Why rules declined.
    pub declined: Vec<String>,
    /// The kernels, in order.
    pub kernels: Vec<EmittedKernel>,
    /// Versions for some sizes only, in the order in which they are asked.
    pub versions: Vec<BuiltVersion>,
}

/// A function under an assumption about its sizes, with kernels.
pub(super) struct BuiltVersion {
    /// The conditions on the symbols of the function for all sizes.
    pub when: Vec<Cond>,
    /// The version's symbols as expressions of these.
    pub symbols: Vec<(Name, Int)>,
    pub built: Built,
}

impl Built {
    /// The function's name.
    pub fn name(&self) -> Name {
        self.function.name
    }
}

/// The loops of the stage have more iterations in all than a kernel's 32-bit index counts.
fn iterates_beyond_32_bits(stage: &Stage<'_>) -> bool {
    let mut sizes = stage.loops.iter().filter_map(|l| l.1.as_const());
    sizes.try_fold(1i64, |n, size| n.checked_mul(size)).is_none_or(|n| n > i64::from(i32::MAX))
}

fn build(request: &Request, backend: Backend<'_>) -> Result<Built, CompileError> {
    let Backend { target, schedules, .. } = backend;
    let profile = target.profile;
    let t = &request.function;
    let written = !t.pending.is_empty() || !t.kernels().is_empty();
    let fail = |message: String| match (written, t.stages()) {
        (true, _) => CompileError::Schedule { function: t.name.to_string(), message },
        // Only text has such bodies.
        (false, None) => {
            let why = "its body is no sequence of plain loop nests, and has no `kernel` and no `schedule` of its own";
            CompileError::Schedule { function: t.name.to_string(), message: format!("{why}: {message}") }
        }
        (false, Some(_)) if !t.symbols.is_empty() => {
            let dims: Vec<&str> = t.symbols.iter().map(|s| s.0.as_str()).collect();
            CompileError::NoOpenSchedule { function: t.name, dims: dims.join(", ") }
        }
        (false, Some(stages)) if stages.iter().any(iterates_beyond_32_bits) => {
            // The loops, which the lines below show, are none that a user wrote.
            CompileError::NeedsCpu(format!("@{}: {}", t.name, message.lines().next().unwrap_or_default()))
        }
        (false, Some(_)) => CompileError::Bug { at: t.name.to_string(), message },
    };
    let (scheduled, kernels) = match written {
        true => as_written(t, &request.constants, backend).map(|s| {
            let kernels = emitted(&s.function, backend);
            (s, kernels)
        }),
        false => emitted_or_next(t, &request.constants, backend),
    }
    .map_err(fail)?;
    let open = !written && !t.symbols.is_empty();
    let versions = match open {
        true => schedules.versions(t, &request.constants, target, &scheduled),
        false => versions_as_written(request, target, &scheduled).map_err(fail)?,
    };
    let rules::Scheduled { mut function, rule, mut applied, declined, .. } = scheduled;
    for v in &versions {
        if !function.trace.iter().any(|i| Version::of_instruction(i) == Some(&v.line)) {
            apply(&mut function, InstrRef::new(v.line.clone())).map_err(|e| fail(e.to_string()))?;
        }
    }
    if !written && profile.model().workgroup_memory && profile.subgroup.1 > 0 {
        applied.extend(traffic::describe(&function, profile));
    }
    let kernels = kernels.map_err(|(kernel, e)| match e {
        EmitFailure::BeyondDevice(message) if !written => CompileError::NeedsCpu(format!("@{}: {message}", t.name)),
        EmitFailure::BeyondDevice(message) => CompileError::OtherDevice { function: t.name.to_string(), message },
        other => fail(format!("kernel {kernel}: {other}")),
    })?;
    let mut before = t.clone();
    if before.kernels().is_empty() {
        before.pending = function.trace.clone();
    }
    let versions = versions.into_iter().filter_map(|v| version(v, t.name, backend)).collect::<Vec<_>>();
    applied.extend(versions.iter().flat_map(|v: &BuiltVersion| v.built.applied.iter().take(1).cloned()));
    Ok(Built { before, function, rule, applied, declined, kernels, versions })
}

/// The kernels of a scheduled function, or the one that the generator refuses.
pub(super) type EmittedKernels = Result<Vec<EmittedKernel>, (Name, EmitFailure)>;

/// Emits the kernels of a scheduled function.
pub(super) fn emitted(function: &TensorFunction, Backend { target, emitter, .. }: Backend<'_>) -> EmittedKernels {
    let emit = |(kernel, _)| emitter.emit(function, kernel, target.profile).map_err(|e| (kernel, e));
    function.kernels().into_iter().map(emit).collect()
}

/// Candidates of one rule for a unit that are tried, if the generator refuses each of them.
const TRIES: usize = 4;

/// A function as the provider schedules it, and its kernels. Where the generator refuses one, the candidate that it
/// comes from is not taken again, and the next one is tried; if none is left, the first refusal counts.
fn emitted_or_next(
    t: &TensorFunction,
    constants: &[BufferId],
    backend: Backend<'_>,
) -> Result<(rules::Scheduled, EmittedKernels), String> {
    let first = provided(t, constants, backend)?;
    let mut kernels = emitted(&first.function, backend);
    if kernels.is_ok() {
        return Ok((first, kernels));
    }
    let mut options = backend.target.options.clone();
    let mut last = first.function.clone();
    while let Err((kernel, why)) = &kernels {
        if !refuse(&mut options.refused, &last, *kernel, why) {
            break;
        }
        let backend = Backend { target: options.on(backend.target.profile), ..backend };
        let Ok(next) = provided(t, constants, backend) else { break };
        kernels = emitted(&next.function, backend);
        if kernels.is_ok() {
            return Ok((next, kernels));
        }
        last = next.function;
    }
    let kernels = emitted(&first.function, backend);
    Ok((first, kernels))
}

/// Adds the candidate that a refused kernel comes from; the whole rule after [`TRIES`] of its candidates. False if it
/// was refused before.
fn refuse(list: &mut Vec<RefusedCandidate>, f: &TensorFunction, kernel: Name, why: &EmitFailure) -> bool {
    let kernels = f.kernels();
    let body = kernels.iter().find(|k| k.0 == kernel).map(|k| k.1);
    let blocks: Vec<Name> = body.map_or(vec![], |b| b.blocks().iter().map(|b| b.name).collect());
    let taken = rules::taken_candidates(&f.trace, &blocks, &why.to_string());
    let Some(mut new) = taken.into_iter().find(|r| !list.contains(r)) else { return false };
    if list.iter().filter(|r| r.unit == new.unit && r.rule == new.rule).count() + 1 >= TRIES {
        new.values.clear();
    }
    let known = list.contains(&new);
    list.push(new);
    !known
}

/// The kernels of a version; `None` if the device does not support them, since the function for all sizes can run
/// instead.
fn version(
    v: rules::FunctionVersion,
    base: Name,
    Backend { target: ScheduleTarget { profile, .. }, emitter, .. }: Backend<'_>,
) -> Option<BuiltVersion> {
    let rules::FunctionVersion { line: _, when, symbols, suffix, mut before, scheduled, estimates } = v;
    let rules::Scheduled { mut function, rule, mut applied, declined, .. } = scheduled;
    function.name = Name::new(&format!("{base}_{suffix}"));
    let emit = |(kernel, _)| emitter.emit(&function, kernel, profile);
    let kernels = function.kernels().into_iter().map(emit).collect::<Result<Vec<_>, _>>().ok()?;
    let why = match estimates {
        Some((all, own)) => format!("estimated at {:.1} us instead of {:.1}", own / 1e3, all / 1e3),
        None => "as it was asked for".into(),
    };
    applied.insert(0, format!("a version `{suffix}`, {why}, by {rule}"));
    before.name = function.name;
    before.pending = function.trace.clone();
    Some(BuiltVersion {
        when,
        symbols,
        built: Built { before, function, rule, applied, declined, kernels, versions: vec![] },
    })
}

/// A function by the schedule that the provider gives it.
fn provided(t: &TensorFunction, constants: &[BufferId], backend: Backend<'_>) -> Result<rules::Scheduled, String> {
    let scheduled = backend.schedules.schedule(t, constants, backend.target).map_err(|e| e.to_string())?;
    check_kernels(&scheduled.function).map_err(|e| e.text())?;
    Ok(scheduled)
}

/// A function by the schedule that it came with; choices in it that were edited are followed.
fn as_written(t: &TensorFunction, constants: &[BufferId], backend: Backend<'_>) -> Result<rules::Scheduled, String> {
    if has_own_schedule(t) {
        return schedule_as_written(t, constants, backend.target).map_err(|e| e.to_string());
    }
    let function = TensorFunction { pending: vec![], ..t.clone() };
    provided(&function, constants, backend)
}

/// The versions that the lines of a schedule ask for.
fn versions_as_written(
    request: &Request,
    target: ScheduleTarget<'_>,
    all: &rules::Scheduled,
) -> Result<Vec<rules::FunctionVersion>, String> {
    let t = &request.function;
    let lines: Vec<Version> = t.pending.iter().filter_map(Version::of_instruction).cloned().collect();
    let mut plain = if t.trace.is_empty() { t.canonical() } else { t.clone() };
    plain.pending.clear();
    rules::asked_versions(&plain, &lines, &request.constants, target, all).map_err(|e| e.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{EmitKernel, StandInEmitter};
    use crate::profile::DeviceProfile;
    use crate::schedule::rules::{GIVEN_UP, choices};
    use crate::schedule::{Choose, Rules};
    use crate::text::parse_tensor_function;

    /// Refuses the kernels of schedules with such choices.
    struct Refusing<F>(F);

    impl<F: Fn(&[&Choose]) -> bool + Send + Sync> EmitKernel for Refusing<F> {
        fn emit(&self, f: &TensorFunction, kernel: Name, p: &DeviceProfile) -> Result<EmittedKernel, EmitFailure> {
            match self.0(&choices(&f.trace)) {
                true => Err(EmitFailure::Lowering("planted".into())),
                false => StandInEmitter { version: 1 }.emit(f, kernel, p),
            }
        }
    }

    /// A product that matrix units take, built with such a generator.
    fn product(refused: impl Fn(&[&Choose]) -> bool + Send + Sync) -> Result<Built, CompileError> {
        let text = "tensor @mm(%a: f16[512,512], %b: f16[512,512], out %y: f32[512,512]) {
  for i in 0..512 { for j in 0..512 { for k in 0..512 {
    block mm reduce sum init { %y[i, j] <- f32(%a[i, k]) * f32(%b[k, j]) }
  } } }
}";
        let function = parse_tensor_function(text).expect("a tensor function");
        let profile = DeviceProfile::named("ada").expect("a profile");
        let backend = Backend { target: (&profile).into(), emitter: &Refusing(refused), schedules: &Rules };
        build(&Request { function, constants: vec![] }, backend)
    }

    fn values(list: &[&Choose]) -> Vec<crate::attr::Attr> {
        list.iter().map(|c| c.value.clone()).collect()
    }

    #[test]
    fn what_the_generator_refuses_falls_to_the_next_candidate() {
        let usual = product(|_| false).expect("kernels");
        assert_eq!(usual.rule, "matmul-matrix");
        assert!(usual.declined.iter().all(|d| !d.contains(GIVEN_UP)), "{:?}", usual.declined);

        let first = values(&choices(&usual.function.trace));
        let other = product(|list| values(list) == first).expect("kernels");
        assert_eq!(other.rule, "matmul-matrix");
        assert_ne!(values(&choices(&other.function.trace)), first);

        let rule = crate::attr::Attr::Str("matmul-matrix".into());
        let plain = product(|list| values(list).contains(&rule)).expect("kernels");
        assert_ne!(plain.rule, "matmul-matrix");
        let remark = plain.declined.iter().find(|d| d.contains(GIVEN_UP)).expect("a remark");
        assert!(remark.contains("matmul-matrix") && remark.contains("planted"), "{remark}");

        let error = product(|_| true).map(|b| b.rule).expect_err("nothing is left");
        assert!(error.to_string().contains("planted"), "{error}");
    }
}
