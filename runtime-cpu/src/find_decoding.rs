//! Leaves that decode packed weights: words of a few bits, or bytes, with a zero point and a scale for each column.
//!
//! ```text
//! for b, w, i, j { to[b, w, i, j] = (f32(words[b, w, j] >> 4 * i & 15) - zeros[b, j]) * scales[b, j] }
//! ```
//!
//! Columns (`j`) lie next to each other. The rows (`i`) share words, scales and zero points, or have a byte each.
//! Leaves of another form are computed as any other. A tile of few rows whose right operand is decoded just before it,
//! for it alone, decodes that itself, in all parts of the depth at once. Tiles of many rows that share what is decoded
//! before a loop over them multiply words too if their rows are bytes; else the first of them decodes for all.

use crate::decoding::{Decoding, Factor, Place};
use crate::epilogue::Known;
use crate::form::Form;
use crate::index::{Extent, Index, Scene, Slot};
use crate::packed_tile::MOST_ROWS;
use crate::program::{Leaf, Node, RegisterTile, Start, Value};
use crate::tile::Kind;
use tensor_ir::dtype::DType;
use tensor_ir::tir::BinaryOp;

impl Decoding {
    /// The decoding that the leaf is; `None` if it does anything else.
    pub(crate) fn of(l: &Leaf, buffers: &[Known]) -> Option<Decoding> {
        let plain = l.reduce.is_none() && l.guards.is_empty() && l.lets.is_empty() && !l.reads_own;
        if !plain || buffers[l.store.buffer].form != Form::F32 || buffers[l.store.buffer].own_blocks.is_none() {
            return None;
        }
        let one = Extent { slot: usize::MAX, count: 1 };
        let mut loops: Vec<Extent> = l.loops.iter().chain([&l.rows, &l.columns]).copied().collect();
        loops.retain(|e| e.count > 1);
        let columns = loops.pop()?;
        let rows = loops.pop()?;
        let steps = loops.pop().unwrap_or(one);
        let inside = [loops.pop().unwrap_or(one), steps, rows, columns];
        let place = |v: &Value| match v {
            Value::Load(a) => Place::of(a.buffer, &a.index, &loops, inside),
            _ => None,
        };
        let (value, scale) = match without_casts(&l.value) {
            Value::Binary(BinaryOp::Mul, DType::F32, a, b) => {
                match (factor(a, buffers, &place), factor(b, buffers, &place)) {
                    (_, Some(scale)) => (&**a, scale),
                    (Some(scale), None) => (&**b, scale),
                    (None, None) => return None,
                }
            }
            v => (v, Factor::Number(1.0)),
        };
        let (value, zero) = match without_casts(value) {
            Value::Binary(BinaryOp::Sub, DType::F32, a, b) => (&**a, factor(b, buffers, &place)?),
            v => (v, Factor::Number(0.0)),
        };
        let Value::Cast(_, DType::F32, integer) = without_casts(value) else { return None };
        let (packed, bits) = bits(integer, rows)?;
        let packed = place(packed)?;
        let (shifts, masks) = match (buffers[packed.buffer].form, bits) {
            (Form::U32 | Form::U8, Some(bits)) => bits,
            (Form::U8 | Form::I8, None) => (vec![0; rows.count as usize], vec![0xff; rows.count as usize]),
            _ => return None,
        };
        let mask = *masks.first()?;
        if mask > 0xff || masks.iter().any(|m| *m != mask) || shifts.iter().any(|s| *s > 31) {
            return None;
        }
        let to = Place::of(l.store.buffer, &l.store.index, &loops, inside)?;
        let next = |p: &Place| p.strides[3] == 1 && p.strides[..3].iter().all(|s| *s >= 0);
        let steady = |f: &Factor| match f {
            Factor::Number(_) => true,
            Factor::At(p) => {
                p.strides[2] == 0 && matches!(p.strides[3], 0 | 1) && p.strides[..2].iter().all(|s| *s >= 0)
            }
        };
        let fits = next(&packed) && next(&to) && steady(&zero) && steady(&scale);
        fits.then(|| {
            let (parts, steady_left, shared_panel) = (vec![], false, false);
            Decoding { loops, inside, parts, packed, shifts, mask, zero, scale, to, steady_left, shared_panel }
        })
    }
}

/// Gives a tile, which may stand in loops, the leaf before it, if that decodes words for its right operand and for
/// nothing else.
pub(crate) fn join(nodes: &mut Vec<Node>, next: &mut Node, buffers: &[Known]) {
    let in_loop = !matches!(next, Node::Tile(_));
    if let (Some(Node::Leaf(l)), Some(t)) = (nodes.last(), tile_in(next))
        && let Some(mut d) = Decoding::of(l, buffers).filter(|d| d.is_operand(t, in_loop, buffers))
    {
        d.steady_left = !buffers[t.left.buffer].written;
        d.shared_panel = in_loop;
        t.decoding = Some(Box::new(d));
        nodes.pop();
    }
}

/// A tile, alone in loops.
fn tile_in(node: &mut Node) -> Option<&mut RegisterTile> {
    match node {
        Node::Tile(t) => Some(t),
        Node::Loop(_, _, body) if body.len() == 1 => tile_in(&mut body[0]),
        _ => None,
    }
}

/// A loop; if it goes over parts of the depth of a tile that decodes, that tile with all of them.
pub(crate) fn in_one(slot: Slot, count: i64, mut body: Vec<Node>) -> Node {
    let whole = if let [Node::Tile(t)] = &mut body[..] { takes(t, slot, count) } else { false };
    if whole { body.remove(0) } else { Node::Loop(slot, count, body) }
}

/// Makes a loop part of the tile's depth, if all places move on in it as they do inside.
fn takes(t: &mut RegisterTile, slot: Slot, count: i64) -> bool {
    let Some(d) = t.decoding.as_deref_mut().filter(|d| !d.shared_panel) else { return false };
    let sums = matches!(t.start, Start::Kept) && t.epilogue.is_none() && t.ends.is_empty() && !t.acc.index.uses(slot);
    let blocks = d.inside[0].count;
    let on = |p: &Place| p.index.stride(slot).filter(|by| blocks == 1 || *by == blocks * p.strides[0]);
    let factor = |f: &Factor| if let Factor::At(p) = f { on(p).is_some_and(|by| by >= 0) } else { true };
    let words = on(&d.packed).is_some_and(|by| by >= 0);
    if !sums || t.left.index.stride(slot) != Some(t.depth) || !words || !factor(&d.zero) || !factor(&d.scale) {
        return false;
    }
    let factors = [&mut d.zero, &mut d.scale].into_iter().filter_map(|f| match f {
        Factor::At(p) => Some(p),
        Factor::Number(_) => None,
    });
    for p in factors.chain([&mut d.packed]) {
        p.strides[0] = p.index.stride(slot).unwrap_or(0) / blocks;
    }
    d.parts.push(slot);
    d.inside[0].count *= count;
    t.depth *= count;
    true
}

impl Decoding {
    /// True if the tile multiplies what the leaf decodes, word by word, with few rows, or tile after tile `in_loop`.
    fn is_operand(&self, t: &RegisterTile, in_loop: bool, buffers: &[Known]) -> bool {
        let [blocks, steps, rows, columns] = self.inside.map(|e| e.count);
        let Some(right) = t.right.as_ref().filter(|r| r.buffer == self.to.buffer) else { return false };
        let strides = self.to.strides;
        let slots: Vec<Slot> = self.inside.iter().map(|e| e.slot).chain([t.row, t.column, t.inner]).collect();
        let same = strides[2] == t.right_stride
            && (steps == 1 || strides[1] == rows * strides[2])
            && (blocks == 1 || strides[0] == steps * rows * strides[2])
            && self.to.index.without(&slots) == right.index.without(&slots)
            && blocks * steps * rows == t.depth
            && columns == t.columns;
        let words = buffers[self.packed.buffer].form == Form::U32 && self.shared().is_some() && rows % 2 == 0;
        let by_block = |f: &Factor| match f {
            Factor::Number(_) => true,
            Factor::At(p) => steps == 1 || p.strides[1] == 0,
        };
        let left = t.row_stride.is_some_and(|s| s >= 0) && t.left_stride == 1;
        let plain = t.kind == Kind::Product && t.taps == [[0, 0]] && t.right_row == 0 && t.padding.is_none();
        let whole = t.conditions.is_empty() && t.across.is_empty() && self.loops.is_empty();
        let alone = buffers[self.to.buffer].own_blocks == Some(2);
        let few = match in_loop {
            true => self.parts.is_empty() && t.limits.is_empty() && t.held.iter().all(Option::is_none),
            false => t.rows <= MOST_ROWS as i64 && t.epilogue.is_none() && t.clamps.is_empty(),
        };
        same && words && by_block(&self.zero) && by_block(&self.scale) && left && plain && whole && alone && few
    }
    /// Bits from one row to the next, if rows share their words and begin with their first bits.
    pub(crate) fn shared(&self) -> Option<u32> {
        let step = self.shifts.get(1).copied().unwrap_or(0);
        let even = (0..).zip(&self.shifts).all(|(row, shift)| *shift == row * step);
        (self.packed.strides[2] == 0 && even).then_some(step)
    }
}

impl Place {
    fn of(buffer: usize, index: &Index, loops: &[Extent], inside: [Extent; 4]) -> Option<Place> {
        let even = loops.iter().all(|e| index.stride(e.slot).is_some());
        let [a, b, c, d] = inside.map(|e| if e.count > 1 { index.stride(e.slot) } else { Some(0) });
        even.then_some(Place { buffer, index: index.clone(), strides: [a?, b?, c?, d?] })
    }
}

/// The value inside of conversions between floats of at most 32 bits, which keep f32 until they are stored.
fn without_casts(v: &Value) -> &Value {
    let short = |t: &DType| t.is_float() && t.size() <= 4;
    match v {
        Value::Cast(from, to, a) if short(from) && short(to) => without_casts(a),
        v => v,
    }
}

/// A number, or an element as a float.
fn factor(v: &Value, buffers: &[Known], place: &dyn Fn(&Value) -> Option<Place>) -> Option<Factor> {
    match v {
        Value::F(x) => Some(Factor::Number(*x)),
        Value::Load(a) => {
            let form = buffers[a.buffer].form;
            (form.is_narrow_float() || matches!(form, Form::U8 | Form::I8)).then(|| place(v)).flatten().map(Factor::At)
        }
        Value::Cast(_, to, a) if to.is_float() && matches!(**a, Value::Load(_) | Value::Cast(..)) => {
            factor(a, buffers, place)
        }
        _ => None,
    }
}

/// The shift of each row, and the mask behind it.
type Bits = (Vec<u32>, Vec<u32>);

/// The element that an integer is taken from, and which bits of it in each row.
fn bits(v: &Value, rows: Extent) -> Option<(&Value, Option<Bits>)> {
    let number = |v: &Value| match v {
        Value::I(x) => u32::try_from(*x).ok().map(|x| vec![x; rows.count as usize]),
        Value::Index(i, _) => in_rows(i, rows),
        _ => None,
    };
    match v {
        Value::Load(_) => Some((v, None)),
        Value::Cast(DType::U8, DType::U32, a) => bits(a, rows),
        Value::Binary(op @ (BinaryOp::Shr | BinaryOp::BitAnd), DType::U32, a, by) => {
            let ((from, inner), by) = (bits(a, rows)?, number(by)?);
            let (mut shifts, mut masks) = inner.unwrap_or_else(|| (vec![0; by.len()], vec![u32::MAX; by.len()]));
            for ((shift, mask), by) in shifts.iter_mut().zip(&mut masks).zip(&by) {
                match op {
                    BinaryOp::BitAnd => *mask &= by,
                    _ => (*shift, *mask) = (shift.saturating_add(*by), mask.checked_shr(*by).unwrap_or(0)),
                }
            }
            Some((from, Some((shifts, masks))))
        }
        _ => None,
    }
}

/// The value of an index in each row, if it depends on nothing else.
fn in_rows(i: &Index, rows: Extent) -> Option<Vec<u32>> {
    let slots = i.slots();
    if slots.iter().any(|s| *s != rows.slot) || i.reads() {
        return None;
    }
    let mut env = vec![0; slots.iter().max().map_or(0, |s| s + 1)];
    let mut at = |row: i64| {
        slots.iter().for_each(|s| env[*s] = row);
        u32::try_from(i.eval(Scene { env: &env, views: &[] })).ok()
    };
    (0..rows.count).map(&mut at).collect()
}
