//! `cargo xtask kernels [MODEL ...]`: every kernel of the built-in networks in every language, checked.
//!
//! Each network is compiled for several devices, which need not be present. Each kernel must be written as WGSL that
//! parses again, as SPIR-V that `spirv-val` accepts, as standard WGSL that Tint accepts, as MSL and as HLSL that DXC
//! compiles. Dawn makes pipelines of the kernels for browsers, with the limits of their profile and no more. `weft opt`
//! must make the same WGSL, byte for byte, from the text that `weft compile --emit weft` writes. Readers that are not
//! here are named.

use crate::cargo::{build_weft, in_ci, show, succeeds, target_dir};
use crate::heading::heading;
use crate::replay::zoo;
use crate::vulkan::apt_install;
use crate::{dxc, tint};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// One line for the usage.
pub const HELP: &str = "[MODEL ...] every kernel of the zoo as WGSL, SPIR-V (through spirv-val), standard WGSL (through Tint; pipelines by Dawn), MSL and HLSL (through DXC)";

/// A device that is compiled for, and how.
#[derive(Clone, Copy)]
struct Form {
    /// The profile.
    profile: &'static str,
    /// Mixed precision.
    amp: &'static str,
    /// Kernels use matrix units, which SPIR-V and the WGSL of wgpu have.
    matrices: bool,
    /// A browser's profile: Dawn makes pipelines of the kernels.
    browser: bool,
}

/// A form in f32, without matrices, for no browser.
const PLAIN: Form = Form { profile: "", amp: "off", matrices: false, browser: false };

/// In f32: small subgroups and none, f16 and none, few bindings and many. In f16: halves that are numbers of the
/// shader, halves packed in words, matrix units.
const FORMS: &[Form] = &[
    Form { profile: "lavapipe", ..PLAIN },
    Form { profile: "swiftshader", ..PLAIN },
    Form { profile: "hopper", ..PLAIN },
    Form { profile: "navi21", amp: "fp16", ..PLAIN },
    Form { profile: "baseline", browser: true, ..PLAIN },
    Form { profile: "baseline", amp: "fp16", ..PLAIN },
    Form { profile: "webgpu", browser: true, ..PLAIN },
    Form { profile: "webgpu", amp: "fp16", browser: true, ..PLAIN },
    Form { profile: "navi31", amp: "fp16", matrices: true, ..PLAIN },
];

/// Networks that are also compiled in f16.
const IN_HALVES: &[&str] = &["resnet18", "mobilenet_v3_small", "encoder"];

impl Form {
    fn name(&self) -> String {
        if self.amp == "off" { self.profile.into() } else { format!("{} in {}", self.profile, self.amp) }
    }
    /// The languages, as options have them, and what the files of kernels end in.
    fn languages(&self) -> &'static [(&'static str, &'static str)] {
        let all = &[("wgsl", "wgsl"), ("spirv", "spv"), ("msl", "metal"), ("hlsl", "hlsl")];
        if self.matrices { &all[..2] } else { all }
    }
}

/// The folder of the kernels in standard WGSL, beside the others.
const STANDARD: &str = "standard";
/// The record of `weft compile` about the kernels, beside them.
const RECORD: &str = "compile.json";

/// Runs the command.
///
/// # Errors
/// Lists the networks that failed, with the first reason of each.
pub fn run(args: &[String]) -> Result<(), String> {
    heading("cargo build --package weft-command");
    check(&build_weft(false)?, args)
}

/// Checks the kernels of `models`, of the whole zoo where there are none, with the program `weft`.
///
/// # Errors
/// Lists what failed.
pub fn check(weft: &Path, models: &[String]) -> Result<(), String> {
    let readers = Readers { validator: find_validator()?, tint: tint::find(), dxc: dxc::find() };
    let models = if models.is_empty() { zoo(weft)? } else { models.to_vec() };
    let folder = target_dir()?.join("kernels");
    let all = FORMS.iter().flat_map(|f| models.iter().map(move |m| (f, m)));
    let jobs: Vec<(&Form, &String)> = all.filter(|(f, m)| f.amp == "off" || IN_HALVES.contains(&m.as_str())).collect();
    let (next, failed) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let work = || {
        while let Some((form, model)) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
            let what = format!("{model} for {}", form.name());
            match check_one(weft, form, model, &place(&folder, form, model), &readers) {
                Ok(kernels) => eprintln!("{what}: {kernels} kernels"),
                Err(why) => {
                    eprintln!("{what}: FAILED\n{why}");
                    failed.lock().unwrap_or_else(|e| e.into_inner()).push(what);
                }
            }
        }
    };
    std::thread::scope(|s| {
        (0..std::thread::available_parallelism().map_or(2, usize::from).min(jobs.len())).for_each(|_| {
            s.spawn(work);
        });
    });
    let mut failed = failed.into_inner().unwrap_or_else(|e| e.into_inner());
    if let Some(module) = &readers.tint {
        let profiles = profiles(weft)?;
        let of_browser = |form: &Form| form.browser.then(|| profiles.get(form.profile).cloned()).flatten();
        let standard = jobs.iter().map(|(form, model)| (place(&folder, form, model).join(STANDARD), of_browser(form)));
        let folders: Vec<(PathBuf, Option<Value>)> = standard.filter(|f| f.0.exists()).collect();
        if let Err(why) = tint::check(module, &folder.join("standard.json"), &folders) {
            eprintln!("{why}");
            failed.push("standard WGSL".into());
        }
    }
    if failed.is_empty() { Ok(()) } else { Err(format!("kernels of {}", failed.join(", "))) }
}

/// Other people's readers of kernels that are here.
struct Readers {
    /// `spirv-val`.
    validator: bool,
    tint: Option<PathBuf>,
    dxc: Option<PathBuf>,
}

/// Every named profile, by its name.
fn profiles(weft: &Path) -> Result<BTreeMap<String, Value>, String> {
    let text = output(Command::new(weft).args(["devices", "--profiles", "--json"]))?;
    let all: Value = serde_json::from_str(&text).map_err(|e| format!("weft devices: {e}"))?;
    let list = all["profiles"].as_array().ok_or("weft devices says no profiles")?;
    Ok(list.iter().filter_map(|p| Some((p["name"].as_str()?.to_string(), p.clone()))).collect())
}

/// The folder of a network's kernels.
fn place(folder: &Path, form: &Form, model: &str) -> PathBuf {
    folder.join(format!("{}-{}", form.profile, form.amp)).join(model)
}

/// Whether `spirv-val` is here; it is installed where apt allows it.
fn find_validator() -> Result<bool, String> {
    let here = || succeeds("spirv-val", &["--version"]);
    if here() || apt_install(&["spirv-tools"]).is_ok() && here() {
        return Ok(true);
    }
    let advice = "spirv-val is not here, so SPIR-V is not validated; it is in the package spirv-tools (of Debian, Ubuntu, \
                  Fedora and Arch), and in the Vulkan SDK";
    if in_ci() {
        return Err(advice.into());
    }
    eprintln!("\n!!! {advice}\n");
    Ok(false)
}

/// Standard output of a command that must succeed.
fn output(c: &mut Command) -> Result<String, String> {
    let o = c.stdin(Stdio::null()).output().map_err(|e| format!("{}: {e}", show(c)))?;
    if !o.status.success() {
        return Err(format!("{}: {}\n{}", show(c), o.status, String::from_utf8_lossy(&o.stderr)));
    }
    String::from_utf8(o.stdout).map_err(|e| e.to_string())
}

/// Emits one network for one device and checks the files; returns the number of kernels.
fn check_one(weft: &Path, form: &Form, model: &str, folder: &Path, readers: &Readers) -> Result<usize, String> {
    // Files of an earlier run must not count.
    if folder.exists() {
        std::fs::remove_dir_all(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    }
    std::fs::create_dir_all(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let mut compile = Command::new(weft);
    let Form { profile, amp, .. } = form;
    compile.args(["compile", model, "--target", profile, "--amp", amp, "-q", "--verify", "--emit-dir"]).arg(folder);
    for language in std::iter::once("weft").chain(form.languages().iter().map(|l| l.0)) {
        compile.args(["--emit", language]);
    }
    compile.arg(format!("--json={}", folder.join(RECORD).display()));
    output(&mut compile)?;
    let entries = std::fs::read_dir(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let files: Vec<PathBuf> = entries.flatten().map(|e| e.path()).collect();
    let of = |extension: &str| -> BTreeSet<PathBuf> {
        let found = files.iter().filter(|p| p.extension().is_some_and(|e| e == extension));
        found.map(|p| p.with_extension("")).collect()
    };
    let names = of("wgsl");
    if names.is_empty() {
        return Err("no kernels came out".into());
    }
    if let Some((_, other)) = form.languages().iter().find(|l| of(l.1) != names) {
        return Err(format!("{} kernels, but {} files end in {other}", names.len(), of(other).len()));
    }
    // Distributions have a `spirv-val` that does not know the capability of matrices.
    if readers.validator && !form.matrices {
        for name in &names {
            output(Command::new("spirv-val").args(["--target-env", "vulkan1.1"]).arg(name.with_extension("spv")))?;
        }
    }
    if let Some(dxc) = readers.dxc.as_ref().filter(|_| !form.matrices) {
        check_hlsl(dxc, folder)?;
    }
    replay(weft, profile, folder, &names)?;
    if readers.tint.is_some() && !form.matrices {
        write_standard(weft, profile, folder, names.len())?;
    }
    Ok(names.len())
}

/// Has DXC compile the kernels that a DirectX 12 device can run.
fn check_hlsl(dxc: &Path, folder: &Path) -> Result<(), String> {
    let record = folder.join(RECORD);
    let text = std::fs::read_to_string(&record).map_err(|e| format!("{}: {e}", record.display()))?;
    let all: Value = serde_json::from_str(&text).map_err(|e| format!("{}: {e}", record.display()))?;
    let fits = |k: &&Value| k["shared_bytes"].as_u64().is_some_and(|n| n <= dxc::MOST_SHARED);
    for k in all["kernels"].as_array().into_iter().flatten().filter(fits) {
        let [file, entry] = ["file", "entry"].map(|key| k[key].as_str().unwrap_or_default());
        dxc::check(dxc, &folder.join(format!("{file}.hlsl")), entry)?;
    }
    Ok(())
}

/// The kernels that `weft opt` makes of the module's text must be those that were emitted.
fn replay(weft: &Path, profile: &str, folder: &Path, names: &BTreeSet<PathBuf>) -> Result<(), String> {
    let mut again = kernels_of_text(weft, profile, folder, "wgpu")?;
    let mut emitted = Vec::new();
    for name in names {
        let path = name.with_extension("wgsl");
        let text = std::fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        emitted.push(text.trim().to_string());
    }
    emitted.sort_unstable();
    again.sort_unstable();
    if emitted == again { Ok(()) } else { Err("`weft opt` makes other kernels of the text".into()) }
}

/// Writes the kernels in standard WGSL for Tint to read.
fn write_standard(weft: &Path, profile: &str, folder: &Path, count: usize) -> Result<(), String> {
    let kernels = kernels_of_text(weft, profile, folder, "standard")?;
    if kernels.len() != count {
        return Err(format!("{count} kernels, {} of them in standard WGSL", kernels.len()));
    }
    let to = folder.join(STANDARD);
    let fail = |e: std::io::Error| format!("{}: {e}", to.display());
    std::fs::create_dir(&to).map_err(fail)?;
    kernels.iter().enumerate().try_for_each(|(i, k)| std::fs::write(to.join(format!("{i:03}.wgsl")), k)).map_err(fail)
}

/// The kernels of the module's text in a dialect of WGSL, as `weft opt` makes them.
fn kernels_of_text(weft: &Path, profile: &str, folder: &Path, dialect: &str) -> Result<Vec<String>, String> {
    let mut opt = Command::new(weft);
    opt.arg("opt").arg(folder.join("module.weft"));
    opt.args(["--target", profile, "--passes", "apply-schedules", "--emit", "wgsl", "--dialect", dialect, "-q"]);
    let text = output(&mut opt)?;
    let parts = text.split("// kernel ").skip(1);
    Ok(parts.filter_map(|k| Some(k.split_once('\n')?.1.trim().to_string())).collect())
}
