//! The sizes of a model's inputs, from `--shape`, `--dim`, `--batch` and the given inputs.

use crate::args::Common;
use crate::arrays::Named;
use crate::dims::{OPEN, open_options, pairs, range_options};
use crate::error::{CliError, CliResult};
use compiler::graph::{TensorType, open_dims_of};
use compiler::name::Name;
use weft::Sizes;

type Ports = [(Name, TensorType)];

/// What the options and `inputs` say of the sizes of `ports`. With `keep_open`, what nothing decides stays open where
/// no inputs are given.
pub fn sizes(ports: &Ports, common: &Common, inputs: Option<&Named>, keep_open: bool) -> CliResult<Sizes> {
    let ranges = range_options(common)?;
    ranges.iter().try_for_each(|(name, _)| check_dim(ports, name))?;
    let open = ranges.iter().map(|(name, r)| (name.clone(), r.low as usize, r.high as usize)).collect();
    let any_size = open_options(common)?;
    any_size.iter().try_for_each(|name| check_dim(ports, name))?;
    let steps = ranges.into_iter().map(|(name, r)| (name, r.step as usize)).collect();
    let seen = inputs.into_iter().flatten().map(|(name, t)| (name.clone(), t.shape().to_vec())).collect();
    Ok(Sizes {
        batch: common.batch.map(|b| b as usize),
        dims: dims(ports, common)?,
        shapes: shapes(ports, common)?,
        open,
        any_size,
        steps,
        seen,
        keep_open,
        ..Sizes::default()
    })
}

/// The shapes of `--shape`.
fn shapes(ports: &Ports, common: &Common) -> CliResult<Vec<(String, Vec<usize>)>> {
    let mut shapes = Vec::new();
    for (name, value) in pairs(&common.shape, "--shape")? {
        let shape: Option<Vec<usize>> = value.split(['x', ',']).map(|d| d.parse().ok()).collect();
        let shape = shape
            .ok_or_else(|| CliError::usage(format!("--shape {name}={value}: needs a shape such as 1x3x224x224")))?;
        check_input(ports, &name, "--shape")?;
        shapes.push((name, shape));
    }
    Ok(shapes)
}

/// The sizes of `--dim`.
fn dims(ports: &Ports, common: &Common) -> CliResult<Vec<(String, usize)>> {
    let mut dims = Vec::new();
    for (name, value) in pairs(&common.dim, "--dim")?.into_iter().filter(|p| !p.1.contains("..") && p.1 != OPEN) {
        let n: usize = value.parse().ok().filter(|&n| i64::try_from(n).is_ok()).ok_or_else(|| {
            CliError::usage(format!("--dim {name}={value}: needs a size, a range such as 1..64, or `open`"))
        })?;
        check_dim(ports, &name)?;
        dims.push((name, n));
    }
    Ok(dims)
}

/// There is an open dimension of this name.
fn check_dim(ports: &Ports, name: &str) -> CliResult<()> {
    let open = open_dims_of(ports.iter().map(|p| &p.1));
    if open.iter().any(|d| d.as_str() == name) {
        return Ok(());
    }
    let names: Vec<&str> = open.iter().map(|d| d.as_str()).collect();
    Err(no_such_dim(name, &names))
}

/// `--dim` says something of a dimension that is none of `open`.
pub fn no_such_dim(name: &str, open: &[&str]) -> CliError {
    let list = if open.is_empty() { "the model leaves none open".into() } else { format!("open: {}", open.join(", ")) };
    CliError::usage(format!("--dim {name}: no such dimension; {list}"))
}

fn check_input(ports: &Ports, name: &str, flag: &str) -> CliResult<()> {
    if ports.iter().any(|p| p.0.as_str() == name) {
        return Ok(());
    }
    let list = ports.iter().map(|p| p.0.to_string()).collect::<Vec<_>>().join(", ");
    Err(CliError::usage(format!("{flag} {name}: no such input; there are: {list}")))
}
