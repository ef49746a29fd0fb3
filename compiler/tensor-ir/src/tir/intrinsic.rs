//! Intrinsics: operations of a device that replace a nest of loops. Each is described by a tensor function, which the
//! interpreter runs.
//!
//! A matrix shape `m x n x k` of a device has four. `multiply_add_16x16x16_f16_f32`:
//!
//! ```text
//! buffer %a: f16[16,16] fragment(a)   buffer %b: f16[16,16] fragment(b)   buffer %c: f32[16,16] fragment(c)
//! for i in 0..16 { for j in 0..16 { for k in 0..16 {
//!   block multiply_add reduce sum { %c[i, j] <- f32(%a[i, k]) * f32(%b[k, j]) }
//! } } }
//! ```
//!
//! `fill_16x16_f32` sets an accumulator to 0, `load_a_16x16_f16` and `load_b_16x16_f16` read an operand from workgroup
//! or device memory, `store_16x16_f32` writes an accumulator there. In memory one of the two dimensions is contiguous,
//! and the other has a constant stride.
//!
//! `dot4_i8` and `dot4_u8` multiply four bytes of two words and add the products to an integer. One thread executes
//! them, on every driver:
//!
//! ```text
//! buffer %a: i8[4] byte_quad   buffer %b: i8[4] byte_quad   buffer %c: i32[1] register
//! for i in 0..4 { block dot4_i8 reduce sum { %c[0] <- i32(%a[i]) * i32(%b[i]) } }
//! ```
//!
//! The four bytes of each operand are one word of packed memory (`Encoding::ByteQuad`, also in workgroup memory and
//! registers); the result is an i32 whose index does not depend on the loop.
//!
//! A nest of loops is an intrinsic if it *unifies* with the description: the same extents around one block without
//! conditions, the same reduction, and the same value up to casts to a wider type. The last two indices of a fragment
//! are exactly the loops of the nest.
//!
//! # Register tiles
//!
//! `tile_14x32x64_f32` is a tile of multiply-adds in a processor's vector registers, with loops over 14 rows, 32
//! columns and depth 64; `tile_14x32_f32` is one of any depth, also an open one. Operands are f32, or f16 and bf16 that
//! are f32 when they are multiplied; in `tile_14x32x64_i32` they are i32, or bytes that become i32. A row of the left
//! operand has elements at a constant stride, wherever it begins, or is 0 (of integers: some constant) under a
//! condition (padding); columns of the right operand are adjacent. Rows and columns beyond the end may be left out.
//!
//! # Matrix units
//!
//! A fragment is a memory scope: its last two dimensions are a matrix that the lanes of a subgroup hold together. Loops
//! over subgroups and lanes are axes, like those of threads. `tensorize` replaces a nest by an intrinsic.
//!
//! A kernel is right for every subgroup size in the range that its profile announces. When a session opens, each kernel
//! on matrix units runs once in a variant that stores the size (`runtime-gpu/src/subgroup_sizes.rs`). If the size is
//! outside of the range, the facade compiles again without matrix units and subgroups, with a remark.
//!
//! f16 operands are a precondition (from `--amp` or from the model), and scalar rules remain candidates. Drivers and
//! devices on which matrix operations are wrong or slow are rows of [`quirks`](crate::profile::quirks).

mod descriptions;

use super::{Block, Buffer, BufferId, Combiner, Encoding, Expr, For, Reduce, Scope};
use super::{Scalar, Stmt, TensorFunction};
use crate::dtype::DType;
use crate::int::{self, Bounds, DimRanges, Int};
use crate::name::Name;
use crate::profile::MatrixShape;
use descriptions::{becomes, buffer, describe, dot4, fill, load, multiply_add, narrowest, store};

/// The role of a matrix in `C[m, n] += A[m, k] * B[k, n]`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, serde::Serialize, serde::Deserialize)]
pub enum MatrixRole {
    /// The left operand.
    A,
    /// The right operand.
    B,
    /// The accumulator.
    C,
}
impl MatrixRole {
    /// Every role.
    pub const ALL: [MatrixRole; 3] = [MatrixRole::A, MatrixRole::B, MatrixRole::C];
    /// Whether a matrix unit of this shape takes matrices of this role with these extents (rows, columns) and this
    /// type.
    pub fn fits(self, shape: &MatrixShape, dtype: DType, extents: &[i64]) -> bool {
        let [m, n, k] = shape.mnk.map(i64::from);
        let (wanted, ty) = match self {
            MatrixRole::A => ([m, k], &shape.ab),
            MatrixRole::B => ([k, n], &shape.ab),
            MatrixRole::C => ([m, n], &shape.cr),
        };
        extents == wanted && *ty == dtype.to_string()
    }
    /// Name in text: `a`, `b` or `c`.
    pub fn word(self) -> &'static str {
        match self {
            MatrixRole::A => "a",
            MatrixRole::B => "b",
            MatrixRole::C => "c",
        }
    }
}

/// An operation of a device and its description.
#[derive(Clone, Debug)]
pub struct Intrinsic {
    /// Its name: the operation, the extents of its loops, the types of its operands and of its result.
    pub name: String,
    /// One perfect nest of loops around one block. [`Scope::Shared`] means any memory that the operation can access.
    pub description: TensorFunction,
}

/// Why a nest is no intrinsic.
#[derive(Clone, Debug, PartialEq)]
pub struct Mismatch {
    /// The loop or block that differs.
    pub culprit: Name,
    /// How.
    pub message: String,
}

/// Loops around one block, outermost first, with their extents.
#[derive(Clone, Debug)]
pub struct Nest<'f> {
    /// The loops.
    pub loops: Vec<(Name, Int)>,
    /// The block.
    pub block: &'f Block,
}

impl<'f> Nest<'f> {
    /// The perfect nest under a loop.
    ///
    /// # Errors
    /// When it holds more than one block.
    pub fn under(l: &'f For) -> Result<Nest<'f>, Mismatch> {
        let (mut loops, mut at) = (Vec::new(), l);
        loop {
            loops.push((at.var, at.extent.clone()));
            match &at.body {
                Stmt::For(inner) => at = inner,
                Stmt::Block(block) => return Ok(Nest { loops, block }),
                _ => return Err(Mismatch { culprit: at.var, message: "holds more than one block".into() }),
            }
        }
    }
    fn vars(&self) -> Vec<Name> {
        self.loops.iter().map(|l| l.0).collect()
    }
    /// The loops with their lengths; `None` if one is open.
    pub fn sizes(&self) -> Option<Vec<(Name, i64)>> {
        self.loops.iter().map(|l| Some((l.0, l.1.as_const()?))).collect()
    }
}

/// Bytes of a packed word.
const WORD: i64 = 4;

/// The types whose packed words are multiplied at once.
fn byte(word: &str) -> Option<DType> {
    [DType::I8, DType::U8].into_iter().find(|t| t.name() == word)
}

/// The words of a matrix shape's types: `f16` or `f32`.
fn float(word: &str) -> Option<DType> {
    [DType::F16, DType::F32].into_iter().find(|t| t.to_string() == word)
}

impl Intrinsic {
    /// The intrinsics of a matrix shape; none if its types are not f16 and f32.
    pub fn of_shape(shape: &MatrixShape) -> Vec<Intrinsic> {
        let (Some(ab), Some(cr)) = (float(&shape.ab), float(&shape.cr)) else { return vec![] };
        let [m, n, k] = shape.mnk.map(i64::from);
        vec![
            fill([m, n], cr),
            load(MatrixRole::A, [m, k], ab),
            load(MatrixRole::B, [k, n], ab),
            multiply_add([m, n, k], ab, cr),
            store([m, n], cr),
        ]
    }
    /// The intrinsic of that name, of any shape.
    pub fn named(name: &str) -> Option<Intrinsic> {
        let parts: Vec<&str> = name.split('_').collect();
        let sizes =
            |text: &str| text.split('x').map(|n| n.parse().ok().filter(|n| *n > 0)).collect::<Option<Vec<i64>>>();
        let pair = |text: &str| sizes(text).and_then(|s| <[i64; 2]>::try_from(s).ok());
        Some(match parts.as_slice() {
            ["fill", size, t] => fill(pair(size)?, float(t)?),
            ["load", "a", size, t] => load(MatrixRole::A, pair(size)?, float(t)?),
            ["load", "b", size, t] => load(MatrixRole::B, pair(size)?, float(t)?),
            ["multiply", "add", size, ab, cr] => {
                multiply_add(<[i64; 3]>::try_from(sizes(size)?).ok()?, float(ab)?, float(cr)?)
            }
            ["store", size, t] => store(pair(size)?, float(t)?),
            ["dot4", t] => dot4(byte(t)?),
            ["tile", size, sums] => {
                let sums = [DType::F32, DType::I32].into_iter().find(|t| t.name() == *sums)?;
                match sizes(size)?[..] {
                    [m, n, k] => Intrinsic::tile([m, n], Some(k), sums),
                    [m, n] => Intrinsic::tile([m, n], None, sums),
                    _ => return None,
                }
            }
            _ => return None,
        })
    }
    /// The products of packed words of bytes.
    pub fn packed_dots() -> [Intrinsic; 2] {
        [DType::I8, DType::U8].map(dot4)
    }
    /// A tile of rows and columns of such sums, f32 or i32, in vector registers, of this depth or of any.
    pub fn tile([m, n]: [i64; 2], k: Option<i64>, sums: DType) -> Intrinsic {
        let depth = k.map_or(Int::var(Name::new(DEPTH)), Int::new);
        let name = format!("tile_{m}x{n}{}_{sums}", k.map_or(String::new(), |k| format!("x{k}")));
        let mut tile = describe(name, &[Int::new(m), Int::new(n), depth.clone()], |f, v| {
            let operand = |f: &mut TensorFunction, name: &str, shape: [Int; 2]| {
                let (shape, scope, encoding) = (shape.to_vec(), Scope::Global, Encoding::Native);
                f.buffers.push(Buffer { name: name.into(), dtype: sums, shape, scope, encoding })
            };
            let (a, b) = (operand(f, LEFT, [m.into(), depth.clone()]), operand(f, RIGHT, [depth.clone(), n.into()]));
            let c = buffer(f, "c", sums, [m, n], Scope::Register);
            let element = |b: BufferId, at: [usize; 2]| Expr::load(b, at.map(|d| v[d].clone()).to_vec());
            let reduce = Some(Reduce { combiner: Combiner::Sum, init: false });
            (c, v[..2].to_vec(), element(a, [0, 2]) * element(b, [2, 1]), reduce)
        });
        tile.description.declare_symbols(&DimRanges::default());
        tile
    }
    /// A subgroup does it as a whole; else each thread for itself.
    pub fn is_collective(&self) -> bool {
        self.description.buffers.iter().any(|(_, b)| matches!(b.scope, Scope::Fragment(_)))
    }
    /// The one that a nest can be, by the memory that its block accesses.
    pub fn of_nest(f: &TensorFunction, nest: &Nest<'_>) -> Option<Intrinsic> {
        let (b, sizes) = (nest.block, nest.loops.iter().map(|l| l.1.as_const()).collect::<Vec<_>>());
        let sums = &f.buffers[b.buffer];
        if let (Scope::Register, &[Some(m), Some(n), k], Some(_)) = (sums.scope, &sizes[..], b.reduce) {
            return Some(Intrinsic::tile([m, n], k, sums.dtype));
        }
        let sizes = sizes.into_iter().collect::<Option<Vec<i64>>>()?;
        let into = &f.buffers[b.buffer];
        let loads = b.value.loads();
        let from = loads.first().map(|l| &f.buffers[l.0]);
        Some(match (into.scope, sizes.as_slice()) {
            (Scope::Fragment(MatrixRole::C), &[m, n, k]) => multiply_add([m, n, k], from?.dtype, into.dtype),
            (Scope::Fragment(MatrixRole::C), &[m, n]) => fill([m, n], into.dtype),
            (Scope::Fragment(role), &[rows, columns]) => load(role, [rows, columns], into.dtype),
            (Scope::Shared | Scope::Global, &[m, n]) if matches!(from?.scope, Scope::Fragment(_)) => {
                store([m, n], into.dtype)
            }
            (_, &[WORD]) if into.dtype == DType::I32 && b.reduce.is_some() => dot4(byte(from?.dtype.name())?),
            _ => return None,
        })
    }
    /// Holds a nest of `f` against the description.
    ///
    /// # Errors
    /// The first difference.
    pub fn unify(&self, f: &TensorFunction, nest: &Nest<'_>, bounds: &Bounds) -> Result<(), Mismatch> {
        let Some(Stmt::For(outer)) = Some(&self.description.body) else { unreachable!("descriptions are nests") };
        let own = Nest::under(outer)?;
        let at = |culprit: Name, message: String| Mismatch { culprit, message: format!("{message}, `{}`", self.name) };
        for (n, (var, extent)) in nest.loops.iter().enumerate() {
            match own.loops.get(n) {
                Some((_, wanted)) if wanted == extent || wanted.as_const().is_none() => {}
                Some((_, wanted)) => return Err(at(*var, format!("has {extent} iterations, not {wanted}"))),
                None => return Err(at(*var, format!("is one loop more than {}", own.loops.len()))),
            }
        }
        let b = nest.block;
        if nest.loops.len() < own.loops.len() {
            return Err(at(b.name, format!("stands in {} loops, not {}", nest.loops.len(), own.loops.len())));
        }
        if !b.guards.is_empty() && !self.leaves_out(f, nest, bounds) {
            return Err(at(b.name, "has conditions".into()));
        }
        if b.reduce.map(|r| (r.combiner, r.init)) != own.block.reduce.map(|r| (r.combiner, r.init)) {
            return Err(at(b.name, "reduces otherwise".into()));
        }
        let u = Unification { f, own: &self.description, own_vars: own.vars(), vars: nest.vars(), bounds };
        let stored = u.element((own.block.buffer, &own.block.indices), (b.buffer, &b.indices));
        let value = stored.and_then(|()| u.value(&own.block.value, &b.value));
        value.map_err(|message| at(b.name, message))
    }
}

/// Names of a tile's operands.
const LEFT: &str = "a";
const RIGHT: &str = "b";
/// The size that is a tile's depth, where that is any.
const DEPTH: &str = "depth";

impl Intrinsic {
    /// The conditions of a tile's block leave out rows or columns alone; columns that are left out are in the right
    /// operand's bounds.
    fn leaves_out(&self, f: &TensorFunction, nest: &Nest<'_>, bounds: &Bounds) -> bool {
        let (true, &[_, (column, _), (depth, _)]) = (self.name.starts_with("tile_"), nest.loops.as_slice()) else {
            return false;
        };
        let uses = |v: Name| nest.block.guards.iter().any(|c| c.lhs.uses(v) || c.rhs.uses(v));
        let inside = |(b, ix): (BufferId, &[Int])| {
            let buffer = &f.buffers[b];
            let numel = buffer.numel();
            let last = int::simplify(&(numel - int::flatten_index(ix, &buffer.shape) - 1), bounds);
            int::prove(&last, 0, i64::MAX, bounds)
        };
        let right = |l: &(BufferId, &[Int])| l.1.iter().any(|i| i.uses(column));
        !uses(depth) && (!uses(column) || nest.block.value.loads().into_iter().filter(right).all(inside))
    }
}

struct Unification<'a> {
    f: &'a TensorFunction,
    own: &'a TensorFunction,
    own_vars: Vec<Name>,
    vars: Vec<Name>,
    bounds: &'a Bounds,
}

impl Unification<'_> {
    /// The loop that corresponds to a loop of the description.
    fn var(&self, own: &Int) -> Option<Name> {
        let v = own.as_var()?;
        self.own_vars.iter().position(|o| *o == v).map(|n| self.vars[n])
    }
    fn element(&self, own: (BufferId, &[Int]), other: (BufferId, &[Int])) -> Result<(), String> {
        let (wanted, buffer) = (&self.own.buffers[own.0], &self.f.buffers[other.0]);
        let operand = wanted.scope == Scope::Global && becomes(buffer.dtype, wanted.dtype);
        if buffer.dtype != wanted.dtype && !operand {
            return Err(format!("`{}` is {}, not {}", buffer.name, buffer.dtype, wanted.dtype));
        }
        let vars: Vec<Name> = own.1.iter().filter_map(|i| self.var(i)).collect();
        if wanted.encoding == Encoding::ByteQuad {
            return self.word(buffer, other.1, vars[0]);
        }
        if wanted.scope == Scope::Global {
            return self.operand(wanted, buffer, other.1);
        }
        if wanted.scope == Scope::Register && vars.len() == 2 {
            let next = strides(buffer, other.1, &self.vars, self.bounds);
            let columns = wanted.shape.last().and_then(Int::as_const).unwrap_or(0);
            let one_row = wanted.shape.first().is_some_and(|n| n.is(1));
            let whole = next.is_some_and(|s| s[1..] == [1, 0] && (one_row || s[0] == columns));
            let whole = whole && buffer.scope == Scope::Register;
            return if whole { Ok(()) } else { Err(format!("`{}` is no tile in registers", buffer.name)) };
        }
        if wanted.scope == Scope::Register {
            let moved = other.1.iter().any(|i| self.vars.iter().any(|v| i.uses(*v)));
            let own = matches!(buffer.scope, Scope::Register | Scope::Shared | Scope::Global);
            return if moved || !own { Err(format!("`{}` is no single element", buffer.name)) } else { Ok(()) };
        }
        if let Scope::Fragment(_) = wanted.scope {
            if buffer.scope != wanted.scope {
                return Err(format!("`{}` is no {}", buffer.name, fragment_words(wanted.scope)));
            }
            let (outer, inner) = other.1.split_at(other.1.len().saturating_sub(2));
            let moved = |i: &Int| self.vars.iter().any(|v| i.uses(*v));
            let plain = inner.iter().map(Int::as_var).eq(vars.iter().copied().map(Some));
            if !plain || outer.iter().any(moved) || !buffer.shape.ends_with(&wanted.shape) {
                return Err(format!("does not go through the rows and columns of `{}`", buffer.name));
            }
            return Ok(());
        }
        if !matches!(buffer.scope, Scope::Shared | Scope::Global) || buffer.encoding != Encoding::Native {
            return Err(format!("`{}` is no workgroup or device memory of single elements", buffer.name));
        }
        match strides(buffer, other.1, &vars, self.bounds) {
            Some(s) if matrix_layout(&s).is_some() => Ok(()),
            _ => {
                Err(format!("rows or columns of `{}` do not lie next to each other at a constant stride", buffer.name))
            }
        }
    }
    /// An operand of a tile: elements at strides that are the same everywhere, along the depth also open ones. Columns
    /// of the right one are adjacent.
    fn operand(&self, wanted: &Buffer, buffer: &Buffer, indices: &[Int]) -> Result<(), String> {
        let stored = matches!(buffer.encoding, Encoding::Native | Encoding::ByteQuad);
        let plain = matches!(buffer.scope, Scope::Global | Scope::Register) && stored;
        let (what, outer, next): (_, _, &[i64]) = match wanted.name == LEFT.into() {
            true => ("rows", &self.vars[1..2], &[0]),
            false => ("columns", &self.vars[..2], &[0, 1]),
        };
        let along_depth = || {
            let step = step(buffer, indices, self.vars[2], self.bounds);
            let fixed = step.vars().iter().all(|v| self.f.symbols.iter().any(|s| s.0 == *v));
            fixed && int::prove(&step, 0, i64::MAX, self.bounds)
        };
        let fits = plain && strides(buffer, indices, outer, self.bounds).as_deref() == Some(next) && along_depth();
        if fits { Ok(()) } else { Err(format!("`{}` has no {what} of a tile", buffer.name)) }
    }
    /// The conditions under which a row of a tile is not 0: they are the same for all of its elements.
    fn is_row_condition(&self, e: &Expr) -> bool {
        let Expr::All(list) = e else { return false };
        let inner = &self.vars[self.vars.len().min(1)..];
        list.iter().all(|c| !inner.iter().any(|v| c.lhs.uses(*v) || c.rhs.uses(*v)))
    }
    /// Checks that the loop `var` runs over the elements of one packed word of `buffer`.
    fn word(&self, buffer: &Buffer, indices: &[Int], var: Name) -> Result<(), String> {
        if buffer.encoding != Encoding::ByteQuad {
            return Err(format!("`{}` is no memory of packed bytes", buffer.name));
        }
        match strides(buffer, indices, &[var], self.bounds).as_deref() {
            Some([1]) if int::divisor(&first_of(buffer, indices, var, self.bounds)) % WORD == 0 => Ok(()),
            _ => Err(format!("the bytes of `{}` do not make one word", buffer.name)),
        }
    }
    fn value(&self, own: &Expr, other: &Expr) -> Result<(), String> {
        match (narrowest(own, self.own), narrowest(other, self.f)) {
            (Expr::Load(a, i), Expr::Load(b, j)) => self.element((*a, i), (*b, j)),
            (Expr::Load(a, _), Expr::Select(c, row, zero))
                if self.own.buffers[*a].name == LEFT.into()
                    && self.own.buffers[*a].scope == Scope::Global
                    && self.is_row_condition(c)
                    && matches!(&**zero, Expr::Const(x, _) if !matches!(x, Scalar::Float(x) if *x != 0.0)) =>
            {
                self.value(own, row)
            }
            // What is multiplied in f32 may keep more bits.
            (Expr::Load(a, _), Expr::Cast(DType::F16 | DType::BF16, wide))
                if self.own.buffers[*a].scope == Scope::Global && self.own.buffers[*a].dtype == DType::F32 =>
            {
                self.value(own, wide)
            }
            (Expr::Binary(p, a, b), Expr::Binary(q, c, d)) if p == q => {
                self.value(a, c)?;
                self.value(b, d)
            }
            (Expr::Const(a, _), Expr::Const(b, _)) if a == b => Ok(()),
            _ => Err("computes another value".into()),
        }
    }
}

fn fragment_words(scope: Scope) -> String {
    match scope {
        Scope::Fragment(role) => format!("fragment({})", role.word()),
        _ => "fragment".into(),
    }
}

/// The element, as a place in the whole buffer, of the first iteration of `var`.
pub fn first_of(buffer: &Buffer, indices: &[Int], var: Name, bounds: &Bounds) -> Int {
    let flat = int::flatten_index(indices, &buffer.shape);
    int::simplify(&flat.substitute(var, &Int::new(0)), bounds)
}

/// The strides in elements of an access along the loops `vars`, if they are constant.
pub fn strides(buffer: &Buffer, indices: &[Int], vars: &[Name], bounds: &Bounds) -> Option<Vec<i64>> {
    vars.iter().map(|v| step(buffer, indices, *v, bounds).as_const()).collect()
}

/// By how many elements the place in a buffer moves in the next iteration of a loop. What does not use the loop is left
/// out dimension by dimension: of products of open sizes not all cancel in the whole.
fn step(buffer: &Buffer, indices: &[Int], v: Name, bounds: &Bounds) -> Int {
    let moved = |i: &Int| match i.uses(v) {
        true => int::simplify(&(i.substitute(v, &(Int::var(v) + 1)) - i), bounds),
        false => Int::new(0),
    };
    let moved: Vec<Int> = indices.iter().map(moved).collect();
    int::simplify(&int::flatten_index(&moved, &buffer.shape), bounds)
}

/// The layout of a matrix with these strides of rows and columns: whether a row is contiguous, and the stride between
/// rows (else between columns).
pub fn matrix_layout(strides: &[i64]) -> Option<(bool, i64)> {
    match *strides {
        [stride, 1] if stride > 0 => Some((true, stride)),
        [1, stride] if stride > 0 => Some((false, stride)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packed_products_are_of_words_and_of_one_type() {
        for i in Intrinsic::packed_dots() {
            let f = &i.description;
            let Stmt::For(outer) = &f.body else { panic!("a nest") };
            let nest = Nest::under(outer).expect("perfect");
            assert_eq!(Intrinsic::named(&i.name).expect("by its name").description, *f);
            assert_eq!(Intrinsic::of_nest(f, &nest).map(|i| i.name), Some(i.name.clone()));
            i.unify(f, &nest, &f.bounds()).expect("a description is what it describes");
            let other = Intrinsic::packed_dots().into_iter().find(|o| o.name != i.name).expect("two types");
            assert!(other.unify(f, &nest, &f.bounds()).is_err());
            let mut apart = f.clone();
            apart.buffers.ids().for_each(|b| apart.buffers[b].encoding = Encoding::Native);
            let why = i.unify(&apart, &nest, &f.bounds()).expect_err("bytes in words of their own");
            assert!(why.message.contains("no memory of packed bytes"), "{}", why.message);
        }
    }

    #[test]
    fn a_shape_has_an_intrinsic_for_each_step_and_names_find_them() {
        let shape = MatrixShape { mnk: [16, 8, 16], ab: "f16".into(), cr: "f32".into() };
        let all = Intrinsic::of_shape(&shape);
        let names: Vec<&str> = all.iter().map(|i| i.name.as_str()).collect();
        let wanted =
            ["fill_16x8_f32", "load_a_16x16_f16", "load_b_16x8_f16", "multiply_add_16x8x16_f16_f32", "store_16x8_f32"];
        assert_eq!(names, wanted);
        for i in &all {
            let again = Intrinsic::named(&i.name).expect("by its name");
            assert_eq!(again.description, i.description);
            let Stmt::For(outer) = &i.description.body else { panic!("a nest") };
            let nest = Nest::under(outer).expect("perfect");
            let bounds = i.description.bounds();
            i.unify(&i.description, &nest, &bounds).expect("a description is what it describes");
            assert_eq!(Intrinsic::of_nest(&i.description, &nest).map(|i| i.name), Some(i.name.clone()));
        }
        for (n, a) in all.iter().enumerate() {
            let Stmt::For(outer) = &a.description.body else { panic!("a nest") };
            let nest = Nest::under(outer).expect("perfect");
            for b in all.iter().enumerate().filter(|b| b.0 != n).map(|b| b.1) {
                assert!(
                    b.unify(&a.description, &nest, &a.description.bounds()).is_err(),
                    "{} is no {}",
                    a.name,
                    b.name
                );
            }
        }
        assert!(Intrinsic::named("load_d_8x8_f16").is_none() && Intrinsic::named("fill_0x8_f32").is_none());
    }
}
