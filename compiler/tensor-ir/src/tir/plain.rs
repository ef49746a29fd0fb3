//! Plain functions: unscheduled, and each buffer is stored once and completely. Their stages may become stages of a
//! larger function.
//!
//! A call of a plain function (`call_tensor`) is the tensor expression of its node at the call's sizes, so a function
//! written by hand in text fuses with its neighbours. A function with a schedule is called as it is, and `fuse-ops`
//! says so in a remark.

use super::{Block, Encoding, Scope, Stage, TensorFunction};
use crate::int::Int;
use rustc_hash::FxHashSet;

impl TensorFunction {
    /// The stages, if every buffer is written by one stage, once and completely, before it is read. Extents and indices
    /// may contain the function's symbols.
    ///
    /// # Errors
    /// Why the function is not plain.
    pub fn plain_stages(&self) -> Result<Vec<Stage<'_>>, String> {
        if !self.updates.is_empty() {
            return Err("it stores a part of a result".into());
        }
        if !self.pending.is_empty() || !self.trace.is_empty() || !self.kernels().is_empty() || !self.prepacks.is_empty()
        {
            return Err("it has a schedule of its own".into());
        }
        let own_form = |b: &super::Buffer| b.scope != Scope::Global || b.encoding != Encoding::Native;
        if let Some((_, b)) = self.buffers.iter().find(|(_, b)| own_form(b)) {
            return Err(format!("%{} has a memory or a storage form of its own", b.name));
        }
        let stages = self.stages().ok_or("its loops are no sequence of perfect nests")?;
        let mut stored: FxHashSet<_> = self.inputs().collect();
        for stage in &stages {
            self.check_plain(stage)?;
            if !stored.insert(stage.block.buffer) {
                return Err(format!("{} stores what is there already", stage.block.name));
            }
        }
        let missing = self.outputs().find(|b| !stored.contains(b));
        missing.map_or(Ok(stages), |b| Err(format!("no stage stores %{}", self.buffers[b].name)))
    }

    fn check_plain(&self, stage: &Stage<'_>) -> Result<(), String> {
        let block: &Block = stage.block;
        let fail = |what: &str| Err(format!("{} {what}", block.name));
        if !block.guards.is_empty() {
            return fail("runs under a condition");
        }
        if block.reads(block.buffer) || block.reduce.is_some_and(|r| !r.init) {
            return fail("reads what it stores to");
        }
        let extent = |i: &Int| stage.loops.iter().find(|l| i.as_var() == Some(l.0)).map(|l| &l.1);
        let whole = |(i, d): (&Int, &Int)| extent(i) == Some(d) || (d.is(1) && i.is(0));
        let vars: FxHashSet<_> = block.indices.iter().filter_map(Int::as_var).collect();
        let distinct = vars.len() == block.indices.iter().filter(|i| i.as_var().is_some()).count();
        let shape = &self.buffers[block.buffer].shape;
        if !distinct || shape.len() != block.indices.len() || !block.indices.iter().zip(shape).all(whole) {
            return fail("does not store each element of its buffer once, in order");
        }
        let own = |v: &crate::name::Name| self.symbols.iter().any(|s| s.0 == *v);
        let dependent = stage.loops.iter().any(|l| !l.1.vars().iter().all(own) || l.1.reads_buffer());
        if dependent { fail("has loops whose ends differ") } else { Ok(()) }
    }
}
