//! Whole networks in the page, trained ones and networks of the zoo as ONNX files, with ONNX Runtime as the judge.

use super::browser::{drive, write};
use super::compiler::{driven, same};
use crate::cargo::{root, target_dir};
use crate::report::{find_browser, succeed};
use crate::{networks, python};
use serde_json::json;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// The script that drives the page.
const DRIVE: &str = include_str!("drive_trained.js");

/// The script that runs a model by ONNX Runtime on what the page's run was given, and compares.
const REFERENCE: &str = include_str!("reference.py");

/// Its packages.
const PACKAGES: [&str; 2] = ["onnxruntime==1.31.1", "numpy==2.2.6"];

/// A trained network of the repository and one that is fetched, with the sizes of their stored inputs.
const STORED: (&str, &[&str]) = ("ppocr_v2_cls", &["x.dim0=4", "x.dim2=48", "x.dim3=192"]);
const FETCHED: (&str, &[&str]) =
    (networks::NAME, &["p2o.DynamicDimension.0=1", "p2o.DynamicDimension.1=320", "p2o.DynamicDimension.2=320"]);

/// Networks of the zoo. The last has sizes that a node decides, and the command exports no page of it.
const ZOO: [&str; 4] = ["squeezenet1_1", "mobilenet_v2", "encoder", "ssdlite"];
const DECIDED: &str = "ssdlite";

/// How long it may take: software compiles the pipelines.
const LIMIT: Duration = Duration::from_secs(1200);

/// Compiles and runs the networks in the page in `page`. The command's files are the same, and ONNX Runtime computes
/// from the same inputs what the page did.
///
/// # Errors
/// The first check that fails; ONNX Runtime that cannot be had.
pub fn check(weft: &Path, page: &Path) -> Result<(), String> {
    let Some(browser) = find_browser() else { return Ok(()) };
    let folder = driven(page, "trained", DRIVE)?;
    let models = models(weft, &folder)?;
    let list: Vec<_> = models.iter().map(|(name, sizes)| json!({ "name": name, "sizes": sizes.join(" ") })).collect();
    write(&folder.join("models.json"), json!(list).to_string().as_bytes())?;
    let said = drive(browser, &folder, "trained.html", &folder.join("browser"), LIMIT)?;
    let seen = said.strip_prefix("ok ").ok_or_else(|| format!("whole networks in the page: {said}"))?;
    eprintln!("whole networks in the page: {seen}");
    let script = folder.join("reference.py");
    write(&script, REFERENCE.as_bytes())?;
    let python = python::environment(&target_dir()?.join("pages-venv"), &PACKAGES)?;
    for (name, sizes) in models {
        let (model, run) = (folder.join(format!("{name}.onnx")), folder.join("run").join(name));
        if name != DECIDED {
            let model = model.display().to_string();
            same(weft, &model, sizes, &run).map_err(|e| format!("{name}, compiled in the page: {e}"))?;
        }
        crate::cargo::run({
            let mut c = Command::new(&python);
            c.arg(&script).arg(&model).arg(&run);
            c
        })?;
    }
    Ok(())
}

/// Puts the models into the folder, with inputs where there are some; gives their names and sizes.
fn models(weft: &Path, folder: &Path) -> Result<Vec<(&'static str, &'static [&'static str])>, String> {
    let stored = root().join("benches/models");
    let copy = |from: &Path, name: String| {
        std::fs::copy(from, folder.join(name)).map(|_| ()).map_err(|e| format!("{}: {e}", from.display()))
    };
    let mut files = vec![(STORED, stored.join(format!("{}.onnx", STORED.0)))];
    match networks::fetch() {
        Ok(file) => files.push((FETCHED, file)),
        Err(why) => eprintln!("\n!!! {} cannot be had ({why}): it is left out.\n", FETCHED.0),
    }
    for ((name, _), file) in &files {
        copy(file, format!("{name}.onnx"))?;
        copy(&stored.join(format!("{name}.in.npz")), format!("{name}.in.npz"))?;
    }
    for name in ZOO {
        succeed(Command::new(weft).args(["export", name, "-q", "-o"]).arg(folder.join(format!("{name}.onnx"))))?;
    }
    Ok(files.into_iter().map(|f| f.0).chain(ZOO.map(|name| (name, &[][..]))).collect())
}
