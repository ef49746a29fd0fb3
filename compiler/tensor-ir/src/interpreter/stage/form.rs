//! Index expressions over the loops of a nest: an affine part and a remainder.

use super::view::View;
use crate::arena::Id;
use crate::int::{Bounds, Int, IntNode, flatten_index, floor_div, floor_mod, simplify};
use crate::name::Name;
use crate::tir::{BufferId, TensorFunction};
use smallvec::{SmallVec, smallvec};

/// The value of an index that is read out of bounds; no buffer has such an element.
const NOWHERE: i64 = i64::MIN / 4;

/// A loop of a nest.
#[derive(Clone, Copy, Debug)]
pub(super) struct Loop {
    pub(super) var: Name,
    pub(super) extent: usize,
}

/// `constant + sum of coefficient * loop + sum of factor * atom`.
#[derive(Clone, Debug)]
pub(super) struct Form {
    pub(super) constant: i64,
    /// One per loop of the nest.
    pub(super) coefs: SmallVec<[i64; 8]>,
    pub(super) atoms: Vec<(i64, Atom)>,
}

#[derive(Clone, Debug)]
pub(super) enum Atom {
    Mul(Box<[Form; 2]>),
    Div(Box<[Form; 2]>),
    Mod(Box<[Form; 2]>),
    Min(Box<[Form; 2]>),
    Max(Box<[Form; 2]>),
    /// An element of an integer buffer at a flat index.
    Load(usize, Box<Form>),
}

/// Ranges of loop variables.
pub(super) fn loop_bounds(loops: &[Loop]) -> Bounds {
    let mut b = Bounds::new();
    for l in loops {
        b.insert(l.var, 0, (l.extent as i64 - 1).max(0));
    }
    b
}

/// The flat index of an access, simplified.
pub(super) fn flat_index(f: &TensorFunction, b: BufferId, indices: &[Int], bounds: &Bounds) -> Int {
    simplify(&flatten_index(indices, &f.buffers[b].shape), bounds)
}

impl Form {
    /// `None` when the expression uses something that is no loop, or overflows.
    pub(super) fn new(f: &TensorFunction, e: &Int, loops: &[Loop], bounds: &Bounds) -> Option<Form> {
        let mut form = Form { constant: 0, coefs: smallvec![0; loops.len()], atoms: vec![] };
        form.collect(f, e, 1, loops, bounds)?;
        Some(form)
    }

    fn collect(&mut self, f: &TensorFunction, e: &Int, k: i64, loops: &[Loop], bounds: &Bounds) -> Option<()> {
        let pair =
            |a: &Int, b: &Int| Some(Box::new([Form::new(f, a, loops, bounds)?, Form::new(f, b, loops, bounds)?]));
        let atom = match e.node() {
            IntNode::Const(c) => {
                self.constant = self.constant.checked_add(c.checked_mul(k)?)?;
                return Some(());
            }
            IntNode::Var(v) => {
                let i = loops.iter().position(|l| l.var == *v)?;
                self.coefs[i] = self.coefs[i].checked_add(k)?;
                return Some(());
            }
            IntNode::Add(a, b) => {
                self.collect(f, a, k, loops, bounds)?;
                return self.collect(f, b, k, loops, bounds);
            }
            IntNode::Sub(a, b) => {
                self.collect(f, a, k, loops, bounds)?;
                return self.collect(f, b, k.checked_neg()?, loops, bounds);
            }
            IntNode::Mul(a, b) => match (a.as_const(), b.as_const()) {
                (Some(c), _) => return self.collect(f, b, k.checked_mul(c)?, loops, bounds),
                (_, Some(c)) => return self.collect(f, a, k.checked_mul(c)?, loops, bounds),
                _ => Atom::Mul(pair(a, b)?),
            },
            IntNode::Div(a, b) => Atom::Div(pair(a, b)?),
            IntNode::Mod(a, b) => Atom::Mod(pair(a, b)?),
            IntNode::Min(a, b) => Atom::Min(pair(a, b)?),
            IntNode::Max(a, b) => Atom::Max(pair(a, b)?),
            IntNode::Load(b, ix) => {
                let flat = flat_index(f, *b, ix, bounds);
                Atom::Load(b.index(), Box::new(Form::new(f, &flat, loops, bounds)?))
            }
        };
        self.atoms.push((k, atom));
        Some(())
    }

    /// True when an atom depends on loop `l`.
    pub(super) fn atoms_use(&self, l: usize) -> bool {
        self.atoms.iter().any(|a| a.1.uses(l))
    }

    pub(super) fn uses(&self, l: usize) -> bool {
        self.coefs[l] != 0 || self.atoms_use(l)
    }

    /// Forgets loop `l`, which nothing uses any more.
    pub(super) fn drop_loop(&mut self, l: usize) {
        self.coefs.remove(l);
        for (_, a) in &mut self.atoms {
            match a {
                Atom::Mul(p) | Atom::Div(p) | Atom::Mod(p) | Atom::Min(p) | Atom::Max(p) => {
                    p.iter_mut().for_each(|f| f.drop_loop(l));
                }
                Atom::Load(_, f) => f.drop_loop(l),
            }
        }
    }

    /// Value at one point.
    pub(super) fn at(&self, point: &[i64], views: &[Option<View<'_>>]) -> i64 {
        let mut sum = self.constant;
        for (c, p) in self.coefs.iter().zip(point) {
            sum = sum.wrapping_add(c.wrapping_mul(*p));
        }
        for (k, a) in &self.atoms {
            sum = sum.wrapping_add(k.wrapping_mul(a.at(point, views)));
        }
        sum
    }
}

impl Atom {
    pub(super) fn uses(&self, l: usize) -> bool {
        match self {
            Atom::Mul(p) | Atom::Div(p) | Atom::Mod(p) | Atom::Min(p) | Atom::Max(p) => p.iter().any(|f| f.uses(l)),
            Atom::Load(_, f) => f.uses(l),
        }
    }

    pub(super) fn at(&self, point: &[i64], views: &[Option<View<'_>>]) -> i64 {
        match self {
            Atom::Load(b, f) => read(views, *b, f.at(point, views)),
            Atom::Mul(p) | Atom::Div(p) | Atom::Mod(p) | Atom::Min(p) | Atom::Max(p) => {
                self.apply(p[0].at(point, views), p[1].at(point, views))
            }
        }
    }

    /// The function of a two-operand atom.
    #[inline(always)]
    pub(super) fn apply(&self, a: i64, b: i64) -> i64 {
        match self {
            Atom::Mul(_) => a.wrapping_mul(b),
            Atom::Div(_) => floor_div(a, b).unwrap_or(0),
            Atom::Mod(_) => floor_mod(a, b).unwrap_or(0),
            Atom::Min(_) => a.min(b),
            Atom::Max(_) => a.max(b),
            Atom::Load(..) => NOWHERE,
        }
    }
}

/// Element `at` of an integer buffer.
pub(super) fn read(views: &[Option<View<'_>>], buffer: usize, at: i64) -> i64 {
    views[buffer].as_ref().and_then(|v| v.index(at)).unwrap_or(NOWHERE)
}

impl Form {
    /// Adds a last loop that nothing uses.
    pub(super) fn add_loop(&mut self) {
        self.coefs.push(0);
        for (_, a) in &mut self.atoms {
            match a {
                Atom::Mul(p) | Atom::Div(p) | Atom::Mod(p) | Atom::Min(p) | Atom::Max(p) => {
                    p.iter_mut().for_each(Form::add_loop);
                }
                Atom::Load(_, f) => f.add_loop(),
            }
        }
    }
}
