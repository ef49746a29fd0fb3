//! `weft zoo`

use crate::args::ZooArgs;
use crate::output::{show_table, table, write_json};
use benches::zoo::ZooEntry;
use schemars::JsonSchema;
use serde::Serialize;
use workbench::Result;
use workbench::figures::si;
use workbench::record::Versioned;

/// The built-in models.
#[derive(Serialize, JsonSchema)]
pub struct ZooRecord {
    /// In the order of their sizes.
    models: Vec<ModelRecord>,
}

/// A built-in model.
#[derive(Serialize, JsonSchema)]
struct ModelRecord {
    /// The name that every command takes as MODEL.
    name: &'static str,
    /// Learnable ones.
    parameters: u64,
    /// Multiply-accumulates at batch 1.
    macs: u64,
    /// Channels, height, width.
    input: Vec<usize>,
    /// The value of `--preset` for images.
    preset: &'static str,
    /// One line.
    about: &'static str,
}

/// Lists the built-in models.
pub fn execute(a: &ZooArgs) -> Result<()> {
    let list = benches::zoo::list();
    let model = |z: &ZooEntry| ModelRecord {
        name: z.name,
        parameters: z.parameters,
        macs: z.macs,
        input: z.input.extents(),
        preset: z.preset,
        about: z.description,
    };
    if write_json(&a.common, &Versioned::new(ZooRecord { models: list.iter().map(model).collect() }))? {
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
