//! Scopes that the passes of external targets make: a composite, and a region of a target.

use super::{InferContext, Op, OpResult};
use crate::attr_struct;
use crate::graph::TensorType;
use crate::name::Name;
use crate::ops::onnx::OnnxImport;
use crate::tensor::Tensor;

/// ONNX importers: none makes these ops.
pub const ONNX: &[OnnxImport] = &[];

attr_struct! {
    /// The nodes that a pattern of an external target matched, in one region. The region runs at once.
    pub struct Composite("composite") {
        /// `TARGET.PATTERN`, for example `dnnl.conv2d_bias_relu`.
        pub name: Name = Name::new(""),
        /// The ops that were matched, in order, joined by `_`.
        pub partitioned_from: String = String::new(),
        /// The anchor: the matched node with the most multiply-accumulates, else the first one, with its attributes.
        pub anchor: String = String::new(),
    }
}

attr_struct! {
    /// Nodes that an external target takes, in one region. The region runs at once.
    pub struct External("external") {
        /// Name of the target.
        pub target: Name = Name::new(""),
        /// Its options, `NAME=VALUE` joined by `:`.
        pub options: String = String::new(),
    }
}

fn yielded(cx: &InferContext<'_>) -> OpResult<Vec<TensorType>> {
    let [body] = cx.regions() else { return Err("needs one region".into()) };
    Ok(cx.function.blocks[*body].results.iter().map(|&v| cx.function.ty(v).clone()).collect())
}

macro_rules! scope {
    ($op:ident) => {
        impl Op for $op {
            fn arity(&self) -> (usize, usize) {
                (0, 0)
            }
            fn infer(&self, cx: &InferContext<'_>) -> OpResult<Vec<TensorType>> {
                yielded(cx)
            }
            fn has_compute(&self) -> bool {
                false
            }
            fn is_scope(&self) -> bool {
                true
            }
            fn region_taken(&self, _operands: &[Option<Tensor>]) -> Option<usize> {
                Some(0)
            }
        }
    };
}
scope!(Composite);
scope!(External);
