//! `weft cases`: ONNX test cases one after another on one device, for `cargo xtask conformance`.
//!
//! Each line of stdin is `MODEL<tab>DATA_SET`; each line of stdout is the outcome of the case as JSON: `{"code", "message"}`
//! with the exit code and the error that `weft run MODEL --test-dir DATA_SET` would give, or where it was computed. A case that panics is told like
//! any other bug; one that takes the process down (or does not end) is for the caller to notice.

use crate::args::{CasesArgs, RunArgs};
use crate::error::{CliError, CliResult};
use crate::executor::Device;
use crate::output::print_text;
use std::io::{BufRead, Write};
use std::path::PathBuf;

/// Runs the cases of stdin.
pub fn execute(a: &CasesArgs) -> CliResult<()> {
    let device = Device::open(&a.common)?;
    for line in std::io::stdin().lock().lines() {
        let line = line.map_err(|e| CliError::input(format!("stdin: {e}")))?;
        let (model, data) =
            line.split_once('\t').ok_or_else(|| CliError::usage(format!("`{line}` is not MODEL<tab>DATA_SET")))?;
        let run = RunArgs {
            model: model.into(),
            test_dir: Some(PathBuf::from(data)),
            common: a.common.clone(),
            ..RunArgs::default()
        };
        let result = crate::error::catch_bugs(|| crate::run::run_test_dir(&run, data.as_ref(), &device));
        let (code, message) = match result {
            Ok(agreed) => (0, agreed.place.to_string()),
            Err(e) => (e.code as u8, e.to_string()),
        };
        print_text(&serde_json::json!({ "code": code, "message": message }).to_string())?;
        std::io::stdout().flush().map_err(|e| CliError::usage(format!("stdout: {e}")))?;
    }
    Ok(())
}
