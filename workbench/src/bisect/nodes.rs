//! The first node of the model, in the order in which they run, whose result is wrong.

use super::cause::Cause;
use super::trial::{Case, Setting, Trials};
use crate::arrays::Named;
use crate::compare::nodes::observed_nodes;
use crate::error::Result;
use crate::values_by_name::{NamedValue, exact_values, results_of, with_results};
use compiler::agreement::agree;
use compiler::graph::{Function, Module, NodeId};
use compiler::name::Name;
use compiler::passes::{FuseMode, LayoutMode};
use compiler::tensor::Tensor;

/// A node's name and op.
pub type Found = (Name, String);

fn found(f: &Function, n: NodeId) -> Found {
    (f.nodes[n].name, f.nodes[n].op.name().to_string())
}

/// Where passes and schedules are right: the first node whose kernel is wrong, and an option that helps.
///
/// # Errors
/// An error of compilation or of a run.
pub fn wrong_node(trials: &Trials<'_>, case: &Case, setting: &Setting) -> Result<Cause> {
    let found =
        first_wrong_node(trials, case, |exposed| Ok(trials.session(exposed, setting)?.run_in_order(&case.inputs)?))?;
    let remedies: [(&'static str, fn(&mut Setting)); 2] = [
        ("--fuse off", |s| s.pipeline.fuse = FuseMode::Off),
        ("--layout none", |s| s.pipeline.layout = LayoutMode::None),
    ];
    let mut remedy = None;
    for (option, change) in remedies {
        let mut changed = setting.clone();
        change(&mut changed);
        if trials.run(case, &changed, &format!("with {option}"))?.agrees() {
            remedy = Some(option);
            break;
        }
    }
    Ok(Cause::Node { found, remedy })
}

/// The first node whose result differs from that of the interpreter, where `run` gives the results of the model with
/// those of all nodes behind its own.
///
/// # Errors
/// An error of `run`, and of the run on the interpreter.
pub fn first_wrong_node(
    trials: &Trials<'_>,
    case: &Case,
    run: impl FnOnce(&Module) -> Result<Vec<Tensor>>,
) -> Result<Option<Found>> {
    let f = case.module.main();
    let nodes = observed_nodes(&case.module);
    let shown: Vec<NamedValue> = nodes.iter().map(|&n| (f.nodes[n].name, f.nodes[n].outputs[0])).collect();
    let wanted = |v| shown.iter().any(|s| s.1 == v);
    let (exact, _) = exact_values(&case.module, &case.inputs, &trials.a.settings, wanted)?;
    let got = run(&with_results(&case.module, &shown))?;
    let inner = &got[got.len() - nodes.len()..];
    let wrong = nodes.iter().zip(inner).find(|(n, t)| {
        let want = exact.get(&f.nodes[**n].outputs[0]);
        want.is_some_and(|want| !agree(t, want, &trials.tolerance(t.dtype())).pass)
    });
    Ok(wrong.map(|(&n, _)| found(f, n)))
}

/// The first tensor of the reference that the interpreter computes otherwise, where the reference has inner ones.
///
/// # Errors
/// An error of the run.
pub fn first_departure(trials: &Trials<'_>, case: &Case, reference: &Named) -> Result<Option<Found>> {
    let f = case.module.main();
    let (exact, _) = exact_values(&case.module, &case.inputs, &trials.a.settings, |_| true)?;
    let differs = |&(name, v): &NamedValue| {
        let want = reference.iter().find(|r| r.0 == name.as_str()).map(|r| &r.1);
        let got = exact.get(&v);
        got.zip(want).is_some_and(|(got, want)| !agree(got, want, &trials.tolerance(got.dtype())).pass)
    };
    let wrong = observed_nodes(&case.module).into_iter().find(|&n| results_of(f, n).iter().any(differs));
    Ok(wrong.map(|n| found(f, n)))
}
