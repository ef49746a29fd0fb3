//! Rewriting a block to its chosen layouts: moved nodes are built again, and a value gets at most one transform to each
//! layout, right before its first user there.

use super::choose::root_of;
use super::frames::{Form, Frames, Movable};
use super::{TO_NCHW, TO_NHWC, moves_no_data};
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

/// What the rewrite did.
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
/// When a moved op refuses its operands, which is a bug of its layout rule.
pub fn rewrite_block(
    r: &mut Rewriter<'_>,
    block: BlockId,
    frames: &Frames,
    moved: &FxHashSet<NodeId>,
) -> Result<Done, String> {
    let mut w =
        Rewrite { r, frames, made: FxHashMap::default(), constants: FxHashMap::default(), done: Done::default() };
    let nodes = w.r.f.blocks[block].nodes.clone();
    let mut given: Vec<ValueId> = frames.frame.keys().copied().collect();
    given.sort_unstable();
    for v in given {
        let made_here = w.r.f.def_node(v).is_some_and(|n| w.r.f.nodes[n].block == Some(block));
        if !made_here {
            w.made.insert((v, frames.frame[&v]), v);
        }
    }
    for n in nodes {
        if frames.dissolved.contains(&n) {
            continue;
        }
        match frames.movable.get(&n).filter(|_| moved.contains(&n)) {
            Some(m) => w.move_node(n, m)?,
            None => w.keep_node(n)?,
        }
    }
    for v in w.r.f.blocks[block].results.clone() {
        w.as_is(Place::End(block), v)?;
    }
    for &n in &frames.dissolved {
        if w.r.f.nodes[n].outputs.iter().all(|&v| w.r.num_uses(v) == 0) {
            w.r.erase(n);
        }
    }
    Ok(w.done)
}

/// Where a transform goes.
#[derive(Clone, Copy)]
enum Place {
    Before(NodeId),
    End(BlockId),
}

struct Rewrite<'a, 'm> {
    r: &'a mut Rewriter<'m>,
    frames: &'a Frames,
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
            self.as_is(Place::Before(n), v)?;
        }
        for v in self.r.f.nodes[n].outputs.clone() {
            if let Some(&frame) = self.frames.frame.get(&v) {
                self.made.insert((v, frame), v);
            }
        }
        Ok(())
    }
    /// Makes sure that users who want `v` as it stands find it so.
    fn as_is(&mut self, place: Place, v: ValueId) -> Result<(), String> {
        if let Some(&frame) = self.frames.frame.get(&v) {
            let new = self.in_layout(place, v, frame)?;
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
    fn in_layout(&mut self, place: Place, v: ValueId, layout: u8) -> Result<ValueId, String> {
        let root = root_of(&self.r.f, self.frames, v);
        if let Some(&found) = self.made.get(&(root, layout)) {
            return Ok(found);
        }
        let from = self.made.get(&(root, 1 - layout)).copied().ok_or("a value is used before it is made")?;
        let perm = if layout == 1 { TO_NHWC } else { TO_NCHW };
        let new = self.permute_value(place, from, &perm)?;
        if layout != self.frames.frame[&root] {
            self.name_moved(root, new);
        }
        self.made.insert((root, layout), new);
        Ok(new)
    }
    /// A value in the other layout carries the model's name with a suffix: its shape is not the model's.
    fn name_moved(&mut self, v: ValueId, new: ValueId) {
        let suffix = if self.frames.frame.get(&v) == Some(&0) { "nhwc" } else { "nchw" };
        if let Some(name) = self.r.f.values[v].name {
            self.r.f.values[new].name = Some(Name::new(&format!("{name}@{suffix}")));
        }
    }
    /// `v` transposed by `perm`: a reshape where that keeps the order of the elements.
    fn permute_value(&mut self, place: Place, v: ValueId, perm: &[usize]) -> Result<ValueId, String> {
        let shape = self.r.f.ty(v).shape.clone();
        let source = self.r.f.def_node(v).map(|n| self.r.f.nodes[n].name);
        let source = source.or(self.r.f.values[v].name).map_or("value", |n| n.as_str());
        let (op, name): (OpRef, String) = match moves_no_data(&shape, perm) {
            true => (Reshape::to(permute(&shape, perm)).into(), format!("{source}.reshape")),
            false => {
                self.done.transforms += 1;
                (Transpose { perm: perm.to_vec() }.into(), format!("{source}.transpose"))
            }
        };
        self.add(place, op, v, &name)
    }
    fn add(&mut self, place: Place, op: OpRef, v: ValueId, name: &str) -> Result<ValueId, String> {
        let (inputs, name) = (vec![Some(v)], Name::new(name));
        let made = match place {
            Place::Before(n) => self.r.add_before(n, op, inputs, name, Origins::none()),
            Place::End(b) => self.r.add_at_end(b, op, inputs, name, Origins::none()),
        };
        Ok(made?[0])
    }
    fn move_node(&mut self, n: NodeId, m: &Movable) -> Result<(), String> {
        let node = self.r.f.nodes[n].clone();
        let perm = if m.frame == 0 { TO_NHWC } else { TO_NCHW };
        let mut inputs = Vec::with_capacity(m.operands.len());
        for (i, form) in &m.operands {
            let Some(v) = node.inputs[*i] else {
                inputs.push(None);
                continue;
            };
            inputs.push(Some(match form {
                Form::AsIs => {
                    self.as_is(Place::Before(n), v)?;
                    self.r.resolve(v)
                }
                Form::Permuted(p) => {
                    self.as_is(Place::Before(n), v)?;
                    self.operand(n, self.r.resolve(v), p)?
                }
                Form::Aligned => {
                    let rank4 = self.with_leading_ones(n, v)?;
                    self.operand(n, rank4, &perm)?
                }
                Form::Moved if self.r.f.def_op::<Const>(v).is_some() => self.operand(n, v, &perm)?,
                Form::Moved => self.in_layout(Place::Before(n), v, m.other())?,
            }));
        }
        let outputs = self
            .r
            .add_before(n, m.op.clone(), inputs, node.name, node.origins.clone())
            .map_err(|e| format!("{} `{}` in the other layout: {e}", node.op.name(), node.name))?;
        for ((form, &old), &new) in m.results.iter().zip(&node.outputs).zip(&outputs) {
            if *form == Form::Moved {
                self.name_moved(old, new);
                self.made.insert((old, m.other()), new);
                continue;
            }
            // The old value under another id, in whatever layout it had.
            let same = match form {
                Form::Permuted(p) => self.permute_value(Place::Before(n), new, &invert(p))?,
                _ => new,
            };
            self.r.replace(old, same);
            if let Some(&frame) = self.frames.frame.get(&old) {
                self.made.insert((old, frame), same);
            }
        }
        self.r.erase(n);
        Ok(())
    }
    /// An operand transposed by `perm`: a constant at compile time.
    fn operand(&mut self, n: NodeId, v: ValueId, perm: &[usize]) -> Result<ValueId, String> {
        let Some(name) = self.r.f.def_op::<Const>(v).map(|c| c.1.name) else {
            return self.permute_value(Place::Before(n), v, perm);
        };
        let shape = const_dims(&permute(&self.r.f.ty(v).shape, perm)).ok_or("a constant has open dimensions")?;
        let keeps_order = moves_no_data(&self.r.f.ty(v).shape, perm);
        let op = (!keeps_order).then(|| Transpose { perm: perm.to_vec() }.into());
        self.constant(n, name, perm.to_vec(), op, shape)
    }
    /// `v` with leading dimensions of 1 up to rank 4.
    fn with_leading_ones(&mut self, n: NodeId, v: ValueId) -> Result<ValueId, String> {
        self.as_is(Place::Before(n), v)?;
        let v = self.r.resolve(v);
        let old = self.r.f.ty(v).shape.clone();
        let shape: Vec<Int> = std::iter::repeat_n(Int::new(1), 4 - old.len()).chain(old).collect();
        let op: OpRef = Reshape::to(shape.clone()).into();
        match (self.r.f.def_op::<Const>(v).map(|c| c.1.name), const_dims(&shape)) {
            (Some(name), Some(shape)) => self.constant(n, name, vec![], None, shape),
            _ => self.add(Place::Before(n), op, v, "aligned"),
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
            return self.r.const_before(n, made, ty);
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
        self.r.const_before(n, made, ty)
    }
}
