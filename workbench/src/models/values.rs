//! Values for a model's inputs: given ones, which are checked, or random ones.

use crate::arrays::Named;
use crate::dims::declared_ranges;
use crate::error::{Code, Error, Result};
use crate::settings::Settings;
use compiler::dtype::DType;
use compiler::graph::{Module, ValueId};
use compiler::int::Dim;
use compiler::name::Name;
use compiler::tensor::{Tensor, ensure_room};
use rand::{RngExt, SeedableRng};
use weft::memory::check_memory;

/// Inputs for calibration: the given ones, else seeded ones. None unless `--amp auto` asks for them.
pub fn calibration_inputs(module: &Module, given: Option<&Named>, settings: &Settings) -> Result<Vec<Tensor>> {
    if settings.amp != "auto" {
        return Ok(vec![]);
    }
    // A file may hold a part of the inputs: it then only decides shapes.
    inputs_for(module, given, settings).or_else(|_| inputs_for(module, None, settings))
}

/// The module's inputs in order: from `given` by name, checked; or random ones from the seed.
pub fn inputs_for(module: &Module, given: Option<&Named>, settings: &Settings) -> Result<Vec<Tensor>> {
    let f = module.main();
    let mut out = Vec::new();
    let names: Vec<String> =
        f.params().iter().map(|&p| f.values[p].name.map_or(String::new(), |n| n.to_string())).collect();
    if let Some(given) = given {
        for (name, _) in given {
            if !names.contains(name) {
                return Err(Error::input(format!("the model has no input `{name}`; it has: {}", names.join(", "))));
            }
        }
    }
    check_memory(module)?;
    let mut ranges = module.dims.clone();
    ranges.extend(&declared_ranges(settings)?);
    for (i, &p) in f.params().iter().enumerate() {
        let ty = f.ty(p);
        let at_least = |d: &Dim| d.eval(&|v| Some(ranges.least(v))).and_then(|n| usize::try_from(n).ok());
        let one = given.and_then(|list| list.iter().find(|(n, _)| *n == names[i])).map(|(_, t)| t);
        // What stays open is as large as what is given, else as the least of its range.
        let open = one.filter(|t| t.shape().len() == ty.rank()).map_or_else(
            || ty.shape.iter().map(at_least).collect(),
            |t| {
                ty.shape
                    .iter()
                    .zip(t.shape())
                    .map(|(d, &n)| d.as_const().map_or(Some(n), |d| usize::try_from(d).ok()))
                    .collect()
            },
        );
        let shape: Vec<usize> = ty
            .const_shape()
            .or(open)
            .ok_or_else(|| Error::usage(format!("input `{}` has open dimensions", names[i])))?;
        match given {
            Some(list) => {
                let t = list.iter().find(|(n, _)| *n == names[i]).map(|(_, t)| t.clone());
                let t = t.ok_or_else(|| Error::input(format!("input `{}` is missing", names[i])))?;
                if t.dtype() != ty.dtype || t.shape() != shape {
                    return Err(Error::input(format!(
                        "input `{}` is {}{shape:?}, the file has {}{:?}",
                        names[i],
                        ty.dtype,
                        t.dtype(),
                        t.shape()
                    ))
                    .help("sizes that the model fixes change with --batch and --shape alone"));
                }
                out.push(t);
            }
            None => {
                let bytes = shape.iter().fold(ty.dtype.size(), |a, &d| a.saturating_mul(d));
                ensure_room(bytes).map_err(|e| Error::new(Code::Device, format!("input `{}`: {e}", names[i])))?;
                out.push(draw_input(ty.dtype, shape, settings.seed.wrapping_add(i as u64)));
            }
        }
    }
    Ok(out)
}

/// Random numbers among the inputs of a network with branches or loops, which may decide what runs.
pub struct Chance {
    /// Each with its name; none where inputs were given, or where there is no branch.
    drawn: Vec<String>,
}

impl Chance {
    /// Of `inputs`, which are random unless they were `given`.
    pub fn of(module: &Module, inputs: &[Tensor], given: Option<&Named>) -> Chance {
        let f = module.main();
        let branches = f.walk().into_iter().any(|n| !f.nodes[n].regions.is_empty());
        if given.is_some() || !branches {
            return Chance { drawn: vec![] };
        }
        let one = |(&p, t): (&ValueId, &Tensor)| {
            let decides = t.len() == 1 && !t.dtype().is_float();
            decides.then(|| format!("`{}` is {}", f.values[p].name.map_or("", Name::as_str), t.to_f64_vec()[0]))
        };
        Chance { drawn: f.params().iter().zip(inputs).filter_map(one).collect() }
    }
    /// An error of a run; it says which random numbers may have decided it.
    pub fn blamed(&self, e: impl Into<Error>) -> Error {
        let e = e.into();
        if e.code != Code::Input || self.drawn.is_empty() {
            return e;
        }
        let drawn = self.drawn.join(", ");
        e.help(format!("random inputs decided which branch ran ({drawn}): give real ones with -i"))
    }
}

/// Standard normal floats (sum of uniforms), small non-negative integers, random bools.
fn draw_input(dtype: DType, shape: Vec<usize>, seed: u64) -> Tensor {
    let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(seed);
    let n: usize = shape.iter().product();
    if dtype.is_float() {
        let mut normal = || (0..12).map(|_| rng.random::<f32>()).sum::<f32>() as f64 - 6.0;
        Tensor::from_f64(dtype, shape, (0..n).map(|_| normal()))
    } else {
        let high = if dtype == DType::Bool { 2 } else { 8 };
        Tensor::from_f64(dtype, shape, (0..n).map(|_| rng.random_range(0..high) as f64))
    }
}
