//! Writes loops as ONNX's `Loop`. The inputs of its body are the iteration number, a condition and the carried values.

use super::super::error::ExportError;
use super::super::proto::{AttributeProto, GraphProto, NodeProto, attribute_type as ty};
use super::protos::{attribute, identity, value_info};
use super::{Body, Exporter};
use crate::dtype::DType;
use crate::graph::{BlockId, NodeId, TensorType};
use crate::int::Int;
use crate::ops::control::Loop;
use crate::ops::onnx::OnnxAttr;
use crate::tensor::Tensor;

impl<'m> Exporter<'m> {
    pub(super) fn export_loop(
        &mut self,
        body: &mut Body<'m>,
        n: NodeId,
        op: &Loop,
        out: &mut Vec<NodeProto>,
    ) -> Result<(), ExportError> {
        let node = &body.function.nodes[n];
        let trips = match (&op.trips, op.trips.as_ref().and_then(Int::as_const)) {
            (None, _) => node.inputs[0].map_or(String::new(), |v| body.name(v)),
            (Some(_), Some(known)) => {
                let name = body.names.unique("", "trips");
                let value = attribute("value", &OnnxAttr::Tensor(Tensor::scalar(known)));
                let op_type = Some("Constant".into());
                let output = vec![name.clone()];
                out.push(NodeProto { output, op_type, attribute: vec![value], ..NodeProto::default() });
                name
            }
            (Some(open), None) => {
                let why = format!("its number of iterations, {open}, is an open size");
                self.unsupported.push((node.name, node.op.name(), why));
                return Ok(());
            }
        };
        let graph = self.loop_body(body, node.regions[0], op)?;
        let attribute = AttributeProto {
            name: Some("body".into()),
            g: Some(graph),
            r#type: Some(ty::GRAPH),
            ..AttributeProto::default()
        };
        let given = node.inputs.iter().skip(1).map(|v| v.map_or(String::new(), |v| body.name(v)));
        let mut input: Vec<String> = std::iter::once(trips).chain(given).collect();
        while input.last().is_some_and(String::is_empty) {
            input.pop();
        }
        let output = node.outputs.iter().map(|&v| body.define(v)).collect();
        node.outputs.iter().for_each(|&v| body.define_symbols(v));
        let name = Some(body.names.node(node.name.as_str()));
        let op_type = Some("Loop".into());
        out.push(NodeProto { input, output, name, op_type, attribute: vec![attribute], ..NodeProto::default() });
        Ok(())
    }

    fn loop_body(&mut self, body: &mut Body<'m>, region: BlockId, op: &Loop) -> Result<GraphProto, ExportError> {
        let f = body.function;
        let block = &f.blocks[region];
        let one_bool = TensorType::new(DType::Bool, vec![]);
        let condition = body.names.unique("", "condition");
        let mut input = vec![];
        for (i, &v) in block.args.iter().enumerate() {
            input.push(value_info(&body.define(v), f.ty(v)));
            if i == 0 {
                input.push(value_info(&condition, &one_bool));
            }
        }
        let mut inner = Vec::new();
        let symbols = body.symbols.clone();
        self.export_block(body, region, &mut inner)?;
        body.symbols = symbols;
        // The body must produce its results itself, and each under its own name.
        let mut output = Vec::new();
        let mut yielded = |body: &mut Body<'m>, from: &str, ty: &TensorType| {
            let name = body.names.unique("", "next");
            inner.push(identity(from, &name));
            output.push(value_info(&name, ty));
        };
        if !op.r#while {
            yielded(body, &condition, &one_bool);
        }
        for &v in &block.results {
            let from = body.name(v);
            yielded(body, &from, f.ty(v));
        }
        Ok(GraphProto { node: inner, name: Some("body".into()), input, output, ..GraphProto::default() })
    }
}
