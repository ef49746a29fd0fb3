//! `cargo xtask wheel`: the Python package as a wheel, and its tests from the installed wheel.
//!
//! The module has the command `weft` in it. Maturin and the packages of the tests come from PyPI.

use crate::cargo::{ALL, cargo, in_ci, own_program, root, run as run_command, target_dir};
use crate::heading::heading;
use crate::portable::{self, MATURIN, Zig, path_with};
use crate::python;
use crate::vulkan::quiet_loader;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::Command;

/// One line for the usage.
pub const HELP: &str = "[--quick | --test] builds the Python package as a wheel; --quick: larger, without optimisation across crates, from what `release` has built; --test: as the tests of the workspace build it, and runs its tests from the installed wheel for each Python there is";

/// What the tests need besides the wheel. The cases of docs/conformance.txt are those of this version of onnx; where an
/// older Python gets an older one, they are left out.
const TEST_PACKAGES: [&str; 7] = ["numpy", "onnx<=1.22.0", "pytest", "ipython", "mypy", "magika<=1.0.3", RAPIDOCR];

/// Has no version for newer ones of Python.
const RAPIDOCR: &str = "rapidocr-onnxruntime<=1.4.4; python_version < '3.13'";

/// Packages of the tests of the lab, in an environment of its own: Ray takes 240 MB.
const LAB_PACKAGES: [&str; 4] = ["numpy", "onnx<=1.22.0", "pytest", "ray<=2.60.0"];

/// The tests of the lab.
const LAB: &str = "test_lab.py";

/// Python versions that the tests run with, the oldest that the wheel is for first: the first and the last of those
/// that are installed.
const PYTHONS: [&str; 3] = ["python3.9", "python3.11", "python3.13"];

/// Runs the command.
///
/// # Errors
/// When the wheel cannot be built, or a test fails.
pub fn run(args: &[String]) -> Result<(), String> {
    match args {
        [] => published(&release()?),
        [flag] if flag == "--quick" => published(&quick()?),
        [flag] if flag == "--test" => test_wheel(&plain()?, false),
        _ => Err(format!("usage: cargo xtask wheel {HELP}")),
    }
}

/// The wheel, and its tests: a step of `cargo xtask test`. With `all` these have every case of
/// docs/conformance.txt. Without Maturin and the packages of the tests (there may be no network) it is left out,
/// loudly.
///
/// # Errors
/// When the module does not build, or a test fails.
pub fn test(all: bool) -> Result<(), String> {
    match maturin().and_then(|_| environments()) {
        Ok(_) => test_wheel(&plain()?, all),
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

/// The interpreter of an environment with Maturin.
fn maturin() -> Result<PathBuf, String> {
    python::environment(&target_dir()?.join("wheel/maturin"), &[MATURIN])
}

/// Options of a wheel for others: as small as it gets.
const FOR_OTHERS: [&str; 2] = ["--profile", "wheel"];

/// The variable by which [`as_cargo`] knows that Maturin calls, with the path of cargo.
pub const REAL_CARGO: &str = "WEFT_REAL_CARGO";

/// A variable that is set if Maturin packs what `cargo xtask release` builds.
const AS_RELEASE: &str = "WEFT_WHEEL_AS_RELEASE";

/// What Maturin says of the interpreter would build the module again; it is for all of them.
const OF_INTERPRETER: [&str; 3] = ["PYO3_CONFIG_FILE", "PYO3_PYTHON", "PYO3_ENVIRONMENT_SIGNATURE"];

/// The variables by which Maturin calls this program as cargo.
fn called_as_cargo() -> Result<[(&'static str, OsString); 2], String> {
    Ok([("CARGO", own_program()?.into()), (REAL_CARGO, cargo(&[]).get_program().to_os_string())])
}

/// The wheel for tests on this machine, with the module as the tests of the workspace build it: for the package alone
/// cargo would choose other features, and build all dependencies again.
fn plain() -> Result<PathBuf, String> {
    build(&maturin()?, "test", &["--profile", "dev"], &called_as_cargo()?)
}

/// Cargo as Maturin calls it for [`plain`] and [`quick`]: `rustc` builds the package among [`ALL`], or among the
/// packages of a release.
///
/// # Errors
/// When cargo fails.
pub fn as_cargo(real: &OsStr, args: &[String]) -> Result<(), String> {
    let of_release = std::env::var_os(AS_RELEASE).is_some();
    let mut c = match args.first().is_some_and(|a| a == "rustc") {
        true if of_release => {
            let mut c = portable::build(Zig::find()?.as_ref(), true)?;
            c.args(["--message-format", "json-render-diagnostics"]).env("CARGO", real);
            c
        }
        true => {
            let mut c = Command::new(real);
            c.env_remove("CARGO").current_dir(root()).arg("build").args(ALL);
            // Tests are among them for the features of their dependencies.
            c.args(["--lib", "--bins", "--tests", "--examples", "--message-format", "json-render-diagnostics"]);
            if in_ci() {
                c.env("CARGO_INCREMENTAL", "0");
            }
            c
        }
        false => {
            let mut c = Command::new(real);
            c.env_remove("CARGO").args(args).env_remove(REAL_CARGO);
            return run_command(c);
        }
    };
    for variable in OF_INTERPRETER.iter().chain(&[REAL_CARGO, AS_RELEASE]) {
        c.env_remove(variable);
    }
    run_command(c)
}

/// The wheel for others. On Linux it is linked by Zig, for systems with an older C library.
fn release() -> Result<PathBuf, String> {
    match Zig::find()? {
        Some(zig) => {
            let tag = portable::tag();
            let options = [&["--zig", "--compatibility", &tag], &FOR_OTHERS[..]].concat();
            build(&zig.python, "release", &options, &[])
        }
        None => build(&maturin()?, "release", &FOR_OTHERS, &[]),
    }
}

/// The wheel for others with the module as `cargo xtask release` builds it. Elsewhere than on Linux the release has no
/// module, and only its dependencies are there already.
fn quick() -> Result<PathBuf, String> {
    let Some(zig) = Zig::find()? else { return build(&maturin()?, "quick", &["--profile", "release"], &[]) };
    let as_release = [(AS_RELEASE, "1".into())].into_iter();
    let variables: Vec<_> = called_as_cargo()?.into_iter().chain(as_release).collect();
    build(&zig.python, "quick", &["--profile", "release", "--compatibility", &portable::tag()], &variables)
}

/// Says what was made; on Linux, that it runs on old systems.
fn published(wheel: &Path) -> Result<(), String> {
    let folder = wheel.with_extension("unpacked");
    let _ = std::fs::remove_dir_all(&folder);
    let mut unpack = Command::new(python::program()?);
    unpack.args(["-m", "zipfile", "-e"]).arg(wheel).arg(&folder);
    run_command(unpack)?;
    let inside = std::fs::read_dir(folder.join("weft_nn")).map_err(|e| format!("{}: {e}", folder.display()))?;
    let modules = inside.flatten().map(|e| e.path()).filter(|p| p.extension().is_some_and(|e| e == "so"));
    let by_zig = Zig::find()?.is_some();
    let needs: Result<Vec<String>, String> = modules.map(|module| portable::needs(&module, by_zig)).collect();
    let _ = std::fs::remove_dir_all(&folder);
    print!("{}{}", portable::describe(wheel)?, needs?.concat());
    Ok(())
}

/// Builds a wheel with these options of Maturin and variables, in the folder `name`.
fn build(python: &Path, name: &str, options: &[&str], variables: &[(&str, OsString)]) -> Result<PathBuf, String> {
    heading("maturin build");
    let folder = target_dir()?.join("wheel").join(name);
    // A wheel that an earlier build left there is not taken for this one's.
    let _ = std::fs::remove_dir_all(&folder);
    let mut c = Command::new(python);
    c.args(["-m", "maturin", "build", "--manifest-path"]).arg(package().join("Cargo.toml"));
    c.arg("--out").arg(&folder).args(options).env("CARGO_TARGET_DIR", target_dir()?).env("PATH", path_with(python)?);
    c.envs(variables.iter().cloned());
    run_command(c)?;
    let made = std::fs::read_dir(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let wheel = made.flatten().map(|e| e.path()).find(|p| p.extension().is_some_and(|e| e == "whl"));
    wheel.ok_or_else(|| format!("{}: maturin made no wheel", folder.display()))
}

/// An environment with the packages of the tests for each version of Python that is there; at least one.
fn environments() -> Result<Vec<PathBuf>, String> {
    let mut list: Vec<(&str, String)> = PYTHONS.iter().filter_map(|name| Some((*name, interpreter(name)?))).collect();
    if list.is_empty() {
        let program = python::program()?;
        list.push((program, program.into()));
    }
    // Packages of one environment take 800 MB.
    if let [_, between @ .., _] = &list[..] {
        list.drain(1..=between.len());
    }
    let folder = target_dir()?.join("wheel");
    let one = |(name, program): &(&str, String)| {
        python::environment_of(program, &folder.join(format!("tests-{name}")), &TEST_PACKAGES)
    };
    list.iter().map(one).collect()
}

/// The program of that name: on the PATH, or one of pyenv's, whose own `python3.9` runs only where it is chosen.
fn interpreter(name: &str) -> Option<String> {
    if crate::cargo::succeeds(name, &["--version"]) {
        return Some(name.into());
    }
    let home = || std::env::home_dir().map(|home| home.join(".pyenv"));
    let versions = std::env::var_os("PYENV_ROOT").map(PathBuf::from).or_else(home)?.join("versions");
    let there = std::fs::read_dir(versions).ok()?.flatten().map(|e| e.path().join("bin").join(name));
    there.filter(|program| program.exists()).max().map(|program| program.display().to_string())
}

/// Installs the wheel into each environment, and runs the tests there; a failure in one does not keep the others from
/// running.
fn test_wheel(wheel: &Path, all: bool) -> Result<(), String> {
    let test = |python: &PathBuf| test_with(python, wheel, all).err();
    let mut failed: Vec<String> = environments()?.iter().filter_map(test).collect();
    match lab_environment() {
        Ok(python) => failed.extend(test_lab(&python, wheel).err()),
        Err(why) => eprintln!("\n!!! The lab cannot be tested ({why}): it is left out.\n"),
    }
    if failed.is_empty() { Ok(()) } else { Err(failed.join("; ")) }
}

/// An environment with Ray, of one Python.
fn lab_environment() -> Result<PathBuf, String> {
    let program = PYTHONS[1..].iter().find_map(|name| interpreter(name)).unwrap_or(python::program()?.into());
    python::environment_of(&program, &target_dir()?.join("wheel/tests-lab"), &LAB_PACKAGES)
}

fn test_lab(python: &Path, wheel: &Path) -> Result<(), String> {
    heading("the lab, on Ray");
    install(python, wheel)?;
    let mut tests = tests_with(python);
    tests.arg(LAB);
    run_command(tests)
}

fn test_with(python: &Path, wheel: &Path, all: bool) -> Result<(), String> {
    heading(&format!("the Python package with {}", python.display()));
    install(python, wheel)?;
    let mut tests = tests_with(python);
    tests.arg(".");
    if all {
        tests.env("WEFT_ALL_CASES", "1");
    }
    run_command(tests)
}

fn install(python: &Path, wheel: &Path) -> Result<(), String> {
    let mut install = Command::new(python);
    install.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--force-reinstall", "--no-deps"]);
    install.arg(wheel);
    run_command(install)
}

/// Pytest, from elsewhere, so that the installed package is tested, not its sources.
fn tests_with(python: &Path) -> Command {
    let mut tests = Command::new(python);
    tests.current_dir(package().join("tests")).args(["-m", "pytest", "-q", "-p", "no:cacheprovider"]);
    tests.env("PYTHONDONTWRITEBYTECODE", "1");
    quiet_loader(&mut tests);
    tests
}
