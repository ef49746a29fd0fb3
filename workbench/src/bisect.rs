//! The cause of a wrong result.
//!
//! First it is decided whether results differ. Then settings are tried that each take one thing away: mixed precision,
//! then passes (the graph behind each runs on the interpreter), then schedule rules (function by function), then fusion
//! and layouts. What is found is bisected: the first node in f16, the first pass, the first function, the first node
//! whose result is wrong. Last, the smallest part that is wrong by itself is written with its inputs and a command
//! line.

mod cause;
mod nodes;
mod passes;
mod precision;
pub mod record;
mod reproducer;
mod request;
mod rules;
mod trial;

use crate::arrays::{Named, read_npz};
use crate::error::{Code, Error, Result};
use crate::executor::{Device, calibrated_pipeline, interpret_watched, open_device, profile_on};
use crate::models::{Chance, inputs_for, load, short_name};
use crate::precision::rounded_as_there;
use crate::progress::go_on;
use cause::Cause;
use compiler::passes::{AmpMode, default_pipeline};
pub use record::Bisection;
use reproducer::Reproducer;
pub use request::{Request, Right};
use std::cell::RefCell;
use std::path::{Path, PathBuf};
pub use trial::Tried;
use trial::{Case, Outcome, Setting, Trials};

impl Bisection {
    /// The error of results that are wrong.
    pub fn failure(&self) -> Option<Error> {
        let stopped = if self.stopped { "; it was stopped before the cause was found" } else { "" };
        self.why.as_ref().map(|why| Error::new(Code::Check, format!("results differ: {why}{stopped}")))
    }
}

impl Trials<'_> {
    fn finish(self, asked: &Outcome, cause: Option<Cause>, reproducer: Option<Reproducer>) -> Bisection {
        Bisection {
            model: self.a.model.clone(),
            pass: asked.agrees(),
            device: crate::device::describe(self.device),
            against: self.a.right.against.clone(),
            why: asked.why.clone(),
            stopped: !asked.agrees() && cause.is_none(),
            cause: cause.as_ref().map(Cause::record),
            tried: self.tried.into_inner(),
            reproducer,
        }
    }
}

/// Looks for what makes a result wrong. A search that is stopped gives what it has tried so far.
///
/// # Errors
/// A reference that would be held against itself; what loading, compiling and running say.
pub fn bisect(a: &Request) -> Result<Bisection> {
    let given = crate::inputs::given(&a.input, &a.model, &a.settings)?;
    let module = load(&a.model, &a.settings, given.as_ref())?;
    let inputs = inputs_for(&module, given.as_ref(), &a.settings)?;
    let chance = Chance::of(&module, &inputs, given.as_ref());
    let device = open_device(&a.settings)?;
    refuse_itself(a, &device)?;
    let profile = profile_on(&a.settings, &device)?;
    let (pipeline, _) = calibrated_pipeline(&module, &a.settings, &profile, &inputs).map_err(|e| chance.blamed(e))?;
    let (module, rounded) = rounded_as_there(module, &a.settings, &pipeline, &profile)?;
    let setting = Setting { pipeline, schedules: a.settings.schedules.0.clone(), settings: a.settings.clone() };
    let exact = interpret_watched(&module, &inputs, &a.settings, "reference", |_, _, _| ());
    let exact = exact.map_err(|e| chance.blamed(e))?;
    let exact: Named = module.main().result_names.iter().map(|n| n.to_string()).zip(exact).collect();
    let want = reference(a, &exact)?;
    let case = Case { module, inputs, want };
    let session = {
        let whole = Trials { a, device: &device, profile: &profile, half: false, tried: RefCell::default() };
        whole.session(&case.module, &setting)?
    };
    let half = rounded || session.is_mixed();
    let trials = Trials { a, device: &device, profile: &profile, half, tried: RefCell::default() };
    let got = session.run_in_order(&case.inputs)?;
    drop(session);
    let asked = trials.judge(&case, case.names().iter().zip(&got), "as asked")?;
    if asked.agrees() {
        return Ok(trials.finish(&asked, None, None));
    }
    let (cause, setting) = match find(&trials, &case, &exact, setting) {
        Err(_) if go_on(&a.settings).is_err() => return Ok(trials.finish(&asked, None, None)),
        found => found?,
    };
    let around = cause.nodes();
    let folder = folder(a);
    let written = match cause {
        // Its part would be held against a reference that the interpreter does not give.
        Cause::Model { .. } => None,
        _ => reproducer::write(&trials, &case.against(exact), &setting, &around, &folder)?,
    };
    Ok(trials.finish(&asked, Some(cause), written))
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
fn refuse_itself(a: &Request, device: &Device) -> Result<()> {
    if !(matches!(device, Device::Interpreter) && a.settings.amp == "off" && a.right.is_reference()) {
        return Ok(());
    }
    Err(Error::usage("--against reference in the interpreter with --amp off holds a thing against itself")
        .help("choose another --device (`weft devices` lists what is there), --amp fp16, or a file of results"))
}

/// The right results: those of the interpreter, or a file's.
fn reference(a: &Request, exact: &Named) -> Result<Named> {
    match a.right.against.as_str() {
        _ if !a.right.results.is_empty() => Ok(a.right.results.clone()),
        "reference" => Ok(exact.clone()),
        file if Path::new(file).exists() => Ok(read_npz(Path::new(file))?),
        file => Err(Error::usage(format!("--against {file}: needs reference, or a file of results that exists"))),
    }
}

fn folder(a: &Request) -> PathBuf {
    a.folder.clone().unwrap_or_else(|| PathBuf::from(format!("{}-bisect", short_name(&a.model).replace(':', "-"))))
}

/// The cause, and the simplest setting in which it shows.
fn find(trials: &Trials<'_>, case: &Case, exact: &Named, asked: Setting) -> Result<(Cause, Setting)> {
    if !trials.a.right.is_reference() {
        let tensors: Vec<_> = exact.iter().map(|e| e.1.clone()).collect();
        let on_cpu =
            trials.judge(case, case.names().iter().zip(&tensors), "the model as it came, on the interpreter")?;
        if !on_cpu.agrees() {
            return Ok((Cause::Model { node: nodes::first_departure(trials, case, &case.want)? }, asked));
        }
    }
    let mut setting = asked;
    if trials.half && setting.pipeline.amp != AmpMode::Off {
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

/// Without mixed precision the results are right: what is stored in f16 makes them wrong, or a kernel that computes
/// with it.
fn of_mixed_precision(trials: &Trials<'_>, case: &Case, setting: Setting) -> Result<(Cause, Setting)> {
    let count = default_pipeline(&setting.pipeline).len();
    let module = trials.behind_passes(&case.module, &setting.pipeline, count)?;
    let rounded = trials.run_on_cpu(case, &module, "the graph with f16, on the interpreter")?;
    match rounded.agrees() {
        true => of_kernels(trials, case, setting),
        false => Ok((precision::wrong_precision(trials, case, &setting)?, setting)),
    }
}

/// The graph behind all passes is right.
fn of_kernels(trials: &Trials<'_>, case: &Case, setting: Setting) -> Result<(Cause, Setting)> {
    match rules::wrong_rule(trials, case, &setting)? {
        Some(cause) => Ok((cause, setting)),
        None => Ok((nodes::wrong_node(trials, case, &setting)?, setting)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inputs::Inputs;
    use crate::settings::Settings;
    use crate::watcher::{Watched, Watcher};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// Stops the work behind so many trials.
    struct StopsBehind(usize, AtomicUsize);

    impl Watcher for StopsBehind {
        fn says(&self, text: &str) {
            self.1.fetch_add(usize::from(text.starts_with("bisect: ")), Ordering::Relaxed);
        }
        fn stops(&self) -> bool {
            self.1.load(Ordering::Relaxed) >= self.0
        }
    }

    /// The search of a network that overflows in f16, stopped behind so many trials.
    fn stopped_behind(trials: usize, folder: &Path) -> Bisection {
        let shades = Path::new(env!("CARGO_MANIFEST_DIR")).join("../cli/tests/transcripts/shades");
        let settings = Settings {
            amp: "fp16".into(),
            device: "interpreter".into(),
            watch: Watched(Arc::new(StopsBehind(trials, AtomicUsize::new(0)))),
            ..Settings::default()
        };
        let input = Inputs { files: vec![shades.join("glare.npy").display().to_string()], ..Inputs::default() };
        let model = shades.with_extension("weft").display().to_string();
        let request = Request { model, input, folder: Some(folder.into()), settings, ..Request::default() };
        bisect(&request).map_err(|e| e.message).expect("a bisection")
    }

    #[test]
    fn a_search_that_is_stopped_keeps_what_was_tried() {
        let folder = tempfile::tempdir().expect("a folder");
        let whole = stopped_behind(usize::MAX, folder.path());
        assert!(!whole.stopped && whole.cause.is_some() && whole.tried.len() > 2, "{whole:?}");
        for trials in 1..3 {
            let found = stopped_behind(trials, folder.path());
            assert!(found.stopped && found.cause.is_none() && !found.pass, "{found:?}");
            assert_eq!(found.tried, whole.tried[..trials]);
        }
    }
}
