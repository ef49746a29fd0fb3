//! The end of a run with a message.

use super::control::declared_types;
use super::{InferContext, Op, OpResult};
use crate::attr_struct;
use crate::dtype::DType;
use crate::graph::TensorType;
use crate::int::Int;
use crate::ops::onnx::OnnxImport;
use crate::tensor::Tensor;

/// ONNX importers: none makes this op.
pub const ONNX: &[OnnxImport] = &[];

attr_struct! {
    /// Ends the run with a message. It replaces a branch that is impossible for the model's shapes.
    pub struct Trap("trap") {
        /// Why.
        pub message: String = String::new(),
        /// Result dtypes.
        pub dtypes: Vec<DType> = vec![],
        /// Result shapes.
        pub shapes: Vec<Vec<Int>> = vec![],
    }
}
impl Trap {
    /// In place of results of these types.
    pub fn of(types: &[TensorType], message: String) -> Trap {
        let dtypes = types.iter().map(|t| t.dtype).collect();
        Trap { message, dtypes, shapes: types.iter().map(|t| t.shape.clone()).collect() }
    }
}
impl Op for Trap {
    fn arity(&self) -> (usize, usize) {
        (0, 0)
    }
    fn num_results(&self) -> usize {
        self.dtypes.len()
    }
    fn infer(&self, _cx: &InferContext<'_>) -> OpResult<Vec<TensorType>> {
        declared_types(&self.dtypes, &self.shapes)
    }
    fn has_compute(&self) -> bool {
        false
    }
    fn eval_host(&self, _inputs: &[Option<Tensor>]) -> Option<OpResult<Vec<Tensor>>> {
        Some(Err(self.message.clone().into()))
    }
    fn effects(&self) -> super::Effects {
        super::Effects { stateful: true }
    }
}
