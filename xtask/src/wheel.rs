//! `cargo xtask wheel`: the Python package as a wheel, and its tests from the installed wheel.
//!
//! The wheel has the module and the command `weft`, which is put into `weft_nn._native.data/scripts` of the package's folder.
//! Maturin and the packages of the tests come from PyPI.

use crate::cargo::{build_weft, cargo, root, run as run_command, target_dir, tested_weft};
use crate::heading::heading;
use crate::python;
use crate::vulkan::quiet_loader;
use std::path::{Path, PathBuf};
use std::process::Command;

/// One line for the usage.
pub const HELP: &str = "[--test] builds the Python package as a wheel; --test: without optimisation, lints it, and runs its tests from the installed wheel for each Python there is";

/// What builds a wheel.
const MATURIN: &str = "maturin==1.16.0";

/// A linker for older systems than this one, and what makes Cargo use it.
const ZIG: [&str; 2] = ["ziglang==0.15.2", "cargo-zigbuild==0.24.1"];

/// The version of the C library of the oldest Linux that a wheel for others is for.
const OLDEST: &str = "2.28";

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
            println!("{}", release()?.display());
            Ok(())
        }
        [flag] if flag == "--test" => {
            lint()?;
            test_wheel(&plain(&tested_weft()?)?)
        }
        _ => Err(format!("usage: cargo xtask wheel {HELP}")),
    }
}

/// The wheel with the program `weft`, and its tests: a step of `cargo xtask test`. Without Maturin and the packages of
/// the tests (there may be no network) it is left out, loudly.
///
/// # Errors
/// When the module does not build, or a test fails.
pub fn test(weft: &Path) -> Result<(), String> {
    match maturin(&[]).and_then(|_| environments()) {
        Ok(_) => {
            lint()?;
            test_wheel(&plain(weft)?)
        }
        Err(why) => {
            eprintln!("\n!!! The Python package cannot be tested ({why}): it is left out.\n");
            Ok(())
        }
    }
}

/// The folder of the package.
fn package() -> PathBuf {
    root().join("bindings/python")
}

/// The interpreter of an environment with Maturin, and these packages.
fn maturin(more: &[&str]) -> Result<PathBuf, String> {
    let name = if more.is_empty() { "wheel/maturin" } else { "wheel/maturin-zig" };
    python::environment(&target_dir()?.join(name), &[&[MATURIN], more].concat())
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

/// The wheel for tests on this machine, around the program `weft`.
fn plain(weft: &Path) -> Result<PathBuf, String> {
    build(&maturin(&[])?, weft, "test", &PLAIN)
}

/// The wheel for others. On Linux it is linked by Zig, for systems with an older C library.
fn release() -> Result<PathBuf, String> {
    if cfg!(target_os = "linux") {
        match maturin(&ZIG) {
            Ok(python) => {
                let tag = format!("manylinux_{}", OLDEST.replace('.', "_"));
                let options = ["--release", "--zig", "--compatibility", &tag];
                return build(&python, &portable_weft(&python)?, "release", &options);
            }
            Err(why) => eprintln!("no Zig ({why}): the wheel needs a C library as new as this system's"),
        }
    }
    build(&maturin(&[])?, &build_weft(true)?, "release", &["--release"])
}

/// The command, linked by Zig.
fn portable_weft(python: &Path) -> Result<PathBuf, String> {
    let target = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let mut c = cargo(&["zigbuild", "--release", "--package", "weft-command", "--target"]);
    c.arg(format!("{target}.{OLDEST}"));
    // Cargo looks for `cargo-zigbuild` there, and that for `python3` with Zig.
    let tools = python.parent().map(Path::to_path_buf).into_iter();
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path = std::env::join_paths(tools.chain(std::env::split_paths(&path))).map_err(|e| e.to_string())?;
    c.env("PATH", path);
    run_command(c)?;
    Ok(target_dir()?.join(target).join("release/weft"))
}

/// Builds a wheel around the program `weft`, with these options of Maturin, in the folder `name`.
fn build(python: &Path, weft: &Path, name: &str, options: &[&str]) -> Result<PathBuf, String> {
    heading("maturin build");
    let scripts = package().join("weft_nn._native.data/scripts");
    let say = |e: std::io::Error| format!("{}: {e}", scripts.display());
    std::fs::create_dir_all(&scripts).map_err(say)?;
    std::fs::copy(weft, scripts.join(weft.file_name().unwrap_or_default())).map_err(say)?;
    let folder = target_dir()?.join("wheel").join(name);
    // A wheel that an earlier build left there is not taken for this one's.
    let _ = std::fs::remove_dir_all(&folder);
    let mut c = Command::new(python);
    c.args(["-m", "maturin", "build", "--manifest-path"]).arg(package().join("Cargo.toml"));
    c.arg("--out").arg(&folder).args(options).env("CARGO_TARGET_DIR", target_dir()?);
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

/// Installs the wheel into each environment, and runs the tests there; a failure in one does not keep the others from
/// running.
fn test_wheel(wheel: &Path) -> Result<(), String> {
    let failed: Vec<String> = environments()?.iter().filter_map(|python| test_with(python, wheel).err()).collect();
    if failed.is_empty() { Ok(()) } else { Err(failed.join("; ")) }
}

fn test_with(python: &Path, wheel: &Path) -> Result<(), String> {
    heading(&format!("the Python package with {}", python.display()));
    let mut install = Command::new(python);
    install.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--force-reinstall", "--no-deps"]);
    install.arg(wheel);
    run_command(install)?;
    let mut tests = Command::new(python);
    // From elsewhere, so that the installed package is tested, not its sources.
    tests.current_dir(package().join("tests")).args(["-m", "pytest", "-q", "-p", "no:cacheprovider", "."]);
    tests.env("PYTHONDONTWRITEBYTECODE", "1");
    quiet_loader(&mut tests);
    run_command(tests)
}
