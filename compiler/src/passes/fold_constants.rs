//! fold-constants: computes nodes at compile time if they depend on constants only.
//!
//! ```text
//! %c = const @c                                %y = const @y      (c + c, named after the node)
//! %y = add %c, %c                     =>
//! %s = shape %x  : i64[2]                      %s = const @s = [2, 3]
//! if (const true) { A } else { B }             A
//! ```
//!
//! Weights that an op decodes (4 bits with a scale a block) stay packed where a product reads them.
//!
//! Shape queries of static shapes fold by shape inference. A result above 1 MiB is folded only if it is at most 64
//! times as large as its operands. Its data are then computed on demand, so that host memory holds either the operands
//! or the result. Stateful ops never fold.

use super::rewriter::Rewriter;
use super::{FunctionPass, FuseMode, GraphFunctions, PassContext, PassError};
use crate::arena::Id;
use crate::attr_struct;
use crate::dtype::DType;
use crate::fault::Fault;
use crate::graph::{Constant, Module, NodeId, TensorType, ValueId};
use crate::int::const_dims;
use crate::interpreter::eval_node;
use crate::ops::Precision;
use crate::ops::control::Const;
use crate::ops::{OpRef, OpResult, const_value, int_value};
use crate::tensor::{ConstData, DataSource, Tensor};
use bytes::Bytes;
use std::sync::Arc;

/// Bytes of wide elements for each byte of their scales, at least, where they stay packed.
const MOST_BY_SCALES: usize = 8;

attr_struct! {
    /// Computes constants at compile time.
    pub struct FoldConstants("fold-constants") {
        /// Results up to this many bytes fold whatever their operands; larger ones are computed on demand.
        pub small_bytes: usize = 1 << 20,
        /// A larger result may be this many times its operands.
        pub max_growth: usize = 64,
    }
}

impl FunctionPass for FoldConstants {
    type Of = GraphFunctions;
    fn opt_level(&self) -> u8 {
        2
    }
    fn run_on(&self, r: &mut Rewriter<'_>, cx: &mut PassContext) -> Result<(), PassError> {
        for n in r.f.walk() {
            if r.is_dead(n) {
                continue;
            }
            r.normalize(n);
            self.visit(r, n, cx);
        }
        Ok(())
    }
}

/// Why a node did not fold, where that is worth a remark.
enum Skip {
    Quiet,
    Because(String),
}

impl FoldConstants {
    fn visit(&self, r: &mut Rewriter<'_>, n: NodeId, cx: &mut PassContext) {
        let node = &r.f.nodes[n];
        let name = node.name;
        if node.op.is::<Const>() || node.outputs.iter().all(|&v| r.num_uses(v) == 0) {
            return;
        }
        if !node.regions.is_empty() {
            self.fold_region(r, n, cx);
            return;
        }
        match self.fold(r, n, cx.fuse == FuseMode::Full) {
            Ok(constants) => {
                let outputs = r.f.nodes[n].outputs.clone();
                let makers = r.f.nodes[n].inputs.iter().flatten().filter_map(|&v| r.f.def_node(v));
                let origins = makers.fold(r.f.nodes[n].origins.clone(), |o, d| o.union(&r.f.nodes[d].origins));
                for (old, c) in outputs.into_iter().zip(constants) {
                    let base = r.f.values[old].name.unwrap_or(name);
                    let new = r.constant_before(n, base.as_str(), c, origins.clone());
                    r.replace(old, new);
                }
                let node = &r.f.nodes[n];
                let data = node.inputs.first().copied().flatten();
                let relayout = data.and_then(|v| node.op.moves_axes(&r.f.ty(v).shape));
                cx.folded_layouts += usize::from(relayout.is_some());
                r.erase(n);
                cx.applied(self, &[name], format!("{name} is computed at compile time"));
            }
            Err(Skip::Because(why)) => cx.missed(self, &[name], format!("{name} is not folded: {why}")),
            Err(Skip::Quiet) => {}
        }
    }

    /// `packed`: kernels decode packed operands of products, which fusion joins with what makes them.
    fn fold(&self, r: &Rewriter<'_>, n: NodeId, packed: bool) -> Result<Vec<Constant>, Skip> {
        let node = &r.f.nodes[n];
        if node.op.effects().stateful || !node.regions.is_empty() || node.op.callee().is_some() {
            return Err(Skip::Quiet);
        }
        if let Some(c) = known_integers(r, n) {
            return Ok(vec![c]);
        }
        if packed && widens(r, n) && node.outputs.iter().all(|&v| meets_product(r, &r.f.uses(), v, MOST_STEPS)) {
            return Err(Skip::Because("the product that reads it decodes it".into()));
        }
        let inputs: Option<Vec<Option<Constant>>> = node
            .inputs
            .iter()
            .map(|v| match v {
                None => Some(None),
                Some(v) => r.f.def_op::<Const>(*v).and_then(|c| r.module.constants.get(&c.1.name)).cloned().map(Some),
            })
            .collect();
        let inputs = inputs.ok_or(Skip::Quiet)?;
        let sizes: Option<Vec<usize>> = node.outputs.iter().map(|&v| r.f.ty(v).bytes()).collect();
        let out_bytes: usize = sizes.ok_or(Skip::Quiet)?.iter().sum();
        let in_bytes: usize = inputs.iter().flatten().map(Constant::byte_len).sum();
        if out_bytes <= self.small_bytes {
            let tensors = evaluate(&node.op, &inputs).map_err(|e| Skip::Because(e.message))?;
            return Ok(tensors.iter().map(Constant::from_tensor).collect());
        }
        if out_bytes > in_bytes.saturating_mul(self.max_growth) {
            let why =
                format!("it would make {out_bytes} bytes out of {in_bytes}, the limit is {} times", self.max_growth);
            return Err(Skip::Because(why));
        }
        let source = |result| Folded { op: node.op.clone(), inputs: inputs.clone(), result };
        let lazy = |(i, v): (usize, &crate::graph::ValueId)| {
            let ty = r.f.ty(*v);
            let data = ConstData::Lazy(Arc::new(source(i)));
            Some(Constant { dtype: ty.dtype, shape: const_dims(&ty.shape)?, data })
        };
        node.outputs.iter().enumerate().map(lazy).collect::<Option<Vec<_>>>().ok_or(Skip::Quiet)
    }

    /// `if (const c) { A } else { B }` is the branch that `c` takes; a scope without operands stays.
    fn fold_region(&self, r: &mut Rewriter<'_>, n: NodeId, cx: &mut PassContext) {
        let node = &r.f.nodes[n];
        let name = node.name;
        let known = |v: &Option<ValueId>| v.and_then(|v| const_value(r.module, &r.f, v));
        let operands: Vec<_> = node.inputs.iter().map(known).collect();
        let taken = node.op.region_taken(&operands).filter(|_| !operands.is_empty());
        if let Some(taken) = taken {
            r.splice_taken(n, taken);
            cx.applied(self, &[name], format!("{name} always takes its region {taken}: only that stays"));
        }
    }
}

/// Whether the node makes wide elements of packed ones: of some bits, or of bytes.
fn widens(r: &Rewriter<'_>, n: NodeId) -> bool {
    let node = &r.f.nodes[n];
    let data = node.inputs.first().copied().flatten().map(|v| r.f.ty(v)).filter(|t| t.rank() > 1 && t.dtype.is_int());
    let sizes = data.and_then(TensorType::bytes).zip(node.outputs.first().and_then(|&o| r.f.ty(o).bytes()));
    node.op.decodes().is_some() && sizes.is_some_and(|(packed, wide)| wide >= 2 * packed)
}

/// Nodes from a decoding to the product that reads it, at most, and of constants on the way to one of them.
const MOST_STEPS: usize = 8;

/// Whether the value becomes an operand of one product alone, by scales, offsets and moved axes at most, and few of
/// these: its kernel decodes what it reads.
fn meets_product(r: &Rewriter<'_>, uses: &[Vec<(NodeId, usize)>], v: ValueId, steps: usize) -> bool {
    // A rewrite leaves nodes behind that nobody reads.
    let mut read = uses[v.index()].iter().filter(|(n, _)| r.f.nodes[*n].outputs.iter().any(|o| r.num_uses(*o) > 0));
    let (Some(&(user, _)), None) = (read.next(), read.next()) else { return false };
    let node = &r.f.nodes[user];
    let product = node.op.precision() == Precision::Always;
    let moved = node.op.moves_axes(&r.f.ty(v).shape).is_some() || node.op.is_view();
    // A scale for each element would be larger than what it saves.
    let few =
        |o: ValueId| r.f.ty(o).bytes().zip(r.f.ty(v).bytes()).is_some_and(|(own, all)| own * MOST_BY_SCALES <= all);
    let beside = |o: ValueId| o == v || (few(o) && is_known(r, o, MOST_STEPS));
    let scaled = node.op.broadcasts() && node.inputs.iter().flatten().all(|o| beside(*o));
    let kept = |o: &ValueId| r.f.ty(*o).numel() == r.f.ty(v).numel() && meets_product(r, uses, *o, steps - 1);
    product || (steps > 0 && (moved || scaled || node.op.decodes().is_some()) && node.outputs.iter().all(kept))
}

/// Whether the value depends on constants alone, by so many steps at most.
fn is_known(r: &Rewriter<'_>, v: ValueId, steps: usize) -> bool {
    let maker = r.f.def_node(v).map(|n| &r.f.nodes[n]);
    let from_known = |inputs: &[Option<ValueId>]| inputs.iter().flatten().all(|o| is_known(r, *o, steps - 1));
    maker.is_some_and(|m| m.op.is::<Const>() || (steps > 0 && from_known(&m.inputs)))
}

/// The result of a node whose integer elements inference knows as constants.
fn known_integers(r: &Rewriter<'_>, n: NodeId) -> Option<Constant> {
    let [v] = r.f.nodes[n].outputs[..] else { return None };
    let ty = r.f.ty(v);
    let shape = const_dims(&ty.shape)?;
    if !ty.dtype.is_int() && ty.dtype != DType::Bool {
        return None;
    }
    let values: Option<Vec<i64>> = int_value(r.module, &r.f, v, 0)?.iter().map(|d| d.as_const()).collect();
    let values = values.filter(|v| v.len() == shape.iter().product::<usize>())?;
    Some(Constant::from_tensor(&Tensor::from_i64(ty.dtype, shape, &values)))
}

fn evaluate(op: &OpRef, inputs: &[Option<Constant>]) -> OpResult<Vec<Tensor>> {
    let inputs = inputs.iter().map(|c| c.as_ref().map(Constant::load).transpose()).collect::<Result<Vec<_>, _>>()?;
    eval_node(op, &inputs, &Module::new("none"))
}

/// A result that is computed each time it is read.
struct Folded {
    op: OpRef,
    inputs: Vec<Option<Constant>>,
    result: usize,
}
impl DataSource for Folded {
    fn read(&self) -> Result<Bytes, Fault> {
        let results = evaluate(&self.op, &self.inputs)?;
        let t = results.into_iter().nth(self.result).ok_or("the op has fewer results")?;
        Ok(t.bytes().clone())
    }
}

/// The first result of `op` on constants, of the given type: at once when it is small, else on demand, and so for
/// operands whose data cannot be read: who wants the result is told.
///
/// # Errors
/// The op refuses its operands.
pub(super) fn folded_constant(
    op: OpRef,
    inputs: Vec<Option<Constant>>,
    dtype: DType,
    shape: Vec<usize>,
) -> Result<Constant, String> {
    let small = shape.iter().product::<usize>() * dtype.size() <= 1 << 20;
    if small && inputs.iter().flatten().all(|c| c.load().is_ok()) {
        let results = evaluate(&op, &inputs)?;
        return results.first().map(Constant::from_tensor).ok_or_else(|| "the op has no result".into());
    }
    Ok(Constant { dtype, shape, data: ConstData::Lazy(Arc::new(Folded { op, inputs, result: 0 })) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::passes::run_pass;
    use crate::profile::DeviceProfile;
    use crate::text::parse_module;

    fn fold(text: &str, pass: &FoldConstants) -> (Module, PassContext) {
        let mut m = parse_module(text).unwrap_or_else(|e| panic!("{e}"));
        let mut cx = PassContext::default();
        run_pass(pass, &mut m, &mut cx).unwrap();
        (m, cx)
    }
    fn data(m: &Module) -> Vec<f32> {
        let f = m.main();
        let (_, c) = f.def_op::<Const>(f.results()[0]).expect("a constant");
        m.constants[&c.name].load().unwrap().to_f32_vec()
    }

    const SUM: &str = "const @c : f32[2] = [1.0, 2.0]\ngraph @main() -> (y: f32[2]) {\n  %c = const @c : f32[2]\n  \
                       %0 = add %c, %c : f32[2]\n  %1 = mul %0, %c : f32[2]\n  return %1\n}\n";

    #[test]
    fn chains_fold_eagerly_and_on_demand() {
        let (m, _) = fold(SUM, &FoldConstants::default());
        assert_eq!(data(&m), [2.0, 8.0]);
        let (m, _) = fold(SUM, &FoldConstants { small_bytes: 0, ..Default::default() });
        assert_eq!(data(&m), [2.0, 8.0]);
        assert!(m.constants.values().any(|c| matches!(c.data, ConstData::Lazy(_))));
    }

    #[test]
    fn growth_is_limited_with_a_remark() {
        let (m, cx) = fold(SUM, &FoldConstants { small_bytes: 0, max_growth: 0 });
        assert_eq!(m.main().live_nodes(), 3);
        assert!(cx.remarks[0].message.contains("8 bytes out of 16"), "{:?}", cx.remarks);
    }

    #[test]
    fn shapes_of_static_values_fold() {
        let text = "graph @main(%x: f32[2,3]) -> (s: i64[2]) {\n  %0 = shape %x : i64[2]\n  return %0\n}\n";
        assert_eq!(data(&fold(text, &FoldConstants::default()).0), [2.0, 3.0]);
    }

    #[test]
    fn weights_of_few_bits_stay_packed_where_one_product_reads_them() {
        let text = |by: &str| {
            format!(
                "const @q : u32[64,8] = splat(7)\nconst @s : f32[64,2] = splat(0.5)\n\
                 graph @main(%x: f32[1,64]) -> (y: f32[1,64]) {{\n  %q = const @q : u32[64,8]\n  \
                 %s = const @s : f32[64,2]\n  %0 = dequantize_blocks %q, %s {{size=64}} : f32[64,64]\n  {by}\n}}\n"
            )
        };
        let product = "%1 = transpose %0 {perm=[1,0]} : f32[64,64]\n  %2 = matmul %x, %1 : f32[1,64]\n  return %2";
        let sum = "%1 = add %x, %0 : f32[64,64]\n  %2 = matmul %x, %1 : f32[1,64]\n  return %2";
        let twice = "%1 = matmul %x, %0 : f32[1,64]\n  %2 = matmul %1, %0 : f32[1,64]\n  return %2";
        let packed = |by: &str, profile: DeviceProfile| {
            let mut m = parse_module(&text(by)).unwrap_or_else(|e| panic!("{e}"));
            run_pass(&FoldConstants::default(), &mut m, &mut PassContext::new(profile)).unwrap();
            m.main().walk().iter().any(|&n| m.main().nodes[n].op.decodes().is_some())
        };
        let device = || DeviceProfile::named("ada").expect("a profile");
        assert!(packed(product, device()) && packed(product, DeviceProfile::processor(2, [6, 16])));
        assert!(!packed(sum, device()) && !packed(twice, device()));
    }

    #[test]
    fn constant_conditions_leave_one_branch() {
        let text = "const @t : bool[] = [false]\ngraph @main(%x: f32[2]) -> (y: f32[2]) {\n  %t = const @t : bool[]\n  \
                    %0 = if %t : f32[2] {\n    %1 = relu %x : f32[2]\n    yield %1\n  } {\n    %2 = exp %x : f32[2]\n    \
                    yield %2\n  }\n  return %0\n}\n";
        let (m, _) = fold(text, &FoldConstants::default());
        let f = m.main();
        let ops: Vec<_> = f.walk().iter().map(|&n| f.nodes[n].op.name()).collect();
        assert_eq!(ops, ["const", "exp"]);
    }
}
