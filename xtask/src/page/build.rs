//! The compiler for WebAssembly, and the page's folder of static files.

use super::browser::write;
use super::exports::NETWORKS;
use crate::cargo::{cargo, in_ci, root, run as run_command, show, succeeds, target_dir};
use crate::heading::heading;
use crate::report::succeed;
use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The target that pages run.
const TARGET: &str = "wasm32-unknown-unknown";

/// Bytes of the compiler's stack: recursion follows the depth of expressions and loops.
const STACK: usize = 16 << 20;

/// rustc writes these into modules beyond the first version of WebAssembly; `wasm-opt` has to know of them.
const FEATURES: [&str; 6] = [
    "--enable-bulk-memory",
    "--enable-sign-ext",
    "--enable-nontrapping-float-to-int",
    "--enable-mutable-globals",
    "--enable-reference-types",
    "--enable-multivalue",
];

/// Its files: those that pages of exports have too, and its own.
const SHARED: [&str; 4] = ["style.css", "view.js", "runner.js", "arrays.js"];
const OWN: [&str; 3] = ["compiler.css", "compiler.js", "worker.js"];

/// Checks that the crates of the page compile for WebAssembly. Where the target cannot be had, that is said loudly.
///
/// # Errors
/// When they do not compile; in continuous integration also when the target is missing.
pub fn compiles() -> Result<(), String> {
    if let Some(why) = missing() {
        if in_ci() {
            return Err(why);
        }
        eprintln!("\n!!! {why}: the compiler is not checked for pages.\n");
        return Ok(());
    }
    run_command(cargo(&["check", "--package", "page", "--target", TARGET]))
}

/// Why the toolchain does not build for WebAssembly.
fn missing() -> Option<String> {
    let here = || {
        let listed = Command::new("rustc").args(["--print", "target-libdir", "--target", TARGET]).output();
        listed.is_ok_and(|o| Path::new(String::from_utf8_lossy(&o.stdout).trim()).is_dir())
    };
    if here() || succeeds("rustup", &["target", "add", TARGET]) && here() {
        return None;
    }
    let help = "`rustup target add` adds it; `--toolchain DIR` takes a folder with `rustc` and `wasm-ld` that have it";
    Some(format!("the toolchain has no {TARGET}; {help}"))
}

/// Builds the page; gives its folder.
///
/// # Errors
/// A missing target, compilation that fails.
pub fn build(weft: &Path, toolchain: Option<&str>) -> Result<PathBuf, String> {
    let lib = ["--package", "page", "--lib", "--crate-type", "cdylib"];
    let mut c = cargo(&["rustc", "--profile", "page", "--target", TARGET]);
    c.args(lib).args(["--", &format!("-Clink-arg=-zstack-size={STACK}")]);
    match toolchain {
        None => missing().map_or(Ok(()), Err)?,
        Some(folder) => {
            let program = |name: &str| std::fs::canonicalize(Path::new(folder).join(name));
            let found = |name: &str| program(name).map_err(|e| format!("{folder}/{name}: {e}"));
            c.env("RUSTC", found("rustc")?);
            c.env("CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_LINKER", found("wasm-ld")?);
        }
    }
    heading(&show(&c));
    run_command(c)?;
    let target = target_dir()?;
    let folder = target.join("page");
    let built = target.join(TARGET).join("page").join("page.wasm");
    let module = folder.join("compiler.wasm");
    std::fs::create_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    if !optimised(&built, &module) {
        eprintln!("wasm-opt does not run here: the module stays twice as large (package binaryen)");
        std::fs::copy(&built, &module).map_err(|e| format!("{}: {e}", built.display()))?;
    }
    files(weft, &folder)?;
    let bytes = std::fs::metadata(&module).map_err(|e| e.to_string())?.len();
    eprintln!("{}: {:.2} MB of compiler; any web server shows the folder", folder.display(), bytes as f64 / 1e6);
    Ok(folder)
}

/// Makes the module smaller, where there is the program that does it.
fn optimised(from: &Path, to: &Path) -> bool {
    let quiet = Command::new("wasm-opt").arg("-Oz").args(FEATURES).arg(from).arg("-o").arg(to).status();
    quiet.is_ok_and(|s| s.success())
}

/// The files around the module.
fn files(weft: &Path, folder: &Path) -> Result<(), String> {
    let shared = root().join("rust-source/template/web");
    let own = root().join("page/web");
    for (from, names) in [(&shared, &SHARED[..]), (&own, &OWN[..])] {
        for name in names {
            let (from, to) = (from.join(name), folder.join(name));
            std::fs::copy(&from, to).map_err(|e| format!("{}: {e}", from.display()))?;
        }
    }
    let index = std::fs::read_to_string(own.join("index.html")).map_err(|e| format!("index.html: {e}"))?;
    let page = index.replacen("{{report}}", &format!("sha256-{}", report_script(weft)?), 1);
    write(&folder.join("index.html"), page.as_bytes())
}

/// The digest of the script of reports, which the page's security policy allows by it.
fn report_script(weft: &Path) -> Result<String, String> {
    let folder = target_dir()?.join("pages");
    let (model, trace, html) = (folder.join("any.weft"), folder.join("any.trace"), folder.join("any.html"));
    write(&model, NETWORKS[0].1.as_bytes())?;
    succeed(Command::new(weft).arg("compile").arg(&model).args(["--target", "baseline", "-q", "-o"]).arg(&trace))?;
    succeed(Command::new(weft).arg("report").arg(&trace).arg("-o").arg(&html))?;
    let text = std::fs::read_to_string(&html).map_err(|e| format!("{}: {e}", html.display()))?;
    let script = text.rsplit_once("<script>").and_then(|(_, rest)| rest.split_once("</script>"));
    Ok(base64(&Sha256::digest(script.ok_or("a report has no script")?.0.as_bytes())))
}

/// Bytes in base64.
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::new();
    for three in bytes.chunks(3) {
        let word = (0..3).fold(0, |n, i| n << 8 | u32::from(*three.get(i).unwrap_or(&0)));
        for i in 0..4 {
            let digit = DIGITS[(word >> (18 - 6 * i)) as usize & 63];
            out.push(if i <= three.len() { digit.into() } else { '=' });
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::base64;

    #[test]
    fn base64_of_rfc_4648() {
        let all = ["", "f", "fo", "foo", "foob", "fooba", "foobar"].map(|t| base64(t.as_bytes()));
        assert_eq!(all, ["", "Zg==", "Zm8=", "Zm9v", "Zm9vYg==", "Zm9vYmE=", "Zm9vYmFy"]);
    }
}
