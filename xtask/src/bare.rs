//! `cargo xtask bare`: what `release` and `wheel` made, on bare Debian systems.
//!
//! Each root is made by debootstrap, with Python and without a compiler, and is kept in the target folder. Nothing of
//! this machine is in it but the files under test, the addresses of name servers and the certificates for pip.

use crate::cargo::{run as run_command, succeeds, target_dir};
use crate::heading::heading;
use crate::vulkan::apt_install;
use std::path::{Path, PathBuf};
use std::process::Command;

/// One line for the usage.
pub const HELP: &str = "installs the archive of `release` and the wheel of `wheel` in bare roots of the oldest and the \
                        newest Debian that apt reaches, and runs the first command there (as root, on Linux)";

/// Debian's releases, the oldest with glibc 2.28 first.
const SUITES: [&str; 6] = ["buster", "bullseye", "bookworm", "trixie", "forky", "sid"];

const MIRROR: &str = "http://deb.debian.org/debian";

/// Says what system it is.
const SYSTEM: &str =
    "grep PRETTY_NAME /etc/os-release; ldd --version | head -n 1; command -v cc gcc clang rustc || echo 'no compiler'";

/// The archive's first command, with a network of the zoo as the reader's model.
const ARCHIVE: &str =
    "tar -xzf weft-*.tar.gz; cd weft-*/; ./weft export squeezenet1_1 -o ../model.onnx; ./weft bench ../model.onnx";

/// The wheel's. Newer systems let pip install into an environment alone.
const WHEEL: &str =
    "python3 -m venv env; . env/bin/activate; pip install --quiet ./weft_nn-*.whl; weft bench model.onnx";

/// Runs the command.
///
/// # Errors
/// When no root can be had, or a command fails in one.
pub fn run(args: &[String]) -> Result<(), String> {
    if !args.is_empty() {
        return Err(format!("usage: cargo xtask bare {HELP}"));
    }
    let archive = newest(&["release-archive"], ".tar.gz")?;
    let wheel = newest(&["wheel/release", "wheel/quick"], ".whl")?;
    if !succeeds("debootstrap", &["--version"]) {
        apt_install(&["debootstrap"])?;
    }
    let oldest = first(SUITES.iter())?;
    let latest = first(SUITES.iter().rev())?;
    let try_in = |place: &PathBuf| try_in(place, &[&archive, &wheel]).err();
    let failed: Vec<String> = [oldest, latest].iter().filter_map(try_in).collect();
    if failed.is_empty() { Ok(()) } else { Err(failed.join("; ")) }
}

/// The newest file in these folders of the target folder with this ending.
fn newest(folders: &[&str], ending: &str) -> Result<PathBuf, String> {
    let target = target_dir()?;
    let files = folders.iter().filter_map(|f| std::fs::read_dir(target.join(f)).ok()).flat_map(|d| d.flatten());
    let ours = files.filter(|e| e.file_name().to_string_lossy().ends_with(ending));
    let found = ours.max_by_key(|e| e.metadata().and_then(|m| m.modified()).ok());
    found.map(|e| e.path()).ok_or_else(|| {
        format!(
            "no {ending} in {}: run `cargo xtask release` and `cargo xtask wheel --quick` first",
            folders.join(", ")
        )
    })
}

/// The root of the first of these releases that can be had; those before it are said.
fn first<'a>(mut suites: impl Iterator<Item = &'a &'a str>) -> Result<PathBuf, String> {
    let found = suites.find_map(|suite| match bare(suite) {
        Ok(place) => Some(place),
        Err(why) => {
            eprintln!("{suite} cannot be had: {why}");
            None
        }
    });
    found.ok_or_else(|| format!("no Debian can be had from {MIRROR}"))
}

/// A root of a release, made on first use.
fn bare(suite: &str) -> Result<PathBuf, String> {
    let place = target_dir()?.join("bare-roots").join(suite);
    let mark = place.join(".made");
    if mark.exists() {
        return Ok(place);
    }
    heading(&format!("debootstrap {suite}"));
    let _ = std::fs::remove_dir_all(&place);
    std::fs::create_dir_all(&place).map_err(|e| format!("{}: {e}", place.display()))?;
    let mut c = Command::new("debootstrap");
    c.args(["--variant=minbase", "--include=python3-venv", suite]).arg(&place).arg(MIRROR);
    c.stdout(std::process::Stdio::null());
    run_command(c)?;
    std::fs::write(&mark, "").map_err(|e| format!("{}: {e}", mark.display()))?;
    Ok(place)
}

/// The commands of the archive and of the wheel in a root, as a transcript.
fn try_in(place: &Path, files: &[&Path]) -> Result<(), String> {
    heading(&place.display().to_string());
    let folder = place.join("try");
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let copy =
        |from: &Path, to: PathBuf| std::fs::copy(from, to).map(|_| ()).map_err(|e| format!("{}: {e}", from.display()));
    for file in files {
        copy(file, folder.join(file.file_name().unwrap_or_default()))?;
    }
    copy(Path::new("/etc/resolv.conf"), place.join("etc/resolv.conf"))?;
    let certificates = Path::new("/etc/ssl/certs/ca-certificates.crt");
    if certificates.exists() {
        copy(certificates, folder.join("certificates.crt"))?;
    }
    for script in [SYSTEM, ARCHIVE, WHEEL] {
        for line in script.split("; ") {
            println!("$ {line}");
        }
        // `mount` in a namespace of its own, so that nothing stays mounted.
        let inside =
            "mount -t proc proc \"$0/proc\" && mount --rbind /dev \"$0/dev\" && exec chroot \"$0\" /bin/sh -ec \"$1\"";
        let mut c = Command::new("unshare");
        c.args(["--mount", "sh", "-c", inside]).arg(place).arg(format!("cd /try; {script}"));
        c.env_clear().env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin").env("HOME", "/root");
        if certificates.exists() {
            c.env("PIP_CERT", "/try/certificates.crt");
        }
        run_command(c)?;
    }
    Ok(())
}
