//! What the cost model says, computed off the window's thread.

use crate::document::Document;
use crate::worker::Worker;
use compiler::schedule::estimate::KernelEstimate;
use compiler::schedule::rules::Alternative;
use compiler::trace::{RoundTrip, Stored};
use std::sync::Arc;

/// What is asked of the cost model.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Question {
    /// What each group stores, and would cost more in f32.
    Stored,
    /// One kernel.
    Kernel(usize),
    /// Results that go from kernel to kernel through memory.
    RoundTrips,
}

/// An answer of the cost model.
#[derive(Clone, Debug, Default)]
pub struct Modelled {
    /// What each group stores.
    pub stored: Vec<Stored>,
    /// The estimate of the kernel.
    pub estimate: Option<KernelEstimate>,
    /// Its function's schedule, then those that differ from it in one choice; or why there are none.
    pub alternatives: Option<Result<Vec<Alternative>, String>>,
    /// Results that go from kernel to kernel through memory; or why they are not known.
    pub round_trips: Option<Result<Vec<RoundTrip>, String>>,
}

/// Asks the cost model, and keeps its answers.
pub type Modeller = Worker<Question, Arc<Modelled>>;

impl Modeller {
    /// Starts the thread; `wake` is called when an answer is there.
    pub fn start(document: Arc<Document>, wake: impl Fn() + Send + 'static) -> Modeller {
        let workshop = move || {
            let mut estimates: Option<Vec<Option<KernelEstimate>>> = None;
            move |question: &Question| {
                let t = document.trace();
                Arc::new(match *question {
                    Question::Stored => Modelled { stored: t.stored().unwrap_or_default(), ..Modelled::default() },
                    Question::RoundTrips => Modelled { round_trips: Some(t.round_trips()), ..Modelled::default() },
                    Question::Kernel(kernel) => {
                        let all = estimates.get_or_insert_with(|| t.estimates().unwrap_or_default());
                        Modelled {
                            estimate: all.get(kernel).cloned().flatten(),
                            alternatives: Some(t.alternatives(kernel)),
                            ..Modelled::default()
                        }
                    }
                })
            }
        };
        Worker::new(workshop, wake)
    }
}
