//! Why something that comes from outside is refused: one sentence, and whose fault it is.
//!
//! What comes from outside (a model, its data, the sizes that a run is asked for) may be wrong; or right, and more than Weft
//! or the machine can do. Whoever shows the error tells these apart by [`FaultKind`], never by its words.

use std::fmt;

/// Whose fault it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum FaultKind {
    /// What was given is wrong.
    #[default]
    Invalid,
    /// What was given is right, and Weft does not have it.
    Unsupported,
    /// What was given is right but for its size, which no memory holds.
    TooLarge,
    /// This machine has no room for it now.
    NoRoom,
}

/// Why something is refused, in one sentence.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fault {
    /// Whose fault it is.
    pub kind: FaultKind,
    /// One sentence, without the name of what refuses.
    pub message: String,
}

impl Fault {
    /// What was given is right, and Weft does not have it.
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

/// A sentence alone says that what was given is wrong.
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

/// For whoever only shows it.
impl From<Fault> for String {
    fn from(fault: Fault) -> String {
        fault.message
    }
}
