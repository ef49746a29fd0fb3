//! `weft zoo`

use crate::args::ZooArgs;
use crate::output::{show_table, table, write_json};
use workbench::Result;
use workbench::figures::si;

/// Lists the built-in models.
pub fn execute(a: &ZooArgs) -> Result<()> {
    let list = benches::zoo::list();
    let json: Vec<serde_json::Value> = list
        .iter()
        .map(|z| serde_json::json!({ "name": z.name, "parameters": z.parameters, "macs": z.macs, "input": z.input.extents(), "preset": z.preset, "about": z.description }))
        .collect();
    if write_json(&a.common, &serde_json::json!({ "schema": 1, "models": json }))? {
        return Ok(());
    }
    let mut t = table(&["model", "parameters", "MACs", "input", ""]);
    for z in list {
        t.add_row([
            z.name.to_string(),
            si(z.parameters as f64),
            si(z.macs as f64),
            format!("{:?}", z.input.extents()),
            z.description.to_string(),
        ]);
    }
    show_table(&t)
}
