//! Networks of an open batch: compiled once, run at several sizes.

use super::tally::Tally;
use super::{build, check, config, inputs_of, modes, recipe, targets};
use benches::test_device::test_device;
use compiler::agreement::Tolerance;
use compiler::compile::{CompileError, CompileOptions, compile};
use compiler::dtype::DType;
use compiler::graph::{Module, bind_dims, reinfer};
use compiler::int::{Dim, DimRange};
use compiler::interpreter::run_function;
use compiler::name::Name;
use compiler::schedule::Versions;
use compiler::text::print_module;
use proptest::prelude::*;
use runtime_gpu::{GpuError, OpenSession, Session, SessionOptions};
use shaders_gen::Emitter;
use std::cell::Cell;

/// Sizes of the batch, as they come up: those that its range has.
pub(super) const SIZES: [i64; 6] = [3, 1, 8, 0, 36, 12];

/// What the batch may be: from 0 on, from 1 on, and every fourth size.
const RANGES: [(i64, i64, i64); 3] = [(0, 160, 1), (1, 160, 1), (4, 160, 4)];

/// Networks that want to know the batch, for each hundred drawn, at most.
pub(super) const MOST_CLOSED: usize = 60;

/// The network with an open batch; none where a node wants to know it.
pub(super) fn with_open_batch(m: &Module) -> Option<Module> {
    let mut open = m.clone();
    let f = open.main_mut();
    for p in f.params().to_vec() {
        f.values[p].ty.shape[0] = Dim::var("n");
    }
    let entry = open.entry;
    reinfer(&mut open, entry).ok()?;
    let whole = open.main().walk().iter().flat_map(|&n| open.main().nodes[n].outputs.clone()).all(|v| {
        // A size that is told by another name than the batch's is none that a run could know.
        open.main().ty(v).shape.iter().flat_map(Dim::vars).all(|d| d == Name::new("n"))
    });
    let takes = |&n: &i64| bind_dims(&mut open.clone(), &[(Name::new("n"), n)]).is_ok();
    (whole && SIZES.iter().all(takes)).then_some(open)
}

#[test]
fn one_compilation_serves_all_sizes() {
    let tally = Tally::default();
    let with_versions = Cell::new(0);
    let asked = prop::sample::select(vec![Versions::Auto, Versions::All]);
    let ranges = prop::sample::select(RANGES.to_vec());
    let drawn = (recipe::network(), modes(), targets::target(), 0u64..1000, asked, ranges);
    proptest!(config(), |((network, pipeline, target, seed, versions, (low, high, step)) in drawn)| {
        let drawn = build(&network);
        tally.drawn(&drawn);
        let Some(m) = with_open_batch(&drawn.module) else {
            tally.rejected();
            return Err(TestCaseError::reject("a node wants to know the batch"));
        };
        let fail = |e: String| TestCaseError::fail(format!("{e}\n{}", print_module(&m)));
        let gpu = test_device().map_err(TestCaseError::fail)?;
        let mut options = CompileOptions { pipeline: target.asking(pipeline), ..CompileOptions::default() };
        options.pipeline.scheduling.versions = versions;
        let range = DimRange::new(low, high, step).ok_or_else(|| fail("no range".into()))?;
        options.dims.declare_range(Name::new("n"), range);
        let profile = target.on(&gpu.profile);
        let c = match compile(m.clone(), &options, &profile, &Emitter, &mut |_, _, _| ()) {
            Err(CompileError::NeedsCpu(_)) => return Err(TestCaseError::reject("for the interpreter")),
            other => other.map_err(|e| fail(format!("compile{target}: {e}")))?,
        };
        let first = Session::open(gpu, &c.plan, &c.module, &SessionOptions::default(), &mut |_, _, _| ())
            .map_err(|e| fail(e.to_string()))?;
        let Some(open) = c.open else { return Err(fail("nothing is open".into())) };
        with_versions.set(with_versions.get() + usize::from(!open.versions().is_empty()));
        let session = OpenSession::new(open, first);
        let taken: Vec<i64> = SIZES.into_iter().filter(|&n| range.contains(n)).collect();
        let mut alone = 0;
        for &size in &taken {
            let mut fixed = m.clone();
            bind_dims(&mut fixed, &[(Name::new("n"), size)]).map_err(|e| fail(e.to_string()))?;
            let inputs = inputs_of(&fixed, seed);
            let want = run_function(&fixed, fixed.entry, &inputs).map_err(|e| fail(e.to_string()))?;
            let got = match session.run(&inputs) {
                // `weft::Session` compiles for such a size alone.
                Err(GpuError::BeyondOpenPlan(_)) if size == 0 => {
                    alone += 1;
                    continue;
                }
                got => got.map_err(|e| fail(format!("n = {size}{target}: {e}")))?,
            };
            let winograd = !options.pipeline.config.is_empty();
            let tolerance = Tolerance::new(DType::F32, winograd.then_some(2e-3), winograd.then_some(2e-3));
            check(&want, &got, &tolerance, &format!("at n = {size}{target}"), &m)?;
        }
        assert_eq!(session.sizes_kept() + alone, taken.len());
    });
    tally.report_with("open sizes", MOST_CLOSED);
    assert!(with_versions.get() > 0, "no network had kernels for some sizes only");
}
