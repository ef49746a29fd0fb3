//! Sizes of named dimensions on the command line: `--dim NAME=N`, and `--dim NAME=A..B` for one that stays open.

use crate::args::Common;
use crate::error::{CliError, CliResult};
use compiler::int::DimRanges;
use compiler::name::Name;

/// NAME=VALUE options.
pub fn pairs(list: &[String], flag: &str) -> CliResult<Vec<(String, String)>> {
    list.iter()
        .map(|s| {
            // Names may hold '=' themselves; the value never does.
            s.rsplit_once('=')
                .map(|(a, b)| (a.to_string(), b.to_string()))
                .ok_or_else(|| CliError::usage(format!("{flag} {s}: needs NAME=VALUE")))
        })
        .collect()
}

/// The ranges of `--dim`, whatever the model has.
pub fn declared_ranges(common: &Common) -> CliResult<DimRanges> {
    let mut ranges = DimRanges::default();
    let declare = |(name, low, high): (String, usize, usize)| ranges.declare(Name::new(&name), low as i64, high as i64);
    range_options(common)?.into_iter().for_each(declare);
    Ok(ranges)
}

/// Names and ranges of `--dim NAME=A..B`.
pub fn range_options(common: &Common) -> CliResult<Vec<(String, usize, usize)>> {
    let mut out = vec![];
    for (name, value) in pairs(&common.dim, "--dim")? {
        let Some((low, high)) = value.split_once("..") else { continue };
        let number = |s: &str| s.parse::<usize>().ok().filter(|n| *n > 0 && *n <= i32::MAX as usize);
        let (Some(low), Some(high)) = (number(low), number(high)) else {
            return Err(CliError::usage(format!("--dim {name}={value}: needs a range of sizes such as 1..64")));
        };
        if low > high {
            return Err(CliError::usage(format!("--dim {name}={value}: the range is empty")));
        }
        out.push((name, low, high));
    }
    Ok(out)
}
