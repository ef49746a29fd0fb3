//! Parameters of tensor functions.

use crate::arena::BufferId;

/// A parameter's direction.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, serde::Serialize, serde::Deserialize)]
pub enum Access {
    /// Only read.
    Read,
    /// Written; completely, unless there is an [`Update`] of it.
    Write,
}

/// A parameter of a tensor function.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub struct Param {
    /// Its buffer.
    pub buffer: BufferId,
    /// Its direction.
    pub access: Access,
}

/// A write parameter of which the function stores a part.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub struct Update {
    /// The write parameter.
    pub result: BufferId,
    /// The read parameter whose elements the others are: a caller gives both the same memory. Its loads never touch
    /// an element that is stored. Without one the others are not specified.
    pub of: Option<BufferId>,
}
