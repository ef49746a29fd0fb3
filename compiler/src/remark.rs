//! Remarks of passes: what a pass did, and what it did not do and why.

use crate::name::Name;

/// Applied or missed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum RemarkKind {
    /// The pass changed something.
    Applied,
    /// The pass could not: the message says which condition failed, with its values.
    Missed,
}

/// The pass of remarks about schedule rules: those that took a unit, and those that declined.
pub const SCHEDULING: &str = "schedule";

/// One remark.
#[derive(Clone, PartialEq, Eq, Hash, Debug, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
pub struct Remark {
    /// The pass.
    #[schemars(with = "String")]
    pub pass: Name,
    /// Applied or missed.
    pub kind: RemarkKind,
    /// Source nodes it is about.
    #[schemars(with = "Vec<String>")]
    pub nodes: Vec<Name>,
    /// One sentence for people: the cause, a number and its unit.
    pub message: String,
    /// The same in the terms of the pass, such as fusion kinds; empty where there is no more to say.
    pub detail: String,
}
