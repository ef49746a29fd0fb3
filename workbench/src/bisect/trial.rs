//! One run of a model in one setting, held against what is right.

use super::request::Request;
use crate::arrays::Named;
use crate::compare::reference_of;
use crate::error::Result;
use crate::executor::{Device, execute_with, interpret_watched};
use crate::progress::{go_on, log};
use crate::settings::Schedules;
use crate::settings::Settings;
use compiler::agreement::{Tolerance, agree};
use compiler::compile::Compiled;
use compiler::cost::EstimatedCost;
use compiler::dtype::DType;
use compiler::graph::Module;
use compiler::passes::{AmpMode, PassContext, PipelineOptions, Sequential, default_pipeline};
use compiler::profile::DeviceProfile;
use compiler::schedule::ScheduleProvider;
use compiler::tensor::Tensor;
use schemars::JsonSchema;
use serde::Serialize;
use std::cell::RefCell;
use std::sync::Arc;
use weft::Session;

/// How a model is compiled.
#[derive(Clone)]
pub struct Setting {
    /// Passes and modes.
    pub pipeline: PipelineOptions,
    /// Who schedules, if not the rules.
    pub schedules: Option<Arc<dyn ScheduleProvider>>,
    /// Options that are neither.
    pub settings: Settings,
}

/// A model with inputs and the right results.
pub struct Case {
    pub module: Module,
    pub inputs: Vec<Tensor>,
    pub want: Named,
}

/// How far results are from the right ones.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The largest share of the tolerance; above 1 they differ.
    pub used: f64,
    /// Where and how they differ; `None` where they agree.
    pub why: Option<String>,
}

impl Outcome {
    /// They are right.
    pub fn agrees(&self) -> bool {
        self.why.is_none()
    }
}

/// A setting that was tried.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Tried {
    /// In words.
    pub what: String,
    /// With the right results.
    pub agrees: bool,
    /// Null where a result is not finite or has another shape.
    pub tolerance_used: Option<f64>,
}

impl Tried {
    /// `0.03 of the tolerance`
    pub fn difference(&self) -> String {
        let used = self.tolerance_used.map(|used| format!("{used:.2} of the tolerance"));
        used.unwrap_or_else(|| "not finite, or of another shape".into())
    }
}

/// Runs cases on a device, and keeps what came out.
pub struct Trials<'a> {
    pub a: &'a Request,
    pub device: &'a Device,
    pub profile: &'a DeviceProfile,
    /// The tolerance is that of f16.
    pub half: bool,
    pub tried: RefCell<Vec<Tried>>,
}

impl Trials<'_> {
    /// Compiles and runs the case in this setting.
    ///
    /// # Errors
    /// An error of compilation or of the run.
    pub fn run(&self, case: &Case, setting: &Setting, what: &str) -> Result<Outcome> {
        self.run_compiled(case, setting, what, |_| ())
    }

    /// As [`Trials::run`]; `look` sees what was compiled, where it was compiled as a whole.
    ///
    /// # Errors
    /// As there.
    pub fn run_compiled(
        &self,
        case: &Case,
        setting: &Setting,
        what: &str,
        look: impl FnOnce(&Compiled),
    ) -> Result<Outcome> {
        go_on(&self.a.settings)?;
        let session = self.session(&case.module, setting)?;
        session.compilation().map(look);
        let got = session.run_in_order(&case.inputs)?;
        self.judge(case, session.output_names().iter().zip(&got), what)
    }

    /// The module compiled in this setting.
    ///
    /// # Errors
    /// An error of compilation.
    pub fn session(&self, module: &Module, setting: &Setting) -> Result<Session> {
        let settings = Settings { schedules: Schedules(setting.schedules.clone()), ..setting.settings.clone() };
        execute_with(module.clone(), setting.pipeline.clone(), &settings, self.device, self.profile, false)
    }

    /// The module behind the first `count` passes of the setting's pipeline.
    ///
    /// # Errors
    /// An error of a pass.
    pub fn behind_passes(&self, module: &Module, pipeline: &PipelineOptions, count: usize) -> Result<Module> {
        let mut module = module.clone();
        let mut cx = PassContext::new(self.profile.clone());
        pipeline.configure(&mut cx);
        cx.cost_model = Some(Arc::new(EstimatedCost::within(cx.target(), module.dims.clone())));
        let list = default_pipeline(pipeline);
        Sequential::new(&list[..count]).run(&mut module, &mut cx).map_err(compiler::compile::CompileError::from)?;
        Ok(module)
    }

    /// Runs `module`, which is the case's behind some passes, on the interpreter.
    ///
    /// # Errors
    /// An error of the run.
    pub fn run_on_cpu(&self, case: &Case, module: &Module, what: &str) -> Result<Outcome> {
        go_on(&self.a.settings)?;
        let got = interpret_watched(module, &case.inputs, &self.a.settings, "bisect", |_, _, _| ())?;
        let names: Vec<String> = module.main().result_names.iter().map(|n| n.to_string()).collect();
        self.judge(case, names.iter().zip(&got), what)
    }

    /// Holds results against the right ones, and notes what came out of `what`.
    pub fn judge<'t>(
        &self,
        case: &Case,
        got: impl Iterator<Item = (&'t String, &'t Tensor)>,
        what: &str,
    ) -> Result<Outcome> {
        let mut outcome = Outcome { used: 0.0, why: None };
        for (name, t) in got {
            let d = agree(t, reference_of(&case.want, name)?, &self.tolerance(t.dtype()));
            outcome.used = outcome.used.max(d.used);
            if !d.pass && outcome.why.is_none() {
                outcome.why = Some(format!("{name}: {}", d.why));
            }
        }
        self.note(what, &outcome);
        Ok(outcome)
    }

    /// Notes what came out of a setting.
    fn note(&self, what: &str, outcome: &Outcome) {
        let verdict = if outcome.agrees() { "agrees" } else { "differs" };
        let tolerance_used = Some(outcome.used).filter(|u| u.is_finite());
        let tried = Tried { what: what.to_string(), agrees: outcome.agrees(), tolerance_used };
        log(&self.a.settings, format!("bisect: {what}: {verdict}, {}", tried.difference()));
        self.tried.borrow_mut().push(tried);
    }

    pub fn tolerance(&self, dtype: DType) -> Tolerance {
        Tolerance::new(if self.half { DType::F16 } else { dtype }, self.a.right.rtol, self.a.right.atol)
    }
}

impl Setting {
    /// The same without mixed precision.
    pub fn in_f32(&self) -> Setting {
        let pipeline = PipelineOptions { amp: AmpMode::Off, keep_f32: vec![], ..self.pipeline.clone() };
        let settings = Settings { amp: "off".into(), keep_f32: vec![], ..self.settings.clone() };
        Setting { pipeline, settings, ..self.clone() }
    }
}

/// The first of 1..=`count` for which `is_wrong` holds: it does not for 0, does for `count`, and is asked as often as a
/// bisection asks.
///
/// # Errors
/// An error of `is_wrong`.
pub fn first_wrong(count: usize, mut is_wrong: impl FnMut(usize) -> Result<bool>) -> Result<usize> {
    let (mut right, mut wrong) = (0, count);
    while wrong - right > 1 {
        let middle = right + (wrong - right) / 2;
        if is_wrong(middle)? {
            wrong = middle;
        } else {
            right = middle;
        }
    }
    Ok(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bisection_asks_seldom() {
        for bad in 1..=100 {
            let mut asked = 0;
            let found = first_wrong(100, |i| {
                asked += 1;
                Ok(i >= bad)
            });
            assert_eq!(found.map_err(|e| e.message), Ok(bad));
            assert!(asked <= 7, "{asked}");
        }
    }
}
