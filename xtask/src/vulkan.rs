//! Finds a Vulkan driver on this machine; on Debian-like systems it installs one (Mesa's software driver).
//!
//! macOS (Metal) and Windows (DX12, with WARP as its software device) bring their own, so nothing is done there.

use crate::cargo::{in_ci, run, succeeds};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Whether a missing driver is an error.
#[derive(Clone, Copy, PartialEq)]
pub enum Missing {
    /// In continuous integration (`CI=true`) it is; elsewhere a loud message.
    FailsInCi,
    /// Never: the interpreter does the work.
    Tolerated,
}

/// Folders in which the Vulkan loader looks for drivers, without those of the user's own.
const ICD_FOLDERS: &[&str] = &["/usr/share/vulkan/icd.d", "/usr/local/share/vulkan/icd.d", "/etc/vulkan/icd.d"];

/// Folders in which the loader itself may be, where `ldconfig` does not know.
const LIBRARY_FOLDERS: &[&str] =
    &["/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib", "/usr/local/lib"];

/// Looks for a driver and for `spirv-val`, and installs what is missing where apt allows it. Returns whether a driver
/// is there.
///
/// # Errors
/// When there is none and `missing` says that it matters.
pub fn prepare(missing: Missing) -> Result<bool, String> {
    if !cfg!(target_os = "linux") {
        return Ok(true);
    }
    let mut packages = Vec::new();
    if !has_driver() {
        packages.extend(["mesa-vulkan-drivers", "libvulkan1"]);
    }
    if missing == Missing::FailsInCi && !succeeds("spirv-val", &["--version"]) {
        packages.push("spirv-tools");
    }
    if packages.is_empty() {
        return Ok(true);
    }
    if let Err(why) = apt_install(&packages) {
        eprintln!("not installed ({}): {why}", packages.join(", "));
    }
    if has_driver() {
        return Ok(true);
    }
    let advice = "there is no Vulkan driver. Install your GPU's driver, or Mesa's software driver:\n  \
                  Debian, Ubuntu:  apt-get install mesa-vulkan-drivers libvulkan1\n  \
                  Fedora:          dnf install mesa-vulkan-drivers vulkan-loader\n  \
                  Arch:            pacman -S vulkan-swrast vulkan-icd-loader\n\
                  Without root: `cargo xtask driver swiftshader PROGRAM` fetches one for a single program.";
    if missing == Missing::FailsInCi && in_ci() {
        return Err(advice.to_string());
    }
    eprintln!(
        "\n!!! {advice}\n!!! Going on without: what can runs on the interpreter, and tests that need a device fail.\n"
    );
    Ok(false)
}

/// Installs Debian packages, as root or through `sudo` where that asks for no password.
///
/// # Errors
/// Without apt or the rights, or when apt fails.
pub fn apt_install(packages: &[&str]) -> Result<(), String> {
    if !cfg!(target_os = "linux") || !succeeds("apt-get", &["--version"]) {
        return Err("apt-get is not here".into());
    }
    let root = Command::new("id").arg("-u").output().is_ok_and(|o| o.stdout.trim_ascii() == b"0");
    if !root && !succeeds("sudo", &["-n", "true"]) {
        return Err("not root, and sudo asks for a password".into());
    }
    eprintln!("installing through apt: {}", packages.join(" "));
    let apt = |args: &[&str]| {
        let mut c = if root { Command::new("env") } else { Command::new("sudo") };
        if !root {
            c.args(["-n", "env"]);
        }
        c.args(["DEBIAN_FRONTEND=noninteractive", "apt-get", "-qq"]).args(args);
        c
    };
    run(apt(&["update"]))?;
    let mut install = apt(&["install", "-y", "--no-install-recommends"]);
    install.args(packages);
    run(install)
}

/// True when both the loader and a driver for it are there.
fn has_driver() -> bool {
    has_loader() && has_icd()
}

fn has_loader() -> bool {
    let known = ["ldconfig", "/sbin/ldconfig"].iter().any(|program| {
        let listed = Command::new(program).arg("-p").output();
        listed.is_ok_and(|o| String::from_utf8_lossy(&o.stdout).contains("libvulkan.so.1"))
    });
    let own = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    let folders = LIBRARY_FOLDERS.iter().map(PathBuf::from).chain(std::env::split_paths(&own));
    known || folders.into_iter().any(|d| d.join("libvulkan.so.1").exists())
}

fn has_icd() -> bool {
    for variable in ["VK_DRIVER_FILES", "VK_ICD_FILENAMES"] {
        if let Some(list) = std::env::var_os(variable).filter(|v| !v.is_empty()) {
            return std::env::split_paths(&list).any(|p| p.exists());
        }
    }
    let home = std::env::var_os("HOME").map(|h| Path::new(&h).join(".local/share/vulkan/icd.d"));
    ICD_FOLDERS.iter().map(PathBuf::from).chain(home).any(|d| {
        let entries = std::fs::read_dir(d).into_iter().flatten().flatten();
        entries.into_iter().any(|e| e.path().extension().is_some_and(|x| x == "json"))
    })
}

/// Gives a command a folder for `XDG_RUNTIME_DIR` where there is none: drivers complain on stderr without it.
pub fn quiet_loader(c: &mut Command) {
    if !cfg!(target_os = "linux") || std::env::var_os("XDG_RUNTIME_DIR").is_some() {
        return;
    }
    let folder = std::env::temp_dir().join(format!("weft-runtime-{}", std::process::id()));
    if std::fs::create_dir_all(&folder).is_ok() {
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            let _ = std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o700));
        }
        c.env("XDG_RUNTIME_DIR", folder);
    }
}
