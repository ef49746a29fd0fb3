//! Tiles of kernels: nests of tensor loops, and reductions whose lanes lie next to each other.

use crate::form::Form;
use crate::index::{Clamp, Condition, Index, Slot};
use crate::program::{Access, End, Extent, Node, RegisterTile, RowCondition, Start};
use crate::tile::Kind;
use crate::translate::{Translator, access};
use tensor_ir::arena::Id;
use tensor_ir::dtype::DType;
use tensor_ir::int::CondOp;
use tensor_ir::name::Name;
use tensor_ir::tir::analysis::operands::{Operand, factors, oriented};
use tensor_ir::tir::intrinsic::{Intrinsic, Nest};
use tensor_ir::tir::{Block, Combiner, Expr, For, Reduce};

/// Taps that are listed, at most; more are loops around the tile.
const MOST_TAPS: i64 = 4096;

/// From one lane of a window to the next in memory, at most; strips read lanes that lie farther apart.
const NEAR: i64 = 4;

/// An operand of a reduction whose lanes lie next to each other.
struct Side {
    access: Access,
    /// From one lane to the next; 0 where all read one element.
    step: i64,
    /// Where these do not hold the operand is `padding`; the lanes do not differ in them.
    conditions: Vec<Condition>,
    /// The same, of conditions that hold for some lanes.
    across: Vec<Condition>,
    padding: f32,
    /// Conditions that hold for the first lanes, where the place has no limits, and the place with them.
    limits: Vec<End>,
    held: Index,
}

/// The operands of a reduction.
struct Sides {
    kind: Kind,
    /// From one lane to the next, of the operands that move.
    step: i64,
    left: Access,
    right: Option<Access>,
    conditions: Vec<Condition>,
    across: Vec<Condition>,
    padding: Option<f32>,
    /// The same for a sum of integers.
    integer_padding: i64,
    limits: Vec<End>,
    held: [Option<Index>; 2],
}

impl Sides {
    /// A place that is read from a buffer may be in the padding: a tile looks for its first row and tap there, too. Rows
    /// that are held below a size are found without the limits of columns.
    fn looks_beyond(&self) -> bool {
        let padded = !self.conditions.is_empty() || !self.across.is_empty();
        let moves = self.kind != Kind::Product && !self.limits.is_empty();
        padded && self.indices().any(Index::reads) || moves && !self.left.index.without_clamps().1.is_empty()
    }
    /// A product of which rows, in loop `rows`, move the operand that has lanes alone: each row of it is scaled.
    fn scaled(self, rows: Slot) -> Sides {
        let held = self.limits.is_empty();
        match self.right {
            Some(right)
                if self.kind == Kind::Product
                    && held
                    && self.left.index.stride(rows) == Some(0)
                    && right.index.uses(rows)
                    && right.index.without_clamps().1.is_empty() =>
            {
                let [left, scale] = [right, self.left];
                Sides { kind: Kind::Scaled, left, right: Some(scale), held: [None, None], ..self }
            }
            right => Sides { right, ..self },
        }
    }
    fn indices(&self) -> impl Iterator<Item = &Index> {
        let operands = [Some(&self.left), self.right.as_ref()].into_iter().flatten().map(|a| &a.index);
        operands.chain(self.conditions.iter().chain(&self.across).map(|c| &c.index))
    }
    /// True if all moves evenly with the variable, where `left` is the place of the left operand, and no limit of the
    /// columns does.
    fn move_evenly(&self, left: &Index, with: Slot) -> bool {
        let free = !self.limits.iter().any(|l| l.condition.index.uses(with));
        free && self.indices().skip(1).chain([left]).all(|i| i.stride(with).is_some())
    }
    /// The innermost of these loops, where it stands under no condition: the depth of a tile. And those around it, its
    /// taps.
    fn depth<'e>(&self, loops: &'e [Extent], left: &Index, clamps: &[Clamp]) -> Option<(Extent, &'e [Extent])> {
        let free = |e: &Extent| {
            self.integer_padding == 0
                && self.conditions.iter().chain(&self.across).all(|c| c.index.stride(e.slot) == Some(0))
                && clamps.iter().all(|c| !c.index.uses(e.slot))
                && left.stride(e.slot).is_some_and(|s| s >= 0)
        };
        let (last, around) = loops.split_last()?;
        Some(if free(last) { (*last, around) } else { (Extent { slot: usize::MAX, count: 1 }, loops) })
    }
}

impl Side {
    fn is_padded(&self) -> bool {
        !self.conditions.is_empty() || !self.across.is_empty()
    }
}

/// The padding of an extremum, and of a sum of integers.
fn padding_of(kind: Kind, padding: Option<f32>) -> (Option<f32>, i64) {
    if kind == Kind::Sum { (None, padding.map_or(0, |x| x as i64)) } else { (padding, 0) }
}

/// The number that changes no sum or extremum.
fn nothing(c: Combiner) -> f32 {
    match c {
        Combiner::Max => f32::NEG_INFINITY,
        Combiner::Min => f32::INFINITY,
        Combiner::Sum => 0.0,
        Combiner::Prod => 1.0,
    }
}

/// The type that lanes are combined in: an extremum of shorter floats is one of them, nothing is rounded.
fn sums_of(c: Combiner, dtype: DType) -> DType {
    let picks = matches!(c, Combiner::Max | Combiner::Min);
    if picks && dtype.is_float() && dtype.size() < 4 { DType::F32 } else { dtype }
}

impl Translator<'_> {
    /// A nest of tensor loops, with the reduction loops around it that hold nothing else.
    pub(crate) fn tile(&mut self, outer: &[Extent], l: &For) -> Result<Node, String> {
        let refused = |what: &str| format!("loop `{}` is no tile of the CPU: {what}", l.var);
        let nest = Nest::under(l).map_err(|m| m.message)?;
        let intrinsic = Intrinsic::of_nest(self.f, &nest).ok_or_else(|| refused("no intrinsic has its loops"))?;
        let b = nest.block;
        let heads = nest.loops.iter().map(|l| Ok((l.0, self.size(&l.1)?))).collect::<Result<Vec<_>, String>>()?;
        let [rows, columns, depth] = self.bind_all(&heads)[..] else { return Err(refused(&intrinsic.name)) };
        let [x, y] = oriented(&b.value, heads[0].0, heads[1].0).ok_or_else(|| refused("it adds up no products"))?;
        let (x, y) = match (Operand::of(x), Operand::of(y)) {
            (Some(x), Some(y)) if x.row_padding().is_some() && y.padding.is_none() => (x, y),
            _ => return Err(refused("an operand is no buffer")),
        };
        let sums = self.f.buffers[b.buffer].dtype;
        if ![&x, &y].into_iter().all(|o| self.is_readable(o, sums)) {
            return Err(refused("an operand is no number of at most 32 bits"));
        }
        let integer_padding = x.row_padding().unwrap_or(0);
        let conditions = self.conditions(x.conditions)?;
        let lanes = [rows.slot, columns.slot];
        let element = |o: &Operand<'_>| self.ix.place(o.buffer, o.indices).map(|place| access(o.buffer, place, lanes));
        let (left, right) = (element(&x)?, element(&y)?);
        let acc = access(b.buffer, self.ix.place(b.buffer, &b.indices)?, lanes);
        let stride = |a: &Access, e: Extent| a.index.stride(e.slot);
        let (Some(left_stride), Some(right_stride)) = (stride(&left, depth), stride(&right, depth)) else {
            return Err(refused("an operand has no strides"));
        };
        // Columns that are left out are computed too, and read by nobody; rows that are left out read nothing.
        let mut conditions = conditions;
        conditions.extend(self.conditions(&b.guards)?.into_iter().filter(|c| !c.index.uses(columns.slot)));
        let inside: Vec<Slot> = outer.iter().chain([&rows]).map(|e| e.slot).collect();
        let (plain, clamps) = left.index.without_limits(&inside);
        let even = |e: &Extent| {
            let indices = conditions.iter().map(|c| &c.index).chain([&plain, &right.index]);
            !acc.index.uses(e.slot) && indices.into_iter().all(|i| i.stride(e.slot).is_some())
        };
        let used = outer.iter().rev().take_while(|e| even(e)).count();
        let (around, taps) = outer.split_at(outer.len() - used);
        let tile = RegisterTile {
            kind: if sums == DType::I32 { Kind::Words } else { Kind::Product },
            integer_padding,
            rows: rows.count,
            columns: columns.count,
            depth: depth.count,
            start: Start::Kept,
            acc_row: acc.index.stride(rows.slot).ok_or_else(|| refused("its sums have no strides"))?,
            acc,
            row: rows.slot,
            column: columns.slot,
            inner: depth.slot,
            row_stride: plain.stride(rows.slot),
            clamps,
            left_stride,
            right_row: 0,
            right_stride,
            ..tile(taps, &plain, Some(&right.index), conditions, rows.slot)
        };
        Ok(with_loops(around, RegisterTile { left, right: Some(right), ..tile }))
    }
    /// True if tiles with such sums read the operand: of the same type, or a shorter one that they copy, which stays as
    /// it is while the kernel runs.
    fn is_readable(&self, o: &Operand<'_>, sums: DType) -> bool {
        let form = self.buffers[o.buffer.index()].form;
        let written = || self.f.body.blocks().iter().any(|block| block.buffer == o.buffer);
        let (own, shorter) = match sums {
            DType::I32 => (form == Form::I32, matches!(form, Form::I8 | Form::U8 | Form::U32)),
            _ => (form == Form::F32, form.is_narrow_float()),
        };
        o.widens(sums) && (own || shorter && !written())
    }
    /// True if the elements of a buffer are copied before a tile reads them.
    fn is_copied(&self, a: &Access) -> bool {
        !matches!(self.buffers[a.buffer].form, Form::F32 | Form::I32)
    }
    /// The tile that the reduction `r` of a block is, if its lanes, in the loop `columns`, lie next to each other.
    pub(crate) fn window(
        &self,
        b: &Block,
        r: Reduce,
        loops: &[Extent],
        columns: Extent,
        store: &Index,
    ) -> Result<Option<Node>, String> {
        let buffer = &self.f.buffers[b.buffer];
        let own = matches!(Form::of(buffer.dtype, buffer.encoding, buffer.scope), Form::F32 | Form::I32);
        if !b.guards.is_empty() || !own || store.stride(columns.slot) != Some(1) || b.reads(b.buffer) {
            return Ok(None);
        }
        let sides = self.sides(&b.value, (r.combiner, sums_of(r.combiner, buffer.dtype)), columns.slot)?;
        let Some(sides) = sides.filter(|s| !s.looks_beyond()) else { return Ok(None) };
        let copied = self.is_copied(&sides.left) || sides.right.as_ref().is_some_and(|r| self.is_copied(r));
        let rows = loops.iter().rev().find(|e| store.uses(e.slot)).filter(|_| !copied);
        let sides = match rows {
            Some(e) => sides.scaled(e.slot),
            None => sides,
        };
        let (plain, clamps) = sides.left.index.without_clamps();
        let even = |e: &Extent| sides.move_evenly(&plain, e.slot);
        let taps = loops.iter().rev().take_while(|e| !store.uses(e.slot) && even(e)).scan(1, |all, e| {
            *all *= e.count;
            (*all <= MOST_TAPS).then_some(())
        });
        let (outer, inner) = loops.split_at(loops.len() - taps.count());
        let Some((depth, taps)) = sides.depth(inner, &plain, &clamps) else { return Ok(None) };
        let walk = outer.last().filter(|e| store.uses(e.slot) && store.stride(e.slot).is_some() && even(e));
        // A right operand that is copied is the same for all rows.
        let moves = |e: &&Extent| sides.right.iter().any(|r| self.is_copied(r) && r.index.uses(e.slot));
        let walk = walk.filter(|e| !moves(e) && !sides.across.iter().any(|c| c.index.stride(e.slot) != Some(0)));
        let around = &outer[..outer.len() - usize::from(walk.is_some())];
        let rows = walk.copied().unwrap_or(Extent { slot: usize::MAX, count: 1 });
        let inside: Vec<Slot> = taps.iter().chain([&depth]).map(|e| e.slot).collect();
        let step = |e: Extent, i: &Index| i.stride(e.slot).unwrap_or(0);
        let right = sides.right.as_ref().map(|r| &r.index);
        let made = RegisterTile {
            kind: sides.kind,
            lane_stride: sides.step,
            rows: rows.count,
            columns: columns.count,
            depth: depth.count,
            start: self.start(b.name, r, &inside),
            acc: access(b.buffer, store.clone(), [rows.slot, columns.slot]),
            acc_row: step(rows, store),
            column: columns.slot,
            padding: sides.padding,
            integer_padding: sides.integer_padding,
            row_stride: Some(step(rows, &plain)),
            left_stride: step(depth, &plain),
            right_row: right.map_or(0, |r| step(rows, r)),
            right_stride: right.map_or(0, |r| step(depth, r)),
            clamps,
            across: conditions_of(taps, sides.across.clone(), columns.slot),
            limits: sides.limits,
            held: sides.held,
            ..tile(taps, &plain, right, sides.conditions.clone(), rows.slot)
        };
        Ok(Some(with_loops(around, RegisterTile { left: sides.left, right: sides.right, ..made })))
    }
    /// What the sums of a reduction begin with whose loops `inside` are done at once.
    fn start(&self, block: Name, r: Reduce, inside: &[Slot]) -> Start {
        if !r.init {
            return Start::Kept;
        }
        let loops = self.f.reduction_loops(block);
        let others = loops.iter().filter_map(|v| self.ix.slots.get(v).copied()).filter(|s| !inside.contains(s));
        match others.collect::<Vec<Slot>>() {
            none if none.is_empty() => Start::Number(nothing(r.combiner)),
            slots => Start::First(nothing(r.combiner), slots),
        }
    }
    /// The operands of a reduction of `value`, if their lanes lie next to each other or are all the same.
    fn sides(&self, value: &Expr, (combiner, sums): (Combiner, DType), lane: Slot) -> Result<Option<Sides>, String> {
        let alone = match combiner {
            Combiner::Max => Kind::Max,
            Combiner::Min => Kind::Min,
            Combiner::Sum => Kind::Sum,
            Combiner::Prod => return Ok(None),
        };
        let (first, second) = match (value, factors(value)) {
            (Expr::Binary(..), Some([x, y])) if alone == Kind::Sum => (x, Some(y)),
            (one, _) => (one, None),
        };
        let nothing = nothing(combiner);
        let operand = |e: &Expr| {
            // A sum leaves its padding out; an extremum also takes another number, and so does a product of integers.
            let free = alone != Kind::Sum || sums == DType::I32;
            let fits = |o: &Side| !o.is_padded() || o.padding == nothing || free;
            Ok::<_, String>(self.operand(e, sums, lane)?.filter(fits))
        };
        let Some(left) = operand(first)? else { return Ok(None) };
        let padding = Some(left.padding).filter(|x| left.is_padded() && *x != nothing);
        let right = match second.map(operand).transpose()? {
            Some(None) => return Ok(None),
            other => other.flatten(),
        };
        let both = [Some(&left), right.as_ref()];
        let conditions = both.into_iter().flatten().flat_map(|o| o.conditions.iter().cloned()).collect();
        let across: Vec<Condition> = both.into_iter().flatten().flat_map(|o| o.across.iter().cloned()).collect();
        // A product of two elements that are the same for all lanes is the same everywhere.
        let step = left.step.max(right.as_ref().map_or(0, |r| r.step));
        let (kind, left, right) = match (left.step, right) {
            (1, Some(right)) if right.step == 1 && sums == DType::I32 => (Kind::LaneWords, left, Some(right)),
            _ if sums != DType::F32 => return Ok(None),
            (0, Some(right)) if right.step != 0 => (Kind::Product, left, Some(right)),
            (0, _) => return Ok(None),
            (_, None) => (alone, left, None),
            (_, Some(right)) if right.step == 0 => (Kind::Product, right, Some(left)),
            (1, Some(right)) if right.step == 1 => (Kind::Lanes, left, Some(right)),
            _ => return Ok(None),
        };
        // The other operand of a product is not in the padding then.
        if padding.is_some() && alone == Kind::Sum && right.as_ref().is_some_and(Side::is_padded) {
            return Ok(None);
        }
        // A copy has every tap of the right operand, those in the padding too.
        if right.as_ref().is_some_and(|r| !r.conditions.is_empty() && self.is_copied(&r.access)) {
            return Ok(None);
        }
        // It has every lane, too.
        let copied = || [Some(&left), right.as_ref()].into_iter().flatten().any(|o| self.is_copied(&o.access));
        if (!across.is_empty() || step > 1) && copied() {
            return Ok(None);
        }
        let limits: Vec<_> = right.iter().chain([&left]).flat_map(|o| o.limits.iter().cloned()).collect();
        if !limits.is_empty() && !across.is_empty() {
            return Ok(None);
        }
        let held = [Some(left.held), right.as_ref().map(|r| r.held.clone())];
        let (left, right) = (left.access, right.map(|r| r.access));
        let (padding, integer_padding) = padding_of(alone, padding);
        Ok(Some(Sides { kind, step, left, right, conditions, across, padding, integer_padding, limits, held }))
    }
    fn operand(&self, e: &Expr, sums: DType, lane: Slot) -> Result<Option<Side>, String> {
        let Some(o) = Operand::of(e).filter(|o| self.is_readable(o, sums)) else { return Ok(None) };
        let exact = |x: &i64| *x as f32 as i64 == *x;
        let padding =
            if sums == DType::I32 { o.row_padding().filter(exact).map(|x| x as f64) } else { o.float_padding() };
        let Some(padding) = padding else { return Ok(None) };
        let conditions = self.conditions(o.conditions)?;
        let held = self.ix.place(o.buffer, o.indices)?;
        let (index, ends) = held.without_ends(lane);
        let limits: Vec<End> =
            ends.into_iter().map(|(condition, step)| End { condition, step, of_columns: true }).collect();
        let (across, conditions): (Vec<_>, Vec<_>) = conditions.into_iter().partition(|c| c.index.uses(lane));
        let Some(step) = index.stride(lane).filter(|s| (0..=NEAR).contains(s)) else { return Ok(None) };
        let even = across.iter().all(|c| c.op != CondOp::Eq && c.index.stride(lane).is_some());
        let cut = !across.is_empty() || !limits.is_empty();
        if !even || step == 0 && cut || !across.is_empty() && !limits.is_empty() {
            return Ok(None);
        }
        let access = access(o.buffer, index, [usize::MAX, lane]);
        Ok(Some(Side { access, step, conditions, across, padding: padding as f32, limits, held }))
    }
}

/// Loops around a tile.
fn with_loops(around: &[Extent], tile: RegisterTile) -> Node {
    around.iter().rev().fold(Node::Tile(Box::new(tile)), |body, e| Node::Loop(e.slot, e.count, vec![body]))
}

/// The differences of an index in each tap from that in the first, of loops along which it moves evenly.
fn along(loops: &[Extent], i: &Index) -> Vec<i64> {
    let mut all = vec![0];
    for l in loops {
        let step = i.stride(l.slot).unwrap_or(0);
        all = all.iter().flat_map(|at| (0..l.count).map(move |n| at + n * step)).collect();
    }
    all
}

/// The least and the greatest of 0 and these.
fn reach(all: &[i64]) -> (i64, i64) {
    all.iter().fold((0, 0), |(low, high), x| (low.min(*x), high.max(*x)))
}

/// Conditions on the rows, or on the columns, of a tile with these taps.
fn conditions_of(loops: &[Extent], conditions: Vec<Condition>, row: Slot) -> Vec<RowCondition> {
    let known = conditions.into_iter().map(|condition| {
        let taps = along(loops, &condition.index);
        RowCondition { step: condition.index.stride(row), reach: reach(&taps), taps, condition }
    });
    known.collect()
}

/// A tile of which nothing is known but its taps: those of loops along which all places move evenly.
fn tile(loops: &[Extent], left: &Index, right: Option<&Index>, conditions: Vec<Condition>, row: Slot) -> RegisterTile {
    let lefts = along(loops, left);
    let rights = right.map_or_else(|| vec![0; lefts.len()], |r| along(loops, r));
    let nowhere =
        Access { buffer: 0, index: Index::default(), strides: None, column_stride: None, inside: None, certain: false };
    RegisterTile {
        kind: Kind::Product,
        reach: [reach(&lefts), reach(&rights)],
        taps: lefts.iter().zip(&rights).map(|(l, r)| [*l as isize, *r as isize]).collect(),
        rows: 1,
        columns: 1,
        depth: 1,
        start: Start::Kept,
        acc: nowhere.clone(),
        acc_row: 0,
        left: nowhere,
        clamps: vec![],
        tap_loops: loops.to_vec(),
        row,
        column: usize::MAX,
        inner: usize::MAX,
        row_stride: None,
        left_stride: 0,
        lane_stride: 1,
        conditions: conditions_of(loops, conditions, row),
        across: vec![],
        padding: None,
        integer_padding: 0,
        right: None,
        decoding: None,
        right_row: 0,
        right_stride: 0,
        epilogue: None,
        ends: vec![],
        limits: vec![],
        held: [None, None],
        blocks: 1,
    }
}
