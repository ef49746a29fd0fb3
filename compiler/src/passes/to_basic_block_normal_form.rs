//! to-basic-block-normal-form: moves each binding into the innermost scope that contains all its uses (their lowest
//! common ancestor).
//!
//! ```text
//! %0 = exp %x                              %1 = if %c {
//! %1 = if %c {                               %0 = exp %x
//!   %2 = relu %0                    =>       %2 = relu %0
//!   yield %2                                 yield %2
//! } { yield %x }                           } { yield %x }
//! ```
//!
//! So a branch that is not taken costs nothing, as in TVM's pass of this name. A value that both branches use stays
//! before the `if`. Constants move too. Stateful nodes, nodes that define symbols and unused values stay where they
//! are. Nothing moves into a region that may run more than once: only into regions of `if` and `let`.

use super::{Pass, PassContext, PassError};
use crate::arena::Id;
use crate::attr_struct;
use crate::graph::{BlockId, Function, Module, NodeId};
use crate::name::Name;
use crate::ops::control::{Const, If};
use rustc_hash::{FxHashMap, FxHashSet};

attr_struct! {
    /// Moves bindings into the scopes of their uses.
    pub struct ToBasicBlockNormalForm("to-basic-block-normal-form") {}
}

impl Pass for ToBasicBlockNormalForm {
    fn opt_level(&self) -> u8 {
        0
    }
    fn run(&self, module: &mut Module, cx: &mut PassContext) -> Result<bool, PassError> {
        let stateful = super::eliminate_dead::stateful_functions(module);
        let mut changed = false;
        for f in module.functions.values_mut().filter(|f| !f.primitive) {
            let moves = moves(f, &stateful);
            for m in moves.iter().filter(|m| !f.nodes[m.node].op.is::<Const>()) {
                let owner = f.blocks[m.to].owner.map(|o| f.nodes[o].name);
                let name = f.nodes[m.node].name;
                let place = owner.map_or_else(|| "the body".into(), |o| format!("a region of {o}"));
                cx.applied(self, &[name], format!("{name} moved into {place}, where all its uses are"));
            }
            changed |= !moves.is_empty();
            apply(f, &moves);
        }
        Ok(changed)
    }
}

/// A node that does not live in the lowest common ancestor scope of its uses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Move {
    node: NodeId,
    to: BlockId,
}

/// Checks that a module is in basic block normal form.
///
/// # Errors
/// One sentence for each binding that lives outside of its scope.
pub fn check_basic_block_normal_form(module: &Module) -> Result<(), Vec<String>> {
    let stateful = super::eliminate_dead::stateful_functions(module);
    let mut errors = Vec::new();
    for f in module.functions.values().filter(|f| !f.primitive) {
        for m in moves(f, &stateful) {
            let owner = f.blocks[m.to].owner.map_or("the body", |o| f.nodes[o].name.as_str());
            errors.push(format!("@{}: {} is used only in a region of {owner}", f.name, f.nodes[m.node].name));
        }
    }
    if errors.is_empty() { Ok(()) } else { Err(errors) }
}

/// The tree of blocks: parent and depth.
struct Scopes {
    /// Blocks that are part of the function, outer before inner.
    blocks: Vec<BlockId>,
    parent: Vec<Option<BlockId>>,
    depth: Vec<usize>,
}
impl Scopes {
    fn new(f: &Function) -> Scopes {
        let count = f.blocks.len();
        let mut s = Scopes { blocks: vec![], parent: vec![None; count], depth: vec![0; count] };
        let mut stack = vec![f.body];
        while let Some(b) = stack.pop() {
            s.blocks.push(b);
            for &r in f.blocks[b].nodes.iter().flat_map(|&n| &f.nodes[n].regions) {
                (s.parent[r.index()], s.depth[r.index()]) = (Some(b), s.depth[b.index()] + 1);
                stack.push(r);
            }
        }
        s
    }
    fn common(&self, mut a: BlockId, mut b: BlockId) -> BlockId {
        while a != b {
            let up = if self.depth[a.index()] >= self.depth[b.index()] { &mut a } else { &mut b };
            match self.parent[up.index()] {
                Some(p) => *up = p,
                None => break,
            }
        }
        a
    }
}

/// The moves that bring a function into normal form, in the order of its nodes. One sweep from the last node to the
/// first: the users of a node have found their scope before it.
fn moves(f: &Function, stateful: &FxHashSet<Name>) -> Vec<Move> {
    let scopes = Scopes::new(f);
    let order = f.walk();
    let mut scope_of_uses: Vec<Option<BlockId>> = vec![None; f.values.len()];
    let mut block_of: Vec<Option<BlockId>> = f.nodes.ids().map(|n| f.nodes[n].block).collect();
    let mut out = Vec::new();
    let add = |scope_of_uses: &mut Vec<Option<BlockId>>, v: crate::graph::ValueId, at: BlockId| {
        let slot = &mut scope_of_uses[v.index()];
        *slot = Some(slot.map_or(at, |b| scopes.common(b, at)));
    };
    for &b in &scopes.blocks {
        f.blocks[b].results.iter().for_each(|&v| add(&mut scope_of_uses, v, b));
    }
    // A node stands before the nodes of its regions in `order`, so these come first here; what they use counts.
    for &n in order.iter().rev() {
        let node = &f.nodes[n];
        let Some(own) = node.block else { continue };
        let wanted = node.outputs.iter().filter_map(|v| scope_of_uses[v.index()]).reduce(|a, b| scopes.common(a, b));
        let to = wanted.filter(|&b| b != own && may_move(f, n, stateful) && enters_once(f, &scopes, own, b));
        if let Some(to) = to {
            block_of[n.index()] = Some(to);
            out.push(Move { node: n, to });
        }
        let at = block_of[n.index()].unwrap_or(own);
        node.inputs.iter().flatten().for_each(|&v| add(&mut scope_of_uses, v, at));
    }
    out.reverse();
    out
}

/// Nodes with regions stay: their regions' own bindings would have to move along.
fn may_move(f: &Function, n: NodeId, stateful: &FxHashSet<Name>) -> bool {
    let op = &f.nodes[n].op;
    let calls_effect = op.callee().is_some_and(|c| stateful.contains(&c));
    !op.effects().stateful && !calls_effect && f.nodes[n].regions.is_empty() && op.defined_symbols().is_empty()
}

/// True when every region between `outer` and `inner` runs once at most each time `outer` does.
fn enters_once(f: &Function, scopes: &Scopes, outer: BlockId, mut inner: BlockId) -> bool {
    while inner != outer {
        let once = |o: NodeId| f.nodes[o].op.is::<If>() || f.nodes[o].op.is_scope();
        match (f.blocks[inner].owner, scopes.parent[inner.index()]) {
            (Some(owner), Some(parent)) if once(owner) => inner = parent,
            _ => return false,
        }
    }
    true
}

/// Puts the moved nodes at the beginning of their new blocks, in their old order: what they use is defined before the
/// block's owner, or moves to an enclosing place as well.
fn apply(f: &mut Function, moves: &[Move]) {
    let moved: FxHashSet<NodeId> = moves.iter().map(|m| m.node).collect();
    let mut arrivals: FxHashMap<BlockId, Vec<NodeId>> = FxHashMap::default();
    for m in moves {
        arrivals.entry(m.to).or_default().push(m.node);
        f.nodes[m.node].block = Some(m.to);
    }
    for (b, block) in f.blocks.iter_mut() {
        block.nodes.retain(|n| !moved.contains(n));
        if let Some(mut first) = arrivals.remove(&b) {
            first.append(&mut block.nodes);
            block.nodes = first;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interpreter::run_function;
    use crate::passes::run_pass;
    use crate::tensor::Tensor;
    use crate::text::parse_module;

    const TEXT: &str = "graph @main(%c: bool[], %d: bool[], %x: f32[2]) -> (y: f32[2]) {\n  %0 = exp %x : f32[2]\n  \
        %1 = neg %0 : f32[2]\n  %2 = abs %x : f32[2]\n  %3 = if %c : f32[2] {\n    %4 = if %d : f32[2] {\n      \
        %5 = add %1, %2 : f32[2]\n      yield %5\n    } {\n      yield %0\n    }\n    yield %4\n  } {\n    \
        %6 = relu %2 : f32[2]\n    yield %6\n  }\n  return %3\n}\n";

    #[test]
    fn bindings_move_to_the_lowest_common_ancestor() {
        let mut m = parse_module(TEXT).unwrap_or_else(|e| panic!("{e}"));
        let run = |m: &Module, c: f64, d: f64| {
            let flag = |v: f64| Tensor::from_f64(crate::dtype::DType::Bool, vec![], [v]);
            run_function(m, m.entry, &[flag(c), flag(d), Tensor::from_vec(vec![2], vec![0.5f32, -1.0])]).unwrap()
        };
        let cases = [(0.0, 0.0), (1.0, 0.0), (1.0, 1.0)];
        let want: Vec<_> = cases.iter().map(|&(c, d)| run(&m, c, d)).collect();
        let errors = check_basic_block_normal_form(&m).unwrap_err();
        assert_eq!(
            errors,
            ["@main: exp_0 is used only in a region of if_3", "@main: neg_1 is used only in a region of if_4"]
        );
        assert!(run_pass(&ToBasicBlockNormalForm {}, &mut m, &mut PassContext::default()).unwrap());
        check_basic_block_normal_form(&m).unwrap();
        let got: Vec<_> = cases.iter().map(|&(c, d)| run(&m, c, d)).collect();
        assert_eq!(got, want);
        assert!(!run_pass(&ToBasicBlockNormalForm {}, &mut m, &mut PassContext::default()).unwrap());
    }

    #[test]
    fn effects_stay() {
        let text = "graph @main(%c: bool[], %x: f32[2]) -> (y: f32[2]) {\n  \
            %0 = call_host @rand %x {dtypes=[f32], shapes=[[2]]} : f32[2]\n  %1 = if %c : f32[2] {\n    yield %0\n  } {\n    \
            yield %x\n  }\n  return %1\n}\n";
        let mut m = parse_module(text).unwrap_or_else(|e| panic!("{e}"));
        assert!(check_basic_block_normal_form(&m).is_ok());
        assert!(!run_pass(&ToBasicBlockNormalForm {}, &mut m, &mut PassContext::default()).unwrap());
    }
}
