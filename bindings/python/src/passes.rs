//! Passes in Python: functions of a `Module`.

use crate::errors::{Raised, usage};
use crate::graph::{Module, verified};
use crate::interrupt::calling;
use crate::nodes::Held;
use pyo3::prelude::*;
use weft::extend::{self, Attrs, OwnPass, PassContext, PassError, Sequential};

/// A step of `Model.passed`.
pub enum Step {
    Named(Vec<(String, Attrs)>),
    Own(OwnPass),
}

impl Step {
    /// Names of passes with their options, or a function.
    ///
    /// # Errors
    /// Neither; a text that does not parse.
    pub fn of(pass: &Bound<'_, PyAny>, raised: &Raised) -> PyResult<Step> {
        match pass.extract::<String>() {
            Ok(text) => extend::parse_pipeline(&text).map(Step::Named).map_err(|e| {
                usage(e.to_string(), "a pass is written as in `weft opt --passes`: \"fuse-ops {max_group=4}\"")
            }),
            Err(_) => own_pass(pass, "own-pass", raised).map(Step::Own),
        }
    }
}

/// The model behind these passes.
///
/// # Errors
/// A pass that there is not, or that fails.
pub fn run_steps(model: weft::Model, steps: &[Step]) -> Result<weft::Model, weft::Error> {
    let mut cx = PassContext { opt_level: 3, ..PassContext::default() };
    let sequence = steps.iter().fold(Sequential::default(), |s, step| match step {
        Step::Named(list) => list.iter().fold(s, |s, (name, options)| s.then_with(name, options.clone())),
        Step::Own(pass) => s.then(pass.clone()),
    });
    model.changed(|module| sequence.run(module, &mut cx).map(drop))
}

/// The passes that `passes=` of `weft_nn.compile` names: functions, or pairs of a function and the name of the pass
/// that it runs before.
///
/// # Errors
/// Something that is neither.
pub fn own_passes(list: &[Bound<'_, PyAny>], raised: &Raised) -> PyResult<Vec<OwnPass>> {
    let one = |(i, given): (usize, &Bound<'_, PyAny>)| match given.extract::<(Bound<'_, PyAny>, String)>() {
        Ok((function, before)) => Ok(own_pass(&function, &format!("own-pass-{i}"), raised)?.before(before)),
        Err(_) => own_pass(given, &format!("own-pass-{i}"), raised),
    };
    list.iter().enumerate().map(one).collect()
}

/// A function as a pass. Its name is that of the function, after `fallback`, which is unique.
fn own_pass(function: &Bound<'_, PyAny>, fallback: &str, raised: &Raised) -> PyResult<OwnPass> {
    if !function.is_callable() {
        let help = "a pass is a function of a weft_nn.Module, or a pair (function, \"name of the pass behind it\")";
        return Err(usage(format!("{} is no pass", function.repr()?), help));
    }
    let own = function.getattr("__name__").and_then(|n| n.extract::<String>()).unwrap_or_default();
    let name = format!("{fallback}-{own}");
    let (function, raised, of) = (function.clone().unbind(), raised.clone(), name.clone());
    let run = move |module: &mut extend::Module, _: &mut PassContext| {
        let failed = |why: String| PassError::request(&of, why);
        let held = Held::new(std::mem::replace(module, extend::Module::new("main")));
        let called = calling(|py| {
            let seen = Module { held: held.clone() };
            function.call1(py, (seen,)).map(drop).map_err(|e| raised.keep(py, e))
        });
        if let Some(after) = held.take() {
            *module = after;
        }
        called.map_err(failed)?;
        verified(module).map_err(|why| failed(format!("it left an invalid module: {why}")))?;
        Ok(true)
    };
    Ok(OwnPass::new(name.as_str(), run))
}
