//! `cargo xtask release`: an archive of the command for this machine's system.

use crate::cargo::{root, run as run_command, target_dir};
use crate::heading::heading;
use crate::portable::{self, Zig};
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
    heading("cargo build --release (16 minutes of CPU time with the viewer and the Python module)");
    let zig = Zig::find()?;
    run_command(portable::build(zig.as_ref(), viewer)?)?;
    let program = portable::folder(zig.as_ref())?.join(format!("weft{}", std::env::consts::EXE_SUFFIX));
    let needs = portable::needs(&program, zig.is_some())?;
    let archive = pack(&program)?;
    println!("{}{needs}\n{OTHERS}", portable::describe(&archive)?);
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
