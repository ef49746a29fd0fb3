//! A session with what it was compiled from.

use crate::session::Session;
use compiler::compile::Compiled;

/// A session with its compilation, if there is one.
pub struct Planned {
    /// The session.
    pub session: Session,
    /// The compilation.
    pub compiled: Option<Box<Compiled>>,
}

impl From<Session> for Planned {
    fn from(session: Session) -> Planned {
        Planned { session, compiled: None }
    }
}
