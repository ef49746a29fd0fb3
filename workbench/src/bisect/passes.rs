//! The first pass that changes what the network computes. The interpreter runs the graph behind each pass, so that no
//! kernel has a part in it.

use super::cause::Cause;
use super::nodes::first_wrong_node;
use super::trial::{Case, Setting, Trials, first_wrong};
use crate::error::Result;
use crate::executor::interpret_watched;
use compiler::passes::{PipelineOptions, default_pipeline};

/// Looks for a pass behind which the graph gives other results; `None` where no pass does.
///
/// # Errors
/// An error of a pass or of a run.
pub fn wrong_pass(trials: &Trials<'_>, case: &Case, setting: &Setting) -> Result<Option<Cause>> {
    let list = default_pipeline(&setting.pipeline);
    let behind = |count: usize| {
        let module = trials.behind_passes(&case.module, &setting.pipeline, count)?;
        let what = match count.checked_sub(1) {
            None => "the graph as it came, on the interpreter".to_string(),
            Some(last) => format!("the graph behind pass {count}, {}, on the interpreter", list[last]),
        };
        trials.run_on_cpu(case, &module, &what)
    };
    if list.is_empty() || behind(list.len())?.agrees() {
        return Ok(None);
    }
    let at = first_wrong(list.len(), |count| Ok(!behind(count)?.agrees()))?;
    let pass = &list[at - 1];
    let mut without = setting.clone();
    without.pipeline = PipelineOptions {
        disabled: [setting.pipeline.disabled.clone(), vec![pass.clone()]].concat(),
        ..setting.pipeline.clone()
    };
    // Some passes cannot be left out: what comes behind them may need them.
    let agrees = trials.run(case, &without, &format!("without the pass {pass}")).is_ok_and(|o| o.agrees());
    // With all results shown a pass may do less: then the pass stands alone.
    let found = first_wrong_node(trials, case, |exposed| {
        let module = trials.behind_passes(exposed, &setting.pipeline, at)?;
        interpret_watched(&module, &case.inputs, &trials.a.settings, "bisect", |_, _, _| ())
    });
    let node = found.ok().flatten();
    Ok(Some(Cause::Pass { node, name: pass.clone(), position: at, of: list.len(), agrees_without: agrees }))
}
