//! Who watches the work: its messages, its progress, and whether it is to stop.

use std::sync::Arc;

/// Who watches the work. Everything has a default: nothing is shown, and nothing stops.
pub trait Watcher: Send + Sync {
    /// A message, of one line or more.
    fn says(&self, _text: &str) {}
    /// So many of `total` steps of a stage are done; `at_work` names the one under way, or is empty.
    fn is_at(&self, _stage: &str, _at_work: &str, _done: usize, _total: usize) {}
    /// The work that reported is over.
    fn is_over(&self) {}
    /// True when the work is to end before the next kernel is compiled or measured.
    fn stops(&self) -> bool {
        false
    }
}

/// Nobody watches.
struct Nobody;
impl Watcher for Nobody {}

/// A watcher that settings carry; clones share it.
#[derive(Clone)]
pub struct Watched(pub Arc<dyn Watcher>);

impl Default for Watched {
    fn default() -> Watched {
        Watched(Arc::new(Nobody))
    }
}

impl std::fmt::Debug for Watched {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("watched")
    }
}
