//! `weft compile MODEL -o F.bundle`: writes bundles.

use crate::args::{Common, CompileArgs};
use crate::bundle::inspect;
use crate::error::{CliError, CliResult};
use crate::executor::{Device, compile_options, pipeline_for, profile_on, target_profile, watching};
use crate::models::{load, short_name};
use crate::output::{log, write_file_with};
use compiler::profile::DeviceProfile;
use std::path::Path;
use weft::{Bundle, Model, Options};

/// Writes the bundle of a model.
pub fn write(a: &CompileArgs, path: &Path) -> CliResult<()> {
    let common = &a.common;
    if !a.emit.is_empty() || a.emit_dir.is_some() {
        return Err(CliError::usage("--emit is for text and files of kernels, and -o F.bundle writes a bundle")
            .help("call it twice"));
    }
    let [model] = &a.models[..] else { return Err(CliError::usage("a bundle is of one model")) };
    let profiles = match a.profiles.is_empty() {
        true => vec![target_profile(common)?],
        false => a.profiles.iter().map(|name| profile_named(name, common)).collect::<CliResult<_>>()?,
    };
    let given = crate::inputs::given(&a.input, model, common)?;
    let module = common.state.time("import", || load(model, common, given.as_ref()))?;
    let inputs = crate::models::calibration_inputs(&module, given.as_ref(), common)?;
    let target = |profile: DeviceProfile| -> CliResult<Options> {
        let pipeline = pipeline_for(&module, common, &profile, &inputs)?;
        Ok(Options {
            compile: compile_options(pipeline.clone(), common)?,
            profile: Some(profile),
            pipeline,
            watch: watching(common),
            ..Options::default()
        })
    };
    let targets = profiles.into_iter().map(target).collect::<CliResult<Vec<_>>>()?;
    let tuning = crate::tuning::read(common).map_err(CliError::input)?;
    let model_of = Model::from_module(module.clone());
    write_file_with(path, |to| Ok(Bundle::write(&model_of, &short_name(model), &targets, &tuning, to)?))?;
    let bundle = Bundle::open(path)?;
    log(common, format!("wrote the bundle {} for {}", path.display(), bundle.profiles().join(", ")));
    inspect(&bundle, &path.display().to_string(), common)
}

/// A profile of `--for`: a named one, or that of this machine's processor.
fn profile_named(name: &str, common: &Common) -> CliResult<DeviceProfile> {
    match name {
        "cpu" => profile_on(&Common { target: None, ..common.clone() }, &Device::cpu(0)?),
        _ => profile_on(&Common { target: Some(name.into()), ..common.clone() }, &Device::Interpreter),
    }
}
