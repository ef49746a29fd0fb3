//! The common part of `stage-in-registers`, `stage-in-shared` and `stage-in-subgroup`: an operand expression of a block
//! is computed ahead, into a buffer of a nearer scope. A copy nest over new loop variables is put into the body of loop
//! `at`, before the statement of the block, and the expression in the block becomes a load.
//!
//! The buffer has one dimension for each loop variable that the operand uses and that varies while the buffer is alive:
//! loops inside `at`, for shared memory also the thread loops around it, for subgroup memory also the loop of the lane.
//! The operand may be any expression, so padding, im2col, casts and gathers are staged with the load. If the block has
//! a guard, or a distributed dimension is padded, the operand is also computed for elements that the block never uses;
//! its loads are clamped there.

use super::Refusal;
use super::accesses::{buffers_read, clamp_loads};
use super::loops::{
    IndexMap, LoopHead, Substitution, check_new_block, check_new_loop, derived_name, find_block, find_block_mut,
    insert_before_users, loops_around_block, nest, position_around, substitute,
};
use crate::dtype::DType;
use crate::int::{self, Bounds, Int};
use crate::name::Name;
use crate::tir::{Block, Buffer, Encoding, Expr, LoopKind, MatrixRole, Scope, Stmt, TensorFunction};

/// The memory of the staged operand.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Target {
    /// Private to each thread.
    Register,
    /// Workgroup memory.
    Shared,
    /// Matrices of the subgroup: the last two dimensions are rows and columns.
    Fragment(MatrixRole),
    /// Distributed over the lanes of loop `lane`, along the dimension of loop `dim`.
    Subgroup {
        /// The loop bound to the lanes.
        lane: Name,
        /// The loop whose dimension is distributed.
        dim: Name,
    },
}

/// The staged operand and its target.
pub(super) struct Staging<'a> {
    /// The block.
    pub block: Name,
    /// Path of the operand in the block's value.
    pub operand: &'a str,
    /// The loop in whose body the copy is made.
    pub at: Name,
    /// Name of the new buffer and of the copy's block.
    pub into: Name,
    /// Where to.
    pub target: Target,
    /// How the elements lie.
    pub arrangement: Arrangement<'a>,
}

/// How the elements of a staged buffer lie.
#[derive(Clone, Copy)]
pub(super) struct Arrangement<'a> {
    /// Loops around the block whose dimensions come first, in this order; the others follow in loop order. Loops that
    /// the operand does not use have no dimension.
    pub order: &'a [Name],
    /// Unused elements after each row.
    pub pad: i64,
    /// Dimensions, from the first on, that tell rows apart; a row is everything after them.
    pub rows: usize,
    /// The operand is of a wider type only because it was cast, and is kept as it was before: bytes in packed words.
    pub narrow: bool,
}

impl Default for Arrangement<'_> {
    fn default() -> Self {
        Arrangement { order: &[], pad: 0, rows: 1, narrow: false }
    }
}

/// A new loop of the copy and the index that it gives the original variable.
struct Dim {
    var: Name,
    loops: Vec<LoopHead>,
    /// Index into the new buffer, in the variables of `loops`.
    store: Int,
    /// Value of the original variable, in the variables of `loops`.
    source: Int,
    /// Extent of the new buffer's dimension.
    extent: Int,
}

/// A buffer's shape with the map from the loops' indices to its own.
struct Placed {
    shape: Vec<Int>,
    place: IndexMap,
}

impl Staging<'_> {
    pub(super) fn apply(&self, f: &mut TensorFunction) -> Result<(), Refusal> {
        check_new_block(f, self.into)?;
        let path = loops_around_block(f, self.block)?;
        let at = position_around(&path, self.at, self.block)?;
        if path[..=at].iter().any(|l| l.kind == LoopKind::Tensor) {
            return Err(Refusal::at(self.at, "the loop is computed as one operation, so nothing can be staged in it"));
        }
        let block = find_block(f, self.block)?.clone();
        let (operand, lazy) = self.find_operand(&block)?;
        let wide = operand.dtype(f);
        let operand = match self.arrangement.narrow {
            true => narrowed(&operand, f)
                .ok_or_else(|| Refusal::at(self.block, "the operand is no f16 and no byte that was cast"))?,
            false => operand,
        };
        if buffers_read(&operand).contains(&block.buffer) {
            return Err(Refusal::at(self.block, "the operand reads the buffer that the block writes"));
        }
        let varying = self.varying_loops(&path, at, &operand)?;
        let dims = varying.iter().map(|l| self.dimension(f, &path, l)).collect::<Result<Vec<Dim>, Refusal>>()?;
        let layout = self.layout(&path, &dims)?;
        let (dtype, scope) = (operand.dtype(f), self.scope(&dims)?);
        let packs = is_byte(dtype) && self.arrangement.narrow && matches!(scope, Scope::Shared | Scope::Register);
        let encoding = if packs { Encoding::ByteQuad } else { Encoding::Native };
        let buffer = f.buffers.push(Buffer { name: self.into, dtype, shape: layout.shape.clone(), scope, encoding });
        let heads: Vec<LoopHead> = dims.iter().flat_map(|d| d.loops.clone()).collect();
        let by: Substitution = dims.iter().map(|d| (d.var, d.source.clone())).collect();
        let mut value = operand.map_ints(&mut |i| substitute(i, &by));
        let related = |g: &Int| g.vars().iter().any(|v| uses(&operand, *v));
        let padded = dims.iter().zip(&varying).any(|(d, l)| d.extent != l.extent);
        if lazy || padded || block.guards.iter().any(|g| related(&g.lhs) || related(&g.rhs)) {
            value = clamp_loads(f, &value, &bounds_with(f, &heads));
        }
        let reads = buffers_read(&value);
        let copy = Block {
            name: self.into,
            guards: vec![],
            buffer,
            indices: (layout.place)(&dims.iter().map(|d| d.store.clone()).collect::<Vec<_>>()),
            value,
            reduce: None,
            stages: block.stages.clone(),
        };
        let load = Expr::Load(buffer, (layout.place)(&dims.iter().map(|d| Int::var(d.var)).collect::<Vec<_>>()));
        let load = load.cast(operand.dtype(f), wide);
        let b = find_block_mut(f, self.block)?;
        b.value = replace_operand(&b.value, &steps(self.operand)?, load).ok_or_else(|| self.no_operand())?;
        insert_before_users(f, self.at, nest(&heads, Stmt::Block(Box::new(copy))), &reads, &[self.block])
    }

    /// The buffer's shape, and the index of the element for the loops' variables.
    fn layout(&self, path: &[LoopHead], dims: &[Dim]) -> Result<Placed, Refusal> {
        let Arrangement { order: first, pad, rows, .. } = self.arrangement;
        let mut order: Vec<usize> = Vec::new();
        for v in first {
            position_around(path, *v, self.block)?;
            order.extend(dims.iter().position(|d| d.var == *v).filter(|d| !order.contains(d)));
        }
        let others: Vec<usize> = (0..dims.len()).filter(|d| !order.contains(d)).collect();
        order.extend(others);
        if pad < 0 || (pad > 0 && (rows == 0 || dims.len() <= rows)) {
            let text = format!("{} dimensions, {rows} of them for rows, cannot have rows padded by {pad}", dims.len());
            return Err(Refusal::at(self.into, text));
        }
        let shape: Vec<Int> = order.iter().map(|&d| dims[d].extent.clone()).collect();
        let permuted = move |ix: &[Int]| -> Vec<Int> { order.iter().map(|&d| ix[d].clone()).collect() };
        if pad == 0 {
            return Ok(Placed { shape, place: Box::new(permuted) });
        }
        let (row, inside) = (shape[..rows].to_vec(), shape[rows..].to_vec());
        Ok(Placed {
            shape: vec![int::product(&row), int::product(&inside) + pad],
            place: Box::new(move |ix| {
                let ix = permuted(ix);
                vec![int::flatten_index(&ix[..rows], &row), int::flatten_index(&ix[rows..], &inside)]
            }),
        })
    }

    fn no_operand(&self) -> Refusal {
        Refusal::at(self.block, format!("the block's value has no operand at `{}`", self.operand))
    }

    /// The operand, and whether it is evaluated only under a condition.
    fn find_operand(&self, block: &Block) -> Result<(Expr, bool), Refusal> {
        let mut e = &block.value;
        let mut lazy = false;
        for step in steps(self.operand)? {
            let parent = through_casts(e, step);
            lazy |= matches!(parent, Expr::Select(..)) && step > 0;
            e = child(parent, step).ok_or_else(|| self.no_operand())?;
        }
        Ok((e.clone(), lazy))
    }

    /// The loops that the new buffer has dimensions for.
    fn varying_loops(&self, path: &[LoopHead], at: usize, operand: &Expr) -> Result<Vec<LoopHead>, Refusal> {
        let mut out = Vec::new();
        for (n, l) in path.iter().enumerate() {
            if !uses(operand, l.var) {
                continue;
            }
            let thread = matches!(l.kind, LoopKind::Local(_) | LoopKind::Subgroup(_));
            if n > at && (matches!(l.kind, LoopKind::Group(_)) || (thread && self.target != Target::Shared)) {
                let text = format!("`{}` inside `{}` is bound and used by the operand", l.var, self.at);
                return Err(Refusal::at(l.var, text));
            }
            if let Target::Subgroup { lane, .. } = self.target
                && l.var == lane
            {
                return Err(Refusal::at(lane, "the operand differs from lane to lane: stage it in registers"));
            }
            if n > at || (thread && self.target == Target::Shared) {
                out.push(l.clone());
            }
        }
        Ok(out)
    }

    fn dimension(&self, f: &TensorFunction, path: &[LoopHead], l: &LoopHead) -> Result<Dim, Refusal> {
        let var = derived_name(self.into, l.var);
        check_new_loop(f, var)?;
        match self.target {
            Target::Subgroup { lane, dim } if dim == l.var => self.distributed(f, path, l, lane),
            _ => Ok(Dim {
                var: l.var,
                loops: vec![LoopHead::serial(var, l.extent.clone())],
                store: Int::var(var),
                source: Int::var(var),
                extent: l.extent.clone(),
            }),
        }
    }

    /// The dimension whose element `g*size + lane` is held by `lane`; padded to a multiple of the lanes.
    fn distributed(&self, f: &TensorFunction, path: &[LoopHead], l: &LoopHead, lane: Name) -> Result<Dim, Refusal> {
        let at = position_around(path, self.at, self.block)?;
        let lanes = &path[position_around(path, lane, self.block)?];
        let kind = lanes.kind;
        let (LoopKind::Local(0), Some(size)) = (kind, lanes.extent.as_const()) else {
            return Err(Refusal::at(lane, "the lane loop must be bound to local_x"));
        };
        // With one lane nothing is shared, and the simplified index does not contain a lane.
        if size < 2 || !size.unsigned_abs().is_power_of_two() {
            let why =
                format!("the lane loop runs {size} times, not a power of two from 2: stage the operand in registers");
            return Err(Refusal::at(lane, why));
        }
        if !path[..=at].iter().any(|p| p.var == lane) {
            return Err(Refusal::at(lane, format!("the lane loop must be around `{}`", self.at)));
        }
        let Some(extent) = l.extent.as_const() else {
            return Err(Refusal::at(l.var, "a distributed dimension needs a constant extent"));
        };
        let group = derived_name(self.into, l.var);
        let own = Name::new(&format!("{group}_lane"));
        check_new_loop(f, own)?;
        let groups = (extent + size - 1) / size;
        let store = Int::var(group) * size + Int::var(own);
        Ok(Dim {
            var: l.var,
            loops: vec![LoopHead::serial(group, Int::new(groups)), LoopHead { var: own, extent: Int::new(size), kind }],
            source: store.clone(),
            store,
            extent: Int::new(groups * size),
        })
    }

    fn scope(&self, dims: &[Dim]) -> Result<Scope, Refusal> {
        Ok(match self.target {
            Target::Register => Scope::Register,
            Target::Shared => Scope::Shared,
            Target::Fragment(role) => Scope::Fragment(role),
            Target::Subgroup { dim, .. } => {
                let d = dims.iter().position(|d| d.var == dim);
                let text = format!("the operand does not vary over `{dim}` inside `{}`", self.at);
                let d = d.ok_or_else(|| Refusal::at(dim, text))?;
                let size = dims[d].loops.last().and_then(|l| l.extent.as_const());
                let size = size.and_then(|s| u32::try_from(s).ok());
                let size = size.ok_or_else(|| Refusal::at(dim, "the lane loop needs a constant extent"))?;
                Scope::Subgroup { lane_dim: d as u32, size }
            }
        })
    }
}

fn is_byte(t: DType) -> bool {
    matches!(t, DType::I8 | DType::U8)
}

/// The f16 value of `e` before a cast to f32, or the byte before a cast to i32.
pub(super) fn narrowed(e: &Expr, f: &TensorFunction) -> Option<Expr> {
    match e {
        Expr::Cast(DType::F32, a) if a.dtype(f) == DType::F16 => Some((**a).clone()),
        Expr::Cast(DType::I32, a) if is_byte(a.dtype(f)) => Some((**a).clone()),
        Expr::Select(c, a, b) => {
            let of = |e: &Expr, other: &Expr| narrowed_to(e, narrowed(other, f).map(|o| o.dtype(f)), f);
            Some(Expr::select((**c).clone(), of(a, b)?, of(b, a)?))
        }
        Expr::Const(crate::tir::Scalar::Float(v), DType::F32) if half::f16::from_f64(*v).to_f64() == *v => {
            Some(Expr::constant(*v, DType::F16))
        }
        e if e.dtype(f) == DType::F16 || is_byte(e.dtype(f)) => Some(e.clone()),
        _ => None,
    }
}

/// True if an operand of a product is f16 when it is multiplied, whatever its type in memory. Staged `narrow`, it is
/// kept as f16.
pub(super) fn is_half(e: &Expr, f: &TensorFunction) -> bool {
    narrowed(e, f).is_some_and(|e| e.dtype(f) == DType::F16)
}

/// [`narrowed`]; an integer constant takes the type of the operand `beside` it.
fn narrowed_to(e: &Expr, beside: Option<DType>, f: &TensorFunction) -> Option<Expr> {
    match (e, beside) {
        (Expr::Const(crate::tir::Scalar::Int(v), DType::I32), Some(t)) => {
            let low = if t == DType::I8 { -128 } else { 0 };
            (is_byte(t) && (low..low + 256).contains(v)).then(|| Expr::int(*v, t))
        }
        _ => narrowed(e, f),
    }
}

/// Ranges of the function's variables and of new loops.
pub(super) fn bounds_with(f: &TensorFunction, loops: &[LoopHead]) -> Bounds {
    let mut bounds = f.bounds();
    for l in loops {
        if let Some((_, high)) = int::range(&l.extent, &bounds) {
            bounds.insert(l.var, 0, (high - 1).max(0));
        }
    }
    bounds
}

fn uses(e: &Expr, var: Name) -> bool {
    let mut found = false;
    e.visit_ints(&mut |i| found |= i.uses(var));
    found
}

/// The child positions of an operand path: `""` is the whole value, `"0"` the left side of a product.
fn steps(path: &str) -> Result<Vec<usize>, Refusal> {
    if path.is_empty() {
        return Ok(vec![]);
    }
    let bad = || Refusal::new(format!("`{path}` is not an operand path like `0` or `1.0`"));
    path.split('.').map(|p| p.parse().map_err(|_| bad())).collect()
}

/// Looks through casts towards child `step`; a cast of a node without children is itself the parent of that node.
fn through_casts(e: &Expr, step: usize) -> &Expr {
    let mut inner = e;
    while let Expr::Cast(_, a) = inner {
        inner = a;
    }
    if child(inner, step).is_some() { inner } else { e }
}

fn child(e: &Expr, step: usize) -> Option<&Expr> {
    match (e, step) {
        (Expr::Unary(_, a) | Expr::Cast(_, a) | Expr::Binary(_, a, _) | Expr::Select(a, _, _), 0) => Some(a),
        (Expr::Binary(_, _, b) | Expr::Select(_, b, _), 1) => Some(b),
        (Expr::Select(_, _, c), 2) => Some(c),
        _ => None,
    }
}

fn replace_operand(e: &Expr, steps: &[usize], by: Expr) -> Option<Expr> {
    let Some((&step, rest)) = steps.split_first() else { return Some(by) };
    if let Expr::Cast(t, a) = e
        && !std::ptr::eq(through_casts(e, step), e)
    {
        return Some(Expr::Cast(*t, Box::new(replace_operand(a, steps, by)?)));
    }
    Some(match (e, step) {
        (Expr::Cast(t, a), 0) => Expr::Cast(*t, Box::new(replace_operand(a, rest, by)?)),
        (Expr::Unary(op, a), 0) => Expr::unary(*op, replace_operand(a, rest, by)?),
        (Expr::Binary(op, a, b), 0) => Expr::binary(*op, replace_operand(a, rest, by)?, (**b).clone()),
        (Expr::Binary(op, a, b), 1) => Expr::binary(*op, (**a).clone(), replace_operand(b, rest, by)?),
        (Expr::Select(c, a, b), 0) => Expr::select(replace_operand(c, rest, by)?, (**a).clone(), (**b).clone()),
        (Expr::Select(c, a, b), 1) => Expr::select((**c).clone(), replace_operand(a, rest, by)?, (**b).clone()),
        (Expr::Select(c, a, b), 2) => Expr::select((**c).clone(), (**a).clone(), replace_operand(b, rest, by)?),
        _ => return None,
    })
}
