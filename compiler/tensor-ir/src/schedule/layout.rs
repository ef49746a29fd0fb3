//! The common part of `transform-layout` and `flatten-buffer`: gives a buffer another shape, rewrites every access, and
//! prepacks a read parameter whose physical order changes.

use super::Refusal;
use super::accesses::rewrite_accesses;
use super::loops::{IndexMap, LoopHead, Substitution, nest, substitute};
use crate::int::{self, Int};
use crate::name::Name;
use crate::tir::{
    Access, Block, Buffer, BufferId, Cond, Encoding, Expr, Param, Prepack, Scope, StageSet, Stmt, TensorFunction,
};

/// Conditions on indices.
type Existence = Box<dyn Fn(&[Int]) -> Vec<Cond>>;

/// A rearrangement of a buffer.
pub(super) struct PhysicalLayout {
    /// The new shape.
    pub shape: Vec<Int>,
    /// New indices for old ones.
    pub forward: IndexMap,
    /// Old indices from new ones. In the padding of the new shape they may be outside of the old shape.
    pub backward: IndexMap,
    /// Conditions on old indices under which an element exists; empty without padding.
    pub exists: Existence,
    /// True when the row-major order of the elements stays, without padding.
    pub same_order: bool,
}

/// Gives `buffer` a new layout.
pub(super) fn apply_layout(f: &mut TensorFunction, buffer: BufferId, layout: &PhysicalLayout) -> Result<(), Refusal> {
    let name = f.buffers[buffer].name;
    if let Scope::Subgroup { .. } = f.buffers[buffer].scope {
        return Err(Refusal::at(name, "a buffer that is distributed over lanes keeps its layout"));
    }
    let access = f.params.iter().find(|p| p.buffer == buffer).map(|p| p.access);
    if access == Some(Access::Write) && !layout.same_order {
        return Err(Refusal::at(name, "the order of a written parameter's elements belongs to the caller"));
    }
    let packed = f.prepacks.iter().any(|p| p.buffer == buffer);
    if access == Some(Access::Read) && (packed || !layout.same_order) {
        let packer = Box::new(make_packer(f, buffer, layout));
        f.prepacks.retain(|p| p.buffer != buffer);
        f.prepacks.push(Prepack { buffer, packer });
    } else if access.is_some() {
        f.keep_declared_shape(buffer);
    }
    rewrite_accesses(f, buffer, &layout.forward);
    f.buffers[buffer].shape = layout.shape.clone();
    Ok(())
}

/// The function from the parameter's original form to the new layout of its present form.
fn make_packer(f: &TensorFunction, buffer: BufferId, layout: &PhysicalLayout) -> TensorFunction {
    let present = &f.buffers[buffer];
    let name = present.name;
    let mut out = TensorFunction::new(format!("{}_pack_{name}", f.name));
    out.symbols = f.symbols.clone();
    let vars: Vec<Name> = (0..layout.shape.len()).map(|n| Name::new(&format!("{name}_p{n}"))).collect();
    let new: Vec<Int> = vars.iter().map(|v| Int::var(*v)).collect();
    let old = (layout.backward)(&new);
    let existing = f.prepacks.iter().find(|p| p.buffer == buffer);
    let (source, value) = match existing.and_then(|p| packer_parts(&p.packer)) {
        Some((source, loops, value)) => {
            let by: Substitution = loops.into_iter().zip(old.iter().cloned()).collect();
            (source, value.map_ints(&mut |i| substitute(i, &by)))
        }
        None => {
            let shape = f.declared_shape(buffer).to_vec();
            let indices = match shape == present.shape {
                true => old.clone(),
                false => int::unflatten_index(&int::flatten_index(&old, &present.shape), &shape),
            };
            (Buffer { encoding: Encoding::Native, shape, ..present.clone() }, Expr::Load(first_id(), indices))
        }
    };
    let dtype = source.dtype;
    let source = out.buffers.push(source);
    let packed = out.buffers.push(Buffer {
        name: Name::new(&format!("{name}_packed")),
        dtype,
        shape: layout.shape.clone(),
        scope: Scope::Global,
        encoding: present.encoding,
    });
    out.params = vec![Param { buffer: source, access: Access::Read }, Param { buffer: packed, access: Access::Write }];
    let value = Expr::guarded((layout.exists)(&old), value, Expr::constant(0.0, dtype));
    let block = Block {
        name: out.buffers[packed].name,
        guards: vec![],
        buffer: packed,
        indices: new,
        value,
        reduce: None,
        stages: StageSet::default(),
    };
    let heads: Vec<LoopHead> = vars.iter().zip(&layout.shape).map(|(v, d)| LoopHead::serial(*v, d.clone())).collect();
    out.body = nest(&heads, Stmt::Block(Box::new(block)));
    super::simplify_function(&mut out);
    let used = out.free_variables();
    out.symbols.retain(|s| used.contains(&s.0));
    out
}

/// Id of the only read parameter of every packer: its first buffer.
fn first_id() -> BufferId {
    crate::arena::Id::from_index(0)
}

/// Source buffer, loop variables by dimension and value of a packer made here.
fn packer_parts(packer: &TensorFunction) -> Option<(Buffer, Vec<Name>, Expr)> {
    let source = packer.inputs().next()?;
    let stages = packer.stages()?;
    let [stage] = stages.as_slice() else { return None };
    let loops = stage.loops.iter().map(|l| l.0).collect();
    Some((packer.buffers[source].clone(), loops, stage.block.value.clone()))
}

/// Flattens dimensions `start .. start + count` into one.
pub(super) fn flatten(shape: &[Int], start: usize, count: usize) -> PhysicalLayout {
    let end = start + count;
    let inner: Vec<Int> = shape[start..end].to_vec();
    let mut new = shape[..start].to_vec();
    new.push(int::product(&inner));
    new.extend(shape[end..].iter().cloned());
    let (a, b) = (inner.clone(), inner);
    PhysicalLayout {
        shape: new,
        forward: Box::new(move |ix| {
            let mut out = ix[..start].to_vec();
            out.push(int::flatten_index(&ix[start..end], &a));
            out.extend(ix[end..].iter().cloned());
            out
        }),
        backward: Box::new(move |ix| {
            let mut out = ix[..start].to_vec();
            out.extend(int::unflatten_index(&ix[start], &b));
            out.extend(ix[start + 1..].iter().cloned());
            out
        }),
        exists: Box::new(|_| vec![]),
        same_order: true,
    }
}
