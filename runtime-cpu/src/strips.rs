//! Leaves of floats as *strips*: runs of lanes that stay in the first cache, over which a list of steps goes.
//!
//! ```text
//! for i { y[i] = exp(x[i] - m[]) / s[] }   ->   uniforms: m, s;  strips of x: r0 = x - m; r1 = exp r0; y = r1 / s
//! ```
//!
//! A value that all lanes share is computed once for all strips. Loads that lie next to each other are operands where
//! they lie, others are gathered into a register first. Conditions hold for whole parts of the lanes: a leaf is cut
//! where they begin or end to hold, and has a list of steps for each case.
//!
//! Leaves that this module does not take (integers, places that no strides describe) go by `execute`.

use crate::along::Along;
use crate::decoding::Decoding;
use crate::epilogue::Known;
use crate::form::Form;
use crate::index::{Condition, Index};
use crate::program::{Access, Extent, Leaf, Node, Value};
use crate::strip_code::{Compiler, is_int_form};
use crate::strip_program::{Code, Place, Strips};
use crate::tile_memory::LANES;
use tensor_ir::dtype::DType;

/// Lanes from which on runs of a reduction are long enough to be combined across.
const LONG: i64 = 128;
/// Lanes up to which a strip has several rows.
const SHORT: i64 = LANES as i64 / 2;
/// Conditions of a leaf that choose what is computed, at most.
const MOST_CHOICES: usize = 3;

/// Makes strips of the leaves that these nodes hold, as far as they can be, or finds what they decode.
pub(crate) fn find(nodes: &mut [Node], buffers: &[Known]) {
    find_each(nodes, buffers);
    for at in 1..nodes.len() {
        if let [.., Node::Leaf(a), Node::Leaf(b)] = &mut nodes[..=at] {
            keep(a, b, buffers);
        }
    }
}

fn find_each(nodes: &mut [Node], buffers: &[Known]) {
    for n in nodes {
        match n {
            Node::Loop(_, _, body) | Node::Within(_, _, body) => find(body, buffers),
            Node::Leaf(l) => {
                l.decoding = Decoding::of(l, buffers).map(Box::new);
                l.strips = if l.decoding.is_none() { Strips::of(l, buffers).map(Box::new) } else { None };
            }
            Node::Tile(_) => {}
        }
    }
}

/// The indices and conditions of a leaf.
struct Parts<'l> {
    indices: Vec<&'l Index>,
    conditions: Vec<&'l Condition>,
    /// The value is an element as it lies.
    copies: bool,
}

impl<'l> Parts<'l> {
    fn of(l: &'l Leaf) -> Parts<'l> {
        let copies = l.reduce.is_none() && matches!(l.value, Value::Load(_));
        let mut all = Parts { indices: vec![&l.store.index], conditions: l.guards.iter().collect(), copies };
        l.lets.iter().chain([&l.value]).for_each(|v| all.add(v));
        all
    }
    fn add(&mut self, v: &'l Value) {
        match v {
            Value::Load(a) => self.indices.push(&a.index),
            Value::Index(i, _) => self.indices.push(i),
            Value::All(list) => self.conditions.extend(list),
            _ => {}
        }
        v.operands().into_iter().for_each(|v| self.add(v));
    }
    /// True if two loops are one for all that is read and stored.
    fn continues(&self, outer: &Extent, inner: &Extent) -> bool {
        let both = |i: &Index| Some((i.stride(outer.slot)?, i.stride(inner.slot)?));
        let free = !self.conditions.iter().any(|c| c.index.uses(outer.slot) || c.index.uses(inner.slot));
        free && self.indices.iter().all(|i| both(i).is_some_and(|(o, n)| o == n * inner.count))
    }
    /// True if no condition is on both loops, but on rows or on columns; and if rows lie where no element of a buffer
    /// says.
    fn are_apart(&self, rows: &Extent, columns: &Extent) -> bool {
        let found = self.indices.iter().any(|i| i.reads_with(rows.slot));
        !found && !self.conditions.iter().any(|c| [rows, columns].iter().all(|e| c.index.uses(e.slot)))
    }
    /// True if something lies next to itself along `rows` that is far apart along the columns.
    fn is_transposed(&self, rows: &Extent, columns: &Extent) -> bool {
        let apart = |i: &&Index| i.stride(columns.slot).is_some_and(|s| s.abs() > 1);
        self.indices.iter().any(|i| apart(i) && i.stride(rows.slot) == Some(1))
    }
}

impl Strips {
    pub(crate) fn of(l: &Leaf, buffers: &[Known]) -> Option<Strips> {
        let all = Parts::of(l);
        let Nest { loops, rows, columns, transposes, across, by_row } = Nest::of(l, &all);
        let slots = [rows.slot, columns.slot];
        let alone = |c: &&Condition| {
            let both = slots.map(|s| c.index.stride(s));
            matches!(both, [Some(0), Some(_)] | [Some(_), Some(0)])
        };
        let (own, store) = (l.store.buffer, Place::of(l.store.buffer, &l.store.index, slots)?);
        let form = buffers[own].form;
        let fits = form.is_narrow_float() || is_int_form(form) || form == Form::I64 && l.reduce.is_none();
        if !fits || !all.conditions.iter().all(alone) || !reads_alike(l, &store) {
            return None;
        }
        let cuts = [slots, [slots[1], slots[0]]].map(|[of, other]| {
            let mut list = vec![];
            l.lets.iter().chain([&l.value]).for_each(|v| v.conditions_on(of, other, &mut list));
            list
        });
        let mut c = Compiler::new([rows, columns], buffers);
        l.lets.iter().chain([&l.value]).for_each(|v| c.find_choices(v));
        if c.choices.len() > MOST_CHOICES {
            return None;
        }
        let (fold, begins) = match &l.reduce {
            Some(r) if r.dtype.size() > 4 || r.dtype == DType::U32 => return None,
            Some(r) => (across.then_some((r.combiner, r.dtype)), r.init.clone()),
            None => (None, None),
        };
        let combined = l.reduce.as_ref().filter(|_| !across);
        let cases = (1 << c.choices.len()) * if combined.is_some() { 2 } else { 1 };
        let codes = (0..cases).map(|bits| c.code(l, combined, bits)).collect::<Option<Vec<Code>>>()?;
        if codes.iter().any(|c| form != Form::I64 && c.is_int == form.is_narrow_float()) {
            return None;
        }
        let registers = codes.iter().map(|c| c.registers).max()?;
        let (choices, mut places) = (c.choices, c.places);
        places.push(store);
        let guards = l.guards.clone();
        Some(Strips {
            loops,
            rows,
            columns,
            transposes,
            guards,
            cuts,
            choices,
            places,
            codes,
            registers,
            fold,
            by_row,
            keeps: None,
            begins,
        })
    }
}

/// True if the value reads nothing of what it stores to but the same element.
fn reads_alike(l: &Leaf, store: &Place) -> bool {
    fn alike(v: &Value, store: &Place) -> bool {
        let same = |a: &Access| a.buffer != store.buffer || a.index == store.index;
        let own = if let Value::Load(a) = v { same(a) } else { true };
        own && v.operands().into_iter().all(|v| alike(v, store))
    }
    let plain = l.reduce.is_none() || !l.reads_own;
    plain && l.lets.iter().chain([&l.value]).all(|v| alike(v, store))
}

/// Lets a leaf that combines the lanes of a costly value store them where the next leaf, which computes the same value
/// for its own lanes, stores its results: it reads them there.
///
/// ```text
/// for k { s += exp(x[k] - m) }   for i { y[i] = exp(x[i] - m) / s }
/// for k { y[k] = exp(x[k] - m); s += y[k] }   for i { y[i] = y[i] / s }
/// ```
fn keep(a: &mut Leaf, b: &mut Leaf, buffers: &[Known]) -> Option<()> {
    let one = |l: &Leaf| l.lets.is_empty() && l.guards.is_empty();
    let (from, to) = (a.several(), b.several());
    let alike = from.len() == to.len() && from.iter().zip(&to).all(|(a, b)| a.count == b.count);
    let plain = one(a) && one(b) && alike && b.reduce.is_none() && !b.reads_own;
    if !plain || !a.value.is_costly() || buffers[b.store.buffer].form != Form::F32 {
        return None;
    }
    let (mut value, mut there, mut index) = (b.value.clone(), a.value.clone(), b.store.index.clone());
    for (from, to) in from.iter().zip(&to) {
        (there, index) = (there.with_variable(from.slot, to.slot)?, index.with_variable(to.slot, from.slot)?);
    }
    let last = to.last()?.slot;
    if !value.replace(&there, &Value::Load(b.store.clone())) || !value.reads_alone(b.store.buffer, last) {
        return None;
    }
    let own = a.strips.as_mut().filter(|s| s.fold.is_some() && s.codes.len() == 1 && !s.codes[0].is_int)?;
    let rows = if own.by_row { 1 } else { 0 };
    if own.loops.len() + rows + 1 != from.len() || own.columns.slot != from.last()?.slot {
        return None;
    }
    let place = Place::of(b.store.buffer, &index, [own.rows.slot, own.columns.slot])?;
    if !matches!(place.along, Along::Even([_, 1])) {
        return None;
    }
    let mut changed = b.clone();
    (changed.value, changed.reads_own) = (value, true);
    b.strips = Some(Box::new(Strips::of(&changed, buffers)?));
    let last = own.places.len() - 1;
    own.places.insert(last, place);
    own.keeps = Some(last);
    Some(())
}

/// The loops of a leaf: those outside, rows and columns; and how its lanes are taken.
struct Nest {
    loops: Vec<Extent>,
    rows: Extent,
    columns: Extent,
    transposes: bool,
    /// The lanes belong to a reduction and are combined into one element.
    across: bool,
    /// The rows do not belong to it: each has an element of its own.
    by_row: bool,
}

impl Nest {
    fn of(l: &Leaf, all: &Parts<'_>) -> Nest {
        let loops = l.several();
        if l.reduce.is_none() {
            return Nest::of_lanes(loops, all, |_| true);
        }
        let of_result = |e: &Extent| l.store.index.uses(e.slot);
        let across = Nest::of_lanes(loops.clone(), all, |e| !of_result(e));
        let lanes = Nest::of_lanes(loops, all, of_result);
        let loads = &all.indices[1..];
        let even = |n: &Nest| loads.iter().all(|i| matches!(i.stride(n.columns.slot), Some(-1..=1)));
        let is_across = l.reduce.as_ref().is_some_and(|r| r.across);
        let long = across.columns.count >= LONG / 2;
        // Short runs of a reduction are combined lane by lane, one element of it after another; long ones that lie next
        // to each other where the lanes do not, across.
        let chosen = is_across && (long || across.columns.count >= lanes.columns.count);
        match chosen || long && even(&across) && !even(&lanes) {
            true => across.with_results(l, all),
            false => lanes,
        }
    }
    /// Lanes of a reduction with the innermost loop of its results as rows, where it leaves rows free.
    fn with_results(mut self, l: &Leaf, all: &Parts<'_>) -> Nest {
        self.across = true;
        let is_float = l.reduce.as_ref().is_some_and(|r| r.dtype.is_float());
        if is_float
            && self.rows.count == 1
            && let Some(last) = self.loops.pop_if(|e| l.store.index.uses(e.slot) && all.are_apart(e, &self.columns))
        {
            (self.rows, self.by_row) = (last, true);
        }
        self
    }
    /// Takes the last loops that may be lanes; loops of a reduction may be elsewhere in the nest: each element has them
    /// in their order.
    fn of_lanes(mut loops: Vec<Extent>, all: &Parts<'_>, is_lane: impl Fn(&Extent) -> bool) -> Nest {
        let one = Extent { slot: usize::MAX, count: 1 };
        let mut nest = Nest { loops: vec![], rows: one, columns: one, transposes: false, across: false, by_row: false };
        let last = |loops: &[Extent], rest: &dyn Fn(&Extent) -> bool| {
            loops.iter().rposition(&is_lane).filter(|&i| rest(&loops[i]))
        };
        if let Some(at) = last(&loops, &|_| true) {
            nest.columns = loops.remove(at);
        }
        while let Some(at) = last(&loops, &|e| all.continues(e, &nest.columns)) {
            nest.columns.count *= loops.remove(at).count;
        }
        let transposed = |e: &Extent| is_lane(e) && all.is_transposed(e, &nest.columns);
        let apart = |e: &Extent| all.are_apart(e, &nest.columns);
        // A part of each row that conditions cut costs as much as a strip.
        let cut = all.conditions.iter().any(|c| c.index.uses(nest.columns.slot));
        if let Some(at) = loops.iter().rposition(transposed) {
            (nest.rows, nest.transposes) = (loops.remove(at), true);
        } else if (all.copies || nest.columns.count <= SHORT || cut && nest.columns.count < LANES as i64)
            && let Some(at) = last(&loops, &apart)
        {
            nest.rows = loops.remove(at);
        }
        nest.loops = loops;
        nest
    }
}
