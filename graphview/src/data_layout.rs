//! The data layout of each tensor.
//!
//! Ops that compute in a layout say it (convolutions, pools, the transforms of Winograd's convolution). It spreads to
//! the tensors around them: through ops that are the same under any order of axes, ops that carry axes, transposes, and
//! into the functions of fused groups. A tensor that no such op reaches has none.

use compiler::graph::{Function, Module, Node, NodeId, ValueId};
use compiler::name::Name;
use compiler::ops::layout_transform::LayoutTransform;
use compiler::ops::transpose::Transpose;
use compiler::ops::{DataLayout, InferContext};
use compiler::passes::auto_layout::{TO_NCHW, TO_NHWC};
use compiler::passes::fusion_kind::NodeInfo;
use rustc_hash::FxHashMap;

/// A value of a function of the module.
type Place = (Name, ValueId);

/// What fusion knows of the nodes of each function.
pub(crate) type Infos = FxHashMap<Name, FxHashMap<NodeId, NodeInfo>>;

/// How the layouts of two values agree: they are the same, or the first is the one when the second is the other.
#[derive(Clone, Copy)]
enum Link {
    Same,
    Change(DataLayout, DataLayout),
}
impl Link {
    fn back(self) -> Link {
        match self {
            Link::Same => Link::Same,
            Link::Change(a, b) => Link::Change(b, a),
        }
    }
    fn follow(self, layout: DataLayout) -> Option<DataLayout> {
        match self {
            Link::Same => Some(layout),
            Link::Change(from, to) => (from == layout).then_some(to),
        }
    }
}

/// The layouts of the tensors of a module.
pub(crate) struct Layouts(FxHashMap<Place, DataLayout>);

impl Layouts {
    pub(crate) fn of(module: &Module, infos: &Infos) -> Layouts {
        let mut search = Search { module, infos, links: FxHashMap::default(), found: FxHashMap::default() };
        module.functions.values().for_each(|f| f.walk().into_iter().for_each(|n| search.visit(f, n)));
        search.spread();
        Layouts(search.found)
    }
    /// The layout of a value; `None` where it has none.
    pub(crate) fn get(&self, f: &Function, v: ValueId) -> Option<&'static str> {
        self.0.get(&(f.name, v)).map(|l| l.title())
    }
}

struct Search<'a> {
    module: &'a Module,
    infos: &'a Infos,
    links: FxHashMap<Place, Vec<(Place, Link)>>,
    found: FxHashMap<Place, DataLayout>,
}

impl Search<'_> {
    fn visit(&mut self, f: &Function, n: NodeId) {
        let node = &f.nodes[n];
        if let Some((layout, operands, results)) = node.op.images() {
            let operands = operands.iter().filter_map(|&i| *node.inputs.get(i)?);
            let values = operands.chain(results.iter().filter_map(|&i| node.outputs.get(i).copied()));
            let fits = values.filter(|&v| f.ty(v).rank() == layout.physical_rank(4));
            self.found.extend(fits.map(|v| ((f.name, v), layout)));
            return;
        }
        if let Some(change) = change(node, f) {
            let x = node.inputs[0];
            x.into_iter().for_each(|x| self.link((f.name, x), (f.name, node.outputs[0]), change));
            return;
        }
        let callee = node.op.callee().and_then(|c| self.module.functions.get(&c));
        if let Some(g) = callee {
            let operands = node.inputs.iter().zip(g.params()).filter_map(|(v, p)| Some(((*v)?, *p)));
            let results = node.outputs.iter().zip(g.results()).map(|(v, r)| (*v, *r));
            operands.chain(results).for_each(|(v, own)| self.link((f.name, v), (g.name, own), Link::Same));
            return;
        }
        for region in node.regions.iter().map(|&r| &f.blocks[r]) {
            if region.args.is_empty() && region.results.len() == node.outputs.len() {
                let pairs = node.outputs.iter().zip(&region.results);
                pairs.for_each(|(v, r)| self.link((f.name, *v), (f.name, *r), Link::Same));
            }
        }
        self.alike(f, n);
    }
    /// Operands and results of an op whose axes stand in the same order.
    fn alike(&mut self, f: &Function, n: NodeId) {
        let node = &f.nodes[n];
        let agnostic = self.infos.get(&f.name).and_then(|i| i.get(&n)).is_some_and(|i| i.layout_agnostic);
        let (operands, results): (Vec<ValueId>, Vec<ValueId>) = match carried(self.module, f, n) {
            Some(both) => both,
            None if agnostic => (node.inputs.iter().flatten().copied().collect(), node.outputs.to_vec()),
            None => return,
        };
        let mut all = results.into_iter().chain(operands);
        let Some(first) = all.next() else { return };
        let rank = f.ty(first).rank();
        let same = all.filter(|&v| f.ty(v).rank() == rank);
        same.for_each(|v| self.link((f.name, first), (f.name, v), Link::Same));
    }
    fn link(&mut self, a: Place, b: Place, link: Link) {
        self.links.entry(a).or_default().push((b, link));
        self.links.entry(b).or_default().push((a, link.back()));
    }
    fn spread(&mut self) {
        let mut open: Vec<(Place, DataLayout)> = self.found.iter().map(|(p, l)| (*p, *l)).collect();
        open.sort_unstable_by_key(|(p, _)| *p);
        while let Some((place, layout)) = open.pop() {
            for (to, link) in self.links.get(&place).into_iter().flatten() {
                let Some(layout) = link.follow(layout).filter(|_| !self.found.contains_key(to)) else { continue };
                self.found.insert(*to, layout);
                open.push((*to, layout));
            }
        }
    }
}

/// For an op that changes the layout: from which to which.
fn change(node: &Node, f: &Function) -> Option<Link> {
    if let Some(t) = node.op.downcast::<LayoutTransform>() {
        return Some(Link::Change(t.from, t.to));
    }
    let perm = node.op.downcast::<Transpose>()?.perm(f.ty(node.inputs[0]?).rank()).ok()?;
    match () {
        () if perm == TO_NHWC => Some(Link::Change(DataLayout::Nchw, DataLayout::Nhwc)),
        () if perm == TO_NCHW => Some(Link::Change(DataLayout::Nhwc, DataLayout::Nchw)),
        () => None,
    }
}

/// For an op that carries axes: the operands and results whose axes stand in the same order.
fn carried(module: &Module, f: &Function, n: NodeId) -> Option<(Vec<ValueId>, Vec<ValueId>)> {
    let node = &f.nodes[n];
    let first = node.inputs.first().copied().flatten()?;
    if f.ty(first).rank() != TO_NHWC.len() || node.op.is::<Transpose>() {
        return None;
    }
    let cx = InferContext::new(module, f, &node.inputs, &node.regions);
    let permuted = node.op.permuted(&TO_NHWC, &cx)?;
    let moves = |p: &Option<Vec<usize>>| p.as_deref() == Some(&TO_NHWC[..]);
    let operands = permuted.operands.iter().filter(|o| moves(&o.1)).filter_map(|o| node.inputs[o.0]);
    let results = permuted.results.iter().zip(&node.outputs).filter(|r| moves(r.0)).map(|r| *r.1);
    Some((operands.collect(), results.collect()))
}
