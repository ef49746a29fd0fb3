//! Records of results: `--json`, Python and C give them, and the tables of docs/json.md are made of them.

use schemars::JsonSchema;
use serde::Serialize;

/// A record behind the version of its form.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Versioned<T> {
    /// 1
    schema: u8,
    /// The record.
    #[serde(flatten)]
    record: T,
}

impl<T> Versioned<T> {
    /// The record in the form of this version.
    pub fn new(record: T) -> Versioned<T> {
        Versioned { schema: 1, record }
    }
}
