//! A part of a graph as a module of its own: the nodes between some values and others.
//!
//! ```text
//! graph @main(%x, %y) -> (r) {          extract from [%1] to [%2]:
//!   %0 = relu %x
//!   %1 = exp %0                    =>   graph @main(%1, %y) -> (%2) {
//!   %2 = add %1, %y                       %2 = add %1, %y
//!   %3 = neg %2                           return %2
//!   return %3                           }
//! }
//! ```
//!
//! Constants stay constants. An input of the whole that the part reads without passing a cut stays an input. Functions
//! and constants that the part has no use for stay in the module: `remove-unused-functions` removes them.

use super::{BlockId, Function, Module, NodeId, ValueDef, ValueId};
use crate::name::Name;
use crate::ops::control::Const;
use rustc_hash::{FxHashMap, FxHashSet};

/// A part of a module's entry function.
#[derive(Clone, Debug)]
pub struct Extracted {
    /// The part as a module. Its inputs have the names that were asked for, or those of the whole's inputs.
    pub module: Module,
    /// What the inputs are in the whole, in order.
    pub inputs: Vec<ValueId>,
}

/// Why no part can be cut out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExtractError {
    /// A cut has no effect.
    #[error("nothing of the part reads `{0}`")]
    NotRead(Name),
    /// A result would be an input or a constant.
    #[error("`{0}` is not computed in the part")]
    NotComputed(Name),
}

/// The nodes of the entry function that the values `to` need, without those before the values `from`. Both lists have
/// the names that inputs and results of the part get.
///
/// # Errors
/// A value of `from` that nothing in the part reads; one of `to` that no node of the part computes.
pub fn extract(module: &Module, from: &[(Name, ValueId)], to: &[(Name, ValueId)]) -> Result<Extracted, ExtractError> {
    let f = module.main();
    let cut: FxHashSet<ValueId> = from.iter().map(|c| c.1).collect();
    let needed = Needed::of(f, &cut, to.iter().map(|t| t.1));
    if let Some((name, _)) = from.iter().find(|c| !needed.values.contains(&c.1)) {
        return Err(ExtractError::NotRead(*name));
    }
    let computed =
        |v: ValueId| f.def_node(v).is_some_and(|n| needed.nodes.contains(&n) && !f.nodes[n].op.is::<Const>());
    if let Some((name, _)) = to.iter().find(|t| !computed(t.1)) {
        return Err(ExtractError::NotComputed(*name));
    }
    let others = f.params().iter().filter(|p| needed.values.contains(p) && !cut.contains(p));
    let named = |&p: &ValueId| (f.values[p].name.unwrap_or_else(|| Name::new("input")), p);
    let inputs: Vec<(Name, ValueId)> = from.iter().copied().chain(others.map(named)).collect();
    let mut part = module.clone();
    keep_nodes(part.main_mut(), &needed.nodes);
    set_inputs(part.main_mut(), &inputs);
    set_results(part.main_mut(), to);
    Ok(Extracted { module: part, inputs: inputs.into_iter().map(|i| i.1).collect() })
}

/// What a part consists of.
#[derive(Default)]
struct Needed {
    nodes: FxHashSet<NodeId>,
    values: FxHashSet<ValueId>,
}

impl Needed {
    /// Whatever `to` follows from, up to the values `cut`.
    fn of(f: &Function, cut: &FxHashSet<ValueId>, to: impl Iterator<Item = ValueId>) -> Needed {
        let mut needed = Needed::default();
        let mut nodes: Vec<NodeId> = to.filter_map(|v| f.def_node(v)).collect();
        while let Some(n) = nodes.pop() {
            if !needed.nodes.insert(n) {
                continue;
            }
            for v in outer_operands(f, n) {
                needed.values.insert(v);
                nodes.extend(f.def_node(v).filter(|_| !cut.contains(&v)));
            }
        }
        needed
    }
}

/// The values of the body that a node of the body reads, those that its regions read included.
pub fn outer_operands(f: &Function, n: NodeId) -> Vec<ValueId> {
    let mut out: Vec<ValueId> = f.nodes[n].inputs.iter().flatten().copied().collect();
    let mut regions: Vec<BlockId> = f.nodes[n].regions.clone();
    while let Some(region) = regions.pop() {
        out.extend(&f.blocks[region].results);
        for &inner in &f.blocks[region].nodes {
            out.extend(f.nodes[inner].inputs.iter().flatten());
            regions.extend(&f.nodes[inner].regions);
        }
    }
    out.retain(|&v| block_of(f, v) == Some(f.body));
    out
}

/// The block in which a value is defined.
fn block_of(f: &Function, v: ValueId) -> Option<BlockId> {
    match f.values[v].def {
        ValueDef::Result(n, _) => f.nodes[n].block,
        ValueDef::Arg(block, _) => Some(block),
    }
}

fn keep_nodes(f: &mut Function, kept: &FxHashSet<NodeId>) {
    let gone = f.blocks[f.body].nodes.iter().copied().filter(|n| !kept.contains(n)).collect();
    f.remove_nodes(&gone);
}

/// Makes the values the inputs, in order: each gets an argument of its own, which its readers read.
fn set_inputs(f: &mut Function, inputs: &[(Name, ValueId)]) {
    let body = f.body;
    let mut fresh: FxHashMap<ValueId, ValueId> = FxHashMap::default();
    let arg = |f: &mut Function, i: usize, (name, v): (Name, ValueId)| {
        let ty = f.ty(v).clone();
        f.fresh_value(ty, ValueDef::Arg(body, i), Some(name))
    };
    f.blocks[body].args = inputs.iter().enumerate().map(|(i, &input)| arg(f, i, input)).collect();
    fresh.extend(inputs.iter().map(|i| i.1).zip(f.blocks[body].args.iter().copied()));
    f.replace_uses_many(&|v| fresh.get(&v).copied().unwrap_or(v));
}

fn set_results(f: &mut Function, to: &[(Name, ValueId)]) {
    let body = f.body;
    f.blocks[body].results = to.iter().map(|t| t.1).collect();
    f.result_names = to.iter().map(|t| t.0).collect();
    f.result_types = to.iter().map(|t| f.ty(t.1).clone()).collect();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interpreter::Interpreter;
    use crate::tensor::Tensor;
    use crate::text::parse_module;
    use crate::verify::verify_module;

    const TEXT: &str = "const @c : f32[2] = [1.0, 2.0]
const @d : f32[2] = [3.0, 4.0]
graph @main(%x: f32[2], %y: f32[2], %p: bool[1]) -> (r: f32[2]) {
  %c = const @c
  %d = const @d
  %a = add %x, %c : f32[2]
  %b = exp %a : f32[2]
  %s = if %p : f32[2] {
    %t = mul %b, %y : f32[2]
    yield %t
  } {
    yield %d
  }
  %r = neg %s : f32[2]
  return %r
}
";

    fn value(m: &Module, name: &str) -> (Name, ValueId) {
        let f = m.main();
        let name = Name::new(name);
        let node = f.blocks[f.body].nodes.iter().find(|&&n| f.nodes[n].name == name);
        let param = f.params().iter().copied().find(|&p| f.values[p].name == Some(name));
        (name, node.map(|&n| f.nodes[n].outputs[0]).or(param).expect("a value"))
    }

    #[test]
    fn a_part_computes_what_the_whole_computes() {
        let whole = parse_module(TEXT).expect("text");
        let f = whole.main();
        let names: Vec<String> = f.blocks[f.body].nodes.iter().map(|&n| f.nodes[n].name.to_string()).collect();
        let at = |op: &str| names.iter().find(|n| n.starts_with(op)).expect("a node").as_str();
        let part = extract(&whole, &[value(&whole, at("exp"))], &[value(&whole, at("if"))]).expect("a part");
        verify_module(&part.module).expect("a valid module");
        assert_eq!(part.inputs.len(), 3, "the cut, and what the branch and the condition read");
        let t = |v: [f32; 2]| Tensor::from_vec(vec![2], v.to_vec());
        let yes = Tensor::from_f64(crate::dtype::DType::Bool, vec![1], [1.0]);
        let run = |m: &Module, inputs: &[Tensor]| Interpreter::new(m).run(m.entry, inputs).expect("runs");
        let all = run(&whole, &[t([0.0, 1.0]), t([2.0, 3.0]), yes.clone()]);
        let cut = t([1f32.exp(), 3f32.exp()]);
        let got = run(&part.module, &[cut, t([2.0, 3.0]), yes]);
        let negated: Vec<f32> = got[0].to_f32_vec().iter().map(|v| -v).collect();
        assert_eq!(negated, all[0].to_f32_vec());
    }

    #[test]
    fn cuts_without_effect_are_refused() {
        let whole = parse_module(TEXT).expect("text");
        let f = whole.main();
        let name = |op: &str| {
            let found = f.blocks[f.body].nodes.iter().find(|&&n| f.nodes[n].op.name() == op);
            value(&whole, f.nodes[*found.expect("a node")].name.as_str())
        };
        let refused = extract(&whole, &[name("neg")], &[name("exp")]).expect_err("no part");
        assert_eq!(refused, ExtractError::NotRead(name("neg").0));
        let refused = extract(&whole, &[], &[value(&whole, "x")]).expect_err("no part");
        assert_eq!(refused, ExtractError::NotComputed("x".into()));
    }
}
