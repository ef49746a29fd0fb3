//! Networks whose sizes are open: pipelines and constants once, activations for each list of sizes that comes up.

use crate::error::GpuError;
use crate::session::Session;
use compiler::compile::{MemoryReport, OpenPlan, SizeError};
use compiler::name::Name;
use compiler::plan::Plan;
use compiler::tensor::Tensor;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

/// Lists of sizes whose activations are kept.
const KEPT: usize = 16;

/// The sessions for lists of sizes, the one that was used last at the end.
type Kept = VecDeque<(Vec<(Name, i64)>, Arc<Session>)>;

/// An open session for inputs of any sizes within the declared ranges. A list of sizes that came up before costs nothing but its
/// run; a new one costs the numbering of buffers, their allocation and bind groups, no compilation and no upload of constants.
pub struct OpenSession {
    open: Arc<OpenPlan>,
    first: Session,
    kept: Mutex<Kept>,
}

impl From<SizeError> for GpuError {
    fn from(e: SizeError) -> GpuError {
        GpuError::Input(e.to_string())
    }
}

impl OpenSession {
    /// Of a session that is open for some sizes, and what makes plans for others.
    pub fn new(open: Arc<OpenPlan>, first: Session) -> OpenSession {
        OpenSession { open, first, kept: Mutex::default() }
    }

    /// The session for inputs of these shapes, in the order of the network's inputs.
    ///
    /// # Errors
    /// Shapes that the network does not take, sizes beyond the declared ranges or the device, memory.
    pub fn at(&self, shapes: &[&[usize]]) -> Result<Arc<Session>, GpuError> {
        let sizes = self.open.sizes(shapes)?;
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(at) = kept.iter().position(|(s, _)| *s == sizes)
            && let Some(found) = kept.remove(at)
        {
            let session = found.1.clone();
            kept.push_back(found);
            return Ok(session);
        }
        let (plan, _) = self.open.at(&sizes)?;
        let session = Arc::new(self.first.with_plan(plan)?);
        kept.push_back((sizes, session.clone()));
        if kept.len() > KEPT {
            kept.pop_front();
        }
        Ok(session)
    }

    /// The plan for inputs of these shapes, and what memory it takes.
    ///
    /// # Errors
    /// As [`OpenSession::at`].
    pub fn plan_at(&self, shapes: &[&[usize]]) -> Result<(Plan, MemoryReport), GpuError> {
        Ok(self.open.at(&self.open.sizes(shapes)?)?)
    }

    /// Runs once: `inputs` in the order of the network's inputs, results in the order of its outputs.
    ///
    /// # Errors
    /// As [`OpenSession::at`] and [`Session::run`].
    pub fn run(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>, GpuError> {
        let shapes: Vec<&[usize]> = inputs.iter().map(Tensor::shape).collect();
        self.at(&shapes)?.run(inputs)
    }

    /// The session that the others share pipelines and constants with.
    pub fn first(&self) -> &Session {
        &self.first
    }

    /// Lists of sizes that are ready to run.
    pub fn sizes_kept(&self) -> usize {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).len()
    }
}
