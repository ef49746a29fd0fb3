//! The error of an instruction that does not apply.

/// Why an instruction does not apply.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{}{message}{}", self.place(), self.loops.as_ref().map(|l| format!("\n{l}")).unwrap_or_default())]
pub struct ScheduleError {
    /// The instruction as text; empty where the schedule as a whole is refused.
    pub instruction: String,
    /// The error.
    pub message: String,
    /// The loop nest with the culprit marked.
    pub loops: Option<String>,
}

impl ScheduleError {
    fn place(&self) -> String {
        if self.instruction.is_empty() { String::new() } else { format!("{}: ", self.instruction) }
    }
}
