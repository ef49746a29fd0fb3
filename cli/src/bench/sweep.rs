//! `weft bench --sweep`: every combination of some settings.

use crate::args::Common;
use crate::error::{CliError, CliResult};
use compiler::passes::{AmpMode, FuseMode, LayoutMode};

/// The settings that `--sweep` varies, with their values.
const SWEPT: &[(&str, &str)] = &[
    ("amp", "off, fp16, auto"),
    ("layout", "auto, nchw, nhwc, nchw4c, nchw8c, nchw16c, none"),
    ("fuse", "full, classic, off"),
    ("batch", "a number from 1 on"),
    ("opt_level", "0, 1, 2, 3"),
];

/// Every combination of the swept settings.
pub fn sweep(list: &[String], common: &Common) -> CliResult<Vec<Common>> {
    let mut out = vec![common.clone()];
    for s in list {
        let (key, values) = s.split_once('=').ok_or_else(|| CliError::usage(format!("--sweep {s}: needs KEY=A,B")))?;
        let (_, choices) = SWEPT.iter().find(|k| k.0 == key).ok_or_else(|| {
            let keys: Vec<&str> = SWEPT.iter().map(|k| k.0).collect();
            CliError::usage(format!("--sweep {key}: can sweep {}", keys.join(", ")))
        })?;
        let mut next = Vec::new();
        for base in &out {
            for v in values.split(',') {
                let mut c = base.clone();
                set(&mut c, key, v).ok_or_else(|| CliError::usage(format!("--sweep {key}={v}: takes {choices}")))?;
                next.push(c);
            }
        }
        out = next;
    }
    Ok(out)
}

/// Gives a swept setting a value; none where it is no value of it.
fn set(c: &mut Common, key: &str, v: &str) -> Option<()> {
    let known = |parsed: bool| parsed.then(|| v.to_string());
    match key {
        "amp" => c.amp = known(AmpMode::parse(v).is_some())?,
        "layout" => c.layout = known(LayoutMode::parse(v).is_some())?,
        "fuse" => c.fuse = known(FuseMode::parse(v).is_some())?,
        "batch" => c.batch = Some(v.parse().ok().filter(|&b| b > 0)?),
        _ => c.opt_level = v.parse().ok().filter(|&o| o <= 3)?,
    }
    Some(())
}
