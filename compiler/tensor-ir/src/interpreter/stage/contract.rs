//! Contractions: sums of products of two operands run as matrix products.
//!
//! Result loops that only one operand uses are its rows, loops that both use are a batch, reduction loops are the
//! depth. An operand that is a plain strided f32 buffer is used in place. Any other operand (a window of padded data,
//! narrow floats) is packed by running its expression over rows and depth, as im2col does. In a grouped convolution,
//! one operand uses a result loop only divided by the group size; that loop is first split into group and member.

use super::form::{Form, Loop, loop_bounds};
use super::frame::Nest;
use super::program::Program;
use super::view::View;
use crate::dtype::DType;
use crate::int::{Int, IntNode, simplify};
use crate::name::Name;
use crate::tir::{BinaryOp, Combiner, Expr, TensorFunction};
use rayon::prelude::*;

/// Fewer multiply-adds than this, or fewer rows, columns or depth than [`MIN_SIDE`], are left to the vectors.
const MIN_MACS: usize = 1 << 12;
const MIN_SIDE: usize = 4;
/// Elements of a packed operand beyond which rows are moved to the batch.
const MAX_PACKED: usize = 1 << 25;
/// Multiply-adds of one product below which a batch runs its products in parallel instead of splitting each.
const SMALL_PRODUCT: usize = 1 << 23;

/// A spatial loop with its step in the result.
#[derive(Clone, Copy)]
struct ResultLoop {
    l: Loop,
    step: usize,
}

enum Operand {
    /// Element `(row, depth)` is at `base(batch) + row*row_step + depth*depth_step`.
    Direct {
        buffer: usize,
        base: Form,
        row_step: i64,
        depth_step: i64,
    },
    Packed {
        nest: Nest,
        depth_first: bool,
        per_batch: bool,
    },
}

/// A contraction stage.
pub(super) struct Contraction {
    batch: Vec<ResultLoop>,
    /// Rows, columns, depth.
    size: [usize; 3],
    /// Of rows and columns.
    steps: [usize; 2],
    rows: Operand,
    columns: Operand,
}

fn count(loops: &[ResultLoop]) -> usize {
    loops.iter().map(|l| l.l.extent).product()
}

impl Contraction {
    /// `None` when the stage is no contraction, or too small for one.
    pub(super) fn new(
        f: &TensorFunction,
        value: &Expr,
        spatial: &[Loop],
        reduction: &[Loop],
        combiner: Combiner,
        dtype: DType,
    ) -> Option<Contraction> {
        let Expr::Binary(BinaryOp::Mul, a, b) = value else { return None };
        if combiner != Combiner::Sum || dtype != DType::F32 || value.dtype(f) != DType::F32 {
            return None;
        }
        let mut loops = Vec::new();
        let mut step = 1;
        for l in spatial.iter().rev() {
            loops.push(ResultLoop { l: *l, step });
            step *= l.extent;
        }
        loops.reverse();
        let mut operands = [(**a).clone(), (**b).clone()];
        let loops = split_groups(&mut operands, loops, reduction);
        let [a, b] = operands;

        let (mut batch, mut rows, mut columns) = (vec![], vec![], vec![]);
        for l in loops {
            if l.l.extent == 1 {
                continue;
            }
            match (uses(&a, l.l.var), uses(&b, l.l.var)) {
                (true, true) => batch.push(l),
                (true, false) => rows.push(l),
                (false, true) => columns.push(l),
                (false, false) => return None,
            }
        }
        let depth: usize = reduction.iter().map(|l| l.extent).product();
        keep_uniform(&mut batch, &mut rows, depth);
        keep_uniform(&mut batch, &mut columns, depth);
        // matrixmultiply is quickest where the result's columns are contiguous.
        let (a, b, rows, columns) =
            if rows.last()?.step < columns.last()?.step { (b, a, columns, rows) } else { (a, b, rows, columns) };
        let size = [count(&rows), count(&columns), depth];
        if size.iter().any(|&s| s < MIN_SIDE) || size.iter().product::<usize>() < MIN_MACS {
            return None;
        }
        let steps = [rows.last()?.step, columns.last()?.step];
        let fixed: Vec<Loop> = batch.iter().map(|l| l.l).collect();
        let plain = |l: &[ResultLoop]| l.iter().map(|l| l.l).collect::<Vec<_>>();
        let (rows, columns) = (plain(&rows), plain(&columns));
        let mut best: Option<(f64, Operand, Operand)> = None;
        for order in depth_orders(f, [&a, &b], reduction) {
            let (cost_a, a) = Operand::new(f, &a, &fixed, &rows, &order)?;
            let (cost_b, b) = Operand::new(f, &b, &fixed, &columns, &order)?;
            if best.as_ref().is_none_or(|(cost, ..)| cost_a + cost_b < *cost) {
                best = Some((cost_a + cost_b, a, b));
            }
        }
        let (_, rows, columns) = best?;
        Some(Contraction { batch, size, steps, rows, columns })
    }

    pub(super) fn run(&self, views: &[Option<View<'_>>], out: &mut [u8]) -> Result<(), String> {
        let out: &mut [f32] = bytemuck::cast_slice_mut(out);
        let batches = count(&self.batch);
        let shared = [self.rows.pack_shared(self, views)?, self.columns.pack_shared(self, views)?];
        let target = Target { start: out.as_mut_ptr(), len: out.len() };
        let small = self.size.iter().product::<usize>() < SMALL_PRODUCT;
        if batches > 1 && small {
            (0..batches).into_par_iter().try_for_each(|i| self.product(views, i, &shared, &target, false))
        } else {
            (0..batches).try_for_each(|i| self.product(views, i, &shared, &target, true))
        }
    }

    /// The product of one batch point.
    fn product(
        &self,
        views: &[Option<View<'_>>],
        index: usize,
        shared: &[Vec<f32>; 2],
        target: &Target,
        parallel: bool,
    ) -> Result<(), String> {
        let (mut point, mut rest, mut at) = (vec![0i64; self.batch.len()], index, 0);
        for (p, l) in point.iter_mut().zip(&self.batch).rev() {
            let i = rest % l.l.extent;
            (*p, at, rest) = (i as i64, at + i * l.step, rest / l.l.extent);
        }
        let (mut own_a, mut own_b) = (Vec::new(), Vec::new());
        let [rows, columns, depth] = self.size;
        let a = self.rows.matrix(views, &point, [rows, depth], &shared[0], &mut own_a, parallel)?;
        let b = self.columns.matrix(views, &point, [columns, depth], &shared[1], &mut own_b, parallel)?;
        let last = at + (self.size[0] - 1) * self.steps[0] + (self.size[1] - 1) * self.steps[1];
        if last >= target.len {
            return Err("bug: a product leaves its result".into());
        }
        let tiles = tiles(self.size, if parallel { rayon::current_num_threads() * 3 } else { 1 });
        let run = |t: &ResultTile| self.multiply(&a, &b, t, at, target);
        if tiles.len() > 1 {
            tiles.par_iter().for_each(run)
        } else {
            tiles.iter().for_each(run)
        }
        Ok(())
    }

    fn multiply(&self, a: &Matrix<'_>, b: &Matrix<'_>, t: &ResultTile, at: usize, target: &Target) {
        let [row_step, column_step] = self.steps;
        let start = at + t.row * row_step + t.column * column_step;
        // SAFETY: `Matrix::new` checked that all elements of both operands are in their slices, `product` that the
        // largest result index is in the result, and tiles of one product and products of one batch share no element.
        unsafe {
            matrixmultiply::sgemm(
                t.rows,
                self.size[2],
                t.columns,
                1.0,
                a.start().offset(t.row as isize * a.row_step),
                a.row_step,
                a.depth_step,
                b.start().offset(t.column as isize * b.row_step),
                b.depth_step,
                b.row_step,
                0.0,
                target.start.add(start),
                row_step as isize,
                column_step as isize,
            );
        }
    }
}

/// The result's memory, written by disjoint tiles.
struct Target {
    start: *mut f32,
    len: usize,
}
// SAFETY: the pointer is only used for disjoint tiles while the slice it came from is borrowed by `run`.
unsafe impl Sync for Target {}

/// An operand's values: element `(row, depth)` is `data[base + row*row_step + depth*depth_step]`.
struct Matrix<'a> {
    data: &'a [f32],
    base: usize,
    row_step: isize,
    depth_step: isize,
}
impl<'a> Matrix<'a> {
    fn new(data: &'a [f32], base: i64, steps: [i64; 2], rows: usize, depth: usize) -> Result<Matrix<'a>, String> {
        let (mut low, mut high) = (base, base);
        for (step, n) in steps.iter().zip([rows, depth]) {
            let reach = step.checked_mul(n as i64 - 1).ok_or("an index overflows")?;
            if reach < 0 { low += reach } else { high += reach }
        }
        if low < 0 || high >= data.len() as i64 {
            return Err("an operand of a contraction is read out of bounds".into());
        }
        Ok(Matrix { data, base: base as usize, row_step: steps[0] as isize, depth_step: steps[1] as isize })
    }
    fn start(&self) -> *const f32 {
        self.data[self.base..].as_ptr()
    }
}

impl Operand {
    /// The operand with the estimated cost of packing it.
    fn new(f: &TensorFunction, e: &Expr, batch: &[Loop], rows: &[Loop], depth: &[Loop]) -> Option<(f64, Operand)> {
        if let Some(direct) = Operand::direct(f, e, batch, rows, depth) {
            return Some((0.0, direct));
        }
        let all = |x: &[Loop], y: &[Loop]| x.iter().chain(y).copied().collect::<Vec<_>>();
        let depth_first = Nest::new(f, e, batch, &all(depth, rows))?;
        let rows_first = Nest::new(f, e, batch, &all(rows, depth))?;
        let (c, r) = (depth_first.cost(), rows_first.cost());
        let (nest, depth_first) = if c <= r { (depth_first, true) } else { (rows_first, false) };
        let per_batch = nest.program.forms.iter().any(|f| (0..batch.len()).any(|l| f.uses(l)));
        Some((c.min(r) * nest.len() as f64, Operand::Packed { nest, depth_first, per_batch }))
    }

    fn direct(f: &TensorFunction, e: &Expr, batch: &[Loop], rows: &[Loop], depth: &[Loop]) -> Option<Operand> {
        let loops: Vec<Loop> = batch.iter().chain(rows).chain(depth).copied().collect();
        let program = Program::compile(f, e, &loops)?;
        let (buffer, form) = program.plain_load()?;
        let Expr::Load(b, _) = e else { return None };
        let walked = batch.len()..loops.len();
        if f.buffers[*b].dtype != DType::F32 || walked.clone().any(|l| form.atoms_use(l)) {
            return None;
        }
        let (row_coefs, depth_coefs) = form.coefs[walked].split_at(rows.len());
        let row_step = uniform_step(row_coefs, rows)?;
        let depth_step = uniform_step(depth_coefs, depth)?;
        let mut base = form.clone();
        base.coefs.truncate(batch.len());
        Some(Operand::Direct { buffer, base, row_step, depth_step })
    }

    /// The packed form, where it is the same for the whole batch.
    fn pack_shared(&self, c: &Contraction, views: &[Option<View<'_>>]) -> Result<Vec<f32>, String> {
        let mut out = Vec::new();
        if let Operand::Packed { nest, per_batch: false, .. } = self {
            pack(nest, views, &vec![0; c.batch.len()], &mut out, true)?;
        }
        Ok(out)
    }

    fn matrix<'a>(
        &self,
        views: &'a [Option<View<'_>>],
        point: &[i64],
        [rows, depth]: [usize; 2],
        shared: &'a [f32],
        own: &'a mut Vec<f32>,
        parallel: bool,
    ) -> Result<Matrix<'a>, String> {
        match self {
            Operand::Direct { buffer, base, row_step, depth_step } => {
                let Some(View::F32(data)) = &views[*buffer] else {
                    return Err("an operand of a contraction is read before it is written".into());
                };
                Matrix::new(data, base.at(point, views), [*row_step, *depth_step], rows, depth)
            }
            Operand::Packed { nest, depth_first, per_batch } => {
                let data: &[f32] = if *per_batch {
                    pack(nest, views, point, own, parallel)?;
                    own
                } else {
                    shared
                };
                let steps = if *depth_first { [1, rows as i64] } else { [depth as i64, 1] };
                Matrix::new(data, 0, steps, rows, depth)
            }
        }
    }
}

fn pack(
    nest: &Nest,
    views: &[Option<View<'_>>],
    point: &[i64],
    out: &mut Vec<f32>,
    parallel: bool,
) -> Result<(), String> {
    out.resize(nest.len(), 0.0);
    nest.fill(views, point, DType::F32, bytemuck::cast_slice_mut(out), parallel)
}

/// The one step with which loops are walked in row-major order.
fn uniform_step(coefs: &[i64], loops: &[Loop]) -> Option<i64> {
    let step = *coefs.last()?;
    let mut want = step;
    for (c, l) in coefs.iter().zip(loops).rev() {
        if *c != want {
            return None;
        }
        want = want.checked_mul(l.extent as i64)?;
    }
    Some(step)
}

/// Moves loops to the batch that do not have one common step through the result with the last loop, and loops that
/// would make a packed operand too large.
fn keep_uniform(batch: &mut Vec<ResultLoop>, loops: &mut Vec<ResultLoop>, depth: usize) {
    let Some(last) = loops.last() else { return };
    let mut keep = loops.len() - 1;
    let mut size = last.l.extent;
    while keep > 0 {
        let (outer, inner) = (&loops[keep - 1], &loops[keep]);
        if outer.step != inner.step * inner.l.extent || size * outer.l.extent * depth > MAX_PACKED {
            break;
        }
        size *= outer.l.extent;
        keep -= 1;
    }
    batch.extend(loops.drain(..keep));
}

/// Orders of the reduction loops that are worth a try: as given, and by falling step in either operand.
fn depth_orders(f: &TensorFunction, operands: [&Expr; 2], reduction: &[Loop]) -> Vec<Vec<Loop>> {
    let mut out = vec![reduction.to_vec()];
    for e in operands {
        let Expr::Load(b, ix) = e else { continue };
        let bounds = loop_bounds(reduction);
        let mut order: Vec<(i64, Loop)> = Vec::new();
        for l in reduction {
            // The step is the difference of two neighbours; other loops cancel out of an affine index.
            let at = |i: i64| {
                let ix: Vec<Int> = ix.iter().map(|e| e.substitute(l.var, &Int::new(i))).collect();
                super::form::flat_index(f, *b, &ix, &bounds)
            };
            let step = simplify(&(at(1) - at(0)), &bounds).as_const().unwrap_or(0);
            order.push((step, *l));
        }
        order.sort_by_key(|(step, _)| -step.abs());
        let order: Vec<Loop> = order.into_iter().map(|o| o.1).collect();
        if !out.iter().any(|o| o.iter().map(|l| l.var).eq(order.iter().map(|l| l.var))) {
            out.push(order);
        }
    }
    out
}

fn uses(e: &Expr, var: Name) -> bool {
    let mut found = false;
    e.visit_ints(&mut |i| found |= i.uses(var));
    found
}

/// Splits a loop `v` that one operand uses only as `v / c` into `v = group*c + member`.
fn split_groups(operands: &mut [Expr; 2], loops: Vec<ResultLoop>, reduction: &[Loop]) -> Vec<ResultLoop> {
    let all: Vec<Loop> = loops.iter().map(|l| l.l).chain(reduction.iter().copied()).collect();
    let bounds = loop_bounds(&all);
    for e in operands.iter_mut() {
        *e = e.map_ints(&mut |i| simplify(i, &bounds));
    }
    let mut out = Vec::with_capacity(loops.len());
    for l in loops {
        let both = operands.iter().all(|e| uses(e, l.l.var));
        let size = operands.iter().find_map(|e| group_size(e, l.l.var)).filter(|_| both);
        let Some(c) = size.filter(|c| l.l.extent % c == 0) else {
            out.push(l);
            continue;
        };
        let group = Loop { var: Name::new(&format!("{}_group", l.l.var)), extent: l.l.extent / c };
        let member = Loop { var: Name::new(&format!("{}_member", l.l.var)), extent: c };
        let whole = Int::var(group.var) * c + Int::var(member.var);
        let mut known = bounds.clone();
        known.insert(group.var, 0, group.extent as i64 - 1);
        known.insert(member.var, 0, member.extent as i64 - 1);
        for e in operands.iter_mut() {
            *e = e.map_ints(&mut |i| simplify(&i.substitute(l.l.var, &whole), &known));
        }
        out.push(ResultLoop { l: group, step: l.step * c });
        out.push(ResultLoop { l: member, step: l.step });
    }
    out
}

/// `c`, when every use of `var` is `var / c`.
fn group_size(e: &Expr, var: Name) -> Option<usize> {
    fn go(e: &Int, var: Name, size: &mut Option<i64>) -> bool {
        match e.node() {
            IntNode::Var(v) => *v != var,
            IntNode::Const(_) => true,
            IntNode::Div(a, b) if a.as_var() == Some(var) => match (b.as_const(), *size) {
                (Some(c), None) => {
                    *size = Some(c);
                    true
                }
                (Some(c), Some(s)) => c == s,
                _ => false,
            },
            IntNode::Load(_, ix) => ix.iter().all(|i| go(i, var, size)),
            IntNode::Add(a, b)
            | IntNode::Sub(a, b)
            | IntNode::Mul(a, b)
            | IntNode::Div(a, b)
            | IntNode::Mod(a, b)
            | IntNode::Min(a, b)
            | IntNode::Max(a, b) => go(a, var, size) && go(b, var, size),
        }
    }
    let (mut size, mut only) = (None, true);
    e.visit_ints(&mut |i| only &= go(i, var, &mut size));
    size.filter(|c| only && *c > 1).map(|c| c as usize)
}

struct ResultTile {
    row: usize,
    rows: usize,
    column: usize,
    columns: usize,
}

/// Cuts a product into about `want` tiles, the longer side first; tiles keep at least 32 rows and columns.
fn tiles([rows, columns, depth]: [usize; 3], want: usize) -> Vec<ResultTile> {
    let (mut r, mut c) = (1, 1);
    while r * c < want && rows * columns * depth / (r * c) > 1 << 19 {
        if rows / r >= columns / c && rows / r >= 64 {
            r *= 2;
        } else if columns / c >= 64 {
            c *= 2;
        } else {
            break;
        }
    }
    // Multiples of 16 match the kernel's panels.
    let (height, width) = (rows.div_ceil(r).next_multiple_of(16), columns.div_ceil(c).next_multiple_of(16));
    let mut out = Vec::new();
    for row in (0..rows).step_by(height) {
        for column in (0..columns).step_by(width) {
            out.push(ResultTile { row, rows: height.min(rows - row), column, columns: width.min(columns - column) });
        }
    }
    out
}
