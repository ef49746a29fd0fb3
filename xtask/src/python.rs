//! Python, and a virtual environment for the packages that a chore needs.

use crate::cargo::{run, succeeds};
use crate::vulkan::apt_install;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The Python interpreter; installed through apt where that is possible.
///
/// # Errors
/// When there is none.
pub fn program() -> Result<&'static str, String> {
    let find = || {
        ["python3", "python"]
            .into_iter()
            .find(|p| succeeds(p, &["-c", "import sys; assert sys.version_info >= (3, 9)"]))
    };
    if let Some(p) = find() {
        return Ok(p);
    }
    apt_install(&["python3", "python3-venv"]).map_err(|e| format!("Python 3.9 or newer is needed: {e}"))?;
    find().ok_or_else(|| "Python 3.9 or newer is needed".into())
}

/// The interpreter of a virtual environment at `folder` that holds `packages`; made on first use.
///
/// # Errors
/// When the environment or a package cannot be had.
pub fn environment(folder: &Path, packages: &[&str]) -> Result<PathBuf, String> {
    environment_of(program()?, folder, packages)
}

/// As [`environment`], of the interpreter `program`.
///
/// # Errors
/// As there.
pub fn environment_of(program: &str, folder: &Path, packages: &[&str]) -> Result<PathBuf, String> {
    let python = if cfg!(windows) { folder.join("Scripts/python.exe") } else { folder.join("bin/python") };
    let mark = folder.join(".packages");
    let wanted = packages.join(" ");
    if std::fs::read_to_string(&mark).is_ok_and(|have| have == wanted) {
        return Ok(python);
    }
    let make = || {
        let mut c = Command::new(program);
        c.args(["-m", "venv", "--clear"]).arg(folder);
        run(c)
    };
    if make().is_err() {
        // Debian keeps the module in a package of its own.
        apt_install(&["python3-venv"])?;
        make()?;
    }
    let mut pip = Command::new(&python);
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]).args(packages);
    run(pip)?;
    std::fs::write(&mark, wanted).map_err(|e| format!("{}: {e}", mark.display()))?;
    Ok(python)
}
