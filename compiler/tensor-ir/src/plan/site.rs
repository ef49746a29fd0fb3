//! Places that call host functions, with what the functions prepared for them.

use crate::dtype::DType;
use crate::name::Name;
use crate::recent::Recent;
use crate::tensor::{Tensor, TensorMut};
use std::sync::Arc;

/// A result that a call of a host function declares.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HostResult<'a> {
    /// Its element type.
    pub dtype: DType,
    /// Its shape; none if only the run decides it.
    pub shape: Option<&'a [usize]>,
    /// The operand whose memory it takes.
    pub in_place_of: Option<usize>,
}

/// An operand of a call site.
pub struct HostOperand<'a> {
    /// Its element type.
    pub dtype: DType,
    /// Its dimensions.
    pub shape: &'a [usize],
    /// Its data, if it is a constant: each run gets the same.
    pub constant: Option<&'a Tensor>,
}

/// What a function is prepared for.
pub struct HostSignature<'a> {
    /// Operands, in order.
    pub operands: Vec<HostOperand<'a>>,
    /// Results, in order.
    pub results: &'a [HostResult<'a>],
}

/// A function that is ready to run on tensors of some sizes: it writes its results. It is freed by dropping it.
pub type PreparedFunction = dyn Fn(&[Tensor], &mut [TensorMut]) -> Result<(), String> + Send + Sync;

/// Makes a function ready.
pub type PrepareFunction = dyn Fn(&HostSignature<'_>) -> Result<Box<PreparedFunction>, String> + Send + Sync;

/// What a prepared function is found by: who prepared it, and the sizes of the operands.
struct Key {
    by: Arc<PrepareFunction>,
    shapes: Vec<Vec<usize>>,
}

impl PartialEq for Key {
    fn eq(&self, other: &Key) -> bool {
        std::ptr::addr_eq(Arc::as_ptr(&self.by), Arc::as_ptr(&other.by)) && self.shapes == other.shapes
    }
}

/// A place that calls a host function.
pub struct HostSite {
    /// The function's registered name.
    pub function: Name,
    /// Which operands are constants.
    constants: Vec<bool>,
    ready: Recent<Key, Box<PreparedFunction>>,
}

impl HostSite {
    /// A call of `function` with so many operands, those that are true constants. Nothing is prepared yet.
    pub fn new(function: Name, constants: Vec<bool>) -> HostSite {
        HostSite { function, constants, ready: Recent::default() }
    }
    /// The function as `by` prepared it for operands of these sizes: now, or for an earlier run. Those of the last 16
    /// lists of sizes are kept.
    ///
    /// # Errors
    /// What `by` says.
    pub fn prepared<'i>(
        &self,
        by: &Arc<PrepareFunction>,
        inputs: &'i [Tensor],
        results: &[HostResult<'_>],
    ) -> Result<Arc<Box<PreparedFunction>>, String> {
        let shapes = inputs.iter().map(|t| t.shape().to_vec()).collect();
        self.ready.get_once(Key { by: by.clone(), shapes }, |_| {
            let operand = |(i, t): (usize, &'i Tensor)| HostOperand {
                dtype: t.dtype(),
                shape: t.shape(),
                constant: (self.constants.get(i) == Some(&true)).then_some(t),
            };
            by(&HostSignature { operands: inputs.iter().enumerate().map(operand).collect(), results })
        })
    }
}
