//! Stages whose values are compared with themselves: elements with the largest of their row, elements with each other.
//!
//! A driver may contract `a * b + c` in one loop or kernel and not in another. If such a stage is computed once for
//! each side of a comparison, the same element has two values, and the position of the largest one is not found. Such a
//! stage has to be stored, so that both sides load what was computed once.
//!
//! Example: `h[i] = x[i] * 0.3 + 0.1; best = max(h); place = min(select(h[i] == best, i, none))` keeps `h`.

use crate::tir::{BinaryOp, Block, BufferId, Combiner, Expr, TensorFunction};
use rustc_hash::{FxHashMap, FxHashSet};

type Blocks<'a> = FxHashMap<BufferId, &'a Block>;

/// The buffers of the stages that both sides of some comparison select elements of, where computing an element rounds.
pub fn compared_again(f: &TensorFunction) -> FxHashSet<BufferId> {
    let blocks: Blocks<'_> = f.body.blocks().into_iter().map(|b| (b.buffer, b)).collect();
    let mut found = FxHashSet::default();
    for block in blocks.values() {
        block.value.visit(&mut |e| match e {
            Expr::Binary(op, a, b) if op.is_comparison() && a != b => {
                let [a, b] = [a, b].map(|side| {
                    let mut sources = Sources { f, blocks: &blocks, seen: FxHashSet::default(), rounded: vec![] };
                    sources.follow(side);
                    sources.rounded
                });
                found.extend(a.into_iter().filter(|s| b.contains(s)));
            }
            _ => {}
        });
    }
    found
}

/// The stages that a value is selected from, through maxima, minima, moves and other functions that do not round.
struct Sources<'a> {
    f: &'a TensorFunction,
    blocks: &'a Blocks<'a>,
    seen: FxHashSet<BufferId>,
    rounded: Vec<BufferId>,
}

impl Sources<'_> {
    fn follow(&mut self, e: &Expr) {
        match e {
            Expr::Load(b, _) => self.follow_stage(*b),
            Expr::Cast(_, a) => self.follow(a),
            Expr::Unary(op, a) if op.is_exact() => self.follow(a),
            Expr::Binary(BinaryOp::Max | BinaryOp::Min, a, b) | Expr::Select(_, a, b) => {
                self.follow(a);
                self.follow(b);
            }
            _ => {}
        }
    }
    fn follow_stage(&mut self, buffer: BufferId) {
        let Some(block) = self.blocks.get(&buffer).filter(|_| self.seen.insert(buffer)) else { return };
        let selects = block.reduce.as_ref().is_none_or(|r| matches!(r.combiner, Combiner::Max | Combiner::Min));
        match is_exact(&block.value, self.f) {
            true if selects => self.follow(&block.value),
            false if block.reduce.is_none() => self.rounded.push(buffer),
            _ => {}
        }
    }
}

/// True when every way of computing the value from its loads gives the same number.
fn is_exact(e: &Expr, f: &TensorFunction) -> bool {
    let whole = |e: &Expr| !e.dtype(f).is_float();
    match e {
        Expr::Const(..) | Expr::Index(..) | Expr::Load(..) | Expr::All(_) => true,
        Expr::Cast(_, a) => is_exact(a, f),
        Expr::Unary(op, a) => op.is_exact() && is_exact(a, f),
        Expr::Binary(op, a, b) => (op.is_exact() || whole(a)) && is_exact(a, f) && is_exact(b, f),
        Expr::Select(c, a, b) => [c, a, b].iter().all(|e| is_exact(e, f)),
    }
}

#[cfg(test)]
mod tests {
    use super::compared_again;

    /// The names of the stages found in a function of `x` and `y`, whose last stage is given.
    fn found(stages: &str) -> Vec<String> {
        let text = format!("tensor @f(%x: f32[8,4], %y: f32[8,4], out %r: bool[8,4]) {{\n{stages}}}\n");
        let f = crate::text::parse_tensor_function(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
        let mut names: Vec<String> = compared_again(&f).into_iter().map(|b| f.buffers[b].name.to_string()).collect();
        names.sort();
        names
    }

    fn stage(name: &str, value: &str) -> String {
        format!(
            "  for {name}0 in 0..8 {{ for {name}1 in 0..4 {{ block {name}_ {{ %{name}[{name}0, {name}1] <- {value} }} }} }}\n"
        )
    }

    /// A stage of f32 that reads at its own index, and its buffer's declaration.
    fn float(name: &str, value: &str) -> String {
        let at = format!("[{name}0, {name}1]");
        format!("  buffer %{name}: f32[8,4] global\n{}", stage(name, &value.replace("[]", &at)))
    }

    const BEST: &str = "  buffer %best: f32[8] global
  for a in 0..8 { for b in 0..4 { block best_ reduce max init { %best[a] <- %h[a, b] } } }
";

    #[test]
    fn an_element_and_the_largest_one() {
        let largest = stage("r", "ge(%h[r0, r1], %best[r0])");
        let h = float("h", "%x[] * 0.3 + 0.1");
        assert_eq!(found(&format!("{h}{BEST}{largest}")), ["h"]);
        // What does not round gives the same number again.
        let exact = float("h", "max(%x[], neg(%y[]))");
        assert!(found(&format!("{exact}{BEST}{largest}")).is_empty());
        // The stage behind the one that rounds does not.
        let two = float("g", "%x[] * 0.3 + 0.1") + &float("h", "max(%g[], 0.0)");
        assert_eq!(found(&format!("{two}{BEST}{largest}")), ["g"]);
    }

    #[test]
    fn elements_with_each_other() {
        let h = float("h", "exp(%x[])");
        assert_eq!(found(&format!("{h}{}", stage("r", "lt(%h[r0, r1], %h[r0, 0])"))), ["h"]);
        // The same element with itself, and two values that are not elements of one stage.
        assert!(found(&format!("{h}{}", stage("r", "ne(%h[r0, r1], %h[r0, r1])"))).is_empty());
        assert!(found(&format!("{h}{}", stage("r", "lt(%h[r0, r1], %y[r0, r1])"))).is_empty());
        assert!(found(&format!("{h}{}", stage("r", "lt(%h[r0, r1], %h[r0, 0] * 2.0)"))).is_empty());
    }
}
