//! `cargo xtask release`: an archive of the command for this machine's system.

use crate::cargo::{cargo, root, run as run_command, target_dir};
use crate::heading::heading;
use std::path::{Path, PathBuf};
use std::process::Command;

/// One line for the usage.
pub const HELP: &str = "[--without-viewer] builds an archive of the command for this system, and says what it needs";

/// Files beside the program.
const BESIDE: [&str; 4] = ["README.md", "LICENSE", "LICENSE-MIT", "LICENSE-APACHE"];

/// What the archives of other systems need.
const OTHERS: &str = "\
Windows: run this there, with Rust's MSVC toolchain and Visual Studio's build tools. DX12 comes with the system; nothing else has
  to be installed. Sign the program (signtool), or SmartScreen warns.
macOS: run this there, with Xcode's command line tools, once for each of aarch64-apple-darwin and x86_64-apple-darwin; `lipo -create`
  makes one program of both. Metal comes with the system. Sign and notarise it (codesign, notarytool), or users have to remove the
  quarantine with `xattr -d com.apple.quarantine weft`.
";

/// Runs the command.
///
/// # Errors
/// When the build or the archive fails.
pub fn run(args: &[String]) -> Result<(), String> {
    let viewer = match args {
        [] => true,
        [flag] if flag == "--without-viewer" => false,
        _ => return Err(format!("usage: cargo xtask release {HELP}")),
    };
    heading("cargo build --release (five minutes on two cores, with the viewer eleven)");
    let mut build = cargo(&["build", "--release", "--locked", "--package", "weft-command"]);
    if viewer {
        build.args(["--features", "view"]);
    }
    run_command(build)?;
    let program = target_dir()?.join("release").join(format!("weft{}", std::env::consts::EXE_SUFFIX));
    let archive = pack(&program)?;
    println!("{}\n\n{}{OTHERS}", archive.display(), needs(&program)?);
    Ok(())
}

/// Packs the program with its licences; returns the archive.
fn pack(program: &Path) -> Result<PathBuf, String> {
    let name = format!("weft-{}-{}-{}", env!("CARGO_PKG_VERSION"), std::env::consts::ARCH, std::env::consts::OS);
    let folder = target_dir()?.join("release-archive");
    let inside = folder.join(&name);
    std::fs::create_dir_all(&inside).map_err(|e| format!("{}: {e}", inside.display()))?;
    let files = BESIDE.iter().map(|f| root().join(f)).chain([program.to_path_buf()]);
    for file in files {
        let to = inside.join(file.file_name().unwrap_or_default());
        std::fs::copy(&file, to).map_err(|e| format!("{}: {e}", file.display()))?;
    }
    let archive = folder.join(format!("{name}.tar.gz"));
    let mut tar = Command::new("tar");
    tar.arg("-czf").arg(&archive).arg("-C").arg(&folder).arg(&name);
    run_command(tar)?;
    Ok(archive)
}

/// What the archive needs of the system that it runs on.
fn needs(program: &Path) -> Result<String, String> {
    let bytes = std::fs::read(program).map_err(|e| format!("{}: {e}", program.display()))?;
    Ok(match newest_glibc(&bytes) {
        Some((major, minor)) => format!(
            "Linux: it runs with glibc {major}.{minor} or newer. For older systems build it on the oldest one that it is to run on.\n\
             A Vulkan driver and its loader (libvulkan.so.1) are looked for when it runs; without them the CPU is used.\n"
        ),
        None => String::new(),
    })
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

    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    #[test]
    fn this_program_says_its_own() {
        let own = std::env::current_exe().expect("the test");
        assert!(needs(&own).expect("what it needs").contains("glibc 2."));
    }
}
