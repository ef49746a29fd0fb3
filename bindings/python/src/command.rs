//! The command `weft`, which this module has in it: a program of its own would bring the library a second time.

use pyo3::prelude::*;
use std::ffi::OsString;

/// Runs the command `weft` to its end.
///
/// arguments: the words behind `weft`.
/// again: the program and its first arguments with which the command starts another process of itself.
///
/// Returns the exit code.
#[pyfunction]
#[pyo3(signature = (arguments, again))]
pub fn command(py: Python<'_>, arguments: Vec<OsString>, again: Vec<OsString>) -> u8 {
    workbench::own_process::starts_with(again);
    let words = [OsString::from("weft")].into_iter().chain(arguments);
    py.detach(|| cli::exit_code(words, weft::Extensions::default()))
}
