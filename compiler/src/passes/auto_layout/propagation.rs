//! Layout propagation: the source layout of each value, and the converted form of each node that can be converted.
//!
//! Layouts are the two colours of a [`Scheme`]. An anchor says the layout of its data; from there source layouts spread
//! through every op that has a converted form. A transpose between the two layouts makes the same tensor in the other
//! one: it is removed, and its users simply want the other layout. A value that depends only on constants has no source
//! layout: it is transformed at compile time, as its users want it.

use super::scheme::{Scheme, TO_NCHW, TO_NHWC};
use crate::graph::{BlockId, Function, Module, NodeId, TensorType, ValueDef, ValueId};
use crate::int::Int;
use crate::ops::control::Const;
use crate::ops::transpose::Transpose;
use crate::ops::{InferContext, OpRef, PackedForm};
use crate::passes::fuse_ops::captures;
use crate::passes::fusion_kind::NodeInfo;
use rustc_hash::{FxHashMap, FxHashSet};

/// How an operand of a converted node is needed, or how a result comes out.
#[derive(Clone, PartialEq, Debug)]
pub enum Form {
    /// As it stands.
    AsIs,
    /// In the other layout.
    Converted,
    /// An operand of lower rank that broadcasts: with leading dimensions of 1, in the other layout.
    Unsqueezed,
    /// Permuted in another way.
    Permuted(Vec<usize>),
    /// The same elements in order, under another shape.
    Shaped(Vec<Int>),
}

/// A node that can run in the other layout.
#[derive(Clone, Debug)]
pub struct Convertible {
    /// The source layout of its data.
    pub source_layout: u8,
    /// It has a native layout (a convolution, a pool).
    pub anchor: bool,
    /// The op in the other layout.
    pub op: OpRef,
    /// Operands of that op: the old operand, and how it is needed.
    pub operands: Vec<(usize, Form)>,
    /// How the results come out.
    pub results: Vec<Form>,
}
impl Convertible {
    /// How operand `i` is needed.
    pub fn operand(&self, i: usize) -> Option<&Form> {
        self.operands.iter().find(|o| o.0 == i).map(|o| &o.1)
    }
    /// The layout of the converted form.
    pub fn other(&self) -> u8 {
        1 - self.source_layout
    }
}

/// Everything that can be converted in one block.
#[derive(Debug, Default)]
pub struct Propagation {
    /// Source layouts of values.
    pub source_layout: FxHashMap<ValueId, u8>,
    /// Nodes that can be converted.
    pub convertible: FxHashMap<NodeId, Convertible>,
    /// Transposes between the two layouts.
    pub dissolved: FxHashSet<NodeId>,
    /// Nodes at the edge that cannot move, and why.
    pub pinned: Vec<(NodeId, String)>,
    /// Values that depend on constants only, those of the blocks around this one included.
    pub constants: FxHashSet<ValueId>,
    /// Users of each value in the block, with the operand's position; `usize::MAX` for a use in a region.
    pub users: FxHashMap<ValueId, Vec<(NodeId, usize)>>,
}

/// Finds the source layouts of a block. `info` describes its nodes; `dissolve` lets transposes vanish.
pub fn propagate_layouts(
    module: &Module,
    f: &Function,
    block: BlockId,
    info: &FxHashMap<NodeId, NodeInfo>,
    scheme: Scheme,
    dissolve: bool,
) -> Propagation {
    let dissolve = dissolve && !scheme.is_packed();
    let mut search = Search {
        module,
        f,
        block,
        info,
        scheme,
        dissolve,
        out: Propagation::default(),
        barriers: FxHashSet::default(),
    };
    search.find_users();
    search.find_constants();
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
    scheme: Scheme,
    dissolve: bool,
    out: Propagation,
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
    fn find_constants(&mut self) {
        // A branch or body may read constants of the blocks around it.
        let known = self.out.users.keys().filter(|&&v| self.f.def_op::<Const>(v).is_some());
        self.out.constants = known.copied().collect();
        for &n in &self.f.blocks[self.block].nodes {
            let node = &self.f.nodes[n];
            let from_constants = |&v: &ValueId| self.is_const(v);
            let all = node.regions.is_empty() && node.inputs.iter().flatten().all(from_constants);
            if node.op.is::<Const>() || (all && !node.inputs.is_empty() && !node.op.effects().stateful) {
                self.out.constants.extend(&node.outputs);
            }
        }
    }
    fn is_const(&self, v: ValueId) -> bool {
        self.out.constants.contains(&v)
    }
    /// Anchors give their data the layout that they compute in.
    fn seeds(&mut self) -> Vec<ValueId> {
        let mut queue = Vec::new();
        for &n in &self.f.blocks[self.block].nodes {
            let Some(rule) = self.f.nodes[n].op.layout() else { continue };
            let Some(source_layout) = self.scheme.colour(rule.data_layout()) else {
                self.barriers.insert(n);
                continue;
            };
            self.try_node(n, source_layout, &mut queue);
        }
        queue
    }
    fn assign(&mut self, v: ValueId, source_layout: u8, queue: &mut Vec<ValueId>) {
        let fits = self.f.ty(v).rank() == self.scheme.rank(source_layout);
        if fits && !self.is_const(v) && self.out.source_layout.insert(v, source_layout).is_none() {
            queue.push(v);
        }
    }
    fn spread(&mut self, v: ValueId, queue: &mut Vec<ValueId>) {
        let source_layout = self.out.source_layout[&v];
        let maker = match self.f.values[v].def {
            ValueDef::Result(n, _) if self.f.nodes[n].block == Some(self.block) => Some(n),
            _ => None,
        };
        let users = self.out.users.get(&v).cloned().unwrap_or_default();
        for n in maker.into_iter().chain(users.into_iter().filter(|u| u.1 != usize::MAX).map(|u| u.0)) {
            match self.between(n) {
                Some((x, y, from, to)) if self.dissolve => {
                    let (other, wanted, fits) =
                        if v == x { (y, to, source_layout == from) } else { (x, from, source_layout == to) };
                    if fits && self.out.source_layout.get(&other).is_none_or(|&o| o == wanted) {
                        self.assign(other, wanted, queue);
                    }
                }
                Some(_) => {}
                None => self.try_node(n, source_layout, queue),
            }
        }
    }
    /// A transpose between the layouts: operand, result, and their source layouts.
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
                && self.out.source_layout.get(&x) == Some(&from)
                && self.out.source_layout.get(&y) == Some(&to)
            {
                self.out.dissolved.insert(n);
            }
        }
    }
    /// Gives a node its converted form, when all data that it moves agree on the source layout.
    fn try_node(&mut self, n: NodeId, source_layout: u8, queue: &mut Vec<ValueId>) {
        if self.out.convertible.contains_key(&n) || self.barriers.contains(&n) {
            return;
        }
        let node = &self.f.nodes[n];
        if node.outputs.iter().any(|&v| self.is_const(v)) {
            self.barriers.insert(n);
            return;
        }
        let form = Former { module: self.module, f: self.f, scheme: self.scheme, source_layout, n };
        let convertible = match form.converted(self.info.get(&n)) {
            Ok(m) => m,
            Err(why) => {
                self.barriers.insert(n);
                self.out.pinned.push((n, why));
                return;
            }
        };
        let data = convertible.operands.iter().filter(|o| o.1 == Form::Converted).filter_map(|o| node.inputs[o.0]);
        let results = node.outputs.iter().zip(&convertible.results).filter(|r| *r.1 == Form::Converted).map(|r| *r.0);
        let converted: Vec<ValueId> = data.chain(results).filter(|&v| !self.is_const(v)).collect();
        if converted.iter().any(|v| self.out.source_layout.get(v).is_some_and(|&o| o != source_layout)) {
            self.barriers.insert(n);
            self.out.pinned.push((n, "its data stand in two layouts".into()));
            return;
        }
        self.out.convertible.insert(n, convertible);
        for v in converted {
            self.assign(v, source_layout, queue);
        }
    }
}

/// Finds the form of node `n` on data in the other layout than `source_layout`.
struct Former<'a> {
    module: &'a Module,
    f: &'a Function,
    scheme: Scheme,
    source_layout: u8,
    n: NodeId,
}

impl Former<'_> {
    fn converted(&self, info: Option<&NodeInfo>) -> Result<Convertible, String> {
        let node = &self.f.nodes[self.n];
        if !node.regions.is_empty() || node.op.effects().stateful || node.op.is::<Const>() {
            return Err("it has regions or effects".into());
        }
        let m = match self.by_rule() {
            Some(found) => found?,
            None => match self.by_axes() {
                Some(found) => found?,
                None => self.by_index_maps(info)?,
            },
        };
        let data = m.operands.iter().filter(|o| o.1 == Form::Converted).filter_map(|o| node.inputs[o.0]);
        let results = m.results.iter().zip(&node.outputs).filter(|r| *r.0 == Form::Converted).map(|r| *r.1);
        for v in data.chain(results) {
            self.scheme.converted(self.f.ty(v), m.other())?;
        }
        Ok(m)
    }
    fn convertible(&self, op: OpRef, operands: Vec<(usize, Form)>, results: Vec<Form>) -> Convertible {
        Convertible { source_layout: self.source_layout, anchor: false, op, operands, results }
    }
    fn is_data(&self, v: ValueId) -> bool {
        self.f.ty(v).rank() == self.scheme.rank(self.source_layout)
    }
    /// An op with a native layout says what it needs.
    fn by_rule(&self) -> Option<Result<Convertible, String>> {
        let node = &self.f.nodes[self.n];
        let rule = node.op.layout()?;
        if self.scheme.colour(rule.data_layout()) != Some(self.source_layout) {
            return Some(Err(format!("it computes in {}", rule.data_layout().title())));
        }
        let (data, results) = (rule.operands_to_convert(), rule.results_to_convert());
        let converted =
            data.iter().filter_map(|&i| *node.inputs.get(i)?).chain(results.iter().map(|&i| node.outputs[i]));
        if let Some(v) = converted.into_iter().find(|&v| !self.is_data(v)) {
            let (found, wanted) = (self.f.ty(v).rank(), self.scheme.rank(self.source_layout));
            return Some(Err(format!("its data have rank {found}, not {wanted}")));
        }
        let cx = InferContext::new(self.module, self.f, &node.inputs, &node.regions);
        let form = |moves: bool| if moves { Form::Converted } else { Form::AsIs };
        let operands = (0..node.inputs.len()).map(|i| (i, form(data.contains(&i)))).collect();
        let results = (0..node.outputs.len()).map(|i| form(results.contains(&i))).collect();
        let op = rule.in_layout(self.scheme.layout(1 - self.source_layout), &cx);
        Some(op.map_err(String::from).map(|op| Convertible { anchor: true, ..self.convertible(op, operands, results) }))
    }
    /// An op that carries axes says how they move.
    fn by_axes(&self) -> Option<Result<Convertible, String>> {
        let node = &self.f.nodes[self.n];
        let first = node.inputs.first().copied().flatten();
        if !first.is_some_and(|v| self.is_data(v)) {
            return None;
        }
        let cx = InferContext::new(self.module, self.f, &node.inputs, &node.regions);
        let Some(perm) = self.scheme.perm(1 - self.source_layout) else {
            let packed = match node.op.packed(self.scheme.other, &cx) {
                Some(Ok(p)) => p,
                Some(Err(why)) => return Some(Err(why.message)),
                // Its attributes count axes, of which packed data have more.
                None if node.op.permuted(&TO_NHWC, &cx).is_some() => return Some(Err("it has no packed form".into())),
                None => return None,
            };
            let form = |p: PackedForm| match p {
                PackedForm::AsIs => Form::AsIs,
                PackedForm::Packed => Form::Converted,
                PackedForm::Shaped(s) => Form::Shaped(s),
            };
            let operands = packed.operands.into_iter().map(|(i, p)| (i, form(p))).collect();
            return Some(Ok(self.convertible(packed.op, operands, packed.results.into_iter().map(form).collect())));
        };
        let permuted = node.op.permuted(&perm, &cx)?;
        let to_form = |p: Option<Vec<usize>>, rank: usize| match p {
            None => Form::AsIs,
            Some(p) if p == perm && rank == 4 => Form::Converted,
            Some(p) if p.iter().enumerate().all(|(i, &x)| i == x) => Form::AsIs,
            Some(p) => Form::Permuted(p),
        };
        let rank = |v: Option<ValueId>| v.map_or(0, |v| self.f.ty(v).rank());
        let operands: Vec<(usize, Form)> =
            permuted.operands.into_iter().map(|(i, p)| (i, to_form(p, rank(node.inputs[i])))).collect();
        let results = permuted.results.into_iter().zip(&node.outputs);
        let results = results.map(|(p, &v)| to_form(p, self.f.ty(v).rank())).collect();
        if !operands.iter().any(|o| o.1 == Form::Converted) {
            return Some(Err("it moves no operand".into()));
        }
        Some(Ok(self.convertible(permuted.op, operands, results)))
    }
    /// An op that reads every operand at the result's index, with broadcasting, is the same under any order of axes.
    fn by_index_maps(&self, info: Option<&NodeInfo>) -> Result<Convertible, String> {
        let node = &self.f.nodes[self.n];
        let agnostic = info.filter(|i| i.layout_agnostic).ok_or("its index maps do not allow it")?;
        let [result] = node.outputs[..] else { return Err("it has several results".into()) };
        if !self.is_data(result) {
            let (found, wanted) = (self.f.ty(result).rank(), self.scheme.rank(self.source_layout));
            return Err(format!("its result has rank {found}, not {wanted}"));
        }
        let form = |(i, v): (usize, &Option<ValueId>)| match v {
            Some(v) if self.f.ty(*v).numel().is(1) && !self.is_data(*v) => (i, Form::AsIs),
            Some(v) if self.is_data(*v) || agnostic.reads[i] => (i, self.broadcast_form(*v)),
            _ => (i, Form::AsIs),
        };
        let operands: Vec<(usize, Form)> = node.inputs.iter().enumerate().map(form).collect();
        self.check_inference(&operands)?;
        Ok(self.convertible(node.op.clone(), operands, vec![Form::Converted]))
    }
    /// Refuses an op whose attributes hold shapes: on converted operands it would give another result than the
    /// converted one.
    fn check_inference(&self, operands: &[(usize, Form)]) -> Result<(), String> {
        let node = &self.f.nodes[self.n];
        let to = 1 - self.source_layout;
        let mut scratch = Function::new("scratch");
        let mut inputs = vec![None; node.inputs.len()];
        for (i, form) in operands {
            let Some(v) = node.inputs[*i] else { continue };
            let ty = self.f.ty(v);
            let converted = match form {
                Form::Shaped(shape) => TensorType::new(ty.dtype, shape.clone()),
                Form::Converted => self.scheme.converted(ty, to)?,
                Form::Unsqueezed => self.scheme.converted(&unsqueezed(ty, self.scheme.rank(self.source_layout)), to)?,
                Form::AsIs | Form::Permuted(_) => ty.clone(),
            };
            inputs[*i] = Some(scratch.fresh_value(converted, ValueDef::Arg(scratch.body, *i), None));
        }
        let module = Module::new("main");
        let types = node.op.infer(&InferContext::new(&module, &scratch, &inputs, &[]))?;
        let want = self.scheme.converted(self.f.ty(node.outputs[0]), to)?;
        if types == [want] { Ok(()) } else { Err("its attributes hold shapes".into()) }
    }
    /// An operand that is broadcast to the result.
    fn broadcast_form(&self, v: ValueId) -> Form {
        let ty = self.f.ty(v);
        let rank = self.scheme.rank(self.source_layout);
        let shape = unsqueezed(ty, rank).shape;
        if self.scheme.is_packed() && self.source_layout == 0 && shape[1].is(1) {
            // The same for every channel: so it is for the channels of a group.
            return Form::Shaped([shape, vec![Int::new(1)]].concat());
        }
        if ty.rank() == rank { Form::Converted } else { Form::Unsqueezed }
    }
}

/// A type with leading dimensions of 1 up to `rank`.
pub fn unsqueezed(ty: &TensorType, rank: usize) -> TensorType {
    let ones = std::iter::repeat_n(Int::new(1), rank.saturating_sub(ty.rank()));
    TensorType::new(ty.dtype, ones.chain(ty.shape.iter().cloned()).collect())
}
