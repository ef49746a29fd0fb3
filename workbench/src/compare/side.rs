//! The two sides of a comparison: what ran where, and its results.

use super::peer::Answer;
use super::request::Request;
use super::steps::without_ties;
use crate::arrays::{Named, read_npz};
use crate::device::DeviceRecord;
use crate::error::{Code, Error, Result};
use crate::executor::{Device, INTERPRETER, execute, interpret_watched};
use crate::match_models::refuse_other_inputs;
use crate::models::load;
use crate::progress::{log, log_once};
use crate::settings::Settings;
use compiler::agreement::{Difference, Tolerance, agree};
use compiler::dtype::DType;
use compiler::graph::Module;
use compiler::name::Name;
use compiler::profile::Nan;
use compiler::tensor::Tensor;
use schemars::JsonSchema;
use serde::Serialize;
use std::path::Path;

/// Refuses comparisons of a side with itself that are recognised without a run.
pub fn refuse_itself(a: &Request) -> Result<()> {
    if a.peer.is_some() {
        return Ok(());
    }
    let same = match a.against.against.as_str() {
        "fp32" => a.settings.amp == "off",
        "reference" => a.settings.amp == "off" && a.settings.device == "interpreter",
        _ => false,
    };
    if !same {
        return Ok(());
    }
    let help = match a.against.against.as_str() {
        "fp32" => "ask for --amp fp16 or auto, or compare with `reference` or a file of results",
        _ => "choose another --device (`weft devices` lists what is there), --amp fp16, or a file of results",
    };
    let asked = if a.against.against == "reference" { " --device interpreter" } else { "" };
    Err(Error::usage(format!("--against {} with --amp off{asked} holds a thing against itself", a.against.against))
        .help(help))
}

/// Mixed precision was requested but has put nothing into f16 (by a keep list, by calibration, or since the pass does
/// not run), and the reference is f32 on the same device. Without mixed precision the sides differ by their devices,
/// which is known after the run.
pub fn is_all_in_f32(a: &Request, device: &Device, mixed: bool) -> bool {
    let same_place =
        a.against.against == "fp32" || a.against.against == "reference" && matches!(device, Device::Interpreter);
    !mixed && same_place && a.settings.amp != "off" && a.peer.is_none()
}

/// Refuses to compare f32 with f32. True if there is nothing to compare, since `--amp auto` has chosen f32.
///
/// # Errors
/// With `--amp fp16`: a keep list, or the passes that run, have undone what was asked for.
pub fn refuse_all_in_f32(a: &Request, device: &Device, mixed: bool) -> Result<bool> {
    if !is_all_in_f32(a, device, mixed) {
        return Ok(false);
    }
    if a.settings.amp == "auto" {
        return Ok(true);
    }
    let text = format!(
        "--amp {} leaves every node in f32 here, so that --against {} holds a thing against itself",
        a.settings.amp, a.against.against
    );
    Err(Error::usage(text)
        .help("`weft explain MODEL` with the same options says why each node stays in f32; keep fewer of them there"))
}

/// One side of a comparison.
#[derive(Clone, PartialEq, Debug, Default, Serialize, JsonSchema)]
pub struct Side {
    /// The device; none for a file.
    device: Option<DeviceRecord>,
    /// Where its steps ran: `device`, `device and host`, `host`, `interpreter`.
    place: Option<&'static str>,
    /// Mixed precision; `off` where it has put nothing into f16.
    amp: Option<String>,
    /// The file that it was read from.
    file: Option<String>,
}

impl Side {
    /// The results of a run. If the device could not run the model, the interpreter did.
    pub fn of_run(device: &Device, place: &'static str, amp: &str) -> Side {
        let device = if place == INTERPRETER {
            crate::device::describe(&Device::Interpreter)
        } else {
            crate::device::describe(device)
        };
        Side { device: Some(device), place: Some(place), amp: Some(amp.into()), file: None }
    }
    /// The results of another runtime; its name stands where a file's would.
    fn of_peer(name: &str) -> Side {
        Side::of_file(name)
    }
    fn of_file(path: &str) -> Side {
        Side { device: None, place: None, amp: None, file: Some(path.into()) }
    }
    /// As the command shows it.
    pub fn name(&self) -> String {
        let device = self.device.as_ref().map_or("", |d| &d.name);
        match (&self.file, self.amp.as_deref()) {
            (Some(file), _) => file.clone(),
            (None, Some("off") | None) => format!("{device}, fp32"),
            (None, Some(amp)) => format!("{device}, --amp {amp}"),
        }
    }
    /// Refuses a comparison of `self` with itself, which the device's missing or being unable has led to.
    fn differs_from(&self, other: &Side) -> Result<()> {
        if self != other {
            return Ok(());
        }
        let text = format!("no device ran the model: {} would be held against itself", self.name());
        Err(Error::new(Code::Device, text)
            .help("`weft devices` lists what is there; -v says why the device was not used"))
    }
}

/// The reference of a comparison.
pub enum Reference {
    /// The module in the interpreter, in f32.
    Interpreter,
    /// The module on the same device, in f32.
    Plain(Box<weft::Session>),
    /// Results in a file.
    File(Named, String),
    /// Results of another runtime.
    Peer(Answer),
    /// Another model in the interpreter, and its file.
    Model(Box<Module>, String),
}

impl Reference {
    /// The reference of `--against`. `inputs` are of the shapes that runs will have.
    ///
    /// # Errors
    /// A missing file, a file without results, or an error of the compilation.
    pub fn open(a: &Request, module: &Module, device: &Device, inputs: &[Tensor]) -> Result<Reference> {
        if let Some(peer) = &a.peer {
            return Ok(Reference::Peer(peer.run(&a.model, module, inputs, &a.settings)?));
        }
        match a.against.against.as_str() {
            "reference" => Ok(Reference::Interpreter),
            "fp32" => {
                let plain = Settings { amp: "off".into(), keep_f32: vec![], ..a.settings.clone() };
                Ok(Reference::Plain(Box::new(execute(module.clone(), &plain, device, inputs)?)))
            }
            file if !Path::new(file).exists() => {
                Err(Error::usage(format!("--against {file}: needs reference, fp32, or a file of results or a model")))
            }
            file if a.against.is_model() => {
                let other = load(file, &a.settings, None)?;
                refuse_other_inputs(module, &other)?;
                let [own, its] = [module, &other].map(|m| m.main().result_names.len());
                if own != its {
                    return Err(Error::usage(format!("--against {file}: it has {its} results, the model {own}")));
                }
                Ok(Reference::Model(Box::new(other), file.into()))
            }
            file => Ok(Reference::File(read_npz(Path::new(file))?, file.into())),
        }
    }
    /// The other model, if it is one, with its file.
    pub fn model(&self) -> Option<(&Module, &str)> {
        if let Reference::Model(m, file) = self { Some((m, file)) } else { None }
    }
    /// The median of another runtime's runs, in milliseconds.
    pub fn ms(&self) -> Option<f64> {
        if let Reference::Peer(answer) = self { Some(answer.ms) } else { None }
    }
    /// The results by name, and whose they are.
    ///
    /// # Errors
    /// An error of a run; or the reference is `result` itself.
    pub fn run(
        &self,
        settings: &Settings,
        module: &Module,
        device: &Device,
        inputs: &[Tensor],
        result: &Side,
    ) -> Result<(Named, Side)> {
        match self {
            Reference::Interpreter => {
                let side = Side::of_run(&Device::Interpreter, INTERPRETER, "off");
                result.differs_from(&side)?;
                let results = interpret_watched(module, inputs, settings, "reference", |_, _, _| ())?;
                let names = module.main().result_names.iter().map(|n| n.to_string());
                Ok((names.zip(results).collect(), side))
            }
            Reference::Plain(e) => {
                let (results, place) = e.run_unchecked(inputs)?;
                let side = Side::of_run(device, place, "off");
                result.differs_from(&side)?;
                Ok((e.output_names().into_iter().zip(results).collect(), side))
            }
            Reference::File(results, path) => Ok((results.clone(), Side::of_file(path))),
            Reference::Model(other, file) => {
                let results = interpret_watched(other, inputs, settings, "reference", |_, _, _| ())?;
                let names = |m: &Module| -> Vec<String> { m.main().result_names.iter().map(Name::to_string).collect() };
                let [own, its] = [names(module), names(other)];
                // Another exporter may give results other names: then their order counts.
                let names = if own.iter().all(|n| its.contains(n)) { its } else { own };
                Ok((names.into_iter().zip(results).collect(), Side::of_file(file)))
            }
            Reference::Peer(answer) => Ok((answer.results.clone(), Side::of_peer(&answer.name))),
        }
    }
}

/// Each result against the reference's of its name. With `mixed` precision the tolerance is that of f16, else that of
/// the result's type.
///
/// # Errors
/// A result that the reference lacks.
pub fn differences(
    a: &Request,
    names: &[String],
    got: &[Tensor],
    want: &Named,
    mixed: bool,
) -> Result<Vec<(String, Difference)>> {
    let one = |(name, t): (&String, &Tensor)| {
        let tolerance = Tolerance::new(if mixed { DType::F16 } else { t.dtype() }, a.against.rtol, a.against.atol);
        Ok((name.clone(), agree(t, reference_of(want, name)?, &tolerance)))
    };
    names.iter().zip(got).map(one).collect()
}

/// As [`differences`], but of quantised results, with `steps` between their values, a few elements may lie one step
/// beside another runtime's, whose numbers before rounding nobody knows.
///
/// # Errors
/// A result that the reference lacks.
pub fn with_ties(
    a: &Request,
    names: &[String],
    got: &[Tensor],
    want: &Named,
    (mixed, steps): (bool, &[Option<f64>]),
) -> Result<Vec<(String, Difference)>> {
    let mut rows = differences(a, names, got, want, mixed)?;
    for ((i, (name, d)), t) in rows.iter_mut().enumerate().zip(got) {
        let tolerance = Tolerance::new(if mixed { DType::F16 } else { t.dtype() }, a.against.rtol, a.against.atol);
        let Some(step) = steps.get(i).copied().flatten().filter(|_| !d.pass) else { continue };
        let ties = without_ties(t, reference_of(want, name)?, step, &tolerance);
        let Some((other, count)) = ties.filter(|(other, _)| other.pass) else { continue };
        let all = t.shape().iter().product::<usize>();
        let text = format!("{count} of {all} elements lie one step of {step} beside the reference: ties of rounding");
        log(&a.settings, format!("note: {name}: {text}"));
        (d.pass, d.used, d.why) = (true, other.used, String::new());
    }
    Ok(rows)
}

/// The reference's result of the name `name`.
///
/// # Errors
/// There is none.
pub fn reference_of<'a>(want: &'a Named, name: &str) -> Result<&'a Tensor> {
    let found = want.iter().find(|(n, _)| n == name).map(|(_, t)| t);
    found.ok_or_else(|| Error::input(format!("the reference has no output `{name}`")))
}

/// A comparison that passes says less where kernels may lose a NaN.
pub fn warn_of_lost_nan(a: &Request) {
    if a.settings.nan == Nan::Fast.name() {
        let text = "warning: --nan fast: these kernels may hide a NaN; without it Max, Min, Relu, Clip, Sign and pools keep it";
        log_once(&a.settings, text);
    }
}
