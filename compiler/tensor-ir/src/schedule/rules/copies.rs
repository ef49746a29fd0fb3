//! Copies to workgroup memory that go across their loads, or by rows.

use super::cooperate::{
    LOAD_BYTES, ThreadRange, VECTOR, copy_by_part, copy_cooperatively, distribute, element_bytes, reads_neighbours,
    strides,
};
use super::decline::Decline;
use super::sketch::Sketch;
use crate::name::Name;
use crate::schedule::{Axis, StageInRegisters};
use crate::tir::Expr;
use crate::tir::analysis::operands::without_casts;

/// When a product on matrix units stores its left operand in workgroup memory.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum LeftOperand {
    /// Each K step stores its part.
    EachStep,
    /// All of it is stored before the K steps, in this loop.
    Whole(Name),
    /// The same, where elements of a row are computed of values that they share.
    Rows(Name),
}

impl LeftOperand {
    /// The loop in which it is stored, for K steps of loop `step`.
    pub(super) fn at(self, step: Name) -> Name {
        match self {
            LeftOperand::EachStep => step,
            LeftOperand::Whole(at) | LeftOperand::Rows(at) => at,
        }
    }
    /// Distributes the copy over `threads`, where it is one of all elements; `k` are the product's loops over them.
    pub(super) fn copy(
        self,
        sketch: &mut Sketch<'_>,
        copy: Name,
        k: &[Name],
        threads: (i64, i64),
    ) -> Result<(), Decline> {
        match self {
            LeftOperand::EachStep => Ok(()),
            LeftOperand::Whole(at) => copy_cooperatively(sketch, copy, at, threads),
            LeftOperand::Rows(at) => {
                let inner: Vec<Name> = k.iter().map(|v| Name::new(&format!("{copy}_{v}"))).collect();
                copy_rows(sketch, copy, at, &inner, threads)
            }
        }
    }
}

/// Distributes the copies of a K step over `threads`; returns those that go across their loads. With `by_part` fewer
/// threads copy 16 bytes each, where that costs nothing: a driver that moves loads behind arithmetic unless they stand
/// under a condition (RADV) would part the operands' loads.
pub(super) fn copy_steps(
    sketch: &mut Sketch<'_>,
    copies: &[Name],
    at: Name,
    threads: (i64, i64),
    by_part: bool,
) -> Result<Vec<Name>, Decline> {
    let mut across = Vec::new();
    for &copy in copies {
        let all = ThreadRange { first: 0, count: threads.0 };
        if threads.1 != 1 && copy_across(sketch, copy, at, threads)? {
            across.push(copy);
        } else if !by_part || !copy_by_part(sketch, copy, at, all)? {
            copy_cooperatively(sketch, copy, at, threads)?;
        }
    }
    Ok(across)
}

/// Distributes the copy nest of block `copy` over all `threads`, where its loads are contiguous along one loop and its
/// stores along another one. A thread has blocks of both: it loads vectors along the first and stores vectors along the
/// second, so that no element is stored alone. [`store_across`] makes the vectors, when the loads are parted from the
/// stores. Returns false, without changes, if the copy is not of this form.
fn copy_across(sketch: &mut Sketch<'_>, copy: Name, at: Name, threads: (i64, i64)) -> Result<bool, Decline> {
    let mut tried = sketch.clone();
    let loops = tried.inside(copy, at)?;
    let whole = |v: &Name| sketch.extent_of(*v).is_some_and(|n| n % VECTOR == 0);
    let along =
        |of: &dyn Fn((i64, i64)) -> bool| loops.iter().copied().find(|v| whole(v) && of(strides(sketch, copy, *v)));
    let (Some(loaded), Some(stored)) = (along(&|s| s.0 == 1 && s.1 > 1), along(&|s| s.1 == 1 && s.0 > 1)) else {
        return Ok(false);
    };
    let blocks = loops.iter().map(|v| sketch.extent_of(*v).unwrap_or(0)).product::<i64>() / (VECTOR * VECTOR);
    let narrow = element_bytes(sketch, copy) * VECTOR < LOAD_BYTES;
    let loaded = tried.split(loaded, &[0, VECTOR], &["q", "v"])?;
    let stored = tried.split(stored, &[0, VECTOR], &["q", "v"])?;
    if !narrow || 2 * blocks < threads.0 * threads.1 || !reads_neighbours(&tried, copy, &loaded[1..], VECTOR) {
        return Ok(false);
    }
    let own = [stored[1], loaded[1]];
    let mut order: Vec<Name> = tried.inside(copy, at)?.into_iter().filter(|v| !own.contains(v)).collect();
    // Neighbouring threads store neighbouring vectors.
    order.sort_by_key(|v| std::cmp::Reverse(strides(&tried, copy, *v).1));
    tried.reorder(&order.iter().chain(&own).copied().collect::<Vec<Name>>())?;
    let flat = tried.fuse(&order, Name::new(&format!("{copy}_f")))?;
    distribute(&mut tried, flat, threads)?;
    *sketch = tried;
    Ok(true)
}

/// Makes vectors of the blocks of [`copy_across`], whose loads the loop's pipeline has parted from the stores.
pub(super) fn store_across(sketch: &mut Sketch<'_>, copy: Name) -> Result<(), Decline> {
    let loads = ["first", "next"].map(|part| Name::new(&format!("{copy}_{part}")));
    let innermost = |sketch: &Sketch<'_>, block: Name| -> Result<[Name; 2], Decline> {
        let loops = sketch.loops(block)?;
        loops.last_chunk::<2>().map(|l| [l[0].var, l[1].var]).ok_or_else(Decline::other_kind)
    };
    for block in loads {
        if sketch.view().block(block).is_none() {
            continue;
        }
        let [outer, inner] = innermost(sketch, block)?;
        sketch.unroll(outer)?;
        sketch.vectorize(inner)?;
    }
    let [outer, inner] = innermost(sketch, copy)?;
    sketch.reorder(&[inner, outer])?;
    sketch.unroll(inner)?;
    Ok(sketch.vectorize(outer)?)
}

/// Distributes the copy nest of block `copy` over `threads`: rows along y, and elements of a row, which the loops
/// `inner` count, along x. What a row's elements share is loaded once a row.
fn copy_rows(
    sketch: &mut Sketch<'_>,
    copy: Name,
    at: Name,
    inner: &[Name],
    threads: (i64, i64),
) -> Result<(), Decline> {
    let (own, rows): (Vec<Name>, Vec<Name>) = sketch.inside(copy, at)?.into_iter().partition(|v| inner.contains(v));
    sketch.reorder(&[rows.as_slice(), &own].concat())?;
    let row = sketch.fuse(&rows, Name::new(&format!("{copy}_row")))?;
    let element = sketch.fuse(&own, Name::new(&format!("{copy}_all")))?;
    let count = sketch.extent_of(row).unwrap_or(1);
    let row = sketch.split(row, &[threads.1.min(count), 0], &["t", "i"])?;
    let element = sketch.split(element, &[0, threads.0], &["o", "t"])?;
    sketch.reorder(&[row[0], element[1], row[1], element[0]])?;
    sketch.bind(row[0], Axis::LocalY)?;
    sketch.bind(element[1], Axis::LocalX)?;
    let value = sketch.view().block(copy).map(|b| b.value.clone()).ok_or_else(Decline::other_kind)?;
    let mut paths = Vec::new();
    load_paths(&value, "", &mut paths);
    for (n, ((_, index), operand)) in value.loads().into_iter().zip(paths).enumerate() {
        if !index.iter().any(|i| element.iter().any(|v| i.uses(*v))) {
            let into = Name::new(&format!("{copy}_of_row{n}"));
            sketch.apply(StageInRegisters { block: copy, operand, at: row[1], into, narrow: false })?;
        }
    }
    Ok(())
}

/// The operand paths of all loads of `e`, in the order of [`Expr::loads`].
pub(super) fn load_paths(e: &Expr, path: &str, out: &mut Vec<String>) {
    let mut below = |step: usize, a: &Expr| {
        let to = if path.is_empty() { step.to_string() } else { format!("{path}.{step}") };
        load_paths(a, &to, out);
    };
    match e {
        Expr::Load(..) => out.push(path.to_string()),
        // A cast is a step of its own only above what has no operands.
        Expr::Cast(_, a) if matches!(without_casts(a), Expr::Load(..)) => below(0, a),
        Expr::Cast(_, a) => load_paths(a, path, out),
        Expr::Unary(_, a) => below(0, a),
        Expr::Binary(_, a, b) => {
            below(0, a);
            below(1, b);
        }
        Expr::Select(c, a, b) => {
            below(0, c);
            below(1, a);
            below(2, b);
        }
        Expr::Const(..) | Expr::Index(..) | Expr::All(..) => {}
    }
}
