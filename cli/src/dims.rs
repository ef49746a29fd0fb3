//! Sizes of named dimensions on the command line: `--dim NAME=N`; `NAME=A..B`, `NAME=A..B:STEP` and
//! `NAME=open` for one that stays open.

use crate::args::Common;
use crate::error::{CliError, CliResult};
use compiler::int::{DimRange, DimRanges};
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

/// What `--dim` says of a dimension that stays open without a range.
pub const OPEN: &str = "open";

/// Names of `--dim NAME=open`.
pub fn open_options(common: &Common) -> CliResult<Vec<String>> {
    Ok(pairs(&common.dim, "--dim")?.into_iter().filter(|(_, value)| value == OPEN).map(|(name, _)| name).collect())
}

/// The ranges of `--dim`, whatever the model has.
pub fn declared_ranges(common: &Common) -> CliResult<DimRanges> {
    let mut ranges = DimRanges::default();
    range_options(common)?.into_iter().for_each(|(name, range)| ranges.declare_range(Name::new(&name), range));
    Ok(ranges)
}

/// Names and ranges of `--dim NAME=A..B` and `--dim NAME=A..B:STEP`.
pub fn range_options(common: &Common) -> CliResult<Vec<(String, DimRange)>> {
    let mut out = vec![];
    for (name, value) in pairs(&common.dim, "--dim")? {
        let Some((low, high)) = value.split_once("..") else { continue };
        let (high, step) = high.split_once(':').unwrap_or((high, "1"));
        let number = |s: &str| s.parse::<i32>().ok().filter(|n| *n >= 0).map(i64::from);
        let (Some(low), Some(high), Some(step @ 1..)) = (number(low), number(high), number(step)) else {
            let why = "needs a range of sizes such as 0..64, or 32..640:32 for every 32nd size from 32 on";
            return Err(CliError::usage(format!("--dim {name}={value}: {why}")));
        };
        let range = DimRange::new(low, high, step);
        out.push((
            name.clone(),
            range.ok_or_else(|| CliError::usage(format!("--dim {name}={value}: the range is empty")))?,
        ));
    }
    Ok(out)
}
