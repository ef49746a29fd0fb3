//! Random networks as C: built with every warning as an error and with the checks of AddressSanitizer and
//! UndefinedBehaviorSanitizer, with vectors and without.

use super::native::target;
use super::tally::Tally;
use super::{build, check, config, inputs_of, modes, recipe};
use crate::built;
use compiler::agreement::Tolerance;
use compiler::compile::{CompileError, CompileOptions, compile};
use compiler::dtype::DType;
use compiler::graph::Module;
use compiler::interpreter::run_function;
use compiler::passes::PipelineOptions;
use compiler::plan::Step;
use compiler::schedule::ScheduleOptions;
use compiler::tensor::Tensor;
use compiler::text::print_module;
use proptest::prelude::*;
use proptest::test_runner::Config;
use runtime_cpu::{Isa, Processor};
use std::path::Path;

const CHECKS: [&str; 4] = ["-O1", "-march=native", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"];

/// The files of the network; `None` for one that has steps on the host.
fn files(
    m: &Module,
    pipeline: PipelineOptions,
    (isa, rule): (Isa, Option<&str>),
) -> Result<Option<Vec<c_source::File>>, String> {
    let processor = Processor::open(1, Some(isa)).map_err(|e| e.to_string())?;
    let profile = processor.profile();
    let mut options = CompileOptions { pipeline, verify: true, ..CompileOptions::default() };
    options.pipeline.scheduling = ScheduleOptions::of_rules(rule);
    let c = match compile(m.clone(), &options, &profile, &c_source::Emitter, &mut |_, _, _| ()) {
        Err(CompileError::NeedsCpu(_)) => return Ok(None),
        other => other.map_err(|e| e.to_string())?,
    };
    if c.plan.all_steps().into_iter().any(|s| matches!(s, Step::Host(_))) {
        return Ok(None);
    }
    c_source::program(&c.plan, &|b| weft::packed_constant(&c, b, isa), "a random network").map(Some)
}

/// Builds the network and runs it.
fn results(
    at: &Path,
    files: &[c_source::File],
    (compiler, vectors): (&str, bool),
    inputs: &[Tensor],
    want: &[Tensor],
) -> Result<Vec<Tensor>, String> {
    for f in files {
        std::fs::write(at.join(f.name), &f.bytes).map_err(|e| e.to_string())?;
    }
    let plain = if vectors { &[][..] } else { &["-DWEFT_NO_VECTORS"] };
    built::build(at, compiler, &[&CHECKS[..], plain].concat())?;
    let inputs: Vec<&[u8]> = inputs.iter().map(|t| &t.bytes()[..]).collect();
    let made = built::run(at, &inputs, want.len())?;
    let read = |(w, bytes): (&Tensor, Vec<u8>)| Tensor::from_bytes(w.dtype(), w.shape().to_vec(), bytes.into());
    want.iter().zip(made).map(read).collect()
}

#[test]
fn c_agrees() {
    let tally = Tally::default();
    let drawn = (recipe::network(), modes(), target(), 0u64..1000);
    // A C compiler runs for each.
    let config = Config { cases: (config().cases / 3).max(1), ..config() };
    proptest!(config, |((network, pipeline, target, seed) in drawn)| {
        let drawn = build(&network);
        tally.drawn(&drawn);
        let m = drawn.module;
        let inputs = inputs_of(&m, seed);
        let fail = |e: String| TestCaseError::fail(format!("{e}\n{}", print_module(&m)));
        let want = run_function(&m, m.entry, &inputs).map_err(|e| fail(e.to_string()))?;
        let tiles = !pipeline.config.is_empty();
        let slack = tiles.then_some(2e-3);
        let how = format!("in C for {target:?} under --layout {} --fuse {}", pipeline.layout, pipeline.fuse);
        let Some(files) = files(&m, pipeline, target).map_err(|e| fail(format!("{how}: {e}")))? else {
            tally.rejected();
            return Err(TestCaseError::reject("it has steps on the host"));
        };
        let folder = tempfile::tempdir().map_err(|e| fail(e.to_string()))?;
        // The first one: the sanitizers of others may not be installed.
        let compiler = built::compilers()[0];
        let how = format!("{how}, built by {compiler}");
        let got = results(folder.path(), &files, (compiler, seed % 3 != 0), &inputs, &want).map_err(|e| fail(format!("{how}: {e}")))?;
        check(&want, &got, &Tolerance::new(DType::F32, slack, slack), &how, &m)?;
    });
    tally.report("C");
}
