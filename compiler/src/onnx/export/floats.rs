//! One float type for each written node: Weft's ops take f32 beside f16 (biases, slight weights), ONNX's mostly do not.

use super::super::proto::NodeProto;
use super::protos::attribute;
use super::{Body, Exporter};
use crate::dtype::DType;
use crate::graph::{NodeId, TensorType, ValueId};
use crate::name::Name;
use crate::ops::cast::onnx_code;
use crate::ops::control::Const;
use crate::ops::onnx::{FloatTypes, OnnxAttr};
use crate::tensor::Tensor;

/// Operands and results of a node as its ONNX form has them.
pub(super) struct Form {
    pub(super) inputs: Vec<Option<String>>,
    pub(super) outputs: Vec<String>,
    pub(super) input_types: Vec<Option<TensorType>>,
    pub(super) output_types: Vec<TensorType>,
    /// Casts of results to their types, behind the node.
    pub(super) casts: Vec<NodeProto>,
}

/// The float type that the form needs, if it is one for all.
fn float_type(asks: FloatTypes, inputs: &[Option<&TensorType>], outputs: &[&TensorType]) -> Option<DType> {
    let operands = inputs.iter().flatten().copied();
    let first = outputs.iter().copied().chain(operands).map(|t| t.dtype).find(|d| d.is_float());
    match asks {
        FloatTypes::Own => None,
        FloatTypes::One => first,
        FloatTypes::Wide => first.map(DType::accumulator),
    }
}

impl<'m> Exporter<'m> {
    /// Names and types of node `n`; casts of operands go to `out`.
    pub(super) fn in_one_float_type(&mut self, body: &mut Body<'m>, n: NodeId, out: &mut Vec<NodeProto>) -> Form {
        let f = body.function;
        let node = &f.nodes[n];
        let (input_types, output_types) = f.node_types(n);
        let one = float_type(node.op.onnx_floats(), &input_types, &output_types);
        let other = |t: &TensorType| one.filter(|&one| t.dtype.is_float() && t.dtype != one);
        let mut form = Form {
            inputs: vec![],
            outputs: vec![],
            input_types: input_types.iter().map(|t| t.cloned()).collect(),
            output_types: output_types.iter().copied().cloned().collect(),
            casts: vec![],
        };
        for (v, ty) in node.inputs.iter().zip(&mut form.input_types) {
            let to = ty.as_ref().and_then(other);
            form.inputs.push(match (*v, to) {
                (Some(v), Some(to)) => Some(self.cast_operand(body, v, to, out)),
                (v, _) => v.map(|v| body.name(v)),
            });
            if let (Some(ty), Some(to)) = (ty, to) {
                ty.dtype = to;
            }
        }
        for (&v, ty) in node.outputs.iter().zip(&mut form.output_types) {
            let name = body.define(v);
            let Some(to) = other(ty) else {
                form.outputs.push(name);
                continue;
            };
            let own = body.names.unique("", "uncast");
            form.casts.push(cast(&own, &name, std::mem::replace(&mut ty.dtype, to)));
            form.outputs.push(own);
        }
        form
    }

    /// The name of `v` in another float type: of a constant's other form, or of a cast.
    fn cast_operand(&mut self, body: &mut Body<'m>, v: ValueId, to: DType, out: &mut Vec<NodeProto>) -> String {
        let f = body.function;
        let constant = f.def_op::<Const>(v).map(|(_, c)| c.name);
        let Some(constant) = constant.filter(|_| body.initializers) else {
            let from = body.name(v);
            let name = body.names.unique(&format!("{from}.{to}"), "cast");
            out.push(cast(&from, &name, to));
            return name;
        };
        let key = Name::new(&format!("{constant}.{to}"));
        if let Some(name) = self.cast_constants.get(&key) {
            return name.clone();
        }
        // Data that cannot be read were refused where the constant stands.
        let data = self.module.constants.get(&constant).and_then(|c| c.load().ok());
        let data = data.unwrap_or_else(|| Tensor::zeros(to, vec![0]));
        let name = body.names.unique(key.as_str(), "const");
        let form = Tensor::from_f64(to, data.shape().to_vec(), data.to_f64_vec());
        self.initializers.add(&name, &form);
        self.cast_constants.insert(key, name.clone());
        name
    }
}

fn cast(from: &str, name: &str, to: DType) -> NodeProto {
    NodeProto {
        input: vec![from.into()],
        output: vec![name.into()],
        op_type: Some("Cast".into()),
        attribute: vec![attribute("to", &OnnxAttr::Int(onnx_code(to)))],
        ..NodeProto::default()
    }
}
