//! Imports one node: by its op's row, as a control structure, or by inlining a function of the model.

use super::super::error::ImportError;
use super::super::proto::{FunctionProto, NodeProto};
use super::super::{ImportContext, OnnxAttrs, OnnxImport};
use super::binding::Binding;
use super::control::Control;
use super::fold::fold_new_nodes;
use super::node_ref::{NodeRef, node_name, tensors};
use super::support::Resolved;
use super::{Environment, Importer, MADE_LIMIT, Opsets, Scope, attributes, canonical_domain, order};
use crate::arena::Id;
use crate::graph::{Constant, EXPANSION_LIMIT, FunctionBuilder, NodeId, TensorType, ValueId};
use crate::name::Name;
use crate::ops::const_value;
use crate::ops::control::Const;
use crate::ops::narrow::Narrow;
use rustc_hash::FxHashMap;

/// The narrow type of the results of nodes from `first` on, made by an importer that does not handle narrow types: the
/// type of the operands, if all nodes only move elements; `None` if they only read shapes.
fn kept_narrow(
    b: &FunctionBuilder<'_>,
    node: &NodeRef<'_>,
    first: usize,
    operands: &[Option<Narrow>],
) -> Result<Option<Narrow>, ImportError> {
    let made = (first..b.function.nodes.len()).map(|n| &b.function.nodes[NodeId::from_index(n)].op);
    let made: Vec<_> = made.filter(|op| !op.is::<Const>()).collect();
    let mut types = operands.iter().flatten();
    let Some(&narrow) = types.next() else { return Ok(None) };
    match () {
        () if made.iter().all(|op| op.takes_types_alone()) => Ok(None),
        () if made.iter().all(|op| op.keeps_elements()) && types.all(|t| *t == narrow) => Ok(Some(narrow)),
        () => {
            let name = narrow.name();
            Err(node.unsupported(format!(
                "unsupported operand of type {name}: such tensors are stored, cast, quantised, dequantised and moved, not \
                 computed with"
            )))
        }
    }
}

/// Refuses constants that are out of range for the nodes from `first` on.
fn refuse_out_of_range(b: &FunctionBuilder<'_>, first: usize) -> Result<(), String> {
    for (_, node) in b.function.nodes.iter().skip(first) {
        let types: Vec<Option<&TensorType>> = node.inputs.iter().map(|v| v.map(|v| b.function.ty(v))).collect();
        let Some(checked) = node.op.checked(&types) else { continue };
        let operand = node.inputs.get(checked.operand()).copied().flatten();
        let known = operand.and_then(|v| const_value(b.module, &b.function, v));
        if let Some(found) = known.map(|t| checked.count(&t)).filter(|f| f.count > 0) {
            return Err(found.first);
        }
    }
    Ok(())
}

impl<'p> Importer<'p> {
    /// Imports nodes in an order that defines before it reads; results go into `scope`.
    pub(super) fn import_nodes(
        &self,
        b: &mut FunctionBuilder<'_>,
        nodes: &'p [NodeProto],
        scope: &mut Scope<'_, 'p>,
    ) -> Result<(), ImportError> {
        let prefix = &scope.env.prefix;
        let names: Vec<Name> = nodes.iter().enumerate().map(|(i, n)| node_name(prefix, n, i)).collect();
        for i in order::order_nodes(nodes, &names, &|name| scope.get(name).is_some())? {
            let attrs = attributes::resolve(&nodes[i], scope.env.attrs.as_ref());
            self.import_node(b, &NodeRef { node: &nodes[i], name: names[i], attrs }, scope)?;
        }
        Ok(())
    }

    fn import_node(
        &self,
        b: &mut FunctionBuilder<'_>,
        node: &NodeRef<'p>,
        scope: &mut Scope<'_, 'p>,
    ) -> Result<(), ImportError> {
        self.imported.set(self.imported.get() + 1);
        if self.imported.get() > self.limit {
            let message = format!("its calls and loops become more than {EXPANSION_LIMIT} nodes");
            return Err(ImportError::Expansion(format!("{message}: the last one is `{}`", node.name)));
        }
        let lookup = |name: &'p String| match name.as_str() {
            "" => Ok(Binding::Absent),
            n => {
                let found = scope.get(n).cloned();
                found.ok_or_else(|| node.invalid(format!("its input `{n}` is defined nowhere")))
            }
        };
        let inputs: Vec<Binding> = node.node.input.iter().map(lookup).collect::<Result<_, _>>()?;
        let outputs = match self.resolve(scope.env, node.node) {
            Resolved::Function(f) => self.inline_function(b, node, f, &inputs, scope)?,
            Resolved::Control(c) => self.import_control(b, node, c, &inputs, scope)?,
            // Sequences and narrow types are handled by the importer itself if it has the operator too.
            Resolved::Row(row, opset) => match self.passes_through(node.node, &inputs) {
                Some(c) => self.import_control(b, node, c, &inputs, scope)?,
                None => self.import_row(b, node, row, opset, &inputs)?,
            },
            Resolved::Nothing(why) => return Err(node.unsupported(why)),
        };
        if outputs.len() < node.node.output.iter().rposition(|o| !o.is_empty()).map_or(0, |i| i + 1) {
            return Err(node.invalid(format!("it has {} results, not {}", outputs.len(), node.node.output.len())));
        }
        for (name, binding) in node.node.output.iter().zip(outputs).filter(|(n, _)| !n.is_empty()) {
            for (name, value) in binding.named(name) {
                if b.function.values[value].name.is_none() {
                    b.name_value(value, format!("{}{name}", scope.env.prefix));
                }
            }
            if scope.get(name).is_some() {
                return Err(node.invalid(format!("its result `{name}` is already defined")));
            }
            scope.values.insert(name, binding);
        }
        Ok(())
    }

    /// The importer's own form of an operator that also has a row, for operands that are no plain tensors.
    fn passes_through(&self, node: &NodeProto, inputs: &[Binding]) -> Option<Control> {
        let plain = inputs.iter().all(|x| matches!(x, Binding::Tensor(_, None)));
        let op = node.op_type.as_deref().unwrap_or("");
        if plain { None } else { Control::find(canonical_domain(node.domain.as_deref()), op) }
    }

    fn import_row(
        &self,
        b: &mut FunctionBuilder<'_>,
        node: &NodeRef<'p>,
        row: &OnnxImport,
        opset: i64,
        given: &[Binding],
    ) -> Result<Vec<Binding>, ImportError> {
        let attrs = attributes::convert(&node.attrs, self.external).map_err(|e| node.refused(e))?;
        b.set_source(Some(node.name));
        let (num_outputs, first) = (node.node.output.len(), b.function.nodes.len());
        let constants = b.module.constants.len();
        let inputs = tensors(node, given)?;
        let narrow: Vec<Option<Narrow>> =
            given.iter().map(|x| if let Binding::Tensor(_, n) = x { *n } else { None }).collect();
        let names = node.node.output.iter().enumerate();
        let unnamed_outputs = names.filter(|(_, name)| name.is_empty()).map(|(i, _)| i).collect();
        let before = narrow.clone();
        let mut cx = ImportContext {
            operator: (row.domain, row.op_type),
            unnamed_outputs,
            narrow,
            ..ImportContext::new(b, opset, inputs, attrs, num_outputs)
        };
        let results = (row.import)(&mut cx).map_err(|m| node.refused(m))?;
        let (ignored, made) = (cx.narrow.iter().any(Option::is_some), cx.narrow_result);
        let made = if ignored { kept_narrow(b, node, first, &before)? } else { made };
        self.count_made(node, b.module.constants.values().skip(constants))?;
        refuse_out_of_range(b, first).map_err(|message| node.invalid(message))?;
        let results = fold_new_nodes(b, first, node.name.as_str(), results);
        Ok(results.into_iter().map(|v| Binding::Tensor(v, made)).collect())
    }

    /// Counts the bytes of constants that a node made from its attributes and sizes. A small file may request any
    /// number of them.
    fn count_made<'c>(&self, node: &NodeRef<'p>, made: impl Iterator<Item = &'c Constant>) -> Result<(), ImportError> {
        let bytes = made.fold(self.made.get(), |n, c| n.saturating_add(c.byte_len()));
        self.made.set(bytes);
        if bytes <= MADE_LIMIT {
            return Ok(());
        }
        let message = format!("the constants that the model computes take more than {} MiB", MADE_LIMIT >> 20);
        Err(ImportError::TooLarge { node: node.name, op: node.op(), message })
    }

    /// Applies the row of an ai.onnx op that the importer itself needs (newest opset).
    pub(super) fn apply(
        &self,
        b: &mut FunctionBuilder<'_>,
        node: &NodeRef<'p>,
        op: &str,
        inputs: &[ValueId],
        attrs: OnnxAttrs,
    ) -> Result<ValueId, ImportError> {
        let row = crate::ops::find_onnx("", op, i64::MAX);
        let row = row.ok_or_else(|| node.unsupported(format!("needs the operator {op}")))?;
        b.set_source(Some(node.name));
        let inputs = inputs.iter().map(|&v| Some(v)).collect();
        let first = b.function.nodes.len();
        let mut cx = ImportContext::new(b, row.since, inputs, attrs, 1);
        let values = (row.import)(&mut cx).map_err(|m| node.refused(m))?;
        let values = fold_new_nodes(b, first, node.name.as_str(), values);
        values.first().copied().ok_or_else(|| node.invalid(format!("{op} has no result")))
    }

    /// Imports the body of a function of the model in place of the call.
    fn inline_function(
        &self,
        b: &mut FunctionBuilder<'_>,
        node: &NodeRef<'p>,
        f: &'p FunctionProto,
        inputs: &[Binding],
        scope: &Scope<'_, 'p>,
    ) -> Result<Vec<Binding>, ImportError> {
        let key = (canonical_domain(f.domain.as_deref()), f.name.as_deref().unwrap_or(""));
        if scope.env.calls.contains(&key) {
            return Err(ImportError::SelfCall { node: node.name, op: node.op() });
        }
        if inputs.len() > f.input.len() {
            return Err(node.invalid(format!("it takes {} inputs, got {}", f.input.len(), inputs.len())));
        }
        let defaults = f.attribute_proto.iter().map(|a| (a.name.as_deref().unwrap_or(""), a));
        let attrs: FxHashMap<_, _> = defaults.chain(node.attrs.iter().copied()).collect();
        let calls = scope.env.calls.iter().copied().chain([key]).collect();
        let opsets = Some(Opsets::new(&f.opset_import));
        let env = Environment { opsets, prefix: format!("{}/", node.name), attrs: Some(attrs), calls };
        let given = inputs.iter().cloned().chain(std::iter::repeat(Binding::Absent));
        let values = f.input.iter().map(String::as_str).zip(given).collect();
        let mut inner = Scope { parent: None, values, env: &env };
        self.import_nodes(b, &f.node, &mut inner)?;
        let find = |name: &String| match inner.get(name) {
            Some(v) => Ok(v.clone()),
            _ => Err(node.invalid(format!("the function does not define its output `{name}`"))),
        };
        f.output.iter().map(find).collect()
    }
}
