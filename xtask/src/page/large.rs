//! A model that is larger than a page's memory is good for: constants are read, packed and uploaded one by one.

use super::browser::{drive, write};
use super::compiler::{agrees, driven};
use crate::report::{find_browser, succeed};
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// The script that drives the page.
const DRIVE: &str = include_str!("drive_large.js");

/// Products of one row, each with a square constant: 24 times 64 MiB.
const LAYERS: usize = 24;
const WIDTH: usize = 4096;

/// How long it may take.
const LIMIT: Duration = Duration::from_secs(900);

/// Compiles and runs a model of 1.6 GB in the page in `page`; the script says how much memory that may take.
///
/// # Errors
/// The first check that fails.
pub fn check(weft: &Path, page: &Path) -> Result<(), String> {
    let Some(browser) = find_browser() else { return Ok(()) };
    let folder = driven(page, "large", DRIVE)?;
    let (text, model) = (folder.join("large.weft"), folder.join("large.onnx"));
    write(&text, network().as_bytes())?;
    succeed(Command::new(weft).arg("export").arg(&text).args(["--external-data", "-q", "-o"]).arg(&model))?;
    let said = drive(browser, &folder, "large.html", &folder.join("browser"), LIMIT)?;
    match said.strip_prefix("ok ") {
        Some(seen) => eprintln!("a large model in the page: {seen}"),
        None => return Err(format!("a large model in the page: {said}")),
    }
    agrees(weft, &model.display().to_string(), &[], &folder.join("run"))?;
    std::fs::remove_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))
}

/// The network as a text.
fn network() -> String {
    // Steps that are small beside what they are added to: sums in another order stay as close as they are.
    let (mut constants, mut nodes) =
        ("const @s : f32[] = [0.001953125]\n".to_string(), "  %s = const @s\n".to_string());
    for i in 0..LAYERS {
        let _ = writeln!(constants, "const @w{i} : f32[{WIDTH},{WIDTH}] = random({i})");
        let _ = writeln!(nodes, "  %w{i} = const @w{i}\n  %p{i} = matmul %t{i}, %w{i}\n  %q{i} = mul %p{i}, %s");
        let _ = writeln!(nodes, "  %t{} = add %t{i}, %q{i}", i + 1);
    }
    let kind = format!("f32[1,{WIDTH}]");
    format!("{constants}\ngraph @main(%t0: {kind}) -> (\"y\": {kind}) {{\n{nodes}  return %t{LAYERS}\n}}\n")
}
