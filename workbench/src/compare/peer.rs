//! Another runtime beside ours: its results as the reference, and its time. It runs in a child process of the user's
//! Python, which only an explicit option starts.

use crate::arrays::{Named, read_npz, write_npz};
use crate::error::{Code, Error, Result};
use crate::progress::log;
use crate::settings::Settings;
use compiler::graph::Module;
use compiler::passes::RoundRows;
use compiler::tensor::Tensor;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The script that the child process runs.
const SCRIPT: &str = include_str!("onnxruntime.py");
/// Timed runs of each side.
pub const RUNS: usize = 10;

/// Another runtime.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Peer {
    /// The Python that has it; `None` for `python3` of PATH.
    pub python: Option<PathBuf>,
}

/// Its answer.
pub struct Answer {
    /// The results by name.
    pub results: Named,
    /// Its name with the version.
    pub name: String,
    /// The median of [`RUNS`] runs, in milliseconds.
    pub ms: f64,
}

impl Peer {
    /// Runs a model: the file where it is one in ONNX, else the module written as ONNX.
    ///
    /// # Errors
    /// A Python that does not start or has no such runtime; what the runtime says of the model.
    pub fn run(&self, model: &str, module: &Module, inputs: &[Tensor], settings: &Settings) -> Result<Answer> {
        let file = |e: std::io::Error| Error::new(Code::Device, format!("--peer: no folder for its files: {e}"));
        let folder = tempfile::tempdir().map_err(file)?;
        let at = |name: &str| folder.path().join(name);
        let model_file = match Path::new(model).extension().is_some_and(|e| e.eq_ignore_ascii_case("onnx")) {
            true => PathBuf::from(model),
            false => {
                let bytes = compiler::onnx::export_onnx(module).map_err(|e| Error::input(e.to_string()))?;
                std::fs::write(at("model.onnx"), bytes).map_err(file)?;
                at("model.onnx")
            }
        };
        let names = module.main().params().iter().map(|&p| module.main().values[p].name);
        let names = names.enumerate().map(|(i, n)| n.map_or_else(|| format!("input{i}"), |n| n.to_string()));
        let named: Vec<(String, Tensor)> = names.zip(inputs.iter().cloned()).collect();
        write_npz(&at("inputs.npz"), &named)?;
        // The script's own folder comes first where Python looks for modules: it has nothing else.
        std::fs::write(at("peer.py"), SCRIPT).map_err(file)?;
        let python = self.python.clone().unwrap_or_else(|| "python3".into());
        let threads = settings.threads.unwrap_or(0).to_string();
        let mut child = Command::new(&python);
        child.arg(at("peer.py")).arg(&model_file).arg(at("inputs.npz")).arg(at("results.npz"));
        child.args([RUNS.to_string(), threads]);
        let out = child.output().map_err(|e| {
            let text = format!("--peer: {} does not start: {e}", python.display());
            Error::new(Code::Device, text).help("--peer-python PATH names the Python that has onnxruntime")
        })?;
        let failed = |text: String| {
            let help = match text.starts_with("ONNX Runtime") {
                true => "integers among random inputs may be out of range for an operator: -i FILE gives inputs",
                false => "--peer-python PATH names the Python that has onnxruntime",
            };
            Error::new(Code::Device, format!("--peer onnxruntime: {text}")).help(help)
        };
        if !out.status.success() {
            let said = String::from_utf8_lossy(&out.stderr);
            return Err(failed(said.lines().rfind(|l| !l.trim().is_empty()).unwrap_or("it said nothing").to_string()));
        }
        if !at("results.npz").exists() {
            return Err(failed(format!("{} ended without results", python.display())));
        }
        let said: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap_or_default();
        let version = said["version"].as_str().unwrap_or("");
        let ms = said["ms"].as_f64().unwrap_or(f64::NAN);
        let exact = RoundRows::exact_products(module);
        if exact > 0 && model_file == Path::new(model) {
            let text = "ONNX Runtime rounds what it multiplies with weights of few bits to 8 bits, block by block, in";
            let own = "(accuracy_level 4), and Weft does not here: a relative error near 1e-2 is that rounding";
            log(settings, format!("note: {text} {exact} products {own}"));
        }
        Ok(Answer { results: read_npz(&at("results.npz"))?, name: format!("ONNX Runtime {version}, CPU"), ms })
    }
}
