//! The sizes of a model's inputs: from `--shape`, `--dim`, `--batch`, the inputs that are given, and the model.

use crate::args::Common;
use crate::arrays::Named;
use crate::error::{CliError, CliResult};
use compiler::graph::{TensorType, choose_shapes};
use compiler::name::Name;

fn pairs(list: &[String], flag: &str) -> CliResult<Vec<(String, String)>> {
    list.iter()
        .map(|s| {
            // Names may hold '=' themselves; the value never does.
            s.rsplit_once('=')
                .map(|(a, b)| (a.to_string(), b.to_string()))
                .ok_or_else(|| CliError::usage(format!("{flag} {s}: needs NAME=VALUE")))
        })
        .collect()
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
    for (name, value) in pairs(&common.dim, "--dim")? {
        let n: i64 = value
            .parse()
            .ok()
            .filter(|&n| n > 0)
            .ok_or_else(|| CliError::usage(format!("--dim {name}={value}: needs a positive size")))?;
        let open: Vec<Name> = ports.iter().flat_map(|p| &p.1.shape).flat_map(|d| d.vars()).collect();
        let found = open.iter().copied().find(|d| d.as_str() == name).ok_or_else(|| {
            let mut names: Vec<&str> = open.iter().map(|d| d.as_str()).collect();
            names.dedup();
            let list = if open.is_empty() {
                "the model leaves none open".into()
            } else {
                format!("open: {}", names.join(", "))
            };
            CliError::usage(format!("--dim {name}: no such dimension; {list}"))
        })?;
        dims.push((found, n));
    }
    Ok(dims)
}

fn check_input(known: &[Name], name: &str, flag: &str) -> CliResult<Name> {
    known.iter().copied().find(|k| k.as_str() == name).ok_or_else(|| {
        let list = known.iter().map(|k| k.to_string()).collect::<Vec<_>>().join(", ");
        CliError::usage(format!("{flag} {name}: no such input; there are: {list}"))
    })
}
