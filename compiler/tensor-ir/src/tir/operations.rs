//! Operation counts from the loops of a tensor function. For a function written by hand nothing else is known.

use super::{BinaryOp, Block, Combiner, Expr, Scope, Stmt, TensorFunction};
use crate::int::Int;
use crate::name::Name;

/// The work of a stage, or of a block that is numbered as one.
#[derive(Clone, Debug)]
pub struct StageWork {
    /// How often the block runs.
    pub iterations: Int,
    /// Operations: two for each product that is summed, else one for each stored element. Copies to registers or
    /// workgroup memory, and initialisations by a constant, count as none.
    pub operations: Int,
}

impl TensorFunction {
    /// The work of the stages that the function's blocks are numbered as ([`TensorFunction::number_stages`]), in order.
    pub fn stage_work(&self) -> Vec<StageWork> {
        let mut out: Vec<StageWork> = vec![];
        visit_loops(&self.body, &mut vec![], &mut |loops, block| {
            for stage in block.stages.iter() {
                while out.len() <= stage {
                    out.push(StageWork { iterations: Int::new(0), operations: Int::new(0) });
                }
                out[stage] = StageWork { iterations: iterations(loops), operations: self.operations(loops, block) };
            }
        });
        out
    }

    /// Products that the function adds up: multiply-accumulates.
    pub fn multiply_accumulates(&self) -> Int {
        let mut sum = Int::new(0);
        visit_loops(&self.body, &mut vec![], &mut |loops, block| {
            if adds_products(block) {
                sum = sum.clone() + iterations(loops);
            }
        });
        sum
    }

    fn operations(&self, loops: &[(Name, &Int)], block: &Block) -> Int {
        let local = self.buffers[block.buffer].scope != Scope::Global;
        if adds_products(block) {
            return iterations(loops) * 2;
        }
        if local && block.reduce.is_none() && matches!(block.value, Expr::Load(..) | Expr::Const(..)) {
            return Int::new(0);
        }
        let reduced = self.reduction_loops(block.name);
        let kept: Vec<(Name, &Int)> = loops.iter().copied().filter(|l| !reduced.contains(&l.0)).collect();
        iterations(&kept)
    }
}

/// Iterations of nested loops.
pub fn iterations(loops: &[(Name, &Int)]) -> Int {
    loops.iter().fold(Int::new(1), |all, l| all * l.1)
}

fn adds_products(block: &Block) -> bool {
    block.reduce.is_some_and(|r| r.combiner == Combiner::Sum) && is_product(&block.value)
}

fn is_product(e: &Expr) -> bool {
    match e {
        Expr::Binary(BinaryOp::Mul, ..) => true,
        Expr::Cast(_, a) => is_product(a),
        Expr::Select(_, a, b) => is_product(a) || is_product(b),
        _ => false,
    }
}

/// Calls `f` with each block and the loops around it, outermost first.
pub fn visit_loops<'s>(
    s: &'s Stmt,
    loops: &mut Vec<(Name, &'s Int)>,
    f: &mut dyn FnMut(&[(Name, &'s Int)], &'s Block),
) {
    match s {
        Stmt::Seq(list) => list.iter().for_each(|s| visit_loops(s, loops, f)),
        Stmt::For(l) => {
            loops.push((l.var, &l.extent));
            visit_loops(&l.body, loops, f);
            loops.pop();
        }
        Stmt::Kernel(_, s) => visit_loops(s, loops, f),
        Stmt::Block(b) => f(loops, b),
        Stmt::Barrier => {}
    }
}

#[cfg(test)]
mod tests {
    use crate::text::parse_tensor_function;

    #[test]
    fn products_count_twice_copies_to_registers_not_at_all() {
        let text = "tensor @f(%x: f32[n,6], %w: f32[6,8], out %y: f32[n,8]) {
  symbol n in 1..=64
  buffer %t: f32[n,8] global
  buffer %r: f32[6] register
  buffer %acc: f32[1] register
  kernel t {
    for i in 0..n {
      for k in 0..6 { block r { %r[k] <- %x[i, k] } }
      for j in 0..8 {
        block zero { %acc[0] <- 0.0 }
        for l in 0..6 { block acc reduce sum { %acc[0] <- %r[l] * %w[l, j] } }
        block t { %t[i, j] <- %acc[0] + 1.0 }
      }
    }
  }
  kernel y { for a in 0..n { for b in 0..8 { block y { %y[a, b] <- exp(%t[a, b]) } } } }
}
";
        let mut f = parse_tensor_function(text).unwrap_or_else(|e| panic!("{e}"));
        f.number_stages();
        let at = |i: &crate::int::Int| i.eval(&|_| Some(10)).unwrap();
        let work: Vec<i64> = f.stage_work().iter().map(|w| at(&w.operations)).collect();
        assert_eq!(work, [0, 0, 2 * 480, 80, 80]);
        assert_eq!(at(&f.multiply_accumulates()), 480);
    }
}
