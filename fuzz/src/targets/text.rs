//! `.weft` text: mutated words and lines of filetests. Text that parses and verifies is printed, compiled and run.

use super::model;
use crate::corpus::filetests;
use crate::raw::{one_in, one_of};
use crate::target::{Outcome, Random, Target};
use crate::text::mutate as mutate_text;
use compiler::ops::OPS;
use compiler::schedule::INSTRUCTIONS;
use compiler::text::{parse_module, parse_pipeline};
use compiler::verify::check_module;
use compiler::verify::verify_module;

/// The row of the table.
pub const TARGET: Target = Target {
    name: "text",
    help: ".weft text: parse, verify, print, parse again, check, compile, run",
    seeds,
    mutate,
    run,
};

/// Words of the language beside the names of ops and instructions.
const WORDS: &[&str] = &[
    "graph",
    "tensor",
    "const",
    "return",
    "for",
    "in",
    "block",
    "kernel",
    "init",
    "when",
    "sum",
    "max",
    "min",
    "prod",
    "out",
    "f32",
    "f16",
    "bf16",
    "i64",
    "i32",
    "i8",
    "u8",
    "bool",
    "f64",
    "nchw",
    "zeros",
    "splat",
    "random",
    "select",
    "all",
    "unroll",
    "vectorize",
    "group_x",
    "local_x",
    "shared",
    "register",
    "subgroup",
    "nan",
    "inf",
    "-",
    "0x7fffffff",
    "1e400",
];

/// How often a mutant that does not parse is drawn again.
const DRAWS: usize = 6;

fn seeds() -> Vec<Vec<u8>> {
    filetests().into_iter().map(String::into_bytes).filter(|t| t.len() < 1 << 13).collect()
}

/// The words that text is changed with.
pub fn known() -> Vec<&'static str> {
    let names = OPS.iter().map(|o| o.name).chain(INSTRUCTIONS.iter().map(|i| i.name));
    names.chain(WORDS.iter().copied()).collect()
}

fn mutate(random: &mut Random, from: Vec<u8>, others: &[Vec<u8>]) -> Vec<u8> {
    let other = String::from_utf8_lossy(one_of::<Vec<u8>>(random, others)).into_owned();
    let from = String::from_utf8_lossy(&from).into_owned();
    let mut text = mutate_text(random, &from, &known(), &other);
    // Most changes are the parser's to refuse. Three cases in four are drawn again for that, to get behind it.
    for _ in 0..if one_in(random, 4) { 0 } else { DRAWS } {
        // What panics is kept, to be found.
        if std::panic::catch_unwind(|| parse_module(&text).is_ok()).unwrap_or(true) {
            break;
        }
        text = mutate_text(random, &from, &known(), &other);
    }
    text.into_bytes()
}

fn run(input: &[u8]) -> Outcome {
    let text = String::from_utf8_lossy(input);
    let _ = parse_pipeline(text.lines().next().unwrap_or(""));
    let Ok(module) = parse_module(&text) else { return Ok("no text") };
    if verify_module(&module).is_err() {
        return Ok("not valid");
    }
    model::check_text(&module)?;
    if check_module(&module).is_err() {
        return Ok("refused");
    }
    if !module.functions.contains_key(&module.entry) {
        return Ok("no graph");
    }
    model::use_module(module)
}
