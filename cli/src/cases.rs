//! `weft cases`: ONNX test cases one after another on one device, for `cargo xtask conformance`.
//!
//! Each line of stdin is `MODEL<tab>DATA_SET<tab>CONSTANT_INPUTS`; each line of stdout is the outcome of the case as
//! JSON: `{"code", "message", "constants"}`: the exit code of `weft run MODEL --test-dir DATA_SET --constant-inputs
//! CONSTANT_INPUTS`, its error or the place of the computation, and the inputs that became constants. A case that
//! panics is reported like any other bug. The caller must notice a case that kills the process or does not end.

use crate::args::{CasesArgs, RunArgs};
use crate::output::print_json;
use serde::Serialize;
use std::io::{BufRead, Write};
use std::path::PathBuf;
use workbench::{Error, Result};

/// The outcome of a case.
#[derive(Serialize)]
struct Outcome {
    code: u8,
    message: String,
    constants: Vec<String>,
}

/// Runs the cases of stdin.
pub fn execute(a: &CasesArgs) -> Result<()> {
    let device = workbench::executor::open_device(&a.common)?;
    for line in std::io::stdin().lock().lines() {
        let line = line.map_err(|e| Error::input(format!("stdin: {e}")))?;
        let [model, data, constant_inputs] = line.split('\t').collect::<Vec<_>>()[..] else {
            return Err(Error::usage(format!("`{line}` is not MODEL<tab>DATA_SET<tab>CONSTANT_INPUTS")));
        };
        let run = RunArgs {
            model: model.into(),
            test_dir: Some(PathBuf::from(data)),
            constant_inputs: constant_inputs.into(),
            common: a.common.clone(),
            ..RunArgs::default()
        };
        let result = workbench::error::catch_bugs(|| crate::run::run_test_dir(&run, data.as_ref(), &device));
        let outcome = match result {
            Ok(agreed) => Outcome { code: 0, message: agreed.place.to_string(), constants: agreed.constants },
            Err(e) => Outcome { code: e.code as u8, message: e.to_string(), constants: vec![] },
        };
        print_json(&serde_json::to_string(&outcome).map_err(|e| Error::usage(e.to_string()))?)?;
        std::io::stdout().flush().map_err(|e| Error::usage(format!("stdout: {e}")))?;
    }
    Ok(())
}
