//! `cargo xtask test`: set-up, then every check in order. A failing step does not keep the later ones from running.

use crate::cargo::{ALL, cargo, in_ci, run as run_command, show, succeeds, target_dir, tested_weft};
use crate::conformance;
use crate::driver;
use crate::heading::heading;
use crate::times::{self, Row, Timer};
use crate::vulkan::{Missing, apt_install, prepare, quiet_loader};
use std::path::Path;
use std::process::Command;

/// One line for the usage.
pub const HELP: &str = "[--quick | --full] [--drivers all] installs what is missing, then format, lints, tests, documentation, ONNX's node cases, the CPU target on AArch64, the compiler for WebAssembly, the kernels of the zoo, a trained network, the report and exported pages in a browser, fuzzing, the command installed from its package, the Python package; --full: networks in every layout and precision, an exported crate built by cargo, every case of ONNX's in Python, and `measure` in small";

/// Time of each fuzz target; `cargo xtask fuzz` runs them for as long as one likes.
const FUZZ_SECONDS: u32 = 5;

/// One check.
struct Step {
    title: String,
    command: Command,
}

/// What was asked for.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
struct Options {
    /// Without lints, documentation, and the checks that run the command over many models.
    quick: bool,
    /// Also whole networks in every layout and precision.
    full: bool,
    /// The tests that use a device once more on each software driver.
    drivers: bool,
}

/// Runs the command with what [`Options`] ask for.
///
/// # Errors
/// Lists the steps that failed.
pub fn run(args: &[String]) -> Result<(), String> {
    let Options { quick, full, drivers } = options(args)?;
    let mut done = Done::default();
    if let Err(why) = prepare(Missing::FailsInCi) {
        eprintln!("{why}");
        done.failed.push("a Vulkan driver".to_string());
    }
    add_components(quick);
    add_library();
    for s in steps(quick, full) {
        let mut command = s.command;
        quiet_loader(&mut command);
        let watched = times::watch(&mut command);
        done.step(&s.title, || run_command(command));
        if let (Some(file), Some((_, programs))) = (watched, done.times.last_mut()) {
            *programs = times::programs(&file);
        }
    }
    if !quick {
        match tested_weft() {
            Ok(weft) => whole_checks(&weft, full, &mut done),
            Err(why) => done.failed.push(format!("the command ({why})")),
        }
    }
    if drivers {
        done.failed.extend(driver::test_all());
    }
    times::print(&done.times);
    match done.failed.is_empty() {
        true => {
            eprintln!("\nall checks passed");
            Ok(())
        }
        false => Err(format!("failed: {}", done.failed.join(", "))),
    }
}

/// The steps that were done: those that failed, and the time of each with that of its test programs.
#[derive(Default)]
struct Done {
    failed: Vec<String>,
    times: Vec<(Row, Vec<Row>)>,
}

impl Done {
    /// Does a step.
    fn step(&mut self, title: &str, step: impl FnOnce() -> Result<(), String>) {
        heading(title);
        let timer = Timer::start();
        let done = step();
        let row = timer.row(title);
        let state = if done.is_ok() { "ok" } else { "FAILED" };
        let cpu = row.cpu.map_or(String::new(), |c| format!(", {c:.0} s of CPU time"));
        eprintln!("--- {title}: {state} after {:.0} s{cpu}", row.wall);
        self.times.push((row, vec![]));
        if let Err(why) = done {
            eprintln!("{why}");
            self.failed.push(title.to_string());
        }
    }
}

fn options(args: &[String]) -> Result<Options, String> {
    let mut o = Options::default();
    let mut rest = args.iter().map(String::as_str);
    while let Some(a) = rest.next() {
        match a {
            "--quick" => o.quick = true,
            "--full" => o.full = true,
            "--drivers" if rest.next() == Some("all") => o.drivers = true,
            "--drivers=all" => o.drivers = true,
            "--drivers" => return Err("--drivers takes `all`".into()),
            other => return Err(format!("unknown argument {other}; usage: cargo xtask test {HELP}")),
        }
    }
    if o.quick && o.full { Err("--quick and --full exclude each other".into()) } else { Ok(o) }
}

/// The checks that run the command over many models.
fn whole_checks(weft: &Path, full: bool, done: &mut Done) {
    // With the folders of the target folder that no other check uses.
    type Check<'a> = (&'a str, Box<dyn Fn() -> Result<(), String> + 'a>, &'a [&'a str]);
    let mut checks: Vec<Check<'_>> = vec![
        ("ONNX's node cases", Box::new(|| conformance::test(weft)), &["conformance"]),
        ("the CPU target on AArch64", Box::new(crate::neon::test), &[crate::neon::TARGET]),
        ("cargo xtask kernels", Box::new(|| crate::kernels::check(weft, &[])), &["kernels", "tint"]),
        ("cargo xtask networks", Box::new(|| crate::networks::test(weft, full)), &["networks"]),
        ("cargo xtask report", Box::new(|| crate::report::check(weft, &[])), &[]),
        ("the compiler for WebAssembly", Box::new(crate::page::compiles), &["wasm32-unknown-unknown"]),
        ("cargo xtask page", Box::new(|| crate::page::check(weft, &[])), &["pages"]),
        ("cargo xtask fuzz", Box::new(|| crate::fuzz::test(FUZZ_SECONDS)), &[]),
        ("cargo xtask package", Box::new(|| crate::package::test(full)), &crate::package::FOLDERS),
        ("cargo xtask wheel --test", Box::new(|| crate::wheel::test(full)), &["wheel"]),
    ];
    if full {
        checks.push(("cargo xtask measure --small", Box::new(|| crate::measure::check(weft)), &[]));
    }
    for (title, check, folders) in checks {
        done.step(title, check);
        if in_ci() {
            clear(folders);
        }
    }
}

/// Removes folders of the target folder: a machine of continuous integration has little room, and builds them once.
fn clear(folders: &[&str]) {
    let Ok(target) = target_dir() else { return };
    for folder in folders.iter().map(|f| target.join(f)).filter(|f| f.exists()) {
        if let Err(why) = std::fs::remove_dir_all(&folder) {
            eprintln!("{} stays: {why}", folder.display());
        }
    }
}

/// A toolchain may come without rustfmt and clippy; rustup can add them.
fn add_components(quick: bool) {
    for (tool, component) in [("fmt", "rustfmt"), ("clippy", "clippy")] {
        let mut probe = cargo(&[tool, "--version"]);
        probe.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
        let wanted = tool == "fmt" || !quick;
        if wanted && run_command(probe).is_err() && !succeeds("rustup", &["component", "add", component]) {
            eprintln!("cargo {tool} is not here; add it with `rustup component add {component}`");
        }
    }
}

/// oneDNN, which tests of the target `dnnl` load. Where it cannot be had they say so, and are left out.
fn add_library() {
    let listed = Command::new("/sbin/ldconfig").arg("-p").output();
    let here = listed.is_ok_and(|o| String::from_utf8_lossy(&o.stdout).contains("libdnnl.so"));
    if !cfg!(target_os = "linux") || here {
        return;
    }
    if let Err(why) = apt_install(&["libdnnl2"]).or_else(|_| apt_install(&["libdnnl-dev"])) {
        eprintln!("\n!!! oneDNN cannot be had ({why}): its tests are left out.\n");
    }
}

fn steps(quick: bool, full: bool) -> Vec<Step> {
    let step = |command: Command| Step { title: show(&command), command };
    let all = |verb: &str, more: &[&str]| cargo(&[&[verb], ALL, more].concat());
    let mut list = vec![step(cargo(&["fmt", "--check"]))];
    if !quick {
        list.push(step(all("clippy", &["--all-targets", "--", "-D", "warnings"])));
    }
    list.push(step(all("test", &["--no-fail-fast"])));
    if full {
        // What every run takes has run already.
        list.push(step(all("test", &["--test", "whole_networks", "--", "--ignored"])));
        list.push(step(all("test", &["--test", "commands", "--", "--ignored", "exported"])));
    }
    if !quick {
        let mut doc = all("doc", &["--no-deps"]);
        doc.env("RUSTDOCFLAGS", "-D warnings");
        list.push(step(doc));
    }
    list.iter_mut().for_each(|s| s.title = shorten(&s.title));
    list
}

/// The title of a step without the toolchain's path.
fn shorten(command: &str) -> String {
    match command.split_once(' ') {
        Some((_, rest)) => format!("cargo {rest}"),
        None => command.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quick_keeps_the_tests() {
        let titles = |quick, full| steps(quick, full).into_iter().map(|s| s.title).collect::<Vec<_>>();
        assert_eq!(
            titles(true, false),
            ["cargo fmt --check", "cargo test --workspace --features weft-command/view --no-fail-fast"]
        );
        assert_eq!((titles(false, false).len(), titles(false, true).len()), (4, 6));
    }

    #[test]
    fn unknown_arguments_are_refused() {
        let parse = |list: &[&str]| options(&list.iter().map(|s| s.to_string()).collect::<Vec<_>>());
        let asked = Options { quick: true, full: false, drivers: true };
        assert_eq!(parse(&["--quick", "--drivers", "all"]), Ok(asked));
        assert!(parse(&["--full"]).is_ok_and(|o| o.full) && parse(&["--full", "--quick"]).is_err());
        assert!(parse(&["--drivers", "some"]).is_err());
        assert!(parse(&["--fast"]).is_err());
    }
}
