//! Another compilation beside the one that is shown, and what differs.

use crate::delta::Delta;
use crate::document::Document;
use crate::drawing::Drawing;
use compiler::trace::{Comparison, CompileTrace, TraceError};
use graphview::changes::Marks;
use std::sync::Arc;

/// Another compilation. It is the first of the two and stands at the left.
pub(crate) struct Other {
    /// Its trace.
    pub(crate) document: Arc<Document>,
    /// Its scenes.
    pub(crate) drawing: Option<Drawing>,
    /// Both in one table.
    pub(crate) comparison: Comparison,
    /// The verdict in one line.
    pub(crate) headline: String,
    /// What tells the two apart.
    pub(crate) titles: [String; 2],
    /// The difference of times on each side.
    pub(crate) deltas: [Arc<Delta>; 2],
    /// The row of the comparison that is looked at.
    pub(crate) row: Option<usize>,
}

impl Other {
    /// The trace `first` beside `second`.
    ///
    /// # Errors
    /// When its stages cannot be restored.
    pub(crate) fn new(first: CompileTrace, second: &CompileTrace) -> Result<Other, TraceError> {
        let comparison = Comparison::of(&first, second);
        let groups = [first.groups.len(), second.groups.len()];
        let deltas = [0, 1].map(|side| Arc::new(Delta::new(&comparison, side, groups[side])));
        Ok(Other {
            document: Arc::new(Document::new(first)?),
            drawing: None,
            headline: comparison.headline(),
            titles: comparison.titles(["the first", "the second"]),
            deltas,
            comparison,
            row: None,
        })
    }
    /// Whether something was timed or estimated on both sides.
    pub(crate) fn is_timed(&self) -> bool {
        self.comparison.rows.iter().any(|r| r.times.iter().all(Option::is_some))
    }
}

/// The marks of two stages.
pub(crate) struct Compared {
    /// The stages.
    pub(crate) stages: [usize; 2],
    /// Of the graph before the pass.
    pub(crate) before: Arc<Marks>,
    /// Of that after it.
    pub(crate) after: Arc<Marks>,
    /// They tell boxes apart, and are drawn.
    pub(crate) telling: bool,
}
