//! Renames symbols: names must not matter, although they decide an order in the canonical form of `n*m`.
//!
//! Each file whose graph functions have several symbols is read with their names exchanged. It must parse, verify and
//! compile as with the original names, and give the same results.

use crate::file::TestFile;
use crate::verbs::check;
use compiler::compile::{CompileOptions, compile};
use compiler::graph::{Module, bind_dims, open_dims};
use compiler::interpreter::run_function;
use compiler::name::Name;
use compiler::profile::DeviceProfile;
use compiler::tensor::Tensor;
use compiler::text::{parse_module, random_tensor};
use shaders_gen::Emitter;
use std::collections::BTreeSet;

/// The size of every symbol in a run.
const SIZE: i64 = 4;

/// The module of a file, where its graph functions have more than one symbol.
pub fn open_module(t: &TestFile<'_>) -> Option<Module> {
    parse_module(t.input).ok().filter(|m| symbols(m).len() > 1)
}

/// The symbols of graph functions.
fn symbols(m: &Module) -> BTreeSet<String> {
    let types = m.functions.values().flat_map(|f| f.values.iter().map(|(_, v)| &v.ty));
    types.flat_map(|ty| &ty.shape).flat_map(|d| d.vars()).map(|v| v.to_string()).collect()
}

/// What became of a module.
#[derive(PartialEq, Debug)]
struct Outcome {
    verifies: bool,
    compiles: bool,
    results: Option<Vec<Tensor>>,
}

impl Outcome {
    fn of(m: &Module) -> Outcome {
        let verifies = check(m).is_ok();
        let compiled = compile(
            m.clone(),
            &CompileOptions { verify: true, ..CompileOptions::default() },
            &DeviceProfile::baseline(),
            &Emitter,
            &mut |_, _, _| (),
        );
        let mut bound = m.clone();
        let dims: Vec<(Name, i64)> = open_dims(m).into_iter().map(|d| (d, SIZE)).collect();
        let results = bind_dims(&mut bound, &dims).ok().and_then(|()| {
            let f = bound.main();
            let input = |(i, &p): (usize, &_)| Some(random_tensor(f.ty(p).dtype, &f.ty(p).const_shape()?, i as u64));
            let inputs = f.params().iter().enumerate().map(input).collect::<Option<Vec<_>>>()?;
            run_function(&bound, bound.entry, &inputs).ok()
        });
        Outcome { verifies, compiles: compiled.is_ok(), results }
    }
}

/// Exchanges names: the first in the alphabet for the last, and each for the next one.
///
/// # Errors
/// The first exchange after which the module does something else.
pub fn exchanged(t: &TestFile<'_>, m: &Module) -> Result<(), String> {
    let names: Vec<String> = symbols(m).into_iter().collect();
    let own = Outcome::of(m);
    let reversed: Vec<String> = names.iter().rev().cloned().collect();
    let mut turned = names.clone();
    turned.rotate_left(1);
    for others in [reversed, turned] {
        let text = renamed(t.input, &names, &others);
        let other = parse_module(&text).map_err(|e| format!("{e}\n{text}"))?;
        let got = Outcome::of(&other);
        if got != own {
            return Err(format!("with {others:?} for {names:?}: {got:?}, and not {own:?}\n{text}"));
        }
    }
    Ok(())
}

/// The text with other words for `names`: but for values, globals, strings and attributes.
fn renamed(text: &str, names: &[String], others: &[String]) -> String {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '.';
    let mut out = String::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let length = if is_word(first) { rest.find(|c| !is_word(c)).unwrap_or(rest.len()) } else { first.len_utf8() };
        let (word, behind) = rest.split_at(length);
        let named = out.ends_with(['%', '@', '"', '.']) || behind.trim_start().starts_with('=');
        let at = names.iter().position(|n| n == word).filter(|_| !named);
        out.push_str(at.map_or(word, |i| &others[i]));
        rest = behind;
    }
    out
}
