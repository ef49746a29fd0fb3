//! Functions that stay calls (those that call themselves, directly or through others), joined with the entry function
//! for planning.
//!
//! A called function becomes a region of one node at the end of the entry function, so that all values of the plan
//! belong to one function. Its body is planned once, with buffers that nothing else shares. Operands are copied there
//! and results back, on the device; the host reads only conditions. Parameter and result types of a function are the
//! same in all calls, so shapes cannot depend on the depth of recursion. Calls nest 256 deep, as in the interpreter
//! (`interpreter::MAX_CALL_DEPTH`).
//!
//! Only the plan uses the joined function. Afterwards the nodes are moved back into their own functions.

use crate::arena::Id;
use crate::attr_struct;
use crate::graph::{BlockId, CopyNodes, Function, Module, Node, NodeId, Origins};
use crate::name::Name;
use crate::ops::control::Call;
use crate::ops::{InferContext, Op, OpRef, OpResult};
use crate::tensor_type::TensorType;
use rustc_hash::FxHashMap;

attr_struct! {
    /// Owns the bodies of called functions, in regions whose arguments are their parameters. It runs none of them.
    pub struct Callees("callees") {
        /// The functions, in the order of the regions.
        pub names: Vec<Name> = vec![],
    }
}
impl Op for Callees {
    fn arity(&self) -> (usize, usize) {
        (0, 0)
    }
    fn infer(&self, _cx: &InferContext<'_>) -> OpResult<Vec<TensorType>> {
        Ok(vec![])
    }
    fn has_compute(&self) -> bool {
        false
    }
}

/// The function that node `n` calls, where that is no fused group.
pub(super) fn called(module: &Module, f: &Function, n: NodeId) -> Option<Name> {
    let call = f.nodes[n].op.downcast::<Call>()?;
    module.functions.get(&call.callee).filter(|c| !c.primitive).map(|c| c.name)
}

/// The bodies of the functions that a joined entry function calls.
#[derive(Clone, Default)]
pub(super) struct Bodies {
    regions: Vec<(Name, BlockId)>,
    positions: FxHashMap<Name, usize>,
}

impl Bodies {
    /// Those of a joined function.
    pub fn of(main: &Function) -> Bodies {
        let owner = main.blocks[main.body].nodes.last().map(|&n| &main.nodes[n]);
        let found = owner.and_then(|node| node.op.downcast::<Callees>().map(|c| (c, node)));
        let Some((callees, node)) = found else { return Bodies::default() };
        let regions: Vec<_> = callees.names.iter().copied().zip(node.regions.iter().copied()).collect();
        let positions = regions.iter().enumerate().map(|(i, r)| (r.0, i)).collect();
        Bodies { regions, positions }
    }
    /// The functions with their bodies, in order.
    pub fn iter(&self) -> impl Iterator<Item = (Name, BlockId)> + '_ {
        self.regions.iter().copied()
    }
    /// The number of the function that node `n` of the joined function calls, and its body.
    pub fn called(&self, main: &Function, n: NodeId) -> Option<(usize, BlockId)> {
        let call = main.nodes[n].op.downcast::<Call>()?;
        let at = *self.positions.get(&call.callee)?;
        Some((at, self.regions[at].1))
    }
}

/// A module as it is planned: with the functions that calls reach from the entry function joined to it.
pub(super) struct Joined {
    pub module: Module,
    /// The joined entry function; the module's own gets other ops as its groups become kernels.
    pub main: Function,
    /// The entry function before, and for each copied node its function and original node; none without such calls.
    parts: Option<(Function, Vec<(NodeId, Name, NodeId)>)>,
}

impl Joined {
    /// Joins the functions.
    pub fn of(mut module: Module) -> Joined {
        let names = reached(&module);
        if names.is_empty() {
            return Joined { main: module.main().clone(), module, parts: None };
        }
        let entry = module.main().clone();
        let (main, copies) = with_bodies(&module, names);
        *module.main_mut() = main.clone();
        Joined { module, main, parts: Some((entry, copies)) }
    }

    /// The module with its functions apart again. Nodes keep the changes that planning made.
    pub fn part(self) -> Module {
        let mut module = self.module;
        let Some((mut entry, copies)) = self.parts else { return module };
        let joined = module.main().clone();
        for (n, node) in entry.nodes.iter_mut() {
            node.op = joined.nodes[n].op.clone();
        }
        *module.main_mut() = entry;
        for (copy, name, n) in copies {
            module.functions[&name].nodes[n].op = joined.nodes[copy].op.clone();
        }
        module
    }
}

/// The entry function with the bodies of these functions, and where their nodes come from.
fn with_bodies(module: &Module, names: Vec<Name>) -> (Function, Vec<(NodeId, Name, NodeId)>) {
    let mut main = module.main().clone();
    let owner = NodeId::from_index(main.nodes.len());
    main.nodes.push(Node {
        op: OpRef::new(Callees { names: names.clone() }),
        inputs: vec![],
        outputs: vec![],
        regions: vec![],
        name: Name::new("callees"),
        origins: Origins::none(),
        block: Some(main.body),
    });
    let mut copies = vec![];
    for name in names {
        let f = &module.functions[&name];
        let mut copy = CopyNodes::new(f, FxHashMap::default());
        let region = copy.region(f.body, owner, &mut main);
        main.nodes[owner].regions.push(region);
        copies.extend(copy.copied.into_iter().map(|(from, to)| (to, name, from)));
    }
    let body = main.body;
    main.blocks[body].nodes.push(owner);
    (main, copies)
}

/// The functions that calls lead to from the entry function, those met first first.
fn reached(module: &Module) -> Vec<Name> {
    let calls = |f: &Function| f.walk().into_iter().filter_map(|n| called(module, f, n)).collect::<Vec<_>>();
    let mut out = calls(module.main());
    let mut at = 0;
    out = dedup(out);
    while let Some(f) = out.get(at).and_then(|name| module.functions.get(name)) {
        out.extend(calls(f));
        out = dedup(out);
        at += 1;
    }
    out
}

fn dedup(names: Vec<Name>) -> Vec<Name> {
    names.into_iter().collect::<indexmap::IndexSet<_>>().into_iter().collect()
}
