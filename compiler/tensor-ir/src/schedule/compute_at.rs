//! `compute-at`: moves a producer under a loop of its consumer, where it computes only the elements that one iteration
//! of the loop needs.
//!
//! With one consumer, the buffer keeps a dimension for each loop inside `at` that the consumer's load uses (for shared
//! memory also for the thread loops around `at`). The producer computes the element that the consumer loads there: the
//! consumer's index expressions replace its spatial loop variables. In workgroup memory each subgroup around `at` has a
//! slice, which only this subgroup computes. If one consumer loads several elements, a dimension in which their indices
//! agree becomes the loops of that index; other dimensions stay whole. With several consumers, a dimension whose index
//! is the same in all of them and fixed inside `at` is removed; other dimensions stay whole. With register scope the
//! buffer is the accumulator of a matmul or convolution, and the consumer is its epilogue.
//!
//! Before -> after, `compute-at {block=t, at=i, scope=register}`:
//!
//! ```text
//! for a in 0..8:                    for i in 0..8:
//!   for b in 0..4:                    for t_j in 0..4:
//!     for r in 0..5:                    for r in 0..5:
//!       t: t[a, b] += x[a, b, r]          t: t[t_j] += x[i, t_j, r]
//! for i in 0..8:                      for j in 0..4:
//!   for j in 0..4:                      y: y[i, j] = max(t[j], 0)
//!     y: y[i, j] = max(t[i, j], 0)
//! ```

use super::accesses::{buffers_read, clamp_loads_inside, rewrite_loads};
use super::loops::{
    IndexMap, LoopHead, Substitution, check_new_loop, derived_name, insert_before_users, loops_around_block, nest,
    plain_store, position_around, substitute, take_stage,
};
use super::staging::bounds_with;
use super::{Instruction, Refusal};
use crate::int::{self, Bounds, Int, IntNode};
use crate::name::Name;
use crate::tir::{Block, BufferId, Expr, LoopKind, MatrixRole, Scope, Stmt, TensorFunction};
use crate::{attr_enum, attr_struct};

attr_enum! {
    /// A memory that a producer is moved to.
    pub enum LocalScope {
        /// Private to each thread.
        Register = "register",
        /// Workgroup memory.
        Shared = "shared",
        /// Accumulators of the subgroup: the last two dimensions are rows and columns.
        Fragment = "fragment",
    }
}
impl LocalScope {
    /// The buffer scope.
    pub fn scope(self) -> Scope {
        match self {
            LocalScope::Register => Scope::Register,
            LocalScope::Shared => Scope::Shared,
            LocalScope::Fragment => Scope::Fragment(MatrixRole::C),
        }
    }
}

attr_struct! {
    /// Moves a producer, still in its own unscheduled nest, into a loop around its consumers.
    pub struct ComputeAt("compute-at") {
        /// The producer.
        pub block: Name = "".into(),
        /// The loop around its consumers.
        pub at: Name = "".into(),
        /// The new scope of its buffer.
        pub scope: LocalScope = LocalScope::Register,
    }
}

/// How the producer's buffer looks after the move.
struct Placement {
    /// Loops over subgroups around `at`: the first dimensions of the buffer, so that each subgroup has its own slice.
    slices: Vec<LoopHead>,
    /// New loops, and further dimensions of the buffer.
    dims: Vec<LoopHead>,
    /// Values of the producer's spatial variables in the new loops' variables.
    by: Substitution,
    /// The consumer's new load for its old indices.
    load: IndexMap,
}

/// The common start of the consumers' indices into a dimension, and the number of elements from there.
struct Reach {
    /// The part that is fixed inside the loop, the same in all loads.
    start: Int,
    /// Elements from there on.
    extent: i64,
    /// The clamp of the loads' indices, if they have one.
    clamp: Option<Clamp>,
}

/// A consumer with the loops around it and the index vectors it loads.
struct Consumer {
    name: Name,
    path: Vec<LoopHead>,
    at: usize,
    loads: Vec<Vec<Int>>,
    conditional: bool,
}

impl Reach {
    /// The index of element `at` of the part, inside a dimension of `extent` elements.
    fn place(&self, at: Int, extent: &Int, bounds: &Bounds) -> Int {
        let last = extent.as_const().zip(int::range(&self.start, bounds)).map(|(n, start)| (start.1 + self.extent, n));
        let index = self.start.clone() + at;
        match last {
            Some((last, n)) if last > n => self.clamp.unwrap_or(Clamp { of: 1, last: n - 1 }).apply(&index),
            _ => index,
        }
    }
}

impl ComputeAt {
    fn consumers(&self, f: &TensorFunction, buffer: BufferId) -> Result<Vec<Consumer>, Refusal> {
        let mut out = Vec::new();
        for b in f.body.blocks().into_iter().filter(|b| b.accesses(buffer)) {
            if b.buffer == buffer {
                return Err(Refusal::at(b.name, "writes the producer's buffer too"));
            }
            let loads: Vec<Vec<Int>> = b.value.loads().iter().filter(|l| l.0 == buffer).map(|l| l.1.to_vec()).collect();
            if b.is_indexed_by(buffer) {
                return Err(Refusal::at(b.name, "uses the producer's value as an index"));
            }
            let path = loops_around_block(f, b.name)?;
            let at = position_around(&path, self.at, b.name)?;
            let mut conditional = !b.guards.is_empty();
            b.value.visit(&mut |e| conditional |= matches!(e, Expr::Select(..)));
            out.push(Consumer { name: b.name, path, at, loads, conditional });
        }
        if out.is_empty() {
            return Err(Refusal::at(self.block, "its buffer has no consumer"));
        }
        Ok(out)
    }

    /// True when a dimension is needed for loop `n` of `path`.
    fn varies(&self, path: &[LoopHead], n: usize, at: usize) -> Result<bool, Refusal> {
        let l = &path[n];
        let thread = matches!(l.kind, LoopKind::Local(_) | LoopKind::Subgroup(_));
        if n > at && (matches!(l.kind, LoopKind::Group(_)) || (thread && self.scope != LocalScope::Shared)) {
            let text = format!("`{}` inside `{}` is bound and used by the consumer's load", l.var, self.at);
            return Err(Refusal::at(l.var, text));
        }
        Ok(n > at || (thread && self.scope == LocalScope::Shared))
    }

    /// One dimension for each loop that the indices use in which all loads agree, and the other dimensions whole.
    fn place_by_agreement(
        &self,
        f: &TensorFunction,
        c: &Consumer,
        vars: &[Option<Name>],
        shape: &[Int],
    ) -> Result<Placement, Refusal> {
        let first = &c.loads[0];
        let agrees: Vec<bool> = (0..first.len()).map(|d| c.loads.iter().all(|ix| ix[d] == first[d])).collect();
        let common: Vec<Int> = first.iter().zip(&agrees).filter(|(_, same)| **same).map(|(i, _)| i.clone()).collect();
        let (mut slices, mut old, mut loops) = (Vec::new(), Vec::new(), Vec::new());
        for (n, l) in c.path.iter().enumerate() {
            if common.iter().any(|i| i.uses(l.var)) && self.varies(&c.path, n, c.at)? {
                if n < c.at && matches!(l.kind, LoopKind::Subgroup(_)) {
                    slices.push(l.clone());
                    continue;
                }
                let var = derived_name(self.block, l.var);
                check_new_loop(f, var)?;
                loops.push(LoopHead::serial(var, l.extent.clone()));
                old.push(l.var);
            }
        }
        let rename: Substitution = old.iter().copied().zip(loops.iter().map(|d| Int::var(d.var))).collect();
        let (mut by, mut dims, mut kept) = (Substitution::default(), Vec::new(), Vec::new());
        for (d, v) in vars.iter().enumerate() {
            let Some(v) = *v else { continue };
            if agrees[d] {
                by.insert(v, substitute(&first[d], &rename));
                continue;
            }
            let var = derived_name(self.block, v);
            check_new_loop(f, var)?;
            dims.push(LoopHead::serial(var, shape[d].clone()));
            by.insert(v, Int::var(var));
            kept.push(d);
        }
        // The consumer's innermost loop stays innermost: it may become a vector.
        dims.extend(loops);
        let own: Vec<Name> = slices.iter().map(|l| l.var).collect();
        let load = move |ix: &[Int]| {
            let slice = own.iter().map(|v| Int::var(*v));
            let whole = kept.iter().map(|d| ix[*d].clone());
            slice.chain(whole).chain(old.iter().map(|v| Int::var(*v))).collect()
        };
        Ok(Placement { slices, dims, by, load: Box::new(load) })
    }

    /// The elements of dimension `d` that the loads reach inside the loop, if their start depends only on outer loops.
    fn reach(
        &self,
        f: &TensorFunction,
        consumers: &[Consumer],
        (d, shape): (usize, &[Int]),
    ) -> Result<Option<Reach>, Refusal> {
        let bounds = f.bounds();
        let mut found: Option<Reach> = None;
        for c in consumers {
            let mut outside = Vec::new();
            for (n, l) in c.path.iter().enumerate() {
                if !self.varies(&c.path, n, c.at)? {
                    outside.push(l.var);
                }
            }
            for ix in &c.loads {
                let (clamp, index) = unclamped(&ix[d], &shape[d]);
                let inside = outside.iter().fold(index.clone(), |i, v| i.substitute(*v, &Int::new(0)));
                let start = int::simplify(&(index - &inside), &bounds);
                let Some((0, last)) = int::range(&inside, &bounds) else { return Ok(None) };
                let known = found.as_ref();
                let other = known
                    .is_some_and(|r| r.start != start || (r.clamp.is_some() && clamp.is_some() && r.clamp != clamp));
                if other || start.vars().iter().any(|v| !outside.contains(v)) {
                    return Ok(None);
                }
                let extent = known.map_or(0, |r| r.extent).max(last + 1);
                let clamp = clamp.or(known.and_then(|r| r.clamp));
                found = Some(Reach { start, extent, clamp });
            }
        }
        Ok(found)
    }

    /// The new dimensions: the part that the loads reach from a start that is fixed inside the loop; the whole
    /// dimension if there is no such start; and no dimension if the index is the same in all loads.
    fn place_whole(
        &self,
        f: &TensorFunction,
        consumers: &[Consumer],
        vars: &[Option<Name>],
        shape: &[Int],
    ) -> Result<Placement, Refusal> {
        let first = &consumers[0].loads[0];
        let mut dims = Vec::new();
        let mut by = Substitution::default();
        let mut kept = Vec::new();
        for (d, v) in vars.iter().enumerate() {
            let Some(v) = *v else { continue };
            let mut fixed = true;
            for c in consumers {
                for (n, l) in c.path.iter().enumerate() {
                    let used = c.loads.iter().any(|ix| ix[d].uses(l.var));
                    fixed &= !(used && self.varies(&c.path, n, c.at)?);
                }
                // A clamp decides which element is computed for places that are not stored.
                fixed &=
                    c.loads.iter().all(|ix| without_clamp(&ix[d], &shape[d]) == without_clamp(&first[d], &shape[d]));
            }
            if fixed {
                let mut indices = consumers.iter().flat_map(|c| &c.loads).map(|ix| &ix[d]);
                let clamped = indices.find(|i| without_clamp(i, &shape[d]) != **i).unwrap_or(&first[d]);
                by.insert(v, clamped.clone());
                continue;
            }
            let var = derived_name(self.block, v);
            check_new_loop(f, var)?;
            let part = self.reach(f, consumers, (d, shape))?;
            let part = part.filter(|r| !r.start.is(0) && shape[d].as_const().is_some_and(|n| r.extent < n));
            let (extent, place) = match &part {
                Some(r) => (Int::new(r.extent), r.place(Int::var(var), &shape[d], &f.bounds())),
                None => (shape[d].clone(), Int::var(var)),
            };
            dims.push(LoopHead::serial(var, extent));
            by.insert(v, place);
            kept.push((d, part.map(|r| r.start)));
        }
        let (bounds, shape) = (f.bounds(), shape.to_vec());
        let load = move |ix: &[Int]| {
            let place = |(d, start): &(usize, Option<Int>)| match start {
                None => ix[*d].clone(),
                Some(start) => int::simplify(&(unclamped(&ix[*d], &shape[*d]).1 - start), &bounds),
            };
            kept.iter().map(place).collect()
        };
        Ok(Placement { slices: vec![], dims, by, load: Box::new(load) })
    }
}

/// The clamp that keeps an index inside a dimension: `min(i/groups_of, last)*groups_of + i%groups_of`.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Clamp {
    of: i64,
    last: i64,
}

impl Clamp {
    /// The clamp of an index into a dimension of `n` elements, and the clamped index.
    fn of_index(index: &Int, n: i64) -> Option<(Clamp, Int)> {
        let ends = |last: i64, of: i64| (last + 1) * of == n;
        let min = |i: &Int| match i.node() {
            IntNode::Min(a, b) => b.as_const().map(|n| (a.clone(), n)).or_else(|| Some((b.clone(), a.as_const()?))),
            _ => None,
        };
        let times = |i: &Int| match i.node() {
            IntNode::Mul(a, b) => Some((a.clone(), b.as_const()?)),
            _ => None,
        };
        if let Some((a, last)) = min(index) {
            return ends(last, 1).then_some((Clamp { of: 1, last }, a));
        }
        let IntNode::Add(a, b) = index.node() else { return None };
        [(a, b), (b, a)].into_iter().find_map(|(group, rest)| {
            let (group, of) = times(group)?;
            let (q, last) = min(&group)?;
            (ends(last, of) && of > 1).then(|| (Clamp { of, last }, q * of + rest.clone()))
        })
    }
    fn apply(self, index: &Int) -> Int {
        match self.of {
            1 => index.clone().min(self.last),
            of => index.div(of).min(self.last) * of + index.rem(of),
        }
    }
}

/// The index without its clamp, if it has one.
fn unclamped(index: &Int, extent: &Int) -> (Option<Clamp>, Int) {
    let found = extent.as_const().and_then(|n| Clamp::of_index(index, n));
    found.map_or_else(|| (None, index.clone()), |(clamp, inner)| (Some(clamp), inner))
}

/// The index without the clamp that keeps it inside its dimension. The size of the dimension may be open.
fn without_clamp(index: &Int, extent: &Int) -> Int {
    let last = int::simplify(&(extent.clone() - 1), &Bounds::new());
    match index.node() {
        IntNode::Min(a, b) if *b == last => a.clone(),
        IntNode::Min(a, b) if *a == last => b.clone(),
        _ => unclamped(index, extent).1,
    }
}

impl Instruction for ComputeAt {
    fn apply(&self, f: &mut TensorFunction) -> Result<(), Refusal> {
        let (loops, block) = take_stage(f, self.block)?;
        let buffer = block.buffer;
        if f.params.iter().any(|p| p.buffer == buffer) {
            return Err(Refusal::at(self.block, "it writes a parameter"));
        }
        let vars = plain_store(f, &block)?;
        let consumers = self.consumers(f, buffer)?;
        let shape = f.buffers[buffer].shape.clone();
        let place = match consumers.as_slice() {
            [c] => self.place_by_agreement(f, c, &vars, &shape)?,
            _ => self.place_whole(f, &consumers, &vars, &shape)?,
        };
        let mut heads = place.dims.clone();
        let mut moved: Block = block;
        for l in loops.into_iter().filter(|l| !vars.contains(&Some(l.var))) {
            // A dimension of extent 1 has lost its variable; its loop would only stand in the way of the reductions.
            if l.extent.is(1) {
                moved.map_ints(&mut |i| i.substitute(l.var, &Int::new(0)));
            } else {
                heads.push(l);
            }
        }
        moved.map_ints(&mut |i| substitute(i, &place.by));
        moved.indices = place.slices.iter().chain(&place.dims).map(|d| Int::var(d.var)).collect();
        if consumers.iter().any(|c| c.conditional) {
            moved.value = clamp_loads_inside(f, &moved.value, &bounds_with(f, &heads), &heads);
        }
        let reads = buffers_read(&moved.value);
        f.buffers[buffer].shape = place.slices.iter().chain(&place.dims).map(|d| d.extent.clone()).collect();
        f.buffers[buffer].move_to(self.scope.scope());
        let users: Vec<Name> = consumers.iter().map(|c| c.name).collect();
        f.body.visit_mut(&mut |s| {
            if let Stmt::Block(b) = s
                && users.contains(&b.name)
            {
                b.value = rewrite_loads(&b.value, buffer, &|ix| Expr::Load(buffer, (place.load)(ix)));
            }
        });
        insert_before_users(f, self.at, nest(&heads, Stmt::Block(Box::new(moved))), &reads, &users)
    }
}

#[cfg(test)]
mod tests {
    use crate::dtype::DType;
    use crate::int::Int;
    use crate::name::Name;
    use crate::schedule::testing::*;
    use crate::tir::{Combiner, Expr, TensorFunction};

    #[test]
    fn an_accumulator_moves_into_registers() {
        let f = matmul(6, 5, 7);
        for at in ["y_i0", "y_i1"] {
            let g = scheduled(&f, &[&format!("compute-at {{block=mm, at={at}, scope=register}}")]);
            assert_same(&f, &g);
        }
    }

    #[test]
    fn tails_of_the_consumer_are_clamped() {
        let f = conv(2, 3, 5, 6, 4, 3, 2, 1);
        let g = scheduled(
            &f,
            &[
                "fuse {loops=[y_i0, y_i1, y_i2], into=p}",
                "split {loop=p, factors=[0, 7], into=[po, pi]}",
                "split {loop=y_i3, factors=[0, 3], into=[co, ci]}",
                "reorder {loops=[po, co, pi, ci]}",
                "compute-at {block=conv, at=co, scope=register}",
                "reorder {loops=[conv_r0, conv_r1, conv_r2, conv_pi, conv_ci]}",
            ],
        );
        assert_same(&f, &g);
    }

    #[test]
    fn loops_of_one_iteration_are_left_behind() {
        let f = conv(1, 3, 5, 6, 4, 3, 1, 1);
        let g = scheduled(&f, &["compute-at {block=conv, at=y_i1, scope=register}"]);
        let around = crate::schedule::loops::loops_around_block(&g, "conv".into()).expect("block");
        let inner: Vec<&str> = around[2..].iter().map(|l| l.var.as_str()).collect();
        assert_eq!(inner, ["conv_y_i2", "conv_y_i3", "conv_r0", "conv_r1", "conv_r2"]);
        assert_eq!(g.reduction_loops("conv".into()).len(), 3);
        assert_same(&f, &g);
    }

    #[test]
    fn elements_of_one_consumer_keep_what_they_differ_in() {
        // y[i, j] = t[i, 0, j] - t[i, 2, j], t[a, b, c] a sum.
        let f = function(&[("x", &[5, 4, 3, 6])], |c, ids| {
            let ints = |dims: &[i64]| dims.iter().map(|&d| Int::new(d)).collect::<Vec<_>>();
            let t = stage(c, "t", |c| {
                c.reduce("", &ints(&[4, 3, 6]), DType::F32, &ints(&[5]), Combiner::Sum, |s, r| {
                    Expr::load(ids[0], [r, s].concat())
                })
            });
            let at = |i: &[Int], b: i64| Expr::load(t, vec![i[0].clone(), Int::new(b), i[1].clone()]);
            stage(c, "y", |c| c.compute("", &ints(&[4, 6]), DType::F32, |i| at(i, 0) - at(i, 2)))
        });
        let g = scheduled(&f, &["compute-at {block=t, at=y_i0, scope=register}"]);
        let t = g.buffers.iter().find(|b| b.1.name == Name::new("t")).expect("t").1;
        assert_eq!(t.shape, [Int::new(3), Int::new(6)]);
        assert_same(&f, &g);
    }

    #[test]
    fn several_consumers_keep_whole_dimensions() {
        let f = softmax(4, 7);
        let g = scheduled(
            &f,
            &[
                "compute-at {block=sum, at=y_i0, scope=register}",
                "compute-at {block=exp, at=y_i0, scope=shared}",
                "compute-at {block=max, at=y_i0, scope=register}",
                "bind {loop=y_i0, axis=group_x}",
                "bind {loop=y_i1, axis=local_x}",
                "bind {loop=exp_exp_i1, axis=local_x}",
            ],
        );
        assert_same(&f, &g);
    }

    #[test]
    fn refusals_name_the_reason() {
        let f = softmax(4, 7);
        assert!(refusal(&f, "compute-at {block=exp, at=y_i0}").contains("not around block `sum`"));
        assert!(refusal(&f, "compute-at {block=y, at=y_i0}").contains("parameter"));
    }

    /// `y[i, k] = t[i + times*k]` and `z[i] = t[i]`, where `t` has `size` elements.
    fn windows(size: i64, [rows, taps, times]: [i64; 3]) -> TensorFunction {
        parsed(&format!(
            "tensor @f(%x: f32[{size}], out %y: f32[{rows},{taps}], out %z: f32[{rows}]) {{
  buffer %t: f32[{size}] global
  for j in 0..{size} {{ block t {{ %t[j] <- %x[j] * 2.0 }} }}
  for i in 0..{rows} {{
    for k in 0..{taps} {{ block y {{ %y[i, k] <- %t[i + k*{times}] }} }}
    block z {{ %z[i] <- %t[i] }}
  }}
}}"
        ))
    }

    /// Moves `t` under `at` after `split`, and says how many elements are kept.
    fn kept(f: &TensorFunction, split: &[&str], at: &str) -> Vec<Int> {
        let move_it = format!("compute-at {{block=t, at={at}, scope=register}}");
        let g = scheduled(f, &[split, &[move_it.as_str()]].concat());
        assert_same(f, &g);
        g.buffers.iter().find(|b| b.1.name == Name::new("t")).expect("t").1.shape.clone()
    }

    #[test]
    fn what_one_iteration_reaches_is_kept() {
        assert_eq!(kept(&windows(10, [8, 3, 1]), &[], "i"), [Int::new(3)]);
        // Each iteration reaches all of it.
        assert_eq!(
            kept(&windows(10, [8, 3, 1]), &["split {loop=i, factors=[0, 8], into=[io, ii]}"], "io"),
            [Int::new(10)]
        );
    }

    #[test]
    fn what_an_iteration_reaches_past_the_end_is_clamped() {
        let split = "split {loop=i, factors=[0, 3], into=[io, ii]}";
        assert_eq!(kept(&windows(10, [8, 3, 1]), &[split], "io"), [Int::new(5)]);
        // Groups of four, so that vectors stay together.
        let split = "split {loop=i, factors=[0, 2, 4], into=[io, ii, v]}";
        assert_eq!(kept(&windows(16, [12, 2, 4]), &[split], "io"), [Int::new(12)]);
    }

    #[test]
    fn a_clamp_is_one_that_ends_with_the_dimension() {
        let (i, q, r) = (Int::var(Name::new("i")), Int::var(Name::new("q")), Int::var(Name::new("r")));
        let of = |index: &Int, n: i64| super::Clamp::of_index(index, n).map(|(c, inner)| ((c.of, c.last), inner));
        assert_eq!(of(&i.clone().min(9), 10), Some(((1, 9), i.clone())));
        assert_eq!(of(&i.clone().min(8), 10), None);
        let groups = q.clone().min(3) * 4 + r.clone();
        assert_eq!(of(&groups, 16), Some(((4, 3), q * 4 + r)));
        assert_eq!(of(&groups, 20), None);
        assert_eq!(of(&i, 10), None);
    }
}
