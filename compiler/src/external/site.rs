//! A call of an external target in a plan: prepared once for each list of sizes, run many times.

use super::region::Region;
use super::table::TargetSpec;
use super::target::Prepared;
use crate::dtype::DType;
use crate::recent::Recent;
use crate::tensor::{Tensor, TensorMut};
use std::sync::Arc;

/// A region that is prepared for some sizes.
struct Sized {
    results: Vec<(DType, Vec<usize>)>,
    prepared: Box<dyn Prepared>,
}

/// A place in a plan that calls an external target.
pub struct CallSite {
    spec: TargetSpec,
    region: Region,
    ready: Recent<Vec<Vec<usize>>, Sized>,
}

impl CallSite {
    /// The region run by the target. Nothing is prepared before the first run.
    pub fn new(spec: TargetSpec, region: Region) -> CallSite {
        CallSite { spec, region, ready: Recent::default() }
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
        let shapes = inputs.iter().map(|t| t.shape().to_vec()).collect();
        self.ready.get_once(shapes, |shapes: &Vec<Vec<usize>>| {
            let shapes: Vec<&[usize]> = shapes.iter().map(Vec::as_slice).collect();
            let region = self.region.sized(&shapes).map_err(|e| e.to_string())?;
            let fixed = |t: &crate::graph::TensorType| Some((t.dtype, t.const_shape()?));
            let results: Option<Vec<_>> = region.outputs().iter().map(fixed).collect();
            let results = results.ok_or("its results have no fixed sizes")?;
            Ok(Sized { results, prepared: self.spec.target.prepare(region, &self.spec.options)? })
        })
    }
}
