//! Bundles: found by name, opened, and run.

use crate::error::{Error, Result};
use crate::executor::{Device, cache, compile_options, pipeline_options, profile_on, watching};
use crate::options;
use crate::settings::Settings;
use compiler::profile::DeviceProfile;
use std::path::Path;
use weft::plain_files::begins_as_bundle;
use weft::{Bundle, Options, Session};

/// Options of the device and of runs, which a bundle takes though it is compiled.
const TAKEN: &[&str] = &["device", "threads", "seed", "cache", "host_functions"];

options! {
    /// Options about a bundle.
    #[derive(Copy)]
    pub struct BundleOptions {
        /// End with exit 5 rather than compile anything, if a bundle has no plan for the device
        require_compiled: bool = "" in Own;
        /// Let a bundle or a text run code of this machine, if external targets are in it (dnnl, c)
        allow_native: bool = "" in Own;
    }
}

/// The bundle that the file is; `None` for other files and names.
pub fn find(model: &str) -> Result<Option<Bundle>> {
    Ok(match begins_as_bundle(Path::new(model)) {
        true => Some(Bundle::open(model)?),
        false => None,
    })
}

/// As [`find`], to run it: options that ask for another compilation are refused.
pub fn opened(model: &str, settings: &Settings, asked: BundleOptions) -> Result<Option<Bundle>> {
    let given = [("--require-compiled", asked.require_compiled), ("--allow-native", asked.allow_native)];
    let is_text = Path::new(model).extension().is_some_and(|e| e == "weft");
    match (find(model)?, given.iter().find(|g| g.1 && !(is_text && g.0 == "--allow-native"))) {
        (Some(bundle), _) => {
            settings.refuse_but(model, TAKEN)?;
            Ok(Some(if asked.allow_native { bundle.allow_native() } else { bundle }))
        }
        (None, Some((option, _))) => {
            let text = format!("{option} is for bundles, and {model} is a model");
            Err(Error::usage(text).help("`weft compile MODEL -o F.bundle` makes a bundle"))
        }
        (None, None) => Ok(None),
    }
}

/// A session of the bundle on a device; `require`: nothing may be compiled.
pub fn session(bundle: &Bundle, settings: &Settings, device: &Device, require: bool) -> Result<Session> {
    let on_device = !matches!(device, Device::Interpreter);
    let profile = on_device.then(|| profile_on(settings, device)).transpose()?;
    let target = profile.clone().unwrap_or_else(DeviceProfile::baseline);
    let options = Options {
        profile,
        compile: compile_options(pipeline_options(settings)?, settings, &target)?,
        cache: cache(settings),
        host_functions: settings.functions.clone(),
        watch: watching(settings),
        ..Options::default()
    };
    Ok(bundle.compile(&options, require)?.session(device)?)
}
