//! `software-pipeline`: loads the staged operands of the next iteration while this iteration computes.
//!
//! Operands go through registers. The operands of the first iteration are loaded before the loop. Each iteration stores
//! the values that were loaded before it and then loads for the next one, so all loads of an iteration run during its
//! computation. Operations on a loaded element (a select with padding, a conversion) run when it is stored, so that
//! nothing waits for the load earlier. The element is then always loaded, wanted or not, from a place that is clamped
//! into its buffer.
//!
//! The last iteration loads nothing. The condition for that also keeps some drivers from moving the loads behind the
//! computation, to the end of the loop. Other drivers wait for the loads at the end of the condition, before the
//! computation; for these, `always` leaves the condition out.
//!
//! With `double_buffer` the staged buffer has two halves that are used in turn, and the store need not wait for the
//! readers. A loop with one iteration loads nothing ahead: all its loads come before its stores.
//!
//! With `around` the loop is the whole body of another loop. The operands of the very first iteration are loaded before
//! the outer loop, and the last iteration loads for the first one in the next iteration of the outer loop. So a loop
//! over channels inside a loop over the taps of a window never waits for its first loads.
//!
//! Before -> after, `software-pipeline {loop=k, buffers=[as]}`:
//!
//! ```text
//! for k in 0..8:                    for as_first_i in 0..4:
//!   for as_i in 0..4:                 as_first: as_next[as_first_i] = a[as_first_i, 0]
//!     as: as[as_i] = a[as_i, k]     for k in 0..8:
//!   for i in 0..4:                    for as_i in 0..4:
//!     b: c[i] += as[i]*w[k]             as: as[as_i] = as_next[as_i]
//!                                     for as_next_i in 0..4:
//!                                       as_next: as_next[as_next_i] = a[as_next_i, k + 1]   if k + 1 < 8
//!                                     for i in 0..4:
//!                                       b: c[i] += as[i]*w[k]
//! ```

use super::accesses::{buffers_read, clamp_loads, rewrite_accesses, rewrite_loads};
use super::loops::{
    LoopHead, Substitution, check_new_block, check_new_loop, derived_name, find_buffer, find_loop, nest, replace_loop,
    substitute,
};
use super::staging::bounds_with;
use super::{Instruction, Refusal};
use crate::attr_struct;
use crate::int::Int;
use crate::name::Name;
use crate::tir::{Block, Buffer, BufferId, Cond, Encoding, Expr, LoopKind, Scope, Stmt, TensorFunction};

attr_struct! {
    /// Prefetches staged operands of the next iteration of a serial loop.
    pub struct SoftwarePipeline("software-pipeline") {
        /// The serial loop.
        pub r#loop: Name = "".into(),
        /// Buffers whose copies are in the outermost sequence of the loop's body.
        pub buffers: Vec<Name> = vec![],
        /// Two halves of each buffer in turn, instead of one that is stored after the last read.
        pub double_buffer: bool = false,
        /// The last iteration loads too, the elements that it has already: no condition stands around the loads.
        pub always: bool = false,
        /// A serial loop whose body is the pipelined one: its last iteration loads for the next one of this loop.
        pub around: Name = "".into(),
    }
}

/// A copy nest found in the loop's body: its loops and its block.
fn copy_nest(s: &Stmt, name: Name) -> Option<(Vec<LoopHead>, Block)> {
    let mut heads = Vec::new();
    let mut s = s;
    loop {
        match s {
            Stmt::For(l) => {
                heads.push(LoopHead::of(l));
                s = &l.body;
            }
            Stmt::Block(b) if b.name == name && b.reduce.is_none() => return Some((heads, (**b).clone())),
            _ => return None,
        }
    }
}

/// The loops renamed after `prefix` in place of `name`, and the substitution for it.
fn rename(heads: &[LoopHead], name: Name, prefix: Name) -> (Vec<LoopHead>, Substitution) {
    let start = format!("{name}_");
    let mut out = Vec::new();
    let mut by = Substitution::default();
    for l in heads {
        let tail = l.var.as_str().strip_prefix(&start).unwrap_or(l.var.as_str());
        let var = derived_name(prefix, tail.into());
        by.insert(l.var, Int::var(var));
        out.push(LoopHead { var, ..l.clone() });
    }
    (out, by)
}

/// The statements that replace one copy.
struct Pipelined {
    first: Stmt,
    store: Stmt,
    next: Stmt,
    /// For the next iteration of the loop around, if there is one.
    wrap: Option<Stmt>,
}

/// The value that is kept in registers.
struct Held {
    value: Expr,
    /// The buffer, if the value is a loaded element and not computed from one.
    from: Option<BufferId>,
}

impl Held {
    /// The one element of device memory that `value` loads, at an index that is valid in every iteration of the copy's
    /// `heads`; the whole value if it loads several.
    fn of(f: &TensorFunction, heads: &[LoopHead], value: &Expr) -> Held {
        let mut loads = value.loads();
        loads.dedup();
        let [(b, ix)] = loads[..] else { return Held { value: value.clone(), from: None } };
        if f.buffers[b].scope != Scope::Global {
            return Held { value: value.clone(), from: None };
        }
        let element = Expr::Load(b, ix.to_vec());
        let bounds = bounds_with(f, heads);
        Held { value: clamp_loads(f, &element, &bounds), from: Some(b) }
    }

    /// New registers for the elements of a copy whose loops are `own`.
    fn registers(&self, f: &mut TensorFunction, name: Name, own: &[&LoopHead], copy: &Block) -> BufferId {
        let bytes = f.buffers[copy.buffer].encoding == Encoding::ByteQuad;
        let words = own.last().is_some_and(|l| l.kind == LoopKind::Vectorize && l.extent.is(4));
        f.buffers.push(Buffer {
            name,
            dtype: self.from.map_or(f.buffers[copy.buffer].dtype, |b| f.buffers[b].dtype),
            shape: own.iter().map(|l| l.extent.clone()).collect(),
            scope: Scope::Register,
            encoding: if bytes && words { Encoding::ByteQuad } else { Encoding::Native },
        })
    }
}

impl SoftwarePipeline {
    fn pipeline(
        &self,
        f: &mut TensorFunction,
        [extent, rounds]: [&Int; 2],
        heads: &[LoopHead],
        copy: &Block,
    ) -> Result<Pipelined, Refusal> {
        let (k, around) = (Int::var(self.r#loop), Int::var(self.around));
        let name = copy.name;
        let (first_name, next_name) = (derived_name(name, "first".into()), derived_name(name, "next".into()));
        let wrap_name = derived_name(name, "wrap".into());
        if copy.indices.iter().any(|i| i.uses(self.r#loop) || i.uses(self.around)) {
            return Err(Refusal::at(name, "is stored at places that depend on the loop"));
        }
        let (first_heads, by) = rename(heads, name, first_name);
        let (next_heads, next_by) = rename(heads, name, next_name);
        let (wrap_heads, wrap_by) = rename(heads, name, wrap_name);
        for (name, heads) in [(first_name, &first_heads), (next_name, &next_heads), (wrap_name, &wrap_heads)] {
            check_new_block(f, name)?;
            heads.iter().try_for_each(|l| check_new_loop(f, l.var))?;
        }
        let held = Held::of(f, heads, &copy.value);
        let own: Vec<&LoopHead> = heads.iter().filter(|l| !matches!(l.kind, LoopKind::Local(_))).collect();
        let next = held.registers(f, next_name, &own, copy);
        let load = |[round, at]: [&Int; 2], by: &Substitution, name: Name| {
            let mut b = copy.clone();
            b.name = name;
            b.value = held.value.clone();
            b.map_ints(&mut |i| substitute(&i.substitute(self.r#loop, at).substitute(self.around, round), by));
            b.buffer = next;
            b.indices = own.iter().map(|l| by[&l.var].clone()).collect();
            b
        };
        let zero = Int::new(0);
        let first = load([&zero, &zero], &by, first_name);
        // The condition makes the clamp needless, but with it drivers address with fewer instructions (NAK: 336 of 339
        // a loop).
        let mut ahead = load([&around, &(k.clone() + 1).min(extent.clone() - 1)], &next_by, next_name);
        if !self.always {
            ahead.guards.push(Cond::lt(k.clone() + 1, extent.clone()));
        }
        let mut wrap = load([&(around.clone() + 1).min(rounds.clone() - 1), &zero], &wrap_by, wrap_name);
        wrap.guards.extend([Cond::ge(k.clone() + 1, extent.clone()), Cond::lt(around + 1, rounds.clone())]);
        let mut store = copy.clone();
        let loaded = Expr::Load(next, own.iter().map(|l| Int::var(l.var)).collect());
        store.value = match held.from {
            Some(b) => rewrite_loads(&copy.value, b, &|_| loaded.clone()),
            None => loaded,
        };
        if self.double_buffer {
            store.indices.insert(0, k.rem(2));
        }
        Ok(Pipelined {
            first: nest(&first_heads, Stmt::Block(Box::new(first))),
            store: nest(heads, Stmt::Block(Box::new(store))),
            next: nest(&next_heads, Stmt::Block(Box::new(ahead))),
            wrap: self.is_inside().then(|| nest(&wrap_heads, Stmt::Block(Box::new(wrap)))),
        })
    }

    /// Whether another loop stands around the pipelined one.
    fn is_inside(&self) -> bool {
        !self.around.as_str().is_empty()
    }

    /// The number of iterations of the loop around, whose body is the pipelined one; 1 without one.
    fn rounds(&self, f: &TensorFunction) -> Result<Int, Refusal> {
        if !self.is_inside() {
            return Ok(Int::new(1));
        }
        let outer = find_loop(f, self.around)?;
        if self.double_buffer {
            return Err(Refusal::at(self.around, "halves in turn are for one loop, not for one inside another"));
        }
        match &outer.body {
            Stmt::For(l) if l.var == self.r#loop && outer.kind == LoopKind::Serial => Ok(outer.extent.clone()),
            _ => Err(Refusal::at(self.around, format!("is no serial loop whose body is `{}`", self.r#loop))),
        }
    }

    /// Puts the pipelined body into its loop, and what comes before all of them in front.
    fn replace(&self, f: &mut TensorFunction, body: Stmt, mut before: Vec<Stmt>) -> Result<(), Refusal> {
        let outermost = if self.is_inside() { self.around } else { self.r#loop };
        replace_loop(f, outermost, |mut l| {
            match &mut l.body {
                Stmt::For(inner) if self.is_inside() => inner.body = body,
                own => *own = body,
            }
            before.push(Stmt::For(Box::new(l)));
            Ok(Stmt::seq(before))
        })
    }
}

impl Instruction for SoftwarePipeline {
    fn apply(&self, f: &mut TensorFunction) -> Result<(), Refusal> {
        let l = find_loop(f, self.r#loop)?.clone();
        if l.kind != LoopKind::Serial {
            return Err(Refusal::at(self.r#loop, "only a serial loop can be pipelined"));
        }
        let rounds = self.rounds(f)?;
        let stored: Vec<BufferId> = l.body.blocks().iter().map(|b| b.buffer).collect();
        let mut body = match l.body {
            Stmt::Seq(list) => list,
            one => vec![one],
        };
        let (mut before, mut loads, mut last) = (Vec::new(), Vec::new(), 0);
        for name in &self.buffers {
            let found = body.iter().enumerate().find_map(|(n, s)| Some((n, copy_nest(s, *name)?)));
            let text = || format!("no copy named `{name}` stands in the body of `{}`", self.r#loop);
            let (n, (heads, copy)) = found.ok_or_else(|| Refusal::at(*name, text()))?;
            if find_buffer(f, *name).ok() != Some(copy.buffer) || f.buffers[copy.buffer].scope == Scope::Global {
                return Err(Refusal::at(*name, "is not a staged buffer"));
            }
            if let Some(b) = buffers_read(&copy.value).into_iter().find(|b| stored.contains(b)) {
                let text =
                    format!("reads `{}`, which the loop stores to: it cannot be loaded ahead", f.buffers[b].name);
                return Err(Refusal::at(*name, text));
            }
            let inside: usize = body.iter().map(|s| users(s, copy.buffer)).sum();
            if self.double_buffer && inside != users(&f.body, copy.buffer) {
                let text = format!("is used outside of `{}`, where nothing says which half", self.r#loop);
                return Err(Refusal::at(*name, text));
            }
            if self.double_buffer {
                let half = Int::var(self.r#loop).rem(2);
                rewrite_body(&mut body, f, copy.buffer, &half);
            }
            let p = self.pipeline(f, [&l.extent, &rounds], &heads, &copy)?;
            if self.double_buffer {
                f.buffers[copy.buffer].shape.insert(0, Int::new(2));
                if let Scope::Subgroup { lane_dim, .. } = &mut f.buffers[copy.buffer].scope {
                    *lane_dim += 1;
                }
            }
            before.push(p.first);
            body[n] = p.store;
            if !l.extent.is(1) {
                loads.push(p.next);
            }
            loads.extend(p.wrap);
            last = last.max(n + 1);
        }
        body.splice(last..last, loads);
        self.replace(f, Stmt::seq(body), before)
    }
}

/// Blocks that store to `buffer` or read it.
fn users(s: &Stmt, buffer: BufferId) -> usize {
    s.blocks().iter().filter(|b| b.buffer == buffer || buffers_read(&b.value).contains(&buffer)).count()
}

/// Lets every access to `buffer` below `body` go to one half.
fn rewrite_body(body: &mut Vec<Stmt>, f: &TensorFunction, buffer: crate::tir::BufferId, half: &Int) {
    let mut part = TensorFunction::new(f.name);
    part.body = Stmt::Seq(std::mem::take(body));
    let prefixed = |ix: &[Int]| std::iter::once(half.clone()).chain(ix.iter().cloned()).collect::<Vec<Int>>();
    rewrite_accesses(&mut part, buffer, &prefixed);
    if let Stmt::Seq(list) = part.body {
        *body = list;
    }
}

#[cfg(test)]
mod tests {
    use crate::schedule::testing::*;

    const STAGE: [&str; 12] = [
        "split {loop=y_i0, factors=[0, 4], into=[io, ii]}",
        "split {loop=y_i1, factors=[0, 4], into=[jo, ji]}",
        "reorder {loops=[io, jo, ii, ji]}",
        "bind {loop=io, axis=group_y}",
        "bind {loop=jo, axis=group_x}",
        "bind {loop=ii, axis=local_y}",
        "bind {loop=ji, axis=local_x}",
        "compute-at {block=mm, at=ji, scope=register}",
        "split {loop=mm_r0, factors=[0, 4], into=[ko, ki]}",
        "pad-reduction {block=mm}",
        "stage-in-shared {block=mm, operand=\"0\", at=ko, into=as}",
        "stage-in-shared {block=mm, operand=\"1\", at=ko, into=ws}",
    ];
    const BIND: [&str; 4] = [
        "bind {loop=as_ii, axis=local_y}",
        "bind {loop=as_ki, axis=local_x}",
        "bind {loop=ws_ki, axis=local_y}",
        "bind {loop=ws_ji, axis=local_x}",
    ];

    #[test]
    fn the_next_tile_is_prefetched() {
        let f = matmul(6, 7, 10);
        for (double, always) in [(false, false), (true, false), (false, true), (true, true)] {
            let attributes = format!("double_buffer={double}, always={always}");
            let pipeline = format!("software-pipeline {{loop=ko, buffers=[as, ws], {attributes}}}");
            let g = scheduled(&f, &STAGE);
            let g = scheduled(&g, &BIND);
            let g = scheduled(&g, &["decompose-reduction {block=mm, at=ko}", &pipeline, "cut-kernel {}"]);
            assert_same(&f, &g);
        }
    }

    /// The copy's own loop is serial, too; what it fills is read behind it.
    #[test]
    fn halves_are_for_readers_inside_the_loop() {
        let g = scheduled(&matmul(6, 7, 10), &STAGE);
        let refused = refusal(&g, "software-pipeline {loop=as_ii, buffers=[as], double_buffer=true}");
        assert!(refused.contains("outside of `as_ii`"), "{refused}");
    }

    /// The last step of one iteration around loads the first of the next one.
    #[test]
    fn loops_inside_loops_are_pipelined_over_their_ends() {
        let f = conv(2, 5, 6, 7, 4, 3, 1, 1);
        let steps = [
            "reorder {loops=[conv_i0, conv_r0, conv_r1, conv_r2, conv_i1, conv_i2, conv_i3]}",
            "fuse {loops=[conv_r0, conv_r1], into=t}",
            "stage-in-registers {block=conv, operand=\"0\", at=conv_r2, into=xs}",
            "stage-in-registers {block=conv, operand=\"1\", at=conv_r2, into=ws}",
            "decompose-reduction {block=conv, at=t}",
        ];
        let g = scheduled(&f, &steps);
        assert_same(&f, &scheduled(&g, &["software-pipeline {loop=conv_r2, buffers=[xs, ws], around=t}"]));
        let apart = "software-pipeline {loop=conv_r2, buffers=[xs], around=t, always=true}";
        assert_same(&f, &scheduled(&g, &[apart]));
        let refused =
            |around: &str| refusal(&g, &format!("software-pipeline {{loop=conv_r2, buffers=[xs], {around}}}"));
        assert!(refused("around=conv_r2").contains("no serial loop whose body is `conv_r2`"));
        assert!(refused("around=t, double_buffer=true").contains("not for one inside another"));
    }

    #[test]
    fn copies_must_stand_in_the_loop() {
        assert!(refusal(&matmul(3, 4, 5), "software-pipeline {loop=mm_r0, buffers=[as]}").contains("no copy"));
    }
}
