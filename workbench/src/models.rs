//! Models by path or zoo name, with their open dimensions decided, and inputs for them.

mod shapes;
mod values;

pub use shapes::sizes;
pub use values::{Chance, calibration_inputs, inputs_for};

use crate::arrays::Named;
use crate::error::{Code, Error, Result};
use crate::settings::Settings;
use benches::zoo::ZooError;
use compiler::graph::{Module, TensorType, input_ports};
use compiler::int::Dim;
use compiler::name::Name;
use compiler::onnx::ValueKind;

use compiler::passes::{PassContext, Sequential, default_pipeline};
use compiler::tensor::Tensor;
use std::path::Path;
use weft::files::read_onnx;
use weft::plain_files::read_text;
use weft::{Model, Sizes};

/// True when `model` names a file rather than a zoo model.
pub fn is_path(model: &str) -> bool {
    model.contains(['/', '\\', '.']) || Path::new(model).is_file()
}

/// Loads a model and decides its open dimensions from the options and from `inputs`. The rule is the same for every
/// command: a batch is 1, `--dim NAME=A..B` and `--dim NAME=open` keep a size open, any other open size is an error. An
/// ONNX model gets its shapes on import, so that values computed from them are known.
pub fn load(model: &str, settings: &Settings, inputs: Option<&Named>) -> Result<Module> {
    load_with_values(model, settings, inputs, &[])
}

/// As [`load`]; `values` are inputs of an ONNX model that become constants.
pub fn load_with_values(
    model: &str,
    settings: &Settings,
    inputs: Option<&Named>,
    values: &[(Name, Tensor)],
) -> Result<Module> {
    loaded(model, settings, inputs, values, false)
}

/// As [`load`], but a size that no option gives stays open.
pub fn load_kept_open(model: &str, settings: &Settings) -> Result<Module> {
    let sized = settings.batch.is_some() || !settings.dim.is_empty() || !settings.shape.is_empty();
    if sized { loaded(model, settings, None, &[], true) } else { load_open(model, settings) }
}

fn loaded(
    model: &str,
    settings: &Settings,
    inputs: Option<&Named>,
    values: &[(Name, Tensor)],
    keep_open: bool,
) -> Result<Module> {
    if is_onnx(model) {
        let ports = open_ports(model, settings, inputs)?;
        let values = values.iter().map(|(n, t)| (n.to_string(), t.clone())).collect();
        let sizes = Sizes { values, ..sizes(&ports, settings, inputs, keep_open)? };
        sizes.decide(&ports)?;
        let loaded = Model::load_with(model, &sizes).map(Model::into_module).map_err(Error::from);
        return loaded.map_err(|e| shapes::blamed(e, model, settings, &ports));
    }
    let module = load_open(model, settings)?;
    let ports = input_ports(&module);
    let sizes = sizes(&ports, settings, inputs, keep_open)?;
    sizes.decide(&ports)?;
    let sized = Model::from_module(module).with_sizes(&sizes).map(Model::into_module).map_err(Error::from);
    sized.map_err(|e| shapes::blamed(e, model, settings, &ports))
}

/// Names and kinds of a model's inputs and of its results.
pub fn values(model: &str, settings: &Settings) -> Result<[Vec<(String, ValueKind)>; 2]> {
    if is_onnx(model) {
        let (bytes, _) = read_onnx(Path::new(model))?;
        return compiler::onnx::onnx_values(bytes).map_err(|e| Error::from(e).at(model));
    }
    let module = load_open(model, settings)?;
    let results = module.main().result_names.iter().map(|n| (n.to_string(), ValueKind::Tensor)).collect();
    Ok([input_ports(&module).into_iter().map(|p| (p.0.to_string(), ValueKind::Tensor)).collect(), results])
}

fn open_ports(model: &str, settings: &Settings, inputs: Option<&Named>) -> Result<Vec<(Name, TensorType)>> {
    if let Some(bundle) = crate::bundles::find(model)? {
        return Ok(input_ports(bundle.model()?.module()));
    }
    if !is_onnx(model) {
        return Ok(input_ports(&load_open(model, settings)?));
    }
    let (bytes, _) = read_onnx(Path::new(model))?;
    let shapes: Vec<_> = inputs.into_iter().flatten().map(|(n, t)| (Name::new(n), t.shape().to_vec())).collect();
    compiler::onnx::onnx_inputs(bytes, &shapes).map_err(|e| Error::from(e).at(model))
}

/// A model's inputs with the sizes that `--shape`, `--dim` and `--batch` choose; others stay open.
pub fn ports(model: &str, settings: &Settings) -> Result<Vec<(Name, TensorType)>> {
    let ports = open_ports(model, settings, None)?;
    let sizes = sizes(&ports, settings, None, true)?;
    Ok(sizes.decide(&ports)?.types)
}

/// True when `model` names an ONNX file.
pub fn is_onnx(model: &str) -> bool {
    is_path(model) && Path::new(model).extension().is_none_or(|e| e != "weft")
}

/// Loads a model with its open dimensions.
pub fn load_open(model: &str, settings: &Settings) -> Result<Module> {
    let path = Path::new(model);
    if !is_path(model) {
        check_zoo_dims(model, settings)?;
        return build_zoo(model, settings).map_err(|e| match e {
            ZooError::BadBatch(_) => Error::new(Code::Device, e.to_string()).help("give a smaller --batch"),
            _ => Error::input(format!("no model `{model}`: {e}"))
                .help("`weft zoo` lists the built-in models; a file needs its path"),
        });
    }
    if path.extension().is_some_and(|e| e == "weft") {
        let text = read_text(path).map_err(|e| Error::input(format!("cannot read {model}: {e}")))?;
        let parsed = Model::from_native_text(&text, settings.allow_native).map_err(|e| Error::from(e).at(model))?;
        let mut module = parsed.module().clone();
        if let Some(source) = &settings.weights {
            fill_constants(&mut module, source, settings).map_err(|e| match made_for(&text) {
                Some(profile) if e.code == Code::Input => {
                    e.help(format!("the text was compiled for {profile}: {}", on_profile(profile)))
                }
                _ => e,
            })?;
        }
        return Ok(module);
    }
    let (bytes, external) = read_onnx(path)?;
    compiler::onnx::import_onnx(bytes, &*external).map_err(|e| Error::from(e).at(model))
}

/// `--dim` speaks of the dimensions that a model of the zoo can leave open.
fn check_zoo_dims(model: &str, settings: &Settings) -> Result<()> {
    let plain = model.split(':').next().unwrap_or(model);
    let Some(entry) = benches::zoo::find(plain).filter(|_| !settings.is_default("dim")) else { return Ok(()) };
    let open: &[&str] = match entry.input {
        benches::zoo::Input::Tokens(_) => &["batch", "sequence"],
        _ => &["batch"],
    };
    let asked = crate::dims::pairs(&settings.dim, "--dim")?;
    match asked.into_iter().find(|(name, _)| !open.contains(&name.as_str())) {
        None => Ok(()),
        Some((name, _)) => Err(shapes::no_such_dim(&name, open)),
    }
}

/// A model of the zoo. `--dim` may speak of its `batch` and of the `sequence` of tokens: these are then open.
fn build_zoo(model: &str, settings: &Settings) -> Result<Module, ZooError> {
    let asked = |name: &str| {
        let named = |d: &String| d.rsplit_once('=').is_some_and(|(n, _)| n == name);
        settings.dim.iter().any(named).then(|| Dim::var(name))
    };
    let plain = model.split(':').next().unwrap_or(model);
    let tokens = benches::zoo::find(plain).is_some_and(|z| matches!(z.input, benches::zoo::Input::Tokens(_)));
    let (batch, sequence) = (asked("batch"), asked("sequence").filter(|_| tokens));
    if batch.is_none() && sequence.is_none() {
        return benches::zoo::build(model, settings.batch.unwrap_or(1) as usize, settings.seed);
    }
    let batch = batch.unwrap_or(Dim::from(settings.batch.unwrap_or(1) as usize));
    benches::zoo::build_open(model, &batch, sequence.as_ref(), settings.seed)
}

/// Gives constants that stand in a text without data those of the same name and type in `source`, as the passes leave
/// them: some are only made by a pass.
/// How a text that was compiled for a device begins.
pub const MADE_FOR: &str = "; compiled for ";

fn made_for(text: &str) -> Option<&str> {
    text.lines().next()?.strip_prefix(MADE_FOR)
}

/// How to run a text that was compiled for a profile.
fn on_profile(profile: &str) -> &'static str {
    match profile {
        "cpu" => "add --device cpu",
        "lavapipe" | "swiftshader" => "add --device 0, which is a software driver where there is no GPU",
        _ => "run it there, or compile it again for this device",
    }
}

fn fill_constants(module: &mut Module, source: &str, settings: &Settings) -> Result<()> {
    let own = Settings { weights: None, ..settings.clone() };
    let mut from = load(source, &own, None)?;
    let before = from.constants.clone();
    let pipeline = crate::executor::pipeline_options(&own)?;
    let mut cx = PassContext::new(crate::executor::target_profile(&own)?);
    pipeline.configure(&mut cx);
    Sequential::new(default_pipeline(&pipeline))
        .run(&mut from, &mut cx)
        .map_err(|e| Error::new(Code::Bug, e.to_string()))?;
    for (name, c) in module.constants.iter_mut().filter(|c| c.1.load().is_err()) {
        let found = from.constants.get(name).or_else(|| before.get(name)).filter(|f| f.ty() == c.ty());
        *c = found.cloned().ok_or_else(|| {
            Error::input(format!("`{source}` has no constant @{name} : {:?}", c.ty()))
                .help("compile it with the options that made the text")
        })?;
    }
    Ok(())
}

/// A file name or zoo name for reports.
pub fn short_name(model: &str) -> String {
    Path::new(model).file_stem().map_or_else(|| model.to_string(), |s| s.to_string_lossy().into_owned())
}
