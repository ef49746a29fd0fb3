//! Running a program for a block of lanes.
//!
//! The outer loops of a nest are *fixed*: the caller sets their values. The inner ones are *free*: their flattened
//! iterations are the lanes. A block of lanes is divided into segments, each within one row of the innermost loop, so
//! an affine index is a base and a step per segment.

use super::form::{Atom, Form, read};
use super::lanes::{LANES, Lanes, apply_binary, apply_cast, apply_select, apply_unary, store_index};
use super::program::{Instr, Program};
use super::view::View;
use crate::tir::CondOp;

/// A program with the extents of its loops; the last loop is free.
pub(super) struct Nest {
    pub(super) program: Program,
    pub(super) fixed: usize,
    /// Extents of the free loops, at least one.
    pub(super) free: Vec<usize>,
}

struct Segment {
    start: usize,
    len: usize,
}

/// The state of one thread that runs a nest.
pub(super) struct Frame<'n> {
    nest: &'n Nest,
    views: &'n [Option<View<'n>>],
    regs: Vec<Lanes>,
    segments: Vec<Segment>,
    /// Per segment the loop values, fixed ones included; the lane loop at the segment's first lane.
    points: Vec<i64>,
    n: usize,
    scratch: Vec<i64>,
}

impl<'n> Frame<'n> {
    pub(super) fn new(nest: &'n Nest, views: &'n [Option<View<'n>>]) -> Frame<'n> {
        let regs = nest.program.regs.iter().map(|(c, v)| Lanes::new(*c, *v)).collect();
        Frame { nest, views, regs, segments: vec![], points: vec![], n: 0, scratch: vec![0; LANES] }
    }

    fn loops(&self) -> usize {
        self.nest.fixed + self.nest.free.len()
    }

    /// Selects lanes `start..start + n` of the flattened free loops; fixed loops are at 0.
    pub(super) fn set_block(&mut self, start: usize, n: usize) {
        let (loops, free) = (self.loops(), &self.nest.free);
        self.segments.clear();
        self.points.clear();
        self.n = n;
        let row = free[free.len() - 1];
        let mut done = 0;
        while done < n {
            let mut rest = start + done;
            let at = self.points.len();
            self.points.resize(at + loops, 0);
            for (i, e) in free.iter().enumerate().rev() {
                self.points[at + self.nest.fixed + i] = (rest % e) as i64;
                rest /= e;
            }
            let column = self.points[at + loops - 1] as usize;
            let len = (row - column).min(n - done);
            self.segments.push(Segment { start: done, len });
            done += len;
        }
    }

    /// Sets the fixed loops.
    pub(super) fn set_fixed(&mut self, values: &[i64]) {
        let loops = self.loops();
        for p in self.points.chunks_exact_mut(loops) {
            p[..values.len()].copy_from_slice(values);
        }
    }

    /// Runs the program for the block; the result's first `n` lanes are valid.
    pub(super) fn run(&mut self) -> Result<&Lanes, String> {
        let program = &self.nest.program;
        for i in &program.instrs {
            let dst = match i {
                Instr::Index { dst, .. }
                | Instr::Load { dst, .. }
                | Instr::Unary { dst, .. }
                | Instr::Binary { dst, .. }
                | Instr::Cast { dst, .. }
                | Instr::All { dst, .. }
                | Instr::Select { dst, .. }
                | Instr::Mask { dst, .. } => *dst,
            };
            let mut d = std::mem::replace(&mut self.regs[dst], Lanes::none());
            let done = self.step(i, &mut d);
            self.regs[dst] = d;
            done?;
        }
        Ok(&self.regs[program.result])
    }

    fn step(&mut self, i: &Instr, d: &mut Lanes) -> Result<(), String> {
        let n = self.n;
        match i {
            Instr::Index { form, dtype, .. } => {
                let mut values = std::mem::take(&mut self.scratch);
                self.lanes_of(&self.nest.program.forms[*form], &mut values);
                store_index(d, *dtype, &values[..n]);
                self.scratch = values;
            }
            Instr::Load { buffer, form, mask, .. } => return self.load(d, *buffer, *form, *mask),
            Instr::Unary { op, dtype, a, .. } => apply_unary(*op, *dtype, d, &self.regs[*a], n),
            Instr::Binary { op, dtype, a, b, .. } => {
                apply_binary(*op, *dtype, d, &self.regs[*a], &self.regs[*b], n);
            }
            Instr::Cast { from, to, a, .. } => apply_cast(*from, *to, d, &self.regs[*a], n),
            Instr::All { conds, .. } => self.all(d, conds),
            Instr::Select { cond, a, b, .. } => {
                apply_select(d, &self.regs[*cond].bools()[..n], &self.regs[*a], &self.regs[*b], n);
            }
            Instr::Mask { mask, cond, negate, .. } => {
                let Lanes::Bool(d) = d else { return Ok(()) };
                let flip = *negate as u8;
                let cond = &self.regs[*cond].bools()[..n];
                d[..n].iter_mut().zip(cond).for_each(|(d, c)| *d = c ^ flip);
                if let Some(m) = mask {
                    d[..n].iter_mut().zip(self.regs[*m].bools()).for_each(|(d, m)| *d &= m);
                }
            }
        }
        Ok(())
    }

    /// Base and step of an index whose atoms do not depend on the lane.
    fn affine(&self, form: &Form, segment: usize) -> (i64, i64) {
        let loops = self.loops();
        let point = &self.points[segment * loops..(segment + 1) * loops];
        (form.at(point, self.views), form.coefs[loops - 1])
    }

    /// The index at every lane.
    fn lanes_of(&self, form: &Form, out: &mut [i64]) {
        let loops = self.loops();
        let lane = loops - 1;
        for (s, p) in self.segments.iter().zip(self.points.chunks_exact(loops)) {
            let mut base = form.constant;
            for (c, v) in form.coefs.iter().zip(p) {
                base = base.wrapping_add(c.wrapping_mul(*v));
            }
            for (k, a) in form.atoms.iter().filter(|a| !a.1.uses(lane)) {
                base = base.wrapping_add(k.wrapping_mul(a.at(p, self.views)));
            }
            for (t, o) in out[s.start..s.start + s.len].iter_mut().enumerate() {
                *o = base.wrapping_add(form.coefs[lane].wrapping_mul(t as i64));
            }
        }
        for (k, a) in form.atoms.iter().filter(|a| a.1.uses(lane)) {
            let values = self.atom_lanes(a);
            out[..self.n].iter_mut().zip(&values).for_each(|(o, v)| *o = o.wrapping_add(k.wrapping_mul(*v)));
        }
    }

    fn atom_lanes(&self, atom: &Atom) -> Vec<i64> {
        let mut a = vec![0; self.n];
        match atom {
            Atom::Load(b, f) => {
                self.lanes_of(f, &mut a);
                a.iter_mut().for_each(|x| *x = read(self.views, *b, *x));
            }
            Atom::Mul(p) | Atom::Div(p) | Atom::Mod(p) | Atom::Min(p) | Atom::Max(p) => {
                self.lanes_of(&p[0], &mut a);
                if p[1].coefs.iter().all(|c| *c == 0) && p[1].atoms.is_empty() {
                    let c = p[1].constant;
                    a.iter_mut().for_each(|x| *x = atom.apply(*x, c));
                } else {
                    let mut b = vec![0; self.n];
                    self.lanes_of(&p[1], &mut b);
                    a.iter_mut().zip(&b).for_each(|(x, y)| *x = atom.apply(*x, *y));
                }
            }
        }
        a
    }

    fn all(&mut self, d: &mut Lanes, conds: &[(usize, CondOp)]) {
        let Lanes::Bool(d) = d else { return };
        let lane = self.loops() - 1;
        d[..self.n].fill(1);
        for (form, op) in conds {
            let form = &self.nest.program.forms[*form];
            if form.atoms_use(lane) {
                let mut values = std::mem::take(&mut self.scratch);
                self.lanes_of(form, &mut values);
                for (d, v) in d[..self.n].iter_mut().zip(&values) {
                    *d &= match op {
                        CondOp::Lt => *v < 0,
                        CondOp::Ge => *v >= 0,
                        CondOp::Eq => *v == 0,
                    } as u8;
                }
                self.scratch = values;
                continue;
            }
            for (i, s) in self.segments.iter().enumerate() {
                let (base, step) = self.affine(form, i);
                let (low, high, inside) = true_lanes(base, step, s.len as i64, *op);
                let part = &mut d[s.start..s.start + s.len];
                if inside {
                    part[..low].fill(0);
                    part[high..].fill(0);
                } else {
                    part[low..high].fill(0);
                }
            }
        }
    }

    fn load(&mut self, d: &mut Lanes, buffer: usize, form: usize, mask: Option<usize>) -> Result<(), String> {
        let form = &self.nest.program.forms[form];
        let name = self.nest.program.names[buffer];
        let view = self.views[buffer].as_ref().ok_or_else(|| format!("`{name}` is read before it is written"))?;
        let mask = mask.map(|m| &self.regs[m].bools()[..self.n]);
        let mut indices = Vec::new();
        if form.atoms_use(self.loops() - 1) {
            indices = std::mem::take(&mut self.scratch);
            self.lanes_of(form, &mut indices);
        }
        let mut result = Ok(());
        for (i, s) in self.segments.iter().enumerate() {
            let mask = mask.map(|m| &m[s.start..s.start + s.len]);
            let active = mask.map_or(s.len, |m| m.iter().map(|&b| b as usize).sum());
            if active == 0 {
                clear(d, s.start, s.len);
                continue;
            }
            let at = if indices.is_empty() {
                let (base, step) = self.affine(form, i);
                At::Affine(base, step)
            } else {
                At::Lanes(&indices[s.start..s.start + s.len])
            };
            let mask = if active == s.len { None } else { mask };
            if !load_segment(view, d, s.start, s.len, at, mask) {
                result = Err(format!("a load from `{name}` is out of bounds"));
                break;
            }
        }
        if !indices.is_empty() {
            self.scratch = indices;
        }
        result
    }
}

/// The lanes `t` in `0..len` where `base + step*t op 0` holds: inside `low..high`, or outside of it.
fn true_lanes(base: i64, step: i64, len: i64, op: CondOp) -> (usize, usize, bool) {
    let below = |value: bool| -> (usize, usize, bool) {
        // Lanes with base + step*t < 0 are a prefix for step > 0 and a suffix for step < 0.
        let (low, high) = match step {
            0 => (0, if base < 0 { len } else { 0 }),
            s if s > 0 => (0, (-base).div_euclid(s) + i64::from((-base).rem_euclid(s) != 0)),
            s => (base.div_euclid(-s) + 1, len),
        };
        let (low, high) = (low.clamp(0, len) as usize, high.clamp(0, len) as usize);
        (low, high.max(low), value)
    };
    match op {
        CondOp::Lt => below(true),
        CondOp::Ge => below(false),
        CondOp::Eq if step == 0 => (0, if base == 0 { len as usize } else { 0 }, true),
        CondOp::Eq => {
            let t = -base / step;
            if base % step == 0 && (0..len).contains(&t) { (t as usize, t as usize + 1, true) } else { (0, 0, true) }
        }
    }
}

fn clear(d: &mut Lanes, start: usize, len: usize) {
    match d {
        Lanes::F32(d) => d[start..start + len].fill(0.0),
        Lanes::F64(d) => d[start..start + len].fill(0.0),
        Lanes::I64(d) => d[start..start + len].fill(0),
        Lanes::Bool(d) => d[start..start + len].fill(0),
    }
}

enum At<'a> {
    Affine(i64, i64),
    Lanes(&'a [i64]),
}

/// False when an active lane is out of bounds.
fn load_segment(view: &View<'_>, d: &mut Lanes, start: usize, len: usize, at: At<'_>, mask: Option<&[u8]>) -> bool {
    macro_rules! ints {
        ($v:expr, $d:expr) => {
            copy($v, &mut $d[start..start + len], at, mask, |x| x as i64, 0)
        };
    }
    match (view, d) {
        (View::F32(v), Lanes::F32(d)) => copy(v, &mut d[start..start + len], at, mask, |x| x, 0.0),
        (View::F16(v), Lanes::F32(d)) => copy(v, &mut d[start..start + len], at, mask, |x| x.to_f32(), 0.0),
        (View::BF16(v), Lanes::F32(d)) => copy(v, &mut d[start..start + len], at, mask, |x| x.to_f32(), 0.0),
        (View::F64(v), Lanes::F64(d)) => copy(v, &mut d[start..start + len], at, mask, |x| x, 0.0),
        (View::Bool(v), Lanes::Bool(d)) => copy(v, &mut d[start..start + len], at, mask, |x| (x != 0) as u8, 0),
        (View::U8(v), Lanes::I64(d)) => ints!(v, d),
        (View::I8(v), Lanes::I64(d)) => ints!(v, d),
        (View::U16(v), Lanes::I64(d)) => ints!(v, d),
        (View::I16(v), Lanes::I64(d)) => ints!(v, d),
        (View::U32(v), Lanes::I64(d)) => ints!(v, d),
        (View::I32(v), Lanes::I64(d)) => ints!(v, d),
        (View::U64(v), Lanes::I64(d)) => ints!(v, d),
        (View::I64(v), Lanes::I64(d)) => ints!(v, d),
        _ => false,
    }
}

#[inline(always)]
fn copy<S: Copy, D: Copy>(
    src: &[S],
    d: &mut [D],
    at: At<'_>,
    mask: Option<&[u8]>,
    f: impl Fn(S) -> D,
    zero: D,
) -> bool {
    let fetch = |i: i64| usize::try_from(i).ok().and_then(|i| src.get(i).copied());
    match (at, mask) {
        (At::Affine(base, step), None) => {
            let Some(last) = step.checked_mul(d.len() as i64 - 1).and_then(|x| x.checked_add(base)) else {
                return false;
            };
            let bounds = 0..src.len() as i64;
            if !bounds.contains(&base) || !bounds.contains(&last) {
                return false;
            }
            match step {
                0 => d.fill(f(src[base as usize])),
                1 => d.iter_mut().zip(&src[base as usize..]).for_each(|(d, s)| *d = f(*s)),
                s if s > 0 => {
                    d.iter_mut().zip(src[base as usize..].iter().step_by(s as usize)).for_each(|(d, s)| *d = f(*s));
                }
                s => d.iter_mut().enumerate().for_each(|(t, d)| *d = f(src[(base + s * t as i64) as usize])),
            }
            true
        }
        (At::Affine(base, step), Some(mask)) => {
            for (t, (d, m)) in d.iter_mut().zip(mask).enumerate() {
                *d = zero;
                if *m != 0 {
                    let Some(x) = fetch(base.wrapping_add(step.wrapping_mul(t as i64))) else { return false };
                    *d = f(x);
                }
            }
            true
        }
        (At::Lanes(indices), mask) => {
            for (t, (d, i)) in d.iter_mut().zip(indices).enumerate() {
                *d = zero;
                if mask.is_none_or(|m| m[t] != 0) {
                    let Some(x) = fetch(*i) else { return false };
                    *d = f(x);
                }
            }
            true
        }
    }
}
