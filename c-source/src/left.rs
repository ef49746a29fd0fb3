//! The factor of a row of a tile, `l` in `s0_0 += l * r0`.
//!
//! What does not change with the depth is computed before its loop: a pointer to the row, or to zeros where the row is
//! padding. If it were computed in the loop, Clang would copy the loop for each such condition and spill the sums.

use crate::expr::{buffer_name, element_type, variable};
use crate::products::Products;
use crate::share::Shared;
use crate::statements::Statements;
use tensor_ir::int::{Cond, Int, flatten_index, simplify};
use tensor_ir::tir::intrinsic::strides;
use tensor_ir::tir::{BufferId, Expr, Scalar};

/// The most zeros that a tile has of its own, in elements.
const MOST_ZEROS: i64 = 4096;

/// The factor of one row.
pub(crate) struct Left {
    /// Lines before the loop over the depth.
    pub before: Vec<String>,
    /// The factor at a depth.
    pub value: String,
}

/// Elements of a buffer, along the depth.
struct Row {
    /// They are read where these hold; elsewhere the factor is 0.
    inside: Vec<Cond>,
    buffer: BufferId,
    /// The first one.
    start: Vec<Int>,
    stride: i64,
}

/// The factors of all rows, and lines that they share.
///
/// # Errors
/// What has no C.
pub(crate) fn factors(p: &Statements<'_>, t: &Products<'_>) -> Result<(Vec<String>, Vec<Left>), String> {
    let [(row, rows), _, (_, count)] = t.loops;
    let all: Vec<Expr> = (0..rows).map(|r| t.left.substitute(row, &Int::new(r))).collect();
    let found: Vec<Option<Row>> = (0..rows).zip(&all).map(|(r, e)| along_depth(p, t, r, e)).collect();
    let read = |r: &Row| (count - 1).saturating_mul(r.stride).saturating_add(1);
    let padded = || found.iter().flatten().filter(|r| !r.inside.is_empty());
    let zeros = padded().map(read).filter(|n| *n <= MOST_ZEROS).max().unwrap_or(1);
    let first = all.first();
    let one = |(r, (e, found)): (usize, (&Expr, &Option<Row>))| match found {
        Some(row) if !row.inside.is_empty() || !first.is_some_and(|f| are_beside(p, f, e)) => {
            pointer(p, t, row, r, read(row) <= zeros)
        }
        _ => Ok(Left { before: vec![], value: Shared::whole(&p.values, e)? }),
    };
    let lefts = all.iter().zip(&found).enumerate().map(one).collect::<Result<Vec<_>, String>>()?;
    let shared = padded().next().map(|_| format!("static const float zeros[{zeros}] = {{0}};"));
    Ok((shared.into_iter().collect(), lefts))
}

/// `e`, the factor of row `r`, as elements along the depth.
fn along_depth(p: &Statements<'_>, t: &Products<'_>, r: i64, e: &Expr) -> Option<Row> {
    let (f, (row, _), (depth, _)) = (p.values.f, t.loops[0], t.loops[2]);
    let is_zero = |e: &Expr| matches!(e, Expr::Const(Scalar::Float(x), _) if *x == 0.0 && x.is_sign_positive());
    let (conditions, load): (&[Cond], _) = match e {
        Expr::Select(c, a, b) if is_zero(b) => match &**c {
            Expr::All(list) => (list, &**a),
            _ => return None,
        },
        e => (&[], e),
    };
    let Expr::Load(buffer, indices) = load else { return None };
    // A row that a guard leaves out is not read, and has no address.
    let guards = t.block.guards.iter().map(|g| g.map(&mut |i| i.substitute(row, &Int::new(r))));
    let inside: Vec<Cond> = guards.chain(conditions.iter().cloned()).collect();
    let fixed = |i: &Int| !i.uses(depth) && !i.reads_buffer();
    let fits = element_type(&f.buffers[*buffer]) == "float"
        && inside.iter().all(|c| fixed(&c.lhs) && fixed(&c.rhs))
        && !indices.iter().any(Int::reads_buffer);
    let stride = *strides(&f.buffers[*buffer], indices, &[depth], &p.values.bounds)?.first()?;
    let start = indices.iter().map(|i| i.substitute(depth, &Int::new(0))).collect();
    (fits && stride >= 0).then_some(Row { inside, buffer: *buffer, start, stride })
}

/// Whether elements of two rows are the same number of elements apart at every depth: one address serves both.
fn are_beside(p: &Statements<'_>, a: &Expr, b: &Expr) -> bool {
    let (Expr::Load(x, x_at), Expr::Load(y, y_at)) = (a, b) else { return false };
    let flat = |ix: &[Int]| flatten_index(ix, &p.values.f.buffers[*x].shape);
    x == y && simplify(&(flat(y_at) - &flat(x_at)), &p.values.bounds).as_const().is_some()
}

/// The factor by a pointer. `has_zeros`: there are as many zeros as the row has elements; else one is read each time.
fn pointer(p: &Statements<'_>, t: &Products<'_>, row: &Row, r: usize, has_zeros: bool) -> Result<Left, String> {
    let (v, stride) = (variable(t.loops[2].0), row.stride);
    let place = p.values.place(row.buffer, &row.start)?;
    let at = format!("&{}[{place}]", buffer_name(row.buffer, &p.values.f.buffers[row.buffer]));
    let at_depth = match stride {
        0 => format!("a{r}[0]"),
        1 => format!("a{r}[{v}]"),
        stride => format!("a{r}[{v} * {stride}]"),
    };
    let pointer = |to: &str| format!("const float *const a{r} = {to};");
    if row.inside.is_empty() {
        return Ok(Left { before: vec![pointer(&at)], value: at_depth });
    }
    let inside = p.values.conditions(&row.inside)?;
    let start = pointer(&format!("{inside} ? {at} : zeros"));
    Ok(match has_zeros {
        true => Left { before: vec![start], value: at_depth },
        false => {
            let stride = format!("const int64_t d{r} = a{r} == zeros ? 0 : {stride};");
            Left { before: vec![start, stride], value: format!("a{r}[{v} * d{r}]") }
        }
    })
}
