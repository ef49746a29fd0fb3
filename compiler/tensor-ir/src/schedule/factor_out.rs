//! `factor-out`: multiplies a sum by a factor once, instead of each of its terms.
//!
//! Before -> after, `factor-out {block=b, at=k, into=s}`:
//!
//! ```text
//! for k in 0..8:                                  for k in 0..8:
//!   for j in 0..4:                                  for j in 0..4:
//!     for i in 0..32:                                 for i in 0..32:
//!       b: c[j] += a[k, i]*(w[j, k, i]*d[j, k])         s: s[j] += a[k, i]*w[j, k, i]
//!                                                   for s_j in 0..4:
//!                                                     b: c[s_j] += s[s_j]*d[s_j, k]
//! ```
//!
//! With `offset=t`, what is subtracted from a factor of the terms is taken out, too: `a[k, i]*(w[j, k, i] - z[j, k])`
//! becomes the sums `s[j] += a[k, i]*w[j, k, i]` and `t += a[k, i]`, of which `s[s_j] - t*z[s_j, k]` is made. Results
//! differ by rounding, like sums in another order.

use super::accesses::{buffers_read, clamp_loads};
use super::loops::{
    LoopHead, Substitution, any_block, check_new_block, check_new_loop, derived_name, find_block, find_block_mut,
    find_loop, find_loop_mut, loops_around_block, nest, perfect_chain, position_around, replace_loop, substitute,
};
use super::staging::bounds_with;
use super::{Instruction, Refusal};
use crate::attr_struct;
use crate::dtype::DType;
use crate::int::Int;
use crate::name::Name;
use crate::tir::analysis::operands::moves_with;
use crate::tir::{
    BinaryOp, Block, Buffer, BufferId, Combiner, Cond, Encoding, Expr, LoopKind, Reduce, Scalar, Scope, Stmt,
    TensorFunction,
};

attr_struct! {
    /// Takes what is the same for all terms that a sum adds up inside a loop out of them.
    pub struct FactorOut("factor-out") {
        /// The block: a sum of products of floats.
        pub block: Name = "".into(),
        /// The loop inside which terms share the factor.
        pub at: Name = "".into(),
        /// Name of the sum without the factor: its block, its registers, and a prefix of the loops behind it.
        pub into: Name = "".into(),
        /// Name of the sum of the terms' other factors, where a difference is one of them.
        pub offset: Option<Name> = None,
    }
}

/// The terms that a block adds up inside a loop.
struct Terms<'f> {
    f: &'f TensorFunction,
    dtype: DType,
    /// Loops that the sum runs over, and buffers that are stored inside them.
    summed: Vec<Name>,
    stored: Vec<BufferId>,
    /// Factors that are the same for all terms.
    fixed: Vec<Expr>,
    moving: Vec<Expr>,
    /// Where one of these does not hold, a term is 0.
    conditions: Vec<Cond>,
}

impl Terms<'_> {
    fn of<'f>(f: &'f TensorFunction, block: &Block, inside: &[LoopHead]) -> Result<Terms<'f>, Refusal> {
        let dtype = f.buffers[block.buffer].dtype;
        if block.reduce.is_none_or(|r| r.combiner != Combiner::Sum) || !dtype.is_float() {
            return Err(Refusal::at(block.name, "is no sum of floats"));
        }
        if buffers_read(&block.value).contains(&block.buffer) {
            return Err(Refusal::at(block.name, "reads what it writes"));
        }
        if let Some(l) = inside.iter().find(|l| !matches!(l.kind, LoopKind::Serial | LoopKind::Unroll)) {
            return Err(Refusal::at(l.var, "is no serial loop"));
        }
        let reduction = f.reduction_loops(block.name);
        let summed: Vec<Name> = inside.iter().map(|l| l.var).filter(|v| reduction.contains(v)).collect();
        let first = summed.first().ok_or_else(|| Refusal::at(block.name, "adds nothing up inside the loop"))?;
        let stored = find_loop(f, *first)?.body.blocks().iter().map(|b| b.buffer).collect();
        let mut terms = Terms { f, dtype, summed, stored, fixed: vec![], moving: vec![], conditions: vec![] };
        terms.add(&block.value);
        Ok(terms)
    }

    fn add(&mut self, e: &Expr) {
        match e {
            e if !self.moves(e) => self.fixed.push(self.converted(e)),
            Expr::Cast(to, a) if to.is_float() && self.is_float(a) => self.add(a),
            Expr::Binary(BinaryOp::Mul, a, b) if self.is_float(a) => [a, b].into_iter().for_each(|e| self.add(e)),
            Expr::Select(c, a, other) => match (&**c, &**other) {
                (Expr::All(conditions), Expr::Const(Scalar::Float(0.0), _)) => {
                    self.conditions.extend(conditions.iter().cloned());
                    self.add(a);
                }
                _ => self.moving.push(self.converted(e)),
            },
            e => self.moving.push(self.converted(e)),
        }
    }

    fn is_float(&self, e: &Expr) -> bool {
        e.dtype(self.f).is_float()
    }

    fn converted(&self, e: &Expr) -> Expr {
        e.clone().cast(e.dtype(self.f), self.dtype)
    }

    /// Whether a value is another one for each term.
    fn moves(&self, e: &Expr) -> bool {
        let mut moves = buffers_read(e).iter().any(|b| self.stored.contains(b));
        e.visit_ints(&mut |i| moves |= self.sums_over(i));
        moves
    }

    fn sums_over(&self, i: &Int) -> bool {
        self.summed.iter().any(|v| i.uses(*v))
    }

    /// The expression inside of conversions from floats to floats.
    fn without_casts<'e>(&self, e: &'e Expr) -> &'e Expr {
        match e {
            Expr::Cast(to, a) if to.is_float() && self.is_float(a) => self.without_casts(a),
            e => e,
        }
    }

    /// Takes what is subtracted out of the factor that is a difference; it is then the last one.
    fn take_offset(&mut self) -> Option<Expr> {
        let parts = |e: &Expr| match self.without_casts(e) {
            Expr::Binary(BinaryOp::Sub, a, b) if self.moves(a) && !self.moves(b) && self.is_float(a) => {
                Some([self.converted(a), self.converted(b)])
            }
            _ => None,
        };
        let found = self.moving.iter().enumerate().find_map(|(n, e)| Some((n, parts(e)?)));
        let (n, [moving, subtracted]) = found.filter(|_| self.moving.len() > 1)?;
        self.moving.remove(n);
        self.moving.push(moving);
        Some(subtracted)
    }

    /// Whether a condition holds for some terms alone.
    fn decide(&self, c: &Cond) -> bool {
        self.sums_over(&c.lhs) || self.sums_over(&c.rhs)
    }

    /// Takes the terms apart.
    fn sums(mut self) -> Sums {
        let guarded = !self.conditions.is_empty();
        let (own, whole): (Vec<Cond>, Vec<Cond>) =
            std::mem::take(&mut self.conditions).into_iter().partition(|c| self.decide(c));
        self.conditions = own;
        // Where the others do not hold, elements that they would hide are added up.
        let readable = |e: Expr| if whole.is_empty() { e } else { clamp_loads(self.f, &e, &self.f.bounds()) };
        let value = readable(self.term(&self.moving));
        let others = readable(self.term(&self.moving[..self.moving.len() - 1]));
        Sums { value, others, fixed: product(&self.fixed), whole, guarded, summed: self.summed }
    }

    /// The term with these factors.
    fn term(&self, factors: &[Expr]) -> Expr {
        let value = product(factors).unwrap_or_else(|| Expr::constant(1.0, self.dtype));
        Expr::guarded(self.conditions.clone(), value, Expr::constant(0.0, self.dtype))
    }
}

/// Sums of terms, and how the result is made of them.
struct Sums {
    /// A term without what all share.
    value: Expr,
    /// The same without its last factor.
    others: Expr,
    fixed: Option<Expr>,
    /// Where one of these does not hold, the result is 0.
    whole: Vec<Cond>,
    /// There are conditions at all.
    guarded: bool,
    /// Loops that the sums run over.
    summed: Vec<Name>,
}

fn product(factors: &[Expr]) -> Option<Expr> {
    factors.iter().cloned().reduce(|a, b| a * b)
}

/// Whether the terms that a block adds up inside loop `at` share a factor, and whether something that they share is
/// subtracted from another one.
pub(super) fn shared_by_terms(f: &TensorFunction, block: Name, at: Name) -> Result<[bool; 2], Refusal> {
    let path = loops_around_block(f, block)?;
    let inside = &path[position_around(&path, at, block)? + 1..];
    let mut terms = Terms::of(f, find_block(f, block)?, inside)?;
    Ok([!terms.fixed.is_empty(), terms.take_offset().is_some()])
}

/// The loops under the names that `by` has for them.
fn renamed(loops: &[LoopHead], by: &Substitution) -> Vec<LoopHead> {
    let of = |l: &LoopHead| by.get(&l.var).and_then(Int::as_var).unwrap_or(l.var);
    loops.iter().map(|l| LoopHead { var: of(l), ..l.clone() }).collect()
}

/// Puts a statement into the body of loop `at`, behind the last one there that holds one of the blocks.
fn insert_behind(f: &mut TensorFunction, at: Name, blocks: [Option<Name>; 2], new: Stmt) -> Result<(), Refusal> {
    let l = find_loop_mut(f, at)?;
    let mut list = match std::mem::replace(&mut l.body, Stmt::Barrier) {
        Stmt::Seq(list) => list,
        one => vec![one],
    };
    let last = list.iter().rposition(|s| any_block(s, |b| blocks.contains(&Some(b.name))));
    list.insert(last.map_or(list.len(), |n| n + 1), new);
    l.body = Stmt::seq(list);
    Ok(())
}

impl FactorOut {
    /// New names for loops, which begin with `prefix`.
    fn names(f: &TensorFunction, prefix: Name, loops: &[LoopHead]) -> Result<Substitution, Refusal> {
        let of = |l: &LoopHead| {
            let var = derived_name(prefix, l.var);
            check_new_loop(f, var)?;
            Ok((l.var, Int::var(var)))
        };
        loops.iter().map(of).collect()
    }

    /// Adds the terms' other factors up behind the innermost loops around the sum, without those that they do not use.
    /// `rest` has the guards of the sum. Returns the element.
    fn add_offset(
        f: &mut TensorFunction,
        into: Name,
        mut rest: Block,
        terms: [&[LoopHead]; 2],
    ) -> Result<Expr, Refusal> {
        let [inside, spatial] = terms;
        let used = |l: &LoopHead| moves_with(&rest.value, l.var);
        let (own, others): (Vec<LoopHead>, Vec<LoopHead>) = spatial.iter().cloned().partition(used);
        let free = |i: &Int| !others.iter().any(|l| i.uses(l.var));
        rest.guards.retain(|g| free(&g.lhs) && free(&g.rhs));
        let mut chain = Err(Refusal::at(into, "has no loop of its own"));
        for l in inside {
            let (heads, body) = perfect_chain(find_loop(f, l.var)?);
            if matches!(body, Stmt::Block(b) if b.name == into) {
                chain = Ok(heads);
                break;
            }
            if others.iter().any(|o| o.var == l.var) {
                return Err(Refusal::at(l.var, "moves only the difference, and is around more than its sum"));
            }
        }
        let chain = chain?;
        let (first, mut heads) = (chain[0].var, chain);
        heads.retain(|l| !others.iter().any(|o| o.var == l.var));
        let by = FactorOut::names(f, rest.name, &heads)?;
        rest.indices = own.iter().map(|l| Int::var(l.var)).collect();
        let element = Expr::Load(rest.buffer, rest.indices.clone());
        f.buffers[rest.buffer].shape = own.iter().map(|l| l.extent.clone()).collect();
        rest.map_ints(&mut |i| substitute(i, &by));
        let own = nest(&renamed(&heads, &by), Stmt::Block(Box::new(rest)));
        replace_loop(f, first, |l| Ok(Stmt::seq(vec![Stmt::For(Box::new(l)), own])))?;
        Ok(element)
    }
}

impl Instruction for FactorOut {
    fn apply(&self, f: &mut TensorFunction) -> Result<(), Refusal> {
        check_new_block(f, self.into)?;
        let path = loops_around_block(f, self.block)?;
        let inside = path[position_around(&path, self.at, self.block)? + 1..].to_vec();
        let block = find_block(f, self.block)?.clone();
        let mut terms = Terms::of(f, &block, &inside)?;
        let subtracted = if self.offset.is_some() { terms.take_offset() } else { None };
        if self.offset.is_some() && subtracted.is_none() {
            return Err(Refusal::at(self.block, format!("subtracts nothing that stays the same inside `{}`", self.at)));
        }
        if terms.moving.is_empty() || (terms.fixed.is_empty() && subtracted.is_none()) {
            return Err(Refusal::at(self.block, format!("has no factor that stays the same inside `{}`", self.at)));
        }
        let (conditions, guards): (Vec<Cond>, Vec<Cond>) = block.guards.iter().cloned().partition(|c| terms.decide(c));
        terms.conditions.extend(conditions);
        let Sums { value, others, fixed, whole, guarded, summed } = terms.sums();
        let spatial: Vec<LoopHead> = inside.iter().filter(|l| !summed.contains(&l.var)).cloned().collect();
        let sum = |f: &mut TensorFunction, name: Name, value: Expr| {
            let shape = spatial.iter().map(|l| l.extent.clone()).collect();
            let dtype = f.buffers[block.buffer].dtype;
            let own = Buffer { name, dtype, shape, scope: Scope::Register, encoding: Encoding::Native };
            let (buffer, reduce) = (f.buffers.push(own), Some(Reduce { combiner: Combiner::Sum, init: true }));
            let indices = spatial.iter().map(|l| Int::var(l.var)).collect();
            Block { name, guards: guards.clone(), buffer, indices, value, reduce, stages: block.stages.clone() }
        };
        let own = sum(f, self.into, value);
        let mut total = Expr::Load(own.buffer, own.indices.clone());
        *find_block_mut(f, self.block)? = own;
        if let Some((name, subtracted)) = self.offset.zip(subtracted) {
            check_new_block(f, name)?;
            let rest = sum(f, name, others);
            total = total - FactorOut::add_offset(f, self.into, rest, [&inside, &spatial])? * subtracted;
        }
        let value = fixed.map_or(total.clone(), |fixed| fixed * total);
        let value = Expr::guarded(whole, value, Expr::constant(0.0, f.buffers[block.buffer].dtype));
        let mut behind = Block { guards, value, ..block };
        let by = FactorOut::names(f, self.into, &spatial)?;
        behind.map_ints(&mut |i| substitute(i, &by));
        let heads = renamed(&spatial, &by);
        if guarded {
            behind.value = clamp_loads(f, &behind.value, &bounds_with(f, &heads));
        }
        insert_behind(f, self.at, [Some(self.into), self.offset], nest(&heads, Stmt::Block(Box::new(behind))))
    }
}

#[cfg(test)]
mod tests {
    use crate::schedule::testing::*;

    /// Weights with a scale and a zero point for each eight, of which `scaled` is made.
    fn product(rows: i64, scaled: &str) -> crate::tir::TensorFunction {
        parsed(&format!(
            "tensor @mv(%a: f32[{rows},40], %w: f32[6,40], %d: f32[6,5], %z: f32[6,5], out %y: f32[{rows},6]) {{
  buffer %mv: f32[{rows},6] global
  for i in 0..{rows} {{ for j in 0..6 {{ for k in 0..40 {{
    block mv reduce sum init {{ %mv[i, j] <- %a[i, k] * {scaled} }}
  }} }} }}
  for p in 0..{rows} {{ for q in 0..6 {{ block y {{ %y[p, q] <- %mv[p, q] }} }} }}
}}"
        ))
    }
    const BLOCKS: [&str; 3] = [
        "split {loop=k, factors=[0, 4, 8], into=[kb, kw, ki]}",
        "reorder {loops=[kb, kw, i, j, ki]}",
        "decompose-reduction {block=mv, at=kb}",
    ];
    const WEIGHT: &str = "((%w[j, k] - %z[j, k/8]) * %d[j, k/8])";

    #[test]
    fn scales_multiply_sums() {
        for rows in [1, 3] {
            let f = product(rows, WEIGHT);
            // Blocks of 8 are no whole split of 40 by 32: the tail has conditions.
            for offset in ["", ", offset=t"] {
                let split = "split {loop=k, factors=[0, 8], into=[kb, ki]}";
                let out = format!("factor-out {{block=mv, at=kb, into=s{offset}}}");
                let g = scheduled(&f, &[split, "reorder {loops=[kb, i, j, ki]}", BLOCKS[2], &out]);
                assert_eq!(g.body.blocks().len(), if offset.is_empty() { 4 } else { 5 });
                assert_same(&f, &g);
            }
        }
    }

    #[test]
    fn terms_behind_the_end_are_left_out() {
        let f = product(2, "((%w[j, k] - 3.0) * %d[j, 0])");
        for offset in ["", ", offset=t"] {
            let out = format!("factor-out {{block=mv, at=kb, into=s{offset}}}");
            assert_same(&f, &scheduled(&f, &[BLOCKS[0], BLOCKS[1], BLOCKS[2], &out]));
        }
    }

    #[test]
    fn what_is_copied_inside_stays_there() {
        let f = product(2, WEIGHT);
        let steps = [
            "split {loop=k, factors=[0, 2, 4], into=[kb, kw, ki]}",
            "reorder {loops=[kb, kw, i, j, ki]}",
            BLOCKS[2],
            "stage-in-registers {block=mv, operand=\"0\", at=kw, into=ar}",
            "stage-in-registers {block=mv, operand=\"1.1\", at=kb, into=dr}",
            "factor-out {block=mv, at=kb, into=s, offset=t}",
            "decompose-reduction {block=s, at=kw}",
            "decompose-reduction {block=t, at=kw}",
        ];
        assert_same(&f, &scheduled(&f, &steps));
    }

    #[test]
    fn terms_without_a_common_factor_are_refused() {
        let refused = |scaled: &str, more: &str| {
            let g = scheduled(
                &product(2, scaled),
                &["split {loop=k, factors=[0, 8], into=[kb, ki]}", "reorder {loops=[kb, i, j, ki]}"],
            );
            refusal(&g, &format!("factor-out {{block=mv, at=kb, into=s{more}}}"))
        };
        assert!(refused("%w[j, k]", "").contains("no factor that stays the same"));
        assert!(refused("(%w[j, k] * %d[j, k/8])", ", offset=t").contains("subtracts nothing"));
        let f = product(2, WEIGHT);
        assert!(refusal(&f, "factor-out {block=y, at=p, into=s}").contains("is no sum of floats"));
        assert!(refusal(&f, "factor-out {block=mv, at=k, into=s}").contains("adds nothing up"));
    }
}
