//! lift-lambdas: closures become graph functions; captured values become their first parameters.
//!
//! ```text
//! %f = lambda : function(f32[4]) -> f32[4] (%a: f32[4]) {     %f = function @main_lambda_0 %k
//!   %0 = mul %a, %k                                     =>
//!   yield %0                                                  graph @main_lambda_0(%k: f32[4], %a: f32[4]) -> f32[4] {
//! }                                                             %0 = mul %k, %a; return %0 }
//! ```
//!
//! Constants are not captured: the function reads them itself.

use super::{Pass, PassContext, PassError};
use crate::arena::Id;
use crate::attr_struct;
use crate::graph::{BlockId, CopyNodes, Function, Module, Node, NodeId, ValueDef, ValueId};
use crate::name::Name;
use crate::ops::OpRef;
use crate::ops::control::Const;
use crate::ops::function_values::{FunctionValue, Lambda};
use rustc_hash::FxHashMap;

attr_struct! {
    /// Makes graph functions of closures.
    pub struct LiftLambdas("lift-lambdas") {}
}

impl Pass for LiftLambdas {
    fn opt_level(&self) -> u8 {
        0
    }
    fn run(&self, module: &mut Module, cx: &mut PassContext) -> Result<bool, PassError> {
        let mut changed = false;
        let mut at = 0;
        // Functions that are made here are looked at too: closures may stand in closures.
        while let Some((&name, f)) = module.functions.get_index(at) {
            at += 1;
            if f.primitive || !f.walk().iter().any(|&n| f.nodes[n].op.is::<Lambda>()) {
                continue;
            }
            let mut f = f.clone();
            while let Some(n) = f.walk().into_iter().find(|&n| f.nodes[n].op.is::<Lambda>()) {
                let lifted = lift(module, &mut f, n)?;
                let (node, captured) = (f.nodes[n].name, f.nodes[n].inputs.len());
                cx.applied(self, &[node], format!("{node} is @{lifted}, which captures {captured} values"));
            }
            module.functions.insert(name, f);
            changed = true;
        }
        Ok(changed)
    }
}

/// Makes a graph function of the closure `n` of `f`.
fn lift(module: &mut Module, f: &mut Function, n: NodeId) -> Result<Name, PassError> {
    let &[body] = f.nodes[n].regions.as_slice() else {
        return Err(PassError::new("lift-lambdas", format!("`{}` needs one region", f.nodes[n].name)));
    };
    let outside = outside_values(f, body);
    let (constants, captured): (Vec<_>, Vec<_>) = outside.into_iter().partition(|&v| f.def_op::<Const>(v).is_some());
    let name = module.fresh_name(&format!("{}_{}", f.name, f.nodes[n].name));
    let mut g = Function::new(name);
    let mut map: FxHashMap<ValueId, ValueId> = FxHashMap::default();
    let block = g.body;
    for (i, &v) in captured.iter().chain(&f.blocks[body].args).enumerate() {
        let param = g.fresh_value(f.ty(v).clone(), ValueDef::Arg(block, i), f.values[v].name);
        g.blocks[block].args.push(param);
        map.insert(v, param);
    }
    for v in constants {
        let Some(n) = f.def_node(v) else { continue };
        map.insert(v, copy_constant(&f.nodes[n], f, v, &mut g));
    }
    let mut copy = CopyNodes::new(f, map);
    copy.nodes(body, &mut g, block);
    g.blocks[block].results = f.blocks[body].results.iter().map(|v| copy.map[v]).collect();
    g.result_types = g.results().iter().map(|&v| g.ty(v).clone()).collect();
    g.result_names = vec![Name::new(""); g.results().len()];
    module.functions.insert(name, g);
    let node = &mut f.nodes[n];
    node.op = OpRef::new(FunctionValue { callee: name });
    node.inputs = captured.into_iter().map(Some).collect();
    node.regions.clear();
    Ok(name)
}

/// The constant that `node` reads, read in `g` too.
fn copy_constant(node: &Node, f: &Function, v: ValueId, g: &mut Function) -> ValueId {
    let (id, block) = (NodeId::from_index(g.nodes.len()), g.body);
    let new = g.fresh_value(f.ty(v).clone(), ValueDef::Result(id, 0), f.values[v].name);
    g.nodes.push(Node { outputs: vec![new], block: Some(block), ..node.clone() });
    g.blocks[block].nodes.push(id);
    new
}

/// The values that the nodes of a block, and those inside them, use and that are defined outside of it, in the order of
/// their uses.
fn outside_values(f: &Function, block: BlockId) -> Vec<ValueId> {
    let mut own: Vec<BlockId> = vec![block];
    let mut at = 0;
    let mut used = vec![];
    while let Some(&b) = own.get(at) {
        at += 1;
        for &n in &f.blocks[b].nodes {
            used.extend(f.nodes[n].inputs.iter().flatten().copied());
            own.extend(&f.nodes[n].regions);
        }
        used.extend(&f.blocks[b].results);
    }
    let inside = |v: ValueId| match f.values[v].def {
        ValueDef::Arg(b, _) => own.contains(&b),
        ValueDef::Result(n, _) => f.nodes[n].block.is_some_and(|b| own.contains(&b)),
    };
    let outside = used.into_iter().filter(|&v| !inside(v));
    outside.collect::<indexmap::IndexSet<_>>().into_iter().collect()
}
