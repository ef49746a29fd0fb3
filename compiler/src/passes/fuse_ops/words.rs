//! Why two nodes are in different kernels, in words for people: the obstacle or the cost, with a number and its unit.
//! The failed condition itself, in the terms of fusion kinds, is [`Reason::condition`](super::Reason::condition).

use super::forward::key_of;
use super::reason::describe;
use super::{ForwardGraph, Partition, Reason, Source};
use crate::cost::CostModel;
use crate::graph::{Function, Module, NodeId, ValueId};
use crate::name::Name;
use crate::ops::control::{CallHost, Const};
use crate::passes::fusion_kind::{NodeInfo, group_expression};
use crate::profile::DeviceProfile;
use crate::schedule::estimate::{Cost, cost_of_bytes, times};
use crate::tir::{BufferId, FusionKind, TensorFunction};
use rustc_hash::FxHashMap;

/// Reads of an element from which on computing it again for each is worth a word.
const MANY: f64 = 1.5;

/// Words about the borders of the groups of one block.
pub struct Words<'a> {
    module: &'a Module,
    f: &'a Function,
    g: &'a ForwardGraph,
    info: &'a FxHashMap<NodeId, NodeInfo>,
    profile: &'a DeviceProfile,
    costs: &'a dyn CostModel,
    /// Costs of groups, by what is in them.
    known: FxHashMap<String, Option<Cost>>,
}

/// How a node reads the result of another.
struct Reads {
    /// Reads of an element.
    each: f64,
    /// The same as a product: `9 x 64`.
    factors: String,
    /// Elements that one result needs.
    row: f64,
}

impl<'a> Words<'a> {
    /// For the block of `g`.
    pub fn new(
        (module, f): (&'a Module, &'a Function),
        g: &'a ForwardGraph,
        info: &'a FxHashMap<NodeId, NodeInfo>,
        profile: &'a DeviceProfile,
        costs: &'a dyn CostModel,
    ) -> Words<'a> {
        Words { module, f, g, info, profile, costs, known: FxHashMap::default() }
    }

    fn name(&self, x: usize) -> String {
        describe(self.g, self.f, x)
    }

    /// One sentence about node `i`, whose post-dominator is `sink`.
    pub fn sentence(&mut self, p: &mut Partition<'_>, i: usize, sink: Option<usize>, reason: &Reason) -> String {
        let into = sink.map(|s| format!(" into {}", self.name(s))).unwrap_or_default();
        let why = match *reason {
            Reason::NoDominator => self.no_dominator(p, i),
            Reason::Tuple { sink } => {
                let operands = self.g.nodes.iter().filter(|n| n.users.iter().any(|u| u.0 == sink)).count();
                let concat = self.f.nodes[self.g.nodes[sink].source.node()].name;
                let trip = self.trip(i);
                format!("the kernel that copies the {operands} operands of {concat} has no loops for sums: {trip}")
            }
            Reason::Edge { sink, edge, .. } => {
                let (from, reader) = self.first_edge(i, sink, &|_, kind| kind == edge).unwrap_or((i, sink));
                self.read_by(p, (i, from), reader, sink)
            }
            Reason::Path { at, .. } => {
                let from = self.first_edge(i, at, &|u, _| u == at).map_or(i, |e| e.0);
                self.read_by(p, (i, from), at, sink.unwrap_or(at))
            }
            Reason::Anchored { at, anchor } => format!(
                "{} is computed in the kernel of {}, which has the loops of one sum: {}",
                self.name(at),
                self.name(anchor),
                self.trip(i)
            ),
            Reason::Reduction { sink } => {
                let reader = self.g.nodes[i].users.first().map_or(sink, |u| u.0);
                self.behind_reduction(p, i, reader, sink)
            }
            Reason::Size { .. } | Reason::Bindings { .. } | Reason::Operations { .. } => {
                reason.condition(self.g, self.f, i, &self.profile.name)
            }
        };
        format!("{} not fused{into}: {why}", self.name(i))
    }

    fn no_dominator(&mut self, p: &mut Partition<'_>, i: usize) -> String {
        if self.g.nodes[i].escapes {
            return format!("its result is one of the model's, and others read it too: {}", self.trip(i));
        }
        let readers = self.g.nodes[i].users.len();
        match self.alone(p, i).filter(|_| readers > 1) {
            Some(cost) => {
                let [many, one] = times([cost.total() * readers as f64, cost.total()]);
                format!(
                    "its {readers} readers lead to different results: computed in each, it would take {many} instead of {one}"
                )
            }
            None => format!("its readers lead to different results: {}", self.trip(i)),
        }
    }

    /// The result of the group of `i`, as `from` on the way has it, is read by `reader`, on the way to `sink`.
    fn read_by(&mut self, p: &mut Partition<'_>, (i, from): (usize, usize), reader: usize, sink: usize) -> String {
        let place = if reader == sink { self.name(reader) } else { format!("{}, on the way,", self.name(reader)) };
        let root = p.root(reader);
        let own = self.g.nodes[reader].kind;
        if let Some(target) = self.target(reader) {
            return format!("{} runs on the external target {target}", self.name(reader));
        }
        // Nodes stand behind what they read: in front of its group's anchor a node is computed where that reads it.
        let anchor = p.anchor(root).unwrap_or(root);
        if sums(p.group_kind(root)) && !sums(own) {
            return match reader < anchor {
                true => self.in_front_of(p, (i, from), reader, anchor),
                false => format!(
                    "{place} is computed where the kernel of {} stores its sums, which reads operands in the order of these alone: {}",
                    self.name(anchor),
                    self.trip(from)
                ),
            };
        }
        let reads = self.reads(from, reader).filter(|_| sums(own) || sums(self.g.nodes[i].kind));
        let again = reads.as_ref().and_then(|r| self.again(p, i, r));
        match (again, reads) {
            (Some(again), _) => format!("{place} reads each element of {} {again}", self.name(from)),
            (None, Some(r)) if sums(own) && r.row > 1.0 => format!(
                "{place} needs {:.0} elements of {} for a result, so that these are stored before it begins: {}",
                r.row,
                self.name(from),
                self.trip(from)
            ),
            _ => match self.mover(p, reader) {
                Some(mover) => format!(
                    "{} takes the elements in another order than they are computed in, and they would be stored far apart: {}",
                    self.name(mover),
                    self.trip(from)
                ),
                None => {
                    format!("{place} is a view of it in another shape than its kernel stores: {}", self.trip(from))
                }
            },
        }
    }

    /// `reader` is light and stands behind the reduction `i`.
    fn behind_reduction(&mut self, p: &mut Partition<'_>, i: usize, reader: usize, sink: usize) -> String {
        match self.reads(i, reader) {
            Some(_) if sums(self.g.nodes[reader].kind) => self.read_by(p, (i, i), reader, sink),
            Some(r) if r.each >= MANY => format!(
                "{} spreads each result of {} over {} elements, which begin when it is whole: {}",
                self.name(reader),
                self.name(i),
                r.factors,
                self.trip(i)
            ),
            _ => format!("a kernel ends with its reduction, where no rule of --fuse full goes on: {}", self.trip(i)),
        }
    }

    /// The external target that runs the node.
    fn target(&self, i: usize) -> Option<Name> {
        let Source::Node(n) = self.g.nodes[i].source else { return None };
        self.f.nodes[n].op.downcast::<CallHost>()?.external_target()
    }

    /// The first node from `reader` on, in its group, that moves elements rather than view them in another shape.
    fn mover(&self, p: &mut Partition<'_>, reader: usize) -> Option<usize> {
        let moves = |x: &usize| match self.g.nodes[*x].source {
            Source::Node(n) => !self.f.nodes[n].op.is_view(),
            Source::Tuple(_) | Source::Projection(..) => false,
        };
        p.members_of(reader).into_iter().filter(|&m| m >= reader).find(moves)
    }

    /// `reader` is computed where `anchor` reads it.
    fn in_front_of(
        &mut self,
        p: &mut Partition<'_>,
        (i, from): (usize, usize),
        reader: usize,
        anchor: usize,
    ) -> String {
        let last = self.first_edge(reader, anchor, &|u, _| u == anchor).map_or(reader, |e| e.0);
        let place = format!("{} is computed where {} reads it", self.name(reader), self.name(anchor));
        let again = self.reads(last, anchor).and_then(|r| self.again(p, i, &r));
        match again {
            Some(again) => format!("{place}, each element {again}"),
            None => format!("{place}: {}", self.trip(from)),
        }
    }

    /// The time of the kernel of `i` if it is computed again for each read (`2304 times: ...`); `None` if that is not
    /// longer.
    fn again(&mut self, p: &mut Partition<'_>, i: usize, reads: &Reads) -> Option<String> {
        let cost = self.alone(p, i).filter(|_| reads.each >= MANY)?;
        let repeated = (cost.arithmetic + cost.issue) * reads.each;
        let [again, once] = times([repeated, cost.total()]);
        let factors = &reads.factors;
        (repeated > cost.total()).then(|| {
            format!("{factors} times: computed again for each read, its kernel would take {again} instead of {once}")
        })
    }

    /// The first edge on the ways from `i` to `sink` for which `is` holds.
    fn first_edge(&self, i: usize, sink: usize, is: &dyn Fn(usize, FusionKind) -> bool) -> Option<(usize, usize)> {
        let mut seen = vec![i];
        let mut next = 0;
        while let Some(&from) = seen.get(next) {
            next += 1;
            for &(user, kind) in &self.g.nodes[from].users {
                if is(user, kind) {
                    return Some((from, user));
                }
                if user != sink && !seen.contains(&user) {
                    seen.push(user);
                }
            }
        }
        None
    }

    /// What it costs that the result of a node is written by one kernel and read by another.
    fn trip(&self, x: usize) -> String {
        let node = &self.f.nodes[self.g.nodes[x].source.node()];
        let values: &[ValueId] = match self.g.nodes[x].source {
            Source::Projection(_, i) => std::slice::from_ref(&node.outputs[i]),
            _ => &node.outputs,
        };
        let bytes: Option<usize> = values.iter().map(|&v| self.f.ty(v).bytes()).sum();
        let Some(bytes) = bytes else { return "it goes through memory".into() };
        let bytes = bytes as f64;
        let [time] = times([cost_of_bytes(self.profile, 2.0 * bytes).total()]);
        format!("it goes through memory, {} written and read in {time}", size(bytes))
    }

    /// What the group of a node costs as it is.
    fn alone(&mut self, p: &mut Partition<'_>, i: usize) -> Option<Cost> {
        let members = p.members_of(i);
        let mut nodes: Vec<NodeId> = vec![];
        for m in members {
            let Source::Node(n) = self.g.nodes[m].source else { continue };
            nodes.push(n);
        }
        let key = key_of(self.f, nodes.iter());
        if let Some(known) = self.known.get(&key) {
            return *known;
        }
        let cost = self.estimate(&nodes);
        self.known.insert(key, cost);
        cost
    }

    fn estimate(&self, nodes: &[NodeId]) -> Option<Cost> {
        let (te, outside, _) = group_expression(self.module, self.f, nodes).ok()?;
        let constant = |v: &ValueId| self.f.def_op::<Const>(*v).is_some();
        let constants: Vec<BufferId> = outside.iter().filter(|o| constant(o.0)).map(|o| *o.1).collect();
        let found = self.costs.function(&te, &constants);
        found.as_ref().as_ref().ok().map(|e| e.cost)
    }

    /// How `reader` reads the result of `from`.
    fn reads(&self, from: usize, reader: usize) -> Option<Reads> {
        let (Source::Node(n), Source::Node(r)) = (self.g.nodes[from].source, self.g.nodes[reader].source) else {
            return None;
        };
        self.info.get(&r)?;
        let (te, outside, _) = group_expression(self.module, self.f, &[r]).ok()?;
        let te = te.at_typical_sizes(&self.module.dims);
        let buffers: Vec<BufferId> = self.f.nodes[n].outputs.iter().filter_map(|v| outside.get(v).copied()).collect();
        reads_of(&te, &buffers)
    }
}

/// How a function reads some of its operands.
fn reads_of(te: &TensorFunction, buffers: &[BufferId]) -> Option<Reads> {
    let product = |list: &mut dyn Iterator<Item = &crate::int::Int>| -> Option<f64> {
        list.map(|e| e.as_const().map(|c| c as f64)).product()
    };
    let (mut all, mut row, mut apart) = (0.0, 1.0f64, 1.0f64);
    for stage in te.stages()? {
        let loads = stage.block.value.loads();
        let loads: Vec<_> = loads.into_iter().filter(|l| buffers.contains(&l.0)).collect();
        let Some((_, indices)) = loads.first() else { continue };
        all += product(&mut stage.loops.iter().map(|l| &l.1))? * loads.len() as f64;
        row = row.max(product(&mut stage.reduction().iter().map(|l| &l.1))?);
        // Loops that the index does not use read the same elements again.
        let repeats = |l: &&(crate::name::Name, crate::int::Int)| !indices.iter().any(|i| i.uses(l.0));
        apart = apart.max(product(&mut stage.loops.iter().filter(repeats).map(|l| &l.1))?);
    }
    let elements: f64 = product(&mut buffers.iter().flat_map(|&b| &te.buffers[b].shape))?;
    if elements <= 0.0 || all <= 0.0 {
        return None;
    }
    let each = all / elements;
    let rest = each / apart;
    let whole = (rest - rest.round()).abs() < 0.01 * rest;
    let factors = match apart > 1.0 && rest >= MANY && whole {
        true => format!("{rest:.0} x {apart:.0}"),
        false => format!("{each:.0}"),
    };
    Some(Reads { each, factors, row })
}

/// True for what has loops of its own: a reduction, or an anchor.
fn sums(kind: FusionKind) -> bool {
    matches!(kind, FusionKind::Reduction | FusionKind::OutElementwiseFusable)
}

/// `605 kB`
fn size(bytes: f64) -> String {
    for (limit, unit) in [(1e9, "GB"), (1e6, "MB"), (1e3, "kB")] {
        if bytes >= limit {
            return format!("{:.1} {unit}", bytes / limit);
        }
    }
    format!("{bytes:.0} B")
}
