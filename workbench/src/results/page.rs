//! The results of a folder as one HTML page that fetches nothing.

use super::folder::{Filed, list};
use crate::error::{Error, Result};
use graphview::report::{STYLE, self_contained};
use serde_json::{Value, json};
use std::path::Path;

/// The page of a folder of results.
///
/// # Errors
/// A folder without results, or with broken ones.
pub fn page(folder: &Path) -> Result<String> {
    let all = list(folder)?;
    if all.is_empty() {
        let why = format!("{} has no results", folder.display());
        return Err(Error::input(why)
            .help("`weft results add F.json --folder DIR` files what `weft bench --json=F.json` wrote"));
    }
    let entries = all.iter().map(entry).collect::<Result<Vec<Value>>>()?;
    let style = format!("{STYLE}{}", include_str!("page.css"));
    let data = json!({ "schema": 1, "entries": entries });
    Ok(self_contained(include_str!("page.html"), "Weft results", &style, include_str!("page.js"), &data))
}

fn entry(f: &Filed) -> Result<Value> {
    let mut out = serde_json::to_value(&f.entry).map_err(|e| Error::input(e.to_string()))?;
    out["file"] = f.name.as_str().into();
    if let Some(c) = f.entry.ceilings {
        let kernels = f.entry.per_kernel.iter().map(|l| (l.name.as_str(), l.gflops, l.gb_s));
        out["doubt"] = c.furthest_above(kernels).unwrap_or_else(|| c.taken.words()).into();
    }
    Ok(out)
}
