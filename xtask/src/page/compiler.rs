//! The compiler's page, driven: its files are compared with the command's, its results with the interpreter's.

use super::browser::{drive, write};
use super::exports::{NETWORKS, SEEN};
use crate::cargo::target_dir;
use crate::report::{find_browser, succeed};
use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// The script that drives the page.
const DRIVE: &str = include_str!("drive_compiler.js");

/// The module that scripts which drive this page share.
const ONE: &str = include_str!("one.js");

/// A script that takes WebGPU away before the page starts.
const WITHOUT: &str = "Object.defineProperty(navigator, \"gpu\", { value: undefined });\n";

/// A network whose rows stay open, and for how many it runs.
const OPEN: &str = include_str!("open.weft");
const ROWS: [u32; 2] = [5, 64];

/// A network with a loop in which a node computes beyond 32 bits, which is the host's.
const HOST: &str = include_str!("host.weft");

/// A network in which a node decides how many rows a result has.
const DECIDED: &str = include_str!("decided.weft");

/// A model whose weights are in a file beside it.
const BESIDE: &str = "beside.onnx";

/// Networks of the zoo that it compiles.
const ZOO: [&str; 1] = ["squeezenet1_1:smallest"];

/// How long it may take: software compiles the pipelines.
const LIMIT: Duration = Duration::from_secs(420);

/// Drives the page in `page`.
///
/// # Errors
/// The first check that fails.
pub fn check(weft: &Path, page: &Path) -> Result<(), String> {
    let Some(browser) = find_browser() else { return Ok(()) };
    let folder = prepared(page, "compiler")?;
    // A trace of the command opens in the page.
    let mut c = Command::new(weft);
    c.arg("compile").arg(folder.join("branch.weft")).args(["--target", "apple", "-q", "-o"]);
    succeed(c.arg(folder.join("command.trace")))?;
    let mut c = Command::new(weft);
    c.arg("export").arg(folder.join("convolutions.weft")).args(["--external-data", "-q", "-o"]);
    succeed(c.arg(folder.join(BESIDE)))?;
    let said = drive(browser, &folder, "driven.html", &folder.join("browser"), LIMIT)?;
    match said.strip_prefix("ok ") {
        Some(seen) => eprintln!("the compiler's page: {seen}"),
        None => return Err(format!("the compiler's page: {said}")),
    }
    let runs = folder.join("run");
    for (name, model) in models(&folder) {
        same(weft, &model, &[], &runs.join(&name)).map_err(|e| format!("{name}, compiled in the page: {e}"))?;
    }
    for n in ROWS {
        let run = runs.join(format!("open-{n}"));
        agrees(weft, &folder.join("open.weft").display().to_string(), &["--dim", &format!("n={n}")], &run)?;
    }
    for name in ["host", "decided"] {
        agrees(weft, &folder.join(format!("{name}.weft")).display().to_string(), &[], &runs.join(name))?;
    }
    // A trace of the page opens in the command.
    succeed(Command::new(weft).arg("report").arg(runs.join("network.trace")).arg("-o").arg(runs.join("report.html")))
}

/// The networks, as a page calls them and as the command does.
fn models(folder: &Path) -> Vec<(String, String)> {
    let file = |name: &str| folder.join(format!("{name}.weft")).display().to_string();
    let own = NETWORKS.iter().map(|(name, _)| (name.to_string(), file(name)));
    let beside = (BESIDE.to_string(), folder.join(BESIDE).display().to_string());
    own.chain([beside]).chain(ZOO.iter().map(|z| (z.to_string(), z.to_string()))).collect()
}

/// A new copy of the page with the scripts that drive it, in the folder `name` for pages.
fn prepared(page: &Path, name: &str) -> Result<PathBuf, String> {
    let folder = target_dir()?.join("pages").join(name);
    if folder.exists() {
        std::fs::remove_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    }
    prepare(page, &folder)?;
    Ok(folder)
}

fn prepare(page: &Path, folder: &Path) -> Result<(), String> {
    let fail = |e: std::io::Error| format!("{}: {e}", page.display());
    std::fs::create_dir_all(folder).map_err(fail)?;
    for entry in std::fs::read_dir(page).map_err(fail)? {
        let from = entry.map_err(fail)?.path();
        if let Some(name) = from.file_name().filter(|_| from.is_file()) {
            std::fs::copy(&from, folder.join(name)).map_err(fail)?;
        }
    }
    let index = std::fs::read_to_string(folder.join("index.html")).map_err(fail)?;
    let last = "<script type=\"module\" src=\"compiler.js\"></script>";
    let with = |before: &str, after: &str| index.replace(last, &format!("{before}{last}{after}"));
    let script = |name: &str| format!("<script type=\"module\" src=\"{name}\"></script>");
    for (name, text) in [
        // The script opens the page in a frame, as wide as a phone.
        ("driven.html", with("", &script("drive_compiler.js")).replace("frame-src", "frame-src 'self'")),
        ("without.html", with(&script("without.js"), "")),
        ("drive_compiler.js", DRIVE.into()),
        ("seen.js", SEEN.into()),
        ("one.js", ONE.into()),
        ("without.js", WITHOUT.into()),
        ("open.weft", OPEN.into()),
        ("host.weft", HOST.into()),
        ("decided.weft", DECIDED.into()),
    ] {
        write(&folder.join(name), text.as_bytes())?;
    }
    NETWORKS.iter().try_for_each(|(name, text)| write(&folder.join(format!("{name}.weft")), text.as_bytes()))
}

/// A new copy of the page, as `NAME.html` too, which a script drives; gives its folder.
pub fn driven(page: &Path, name: &str, script: &str) -> Result<PathBuf, String> {
    let folder = prepared(page, name)?;
    let index = folder.join("index.html");
    let html = std::fs::read_to_string(&index).map_err(|e| format!("{}: {e}", index.display()))?;
    let script_of = format!("<script type=\"module\" src=\"drive_{name}.js\"></script></html>");
    write(&folder.join(format!("{name}.html")), html.replace("</html>", &script_of).as_bytes())?;
    write(&folder.join(format!("drive_{name}.js")), script.as_bytes())?;
    Ok(folder)
}

/// The command compiles for the page's profile to the same files, and the interpreter computes what the page did.
pub fn same(weft: &Path, model: &str, sizes: &[&str], run: &Path) -> Result<(), String> {
    let native = run.join("native");
    let mut c = Command::new(weft);
    c.args(["export", model, "-q", "--target"]).arg(run.join("profile.json")).arg("--web").arg(&native);
    let sizes: Vec<&str> = sizes.iter().flat_map(|s| ["--dim", s]).collect();
    c.args(&sizes);
    succeed(&mut c)?;
    let digests = run.join("digests");
    let made = std::fs::read_to_string(&digests).map_err(|e| format!("{}: {e}", digests.display()))?;
    let mut kernels = 0;
    for line in made.lines() {
        let (path, digest) = line.rsplit_once(' ').ok_or_else(|| format!("{line} is no digest"))?;
        let file: PathBuf = native.join(path);
        let bytes = std::fs::read(&file).map_err(|e| format!("{}: {e}", file.display()))?;
        let own: String = Sha256::digest(&bytes).iter().map(|b| format!("{b:02x}")).collect();
        if own != digest {
            return Err(format!("{path} differs from that of the command: {}", file.display()));
        }
        kernels += usize::from(path.starts_with("kernels/"));
    }
    let own = std::fs::read_dir(native.join("kernels")).map_err(|e| e.to_string())?.count();
    if kernels == 0 || own != kernels {
        return Err(format!("the page made {kernels} kernels, the command {own}"));
    }
    agrees(weft, model, &sizes, run)
}

/// The interpreter computes from a run's inputs what the page did.
pub fn agrees(weft: &Path, model: &str, sizes: &[&str], run: &Path) -> Result<(), String> {
    let mut c = Command::new(weft);
    c.args(["compare", model, "--device", "cpu", "-q"]).args(sizes).arg("-i").arg(run.join("inputs.npz"));
    c.arg("--against").arg(run.join("outputs.npz"));
    succeed(&mut c)
}
