//! `cargo xtask wheel`: the Python package as a wheel, and its tests from the installed wheel.
//!
//! The wheel has the module and the command `weft`, which is put into `weft_nn._native.data/scripts` of the package's folder.
//! Maturin and the packages of the tests come from PyPI.

use crate::cargo::{build_weft, cargo, root, run as run_command, target_dir};
use crate::heading::heading;
use crate::python;
use crate::vulkan::{in_ci, quiet_loader};
use std::path::{Path, PathBuf};
use std::process::Command;

/// One line for the usage.
pub const HELP: &str = "[--test] builds the Python package as a wheel; --test: without optimisation, lints it, and runs its tests from the installed wheel for each Python there is";

/// What builds a wheel. With Zig as the linker the wheel runs on older systems than this one.
const MATURIN: [&str; 2] = ["maturin==1.16.0", "ziglang==0.15.1"];

/// The oldest Linux that a wheel is for, by its C library.
const COMPATIBILITY: &str = "manylinux_2_28";

/// What the tests need besides the wheel. The cases of docs/conformance.txt are those of this version of onnx; where an
/// older Python gets an older one, they are left out.
const TEST_PACKAGES: [&str; 5] = ["numpy", "onnx<=1.22.0", "pytest", "ipython", "mypy"];

/// Python versions that the tests run with, where they are installed: the oldest that the wheel is for, and newer ones.
const PYTHONS: [&str; 3] = ["python3.9", "python3.11", "python3.13"];

/// Runs the command.
///
/// # Errors
/// When the wheel cannot be built, or a test fails.
pub fn run(args: &[String]) -> Result<(), String> {
    match args {
        [] => {
            let wheel = build(&build_weft(true)?, Kind::Release)?;
            println!("{}", wheel.display());
            Ok(())
        }
        [flag] if flag == "--test" => {
            lint()?;
            let wheel = build(&build_weft(false)?, Kind::Test)?;
            test_wheel(&wheel)
        }
        _ => Err(format!("usage: cargo xtask wheel {HELP}")),
    }
}

/// The wheel with the program `weft`, and its tests: a step of `cargo xtask test`. Without Maturin and the packages of
/// the tests (there may be no network) it is left out, loudly, except in continuous integration.
///
/// # Errors
/// When the module does not build, or a test fails.
pub fn test(weft: &Path) -> Result<(), String> {
    match maturin(Kind::Test).and_then(|_| environments()) {
        Ok(_) => {
            lint()?;
            test_wheel(&build(weft, Kind::Test)?)
        }
        Err(why) if in_ci() => Err(why),
        Err(why) => {
            eprintln!("\n!!! The Python package cannot be tested ({why}): it is left out.\n");
            Ok(())
        }
    }
}

/// What a wheel is for.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    /// For others: optimised, and for older systems.
    Release,
    /// For tests on this machine.
    Test,
}

/// The folder of the package.
fn package() -> PathBuf {
    root().join("bindings/python")
}

/// The interpreter of an environment with Maturin. Zig is needed for wheels that go elsewhere alone.
fn maturin(kind: Kind) -> Result<PathBuf, String> {
    let needed = if kind == Kind::Release { &MATURIN[..] } else { &MATURIN[..1] };
    let name = if kind == Kind::Release { "wheel/maturin-zig" } else { "wheel/maturin" };
    python::environment(&target_dir()?.join(name), needed)
}

/// Settings of Cargo for builds that are tested: other crates without optimisation too, which builds in a third of the
/// time.
const PLAIN: [&str; 2] = ["--config", "profile.dev.package.\"*\".opt-level=0"];

/// Clippy, which `cargo xtask test` runs for the other crates together.
fn lint() -> Result<(), String> {
    let mut c = cargo(&["clippy", "--manifest-path"]);
    c.arg(package().join("Cargo.toml")).args(PLAIN).args(["--", "-D", "warnings"]);
    run_command(c)
}

/// Builds the wheel around the program `weft`.
fn build(weft: &Path, kind: Kind) -> Result<PathBuf, String> {
    heading("maturin build");
    let scripts = package().join("weft_nn._native.data/scripts");
    let say = |e: std::io::Error| format!("{}: {e}", scripts.display());
    std::fs::create_dir_all(&scripts).map_err(say)?;
    std::fs::copy(weft, scripts.join(weft.file_name().unwrap_or_default())).map_err(say)?;
    let folder = target_dir()?.join("wheel").join(if kind == Kind::Release { "release" } else { "test" });
    // What an earlier build left there is not taken for this one's.
    let _ = std::fs::remove_dir_all(&folder);
    let (python, zig) = match maturin(kind) {
        Ok(python) => (python, kind == Kind::Release && cfg!(target_os = "linux")),
        Err(why) if kind == Kind::Release => {
            eprintln!("Zig cannot be had ({why}): the wheel runs on systems with a C library as new as this one's");
            (maturin(Kind::Test)?, false)
        }
        Err(why) => return Err(why),
    };
    let mut c = Command::new(python);
    c.args(["-m", "maturin", "build", "--manifest-path"]).arg(package().join("Cargo.toml"));
    c.arg("--out").arg(&folder).args(if kind == Kind::Release { &["--release"][..] } else { &PLAIN });
    if zig {
        c.args(["--zig", "--compatibility", COMPATIBILITY]);
    }
    c.env("CARGO_TARGET_DIR", target_dir()?);
    run_command(c)?;
    let made = std::fs::read_dir(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let wheel = made.flatten().map(|e| e.path()).find(|p| p.extension().is_some_and(|e| e == "whl"));
    wheel.ok_or_else(|| format!("{}: maturin made no wheel", folder.display()))
}

/// An environment with the packages of the tests for each version of Python that is there; at least one.
fn environments() -> Result<Vec<PathBuf>, String> {
    let there = PYTHONS.iter().copied().filter(|p| crate::cargo::succeeds(p, &["--version"]));
    let mut list: Vec<&str> = there.collect();
    if list.is_empty() {
        list.push(python::program()?);
    }
    let folder = target_dir()?.join("wheel");
    let one = |name: &str| python::environment_of(name, &folder.join(format!("tests-{name}")), &TEST_PACKAGES);
    list.into_iter().map(one).collect()
}

/// Installs the wheel into each environment, and runs the tests there.
fn test_wheel(wheel: &Path) -> Result<(), String> {
    for python in environments()? {
        heading(&format!("the Python package with {}", python.display()));
        let mut install = Command::new(&python);
        install.args([
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
            "--force-reinstall",
            "--no-deps",
        ]);
        run_command({
            install.arg(wheel);
            install
        })?;
        let mut tests = Command::new(&python);
        // From elsewhere, so that the installed package is tested, not its sources.
        tests.current_dir(package().join("tests")).args(["-m", "pytest", "-q", "-p", "no:cacheprovider", "."]);
        tests.env("PYTHONDONTWRITEBYTECODE", "1");
        quiet_loader(&mut tests);
        run_command(tests)?;
    }
    Ok(())
}
