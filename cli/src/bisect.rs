//! `weft bisect`: what makes a result wrong.
//!
//! First it is decided whether results differ. Then settings are tried that each take one thing away: mixed precision, then passes (the graph
//! behind each runs on the interpreter), then schedule rules (function by function), then fusion and layouts. What is found is bisected:
//! the first node in f16, the first pass, the first function, the first node whose result is wrong. Last, the smallest part that is wrong by itself
//! is written with its inputs and a command line.

mod cause;
mod nodes;
mod passes;
mod precision;
mod reproducer;
mod rules;
mod trial;

use crate::args::BisectArgs;
use crate::arrays::{Named, read_npz};
use crate::error::{CliError, CliResult, Code};
use crate::executor::{Device, calibrated_pipeline, interpret_watched, open_device, profile_on};
use crate::models::{inputs_for, load, short_name};
use crate::output::{print_text, show_table, table, verdict, write_json};
use cause::Cause;
use compiler::passes::default_pipeline;
use reproducer::Reproducer;
use serde_json::json;
use std::cell::RefCell;
use std::path::{Path, PathBuf};
use trial::{Case, Outcome, Setting, Trials};

/// Looks for what makes a result wrong.
pub fn execute(a: &BisectArgs) -> CliResult<()> {
    let given = crate::inputs::given(&a.input, &a.model, &a.common)?;
    let module = load(&a.model, &a.common, given.as_ref())?;
    let inputs = inputs_for(&module, given.as_ref(), &a.common)?;
    let device = open_device(&a.common)?;
    refuse_itself(a, &device)?;
    let profile = profile_on(&a.common, &device)?;
    let (pipeline, _) = calibrated_pipeline(&module, &a.common, &profile, &inputs)?;
    let setting = Setting { pipeline, schedules: a.common.schedules.0.clone(), common: a.common.clone() };
    let exact = interpret_watched(&module, &inputs, &a.common, "reference", |_, _, _| ())?;
    let exact: Named = module.main().result_names.iter().map(|n| n.to_string()).zip(exact).collect();
    let want = reference(a, &exact)?;
    let case = Case { module, inputs, want };
    let session = {
        let whole = Trials { a, device: &device, profile: &profile, half: false, tried: RefCell::default() };
        whole.session(&case.module, &setting)?
    };
    let half = session.is_mixed();
    let trials = Trials { a, device: &device, profile: &profile, half, tried: RefCell::default() };
    let got = session.run_in_order(&case.inputs)?;
    drop(session);
    let asked = trials.judge(&case, case.names().iter().zip(&got), "as asked")?;
    if asked.agrees() {
        return report(&trials, &asked, None, None);
    }
    let (cause, setting) = find(&trials, &case, &exact, setting)?;
    let around = cause.nodes();
    let folder = folder(a);
    let written = match cause {
        // Its part would be held against a reference that the interpreter does not give.
        Cause::Model { .. } => None,
        _ => reproducer::write(&trials, &case.against(exact), &setting, &around, &folder)?,
    };
    report(&trials, &asked, Some(&cause), written.as_ref())
}

impl Case {
    fn names(&self) -> Vec<String> {
        self.module.main().result_names.iter().map(|n| n.to_string()).collect()
    }
    /// The case with other results as the right ones.
    fn against(self, want: Named) -> Case {
        Case { want, ..self }
    }
}

/// The interpreter runs the graph as it came: there is nothing to find.
fn refuse_itself(a: &BisectArgs, device: &Device) -> CliResult<()> {
    if !(matches!(device, Device::Interpreter) && a.common.amp == "off" && a.against == "reference") {
        return Ok(());
    }
    Err(CliError::usage("--against reference in the interpreter with --amp off holds a thing against itself")
        .help("choose another --device (`weft devices` lists what is there), --amp fp16, or a file of results"))
}

/// The right results: those of the interpreter, or a file's.
fn reference(a: &BisectArgs, exact: &Named) -> CliResult<Named> {
    match a.against.as_str() {
        "reference" => Ok(exact.clone()),
        file if Path::new(file).exists() => read_npz(Path::new(file)),
        file => Err(CliError::usage(format!("--against {file}: needs reference, or a file of results that exists"))),
    }
}

fn folder(a: &BisectArgs) -> PathBuf {
    a.output.clone().unwrap_or_else(|| PathBuf::from(format!("{}-bisect", short_name(&a.model).replace(':', "-"))))
}

/// The cause, and the simplest setting in which it shows.
fn find(trials: &Trials<'_>, case: &Case, exact: &Named, asked: Setting) -> CliResult<(Cause, Setting)> {
    if trials.a.against != "reference" {
        let tensors: Vec<_> = exact.iter().map(|e| e.1.clone()).collect();
        let on_cpu =
            trials.judge(case, case.names().iter().zip(&tensors), "the model as it came, on the interpreter")?;
        if !on_cpu.agrees() {
            return Ok((Cause::Model { node: nodes::first_departure(trials, case, &case.want)? }, asked));
        }
    }
    let mut setting = asked;
    if trials.half {
        let plain = setting.in_f32();
        if trials.run(case, &plain, "with --amp off")?.agrees() {
            return of_mixed_precision(trials, case, setting);
        }
        setting = plain;
    }
    if let Some(cause) = passes::wrong_pass(trials, case, &setting)? {
        return Ok((cause, setting));
    }
    of_kernels(trials, case, setting)
}

/// Without mixed precision the results are right: what is stored in f16 makes them wrong, or a kernel that computes with it.
fn of_mixed_precision(trials: &Trials<'_>, case: &Case, setting: Setting) -> CliResult<(Cause, Setting)> {
    let count = default_pipeline(&setting.pipeline).len();
    let module = trials.behind_passes(&case.module, &setting.pipeline, count)?;
    let rounded = trials.run_on_cpu(case, &module, "the graph with f16, on the interpreter")?;
    match rounded.agrees() {
        true => of_kernels(trials, case, setting),
        false => Ok((precision::wrong_precision(trials, case, &setting)?, setting)),
    }
}

/// The graph behind all passes is right.
fn of_kernels(trials: &Trials<'_>, case: &Case, setting: Setting) -> CliResult<(Cause, Setting)> {
    match rules::wrong_rule(trials, case, &setting)? {
        Some(cause) => Ok((cause, setting)),
        None => Ok((nodes::wrong_node(trials, case, &setting)?, setting)),
    }
}

fn report(
    trials: &Trials<'_>,
    asked: &Outcome,
    cause: Option<&Cause>,
    reproducer: Option<&Reproducer>,
) -> CliResult<()> {
    let a = trials.a;
    let tried = trials.tried.borrow();
    let rows = tried.iter().map(|t| {
        let used = Some(t.outcome.used).filter(|u| u.is_finite());
        json!({ "what": t.what, "agrees": t.outcome.agrees(), "tolerance_used": used })
    });
    let json = json!({ "schema": 1, "model": a.model, "pass": asked.agrees(), "device": crate::device::describe(trials.device),
        "against": a.against, "why": asked.why, "cause": cause.map(Cause::to_json), "tried": rows.collect::<Vec<_>>(),
        "reproducer": reproducer.map(Reproducer::to_json) });
    if !write_json(&a.common, &json)? {
        let mut t = table(&["", "tried", "difference"]);
        for row in tried.iter() {
            t.add_row([verdict(row.outcome.agrees()), row.what.as_str().into(), row.outcome.text().into()]);
        }
        show_table(&t)?;
        let found = cause.map(|c| format!("cause: {}", c.text()));
        let agreed = format!("the results agree with {}: there is nothing to find", a.against);
        print_text(&found.unwrap_or(agreed))?;
        reproducer.map_or(Ok(()), |r| print_text(&r.text()))?;
    }
    let Some(why) = &asked.why else { return Ok(()) };
    Err(CliError::new(Code::Check, format!("results differ: {why}")))
}
