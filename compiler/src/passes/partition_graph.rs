//! partition-graph: each region of an external target becomes a graph function and a call of the target.
//!
//! ```text
//! %0 = external {target=dnnl} { ... }   =>   %0 = call_host @dnnl_0 %x {target=dnnl, reference=dnnl_0}
//!                                            graph @dnnl_0(%x) primitive { ... }
//! ```
//!
//! Constants that a region reads are bound inside the function. A result that several nodes read is returned once.
//! Composites that no target took are dissolved.

use super::fuse_ops::captures;
use super::scopes::{blocks_of, dissolve};
use super::{Pass, PassContext, PassError};
use crate::arena::Id;
use crate::attr_struct;
use crate::external::Region;
use crate::graph::{CopyNodes, Function, Module, Node, NodeId, ValueDef, ValueId};
use crate::name::Name;
use crate::ops::OpRef;
use crate::ops::control::{CallHost, Const};
use crate::ops::external_scope::{Composite, External};
use rustc_hash::FxHashMap;

attr_struct! {
    /// Makes functions of regions of external targets.
    pub struct PartitionGraph("partition-graph") {}
}

impl Pass for PartitionGraph {
    fn opt_level(&self) -> u8 {
        0
    }
    fn run(&self, module: &mut Module, cx: &mut PassContext) -> Result<bool, PassError> {
        let functions: Vec<Name> = module.functions.values().filter(|f| !f.primitive).map(|f| f.name).collect();
        let mut changed = false;
        let mut numbers: FxHashMap<Name, usize> = FxHashMap::default();
        for name in functions {
            let mut f = std::mem::replace(&mut module.functions[&name], Function::new(name));
            for block in blocks_of(&f) {
                for place in 0..f.blocks[block].nodes.len() {
                    let n = f.blocks[block].nodes[place];
                    let Some(external) = f.nodes[n].op.downcast::<External>().cloned() else { continue };
                    let number = numbers.entry(external.target).or_default();
                    let callee = module.fresh_name(&format!("{}_{number}", external.target));
                    *number += 1;
                    f.blocks[block].nodes[place] = outline(module, &mut f, n, &external, callee);
                    changed = true;
                    let summary = Region::of(module, callee).map(|r| r.summary()).unwrap_or_default();
                    cx.applied(self, &[callee], format!("{callee} is a region of {}: {summary}", external.target));
                }
            }
            changed |= dissolve(&mut f, |node| node.op.is::<Composite>());
            module.functions.insert(name, f);
        }
        Ok(changed)
    }
}

/// Adds the function of a region; returns the call of it, a node that is in no block's list yet.
fn outline(module: &mut Module, f: &mut Function, n: NodeId, external: &External, callee: Name) -> NodeId {
    let region = f.nodes[n].regions[0];
    let uses = f.count_uses();
    let mut g = Function::new(callee);
    g.primitive = true;
    let body = g.body;
    let mut map: FxHashMap<ValueId, ValueId> = FxHashMap::default();
    let mut inputs = vec![];
    for v in captures(f, region) {
        let inner = match f.def_op::<Const>(v) {
            Some((_, c)) => {
                let op = OpRef::new(Const { name: c.name });
                super::replace_with_host_calls::push(&mut g, op, vec![], std::slice::from_ref(f.ty(v)), c.name)[0]
            }
            None => {
                let name = f.values[v].name.unwrap_or_else(|| Name::new(&format!("p{}", inputs.len())));
                let arg = g.fresh_value(f.ty(v).clone(), ValueDef::Arg(body, inputs.len()), Some(name));
                g.blocks[body].args.push(arg);
                inputs.push(Some(v));
                arg
            }
        };
        map.insert(v, inner);
    }
    let mut copy = CopyNodes::new(f, map);
    copy.nodes(region, &mut g, body);
    let given: Vec<usize> =
        (0..f.nodes[n].outputs.len()).filter(|&i| uses[f.nodes[n].outputs[i].index()] > 0).collect();
    let results = given.iter().map(|&i| copy.map[&f.blocks[region].results[i]]).collect();
    let outputs: Vec<ValueId> = given.iter().map(|&i| f.nodes[n].outputs[i]).collect();
    let types: Vec<_> = outputs.iter().map(|&v| f.ty(v).clone()).collect();
    let name = |(i, v): (usize, &ValueId)| f.values[*v].name.unwrap_or_else(|| Name::new(&format!("out{i}")));
    g.result_names = outputs.iter().enumerate().map(name).collect();
    g.blocks[body].results = results;
    g.result_types = types.clone();
    module.functions.insert(callee, g);
    let op = CallHost {
        callee,
        dtypes: types.iter().map(|t| t.dtype).collect(),
        shapes: types.iter().map(|t| t.shape.clone()).collect(),
        reference: callee,
        target: external.target,
        options: external.options.clone(),
        ..CallHost::default()
    };
    let id = NodeId::from_index(f.nodes.len());
    for (k, &v) in outputs.iter().enumerate() {
        f.values[v].def = ValueDef::Result(id, k);
    }
    let (origins, block) = (f.nodes[n].origins.clone(), f.nodes[n].block);
    f.nodes[n].block = None;
    f.nodes.push(Node { op: OpRef::new(op), inputs, outputs, regions: vec![], name: callee, origins, block })
}
