//! Bundles as `run`, `bench`, `inspect`, `explain` and `view` take them; `compile -o F.bundle` writes them (`bundling`).

use crate::args::shared::refuse_but;
use crate::args::{BundleArgs, Common};
use crate::error::{CliError, CliResult};
use crate::executor::{Device, cache, compile_options, pipeline_options, profile_on, watching};
use crate::output::{print_text, show_table, si, table, write_json};
use compiler::profile::DeviceProfile;
use serde_json::Value;
use std::path::Path;
use weft::plain_files::begins_as_bundle;
use weft::{Bundle, Options, Session};

/// Options of the device and of runs, which a bundle takes though it is compiled.
const TAKEN: &[&str] = &["device", "threads", "seed", "cache", "host_functions"];

/// The bundle that the file is; `None` for other files and names.
pub fn find(model: &str) -> CliResult<Option<Bundle>> {
    Ok(match begins_as_bundle(Path::new(model)) {
        true => Some(Bundle::open(model)?),
        false => None,
    })
}

/// As [`find`], to run it: options that ask for another compilation are refused.
pub fn opened(model: &str, common: &Common, asked: BundleArgs) -> CliResult<Option<Bundle>> {
    let given = [("--require-compiled", asked.require_compiled), ("--allow-native", asked.allow_native)];
    let is_text = Path::new(model).extension().is_some_and(|e| e == "weft");
    match (find(model)?, given.iter().find(|g| g.1 && !(is_text && g.0 == "--allow-native"))) {
        (Some(bundle), _) => {
            refuse_but(common, model, TAKEN)?;
            Ok(Some(if asked.allow_native { bundle.allow_native() } else { bundle }))
        }
        (None, Some((option, _))) => {
            let text = format!("{option} is for bundles, and {model} is a model");
            Err(CliError::usage(text).help("`weft compile MODEL -o F.bundle` makes a bundle"))
        }
        (None, None) => Ok(None),
    }
}

/// A session of the bundle on a device; `require`: nothing may be compiled.
pub fn session(bundle: &Bundle, common: &Common, device: &Device, require: bool) -> CliResult<Session> {
    let on_device = !matches!(device, Device::Interpreter);
    let profile = on_device.then(|| profile_on(common, device)).transpose()?;
    let target = profile.clone().unwrap_or_else(DeviceProfile::baseline);
    let options = Options {
        profile,
        compile: compile_options(pipeline_options(common)?, common, &target)?,
        cache: cache(common),
        host_functions: common.functions.clone(),
        watch: watching(common),
        ..Options::default()
    };
    Ok(bundle.compile(&options, require)?.session(device)?)
}

/// Names the profiles whose kernels another build made in another form.
fn print_unread(entries: &[Value]) -> CliResult<()> {
    for e in entries.iter().filter(|e| e["is_read"] == false) {
        let text = |key: &str| e[key].as_str().unwrap_or_default();
        print_text(&format!(
            "{}: this build does not read its kernels ({}), and compiles the network anew",
            text("profile"),
            text("form")
        ))?;
    }
    Ok(())
}

/// Shows what is in a bundle.
pub fn inspect(bundle: &Bundle, path: &str, common: &Common) -> CliResult<()> {
    bundle.check()?;
    let json = bundle.to_json();
    if write_json(common, &json)? {
        return Ok(());
    }
    let text = |v: &Value| v.as_str().unwrap_or_default().to_string();
    let bytes = |v: &Value| match v.as_u64() {
        Some(0) | None => String::new(),
        Some(n) => format!("{}B", si(n as f64)),
    };
    let list = |key: &str| json[key].as_array().cloned().unwrap_or_default();
    print_text(&format!(
        "{path}: {}, {}, made by Weft {}",
        text(&json["network"]),
        bytes(&json["bytes"]),
        text(&json["weft"])
    ))?;
    let mut ports = table(&["", "name", "type"]);
    for (kind, key) in [("input", "inputs"), ("output", "outputs")] {
        for p in list(key) {
            ports.add_row([kind.into(), text(&p["name"]), text(&p["type"])]);
        }
    }
    show_table(&ports)?;
    for name in list("native") {
        print_text(&format!("runs code of the machine through {}: --allow-native", text(&name)))?;
    }
    if let Some(first) = json["licence"].as_str().and_then(|l| l.lines().find(|l| !l.trim().is_empty())) {
        print_text(&format!("licence: {} (--json has the text)", first.trim()))?;
    }
    for d in list("dims") {
        print_text(&format!("open: {} {}..{} in steps of {}", text(&d["name"]), d["low"], d["high"], d["step"]))?;
    }
    let mut entries =
        table(&["profile", "plan", "kernels", "weights", "own weights", "network", "trace", "tuned", "form"]);
    for e in list("entries") {
        entries.add_row([
            text(&e["profile"]),
            bytes(&e["plan"]),
            bytes(&e["kernels"]),
            bytes(&e["weights"]),
            bytes(&e["own_weights"]),
            bytes(&e["network"]),
            bytes(&e["trace"]),
            e["tuning"].as_array().map_or(0, Vec::len).to_string(),
            text(&e["form"]),
        ]);
    }
    show_table(&entries)?;
    print_unread(&list("entries"))?;
    if common.verbose > 0 {
        let mut parts = table(&["part", "of", "offset", "bytes", "crc32"]);
        for p in list("parts") {
            let sum = p["crc32"].as_u64().map_or(String::new(), |c| format!("{c:08x}"));
            parts.add_row([text(&p["kind"]), text(&p["name"]), p["offset"].to_string(), p["bytes"].to_string(), sum]);
        }
        show_table(&parts)?;
    }
    Ok(())
}
