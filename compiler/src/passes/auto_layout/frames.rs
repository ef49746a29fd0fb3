//! What can move: the layout that each value has as it stands (its frame), and the moved form of each node.
//!
//! Physical layouts are 0 (NCHW) and 1 (NHWC). An anchor in NCHW says that its data are in 0 as they stand; from there
//! frames spread through every op that has a moved form. A transpose between the two layouts makes the same tensor
//! in the other frame: it dissolves, and whoever uses its result just wants the other layout.

use super::{TO_NCHW, TO_NHWC};
use crate::graph::{BlockId, Function, Module, NodeId, ValueDef, ValueId};
use crate::ops::control::Const;
use crate::ops::transpose::Transpose;
use crate::ops::{InferContext, OpRef};
use crate::passes::fuse_ops::captures;
use crate::passes::fusion_kind::NodeInfo;
use rustc_hash::{FxHashMap, FxHashSet};

/// How an operand of a moved node is needed, or how a result comes out.
#[derive(Clone, PartialEq, Debug)]
pub enum Form {
    /// As it stands.
    AsIs,
    /// In the other layout.
    Moved,
    /// An operand of lower rank that broadcasts: with leading dimensions of 1, in the other layout.
    Aligned,
    /// Permuted in another way.
    Permuted(Vec<usize>),
}

/// A node that can run in the other layout.
#[derive(Clone, Debug)]
pub struct Movable {
    /// The layout of its data as it stands.
    pub frame: u8,
    /// It has a native layout (a convolution, a pool).
    pub anchor: bool,
    /// The op in the other layout.
    pub op: OpRef,
    /// Operands of that op: the old operand, and how it is needed.
    pub operands: Vec<(usize, Form)>,
    /// How the results come out.
    pub results: Vec<Form>,
}
impl Movable {
    /// How operand `i` is needed.
    pub fn operand(&self, i: usize) -> Option<&Form> {
        self.operands.iter().find(|o| o.0 == i).map(|o| &o.1)
    }
    /// The layout of the moved form.
    pub fn other(&self) -> u8 {
        1 - self.frame
    }
}

/// Everything that can move in one block.
#[derive(Debug, Default)]
pub struct Frames {
    /// Layouts of values as they stand.
    pub frame: FxHashMap<ValueId, u8>,
    /// Nodes that can move.
    pub movable: FxHashMap<NodeId, Movable>,
    /// Transposes between the two layouts.
    pub dissolved: FxHashSet<NodeId>,
    /// Anchors that cannot move, and why.
    pub pinned: Vec<(NodeId, String)>,
    /// Users of each value in the block, with the operand's position; `usize::MAX` for a use in a region.
    pub users: FxHashMap<ValueId, Vec<(NodeId, usize)>>,
}

/// Finds the frames of a block. `info` describes its nodes; `dissolve` lets transposes vanish.
pub fn find_frames(
    module: &Module,
    f: &Function,
    block: BlockId,
    info: &FxHashMap<NodeId, NodeInfo>,
    dissolve: bool,
) -> Frames {
    let mut search =
        Search { module, f, block, info, dissolve, out: Frames::default(), barriers: FxHashSet::default() };
    search.find_users();
    let mut queue = search.seeds();
    while let Some(v) = queue.pop() {
        search.spread(v, &mut queue);
    }
    search.find_dissolved();
    search.out
}

struct Search<'a> {
    module: &'a Module,
    f: &'a Function,
    block: BlockId,
    info: &'a FxHashMap<NodeId, NodeInfo>,
    dissolve: bool,
    out: Frames,
    barriers: FxHashSet<NodeId>,
}

impl Search<'_> {
    fn find_users(&mut self) {
        for &n in &self.f.blocks[self.block].nodes {
            let node = &self.f.nodes[n];
            for (i, v) in node.inputs.iter().enumerate() {
                if let Some(v) = v {
                    self.out.users.entry(*v).or_default().push((n, i));
                }
            }
            for v in node.regions.iter().flat_map(|&r| captures(self.f, r)) {
                self.out.users.entry(v).or_default().push((n, usize::MAX));
            }
        }
    }
    fn is_const(&self, v: ValueId) -> bool {
        self.f.def_op::<Const>(v).is_some()
    }
    /// Anchors give their data the layout that they compute in.
    fn seeds(&mut self) -> Vec<ValueId> {
        let mut queue = Vec::new();
        for &n in &self.f.blocks[self.block].nodes {
            let Some(rule) = self.f.nodes[n].op.layout() else { continue };
            let frame = if rule.is_nchw() { 0 } else { 1 };
            if frame == 0 {
                self.try_node(n, 0, &mut queue);
                continue;
            }
            let node = &self.f.nodes[n];
            let data = rule.operands_to_move().into_iter().filter_map(|i| *node.inputs.get(i)?);
            let results = rule.results_to_move().into_iter().filter_map(|i| node.outputs.get(i).copied());
            for v in data.chain(results).collect::<Vec<_>>() {
                self.assign(v, frame, &mut queue);
            }
            self.barriers.insert(n);
        }
        queue
    }
    fn assign(&mut self, v: ValueId, frame: u8, queue: &mut Vec<ValueId>) {
        if self.f.ty(v).rank() == 4 && !self.is_const(v) && self.out.frame.insert(v, frame).is_none() {
            queue.push(v);
        }
    }
    fn spread(&mut self, v: ValueId, queue: &mut Vec<ValueId>) {
        let frame = self.out.frame[&v];
        let maker = match self.f.values[v].def {
            ValueDef::Result(n, _) if self.f.nodes[n].block == Some(self.block) => Some(n),
            _ => None,
        };
        let users = self.out.users.get(&v).cloned().unwrap_or_default();
        for n in maker.into_iter().chain(users.into_iter().filter(|u| u.1 != usize::MAX).map(|u| u.0)) {
            match self.between(n) {
                Some((x, y, from, to)) if self.dissolve => {
                    let (other, wanted, fits) = if v == x { (y, to, frame == from) } else { (x, from, frame == to) };
                    if fits && self.out.frame.get(&other).is_none_or(|&o| o == wanted) {
                        self.assign(other, wanted, queue);
                    }
                }
                Some(_) => {}
                None => self.try_node(n, frame, queue),
            }
        }
    }
    /// A transpose between the layouts: operand, result, and their frames.
    fn between(&self, n: NodeId) -> Option<(ValueId, ValueId, u8, u8)> {
        let node = &self.f.nodes[n];
        let perm = node.op.downcast::<Transpose>()?.perm(4).ok()?;
        let (x, y) = (node.inputs[0]?, node.outputs[0]);
        if self.f.ty(x).rank() != 4 {
            return None;
        }
        if perm == TO_NHWC { Some((x, y, 0, 1)) } else { (perm == TO_NCHW).then_some((x, y, 1, 0)) }
    }
    fn find_dissolved(&mut self) {
        for &n in &self.f.blocks[self.block].nodes {
            if let Some((x, y, from, to)) = self.between(n).filter(|_| self.dissolve)
                && self.out.frame.get(&x) == Some(&from)
                && self.out.frame.get(&y) == Some(&to)
            {
                self.out.dissolved.insert(n);
            }
        }
    }
    /// Gives a node its moved form, when all data that it moves agree on the frame.
    fn try_node(&mut self, n: NodeId, frame: u8, queue: &mut Vec<ValueId>) {
        if self.out.movable.contains_key(&n) || self.barriers.contains(&n) {
            return;
        }
        let movable = match moved_form(self.module, self.f, n, self.info.get(&n), frame) {
            Ok(m) => m,
            Err(why) => {
                self.barriers.insert(n);
                if self.f.nodes[n].op.layout().is_some() {
                    self.out.pinned.push((n, why));
                }
                return;
            }
        };
        let node = &self.f.nodes[n];
        let data = movable.operands.iter().filter(|o| o.1 == Form::Moved).filter_map(|o| node.inputs[o.0]);
        let results = node.outputs.iter().zip(&movable.results).filter(|r| *r.1 == Form::Moved).map(|r| *r.0);
        let moved: Vec<ValueId> = data.chain(results).filter(|&v| !self.is_const(v)).collect();
        if moved.iter().any(|v| self.out.frame.get(v).is_some_and(|&o| o != frame)) {
            self.barriers.insert(n);
            if movable.anchor {
                self.out.pinned.push((n, "its data stand in two layouts".into()));
            }
            return;
        }
        self.out.movable.insert(n, movable);
        for v in moved {
            self.assign(v, frame, queue);
        }
    }
}

/// The node on data in the other layout than `frame`.
fn moved_form(module: &Module, f: &Function, n: NodeId, info: Option<&NodeInfo>, frame: u8) -> Result<Movable, String> {
    let node = &f.nodes[n];
    let perm = if frame == 0 { TO_NHWC } else { TO_NCHW };
    let rank4 = |v: ValueId| f.ty(v).rank() == 4;
    if !node.regions.is_empty() || node.op.effects().stateful || node.op.is::<Const>() {
        return Err("it cannot move".into());
    }
    if let Some(rule) = node.op.layout() {
        if frame == 1 || !rule.is_nchw() {
            return Err("it has no NHWC form here".into());
        }
        let (data, results) = (rule.operands_to_move(), rule.results_to_move());
        let moved = data.iter().filter_map(|&i| *node.inputs.get(i)?).chain(results.iter().map(|&i| node.outputs[i]));
        if let Some(v) = moved.into_iter().find(|&v| !rank4(v)) {
            return Err(format!("its data have rank {}, not 4", f.ty(v).rank()));
        }
        let form = |moves: bool| if moves { Form::Moved } else { Form::AsIs };
        let operands = (0..node.inputs.len()).map(|i| (i, form(data.contains(&i)))).collect();
        let results = (0..node.outputs.len()).map(|i| form(results.contains(&i))).collect();
        return Ok(Movable { frame, anchor: true, op: rule.to_nhwc(), operands, results });
    }
    let first = node.inputs.first().copied().flatten();
    if first.is_some_and(rank4) {
        let cx = InferContext::new(module, f, &node.inputs, &node.regions);
        if let Some(p) = node.op.permuted(&perm, &cx) {
            let to_form = |p: Option<Vec<usize>>, rank: usize| match p {
                None => Form::AsIs,
                Some(p) if p == perm && rank == 4 => Form::Moved,
                Some(p) if p.iter().enumerate().all(|(i, &x)| i == x) => Form::AsIs,
                Some(p) => Form::Permuted(p),
            };
            let rank = |v: Option<ValueId>| v.map_or(0, |v| f.ty(v).rank());
            let operands: Vec<(usize, Form)> =
                p.operands.into_iter().map(|(i, p)| (i, to_form(p, rank(node.inputs[i])))).collect();
            let results = p.results.into_iter().zip(&node.outputs).map(|(p, &v)| to_form(p, f.ty(v).rank())).collect();
            if !operands.iter().any(|o| o.1 == Form::Moved) {
                return Err("it moves no operand".into());
            }
            return Ok(Movable { frame, anchor: false, op: p.op, operands, results });
        }
    }
    let aligned = info.filter(|i| i.aligned).ok_or("its index maps do not allow it")?;
    if node.outputs.len() != 1 || !rank4(node.outputs[0]) {
        return Err("its result has not rank 4".into());
    }
    let mut operands = Vec::with_capacity(node.inputs.len());
    for (i, v) in node.inputs.iter().enumerate() {
        operands.push((
            i,
            match v {
                Some(v) if f.ty(*v).numel().is(1) && !rank4(*v) => Form::AsIs,
                Some(v) if rank4(*v) => Form::Moved,
                Some(_) if aligned.reads[i] => Form::Aligned,
                _ => Form::AsIs,
            },
        ));
    }
    Ok(Movable { frame, anchor: false, op: node.op.clone(), operands, results: vec![Form::Moved] })
}
