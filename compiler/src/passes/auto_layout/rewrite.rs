//! Rewrites a block to the chosen layouts: converted nodes are built again, and a value gets at most one transform to
//! each layout, right before its first user in that layout.

use super::choose::root_of;
use super::propagation::{Convertible, Form, Propagation, unsqueezed};
use super::scheme::{Scheme, moves_no_data};
use crate::graph::{BlockId, Constant, NodeId, Origins, ValueId};
use crate::int::{Int, const_dims};
use crate::name::Name;
use crate::ops::OpRef;
use crate::ops::control::Const;
use crate::ops::permute::{invert, permute};
use crate::ops::reshape::Reshape;
use crate::ops::transpose::Transpose;
use crate::passes::fold_constants::folded_constant;
use crate::passes::rewriter::Rewriter;
use rustc_hash::{FxHashMap, FxHashSet};

/// Statistics of the rewrite.
#[derive(Default)]
pub struct Done {
    /// Transposes of activations that were inserted.
    pub transforms: usize,
    /// Constants that were laid out again at compile time.
    pub constants: usize,
}

/// Rewrites the block.
///
/// # Errors
/// When a converted op refuses its operands, which is a bug of its layout rule.
pub fn rewrite_block(
    r: &mut Rewriter<'_>,
    block: BlockId,
    propagation: &Propagation,
    scheme: Scheme,
    converted: &FxHashSet<NodeId>,
) -> Result<Done, String> {
    let mut w = Rewrite {
        r,
        propagation,
        scheme,
        made: FxHashMap::default(),
        constants: FxHashMap::default(),
        done: Done::default(),
    };
    let nodes = w.r.f.blocks[block].nodes.clone();
    let mut given: Vec<ValueId> = propagation.source_layout.keys().copied().collect();
    given.sort_unstable();
    for v in given {
        let made_here = w.r.f.def_node(v).is_some_and(|n| w.r.f.nodes[n].block == Some(block));
        if !made_here {
            w.made.insert((v, propagation.source_layout[&v]), v);
        }
    }
    for n in nodes {
        if propagation.dissolved.contains(&n) {
            continue;
        }
        match propagation.convertible.get(&n).filter(|_| converted.contains(&n)) {
            Some(m) => w.move_node(n, m)?,
            None => w.keep_node(n)?,
        }
    }
    for v in w.r.f.blocks[block].results.clone() {
        w.as_is(InsertionPoint::End(block), v)?;
    }
    for &n in &propagation.dissolved {
        if w.r.f.nodes[n].outputs.iter().all(|&v| w.r.num_uses(v) == 0) {
            w.r.erase(n);
        }
    }
    Ok(w.done)
}

/// Where a transform goes.
#[derive(Clone, Copy)]
enum InsertionPoint {
    Before(NodeId),
    End(BlockId),
}

struct Rewrite<'a, 'm> {
    r: &'a mut Rewriter<'m>,
    propagation: &'a Propagation,
    scheme: Scheme,
    /// Each tensor in the layouts that exist so far.
    made: FxHashMap<(ValueId, u8), ValueId>,
    /// Constants that were laid out again, by permutation.
    constants: FxHashMap<(Name, Vec<usize>), Name>,
    done: Done,
}

impl Rewrite<'_, '_> {
    fn keep_node(&mut self, n: NodeId) -> Result<(), String> {
        let node = &self.r.f.nodes[n];
        let mut used: Vec<ValueId> = node.inputs.iter().flatten().copied().collect();
        used.extend(node.regions.iter().flat_map(|&x| crate::passes::fuse_ops::captures(&self.r.f, x)));
        for v in used {
            self.as_is(InsertionPoint::Before(n), v)?;
        }
        for v in self.r.f.nodes[n].outputs.clone() {
            if let Some(&source_layout) = self.propagation.source_layout.get(&v) {
                self.made.insert((v, source_layout), v);
            }
        }
        Ok(())
    }
    /// Makes `v` available in its source layout for the users that want it.
    fn as_is(&mut self, point: InsertionPoint, v: ValueId) -> Result<(), String> {
        if let Some(&source_layout) = self.propagation.source_layout.get(&v) {
            let new = self.in_layout(point, v, source_layout)?;
            if self.r.resolve(v) != new {
                // The model's own name is better than one with a suffix.
                let suffixed = self.r.f.values[new].name.is_some_and(|n| n.as_str().contains('@'));
                if suffixed && self.r.f.values[v].name.is_some() {
                    self.r.f.values[new].name = None;
                }
                self.r.replace(v, new);
            }
        }
        Ok(())
    }
    /// The tensor of `v` in `layout`.
    fn in_layout(&mut self, point: InsertionPoint, v: ValueId, layout: u8) -> Result<ValueId, String> {
        let root = root_of(&self.r.f, self.propagation, v);
        if let Some(&found) = self.made.get(&(root, layout)) {
            return Ok(found);
        }
        let from = self.made.get(&(root, 1 - layout)).copied().ok_or("a value is used before it is made")?;
        let new = self.change(point, from, layout)?;
        if layout != self.propagation.source_layout[&root] {
            self.name_converted(root, new);
        }
        self.made.insert((root, layout), new);
        Ok(new)
    }
    /// A value in the other layout carries the model's name with a suffix: its shape is not the model's.
    fn name_converted(&mut self, v: ValueId, new: ValueId) {
        let other = self.propagation.source_layout.get(&v).map_or(0, |&source_layout| 1 - source_layout);
        let suffix = self.scheme.layout(other).name();
        if let Some(name) = self.r.f.values[v].name {
            self.r.f.values[new].name = Some(Name::new(&format!("{name}@{suffix}")));
        }
    }
    /// `v` in colour `to`.
    fn change(&mut self, point: InsertionPoint, v: ValueId, to: u8) -> Result<ValueId, String> {
        if let Some(perm) = self.scheme.perm(to) {
            return self.permute_value(point, v, &perm);
        }
        let ty = self.r.f.ty(v).clone();
        if self.scheme.keeps_order(&ty.shape, to) {
            let shape = self.scheme.converted(&ty, to)?.shape;
            return self.reshape_value(point, v, shape);
        }
        self.done.transforms += usize::from(!self.propagation.constants.contains(&v));
        let name = format!("{}.{}", self.source(v), self.scheme.layout(to).name());
        self.add(point, self.scheme.transform(to), v, &name)
    }
    /// `v` transposed by `perm`: a reshape where that keeps the order of the elements.
    fn permute_value(&mut self, point: InsertionPoint, v: ValueId, perm: &[usize]) -> Result<ValueId, String> {
        let shape = self.r.f.ty(v).shape.clone();
        if moves_no_data(&shape, perm) {
            return self.reshape_value(point, v, permute(&shape, perm));
        }
        self.done.transforms += usize::from(!self.propagation.constants.contains(&v));
        let name = format!("{}.transpose", self.source(v));
        self.add(point, Transpose { perm: perm.to_vec() }.into(), v, &name)
    }
    fn reshape_value(&mut self, point: InsertionPoint, v: ValueId, shape: Vec<Int>) -> Result<ValueId, String> {
        let name = format!("{}.reshape", self.source(v));
        self.add(point, Reshape::to(shape).into(), v, &name)
    }
    /// A name for what is made of `v`.
    fn source(&self, v: ValueId) -> &'static str {
        let node = self.r.f.def_node(v).map(|n| self.r.f.nodes[n].name);
        node.or(self.r.f.values[v].name).map_or("value", |n| n.as_str())
    }
    fn add(&mut self, point: InsertionPoint, op: OpRef, v: ValueId, name: &str) -> Result<ValueId, String> {
        let (inputs, name) = (vec![Some(v)], Name::new(name));
        // It serves the node that reads it; at the end of a block, the one that made the value.
        let made = match point {
            InsertionPoint::Before(n) => {
                let origins = self.r.f.nodes[n].origins.serving();
                self.r.add_before(n, op, inputs, name, origins)
            }
            InsertionPoint::End(b) => {
                let origins = self.r.f.def_node(v).map_or(Origins::none(), |d| self.r.f.nodes[d].origins.serving());
                self.r.add_at_end(b, op, inputs, name, origins)
            }
        };
        Ok(made?[0])
    }
    fn move_node(&mut self, n: NodeId, m: &Convertible) -> Result<(), String> {
        let node = self.r.f.nodes[n].clone();
        let point = InsertionPoint::Before(n);
        let mut inputs = Vec::with_capacity(m.operands.len());
        for (i, form) in &m.operands {
            let Some(v) = node.inputs[*i] else {
                inputs.push(None);
                continue;
            };
            inputs.push(Some(match form {
                Form::AsIs => {
                    self.as_is(point, v)?;
                    self.r.resolve(v)
                }
                Form::Permuted(p) => {
                    self.as_is(point, v)?;
                    self.operand(n, self.r.resolve(v), p)?
                }
                Form::Shaped(shape) => self.shaped(n, v, shape.clone())?,
                Form::Unsqueezed => {
                    let shape = unsqueezed(self.r.f.ty(v), self.scheme.rank(m.source_layout)).shape;
                    let unsqueezed = self.shaped(n, v, shape)?;
                    self.converted_constant(n, unsqueezed, m.other())?
                }
                Form::Converted if self.propagation.constants.contains(&v) => {
                    self.converted_constant(n, v, m.other())?
                }
                Form::Converted => self.in_layout(point, v, m.other())?,
            }));
        }
        let outputs = self
            .r
            .add_before(n, m.op.clone(), inputs, node.name, node.origins.clone())
            .map_err(|e| format!("{} `{}` in the other layout: {e}", node.op.name(), node.name))?;
        for ((form, &old), &new) in m.results.iter().zip(&node.outputs).zip(&outputs) {
            let as_it_stood = match form {
                Form::Converted => {
                    self.name_converted(old, new);
                    self.made.insert((old, m.other()), new);
                    continue;
                }
                Form::Permuted(p) => self.permute_value(point, new, &invert(p))?,
                Form::Shaped(_) => self.reshape_value(point, new, self.r.f.ty(old).shape.clone())?,
                Form::AsIs | Form::Unsqueezed => new,
            };
            self.r.replace(old, as_it_stood);
            if let Some(&source_layout) = self.propagation.source_layout.get(&old) {
                self.made.insert((old, source_layout), as_it_stood);
            }
        }
        self.r.erase(n);
        Ok(())
    }
    /// An operand transposed by `perm`: a constant at compile time.
    fn operand(&mut self, n: NodeId, v: ValueId, perm: &[usize]) -> Result<ValueId, String> {
        let Some(name) = self.r.f.def_op::<Const>(v).map(|c| c.1.name) else {
            return self.permute_value(InsertionPoint::Before(n), v, perm);
        };
        let shape = const_dims(&permute(&self.r.f.ty(v).shape, perm)).ok_or("a constant has open dimensions")?;
        let keeps_order = moves_no_data(&self.r.f.ty(v).shape, perm);
        let op = (!keeps_order).then(|| Transpose { perm: perm.to_vec() }.into());
        self.constant(n, name, perm.to_vec(), op, shape)
    }
    /// An operand that is not data with a source layout (a constant, or one that was unsqueezed) in colour `to`; the
    /// same operand only once.
    fn converted_constant(&mut self, n: NodeId, v: ValueId, to: u8) -> Result<ValueId, String> {
        let plain = self.r.f.def_op::<Const>(v).is_some();
        if let Some(perm) = self.scheme.perm(to).filter(|_| plain) {
            return self.operand(n, v, &perm);
        }
        if let Some(&found) = self.made.get(&(v, to)) {
            return Ok(found);
        }
        let new = self.change(InsertionPoint::Before(n), v, to)?;
        self.done.constants += usize::from(plain);
        self.made.insert((v, to), new);
        Ok(new)
    }
    /// `v` under another shape.
    fn shaped(&mut self, n: NodeId, v: ValueId, shape: Vec<Int>) -> Result<ValueId, String> {
        self.as_is(InsertionPoint::Before(n), v)?;
        let v = self.r.resolve(v);
        match (self.r.f.def_op::<Const>(v).map(|c| c.1.name), const_dims(&shape)) {
            (Some(name), Some(shape)) => {
                // No permutation begins like this.
                let key = [&[usize::MAX], &shape[..]].concat();
                self.constant(n, name, key, None, shape)
            }
            _ => self.add(InsertionPoint::Before(n), Reshape::to(shape).into(), v, "unsqueezed"),
        }
    }
    /// A new constant made by `op`, or the same data under another shape; each only once.
    fn constant(
        &mut self,
        n: NodeId,
        name: Name,
        key: Vec<usize>,
        op: Option<OpRef>,
        shape: Vec<usize>,
    ) -> Result<ValueId, String> {
        if let Some(&made) = self.constants.get(&(name, key.clone())) {
            let ty = self.r.module.constants[&made].ty();
            return Ok(self.r.const_before(n, made, ty)?);
        }
        let old: &Constant = self.r.module.constants.get(&name).ok_or("a constant is missing")?;
        let new = match op {
            None => Constant { shape, ..old.clone() },
            Some(op) => folded_constant(op, vec![Some(old.clone())], old.dtype, shape)?,
        };
        self.done.constants += 1;
        let ty = new.ty();
        let made = self.r.module.fresh_name(&format!("{name}.layout"));
        self.r.module.constants.insert(made, new);
        self.constants.insert((name, key), made);
        Ok(self.r.const_before(n, made, ty)?)
    }
}
