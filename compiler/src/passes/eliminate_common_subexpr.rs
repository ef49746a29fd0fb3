//! eliminate-common-subexpr: computes equal values once.
//!
//! ```text
//! %0 = add %x, %c
//! %1 = add %x, %c           =>      %0 = add %x, %c
//! %2 = add %0, %1                   %2 = add %0, %0
//! ```
//!
//! Two nodes are equal if their op, attributes and operands are equal (for commutative ops in any order). Constants are
//! also equal if their data are (up to 4 KiB); calls of tensor functions are equal if the functions are, whatever their
//! names. A value of an enclosing block may replace one of a region, never the other way round. Stateful nodes and
//! nodes with regions are never merged.

use super::rewriter::Rewriter;
use super::{FunctionPass, GraphFunctions, PassContext, PassError};
use crate::attr_struct;
use crate::dtype::DType;
use crate::graph::{BlockId, Constant, NodeId, ValueId};
use crate::name::Name;
use crate::ops::control::{CallTensor, Const};
use crate::tensor::ConstData;
use crate::tir::TensorFunction;
use bytes::Bytes;
use rustc_hash::FxHashMap;

attr_struct! {
    /// Merges equal nodes.
    pub struct EliminateCommonSubexpr("eliminate-common-subexpr") {}
}

impl FunctionPass for EliminateCommonSubexpr {
    type Of = GraphFunctions;
    fn opt_level(&self) -> u8 {
        3
    }
    fn run_on(&self, r: &mut Rewriter<'_>, cx: &mut PassContext) -> Result<(), PassError> {
        let mut search = Search { pass: self, seen: vec![], constants: FxHashMap::default() };
        search.block(r, r.f.body, cx);
        Ok(())
    }
}

type Key = (&'static str, Vec<Option<ValueId>>);
type DataKey = (DType, Vec<usize>, Data);

/// What two constants with the same data have in common.
#[derive(PartialEq, Eq, Hash)]
enum Data {
    Bytes(Bytes),
    /// The identity of their source.
    Of(String),
}

struct Search<'a> {
    pass: &'a EliminateCommonSubexpr,
    /// One table for each enclosing block, outermost first.
    seen: Vec<FxHashMap<Key, Vec<NodeId>>>,
    constants: FxHashMap<DataKey, Name>,
}

impl Search<'_> {
    fn block(&mut self, r: &mut Rewriter<'_>, block: BlockId, cx: &mut PassContext) {
        self.seen.push(FxHashMap::default());
        for n in r.f.blocks[block].nodes.clone() {
            r.normalize(n);
            for region in r.f.nodes[n].regions.clone() {
                self.block(r, region, cx);
            }
            if mergeable(r, n) {
                self.visit(r, n, cx);
            }
        }
        self.seen.pop();
    }
    fn visit(&mut self, r: &mut Rewriter<'_>, n: NodeId, cx: &mut PassContext) {
        self.unify_constant(r, n);
        let node = &r.f.nodes[n];
        let mut operands = node.inputs.clone();
        if node.op.commutes() {
            operands.sort_unstable();
        }
        let key: Key = (node.op.name(), operands);
        let equal = |m: &&NodeId| r.f.nodes[**m].op == node.op || same_kernel(r, **m, n);
        let found = self.seen.iter().find_map(|table| table.get(&key)?.iter().find(equal).copied());
        let Some(first) = found else {
            self.seen.last_mut().expect("inside a block").entry(key).or_default().push(n);
            return;
        };
        let (name, kept) = (node.name, r.f.nodes[first].name);
        let (origins, outputs) = (node.origins.clone(), node.outputs.clone());
        if !node.op.is::<Const>() {
            cx.applied(self.pass, &[name, kept], format!("{name} equals {kept}"));
        }
        r.absorb_origins(first, &origins);
        for (old, new) in outputs.into_iter().zip(r.f.nodes[first].outputs.clone()) {
            r.replace(old, new);
        }
        r.erase(n);
    }
    /// Lets a constant stand for all with the same data: small ones, and those of one source.
    fn unify_constant(&mut self, r: &mut Rewriter<'_>, n: NodeId) {
        let Some(name) = r.f.nodes[n].op.downcast::<Const>().map(|c| c.name) else { return };
        let Some(Constant { dtype, shape, data }) = r.module.constants.get(&name) else { return };
        let data = match data {
            ConstData::Inline(bytes) if bytes.len() <= 4096 => Data::Bytes(bytes.clone()),
            ConstData::Inline(_) => return,
            ConstData::Lazy(source) => match source.identity() {
                Some(identity) => Data::Of(identity),
                None => return,
            },
        };
        let first = *self.constants.entry((*dtype, shape.clone(), data)).or_insert(name);
        if first != name {
            r.update(n, Const { name: first }.into(), vec![]);
        }
    }
}

/// True for calls of tensor functions that compute the same, with results of the same types.
fn same_kernel(r: &Rewriter<'_>, a: NodeId, b: NodeId) -> bool {
    let callee = |n: NodeId| {
        let call = r.f.nodes[n].op.downcast::<CallTensor>()?;
        let of = r.module.tensor_functions.get(&call.callee).map(TensorFunction::fingerprint)?;
        Some((of, &call.symbols, &call.sizes))
    };
    let types = |n: NodeId| r.f.nodes[n].outputs.iter().map(|&v| r.f.ty(v));
    callee(a).is_some_and(|found| callee(b) == Some(found)) && types(a).eq(types(b))
}

/// Pure, without regions. A tensor function computes its results and nothing else; a graph function may have effects,
/// so its calls are left alone.
fn mergeable(r: &Rewriter<'_>, n: NodeId) -> bool {
    let node = &r.f.nodes[n];
    let defines = !node.op.defined_symbols().is_empty();
    let calls_graph = node.op.callee().is_some_and(|c| !r.module.tensor_functions.contains_key(&c));
    !node.op.effects().stateful && node.regions.is_empty() && !calls_graph && !defines && !r.is_dead(n)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::passes::Sequential;
    use crate::text::parse_module;

    fn ops(text: &str, setup: impl FnOnce(&mut PassContext)) -> Vec<&'static str> {
        let mut m = parse_module(text).unwrap_or_else(|e| panic!("{e}"));
        let mut cx = PassContext { opt_level: 3, ..PassContext::default() };
        setup(&mut cx);
        Sequential::new(["eliminate-common-subexpr"]).run(&mut m, &mut cx).unwrap();
        let f = m.main();
        f.walk().iter().map(|&n| f.nodes[n].op.name()).collect()
    }

    const TWO_ADDS: &str = "const @c : f32[2] = [1.0, 2.0]\nconst @d : f32[2] = [1.0, 2.0]\n\
        graph @main(%x: f32[2]) -> (y: f32[2]) {\n  %c = const @c : f32[2]\n  %d = const @d : f32[2]\n  \
        %0 = add %x, %c : f32[2]\n  %1 = add %x, %d : f32[2]\n  %2 = add %0, %1 : f32[2]\n  return %2\n}\n";

    #[test]
    fn equal_adds_of_equal_constants_merge_from_level_three_on() {
        assert_eq!(ops(TWO_ADDS, |_| ()), ["const", "add", "add"]);
        assert_eq!(ops(TWO_ADDS, |cx| cx.opt_level = 2).len(), 5);
        assert_eq!(ops(TWO_ADDS, |cx| cx.disabled.push("eliminate-common-subexpr".into())).len(), 5);
    }

    #[test]
    fn operands_of_commutative_ops_may_stand_in_any_order() {
        let text = |op: &str| {
            format!(
                "graph @main(%x: f32[2], %z: f32[2]) -> (y: f32[2]) {{\n  %0 = {op} %x, %z : f32[2]\n  \
                 %1 = {op} %z, %x : f32[2]\n  %2 = div %0, %1 : f32[2]\n  return %2\n}}\n"
            )
        };
        assert_eq!(ops(&text("mul"), |_| ()), ["mul", "div"]);
        assert_eq!(ops(&text("sub"), |_| ()), ["sub", "sub", "div"]);
    }

    #[test]
    fn effects_and_sibling_regions_stay() {
        let text = "graph @main(%x: f32[2], %c: bool[]) -> (y: f32[2]) {\n  \
            %0 = call_host @rand %x {dtypes=[f32], shapes=[[2]]} : f32[2]\n  %1 = call_host @rand %x {dtypes=[f32], shapes=[[2]]} : f32[2]\n  \
            %2 = if %c : f32[2] {\n    %3 = exp %x : f32[2]\n    yield %3\n  } {\n    %4 = exp %x : f32[2]\n    yield %4\n  }\n  \
            %5 = add %0, %1 : f32[2]\n  %6 = add %5, %2 : f32[2]\n  return %6\n}\n";
        assert_eq!(ops(text, |_| ()), ["call_host", "call_host", "if", "exp", "exp", "add", "add"]);
    }
}
