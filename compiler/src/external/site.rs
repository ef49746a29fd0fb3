//! A call of an external target in a plan: prepared once for each list of sizes, run many times.

use super::region::Region;
use super::table::TargetSpec;
use super::target::Prepared;
use crate::tensor::{Tensor, TensorMut};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

/// Lists of sizes for which a site keeps its prepared region.
const KEPT: usize = 16;

/// A region that is prepared for some sizes.
struct Sized {
    shapes: Vec<Vec<usize>>,
    results: Vec<(crate::dtype::DType, Vec<usize>)>,
    prepared: Box<dyn Prepared>,
}

/// A place in a plan that calls an external target.
pub struct CallSite {
    spec: TargetSpec,
    region: Region,
    ready: Mutex<VecDeque<Arc<Sized>>>,
}

impl CallSite {
    /// The region run by the target. Nothing is prepared before the first run.
    pub fn new(spec: TargetSpec, region: Region) -> CallSite {
        CallSite { spec, region, ready: Mutex::default() }
    }

    /// Runs the region. The first run for a list of sizes prepares it; the last 16 lists are kept.
    ///
    /// # Errors
    /// A region that the target cannot prepare, or a failed run.
    pub fn run(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>, String> {
        let named = |why: String| format!("the external target `{}`: {why}", self.spec.name());
        let sized = self.sized(inputs).map_err(named)?;
        let zeros = |(dtype, shape): &(_, Vec<usize>)| TensorMut::zeros(*dtype, shape.clone());
        let made: Result<Vec<TensorMut>, _> = sized.results.iter().map(zeros).collect();
        let mut outputs = made.map_err(|e| e.to_string())?;
        sized.prepared.run(inputs, &mut outputs).map_err(named)?;
        Ok(outputs.into_iter().map(TensorMut::freeze).collect())
    }

    fn sized(&self, inputs: &[Tensor]) -> Result<Arc<Sized>, String> {
        let fits = |s: &Arc<Sized>| s.shapes.iter().map(Vec::as_slice).eq(inputs.iter().map(Tensor::shape));
        // Held while it prepares: a second run of the same sizes waits for the first one's region.
        let mut ready = self.ready.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = ready.iter().find(|s| fits(s)) {
            return Ok(found.clone());
        }
        let shapes: Vec<&[usize]> = inputs.iter().map(Tensor::shape).collect();
        let region = self.region.sized(&shapes).map_err(|e| e.to_string())?;
        let fixed = |t: &crate::graph::TensorType| Some((t.dtype, t.const_shape()?));
        let results: Option<Vec<_>> = region.outputs().iter().map(fixed).collect();
        let sized = Arc::new(Sized {
            shapes: shapes.iter().map(|s| s.to_vec()).collect(),
            results: results.ok_or("its results have no fixed sizes")?,
            prepared: self.spec.target.prepare(region, &self.spec.options)?,
        });
        ready.truncate(KEPT - 1);
        ready.push_front(sized.clone());
        Ok(sized)
    }
}
