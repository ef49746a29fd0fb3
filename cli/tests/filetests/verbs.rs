//! What each verb does: from a file's input to the text that is compared.

use crate::file::TestFile;
use crate::{kernels, run};
use compiler::graph::Module;
use compiler::name::Name;
use compiler::passes::{PassContext, Sequential};
use compiler::profile::DeviceProfile;
use compiler::remark::{Remark, RemarkKind};
use compiler::schedule::ScheduleOptions;
use compiler::schedule::rules::follow_choices;
use compiler::text::{compare_modules, parse_module, parse_pipeline, print_module};
use compiler::verify::verify_module;

/// Runs the test. What the tested step refuses is output; a failure of a step before it fails the test.
///
/// # Errors
/// When the file asks for something unknown, or a step before the tested one fails.
pub fn run(t: &TestFile<'_>) -> Result<String, String> {
    match t.verb {
        "print" => print(t),
        "verify" => verify(t),
        "pass" | "pipeline" => pipeline(t),
        "apply-schedules" => apply_schedules(t),
        "schedule" => kernels::propose(t, valid_module(t)?),
        "wgsl" => kernels::emit_wgsl(t, &valid_module(t)?),
        "spirv" => kernels::emit_spirv(t, &valid_module(t)?),
        "run" => run::run(t, &valid_module(t)?),
        other => Err(format!("there is no test verb `{other}`")),
    }
}

/// The module of the input, valid.
fn valid_module(t: &TestFile<'_>) -> Result<Module, String> {
    let m = parse_module(t.input).map_err(|e| e.to_string())?;
    check(&m)?;
    Ok(m)
}

/// The verifier's messages as one text.
pub fn check(m: &Module) -> Result<(), String> {
    verify_module(m).map_err(|list| list.iter().map(|e| format!("{e}\n")).collect())
}

/// The device of the header's `profile` line.
pub fn profile(t: &TestFile<'_>) -> Result<DeviceProfile, String> {
    let mut profile = match t.setting("profile") {
        None => DeviceProfile::baseline(),
        Some(name) => DeviceProfile::named(name).ok_or_else(|| format!("there is no profile `{name}`"))?,
    };
    // What the device's kernels want: `layouts nchw`, `layouts nchw16c` instead of NHWC.
    match t.setting("layouts") {
        None => {}
        Some("nchw") => profile.prefers_nhwc = false,
        Some("nchw16c") => profile.packed_channels = 16,
        Some(other) => return Err(format!("layouts `{other}`")),
    }
    Ok(profile)
}

/// The schedule rules of the header's `rules` line.
pub fn scheduling(t: &TestFile<'_>) -> Result<ScheduleOptions, String> {
    let asked = t.setting("rules").unwrap_or("").split(',').map(str::trim).filter(|n| !n.is_empty());
    let options = ScheduleOptions::of_rules(asked);
    match options.rules.iter().find(|n| !compiler::schedule::rules::names().contains(&n.as_str())) {
        Some(unknown) => Err(format!("there is no rule `{unknown}`")),
        None => Ok(options),
    }
}

/// Canonical text, or the parser's error. The text must read back as an equal module and print as itself.
fn print(t: &TestFile<'_>) -> Result<String, String> {
    let m = match parse_module(t.input) {
        Ok(m) => m,
        Err(e) => return Ok(e.to_string()),
    };
    let text = print_module(&m);
    let again = parse_module(&text).map_err(|e| format!("the printed text does not parse: {e}\n{text}"))?;
    compare_modules(&m, &again)?;
    if print_module(&again) != text {
        return Err("the printed text is not canonical".to_string());
    }
    Ok(text)
}

/// `ok`, or the verifier's messages.
fn verify(t: &TestFile<'_>) -> Result<String, String> {
    let m = parse_module(t.input).map_err(|e| e.to_string())?;
    Ok(check(&m).err().unwrap_or_else(|| "ok".to_string()))
}

/// What `print-ir` printed on the way, the module after the passes of the header, and their remarks; or the error of a
/// pass.
fn pipeline(t: &TestFile<'_>) -> Result<String, String> {
    let mut m = valid_module(t)?;
    let mut cx = context(t)?;
    let list = parse_pipeline(t.arguments).map_err(|e| e.to_string())?;
    let sequence = list.iter().fold(Sequential::default(), |s, (name, options)| s.then_with(name, options.clone()));
    if let Err(e) = sequence.run(&mut m, &mut cx) {
        return Ok(e.to_string());
    }
    check(&m)?;
    let printed: String = cx.printed.iter().map(|(label, text)| format!("---- {label}\n{text}\n")).collect();
    let result = if printed.is_empty() { "" } else { "---- result\n" };
    let remarks: String = cx.remarks.iter().map(print_remark).collect();
    Ok(format!("{printed}{result}{}\n{remarks}", print_module(&m)))
}

/// Level 3, every pass verified, with the header's settings `level`, `disable`, `require`, `fuse`, `layout`, `amp`.
pub fn context(t: &TestFile<'_>) -> Result<PassContext, String> {
    let mut cx = PassContext::new(profile(t)?);
    cx.scheduling = scheduling(t)?;
    cx.opt_level = 3;
    cx.verify = true;
    macro_rules! mode {
        ($key:literal, $field:ident, $type:ident) => {
            if let Some(word) = t.setting($key) {
                cx.$field = compiler::passes::$type::parse(word).ok_or_else(|| format!("{} `{word}`", $key))?;
            }
        };
    }
    mode!("fuse", fuse, FuseMode);
    mode!("layout", layout, LayoutMode);
    mode!("amp", amp, AmpMode);
    if let Some(level) = t.setting("level") {
        cx.opt_level = level.parse().map_err(|_| format!("level `{level}`"))?;
    }
    let names = |key: &str| t.setting(key).map_or(vec![], |l| l.split(',').map(|n| n.trim().to_string()).collect());
    (cx.disabled, cx.required) = (names("disable"), names("require"));
    Ok(cx)
}

fn print_remark(r: &Remark) -> String {
    let kind = match r.kind {
        RemarkKind::Applied => "applied",
        RemarkKind::Missed => "missed",
    };
    let nodes: Vec<&str> = r.nodes.iter().map(|n: &Name| n.as_str()).collect();
    format!("remark {} {kind} [{}]: {}\n", r.pass, nodes.join(", "), r.message)
}

/// The module with every `schedule` block applied, or the error of the first instruction that does not apply, or what
/// is refused of the result.
fn apply_schedules(t: &TestFile<'_>) -> Result<String, String> {
    let (mut m, profile, scheduling) = (valid_module(t)?, profile(t)?, scheduling(t)?);
    for f in m.tensor_functions.values_mut() {
        if let Err(e) = follow_choices(f, &[], scheduling.on(&profile)) {
            return Ok(format!("@{}: {e}", f.name));
        }
        if let Err(e) = compiler::schedule::accept(f) {
            return Ok(e.to_string());
        }
    }
    check(&m)?;
    Ok(print_module(&m))
}
