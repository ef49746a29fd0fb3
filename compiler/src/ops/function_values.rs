//! Function values: graph functions as values, with the values that they captured. Their type has a signature; in the
//! interpreter a number represents one (`interpreter/closures.rs`).
//!
//! Two passes before inlining remove them: `lift-lambdas` makes graph functions of closures, and `specialize-functions`
//! turns the application of a known function into a call. No plan has function values; a module that still has some
//! needs the interpreter.

use super::{InferContext, Op, OpResult};
use crate::attr_struct;
use crate::graph::{Function, ValueId};
use crate::name::Name;
use crate::ops::onnx::OnnxImport;
use crate::tensor_type::{Signature, TensorType};

/// ONNX importers: it has no function values.
pub const ONNX: &[OnnxImport] = &[];

attr_struct! {
    /// The graph function `callee` as a value. Operands are its first parameters, which are captured; an application
    /// passes the others.
    pub struct FunctionValue("function") {
        /// Global name of the function.
        pub callee: Name = Name::new(""),
    }
}
impl Op for FunctionValue {
    fn arity(&self) -> (usize, usize) {
        (0, usize::MAX)
    }
    fn infer(&self, cx: &InferContext<'_>) -> OpResult<Vec<TensorType>> {
        let f = cx.callee(self.callee)?;
        let params = types_of(f, &f.params()[cx.len()..]);
        Ok(vec![TensorType::function(Signature { params, results: f.result_types.clone() })])
    }
    fn callee(&self) -> Option<Name> {
        Some(self.callee)
    }
    fn has_compute(&self) -> bool {
        false
    }
}

attr_struct! {
    /// Its region as a function value. Values from outside are captured.
    pub struct Lambda("lambda") {}
}
impl Op for Lambda {
    fn arity(&self) -> (usize, usize) {
        (0, 0)
    }
    fn infer(&self, cx: &InferContext<'_>) -> OpResult<Vec<TensorType>> {
        let &[body] = cx.regions() else { return Err("needs one region".into()) };
        let block = &cx.function.blocks[body];
        let (params, results) = (types_of(cx.function, &block.args), types_of(cx.function, &block.results));
        Ok(vec![TensorType::function(Signature { params, results })])
    }
    fn has_compute(&self) -> bool {
        false
    }
}

attr_struct! {
    /// Applies operand 0, a function value, to the others.
    pub struct Apply("apply") {}
}
impl Op for Apply {
    fn arity(&self) -> (usize, usize) {
        (1, usize::MAX)
    }
    fn infer(&self, cx: &InferContext<'_>) -> OpResult<Vec<TensorType>> {
        let f = cx.require(0)?;
        let signature = f.signature.as_ref().ok_or_else(|| format!("operand 0 is {f:?}, not a function"))?;
        if signature.params.len() + 1 != cx.len() {
            return Err(format!("{f:?} takes {} operands, got {}", signature.params.len(), cx.len() - 1).into());
        }
        for (i, want) in signature.params.iter().enumerate() {
            let got = cx.require(i + 1)?;
            if want != got {
                return Err(format!("operand {} is {got:?}, the function takes {want:?}", i + 1).into());
            }
        }
        Ok(signature.results.clone())
    }
    fn has_compute(&self) -> bool {
        false
    }
}

fn types_of(f: &Function, values: &[ValueId]) -> Vec<TensorType> {
    values.iter().map(|&v| f.ty(v).clone()).collect()
}
