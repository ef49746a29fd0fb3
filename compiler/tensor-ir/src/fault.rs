//! Why an input from outside is refused: one sentence, and the kind of fault.
//!
//! An input (a model, its data, the sizes of a run) may be wrong, or it may be right but beyond the limits of Weft or
//! of the machine. Callers that report the error distinguish the two by [`FaultKind`], never by the words of the
//! message.

use std::fmt;

/// Whose fault it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum FaultKind {
    /// The input is wrong.
    #[default]
    Invalid,
    /// The input is right, but Weft does not support it.
    Unsupported,
    /// The input is valid, but too large for the memory.
    TooLarge,
    /// This machine has no room for it now.
    NoRoom,
}

/// Why something is refused, in one sentence.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fault {
    /// Whose fault it is.
    pub kind: FaultKind,
    /// One sentence, without the name of the component that refuses.
    pub message: String,
}

impl Fault {
    /// The input is right, but Weft does not support it.
    pub fn unsupported(message: impl Into<String>) -> Fault {
        Fault { kind: FaultKind::Unsupported, message: message.into() }
    }
    /// The size is beyond any memory.
    pub fn too_large(message: impl Into<String>) -> Fault {
        Fault { kind: FaultKind::TooLarge, message: message.into() }
    }
    /// There is no room for it now.
    pub fn no_room(message: impl Into<String>) -> Fault {
        Fault { kind: FaultKind::NoRoom, message: message.into() }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}
impl std::error::Error for Fault {}

/// A plain sentence is an [`Invalid`](FaultKind::Invalid) fault.
impl From<String> for Fault {
    fn from(message: String) -> Fault {
        Fault { kind: FaultKind::Invalid, message }
    }
}
impl From<&str> for Fault {
    fn from(message: &str) -> Fault {
        Fault::from(message.to_string())
    }
}

/// For callers that only print it.
impl From<Fault> for String {
    fn from(fault: Fault) -> String {
        fault.message
    }
}
