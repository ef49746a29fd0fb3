//! Operators that are part of the importer: constants and control flow.
//!
//! The shapes may forbid one branch of an `If` whose condition is known only at run time. That branch becomes a `trap`:
//! taking it is an error.

use super::super::OnnxAttrs;
use super::super::error::{ImportError, invalid_value};
use super::super::proto::{GraphProto, ValueInfoProto};
use super::binding::Binding;
use super::constants::{add_constant, known_scalar};
use super::node_ref::{NodeRef, tensors};
use super::sequences::SequenceOp;
use super::{Environment, Importer, Scope, attributes};
use crate::dtype::DType;
use crate::graph::{BlockId, Constant, FunctionBuilder, TensorType, ValueId};
use crate::name::Name;
use crate::ops::control::If;
use crate::ops::narrow::Narrow;
use crate::ops::reshape::Reshape;
use crate::ops::trap::Trap;
use crate::ops::{OpRef, int_value};
use crate::tensor::Tensor;
use rustc_hash::FxHashMap;

/// The most elements of a `ConstantOfShape` that become a constant; larger ones are broadcast.
const FILL_LIMIT: usize = 4096;

/// An operator that the importer knows itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Control {
    Constant,
    ConstantOfShape,
    Identity,
    If,
    Loop,
    Scan,
    Sequence(SequenceOp),
}
impl Control {
    pub(super) fn find(domain: &str, op: &str) -> Option<Control> {
        match (domain, op) {
            ("", "Constant") => Some(Control::Constant),
            ("", "ConstantOfShape") => Some(Control::ConstantOfShape),
            ("", "Identity") => Some(Control::Identity),
            ("", "If") => Some(Control::If),
            ("", "Loop") => Some(Control::Loop),
            ("", "Scan") => Some(Control::Scan),
            ("", op) => SequenceOp::find(op).map(Control::Sequence),
            _ => None,
        }
    }
}

/// A branch that ends the run with an error, in place of a branch that is impossible for the given shapes. It has
/// results like the other branch. Exporters write an `If` around code that depends on a size or a rate, and only one
/// branch fits the shapes.
///
/// # Errors
/// `why`, if the branch failed for another reason than shapes.
fn trap(b: &mut FunctionBuilder<'_>, other: BlockId, why: ImportError) -> Result<BlockId, ImportError> {
    let ImportError::Invalid { node, op, message } = &why else { return Err(why) };
    let text = format!("the branch that runs is impossible for these shapes: node `{node}` ({op}): {message}");
    let types: Vec<TensorType> = b.function.blocks[other].results.iter().map(|&v| b.ty(v).clone()).collect();
    let block = b.new_block();
    b.set_source(Some(*node));
    let made = b.in_block(block, |b| b.add_multi(Trap::of(&types, text), vec![], vec![]));
    let results = made.map_err(|_| why)?;
    b.set_block_results(block, results);
    Ok(block)
}

impl<'p> Importer<'p> {
    pub(super) fn import_control(
        &self,
        b: &mut FunctionBuilder<'_>,
        node: &NodeRef<'p>,
        control: Control,
        inputs: &[Binding],
        scope: &Scope<'_, 'p>,
    ) -> Result<Vec<Binding>, ImportError> {
        match control {
            Control::Constant => self.import_constant(b, node, scope).map(|v| vec![v]),
            Control::ConstantOfShape => {
                let v = self.import_constant_of_shape(b, node, &tensors(node, inputs)?)?;
                Ok(vec![Binding::tensor(v)])
            }
            Control::Identity => match inputs.first() {
                Some(x) if *x != Binding::Absent || node.node.input.iter().any(|n| !n.is_empty()) => {
                    Ok(vec![x.clone()])
                }
                _ => Err(node.invalid("input 0 is missing")),
            },
            Control::If => self.import_if(b, node, &tensors(node, inputs)?, scope),
            Control::Loop => self.import_loop(b, node, inputs, scope),
            Control::Scan => {
                let results = self.import_scan(b, node, &tensors(node, inputs)?, scope)?;
                Ok(results.into_iter().map(Binding::tensor).collect())
            }
            Control::Sequence(op) => self.import_sequence_op(b, node, op, inputs, scope),
        }
    }

    fn import_constant(
        &self,
        b: &mut FunctionBuilder<'_>,
        node: &NodeRef<'p>,
        scope: &Scope<'_, 'p>,
    ) -> Result<Binding, ImportError> {
        let [(kind, a)] = node.attrs[..] else {
            return Err(node.invalid("it needs exactly one attribute, its value"));
        };
        let from = |t: Tensor| Ok(Constant::from_tensor(&t));
        let constant = match kind {
            "value" | "sparse_value" => {
                attributes::tensor_attr(kind, a, self.external).map_err(|e| node.refused(e.into()))
            }
            "value_float" => from(Tensor::scalar(a.f.unwrap_or(0.0))),
            "value_int" => from(Tensor::scalar(a.i.unwrap_or(0))),
            "value_floats" => from(Tensor::from_vec(vec![a.floats.len()], a.floats.clone())),
            "value_ints" => from(Tensor::ints(&a.ints)),
            "value_string" | "value_strings" => Err(node.unsupported("unsupported element type string")),
            other => Err(node.invalid(format!("unknown attribute `{other}`"))),
        }?;
        let name = node.node.output.first().map_or("", String::as_str);
        let value = add_constant(b, &format!("{}{name}", scope.env.prefix), constant);
        let narrow = a.t.as_ref().and_then(|t| Narrow::of_onnx(t.data_type.unwrap_or(0).into()));
        Ok(Binding::Tensor(value, narrow))
    }

    fn import_constant_of_shape(
        &self,
        b: &mut FunctionBuilder<'_>,
        node: &NodeRef<'p>,
        inputs: &[Option<ValueId>],
    ) -> Result<ValueId, ImportError> {
        let Some(&Some(shape)) = inputs.first() else { return Err(node.invalid("input 0 is missing")) };
        let attrs = attributes::convert(&node.attrs, self.external).map_err(|e| node.refused(e))?;
        let value = attrs.tensor("value").cloned().unwrap_or_else(|| Tensor::zeros(DType::F32, vec![1]));
        if value.len() != 1 {
            return Err(node.invalid(format!("its value has {} elements, not 1", value.len())));
        }
        let dims: Option<Vec<i64>> =
            int_value(b.module, &b.function, shape, 0).and_then(|d| d.iter().map(|d| d.as_const()).collect());
        if let Some(bad) = dims.iter().flatten().find(|&&d| d < 0) {
            return Err(node.invalid(format!("the shape has the dimension {bad}")));
        }
        let len = dims.as_ref().and_then(|d| d.iter().try_fold(1usize, |a, &d| a.checked_mul(d as usize)));
        match (dims, len) {
            (Some(dims), Some(len)) if len <= FILL_LIMIT => {
                let data = value.bytes().repeat(len).into();
                let filled = Tensor::from_bytes(value.dtype(), dims.iter().map(|&d| d as usize).collect(), data);
                Ok(b.constant(&format!("{}_value", node.name), &filled.map_err(|m| node.invalid(m))?))
            }
            _ => {
                let one = b.constant(&format!("{}_value", node.name), &value.reshaped(vec![]));
                self.apply(b, node, "Expand", &[one, shape], OnnxAttrs::default())
            }
        }
    }

    /// A graph attribute.
    pub(super) fn body(&self, node: &NodeRef<'p>, name: &str) -> Result<&'p GraphProto, ImportError> {
        attributes::graph_attr(&node.attrs, name).map_err(|m| node.invalid(m))
    }

    /// Imports a body with `arguments` for its inputs, whose results are tensors.
    pub(super) fn import_body(
        &self,
        b: &mut FunctionBuilder<'_>,
        graph: &'p GraphProto,
        prefix: String,
        arguments: &[ValueId],
        outer: &Scope<'_, 'p>,
    ) -> Result<Vec<ValueId>, ImportError> {
        let arguments = arguments.iter().copied().map(Binding::tensor).collect();
        let results = self.import_bindings(b, graph, prefix, arguments, outer)?;
        let value = |(r, o): (&Binding, &ValueInfoProto)| match r {
            Binding::Tensor(v, None) => Ok(*v),
            other => {
                let why = format!(
                    "it is {}: a loop of the graph takes and gives tensors of types that are computed in",
                    other.kind()
                );
                Err(invalid_value("output", o.name.as_deref().unwrap_or(""), &why))
            }
        };
        results.iter().zip(&graph.output).map(value).collect()
    }

    /// Imports a branch or body with `arguments` for its inputs.
    pub(super) fn import_bindings(
        &self,
        b: &mut FunctionBuilder<'_>,
        graph: &'p GraphProto,
        prefix: String,
        arguments: Vec<Binding>,
        outer: &Scope<'_, 'p>,
    ) -> Result<Vec<Binding>, ImportError> {
        let env = Environment {
            opsets: outer.env.opsets.as_ref().map(|o| super::Opsets(o.0.clone())),
            prefix,
            attrs: outer.env.attrs.clone(),
            calls: outer.env.calls.clone(),
        };
        let names = graph.input.iter().map(|i| i.name.as_deref().unwrap_or(""));
        let values: FxHashMap<&str, Binding> = names.zip(arguments).collect();
        let mut scope = Scope { parent: Some(outer), values, env: &env };
        self.import_graph(b, graph, &mut scope)
    }

    /// A condition that is known now leaves only the branch that is taken.
    fn import_if(
        &self,
        b: &mut FunctionBuilder<'_>,
        node: &NodeRef<'p>,
        inputs: &[Option<ValueId>],
        scope: &Scope<'_, 'p>,
    ) -> Result<Vec<Binding>, ImportError> {
        let Some(&Some(condition)) = inputs.first() else { return Err(node.invalid("input 0 is missing")) };
        let branches = [self.body(node, "then_branch")?, self.body(node, "else_branch")?];
        let prefix = |branch: usize| format!("{}/{}/", node.name, ["then", "else"][branch]);
        if let Some(known) = known_scalar(b, condition) {
            let taken = (known == 0) as usize;
            return self.import_bindings(b, branches[taken], prefix(taken), vec![], scope);
        }
        let import = |b: &mut FunctionBuilder<'_>, i: usize| -> Result<(BlockId, Vec<Binding>), ImportError> {
            let block = b.new_block();
            let results = b.in_block(block, |b| self.import_bindings(b, branches[i], prefix(i), vec![], scope));
            results.map(|results| {
                b.set_block_results(block, results.iter().flat_map(Binding::values).collect());
                (block, results)
            })
        };
        let sides = [import(b, 0), import(b, 1)];
        let (regions, results) = match sides {
            [Ok((then, results)), Ok((other, others))] => {
                if results.len() != others.len() || !results.iter().zip(&others).all(|(a, b)| a.is_like(b)) {
                    let why = "the branches give sequences of different lengths, optionals that are there in one only, or \
                               different types, and the condition is not known at compile time";
                    return Err(node.unsupported(why));
                }
                self.equal_ranks(b, node, [then, other])?;
                ([then, other], results)
            }
            [Ok((then, results)), Err(e)] => ([then, trap(b, then, e)?], results),
            [Err(e), Ok((other, results))] => ([trap(b, other, e)?, other], results),
            [Err(e), Err(_)] => return Err(e),
        };
        let symbol = |i: usize| Name::new(&format!("{}_if{}_{i}", b.function.name, b.function.values.len()));
        let op = If::of_regions(&b.function, regions, symbol).map_err(|e| node.refused(e))?;
        b.set_source(Some(node.name));
        let made =
            b.add_multi(OpRef::new(op), vec![Some(condition)], regions.to_vec()).map_err(|e| node.refused(e.why))?;
        let mut made = made.into_iter();
        let rebuilt = results.iter().map(|r| r.with_values(&mut made)).collect::<Option<Vec<_>>>();
        rebuilt.ok_or_else(|| node.invalid("its branches give fewer values than they say"))
    }

    /// Where the branches give one element each, in different ranks, the lesser one gets the shape of the other.
    /// Paddle's exporter declares a scalar, and one branch gives `[1]`.
    fn equal_ranks(
        &self,
        b: &mut FunctionBuilder<'_>,
        node: &NodeRef<'p>,
        branches: [BlockId; 2],
    ) -> Result<(), ImportError> {
        for i in 0..b.function.blocks[branches[0]].results.len() {
            let values = branches.map(|block| b.function.blocks[block].results[i]);
            let [a, c] = values.map(|v| b.ty(v).clone());
            let single = |t: &TensorType| t.shape.iter().all(|d| d.is(1));
            if a.rank() == c.rank() || a.dtype != c.dtype || !single(&a) || !single(&c) {
                continue;
            }
            let (lesser, shape) = if a.rank() < c.rank() { (0, c.shape) } else { (1, a.shape) };
            b.set_source(Some(node.name));
            let reshape = Reshape::to(shape.to_vec());
            let made = b.in_block(branches[lesser], |b| b.add(reshape, &[values[lesser]]));
            let mut results = b.function.blocks[branches[lesser]].results.clone();
            results[i] = made.map_err(|e| node.refused(e.why))?;
            b.set_block_results(branches[lesser], results);
        }
        Ok(())
    }
}
