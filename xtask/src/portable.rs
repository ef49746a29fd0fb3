//! Files for other people's machines: on Linux they are linked by Zig for systems older than this one, the newest
//! symbol that they ask for is checked, and their sizes and checksums are printed. `release` and `wheel` share it.

use crate::cargo::{cargo, in_ci, root, target_dir};
use crate::python;
use sha2::{Digest, Sha256};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What builds a wheel.
pub const MATURIN: &str = "maturin==1.16.0";

/// A linker for older systems than this one, and what makes Cargo use it.
const ZIG: [&str; 2] = ["ziglang==0.15.2", "cargo-zigbuild==0.24.1"];

/// The version of glibc of the oldest Linux that files for others run on: Debian 10 and RHEL 8 have it.
const OLDEST: (u32, u32) = (2, 28);

/// The name by which pip knows wheels for such systems.
pub fn tag() -> String {
    format!("manylinux_{}_{}", OLDEST.0, OLDEST.1)
}

/// Rust's name of a Linux with glibc on this processor.
fn triple() -> String {
    format!("{}-unknown-linux-gnu", std::env::consts::ARCH)
}

/// An environment with Maturin and Zig.
pub struct Zig {
    /// Its interpreter.
    pub python: PathBuf,
}

impl Zig {
    /// Zig, fetched on first use. `None` on systems that need none, and, said loudly, where it cannot be had.
    ///
    /// # Errors
    /// In continuous integration, where it cannot be had; where cargo does not say its target folder.
    pub fn find() -> Result<Option<Zig>, String> {
        if !cfg!(all(target_os = "linux", target_env = "gnu")) {
            return Ok(None);
        }
        match python::environment(&target_dir()?.join("wheel/maturin-zig"), &[&[MATURIN], &ZIG[..]].concat()) {
            Ok(python) => Ok(Some(Zig { python })),
            Err(why) if in_ci() => Err(format!("no Zig: {why}")),
            Err(why) => {
                eprintln!("\n!!! No Zig ({why}): the result needs a glibc as new as this system's.\n");
                Ok(None)
            }
        }
    }
}

/// The PATH behind the programs of an environment: Maturin and cargo-zigbuild look for `python3` with Zig.
///
/// # Errors
/// When a folder of the PATH has a name that cannot stand in it.
pub fn path_with(python: &Path) -> Result<OsString, String> {
    let tools = python.parent().map(Path::to_path_buf);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let others = std::env::split_paths(&path).filter(|folder| Some(folder) != tools.as_ref());
    std::env::join_paths(tools.iter().cloned().chain(others)).map_err(|e| e.to_string())
}

/// The build of a release, with the window of `weft view` if `viewer`. On Linux the Python module is among the
/// packages, for `wheel --quick`: for each package alone cargo would choose other features, and build all dependencies
/// twice.
///
/// # Errors
/// As [`path_with`] and [`target_dir`].
pub fn build(zig: Option<&Zig>, viewer: bool) -> Result<Command, String> {
    let mut c = match zig {
        Some(zig) => {
            let mut c = Command::new(zig.python.with_file_name("cargo-zigbuild"));
            c.current_dir(root()).env("PATH", path_with(&zig.python)?).env("CARGO_TARGET_DIR", target_dir()?);
            c.args(["zigbuild", "--target", &format!("{}.{}.{}", triple(), OLDEST.0, OLDEST.1), "--package", "python"]);
            c
        }
        None => cargo(&["build"]),
    };
    c.args(["--release", "--locked", "--package", "weft-command"]).env("CARGO_PROFILE_RELEASE_STRIP", "symbols");
    if viewer {
        c.args(["--features", "weft-command/view"]);
    }
    Ok(c)
}

/// The folder into which [`build`] writes.
///
/// # Errors
/// As [`target_dir`].
pub fn folder(zig: Option<&Zig>) -> Result<PathBuf, String> {
    let target = target_dir()?;
    Ok(if zig.is_some() { target.join(triple()).join("release") } else { target.join("release") })
}

/// The size and the checksum of a file, which is also written beside it, for `sha256sum --check`.
///
/// # Errors
/// When a file cannot be read or written.
pub fn describe(file: &Path) -> Result<String, String> {
    let say = |e: std::io::Error| format!("{}: {e}", file.display());
    let bytes = std::fs::read(file).map_err(say)?;
    let sum: String = Sha256::digest(&bytes).iter().map(|b| format!("{b:02x}")).collect();
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    let mut beside = file.as_os_str().to_owned();
    beside.push(".sha256");
    std::fs::write(&beside, format!("{sum}  {name}\n")).map_err(say)?;
    Ok(format!("{}\n{} bytes ({:.1} MB), sha256 {sum}\n", file.display(), bytes.len(), bytes.len() as f64 / 1e6))
}

/// What a program or module needs of a Linux system, by the newest symbol of glibc that it asks for.
///
/// # Errors
/// When the file cannot be read; when Zig linked it and it asks for a newer symbol than [`OLDEST`] has.
pub fn needs(file: &Path, linked_by_zig: bool) -> Result<String, String> {
    let bytes = std::fs::read(file).map_err(|e| format!("{}: {e}", file.display()))?;
    let Some(newest) = newest_glibc(&bytes) else { return Ok(String::new()) };
    let (major, minor) = newest;
    if newest > OLDEST && linked_by_zig {
        let (most, most_minor) = OLDEST;
        let name = file.display();
        return Err(format!(
            "{name} asks for a symbol of glibc {major}.{minor}; {most}.{most_minor} at most is allowed"
        ));
    }
    Ok(format!(
        "Linux: the newest symbol is of glibc {major}.{minor}: it runs with this version or a newer one.\n\
         A Vulkan driver and its loader (libvulkan.so.1) are looked for when it runs; without them the CPU is used.\n"
    ))
}

/// The newest version of glibc's symbols that a program asks for, by the names in its table of strings.
fn newest_glibc(program: &[u8]) -> Option<(u32, u32)> {
    const MARK: &[u8] = b"GLIBC_";
    let at = program.windows(MARK.len()).enumerate().filter(|(_, w)| *w == MARK).map(|(i, _)| i + MARK.len());
    let version = |i: usize| {
        let text: String =
            program[i..].iter().map(|b| *b as char).take_while(|c| c.is_ascii_digit() || *c == '.').collect();
        let mut numbers = text.split('.').map(|n| n.parse().ok());
        Some((numbers.next()??, numbers.next()??))
    };
    at.filter_map(version).max()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_symbol_decides() {
        let table = b"\0libc.so.6\0GLIBC_2.2.5\0GLIBC_2.34\0GLIBC_2.4\0GLIBC_PRIVATE\0";
        assert_eq!(newest_glibc(table), Some((2, 34)));
        assert_eq!(newest_glibc(b"no program of glibc"), None);
    }

    #[test]
    fn a_newer_symbol_than_zig_was_told_is_refused() {
        let file = std::env::temp_dir().join(format!("weft-symbols-{}", std::process::id()));
        std::fs::write(&file, b"\0GLIBC_2.4\0GLIBC_2.28\0").expect("a file");
        assert!(needs(&file, true).is_ok_and(|said| said.contains("glibc 2.28")));
        std::fs::write(&file, b"\0GLIBC_2.28\0GLIBC_2.34\0").expect("a file");
        assert!(needs(&file, true).is_err_and(|e| e.contains("2.34")));
        assert!(needs(&file, false).is_ok_and(|said| said.contains("glibc 2.34")), "linked for this system");
        std::fs::remove_file(file).expect("a file");
    }

    #[test]
    fn a_file_is_described_as_sha256sum_does() {
        let file = std::env::temp_dir().join(format!("weft-described-{}", std::process::id()));
        std::fs::write(&file, "abc").expect("a file");
        let said = describe(&file).expect("a description");
        let beside = file.with_extension("sha256");
        let line = std::fs::read_to_string(&beside).expect("the sum");
        let sum = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(line, format!("{sum}  {}\n", file.file_name().expect("a name").to_string_lossy()));
        assert!(said.contains(sum) && said.contains("3 bytes"), "{said}");
        [file, beside].iter().for_each(|f| std::fs::remove_file(f).expect("a file"));
    }

    #[test]
    fn the_folder_of_an_environment_stands_once_and_first() {
        let folder = std::env::temp_dir().join("environment");
        let path = path_with(&folder.join("python")).expect("a PATH");
        assert_eq!(std::env::split_paths(&path).filter(|f| *f == folder).count(), 1);
        assert_eq!(std::env::split_paths(&path).next(), Some(folder));
    }
}
