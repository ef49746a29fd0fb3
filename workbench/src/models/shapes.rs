//! The sizes of a model's inputs, from `--shape`, `--dim`, `--batch` and the given inputs.

use crate::arrays::Named;
use crate::dims::{dim_options, pairs};
use crate::error::{Code, Error, Result};
use crate::settings::Settings;
use compiler::graph::{TensorType, open_dims_of};
use compiler::name::Name;
use weft::Sizes;

type Ports = [(Name, TensorType)];

/// The sizes of `ports` by the options and `inputs`. With `keep_open`, what nothing decides stays open where
/// no inputs are given.
pub fn sizes(ports: &Ports, settings: &Settings, inputs: Option<&Named>, keep_open: bool) -> Result<Sizes> {
    let mut asked = dim_options(settings)?;
    if settings.is_default("dim") {
        // A file of defaults may have sizes of other models.
        let open = open_dims_of(ports.iter().map(|p| &p.1));
        let has = |name: &str| open.iter().any(|d| d.as_str() == name);
        asked.dims.retain(|d| has(&d.0));
        asked.open.retain(|r| has(&r.0));
        asked.any_size.retain(|name| has(name));
    }
    let ranges = asked.open.iter().map(|r| &r.0);
    ranges.chain(&asked.any_size).chain(asked.dims.iter().map(|d| &d.0)).try_for_each(|name| check_dim(ports, name))?;
    let seen = inputs.into_iter().flatten().map(|(name, t)| (name.clone(), t.shape().to_vec())).collect();
    Ok(Sizes { batch: settings.batch.map(|b| b as usize), shapes: shapes(ports, settings)?, seen, keep_open, ..asked })
}

/// The shapes of `--shape`.
fn shapes(ports: &Ports, settings: &Settings) -> Result<Vec<(String, Vec<usize>)>> {
    let mut shapes = Vec::new();
    for (name, value) in pairs(&settings.shape, "--shape")? {
        let shape: Option<Vec<usize>> = value.split(['x', ',']).map(|d| d.parse().ok()).collect();
        let shape =
            shape.ok_or_else(|| Error::usage(format!("--shape {name}={value}: needs a shape such as 1x3x224x224")))?;
        check_input(ports, &name, "--shape")?;
        shapes.push((name, shape));
    }
    Ok(shapes)
}

/// There is an open dimension of this name.
fn check_dim(ports: &Ports, name: &str) -> Result<()> {
    let open = open_dims_of(ports.iter().map(|p| &p.1));
    if open.iter().any(|d| d.as_str() == name) {
        return Ok(());
    }
    let names: Vec<&str> = open.iter().map(|d| d.as_str()).collect();
    Err(no_such_dim(name, &names))
}

/// `--dim` says something of a dimension that is none of `open`.
pub fn no_such_dim(name: &str, open: &[&str]) -> Error {
    let list = if open.is_empty() { "the model leaves none open".into() } else { format!("open: {}", open.join(", ")) };
    Error::usage(format!("--dim {name}: no such dimension; {list}"))
}

fn check_input(ports: &Ports, name: &str, flag: &str) -> Result<()> {
    if ports.iter().any(|p| p.0.as_str() == name) {
        return Ok(());
    }
    let list = ports.iter().map(|p| p.0.to_string()).collect::<Vec<_>>().join(", ");
    Err(Error::usage(format!("{flag} {name}: no such input; there are: {list}")))
}

/// An error of a model under the sizes that options give, as one of the options: a model that is right for its own
/// sizes is not at fault. `ports` are its inputs.
pub fn blamed(e: Error, model: &str, settings: &Settings, ports: &Ports) -> Error {
    let given = |list: &[String], option: &str| list.iter().map(|v| format!("{option} {v}")).collect::<Vec<_>>();
    let batch = settings.batch.map(|b| format!("--batch {b}"));
    // A dimension that stays open has no size that may be wrong.
    let open = open_dims_of(ports.iter().map(|p| &p.1));
    let sized = |name: &str, n: &str| n.parse::<usize>().is_ok() && open.iter().any(|d| d.as_str() == name);
    let number = |d: &&String| d.rsplit_once('=').is_some_and(|(name, n)| sized(name, n));
    let dims: Vec<String> = settings.dim.iter().filter(number).cloned().collect();
    let options = [given(&settings.shape, "--shape"), given(&dims, "--dim"), batch.into_iter().collect()].concat();
    if !matches!(e.code, Code::Input | Code::Usage) || options.is_empty() {
        return e;
    }
    let inputs: Vec<String> = ports.iter().map(|(name, ty)| format!("{name} {ty:?}")).collect();
    Error::usage(format!("{}: the model does not take this size: {}", options.join(" "), e.message))
        .help(format!("{model} has {}", inputs.join(", ")))
}
