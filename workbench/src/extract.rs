//! A part of a model as a model of its own.

use crate::arrays::Named as Arrays;
use crate::error::{Code, Error, Result};
use crate::values_by_name::NamedValue;
use compiler::graph::{ExtractError, Extracted, Module, ValueId, extract};
use compiler::passes::{PassContext, RemoveUnusedFunctions, run_pass};
use compiler::tensor::Tensor;
use rustc_hash::FxHashMap;

/// The part between these values, without functions and constants that it has no use for.
///
/// # Errors
/// A beginning that the end does not need, an end that is no result of a node.
pub fn cut(module: &Module, from: &[NamedValue], to: &[NamedValue]) -> Result<Extracted> {
    let mut part = extract(module, from, to).map_err(|e| no_part(&e, to))?;
    let mut cx = PassContext::default();
    run_pass(&RemoveUnusedFunctions::default(), &mut part.module, &mut cx)
        .map_err(|e| Error::new(Code::Bug, e.to_string()))?;
    Ok(part)
}

fn no_part(e: &ExtractError, to: &[NamedValue]) -> Error {
    let ends = to.iter().map(|t| t.0.to_string()).collect::<Vec<_>>().join(", ");
    match e {
        ExtractError::NotRead(name) => Error::usage(format!("--from {name}: nothing on the way to {ends} reads it"))
            .help("name what comes before --to, and is not cut off by another --from"),
        ExtractError::NotComputed(name) => {
            Error::usage(format!("--to {name}: it is an input or a constant, and no node computes it"))
        }
    }
}

/// Values of a run by name.
///
/// # Errors
/// A bug: a value that the run has not computed.
pub fn named(names: impl Iterator<Item = NamedValue>, exact: &FxHashMap<ValueId, Tensor>) -> Result<Arrays> {
    let one = |(name, v): NamedValue| match exact.get(&v) {
        Some(t) => Ok((name.to_string(), t.clone())),
        None => Err(Error::new(Code::Bug, format!("the run of the whole model did not compute `{name}`"))),
    };
    names.map(one).collect()
}
