//! Rewriting one function: insertions, replacements and removals are collected and applied in one sweep, so that a pass
//! stays linear in the number of nodes.

use crate::arena::Id;
use crate::graph::{BlockId, Constant, Function, Module, Node, NodeId, Origins, TensorType, ValueDef, ValueId};
use crate::graph::{learn_dims, substitute_function_dims};
use crate::name::Name;
use crate::ops::control::Const;
use crate::ops::{InferContext, OpRef, OpResult};
use crate::pattern::Subject;
use rustc_hash::{FxHashMap, FxHashSet};

/// Collects changes to `function`, which is taken out of its module while it is rewritten.
///
/// Operands of a node are up to date when [`Rewriter::normalize`] was called on it; replaced values are resolved
/// everywhere by [`Rewriter::finish`].
pub struct Rewriter<'m> {
    /// The module without the function's body.
    pub module: &'m mut Module,
    /// The function.
    pub f: Function,
    replaced: FxHashMap<ValueId, ValueId>,
    before: FxHashMap<NodeId, Vec<NodeId>>,
    at_end: FxHashMap<BlockId, Vec<NodeId>>,
    dead: FxHashSet<NodeId>,
    uses: Vec<u32>,
    changed: bool,
}

impl<'m> Rewriter<'m> {
    /// Takes the function `name` out of the module.
    pub fn new(module: &'m mut Module, name: Name) -> Rewriter<'m> {
        let f = std::mem::replace(&mut module.functions[&name], Function::new(name));
        let uses = f.count_uses();
        Rewriter {
            module,
            f,
            replaced: FxHashMap::default(),
            before: FxHashMap::default(),
            at_end: FxHashMap::default(),
            dead: FxHashSet::default(),
            uses,
            changed: false,
        }
    }
    /// Uses of a value as operand or block result, up to date with all changes.
    pub fn num_uses(&self, v: ValueId) -> u32 {
        self.uses.get(v.index()).copied().unwrap_or(0)
    }
    /// The current value for `v`.
    pub fn resolve(&self, mut v: ValueId) -> ValueId {
        while let Some(&next) = self.replaced.get(&v) {
            v = next;
        }
        v
    }
    /// Brings the operands of `n` up to date. (The use counts already are.)
    pub fn normalize(&mut self, n: NodeId) {
        for i in 0..self.f.nodes[n].inputs.len() {
            if let Some(v) = self.f.nodes[n].inputs[i] {
                self.f.nodes[n].inputs[i] = Some(self.resolve(v));
            }
        }
    }
    /// True when the node was erased.
    pub fn is_dead(&self, n: NodeId) -> bool {
        self.dead.contains(&n)
    }
    /// Adds a node right before `at` (after those already added there).
    ///
    /// # Errors
    /// An error of the op's inference; then nothing is added.
    pub fn add_before(
        &mut self,
        at: NodeId,
        op: impl Into<OpRef>,
        inputs: Vec<Option<ValueId>>,
        name: Name,
        origins: Origins,
    ) -> OpResult<Vec<ValueId>> {
        let op = op.into();
        let types = op.infer(&InferContext::new(self.module, &self.f, &inputs, &[]))?;
        let block = self.f.nodes[at].block;
        let (id, outputs) = self.push(op, inputs, types, name, origins, block);
        self.before.entry(at).or_default().push(id);
        Ok(outputs)
    }
    /// Adds a node at the end of a block, after those already added there.
    ///
    /// # Errors
    /// An error of the op's inference; then nothing is added.
    pub fn add_at_end(
        &mut self,
        block: BlockId,
        op: impl Into<OpRef>,
        inputs: Vec<Option<ValueId>>,
        name: Name,
        origins: Origins,
    ) -> OpResult<Vec<ValueId>> {
        let op = op.into();
        let types = op.infer(&InferContext::new(self.module, &self.f, &inputs, &[]))?;
        let (id, outputs) = self.push(op, inputs, types, name, origins, Some(block));
        self.at_end.entry(block).or_default().push(id);
        Ok(outputs)
    }
    fn push(
        &mut self,
        op: OpRef,
        inputs: Vec<Option<ValueId>>,
        types: Vec<TensorType>,
        name: Name,
        origins: Origins,
        block: Option<BlockId>,
    ) -> (NodeId, Vec<ValueId>) {
        let id = NodeId::from_index(self.f.nodes.len());
        let outputs: Vec<ValueId> = types
            .into_iter()
            .enumerate()
            .map(|(i, ty)| self.f.fresh_value(ty, ValueDef::Result(id, i), None))
            .collect();
        self.uses.resize(self.f.values.len(), 0);
        for v in inputs.iter().flatten() {
            self.uses[v.index()] += 1;
        }
        self.f.nodes.push(Node { op, inputs, outputs: outputs.clone(), regions: vec![], name, origins, block });
        self.changed = true;
        (id, outputs)
    }
    /// Adds a constant and the node that reads it, right before `at`.
    pub fn constant_before(&mut self, at: NodeId, base: &str, c: Constant, origins: Origins) -> ValueId {
        let name = self.module.fresh_name(base);
        let ty = c.ty();
        self.module.constants.insert(name, c);
        let block = self.f.nodes[at].block;
        let (id, outputs) = self.push(OpRef::new(Const { name }), vec![], vec![ty], name, origins, block);
        self.before.entry(at).or_default().push(id);
        outputs[0]
    }
    /// Adds a constant and the node that reads it, at the end of a block.
    pub fn constant_at_end(&mut self, block: BlockId, base: &str, c: Constant, origins: Origins) -> ValueId {
        let name = self.module.fresh_name(base);
        let ty = c.ty();
        self.module.constants.insert(name, c);
        let (id, outputs) = self.push(OpRef::new(Const { name }), vec![], vec![ty], name, origins, Some(block));
        self.at_end.entry(block).or_default().push(id);
        outputs[0]
    }
    /// Adds a node that reads the constant `name` of the module, right before `at`.
    ///
    /// # Errors
    /// When the module has no such constant.
    pub fn const_before(&mut self, at: NodeId, name: Name, ty: TensorType) -> OpResult<ValueId> {
        if !self.module.constants.contains_key(&name) {
            return Err(format!("constant @{name} is not in the module").into());
        }
        let block = self.f.nodes[at].block;
        let (id, outputs) = self.push(OpRef::new(Const { name }), vec![], vec![ty], name, Origins::none(), block);
        self.before.entry(at).or_default().push(id);
        Ok(outputs[0])
    }
    /// Changes op and operands of a node in place; its result types stay.
    pub fn update(&mut self, n: NodeId, op: OpRef, inputs: Vec<Option<ValueId>>) {
        for v in inputs.iter().flatten() {
            self.uses[v.index()] += 1;
        }
        self.drop_operands(n);
        let node = &mut self.f.nodes[n];
        (node.op, node.inputs) = (op, inputs);
        self.changed = true;
    }
    fn drop_operands(&mut self, n: NodeId) {
        for i in 0..self.f.nodes[n].inputs.len() {
            if let Some(v) = self.f.nodes[n].inputs[i] {
                let v = self.resolve(v);
                self.uses[v.index()] = self.uses[v.index()].saturating_sub(1);
            }
        }
    }
    /// Makes every user of `old` use `new`. The name in the source model moves along when `new` has none.
    pub fn replace(&mut self, old: ValueId, new: ValueId) {
        let new = self.resolve(new);
        if old == new {
            return;
        }
        let moved = std::mem::take(&mut self.uses[old.index()]);
        self.uses[new.index()] += moved;
        let is_arg = matches!(self.f.values[new].def, ValueDef::Arg(..));
        if self.f.values[new].name.is_none() && !is_arg {
            self.f.values[new].name = self.f.values[old].name;
        }
        self.replaced.insert(old, new);
        self.changed = true;
    }
    /// Makes `v` the i-th result of a block.
    pub fn set_result(&mut self, block: BlockId, i: usize, v: ValueId) {
        let old = self.resolve(self.f.blocks[block].results[i]);
        self.uses[old.index()] = self.uses[old.index()].saturating_sub(1);
        self.uses[v.index()] += 1;
        self.f.blocks[block].results[i] = v;
        self.changed = true;
    }
    /// Removes a node whose results have no uses left.
    pub fn erase(&mut self, n: NodeId) {
        if self.dead.insert(n) {
            self.drop_operands(n);
            self.changed = true;
        }
    }
    /// Replaces the first result of node `n` by `new`, and removes `n`.
    ///
    /// # Errors
    /// The type of that result, where `new` has another; nothing is changed then.
    pub fn replace_node(&mut self, n: NodeId, new: ValueId) -> Result<(), TensorType> {
        let old = self.f.nodes[n].outputs[0];
        if self.f.ty(new) != self.f.ty(old) {
            return Err(self.f.ty(old).clone());
        }
        self.replace(old, new);
        self.erase(n);
        Ok(())
    }
    /// Replaces a node that owns regions by the nodes of one of them (a region without arguments).
    pub fn splice(&mut self, n: NodeId, region: BlockId) {
        let block_of = self.f.nodes[n].block;
        let results = self.f.blocks[region].results.clone();
        let nodes = std::mem::take(&mut self.f.blocks[region].nodes);
        for &inner in &nodes {
            self.f.nodes[inner].block = block_of;
        }
        self.before.entry(n).or_default().extend(nodes);
        for (old, new) in self.f.nodes[n].outputs.clone().into_iter().zip(results) {
            let new = self.resolve(new);
            // The block's own use of its result ends here.
            self.uses[new.index()] = self.uses[new.index()].saturating_sub(1);
            self.replace(old, new);
        }
        for r in std::mem::take(&mut self.f.nodes[n].regions) {
            let mut blocks = vec![r];
            while let Some(b) = blocks.pop() {
                for x in std::mem::take(&mut self.f.blocks[b].nodes) {
                    blocks.extend(self.f.nodes[x].regions.iter());
                    self.drop_operands(x);
                    self.f.nodes[x].block = None;
                    self.dead.insert(x);
                }
                for v in std::mem::take(&mut self.f.blocks[b].results) {
                    let v = self.resolve(v);
                    if b != region {
                        self.uses[v.index()] = self.uses[v.index()].saturating_sub(1);
                    }
                }
                self.f.blocks[b].owner = None;
            }
        }
        self.erase(n);
    }
    /// Puts a region of a node in its place, and replaces the symbols that the node defined by the sizes that the
    /// region yields.
    pub fn splice_taken(&mut self, n: NodeId, region: usize) {
        let node = &self.f.nodes[n];
        let results = &self.f.blocks[node.regions[region]].results;
        let mut sizes = FxHashMap::default();
        for (&old, &new) in node.outputs.iter().zip(results) {
            learn_dims(&self.f.ty(old).shape, &self.f.ty(new).shape, &mut sizes);
        }
        sizes.retain(|symbol, _| node.op.defined_symbols().contains(symbol));
        self.splice(n, node.regions[region]);
        substitute_function_dims(&mut self.f, &sizes);
    }
    /// Adds origins to a node: it now also computes these source nodes.
    pub fn absorb_origins(&mut self, n: NodeId, from: &Origins) {
        let node = &mut self.f.nodes[n];
        node.origins = node.origins.union(from);
    }
    /// Applies everything and puts the function back; returns whether anything changed.
    pub fn finish(mut self) -> bool {
        if self.changed {
            let map = std::mem::take(&mut self.replaced);
            let resolve = |mut v: ValueId| {
                while let Some(&next) = map.get(&v) {
                    v = next;
                }
                v
            };
            self.f.replace_uses_many(&resolve);
            for b in self.f.blocks.ids().collect::<Vec<_>>() {
                self.rebuild_block(b);
            }
            for &n in &self.dead {
                self.f.nodes[n].block = None;
            }
            let f = &mut self.f;
            f.result_types = f.results().iter().map(|&v| f.ty(v).clone()).collect();
        }
        let name = self.f.name;
        self.module.functions.insert(name, self.f);
        self.changed
    }
    fn rebuild_block(&mut self, b: BlockId) {
        let old = std::mem::take(&mut self.f.blocks[b].nodes);
        let mut new = Vec::with_capacity(old.len());
        for n in old {
            self.place(n, &mut new);
        }
        for n in self.at_end.remove(&b).unwrap_or_default() {
            self.place(n, &mut new);
        }
        self.f.blocks[b].nodes = new;
    }
    fn place(&mut self, n: NodeId, out: &mut Vec<NodeId>) {
        for inner in self.before.remove(&n).unwrap_or_default() {
            self.place(inner, out);
        }
        if !self.dead.contains(&n) {
            out.push(n);
        }
    }
}

impl Subject for Rewriter<'_> {
    fn module(&self) -> &Module {
        self.module
    }
    fn function(&self) -> &Function {
        &self.f
    }
    fn resolve(&self, v: ValueId) -> ValueId {
        Rewriter::resolve(self, v)
    }
    fn num_uses(&self, v: ValueId) -> u32 {
        Rewriter::num_uses(self, v)
    }
}

/// Runs `go` on every graph function that is not a fused group; returns whether anything changed.
pub fn rewrite_functions(module: &mut Module, mut go: impl FnMut(&mut Rewriter<'_>)) -> bool {
    let names: Vec<Name> = module.functions.values().filter(|f| !f.primitive).map(|f| f.name).collect();
    let mut changed = false;
    for name in names {
        let mut r = Rewriter::new(module, name);
        go(&mut r);
        changed |= r.finish();
    }
    changed
}
