//! The record of a bisection.

use super::reproducer::Reproducer;
use super::trial::Tried;
use crate::device::DeviceRecord;
use schemars::JsonSchema;
use serde::Serialize;

/// The search for the cause of a wrong result.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Bisection {
    /// As it was given.
    pub model: String,
    /// The results agree.
    pub pass: bool,
    /// The device.
    pub device: DeviceRecord,
    /// `reference`, or the file.
    pub against: String,
    /// Where and how they differ.
    pub why: Option<String>,
    /// Null where the results agree.
    pub cause: Option<CauseRecord>,
    /// Ctrl-C ended it before the cause was found.
    pub stopped: bool,
    /// Settings that were tried, in order.
    pub tried: Vec<Tried>,
    /// The smallest part that is wrong by itself.
    pub reproducer: Option<Reproducer>,
}

/// The cause of a wrong result.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct CauseRecord {
    /// `model` (the interpreter differs from the file as well), `precision`, `pass`, `rule` or `node`.
    pub kind: &'static str,
    /// In words, with the option that helps.
    pub text: String,
    /// Of the model, that it is about.
    pub nodes: Vec<String>,
    /// Of kind `pass`.
    pub pass: Option<String>,
    /// Of kind `rule`.
    pub rule: Option<String>,
    /// The tensor function that the rule scheduled.
    pub function: Option<String>,
    /// Of kind `precision`: a value that f16 does not hold.
    pub overflow: Option<OverflowRecord>,
}

/// A value that f16 does not hold.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct OverflowRecord {
    /// Its name.
    pub tensor: String,
    /// Its largest magnitude.
    pub largest: f64,
}
