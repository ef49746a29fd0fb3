//! The sizes of a model's inputs: from `--shape`, `--dim`, `--batch`, the inputs that are given, and the model.

use crate::args::Common;
use crate::arrays::Named;
use crate::dims::{pairs, range_options};
use crate::error::{CliError, CliResult};
use compiler::graph::{TensorType, choose_shapes};
use compiler::int::DimRanges;
use compiler::name::Name;

/// What is chosen of a model's inputs.
pub struct Chosen {
    /// Inputs without open sizes.
    pub closed: Vec<(Name, Vec<usize>)>,
    /// Sizes of dimensions.
    pub dims: Vec<(Name, i64)>,
}

/// As [`decide_shapes`], where dimensions with a declared range (`--dim NAME=A..B`) stay open; with `keep_open`, all of which nothing
/// is said.
pub fn decide_open(
    ports: Vec<(Name, TensorType)>,
    common: &Common,
    inputs: Option<&Named>,
    keep_open: bool,
) -> CliResult<Chosen> {
    let ranges = decide_ranges(&ports, common)?;
    let all: Vec<Name> = ports.iter().flat_map(|p| &p.1.shape).flat_map(|d| d.vars()).collect();
    let stays = |d: Name| ranges.is_declared(d) || keep_open && inputs.is_none();
    if !all.iter().any(|&d| stays(d)) {
        let closed = decide_shapes(ports, common, inputs)?;
        return Ok(Chosen { closed, dims: vec![] });
    }
    let shapes = chosen_shapes(&ports, common)?;
    let mut dims = decide_dims(&ports, common)?;
    for (name, t) in inputs.into_iter().flatten() {
        let Some((_, ty)) = ports.iter().find(|p| p.0.as_str() == name.as_str()) else { continue };
        for (symbol, &n) in ty.shape.iter().zip(t.shape()).filter_map(|(d, n)| Some((d.as_var()?, n))) {
            if !stays(symbol) && !dims.iter().any(|d| d.0 == symbol) {
                dims.push((symbol, n as i64));
            }
        }
    }
    if !keep_open {
        for symbol in ports.iter().filter_map(|p| p.1.shape.first()?.as_var()).filter(|&s| !stays(s)) {
            if !dims.iter().any(|d| d.0 == symbol) {
                dims.push((symbol, 1));
            }
        }
    }
    let names: Vec<Name> = ports.iter().map(|p| p.0).collect();
    let types = choose_shapes(ports, common.batch.map(|b| b as usize), &dims, &shapes).map_err(CliError::from)?;
    let left = |t: &TensorType| t.shape.iter().flat_map(|d| d.vars()).any(|d| !stays(d));
    if types.iter().any(left) {
        check_closed(&names, &types)?;
    }
    let closed = names.iter().zip(&types).filter_map(|(n, t)| Some((*n, t.const_shape()?))).collect();
    Ok(Chosen { closed, dims })
}

/// The ranges of `--dim NAME=A..B`.
pub(super) fn decide_ranges(ports: &[(Name, TensorType)], common: &Common) -> CliResult<DimRanges> {
    let mut ranges = DimRanges::default();
    for (name, low, high) in range_options(common)? {
        ranges.declare(open_dim(ports, &name)?, low, high);
    }
    Ok(ranges)
}

/// The shape of every input: from `--shape`, `--dim`, `--batch` and the model, in this order. What the model leaves open comes from
/// the arrays of `inputs`; an open first dimension is 1 where nothing says otherwise.
pub fn decide_shapes(
    ports: Vec<(Name, TensorType)>,
    common: &Common,
    inputs: Option<&Named>,
) -> CliResult<Vec<(Name, Vec<usize>)>> {
    let known: Vec<Name> = ports.iter().map(|p| p.0).collect();
    let shapes = chosen_shapes(&ports, common)?;
    let mut dims = decide_dims(&ports, common)?;
    for (name, t) in inputs.into_iter().flatten() {
        let port = ports.iter().find(|p| p.0.as_str() == name.as_str()).filter(|p| p.1.rank() == t.shape().len());
        let Some((name, ty)) = port.filter(|p| !shapes.iter().any(|s| s.0 == p.0)) else { continue };
        for (symbol, &size) in ty.shape.iter().zip(t.shape()).filter_map(|(d, n)| Some((d.as_var()?, n))) {
            match dims.iter().find(|d| d.0 == symbol) {
                Some(d) if d.1 != size as i64 => {
                    return Err(CliError::input(format!("input `{name}` has {size} for `{symbol}`, which is {}", d.1)));
                }
                Some(_) => {}
                None => dims.push((symbol, size as i64)),
            }
        }
    }
    let choose = |batch: Option<usize>, dims: &[(Name, i64)]| {
        choose_shapes(ports.clone(), batch, dims, &shapes).map_err(CliError::from)
    };
    let batch = common.batch.map(|b| b as usize);
    let open = choose(batch, &dims)?;
    for symbol in open.iter().filter_map(|t| t.shape.first()?.as_var()) {
        if !dims.iter().any(|d| d.0 == symbol) {
            dims.push((symbol, 1));
        }
    }
    let types = choose(batch, &dims)?;
    check_closed(&known, &types)?;
    Ok(known.into_iter().zip(types.iter().map(|t| t.const_shape().unwrap_or_default())).collect())
}

/// The shapes of `--shape`.
pub(super) fn chosen_shapes(ports: &[(Name, TensorType)], common: &Common) -> CliResult<Vec<(Name, Vec<usize>)>> {
    let known: Vec<Name> = ports.iter().map(|p| p.0).collect();
    let mut shapes = Vec::new();
    for (name, value) in pairs(&common.shape, "--shape")? {
        let shape: Option<Vec<usize>> = value.split(['x', ',']).map(|d| d.parse().ok()).collect();
        let shape = shape
            .ok_or_else(|| CliError::usage(format!("--shape {name}={value}: needs a shape such as 1x3x224x224")))?;
        shapes.push((check_input(&known, &name, "--shape")?, shape));
    }
    Ok(shapes)
}

/// Every dimension that is still open is named at once.
fn check_closed(inputs: &[Name], types: &[TensorType]) -> CliResult<()> {
    let mut open: Vec<Name> = types.iter().flat_map(|t| &t.shape).flat_map(|d| d.vars()).collect();
    open.sort();
    open.dedup();
    if open.is_empty() {
        return Ok(());
    }
    let list = |f: fn(&Name) -> String, sep: &str| open.iter().map(f).collect::<Vec<_>>().join(sep);
    let (noun, verb) = if open.len() == 1 { ("dimension", "is") } else { ("dimensions", "are") };
    let of = inputs.iter().zip(types).filter(|(_, t)| t.const_shape().is_none());
    let of: Vec<String> = of.map(|(n, t)| format!("{n} {t:?}")).collect();
    Err(CliError::usage(format!("{noun} {} {verb} open", list(|d| format!("`{d}`"), ", ")))
        .at(format!("input {}", of.join(", ")))
        .help(format!("give sizes with `{}`, or inputs with -i", list(|d| format!("--dim {d}=N"), " "))))
}

/// The sizes of `--dim`.
pub(super) fn decide_dims(ports: &[(Name, TensorType)], common: &Common) -> CliResult<Vec<(Name, i64)>> {
    let mut dims = Vec::new();
    for (name, value) in pairs(&common.dim, "--dim")?.into_iter().filter(|p| !p.1.contains("..")) {
        let n: i64 = value
            .parse()
            .ok()
            .filter(|&n| n > 0)
            .ok_or_else(|| CliError::usage(format!("--dim {name}={value}: needs a positive size")))?;
        dims.push((open_dim(ports, &name)?, n));
    }
    Ok(dims)
}

/// The open dimension of this name.
fn open_dim(ports: &[(Name, TensorType)], name: &str) -> CliResult<Name> {
    let open: Vec<Name> = ports.iter().flat_map(|p| &p.1.shape).flat_map(|d| d.vars()).collect();
    open.iter().copied().find(|d| d.as_str() == name).ok_or_else(|| {
        let mut names: Vec<&str> = open.iter().map(|d| d.as_str()).collect();
        names.dedup();
        let list =
            if open.is_empty() { "the model leaves none open".into() } else { format!("open: {}", names.join(", ")) };
        CliError::usage(format!("--dim {name}: no such dimension; {list}"))
    })
}

fn check_input(known: &[Name], name: &str, flag: &str) -> CliResult<Name> {
    known.iter().copied().find(|k| k.as_str() == name).ok_or_else(|| {
        let list = known.iter().map(|k| k.to_string()).collect::<Vec<_>>().join(", ");
        CliError::usage(format!("{flag} {name}: no such input; there are: {list}"))
    })
}
