//! Modules to ONNX.
//!
//! Each node is written by its op's own [`Op::export`](crate::ops::Op::export). Constants become initializers with
//! `raw_data`; a call of a graph function becomes a call of a model-local function of the domain `weft`, so a fused
//! graph keeps its groups. Names of inputs, outputs and values are kept. Where an ONNX operator wants one float type
//! for all operands, casts and other forms of constants make up for f32 beside f16 (`floats`).
//!
//! Always holds: every name in the written model is defined once, also across branches.

mod data;
mod floats;
mod loops;
mod names;
mod protos;

use super::error::ExportError;
use super::proto::{
    AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto, OperatorSetId, attribute_type as ty,
};
use super::tensor_data::write_tensor;
use crate::graph::{BlockId, Function, Module, NodeId, ValueId};
use crate::name::Name;
use crate::ops::control::{Call, Const, If, Loop};
use crate::ops::onnx::{ExportContext, ExportNode, OnnxAttr, SizeSource};
use crate::tensor::Tensor;
use data::{Beside, Initializers};
use indexmap::{IndexMap, IndexSet};
use names::Names;
use prost::Message;
use protos::{attribute, identity, node_proto, value_info};
use rustc_hash::FxHashMap;

/// Domain of the functions that graph functions become.
pub const FUNCTION_DOMAIN: &str = "weft";
/// Protobuf refuses longer messages.
const SIZE_LIMIT: u64 = i32::MAX as u64;
/// The IR version that belongs to [`EXPORT_OPSET`](super::EXPORT_OPSET).
const IR_VERSION: i64 = 8;

/// Writes a module as an ONNX model.
///
/// # Errors
/// All nodes without an ONNX form at once; a constant whose data cannot be read; more than 2 GiB of constants.
pub fn export_onnx(module: &Module) -> Result<Vec<u8>, ExportError> {
    export(module, None)
}

/// Writes a module as an ONNX model whose large constants are in a file beside it, as bytes for `write`. `location` is
/// the name of that file.
///
/// # Errors
/// As [`export_onnx`], without a limit of the constants; errors of `write`.
pub fn export_onnx_beside<'m>(
    module: &'m Module,
    location: &str,
    write: &'m mut dyn FnMut(&[u8]) -> Result<(), String>,
) -> Result<Vec<u8>, ExportError> {
    export(module, Some(Beside { location: location.into(), written: 0, write }))
}

fn export<'m>(module: &'m Module, beside: Option<Beside<'m>>) -> Result<Vec<u8>, ExportError> {
    let mut e = Exporter {
        module,
        initializers: Initializers::new(beside),
        written: FxHashMap::default(),
        cast_constants: FxHashMap::default(),
        functions: IndexMap::new(),
        sizes: FxHashMap::default(),
        domains: IndexSet::new(),
        unsupported: vec![],
        prefix: names::fresh_prefix(module),
        counter: 0,
    };
    let graph = e.export_entry()?;
    if !e.unsupported.is_empty() {
        return Err(ExportError::Unsupported(e.unsupported));
    }
    if let Some(why) = e.initializers.failed {
        return Err(ExportError::Write(why));
    }
    let model = ModelProto {
        ir_version: Some(IR_VERSION),
        producer_name: Some("weft".into()),
        producer_version: Some(env!("CARGO_PKG_VERSION").into()),
        graph: Some(graph),
        opset_import: e.opset_imports(),
        functions: e.functions.into_values().flatten().collect(),
        ..ModelProto::default()
    };
    if model.encoded_len() as u64 > SIZE_LIMIT {
        return Err(ExportError::TooLarge { bytes: e.initializers.bytes });
    }
    Ok(model.encode_to_vec())
}

struct Exporter<'m> {
    module: &'m Module,
    initializers: Initializers<'m>,
    /// Names of the initializers that constants became.
    written: FxHashMap<Name, String>,
    /// The same for their forms in other float types, by the name of the constant and of the type.
    cast_constants: FxHashMap<Name, String>,
    /// Functions written so far; `None` while one is being written.
    functions: IndexMap<Name, Option<FunctionProto>>,
    /// The symbols that they take as inputs behind their parameters.
    sizes: FxHashMap<Name, Vec<Name>>,
    domains: IndexSet<String>,
    unsupported: Vec<(Name, &'static str, String)>,
    prefix: String,
    counter: usize,
}

/// One graph function while it is written.
struct Body<'m> {
    function: &'m Function,
    names: Names,
    values: FxHashMap<ValueId, String>,
    /// Where the sizes of symbols can be read.
    symbols: FxHashMap<Name, SizeSource>,
    /// Symbols that a group takes as inputs behind its parameters. Groups have the symbols of the function around them.
    sizes: Vec<Name>,
    /// Constants become initializers of the main graph; in a function, which has none, `Constant` nodes.
    initializers: bool,
}
impl<'m> Body<'m> {
    fn new(function: &'m Function, initializers: bool) -> Body<'m> {
        let (values, symbols) = (FxHashMap::default(), FxHashMap::default());
        Body { function, names: Names::new(), values, symbols, sizes: vec![], initializers }
    }
    /// Makes these symbols inputs of a group; false elsewhere, or if there are none.
    fn take_sizes(&mut self, missing: &[Name]) -> bool {
        if !self.function.primitive {
            return false;
        }
        for &symbol in missing.iter().filter(|s| !self.symbols.contains_key(*s)).collect::<IndexSet<_>>() {
            let name = self.names.unique(&format!("size.{symbol}"), "size");
            self.symbols.insert(symbol, SizeSource::Value(name));
            self.sizes.push(symbol);
        }
        !missing.is_empty()
    }
    /// Notes which dimensions of the named value `v` are plain symbols.
    fn define_symbols(&mut self, v: ValueId) {
        for (axis, d) in self.function.ty(v).shape.iter().enumerate() {
            if let Some(symbol) = d.as_var() {
                let name = self.name(v);
                self.symbols.entry(symbol).or_insert(SizeSource::Axis(name, axis));
            }
        }
    }
    fn name(&self, v: ValueId) -> String {
        self.values.get(&v).cloned().unwrap_or_default()
    }
    /// The name of a value that a node defines, chosen now.
    fn define(&mut self, v: ValueId) -> String {
        if let Some(name) = self.values.get(&v) {
            return name.clone();
        }
        let base = self.function.values[v].name;
        let name = self.names.unique(base.map_or("", Name::as_str), "v");
        self.values.insert(v, name.clone());
        name
    }
}

impl<'m> Exporter<'m> {
    fn opset_imports(&self) -> Vec<OperatorSetId> {
        let own = (!self.functions.is_empty()).then(|| FUNCTION_DOMAIN.to_string());
        let others = self.domains.iter().cloned().chain(own).collect::<IndexSet<String>>();
        let others = others.into_iter().filter(|d| !d.is_empty());
        let first = OperatorSetId { domain: Some(String::new()), version: Some(super::EXPORT_OPSET) };
        [first].into_iter().chain(others.map(|d| OperatorSetId { domain: Some(d), version: Some(1) })).collect()
    }

    fn export_entry(&mut self) -> Result<GraphProto, ExportError> {
        let f = self.module.main();
        let mut body = Body::new(f, true);
        for (i, &p) in f.params().iter().enumerate() {
            let base = f.values[p].name.map_or_else(|| format!("input{i}"), |n| n.to_string());
            let name = body.names.unique(&base, "input");
            body.values.insert(p, name);
            body.define_symbols(p);
        }
        let input: Vec<_> = f.params().iter().map(|&p| value_info(&body.name(p), f.ty(p))).collect();
        let mut node = Vec::new();
        let outputs = self.export_body(&mut body, &f.result_names, &mut node)?;
        let output = outputs.iter().zip(f.results()).map(|(n, &v)| value_info(n, f.ty(v))).collect();
        let initializer = self.initializers.take_used(&node);
        Ok(GraphProto { node, name: Some(f.name.to_string()), initializer, input, output, ..GraphProto::default() })
    }

    /// Writes the body block; returns the names of the results.
    fn export_body(
        &mut self,
        body: &mut Body<'m>,
        wanted: &[Name],
        out: &mut Vec<NodeProto>,
    ) -> Result<Vec<String>, ExportError> {
        let f = body.function;
        let mut outputs = Vec::with_capacity(f.results().len());
        for (i, &v) in f.results().iter().enumerate() {
            let base = wanted.get(i).map(|n| n.as_str()).filter(|n| !n.is_empty());
            let base = base.or(f.values[v].name.map(Name::as_str)).unwrap_or("");
            let is_plain = f.def_node(v).is_some_and(|n| !f.nodes[n].op.is::<Const>() && !f.nodes[n].op.is_scope());
            if body.values.get(&v).is_some_and(|name| name == base) && !outputs.contains(&base.to_string()) {
                outputs.push(base.to_string());
                continue;
            }
            let name = body.names.unique(base, "output");
            if is_plain && !body.values.contains_key(&v) {
                body.values.insert(v, name.clone());
            }
            outputs.push(name);
        }
        self.export_block(body, f.body, out)?;
        for (name, &v) in outputs.iter().zip(f.results()) {
            let have = body.name(v);
            if have != *name {
                out.push(identity(&have, name));
            }
        }
        Ok(outputs)
    }

    fn export_block(
        &mut self,
        body: &mut Body<'m>,
        block: BlockId,
        out: &mut Vec<NodeProto>,
    ) -> Result<(), ExportError> {
        for &n in &body.function.blocks[block].nodes {
            let op = &body.function.nodes[n].op;
            if let Some(c) = op.downcast::<Const>() {
                self.export_constant(body, n, c.name, out)?;
            } else if let Some(call) = op.downcast::<Call>() {
                self.export_call(body, n, call.callee, out)?;
            } else if op.is::<If>() {
                self.export_if(body, n, out)?;
            } else if let Some(repeated) = op.downcast::<Loop>() {
                self.export_loop(body, n, repeated, out)?;
            } else if op.is_scope() {
                let region = body.function.nodes[n].regions[0];
                self.export_block(body, region, out)?;
                let results = &body.function.blocks[region].results;
                for (&v, &r) in body.function.nodes[n].outputs.iter().zip(results) {
                    let name = body.name(r);
                    body.values.insert(v, name);
                }
            } else {
                self.export_node(body, n, out);
            }
        }
        Ok(())
    }

    fn export_constant(
        &mut self,
        body: &mut Body<'m>,
        n: NodeId,
        constant: Name,
        out: &mut Vec<NodeProto>,
    ) -> Result<(), ExportError> {
        let value = body.function.nodes[n].outputs[0];
        let broken = |message: String| ExportError::Constant { name: constant, message };
        if let Some(name) = body.initializers.then(|| self.written.get(&constant)).flatten() {
            body.values.insert(value, name.clone());
            return Ok(());
        }
        let Some(data) = self.module.constants.get(&constant) else {
            return Err(broken("it is not in the module".into()));
        };
        if self.initializers.bytes.max(data.byte_len() as u64) > SIZE_LIMIT && self.initializers.beside.is_none() {
            let bytes = self.module.constants.values().map(|c| c.byte_len() as u64).sum();
            return Err(ExportError::TooLarge { bytes });
        }
        let tensor = data.load().map_err(|e| broken(e.message))?;
        if body.initializers {
            let name = body.names.unique(constant.as_str(), "const");
            self.initializers.add(&name, &tensor);
            self.written.insert(constant, name.clone());
            body.values.insert(value, name);
        } else {
            let name = body.define(value);
            let attribute = vec![attribute("value", &OnnxAttr::Tensor(tensor))];
            let node_name = Some(body.names.node(body.function.nodes[n].name.as_str()));
            out.push(NodeProto {
                output: vec![name],
                name: node_name,
                op_type: Some("Constant".into()),
                attribute,
                ..NodeProto::default()
            });
        }
        Ok(())
    }

    fn export_node(&mut self, body: &mut Body<'m>, n: NodeId, out: &mut Vec<NodeProto>) {
        let f = body.function;
        let node = &f.nodes[n];
        let form = self.in_one_float_type(body, n, out);
        let (constants, nodes) = loop {
            self.counter += 1;
            let mut cx = ExportContext {
                inputs: form.inputs.clone(),
                outputs: form.outputs.clone(),
                input_types: form.input_types.iter().map(Option::as_ref).collect(),
                output_types: form.output_types.iter().collect(),
                nodes: vec![],
                constants: vec![],
                prefix: format!("{}{}", self.prefix, self.counter),
                symbols: &body.symbols,
                missing: vec![],
            };
            let done = node.op.export(&mut cx);
            let (constants, nodes, missing) = (cx.constants, cx.nodes, cx.missing);
            match done {
                Ok(()) => break (constants, nodes),
                Err(_) if body.take_sizes(&missing) => {}
                Err(why) => return self.unsupported.push((node.name, node.op.name(), why.message)),
            }
        };
        // Sizes known only at run time are read from the value that has them.
        node.outputs.iter().for_each(|&v| body.define_symbols(v));
        for (name, tensor) in constants {
            if body.initializers {
                self.initializers.add(&name, &tensor);
            } else {
                let attribute = vec![attribute("value", &OnnxAttr::Tensor(tensor))];
                let op_type = Some("Constant".into());
                out.push(NodeProto { output: vec![name], op_type, attribute, ..NodeProto::default() });
            }
        }
        for e in nodes {
            self.domains.insert(e.domain.clone());
            out.push(node_proto(e, body.names.node(node.name.as_str())));
        }
        out.extend(form.casts);
    }

    fn export_call(
        &mut self,
        body: &mut Body<'m>,
        n: NodeId,
        callee: Name,
        out: &mut Vec<NodeProto>,
    ) -> Result<(), ExportError> {
        let node = &body.function.nodes[n];
        if !self.functions.contains_key(&callee) {
            self.functions.insert(callee, None);
            let function = self.export_function(callee)?;
            self.functions.insert(callee, Some(function));
        } else if self.functions[&callee].is_none() {
            self.unsupported.push((node.name, "call", "ONNX has no recursion".into()));
            return Ok(());
        }
        let mut inputs: Vec<String> = node.inputs.iter().map(|v| v.map_or(String::new(), |v| body.name(v))).collect();
        for symbol in self.sizes.get(&callee).cloned().unwrap_or_default() {
            body.take_sizes(&[symbol]);
            match body.symbols.get(&symbol).cloned() {
                Some(SizeSource::Value(name)) => inputs.push(name),
                Some(SizeSource::Axis(of, axis)) => inputs.push(size_of(body, &of, axis, out)),
                None => {
                    let why = format!("the size `{symbol}` is no dimension of an input");
                    self.unsupported.push((node.name, "call", why));
                    return Ok(());
                }
            }
        }
        let outputs = node.outputs.iter().map(|&v| body.define(v)).collect();
        node.outputs.iter().for_each(|&v| body.define_symbols(v));
        let call =
            ExportNode { op_type: callee.to_string(), domain: FUNCTION_DOMAIN.into(), inputs, outputs, attrs: vec![] };
        out.push(node_proto(call, body.names.node(node.name.as_str())));
        Ok(())
    }

    fn export_function(&mut self, name: Name) -> Result<FunctionProto, ExportError> {
        let Some(f) = self.module.functions.get(&name) else {
            self.unsupported.push((name, "call", "the function is not in the module".into()));
            return Ok(FunctionProto::default());
        };
        let mut body = Body::new(f, false);
        for &p in f.params() {
            body.define(p);
            body.define_symbols(p);
        }
        let mut input: Vec<String> = f.params().iter().map(|&p| body.name(p)).collect();
        let mut node = Vec::new();
        let output = self.export_body(&mut body, &f.result_names, &mut node)?;
        for symbol in &body.sizes {
            if let Some(SizeSource::Value(name)) = body.symbols.get(symbol) {
                input.push(name.clone());
            }
        }
        self.sizes.insert(name, body.sizes);
        Ok(FunctionProto {
            name: Some(name.to_string()),
            input,
            output,
            node,
            opset_import: self.opset_imports(),
            domain: Some(FUNCTION_DOMAIN.into()),
            ..FunctionProto::default()
        })
    }

    fn export_if(&mut self, body: &mut Body<'m>, n: NodeId, out: &mut Vec<NodeProto>) -> Result<(), ExportError> {
        let f = body.function;
        let node = &f.nodes[n];
        let mut attribute = Vec::with_capacity(2);
        for (key, &region) in ["then_branch", "else_branch"].into_iter().zip(&node.regions) {
            let mut inner = Vec::new();
            // Sizes that are read in a branch are not known behind it.
            let symbols = body.symbols.clone();
            self.export_block(body, region, &mut inner)?;
            body.symbols = symbols;
            // A branch must produce its results itself, and each under its own name.
            let mut output = Vec::new();
            for &v in &f.blocks[region].results {
                let name = body.names.unique("", "branch");
                inner.push(identity(&body.name(v), &name));
                output.push(value_info(&name, f.ty(v)));
            }
            let graph = GraphProto { node: inner, name: Some(key.into()), output, ..GraphProto::default() };
            attribute.push(AttributeProto {
                name: Some(key.into()),
                g: Some(graph),
                r#type: Some(ty::GRAPH),
                ..AttributeProto::default()
            });
        }
        let input = node.inputs.iter().flatten().map(|&v| body.name(v)).collect();
        let output = node.outputs.iter().map(|&v| body.define(v)).collect();
        let name = Some(body.names.node(node.name.as_str()));
        out.push(NodeProto { input, output, name, op_type: Some("If".into()), attribute, ..NodeProto::default() });
        Ok(())
    }
}

/// A value of shape `[1]` with the size of an axis.
fn size_of(body: &mut Body<'_>, value: &str, axis: usize, out: &mut Vec<NodeProto>) -> String {
    let name = body.names.unique("", "size");
    let ends = [("start", axis), ("end", axis + 1)];
    out.push(NodeProto {
        input: vec![value.into()],
        output: vec![name.clone()],
        op_type: Some("Shape".into()),
        attribute: ends.iter().map(|(key, at)| attribute(key, &OnnxAttr::Int(*at as i64))).collect(),
        ..NodeProto::default()
    });
    name
}

/// A serialized `TensorProto` (the form of the `.pb` files in `test_data_set_*` folders).
pub fn export_tensor(name: &str, t: &Tensor) -> Vec<u8> {
    write_tensor(name, t).encode_to_vec()
}
