//! `cargo xtask package`: the crates as a registry would have them, and the command installed from that form alone.
//!
//! `cargo check` finds a file that a package lacks; `--install`, and with it `cargo xtask test --full`, builds,
//! installs and runs the command.

use crate::cargo::{cargo, root, run as run_command, target_dir};
use crate::heading::heading;
use cargo_metadata::{MetadataCommand, Package};
use std::path::{Path, PathBuf};
use std::process::Command;

/// One line for the usage.
pub const HELP: &str = "[--install [--release]] packages the crates, and checks what is in them and that they compile from that form alone; --install: installs the command from the packages, as a debug build unless --release is given, and runs it";

/// The package of the command.
const COMMAND: &str = "weft-command";

/// Folders of the target folder: packages, what they are built into, and the installed command.
pub const FOLDERS: [&str; 3] = ["packages", "packages-target", "packages-root"];

/// Files that every package has.
const WHOLE: [&str; 3] = ["Cargo.toml", "README.md", "src/lib.rs"];

/// Runs the command.
///
/// # Errors
/// When a package lacks a file, or does not build.
pub fn run(args: &[String]) -> Result<(), String> {
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    match words[..] {
        [] => test(false),
        ["--install"] => test(true),
        ["--install", "--release"] => install_from(&unpacked()?, true),
        _ => Err(format!("usage: cargo xtask package {HELP}")),
    }
}

/// The step of `cargo xtask test`; `install` with its `--full`.
///
/// # Errors
/// As [`run`].
pub fn test(install: bool) -> Result<(), String> {
    let folder = unpacked()?;
    if install { install_from(&folder, false) } else { check(&folder) }
}

/// The folder of the packages; what they must have is in them.
fn unpacked() -> Result<PathBuf, String> {
    heading("cargo package");
    let packages = published()?;
    let folder = unpack(&packages)?;
    packages.iter().try_for_each(|p| check_contents(&folder.join(p)))?;
    Ok(folder)
}

/// Checks the packages, with the dependencies as `cargo clippy` has checked them.
fn check(folder: &Path) -> Result<(), String> {
    heading("cargo check, of the packages");
    let mut c = cargo(&["check", "--workspace", "--features", "weft-command/view"]);
    c.current_dir(folder).env("CARGO_TARGET_DIR", target_dir()?);
    run_command(c)
}

/// The packages that are published, as `NAME-VERSION`.
///
/// # Errors
/// When `cargo metadata` fails.
pub fn published() -> Result<Vec<String>, String> {
    let mut command = MetadataCommand::new();
    let meta = command.manifest_path(root().join("Cargo.toml")).no_deps().exec();
    let meta = meta.map_err(|e| format!("cargo metadata: {e}"))?;
    let published = |p: &&Package| p.publish.as_ref().is_none_or(|registries| !registries.is_empty());
    Ok(meta.packages.iter().filter(published).map(|p| format!("{}-{}", p.name, p.version)).collect())
}

/// Packages the published crates and unpacks them side by side, as a workspace that takes each from its package.
fn unpack(packages: &[String]) -> Result<PathBuf, String> {
    let mut c = cargo(&["package", "--no-verify", "--allow-dirty", "--quiet"]);
    for (name, _) in packages.iter().filter_map(|p| p.rsplit_once('-')) {
        c.args(["--package", name]);
    }
    run_command(c)?;
    let folder = target_dir()?.join(FOLDERS[0]);
    let say = |e: std::io::Error| format!("{}: {e}", folder.display());
    if folder.exists() {
        std::fs::remove_dir_all(&folder).map_err(say)?;
    }
    std::fs::create_dir_all(&folder).map_err(say)?;
    for p in packages {
        let archive = target_dir()?.join("package").join(format!("{p}.crate"));
        let mut tar = Command::new("tar");
        // With the time of now: archives have one time for all, and cargo would see no change.
        tar.arg("-xzmf").arg(archive).arg("-C").arg(&folder);
        run_command(tar)?;
    }
    let own = std::fs::read_to_string(root().join("Cargo.toml")).map_err(say)?;
    std::fs::write(folder.join("Cargo.toml"), workspace_of(packages) + profiles_of(&own)).map_err(say)?;
    std::fs::copy(root().join("Cargo.lock"), folder.join("Cargo.lock")).map_err(say)?;
    Ok(folder)
}

/// A workspace of unpacked packages. They name each other by version alone; until they are published, the versions are
/// these.
fn workspace_of(packages: &[String]) -> String {
    let members = packages.iter().map(|p| format!("\"{p}\", ")).collect::<String>();
    let place = |p: &String| {
        let (name, _) = p.rsplit_once('-')?;
        Some(format!("{name} = {{ path = \"{p}\" }}\n"))
    };
    let places: String = packages.iter().filter_map(place).collect();
    format!("[workspace]\nmembers = [{members}]\nresolver = \"3\"\n\n[patch.crates-io]\n{places}\n")
}

/// The profiles of a workspace's manifest, which end it: with others, dependencies would be built again.
fn profiles_of(manifest: &str) -> &str {
    manifest.find("[profile.").map_or("", |at| &manifest[at..])
}

/// Files that a package must have, and paths that lead out of it.
fn check_contents(package: &Path) -> Result<(), String> {
    let lacks = WHOLE.iter().find(|f| !package.join(f).exists());
    if let Some(file) = lacks {
        return Err(format!("{} has no {file}", package.display()));
    }
    let manifest = package.join("Cargo.toml");
    let text = std::fs::read_to_string(&manifest).map_err(|e| format!("{}: {e}", manifest.display()))?;
    let outside = text.lines().find(|l| l.starts_with("path = \"..") || l.contains("version = \"="));
    outside.map_or(Ok(()), |l| {
        Err(format!("{}: `{l}`: a path out of the package, or one exact version", manifest.display()))
    })
}

/// Installs the command from its package, and asks it what networks it has.
fn install_from(folder: &Path, release: bool) -> Result<(), String> {
    heading("cargo install --path, from the package");
    let [_, target, place] = FOLDERS;
    let (target, place) = (target_dir()?.join(target), target_dir()?.join(place));
    let package = published()?.into_iter().find(|p| p.starts_with(COMMAND)).ok_or("the command is not published")?;
    let mut c = cargo(&["install", "--locked", "--force", "--path"]);
    c.arg(folder.join(package)).arg("--root").arg(&place);
    if !release {
        c.arg("--debug");
    }
    c.current_dir(folder).env("CARGO_TARGET_DIR", target);
    run_command(c)?;
    let mut weft = Command::new(place.join("bin").join(format!("weft{}", std::env::consts::EXE_SUFFIX)));
    weft.args(["run", "squeezenet1_1", "--device", "cpu"]);
    run_command(weft)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_take_each_other_from_their_places() {
        let text = workspace_of(&["weft-nn-0.1.0".into(), "weft-command-0.1.0".into()]);
        assert!(text.contains("members = [\"weft-nn-0.1.0\", \"weft-command-0.1.0\", ]"), "{text}");
        assert!(text.contains("weft-nn = { path = \"weft-nn-0.1.0\" }"), "{text}");
    }

    #[test]
    fn what_is_asked_for_is_published() {
        let all = published().expect("packages");
        assert!([COMMAND, "weft-nn"].iter().all(|e| all.iter().any(|p| p.starts_with(e))), "{all:?}");
        assert!(!all.iter().any(|p| p.starts_with("xtask") || p.starts_with("fuzz")), "{all:?}");
    }

    #[test]
    fn a_package_with_a_path_out_of_it_is_refused() {
        let folder = std::env::temp_dir().join(format!("weft-package-{}", std::process::id()));
        std::fs::create_dir_all(folder.join("src")).expect("a folder");
        for f in WHOLE {
            std::fs::write(folder.join(f), "").expect("a file");
        }
        assert_eq!(check_contents(&folder), Ok(()));
        std::fs::write(folder.join("Cargo.toml"), "[dependencies.tensor-ir]\npath = \"../tensor-ir\"\n")
            .expect("a file");
        assert!(check_contents(&folder).is_err_and(|e| e.contains("a path out")));
        std::fs::remove_file(folder.join("README.md")).expect("a file");
        assert!(check_contents(&folder).is_err_and(|e| e.contains("README.md")));
        std::fs::remove_dir_all(folder).expect("a folder");
    }
}
