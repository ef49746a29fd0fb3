//! What each verb does: from a file's input to the text that is compared.

use crate::file::TestFile;
use compiler::graph::Module;
use compiler::text::{compare_modules, parse_module, print_module};
use compiler::verify::verify_module;

/// Runs the test. Errors of the text and of the verifier are output for `print` and `verify`, failures for the rest.
///
/// # Errors
/// When the file asks for something unknown, or a step before the tested one fails.
pub fn run(t: &TestFile<'_>) -> Result<String, String> {
    match t.verb {
        "print" => print(t),
        "verify" => verify(t),
        "apply-schedules" => apply_schedules(t),
        other => Err(format!("there is no test verb `{other}`")),
    }
}

/// The module of the input, valid.
fn valid_module(t: &TestFile<'_>) -> Result<Module, String> {
    let m = parse_module(t.input).map_err(|e| e.to_string())?;
    match verify_module(&m) {
        Ok(()) => Ok(m),
        Err(list) => Err(list.iter().map(|e| format!("{e}\n")).collect()),
    }
}

/// Canonical text, or the parser's error. The text must read back as an equal module and print as itself.
fn print(t: &TestFile<'_>) -> Result<String, String> {
    let m = match parse_module(t.input) {
        Ok(m) => m,
        Err(e) => return Ok(e.to_string()),
    };
    let text = print_module(&m);
    let again = parse_module(&text).map_err(|e| format!("the printed text does not parse: {e}\n{text}"))?;
    compare_modules(&m, &again)?;
    if print_module(&again) != text {
        return Err("the printed text is not canonical".to_string());
    }
    Ok(text)
}

/// `ok`, or the verifier's messages.
fn verify(t: &TestFile<'_>) -> Result<String, String> {
    let m = parse_module(t.input).map_err(|e| e.to_string())?;
    Ok(match verify_module(&m) {
        Ok(()) => "ok".to_string(),
        Err(list) => list.iter().map(|e| format!("{e}\n")).collect(),
    })
}

/// The module with every `schedule` block applied, or the error of the first instruction that does not apply.
fn apply_schedules(t: &TestFile<'_>) -> Result<String, String> {
    let mut m = valid_module(t)?;
    for f in m.tensor_functions.values_mut() {
        if let Err(e) = compiler::schedule::apply_pending(f) {
            return Ok(e.to_string());
        }
    }
    verify_module(&m).map_err(|list| list.iter().map(|e| format!("{e}\n")).collect::<String>())?;
    Ok(print_module(&m))
}
