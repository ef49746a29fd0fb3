//! Which page stands in the place of the graph, and its state.

use super::model::Modeller;
use super::table::Sort;

/// A page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Page {
    /// Errors by node, and which nodes to keep in f32.
    Wrong,
    /// The estimate beside the time, roofs, and what other choices would cost.
    Slow,
    /// Results that go from kernel to kernel through memory, and why.
    Left,
}
impl Page {
    /// Every page with its word on the command line and its question.
    pub const ALL: [(Page, &'static str, &'static str); 3] = [
        (Page::Wrong, "wrong", "Why is this fp16 result wrong?"),
        (Page::Slow, "slow", "Why is this kernel slow?"),
        (Page::Left, "left", "What did fusion leave on the table?"),
    ];
}

/// The state of the pages.
#[derive(Default)]
pub struct Pages {
    /// The page in the place of the graph.
    pub shown: Option<Page>,
    pub(super) modeller: Option<Modeller>,
    pub(super) sort: Sort,
    /// The group whose result the page of what fusion left tells about.
    pub(super) trip: Option<usize>,
    pub(super) trips: Sort,
    /// How many of the proposed nodes are to stay in f32; `None` for as many as the page proposes.
    pub(super) keep: Option<usize>,
}
impl Pages {
    /// Whether the cost model is at work.
    pub fn busy(&mut self) -> bool {
        self.modeller.as_mut().is_some_and(Modeller::busy)
    }
}
