//! `weft compile MODEL -o F.bundle`: writes bundles.

use crate::args::{Common, CompileArgs};
use crate::bundle::inspect;
use compiler::profile::DeviceProfile;
use std::path::Path;
use weft::plain_files::read_text;
use weft::{Bundle, Model, Options, TuningDatabase, files};
use workbench::executor::{Device, compile_options, pipeline_for, profile_on, target_profile, watching};
use workbench::models::{load, short_name};
use workbench::progress::log;
use workbench::settings::Settings;
use workbench::written::write_file_with;
use workbench::{Error, Result};

/// Writes the bundle of a model.
pub fn write(a: &CompileArgs, path: &Path) -> Result<()> {
    let common = &a.common;
    if !a.emit.is_empty() || a.emit_dir.is_some() {
        return Err(Error::usage("--emit is for text and files of kernels, and -o F.bundle writes a bundle")
            .help("call it twice"));
    }
    let [model] = &a.models[..] else { return Err(Error::usage("a bundle is of one model")) };
    let profiles = match a.profiles.is_empty() {
        true => vec![target_profile(common)?],
        false => a.profiles.iter().map(|name| profile_named(name, common)).collect::<Result<_>>()?,
    };
    let given = workbench::inputs::given(&a.input, model, common)?;
    let module = common.state.time("import", || load(model, common, given.as_ref()))?;
    let inputs = workbench::models::calibration_inputs(&module, given.as_ref(), common)?;
    let target = |profile: DeviceProfile| -> Result<Options> {
        let pipeline = pipeline_for(&module, common, &profile, &inputs)?;
        Ok(Options {
            compile: compile_options(pipeline.clone(), common, &profile)?,
            profile: Some(profile),
            pipeline,
            watch: watching(common),
            ..Options::default()
        })
    };
    let devices: Vec<String> = profiles.iter().map(DeviceProfile::identity).collect();
    let targets = profiles.into_iter().map(target).collect::<Result<Vec<_>>>()?;
    let mut tuning = TuningDatabase::default();
    for device in devices {
        tuning.extend(TuningDatabase::clone(&*workbench::tuning::read(common, &device).map_err(Error::input)?));
    }
    let model_of = Model::from_module(module.clone()).with_licence(licence(a, model)?);
    write_file_with(path, |to| Bundle::write(&model_of, &short_name(model), &targets, &tuning, to))?;
    let bundle = Bundle::open(path)?;
    log(common, format!("wrote the bundle {} for {}", path.display(), bundle.profiles().join(", ")));
    inspect(&bundle, &path.display().to_string(), common)
}

/// The text of `--licence`, or what the ONNX file says.
fn licence(a: &CompileArgs, model: &str) -> Result<Option<String>> {
    if let Some(path) = &a.licence {
        let text = read_text(path);
        return text.map(Some).map_err(|e| Error::input(format!("--licence {}: {e}", path.display())));
    }
    let is_onnx = Path::new(model).extension().is_some_and(|e| e.eq_ignore_ascii_case("onnx"));
    Ok(if is_onnx { files::licence(&files::metadata(files::read_onnx(Path::new(model))?.0)?) } else { None })
}

/// A profile of `--for`: a named one, or that of this machine's processor.
fn profile_named(name: &str, common: &Common) -> Result<DeviceProfile> {
    match name {
        "cpu" => profile_on(&Settings { target: None, ..common.settings.0.clone() }, &Device::cpu(0)?),
        _ if !name.ends_with(".json") && DeviceProfile::named(name).is_none() => {
            let there = DeviceProfile::all().into_iter().map(|p| p.name).chain(["cpu".into()]).collect();
            Err(weft::Error::NoProfile { name: name.into(), there }.into())
        }
        _ => profile_on(&Settings { target: Some(name.into()), ..common.settings.0.clone() }, &Device::Interpreter),
    }
}
