//! Open dimensions in a trace.

use serde::{Deserialize, Serialize};

/// The numbers of a dispatch as expressions of the open dimensions. Beside them stand those for the least sizes.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct OpenCall {
    /// Workgroups along x, y and z.
    pub grid: [String; 3],
    /// Bytes of the buffers that it binds.
    pub bytes: String,
    /// The ranges of all dimensions in them were declared, so their least sizes were requested.
    pub declared: bool,
}

/// An open dimension.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, schemars::JsonSchema)]
pub struct OpenDim {
    /// Its name.
    pub name: String,
    /// The least that it may be.
    pub low: i64,
    /// The most.
    pub high: i64,
    /// Whether anybody said so; else these are the limits of any dimension.
    pub declared: bool,
}
