//! Random networks on the processor: every instruction set that the machine has, in f32 and in mixed precision, and
//! with an open batch.

use super::open::{SIZES, with_open_batch};
use super::tally::Tally;
use super::{build, check, config, inputs_of, modes, recipe, rounding};
use compiler::agreement::Tolerance;
use compiler::compile::{CompileError, CompileOptions, Compiled, compile};
use compiler::dtype::DType;
use compiler::graph::{Module, bind_dims};
use compiler::int::DimRange;
use compiler::interpreter::{HostFunctions, run_function};
use compiler::name::Name;
use compiler::passes::{AmpMode, PipelineOptions};
use compiler::schedule::ScheduleOptions;
use compiler::tensor::Tensor;
use compiler::text::print_module;
use proptest::prelude::*;
use runtime_cpu::{Emitter, Isa, Processor, Session};
use std::sync::Arc;

/// The instruction sets of this machine.
pub(super) fn isas() -> Vec<Isa> {
    Isa::ALL.into_iter().filter(|i| i.is_available()).collect()
}

/// An instruction set of this machine, and a rule that is requested by name.
pub(super) fn target() -> impl Strategy<Value = (Isa, Option<&'static str>)> {
    Isa::ALL.iter().filter(|i| !i.is_available()).for_each(|i| println!("SKIPPED: this machine has no {}", i.name()));
    let named = |n: &'static str| Just(Some(n));
    let rules = prop_oneof![4 => Just(None), 1 => named("lanes"), 1 => named("matmul-tile"), 1 => named("row-tasks")];
    (prop::sample::select(isas()), rules)
}

/// Compiles for two threads of an instruction set, and opens.
fn open(
    m: &Module,
    options: &CompileOptions,
    (isa, rule): (Isa, Option<&str>),
) -> Result<(Compiled, Session), CompileError> {
    let bug = |e: runtime_cpu::CpuError| CompileError::Bug { at: "a session".into(), message: e.to_string() };
    let processor = Arc::new(Processor::open(2, Some(isa)).map_err(bug)?);
    let mut options = options.clone();
    options.pipeline.scheduling = ScheduleOptions::of_rules(rule);
    let c = compile(m.clone(), &options, &processor.profile(), &Emitter, &mut |_, _, _| ())?;
    let load = |name: Name| {
        let constant = c.module.constants.get(&name).ok_or("there is no such constant")?;
        constant.load()
    };
    let session = Session::open(processor, &c.plan, &load).map_err(bug)?;
    Ok((c, session))
}

pub(super) fn check_native(
    m: &Module,
    pipeline: PipelineOptions,
    target: (Isa, Option<&str>),
    inputs: &[Tensor],
    want: &[Tensor],
) -> Result<(), TestCaseError> {
    let half = pipeline.amp != AmpMode::Off;
    let tiles = !pipeline.config.is_empty();
    let slack = (tiles && !half).then_some(2e-3);
    let tolerance = Tolerance::new(if half { DType::F16 } else { DType::F32 }, slack, slack);
    let how =
        format!("on {target:?} under --layout {} --fuse {} --amp {}", pipeline.layout, pipeline.fuse, pipeline.amp);
    let options = CompileOptions { pipeline, verify: true, ..CompileOptions::default() };
    let fail = |what: &str, e: String| TestCaseError::fail(format!("{what} {how}: {e}\n{}", print_module(m)));
    let (_, session) = open(m, &options, target).map_err(|e| fail("compile", e.to_string()))?;
    for _ in 0..2 {
        let got = session.run(inputs, &HostFunctions::default()).map_err(|e| fail("run", e.to_string()))?;
        check(want, &got, &tolerance, &how, m)?;
    }
    Ok(())
}

#[test]
fn native_kernels_agree() {
    let tally = Tally::default();
    let drawn = (recipe::network(), modes(), target(), 0u64..1000);
    proptest!(config(), |((network, options, target, seed) in drawn)| {
        let drawn = build(&network);
        tally.drawn(&drawn);
        let m = drawn.module;
        let inputs = inputs_of(&m, seed);
        let fail = |e: String| TestCaseError::fail(format!("{e}\n{}", print_module(&m)));
        let want = run_function(&m, m.entry, &inputs).map_err(|e| fail(e.to_string()))?;
        check_native(&m, options, target, &inputs, &want)?;
    });
    tally.report("native kernels");
}

#[test]
fn native_kernels_agree_in_mixed_precision() {
    let tally = Tally::default();
    let drawn = (recipe::network(), modes(), target(), 0u64..1000);
    proptest!(config(), |((network, options, target, seed) in drawn)| {
        let drawn = build(&network);
        tally.drawn(&drawn);
        let m = drawn.module;
        let inputs = inputs_of(&m, seed);
        let fail = |e: String| TestCaseError::fail(format!("{e}\n{}", print_module(&m)));
        let want = run_function(&m, m.entry, &inputs).map_err(|e| fail(e.to_string()))?;
        if !rounding::bears_rounding(&m, &inputs, &want).map_err(fail)? {
            tally.rejected();
            return Err(TestCaseError::reject("rounding alone moves its results"));
        }
        check_native(&m, PipelineOptions { amp: AmpMode::Fp16, ..options }, target, &inputs, &want)?;
    });
    tally.report("native kernels in mixed precision");
}

#[test]
fn native_kernels_serve_all_sizes() {
    let tally = Tally::default();
    let drawn = (recipe::network(), modes(), target(), 0u64..1000);
    proptest!(config(), |((network, pipeline, target, seed) in drawn)| {
        let drawn = build(&network);
        tally.drawn(&drawn);
        let Some(m) = with_open_batch(&drawn.module) else {
            tally.rejected();
            return Err(TestCaseError::reject("a node wants to know the batch"));
        };
        let fail = |e: String| TestCaseError::fail(format!("{target:?}: {e}\n{}", print_module(&m)));
        let winograd = (!pipeline.config.is_empty()).then_some(2e-3);
        let mut options = CompileOptions { pipeline, ..CompileOptions::default() };
        let range = DimRange::new(1, 160, 1).ok_or_else(|| fail("no range".into()))?;
        options.dims.declare_range(Name::new("n"), range);
        let (c, first) = match open(&m, &options, target) {
            Err(CompileError::NeedsCpu(_)) => return Err(TestCaseError::reject("for the interpreter")),
            other => other.map_err(|e| fail(e.to_string()))?,
        };
        let Some(plans) = c.open else { return Err(fail("nothing is open".into())) };
        for size in SIZES.into_iter().filter(|&n| range.contains(n)) {
            let mut fixed = m.clone();
            bind_dims(&mut fixed, &[(Name::new("n"), size)]).map_err(|e| fail(e.to_string()))?;
            let inputs = inputs_of(&fixed, seed);
            let want = run_function(&fixed, fixed.entry, &inputs).map_err(|e| fail(e.to_string()))?;
            let plan = plans.at(&[(Name::new("n"), size)]).map_err(|e| fail(e.to_string()))?.0;
            let got = first.with_plan(plan).run(&inputs, &HostFunctions::default());
            let got = got.map_err(|e| fail(format!("n = {size}: {e}")))?;
            let tolerance = Tolerance::new(DType::F32, winograd, winograd);
            check(&want, &got, &tolerance, &format!("at n = {size} on {target:?}"), &m)?;
        }
    });
    tally.report_with("native kernels of open sizes", super::open::MOST_CLOSED);
}
