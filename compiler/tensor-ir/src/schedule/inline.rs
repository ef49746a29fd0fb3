//! `inline`: puts the value of a compute block into every block that loads it.
//!
//! Before -> after, `inline {block=t}`:
//!
//! ```text
//! for i in 0..9:                    for i2 in 0..9:
//!   t: t[i] = x[i] + 1                y: y[i2] = (x[i2] + 1) * 2
//! for i2 in 0..9:
//!   y: y[i2] = t[i2] * 2
//! ```
//!
//! A block without readers is removed. A reduction may have none if the loads of its readers are under conditions that
//! never hold.

use super::accesses::{rewrite_int_loads, rewrite_loads};
use super::loops::{Substitution, plain_store, substitute, take_stage};
use super::{Instruction, Refusal, simplify_function};
use crate::attr_struct;
use crate::int::Int;
use crate::name::Name;
use crate::tir::{Expr, Scalar, Stmt, TensorFunction};

attr_struct! {
    /// Inlines a compute block that is still in its own unscheduled nest.
    pub struct Inline("inline") {
        /// The block.
        pub block: Name = "".into(),
    }
}

/// An integer value as an index expression, if possible.
fn as_index(e: &Expr, f: &TensorFunction) -> Option<Int> {
    match e {
        Expr::Const(Scalar::Int(v), t) if t.is_int() => Some(Int::new(*v)),
        Expr::Index(i, t) if t.is_int() => Some(i.clone()),
        Expr::Load(b, ix) if f.buffers[*b].dtype.is_int() => Some(Int::load(*b, ix.clone())),
        Expr::Cast(t, a) if t.is_int() && a.dtype(f).is_int() => as_index(a, f),
        _ => None,
    }
}

impl Instruction for Inline {
    fn apply(&self, f: &mut TensorFunction) -> Result<(), Refusal> {
        let (_, block) = take_stage(f, self.block)?;
        let refuse = |text: &str| Err(Refusal::at(self.block, text));
        if f.params.iter().any(|p| p.buffer == block.buffer) {
            return refuse("it writes a parameter");
        }
        if block.reduce.is_some() || !block.guards.is_empty() {
            // Loads under conditions that never hold are none.
            simplify_function(f);
        }
        if !f.body.blocks().iter().any(|b| b.accesses(block.buffer)) {
            return Ok(());
        }
        if block.reduce.is_some() {
            return refuse("a reduction cannot be inlined");
        }
        if !block.guards.is_empty() {
            return refuse("a guarded block cannot be inlined");
        }
        if f.body.blocks().iter().any(|b| b.buffer == block.buffer) {
            return refuse("another block writes its buffer too");
        }
        let vars = plain_store(f, &block)?;
        let bind = |ix: &[Int]| -> Substitution {
            vars.iter().zip(ix).filter_map(|(v, i)| v.map(|v| (v, i.clone()))).collect()
        };
        let index = as_index(&block.value, f);
        let mut as_index_failed = false;
        f.body.visit_mut(&mut |s| {
            let Stmt::Block(b) = s else { return };
            if !b.reads(block.buffer) {
                return;
            }
            b.stages.extend(&block.stages);
            let mut ints = |i: &Int| {
                rewrite_int_loads(i, &mut |id, ix| {
                    if id != block.buffer {
                        return None;
                    }
                    as_index_failed |= index.is_none();
                    index.as_ref().map(|i| substitute(i, &bind(&ix)))
                })
            };
            b.map_ints(&mut ints);
            b.value = rewrite_loads(&b.value, block.buffer, &|ix| {
                let by = bind(ix);
                block.value.map_ints(&mut |i| substitute(i, &by))
            });
        });
        if as_index_failed {
            return refuse("its value is used as an index and cannot be written as one");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::schedule::testing::*;

    #[test]
    fn inlines_a_chain() {
        let f = elementwise_chain(&[5, 3]);
        let g = scheduled(&f, &["inline {block=t0}", "inline {block=t1}"]);
        assert_eq!(g.body.blocks().len(), 1);
        assert_same(&f, &g);
    }

    #[test]
    fn inlines_into_several_consumers() {
        let f = softmax(4, 7);
        let g = scheduled(&f, &["inline {block=exp}"]);
        assert_eq!(g.body.blocks().len(), 3);
        assert_same(&f, &g);
    }

    #[test]
    fn a_reduction_that_nobody_reads_goes() {
        let text = "tensor @f(%x: f32[4,3], out %y: f32[4]) {
  buffer %s: f32[4] global
  for i in 0..4 { for k in 0..3 { block s reduce sum init { %s[i] <- %x[i, k] } } }
  for j in 0..4 { block y { %y[j] <- select(all(j >= 4), %s[j], 2.0) } }
}
";
        let f = crate::text::parse_tensor_function(text).expect("it parses");
        let g = scheduled(&f, &["inline {block=s}"]);
        assert_eq!(g.body.blocks().len(), 1);
        assert_same(&f, &g);
        assert!(refusal(&softmax(4, 7), "inline {block=sum}").contains("reduction"));
    }

    #[test]
    fn refuses_reductions_and_results() {
        assert!(refusal(&softmax(4, 7), "inline {block=max}").contains("reduction"));
        assert!(refusal(&elementwise_chain(&[5]), "inline {block=y}").contains("parameter"));
    }
}
