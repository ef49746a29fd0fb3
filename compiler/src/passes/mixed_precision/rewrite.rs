//! Changing types in place: operands are cast where they differ, constants are converted, results follow.

use super::decide::Choice;
use crate::dtype::DType;
use crate::graph::{BlockId, NodeId, Origins, ValueId};
use crate::int::const_dims;
use crate::name::Name;
use crate::ops::cast::Cast;
use crate::ops::control::Const;
use crate::ops::{InferContext, OpRef};
use crate::passes::fold_constants::folded_constant;
use crate::passes::rewriter::Rewriter;
use rustc_hash::{FxHashMap, FxHashSet};

/// Statistics of the rewrite.
#[derive(Default)]
pub(super) struct Done {
    /// Nodes in f16.
    pub halves: usize,
    nodes: usize,
    casts: usize,
    constants: usize,
    constant_bytes: usize,
}
impl Done {
    pub(super) fn summary(&self, function: Name) -> String {
        format!(
            "@{function}: {} of {} float nodes in f16, {} casts, {} constants of {} bytes converted",
            self.halves, self.nodes, self.casts, self.constants, self.constant_bytes
        )
    }
}

struct Rewrite<'a, 'm> {
    r: &'a mut Rewriter<'m>,
    /// Values that were f32 when the pass began.
    single: FxHashSet<ValueId>,
    /// Casts by block, value and type.
    made: FxHashMap<(BlockId, ValueId, DType), ValueId>,
    /// The value that a cast of the model or of this pass was made of.
    source: FxHashMap<ValueId, ValueId>,
    /// f16 forms of the module's constants.
    constants: &'a mut FxHashMap<Name, Name>,
    done: Done,
}

/// Rewrites the function of `r` by `choices`. `constants` are the f16 forms made so far in the module.
///
/// # Errors
/// When an op refuses operands that it took when it was asked: a bug.
pub(super) fn rewrite(
    r: &mut Rewriter<'_>,
    choices: &FxHashMap<NodeId, Choice>,
    constants: &mut FxHashMap<Name, Name>,
) -> Result<Done, String> {
    let single = r.f.values.ids().filter(|&v| r.f.ty(v).dtype == DType::F32).collect();
    let mut w = Rewrite {
        r,
        single,
        made: FxHashMap::default(),
        source: FxHashMap::default(),
        constants,
        done: Done::default(),
    };
    w.done.nodes = choices.len();
    if !choices.values().any(|c| matches!(c, Choice::Half { .. })) {
        return Ok(w.done);
    }
    for n in w.r.f.walk() {
        w.node(n, choices.get(&n))?;
    }
    let blocks: Vec<BlockId> = w.r.f.blocks.ids().collect();
    for b in blocks {
        w.block_results(b)?;
    }
    Ok(w.done)
}

impl Rewrite<'_, '_> {
    fn node(&mut self, n: NodeId, choice: Option<&Choice>) -> Result<(), String> {
        self.r.normalize(n);
        if let Some(cast) = self.r.f.nodes[n].op.downcast::<Cast>() {
            let cast = cast.clone();
            self.model_cast(n, &cast);
            return Ok(());
        }
        let (want, stay): (DType, &[usize]) = match choice {
            Some(Choice::Half { single, .. }) => (DType::F16, single),
            Some(Choice::Full { .. } | Choice::ReadsInputs) => (DType::F32, &[]),
            None => return Ok(()),
        };
        let node = self.r.f.nodes[n].clone();
        let mut inputs = node.inputs.clone();
        for (i, v) in inputs.iter_mut().enumerate() {
            let Some(v) = v else { continue };
            if self.single.contains(v) && !stay.contains(&i) {
                *v = self.operand(n, *v, want)?;
            }
        }
        if inputs != node.inputs {
            self.r.update(n, node.op.clone(), inputs.clone());
        }
        if want == DType::F16 {
            self.done.halves += 1;
            let types = node.op.infer(&InferContext::new(self.r.module, &self.r.f, &inputs, &node.regions));
            let types = types.map_err(|e| format!("{} `{}` in f16: {e}", node.op.name(), node.name))?;
            for (&v, ty) in node.outputs.iter().zip(types) {
                self.r.f.values[v].ty = ty;
            }
        }
        Ok(())
    }

    /// A cast of the model's own ties two forms of a value together. One to what its operand now is stays where it
    /// rounds: in registers the operand may be more precise than f16.
    fn model_cast(&mut self, n: NodeId, cast: &Cast) {
        let to = cast.to;
        let node = &self.r.f.nodes[n];
        let (Some(Some(x)), out, block) = (node.inputs.first().copied(), node.outputs[0], node.block) else { return };
        let from = self.r.f.ty(x).dtype;
        if from == to {
            if from == DType::F16 && !cast.rounds() && self.single.contains(&x) {
                let origins = self.r.f.nodes[n].origins.clone();
                if let Some(def) = self.r.f.def_node(x) {
                    self.r.absorb_origins(def, &origins);
                }
                self.r.replace(out, x);
                self.r.erase(n);
            }
            return;
        }
        if from == DType::F16 && to == DType::F32 {
            self.source.insert(out, x);
        }
        if let (DType::F32, DType::F16, Some(b)) = (from, to, block) {
            self.made.insert((b, x, to), out);
        }
    }

    /// `v` in type `want` for node `n`.
    fn operand(&mut self, n: NodeId, v: ValueId, want: DType) -> Result<ValueId, String> {
        if self.r.f.ty(v).dtype == want {
            return Ok(v);
        }
        if let Some((def, c)) = self.r.f.def_op::<Const>(v) {
            let (name, origins) = (c.name, self.r.f.nodes[def].origins.clone());
            return self.constant(n, v, name, origins);
        }
        let block = self.r.f.nodes[n].block.ok_or("a node without a block")?;
        if let Some(found) = self.find(Some(block), v, want) {
            return Ok(found);
        }
        let origins = self.r.f.nodes[n].origins.serving();
        let name = self.cast_name(v, want);
        let made = self.r.add_before(n, Cast::of_storage(want), vec![Some(v)], name, origins)?[0];
        self.remember(block, v, want, made);
        Ok(made)
    }

    /// A form that exists already: what `v` was cast from, or a cast in this block or in one around it.
    fn find(&self, mut block: Option<BlockId>, v: ValueId, want: DType) -> Option<ValueId> {
        if let Some(&s) = self.source.get(&v)
            && self.r.f.ty(s).dtype == want
        {
            return Some(s);
        }
        while let Some(b) = block {
            if let Some(&found) = self.made.get(&(b, v, want)) {
                return Some(found);
            }
            block = self.r.f.blocks[b].owner.and_then(|n| self.r.f.nodes[n].block);
        }
        None
    }

    fn remember(&mut self, block: BlockId, v: ValueId, want: DType, made: ValueId) {
        self.done.casts += 1;
        self.made.insert((block, v, want), made);
        self.source.insert(made, v);
    }

    fn cast_name(&self, v: ValueId, to: DType) -> Name {
        let base = self.r.f.def_node(v).map(|n| self.r.f.nodes[n].name).or(self.r.f.values[v].name);
        Name::new(&format!("{}.{to}", base.map_or("value", |n| n.as_str())))
    }

    /// The f16 form of an f32 constant, read in the block of `n`.
    fn constant(&mut self, n: NodeId, v: ValueId, name: Name, origins: Origins) -> Result<ValueId, String> {
        let block = self.r.f.nodes[n].block.ok_or("a node without a block")?;
        if let Some(&found) = self.made.get(&(block, v, DType::F16)) {
            return Ok(found);
        }
        let new = match self.constants.get(&name) {
            Some(&known) => {
                let ty = self.r.module.constants[&known].ty();
                let new = self.r.const_before(n, known, ty)?;
                if let Some(def) = self.r.f.def_node(new) {
                    self.r.absorb_origins(def, &origins);
                }
                new
            }
            None => {
                let c = self.r.module.constants.get(&name).cloned().ok_or_else(|| format!("@{name} is missing"))?;
                let shape = const_dims(&c.ty().shape).ok_or("a constant with open dimensions")?;
                self.done.constants += 1;
                self.done.constant_bytes += c.byte_len();
                let half = folded_constant(OpRef::new(Cast::new(DType::F16)), vec![Some(c)], DType::F16, shape)?;
                let new = self.r.constant_before(n, &format!("{name}.f16"), half, origins);
                if let Some((_, c)) = self.r.f.def_op::<Const>(new) {
                    self.constants.insert(name, c.name);
                }
                new
            }
        };
        self.made.insert((block, v, DType::F16), new);
        Ok(new)
    }

    /// Results of blocks keep their types.
    fn block_results(&mut self, b: BlockId) -> Result<(), String> {
        for i in 0..self.r.f.blocks[b].results.len() {
            let given = self.r.f.blocks[b].results[i];
            let v = self.r.resolve(given);
            if !self.single.contains(&given) || self.r.f.ty(v).dtype == DType::F32 {
                continue;
            }
            let known = self.made.get(&(b, v, DType::F32)).copied();
            let new = match known {
                Some(found) => found,
                None => {
                    let name = self.cast_name(v, DType::F32);
                    let to = Cast::of_storage(DType::F32);
                    let maker = self.r.f.def_node(v);
                    let origins = maker.map_or(Origins::none(), |d| self.r.f.nodes[d].origins.serving());
                    let made = self.r.add_at_end(b, to, vec![Some(v)], name, origins)?[0];
                    self.remember(b, v, DType::F32, made);
                    made
                }
            };
            // The model's name stays with the model's type.
            if let Some(name) = self.r.f.values[v].name {
                self.r.f.values[v].name = Some(Name::new(&format!("{name}@f16")));
                self.r.f.values[new].name = Some(name);
            }
            self.r.set_result(b, i, new);
        }
        Ok(())
    }
}
