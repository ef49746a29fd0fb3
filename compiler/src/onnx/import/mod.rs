//! ONNX models to modules.
//!
//! The whole model is scanned first, so that all unsupported operators are reported together. Then the graph is
//! imported node by node, each by the import row in its op's file. Model-local functions are inlined. A symbol of the
//! graph's inputs becomes a symbol of the module; a dimension without a name (or with the name `?` or a negative
//! number) becomes a symbol of its own: `input.dim0`.
//!
//! Deliberately absent: the file's shape hints (`value_info`). Types are inferred, since hints are often wrong in
//! edited models.

mod attributes;
mod binding;
mod constants;
mod control;
mod fold;
mod inputs;
mod loops;
mod node;
mod node_ref;
mod order;
mod sequences;
mod support;
#[cfg(test)]
mod tests;
mod trips;

pub use binding::element_name;
pub use inputs::ImportOptions;
pub(crate) use inputs::{import_type, real_inputs};
pub(crate) use support::unsupported_ops;

use super::error::{ImportError, invalid_value};
use super::external::ExternalData;
use super::formats::no_model;
use super::proto::{FunctionProto, GraphProto, ModelProto, NodeProto, OperatorSetId, TypeValue, ValueInfoProto};
use super::tensor_data::ValueKind;
use crate::graph::{EXPANSION_LIMIT, FunctionBuilder, Module, TensorType, ValueId, check_expansion};
use crate::name::Name;
use crate::ops::control::Const;
use crate::ops::narrow::Narrow;
use attributes::FunctionAttrs;
use binding::Binding;
use bytes::Bytes;
use constants::add_constant;
use inputs::{Input, input_types};
use prost::Message;
use rustc_hash::{FxHashMap, FxHashSet};
use std::cell::Cell;

/// Bytes of constants that nodes may make, beside those of the file: windows, grids, filled tensors.
const MADE_LIMIT: usize = 1 << 30;

/// Imports a model into a module whose entry is `main`.
///
/// # Errors
/// See [`ImportError`]; unsupported operators are listed all at once.
pub fn import_onnx(bytes: Bytes, external: &dyn ExternalData) -> Result<Module, ImportError> {
    import_onnx_with(bytes, external, &ImportOptions::default())
}

/// As [`import_onnx`], with shapes or values of inputs. Dimensions that the model fixes may be replaced, as far as the
/// model's nodes accept it.
///
/// # Errors
/// As [`import_onnx`]; also [`ImportError::Shape`] for names that the model does not have and shapes that do not fit.
pub fn import_onnx_with(
    bytes: Bytes,
    external: &dyn ExternalData,
    options: &ImportOptions,
) -> Result<Module, ImportError> {
    let model = decode_model(bytes)?;
    let importer = Importer::new(&model, external)?;
    importer.check_support()?;
    importer.import_main(options)
}

/// Names and types of a model's inputs, without importing it; `shapes` are those of [`ImportOptions`].
///
/// # Errors
/// A file that is no model, all unsupported operators, or an input of an unsupported type.
pub fn onnx_inputs(bytes: Bytes, shapes: &[(Name, Vec<usize>)]) -> Result<Vec<(Name, TensorType)>, ImportError> {
    let model = decode_model(bytes)?;
    let importer = Importer::new(&model, &super::NoExternalData)?;
    importer.check_support()?;
    let inputs = real_inputs(importer.graph).map(|info| Input::new(info, shapes)).collect::<Result<Vec<_>, _>>()?;
    Ok(inputs.iter().flat_map(Input::ports).collect())
}

/// Names and kinds of a model's inputs and of its results.
///
/// # Errors
/// A file that is no model.
pub fn onnx_values(bytes: Bytes) -> Result<[Vec<(String, ValueKind)>; 2], ImportError> {
    let model = decode_model(bytes)?;
    let kind = |info: &ValueInfoProto| {
        let kind = match info.r#type.as_ref().and_then(|t| t.value.as_ref()) {
            Some(TypeValue::Sequence(_)) => ValueKind::Sequence,
            Some(TypeValue::Optional(_)) => ValueKind::Optional,
            _ => ValueKind::Tensor,
        };
        (info.name.clone().unwrap_or_default(), kind)
    };
    let graph = model.graph.unwrap_or_default();
    Ok([real_inputs(&graph).map(kind).collect(), graph.output.iter().map(kind).collect()])
}

/// Decodes the protobuf message and checks that nothing essential is missing.
pub(crate) fn decode_model(bytes: Bytes) -> Result<ModelProto, ImportError> {
    let malformed = |m: &str| Err(ImportError::Malformed(m.to_string()));
    if bytes.is_empty() {
        return malformed("the file is empty");
    }
    let model = ModelProto::decode(bytes.clone()).map_err(|e| no_model(&bytes, &e))?;
    if model.graph.is_none() {
        return malformed("it has no graph; it is cut off or of another format");
    }
    if model.opset_import.is_empty() {
        return malformed("it imports no opset; it is cut off or of another format");
    }
    Ok(model)
}

/// Versions by domain; ai.onnx is the empty domain.
pub(crate) struct Opsets(FxHashMap<String, i64>);
impl Opsets {
    fn new(list: &[OperatorSetId]) -> Opsets {
        let entry = |o: &OperatorSetId| (canonical_domain(o.domain.as_deref()).to_string(), o.version.unwrap_or(1));
        Opsets(list.iter().map(entry).collect())
    }
    /// The version of a domain; other domains than ai.onnx may be used without being imported.
    pub(crate) fn get(&self, domain: &str) -> Option<i64> {
        self.0.get(domain).copied().or_else(|| (!domain.is_empty()).then_some(1))
    }
}

/// `ai.onnx` and no domain are the same.
fn canonical_domain(domain: Option<&str>) -> &str {
    match domain {
        Some("ai.onnx") | None => "",
        Some(d) => d,
    }
}

/// The state that is fixed while one model is imported.
pub(crate) struct Importer<'p> {
    graph: &'p GraphProto,
    functions: FxHashMap<(&'p str, &'p str), &'p FunctionProto>,
    external: &'p dyn ExternalData,
    opsets: Opsets,
    /// Nodes imported so far, and the most: those of the file, and as many as calls and loops may become.
    imported: Cell<u64>,
    limit: u64,
    /// Bytes of constants made so far.
    made: Cell<usize>,
}

/// The state that is fixed inside one graph body or function body.
pub(crate) struct Environment<'p> {
    opsets: Option<Opsets>,
    /// Put before the names of nodes.
    prefix: String,
    attrs: Option<FunctionAttrs<'p>>,
    /// Functions being inlined, outermost first.
    calls: Vec<(&'p str, &'p str)>,
}

/// The meanings of the file's names.
struct Scope<'s, 'p> {
    parent: Option<&'s Scope<'s, 'p>>,
    values: FxHashMap<&'p str, Binding>,
    env: &'s Environment<'p>,
}
impl Scope<'_, '_> {
    fn get(&self, name: &str) -> Option<&Binding> {
        self.values.get(name).or_else(|| self.parent.and_then(|p| p.get(name)))
    }
}

impl<'p> Importer<'p> {
    /// Looks up functions and opsets.
    ///
    /// # Errors
    /// A model without a graph, or whose functions expand beyond [`EXPANSION_LIMIT`].
    pub(crate) fn new(model: &'p ModelProto, external: &'p dyn ExternalData) -> Result<Self, ImportError> {
        let Some(graph) = &model.graph else { return Err(ImportError::Malformed("it has no graph".into())) };
        let opsets = Opsets::new(&model.opset_import);
        let key = |f: &'p FunctionProto| (canonical_domain(f.domain.as_deref()), f.name.as_deref().unwrap_or(""));
        let functions: FxHashMap<_, _> = model.functions.iter().map(|f| (key(f), f)).collect();
        let body = |key| match key {
            None => calls_of(&graph.node, &functions),
            Some(key) => functions.get(&key).map_or((0, vec![]), |f| calls_of(&f.node, &functions)),
        };
        check_expansion(None, &body).map_err(ImportError::Expansion)?;
        let in_file = functions.keys().map(|&k| Some(k)).chain([None]).map(|k| body(k).0).sum::<u64>();
        let limit = EXPANSION_LIMIT + in_file;
        Ok(Importer { graph, functions, external, opsets, imported: Cell::new(0), limit, made: Cell::new(0) })
    }

    fn opset(&self, env: &Environment<'_>, domain: &str) -> Option<i64> {
        env.opsets.as_ref().unwrap_or(&self.opsets).get(domain)
    }

    fn import_main(&self, options: &ImportOptions) -> Result<Module, ImportError> {
        let mut module = Module::new("main");
        module.dims = options.ranges.clone();
        let mut b = FunctionBuilder::new(&mut module, "main");
        let env = Environment { opsets: None, prefix: String::new(), attrs: None, calls: vec![] };
        let mut scope = Scope { parent: None, values: FxHashMap::default(), env: &env };
        let (inputs, types) = input_types(self.graph, options)?;
        let mut types = types.into_iter();
        for input in inputs {
            let binding = input.add(&mut b, &mut types, options)?;
            if scope.values.insert(input.name, binding).is_some() {
                return Err(invalid_value("input", input.name, "the graph has two inputs of this name"));
            }
        }
        let values = self.import_graph(&mut b, self.graph, &mut scope)?;
        let mut results: Vec<(Name, ValueId)> = vec![];
        for (output, value) in self.graph.output.iter().zip(values) {
            results.extend(value.named(output.name.as_deref().unwrap_or("")));
        }
        b.finish(&results);
        remove_unused_constants(&mut module);
        Ok(module)
    }

    /// Imports initializers and nodes of `graph`, whose inputs are in `scope`; returns its outputs.
    fn import_graph(
        &self,
        b: &mut FunctionBuilder<'_>,
        graph: &'p GraphProto,
        scope: &mut Scope<'_, 'p>,
    ) -> Result<Vec<Binding>, ImportError> {
        self.import_initializers(b, graph, scope)?;
        self.import_nodes(b, &graph.node, scope)?;
        let find = |name: &'p str| match scope.get(name) {
            Some(binding) => Ok(binding.clone()),
            _ => Err(invalid_value("output", name, "it is defined nowhere")),
        };
        graph.output.iter().map(|o| find(o.name.as_deref().unwrap_or(""))).collect()
    }

    fn import_initializers(
        &self,
        b: &mut FunctionBuilder<'_>,
        graph: &'p GraphProto,
        scope: &mut Scope<'_, 'p>,
    ) -> Result<(), ImportError> {
        let mut used = order::used_names(&graph.node);
        used.extend(graph.output.iter().filter_map(|o| o.name.as_deref()));
        let dense = graph.initializer.iter().map(|t| {
            let name = t.name.as_deref().unwrap_or("");
            (
                name,
                Narrow::of_onnx(t.data_type.unwrap_or(0).into()),
                super::tensor_data::read_constant(t, self.external),
            )
        });
        let sparse = graph.sparse_initializer.iter().map(|s| {
            let name = s.values.as_ref().and_then(|v| v.name.as_deref()).unwrap_or("");
            (name, None, super::tensor_data::read_sparse(s, self.external))
        });
        for (name, narrow, constant) in dense.chain(sparse).filter(|c| used.contains(c.0)) {
            let constant = constant.map_err(|e| e.about("initializer", name))?;
            let value = add_constant(b, name, constant);
            if scope.values.insert(name, Binding::Tensor(value, narrow)).is_some() {
                return Err(invalid_value("initializer", name, "there are two of this name"));
            }
        }
        Ok(())
    }
}

/// A function of the model: domain and name.
type FunctionKey<'p> = (&'p str, &'p str);

/// Nodes, those of branches and bodies included, and the functions of the model that they call; `None` is the graph.
fn calls_of<'p>(
    nodes: &'p [NodeProto],
    functions: &FxHashMap<FunctionKey<'p>, &'p FunctionProto>,
) -> (u64, Vec<Option<FunctionKey<'p>>>) {
    let (mut count, mut called) = (0, vec![]);
    let mut open = vec![nodes];
    while let Some(nodes) = open.pop() {
        count += nodes.len() as u64;
        for node in nodes {
            let key = (canonical_domain(node.domain.as_deref()), node.op_type.as_deref().unwrap_or(""));
            called.extend(functions.contains_key(&key).then_some(Some(key)));
            open.extend(node.attribute.iter().filter_map(|a| a.g.as_ref()).map(|g| &g.node[..]));
        }
    }
    (count, called)
}

/// Operands that became attributes and folded shape arithmetic leave constants that nobody reads.
fn remove_unused_constants(module: &mut Module) {
    let f = module.main_mut();
    let mut used: FxHashSet<ValueId> = f.blocks.iter().flat_map(|(_, b)| b.results.iter().copied()).collect();
    let (mut nodes, mut unused, mut read) = (f.walk(), FxHashSet::default(), FxHashSet::default());
    nodes.retain(|&n| {
        used.extend(f.nodes[n].inputs.iter().flatten());
        f.nodes[n].op.is::<Const>()
    });
    for n in nodes {
        let node = &f.nodes[n];
        match node.op.downcast::<Const>() {
            Some(c) if used.contains(&node.outputs[0]) => drop(read.insert(c.name)),
            _ => drop(unused.insert(n)),
        }
    }
    f.remove_nodes(&unused);
    module.constants.retain(|name, _| read.contains(name));
}
