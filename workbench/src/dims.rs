//! Sizes of named dimensions on the command line: `--dim NAME=N`; `NAME=A..B`, `NAME=A..B:STEP` and
//! `NAME=open` for one that stays open.

use crate::error::{Error, Result};
use crate::settings::Settings;
use compiler::int::DimRanges;
use weft::Sizes;

/// NAME=VALUE options.
pub fn pairs(list: &[String], flag: &str) -> Result<Vec<(String, String)>> {
    list.iter()
        .map(|s| {
            // Names may hold '=' themselves; the value never does.
            s.rsplit_once('=')
                .map(|(a, b)| (a.to_string(), b.to_string()))
                .ok_or_else(|| Error::usage(format!("{flag} {s}: needs NAME=VALUE")))
        })
        .collect()
}

/// The sizes of `--dim`.
pub fn dim_options(settings: &Settings) -> Result<Sizes> {
    let mut sizes = Sizes::default();
    for (name, value) in pairs(&settings.dim, "--dim")? {
        sizes.set_dim(&name, &value).map_err(|why| Error::usage(format!("--dim {name}={value}: {why}")))?;
    }
    Ok(sizes)
}

/// The ranges of `--dim`, whatever the model has.
pub fn declared_ranges(settings: &Settings) -> Result<DimRanges> {
    Ok(dim_options(settings)?.declared_ranges())
}
