//! The values that a compiled module stores in f16. The passes run up to the groups to find them, since values in a
//! kernel's registers do not count: mixed precision costs nothing there and rounds nothing.

use crate::arena::Id;
use crate::dtype::DType;
use crate::graph::{Function, Module, NodeId, ValueDef, ValueId};
use crate::name::Name;
use crate::ops::control::{Call, Const};
use crate::passes::{AmpMode, KeepF32, PassContext, PassError, PipelineOptions, Sequential, default_pipeline};
use crate::profile::DeviceProfile;
use rustc_hash::{FxHashMap, FxHashSet};

/// The values that one kernel rounds. Nodes and values are those of the f32 graph before the pass `mixed-precision`.
#[derive(Clone, Debug, Default)]
pub(super) struct Kernel {
    /// Nodes that must stay in f32 so that nothing of this is rounded: the readers of the constants, the makers of the
    /// results, and the readers of these. Other values in their kernels may be f16 in registers.
    pub nodes: Vec<Name>,
    /// The values that it stores in f16, and the constants that it reads in f16.
    pub values: Vec<ValueId>,
    /// Bytes that f32 would add.
    pub bytes: u64,
}

/// The values that a compiled module stores.
#[derive(Clone, Debug, Default)]
pub(super) struct Storage {
    /// The kernels that round something, in execution order.
    pub kernels: Vec<Kernel>,
    /// Bytes of constants and results of kernels, all in f32.
    pub single: u64,
}
impl Storage {
    /// Bytes that f16 saves.
    pub fn saved(&self, f: &Function) -> u64 {
        let values: FxHashSet<ValueId> = self.kernels.iter().flat_map(|k| k.values.iter().copied()).collect();
        values.into_iter().filter_map(|v| f.ty(v).bytes()).map(|n| n as u64 / 2).sum()
    }
}

/// A graph right before the pass `mixed-precision`, and how it is compiled from there.
pub(super) struct Graph<'a> {
    pub module: &'a Module,
    pub pipeline: &'a PipelineOptions,
    pub profile: &'a DeviceProfile,
    by_name: FxHashMap<Name, NodeId>,
}

impl<'a> Graph<'a> {
    pub fn new(module: &'a Module, pipeline: &'a PipelineOptions, profile: &'a DeviceProfile) -> Graph<'a> {
        let f = module.main();
        let by_name = f.walk().into_iter().rev().map(|n| (f.nodes[n].name, n)).collect();
        Graph { module, pipeline, profile, by_name }
    }

    /// The values that are stored in f16 in mode `amp`, if the nodes of `keep` stay in f32 besides those of the
    /// pipeline.
    pub fn storage(&self, amp: AmpMode, keep: &[KeepF32]) -> Result<Storage, PassError> {
        let mut cx = PassContext::new(self.profile.clone());
        self.pipeline.configure(&mut cx);
        cx.amp = amp;
        cx.keep_f32.extend(keep.iter().cloned());
        let mut mixed = self.module.clone();
        Sequential::new(["mixed-precision"]).run(&mut mixed, &mut cx)?;
        let constants = self.halved_constants(&mixed);
        let list = default_pipeline(self.pipeline);
        Sequential::new(list.iter().skip_while(|p| *p != "mixed-precision").skip(1)).run(&mut mixed, &mut cx)?;
        let grouped = Grouped { module: &mixed, graph: self };
        let f = mixed.main();
        let uses = f.uses();
        let mut out = Storage { kernels: vec![], single: self.constant_bytes() };
        for &n in &f.blocks[f.body].nodes {
            if !f.nodes[n].op.is::<Const>() {
                let float = f.nodes[n].outputs.iter().map(|v| f.ty(*v)).filter(|t| t.dtype.is_float());
                out.single +=
                    float.filter_map(|t| t.const_shape()).map(|s| s.iter().product::<usize>() as u64 * 4).sum::<u64>();
            }
            let mut k = Kernel::default();
            for (name, halved) in grouped.members(n).into_iter().filter_map(|m| Some((m, constants.get(&m)?))) {
                k.nodes.push(name);
                k.values.extend(halved);
            }
            for &v in f.nodes[n].outputs.iter().filter(|v| f.ty(**v).dtype == DType::F16) {
                let Some(stored) = grouped.source(v) else { continue };
                k.values.push(stored);
                let maker = self.module.main().def_node(stored);
                k.nodes.extend(maker.map(|m| self.module.main().nodes[m].name));
                k.nodes.extend(uses[v.index()].iter().flat_map(|&(u, i)| grouped.readers(u, i)));
            }
            let bytes = |v: &ValueId| self.module.main().ty(*v).bytes().unwrap_or(0) as u64 / 2;
            k.bytes = k.values.iter().map(bytes).sum();
            if !k.values.is_empty() {
                out.kernels.push(k);
            }
        }
        Ok(out)
    }

    /// Bytes of the f32 constants.
    fn constant_bytes(&self) -> u64 {
        let f = self.module.main();
        let single = |v: &ValueId| f.def_op::<Const>(*v).is_some() && f.ty(*v).dtype == DType::F32;
        f.values.ids().filter(single).filter_map(|v| f.ty(v).bytes()).map(|n| n as u64).sum()
    }

    /// The f32 constants that each node reads in f16, after the pass `mixed-precision`.
    fn halved_constants(&self, mixed: &Module) -> FxHashMap<Name, Vec<ValueId>> {
        let (f, g) = (self.module.main(), mixed.main());
        let mut out: FxHashMap<Name, Vec<ValueId>> = FxHashMap::default();
        for n in g.walk() {
            let Some(&old) = self.by_name.get(&g.nodes[n].name) else { continue };
            for (a, b) in f.nodes[old].inputs.iter().zip(&g.nodes[n].inputs) {
                let (Some(a), Some(b)) = (*a, *b) else { continue };
                let constant = f.def_op::<Const>(a).is_some() && g.def_op::<Const>(b).is_some();
                if constant && f.ty(a).dtype == DType::F32 && g.ty(b).dtype == DType::F16 {
                    out.entry(g.nodes[n].name).or_default().push(a);
                }
            }
        }
        out
    }
}

/// The module after the passes.
struct Grouped<'a> {
    module: &'a Module,
    graph: &'a Graph<'a>,
}

impl Grouped<'_> {
    /// The function of the group that node `n` calls.
    fn group(&self, n: NodeId) -> Option<&Function> {
        let call = self.module.main().nodes[n].op.downcast::<Call>()?;
        self.module.functions.get(&call.callee).filter(|f| f.primitive)
    }

    /// The nodes of the f32 graph in the group that node `n` calls; itself where it is no call.
    fn members(&self, n: NodeId) -> Vec<Name> {
        let names: Vec<Name> = match self.group(n) {
            Some(g) => g.walk().into_iter().map(|i| g.nodes[i].name).collect(),
            None => vec![self.module.main().nodes[n].name],
        };
        names.into_iter().filter(|n| self.graph.by_name.contains_key(n)).collect()
    }

    /// The nodes of the f32 graph that read operand `i` of node `n` of the entry function, over what passes put in
    /// between.
    fn readers(&self, n: NodeId, i: usize) -> Vec<Name> {
        let Some(g) = self.group(n) else { return self.members(n) };
        let uses = g.uses();
        let (mut todo, mut out) = (vec![g.params()[i]], Vec::new());
        while let Some(v) = todo.pop() {
            for &(u, _) in &uses[v.index()] {
                let node = &g.nodes[u];
                match self.graph.by_name.contains_key(&node.name) {
                    true => out.push(node.name),
                    false => todo.extend(&node.outputs),
                }
            }
        }
        out
    }

    /// The value of the f32 graph that value `v` of the entry function is, in another type or layout.
    fn source(&self, v: ValueId) -> Option<ValueId> {
        let f = self.module.main();
        match f.values[v].def {
            ValueDef::Arg(_, i) => self.graph.module.main().params().get(i).copied(),
            ValueDef::Result(n, i) => match self.group(n) {
                None => self.known(f, n, i),
                Some(g) => match self.inside(g, *g.results().get(i)?) {
                    Inside::Known(v) => Some(v),
                    Inside::Param(p) => self.source((*f.nodes[n].inputs.get(p)?)?),
                    Inside::Lost => None,
                },
            },
        }
    }

    fn known(&self, f: &Function, n: NodeId, i: usize) -> Option<ValueId> {
        let old = *self.graph.by_name.get(&f.nodes[n].name)?;
        self.graph.module.main().nodes[old].outputs.get(i).copied()
    }

    /// Back over what passes put in (casts, transposes), whose names the f32 graph does not have.
    fn inside(&self, g: &Function, mut v: ValueId) -> Inside {
        loop {
            match g.values[v].def {
                ValueDef::Arg(_, p) => return Inside::Param(p),
                ValueDef::Result(n, i) => {
                    if let Some(found) = self.known(g, n, i) {
                        return Inside::Known(found);
                    }
                    match g.nodes[n].inputs.first() {
                        Some(Some(input)) => v = *input,
                        _ => return Inside::Lost,
                    }
                }
            }
        }
    }
}

/// Where a value inside a group comes from.
enum Inside {
    Known(ValueId),
    Param(usize),
    Lost,
}
