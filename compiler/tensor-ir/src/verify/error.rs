//! Errors of the verifier.

use crate::name::Name;

/// A broken rule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("@{function}{}: {message}", self.place.as_ref().map(|p| format!(", {p}")).unwrap_or_default())]
pub struct VerifyError {
    /// The function, or the constant.
    pub function: Name,
    /// Node, block, loop or buffer.
    pub place: Option<String>,
    /// The rule and the values that break it.
    pub message: String,
}
