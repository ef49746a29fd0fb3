//! Rules of graph functions.

use super::VerifyError;
use crate::graph::{BlockId, Function, Module, Node, NodeId, TensorType, ValueDef, ValueId};
use crate::int::{Bounds, Int, simplify};
use crate::ops::control::{Call, CallTensor, If, Loop};
use crate::ops::function_values::{Apply, FunctionValue};
use crate::ops::{InferContext, OpRef};
use crate::tir::TensorFunction;
use rustc_hash::FxHashSet;

struct Verifier<'m> {
    module: &'m Module,
    f: &'m Function,
    /// Values defined so far in the blocks that enclose the current place.
    visible: FxHashSet<ValueId>,
    seen_nodes: FxHashSet<NodeId>,
    seen_blocks: FxHashSet<BlockId>,
    errors: &'m mut Vec<VerifyError>,
}

pub(super) fn verify(module: &Module, f: &Function, errors: &mut Vec<VerifyError>) {
    let mut v = Verifier {
        module,
        f,
        visible: FxHashSet::default(),
        seen_nodes: FxHashSet::default(),
        seen_blocks: FxHashSet::default(),
        errors,
    };
    v.block(f.body, None);
    v.signature();
}

/// Equal dtypes, and dimensions that simplify to the same.
fn same_type(a: &TensorType, b: &TensorType) -> bool {
    if let (Some(a), Some(b)) = (&a.signature, &b.signature) {
        let all =
            |a: &[TensorType], b: &[TensorType]| a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same_type(a, b));
        return all(&a.params, &b.params) && all(&a.results, &b.results);
    }
    if a.is_function() != b.is_function() {
        return false;
    }
    let none = Bounds::new();
    let same = |(x, y): (&Int, &Int)| x == y || simplify(x, &none) == simplify(y, &none);
    a.dtype == b.dtype && a.rank() == b.rank() && a.shape.iter().zip(&b.shape).all(same)
}

/// True for ops that hand function values on, or apply them.
fn takes_functions(op: &OpRef) -> bool {
    op.is::<Call>() || op.is::<FunctionValue>() || op.is::<Apply>() || op.is::<Loop>()
}

fn show(t: &TensorType) -> String {
    format!("{t:?}")
}

impl Verifier<'_> {
    fn error(&mut self, node: Option<NodeId>, message: impl Into<String>) {
        let place = node.map(|n| {
            let node = &self.f.nodes[n];
            format!("{} `{}`", node.op.name(), node.name)
        });
        self.errors.push(VerifyError { function: self.f.name, place, message: message.into() });
    }
    /// A value for messages: its name, else where it comes from.
    fn value(&self, v: ValueId) -> String {
        self.f.describe_value(v)
    }
    fn signature(&mut self) {
        let f = self.f;
        if f.result_names.len() != f.results().len() {
            self.error(None, format!("{} result names for {} results", f.result_names.len(), f.results().len()));
        }
        if f.result_types.len() != f.results().len() {
            self.error(None, format!("{} result types for {} results", f.result_types.len(), f.results().len()));
        }
        for (i, (&v, declared)) in f.results().iter().zip(&f.result_types).enumerate() {
            if let Some(value) = f.values.get(v)
                && !same_type(&value.ty, declared)
            {
                self.error(None, format!("result {i} is {}, declared as {}", show(&value.ty), show(declared)));
            }
        }
    }
    fn block(&mut self, b: BlockId, owner: Option<NodeId>) {
        let f = self.f;
        let Some(block) = f.blocks.get(b) else { return self.error(owner, "a block is not in the function") };
        if !self.seen_blocks.insert(b) {
            return self.error(owner, "a block has two owners");
        }
        if block.owner != owner {
            self.error(owner, "a block does not know its owner");
        }
        let mut defined = Vec::new();
        for (i, &v) in block.args.iter().enumerate() {
            self.define(owner, v, ValueDef::Arg(b, i), &mut defined);
        }
        for &n in &block.nodes {
            let Some(node) = f.nodes.get(n) else {
                self.error(owner, "a block holds a node that is not in the function");
                continue;
            };
            if !self.seen_nodes.insert(n) {
                self.error(Some(n), "the node stands in two places");
                continue;
            }
            if node.block != Some(b) {
                self.error(Some(n), "the node does not know its block");
            }
            self.node(n, node);
            for (i, &v) in node.outputs.iter().enumerate() {
                self.define(Some(n), v, ValueDef::Result(n, i), &mut defined);
            }
        }
        for &v in &block.results {
            if !self.visible.contains(&v) {
                let name = self.value(v);
                self.error(owner, format!("the block yields {name}, which is not defined there"));
            }
        }
        for v in defined {
            self.visible.remove(&v);
        }
    }
    fn define(&mut self, node: Option<NodeId>, v: ValueId, def: ValueDef, defined: &mut Vec<ValueId>) {
        let Some(value) = self.f.values.get(v) else { return self.error(node, "a value is not in the function") };
        let name = self.value(v);
        if value.def != def {
            self.error(node, format!("{name} stands in a place that it does not know of"));
        }
        if !value.ty.is_sane() {
            self.error(node, format!("{name} has the impossible type {}", show(&value.ty)));
        }
        if self.visible.insert(v) {
            defined.push(v);
        } else {
            self.error(node, format!("{name} is defined twice"));
        }
    }
    fn node(&mut self, n: NodeId, node: &Node) {
        let mut usable = true;
        for (i, v) in node.inputs.iter().enumerate() {
            if let Some(v) = *v
                && !self.visible.contains(&v)
            {
                usable = false;
                let name = self.value(v);
                self.error(Some(n), format!("operand {i} ({name}) is not defined before the node"));
            }
        }
        let (low, high) = node.op.arity();
        if node.inputs.len() < low || node.inputs.len() > high {
            usable = false;
            self.error(Some(n), format!("{} operands; the op takes {low} to {high}", node.inputs.len()));
        }
        if node.op.is::<If>() || node.op.is_scope() {
            let takes = |r: &BlockId| self.f.blocks.get(*r).is_some_and(|b| !b.args.is_empty());
            if node.regions.iter().any(takes) {
                self.error(Some(n), "its regions take no arguments");
            }
        }
        if !takes_functions(&node.op)
            && let Some(v) =
                node.inputs.iter().flatten().find(|&&v| self.f.values.get(v).is_some_and(|v| v.ty.is_function()))
        {
            usable = false;
            let name = self.value(*v);
            self.error(Some(n), format!("operand {name} is a function value, and the op takes none"));
        }
        let before = self.errors.len();
        for &r in &node.regions {
            self.block(r, Some(n));
        }
        usable &= self.errors.len() == before;
        let sane = |v: &Option<ValueId>| v.is_none_or(|v| self.f.values.get(v).is_some_and(|v| v.ty.is_sane()));
        if usable && node.inputs.iter().all(sane) && node.outputs.iter().all(|&v| sane(&Some(v))) {
            self.types(n, node);
        }
    }
    /// Result types against inference, operand types against the callee.
    fn types(&mut self, n: NodeId, node: &Node) {
        let f = self.f;
        let cx = InferContext::new(self.module, f, &node.inputs, &node.regions);
        match node.op.infer(&cx) {
            Err(message) => self.error(Some(n), message),
            Ok(types) if types.len() != node.outputs.len() => {
                self.error(Some(n), format!("{} results; the op has {}", node.outputs.len(), types.len()));
            }
            Ok(types) => {
                for (i, (inferred, &v)) in types.iter().zip(&node.outputs).enumerate() {
                    if !same_type(inferred, f.ty(v)) {
                        let (got, want) = (show(f.ty(v)), show(inferred));
                        self.error(Some(n), format!("result {i} is {got}, the op infers {want}"));
                    }
                }
            }
        }
        if let Some(call) = node.op.downcast::<CallTensor>()
            && let Some(callee) = self.module.tensor_functions.get(&call.callee)
        {
            let given = node.inputs.iter().map(|v| v.map_or(&[][..], |v| f.ty(v).shape.as_slice()));
            let known = call.unify(callee, callee.inputs().zip(given));
            let of_caller = |mut t: TensorType| {
                t.shape.iter_mut().for_each(|d| *d = d.replace(&mut |v| known.get(&v).cloned()));
                t
            };
            let want: Vec<Option<TensorType>> =
                callee.inputs().map(|b| source_type(callee, b).map(of_caller)).collect();
            for (i, (v, want)) in node.inputs.iter().zip(want).enumerate() {
                let (Some(v), Some(want)) = (*v, want) else { continue };
                if !same_type(f.ty(v), &want) {
                    let got = show(f.ty(v));
                    self.error(Some(n), format!("operand {i} is {got}, @{} reads {}", call.callee, show(&want)));
                }
            }
        }
    }
}

/// The type that a caller passes for a read parameter: the type that its packer reads, if it has one.
fn source_type(f: &TensorFunction, b: crate::tir::BufferId) -> Option<TensorType> {
    match f.prepacks.iter().find(|p| p.buffer == b) {
        Some(p) => source_type(&p.packer, p.packer.inputs().next()?),
        None => f.buffers.get(b).map(|buffer| TensorType::new(buffer.dtype, f.declared_shape(b).to_vec())),
    }
}
