//! Thread axes: which loops share an index, and the sizes of workgroup and grid.
//!
//! Loops bound to one axis share one variable. A workgroup axis beyond the device's limit is folded into another one.
//! Threads beyond the end of a shorter loop skip only its leaves.

use crate::error::EmitError;
use tensor_ir::int::{self, Bounds, Int};
use tensor_ir::name::Name;
use tensor_ir::plan::OpenGrid;
use tensor_ir::profile::DeviceProfile;
use tensor_ir::tir::{Cond, For, LoopKind, Stmt};

/// A group or local axis: the variable of all loops bound to it, and its size.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Axis {
    pub var: Name,
    pub extent: i64,
}

/// The axes of a kernel.
#[derive(Clone, Debug, Default)]
pub(crate) struct Axes {
    pub group: [Option<Axis>; 3],
    /// Workgroups along each axis, if their number is known only at run time; [`Axis::extent`] is then the largest
    /// number.
    pub open: [Option<Int>; 3],
    pub local: [Option<Axis>; 3],
    /// Subgroups along x and y.
    pub subgroup: [Option<Axis>; 2],
    /// Loops over subgroups that stand in no other such loop.
    pub task_loops: usize,
}

/// Loops over subgroups below `s` that stand in no other such loop.
fn task_loops(s: &Stmt) -> usize {
    match s {
        Stmt::Seq(list) => list.iter().map(task_loops).sum(),
        Stmt::Kernel(_, s) => task_loops(s),
        Stmt::For(l) if matches!(l.kind, LoopKind::Subgroup(_)) => 1,
        Stmt::For(l) => task_loops(&l.body),
        Stmt::Block(_) | Stmt::Barrier => 0,
    }
}

/// How group indices come from the hardware's workgroup id.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Grid {
    /// One axis each.
    Direct([u32; 3]),
    /// The dispatch is folded: the linear workgroup index is split along the axes; `exact` when none is beyond the end.
    Folded { dispatch: [u32; 3], total: u64, exact: bool },
    /// The number is known only at run time.
    Open(OpenGrid),
}

impl Grid {
    /// Workgroups along x that are dispatched, at most.
    pub fn most_along_x(&self) -> u32 {
        match self {
            Grid::Direct(dispatch) | Grid::Folded { dispatch, .. } => dispatch[0],
            Grid::Open(g) => g.most,
        }
    }
}

impl Axes {
    /// Collects the bound loops of a kernel.
    ///
    /// # Errors
    /// When the extent of one is no positive constant; of a loop over workgroups it may be an expression of the
    /// symbols, whose ranges are in `symbols`.
    pub fn of(kernel: Name, body: &Stmt, symbols: &Bounds) -> Result<Axes, EmitError> {
        let mut axes = Axes { task_loops: task_loops(body), ..Axes::default() };
        let mut bad = None;
        body.visit(&mut |s| {
            let Stmt::For(l) = s else { return };
            if let (LoopKind::Group(a), None) = (l.kind, l.extent.as_const())
                && usize::from(a) < 3
            {
                match int::range(&l.extent, symbols) {
                    Some((_, most)) if most > 0 => axes.open_group(usize::from(a), l, most),
                    _ => bad = Some(l.var),
                }
                return;
            }
            if let (LoopKind::Group(a), Some(n)) = (l.kind, l.extent.as_const())
                && let Some(open) = axes.open.get_mut(usize::from(a)).filter(|o| o.is_some())
            {
                *open = open.take().map(|e| e.max(n));
            }
            let slot = match l.kind {
                LoopKind::Group(a) => axes.group.get_mut(a as usize),
                LoopKind::Local(a) => axes.local.get_mut(a as usize),
                LoopKind::Subgroup(a) => axes.subgroup.get_mut(a as usize),
                _ => return,
            };
            match (slot, l.extent.as_const()) {
                (Some(slot), Some(n)) if n > 0 => match slot {
                    Some(axis) => axis.extent = axis.extent.max(n),
                    None => *slot = Some(Axis { var: l.var, extent: n }),
                },
                _ => bad = Some(l.var),
            }
        });
        match bad {
            Some(v) => Err(EmitError::unsupported(format!(
                "kernel `{kernel}`: loop `{v}` is bound to a thread axis, so its extent must be a positive constant"
            ))),
            None => Ok(axes),
        }
    }
    /// Adds a loop over workgroups of which there are `most` at most.
    fn open_group(&mut self, axis: usize, l: &For, most: i64) {
        let known = self.group[axis].map(|a| Int::from(a.extent));
        let before = self.open[axis].take().or(known);
        self.open[axis] = Some(match before {
            Some(e) if e != l.extent => e.max(l.extent.clone()),
            _ => l.extent.clone(),
        });
        match &mut self.group[axis] {
            Some(known) => known.extent = known.extent.max(most),
            none => *none = Some(Axis { var: l.var, extent: most }),
        }
    }
    /// That the workgroups of each axis are no more than the run's.
    pub fn open_ends(&self) -> Vec<Cond> {
        let end = |(axis, open): (&Option<Axis>, &Option<Int>)| Some(open_end(&Int::var((*axis)?.var), open.as_ref()?));
        self.group.iter().zip(&self.open).filter_map(end).flatten().collect()
    }
    /// True when a bound loop has as many iterations as its axis.
    pub fn covers(&self, kind: LoopKind, extent: &Int) -> bool {
        match kind {
            LoopKind::Group(a) if self.open[a as usize].is_some() => self.open[a as usize].as_ref() == Some(extent),
            _ => self.get(kind).is_some_and(|axis| extent.is(axis.extent)),
        }
    }
    /// The axis of a bound loop.
    pub fn get(&self, kind: LoopKind) -> Option<Axis> {
        match kind {
            LoopKind::Group(a) => self.group[a as usize],
            LoopKind::Local(a) => self.local[a as usize],
            LoopKind::Subgroup(a) => self.subgroup[a as usize],
            _ => None,
        }
    }
    /// Every axis.
    pub fn all(&self) -> impl Iterator<Item = &Axis> {
        self.group.iter().chain(&self.local).chain(&self.subgroup).flatten()
    }
    /// Number of tasks for the subgroups of a workgroup; 0 without loops over subgroups.
    pub fn subgroup_tasks(&self) -> u32 {
        let mut extents =
            self.subgroup.iter().flatten().map(|a| u32::try_from(a.extent).unwrap_or(u32::MAX)).peekable();
        if extents.peek().is_none() { 0 } else { extents.fold(1, u32::saturating_mul) }
    }
    /// True if threads along several axes are digits of one index, as kernels need that distinguish subgroups.
    pub fn is_flat(&self) -> bool {
        self.subgroup_tasks() > 0
    }
    /// The size of the workgroup that is dispatched.
    pub fn workgroup_size(&self) -> [u32; 3] {
        let size = self.workgroup();
        if self.is_flat() { [size.iter().product(), 1, 1] } else { size }
    }
    /// Threads along each axis.
    pub fn workgroup(&self) -> [u32; 3] {
        self.local.map(|a| a.map_or(1, |a| u32::try_from(a.extent).unwrap_or(u32::MAX)))
    }
    /// True for a variable that differs between the threads of a workgroup.
    pub fn is_local(&self, var: Name) -> bool {
        self.local.iter().chain(&self.subgroup).flatten().any(|a| a.var == var)
    }
    /// True when all threads of a workgroup agree on `e`.
    pub fn is_uniform(&self, e: &Int) -> bool {
        !crate::tree::has_load(e) && !e.vars().into_iter().any(|v| self.is_local(v))
    }
    /// Checks the workgroup against the device, and folds the grid.
    ///
    /// # Errors
    /// [`EmitError::Limit`].
    pub fn grid(&self, kernel: Name, profile: &DeviceProfile) -> Result<Grid, EmitError> {
        let size = self.workgroup_size();
        let limit = |what, needed: u64, available: u64| {
            if needed > available { Err(EmitError::Limit { kernel, what, needed, available }) } else { Ok(()) }
        };
        let threads = size.iter().map(|&s| u64::from(s)).product();
        limit("threads a workgroup", threads, u64::from(profile.max_invocations))?;
        for (axis, s) in size.iter().enumerate() {
            let what = ["threads along x", "threads along y", "threads along z"][axis];
            limit(what, u64::from(*s), u64::from(profile.max_workgroup_size[axis]))?;
        }
        if self.open.iter().any(Option::is_some) {
            return Ok(Grid::Open(self.open_grid(profile)));
        }
        fold_grid(
            kernel,
            self.group.map(|a| a.map_or(1, |a| a.extent.unsigned_abs())),
            u64::from(profile.max_workgroups),
        )
    }
}

impl Axes {
    /// The grid as expressions; folded if an axis may exceed the device's limit.
    fn open_grid(&self, profile: &DeviceProfile) -> OpenGrid {
        let extent =
            |a: usize| self.open[a].clone().unwrap_or_else(|| Int::from(self.group[a].map_or(1, |axis| axis.extent)));
        let long = |a: &Axis| a.extent > i64::from(profile.max_workgroups);
        let most = profile.max_workgroups;
        let row = self.group.iter().flatten().any(long).then_some(most);
        OpenGrid { extents: [0, 1, 2].map(extent), row, most }
    }
}

/// That `var` is below an extent that is not constant.
pub(crate) fn open_end(var: &Int, extent: &Int) -> Vec<Cond> {
    match extent.as_const() {
        Some(_) => vec![],
        None => vec![Cond::lt(var.clone(), extent.clone())],
    }
}

/// Folds `extents` so that no axis is longer than `max`.
fn fold_grid(kernel: Name, extents: [u64; 3], max: u64) -> Result<Grid, EmitError> {
    if extents.iter().all(|&e| e <= max) {
        return Ok(Grid::Direct(extents.map(|e| e as u32)));
    }
    let total = extents.iter().try_fold(1u64, |a, &e| a.checked_mul(e)).filter(|t| *t <= i32::MAX as u64);
    let available = max.saturating_mul(max).saturating_mul(max);
    let Some(total) = total.filter(|t| *t <= available) else {
        return Err(EmitError::Limit { kernel, what: "workgroups", needed: u64::MAX, available });
    };
    // Prefer an exact split with a few more rows over a remainder.
    let split = |n: u64| -> (u64, u64) {
        let rows = n.div_ceil(max);
        (rows..rows + 64).find(|r| *r <= max && n.is_multiple_of(*r)).map_or((n.div_ceil(rows), rows), |r| (n / r, r))
    };
    let (x, rows) = split(total);
    let (y, z) = if rows <= max { (rows, 1) } else { split(rows) };
    Ok(Grid::Folded { dispatch: [x, y, z].map(|e| e as u32), total, exact: x * y * z == total })
}

impl Grid {
    /// Workgroups to dispatch, or their expressions if they are known only at run time.
    pub fn dispatch(&self) -> ([u32; 3], Option<OpenGrid>) {
        match self {
            Grid::Direct(d) | Grid::Folded { dispatch: d, .. } => (*d, None),
            Grid::Open(open) => ([1; 3], Some(open.clone())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folds_within_the_limit_and_covers_everything() {
        for extents in [[5, 1, 1], [100, 1, 1], [97, 3, 1], [1000, 1, 1], [7, 11, 13]] {
            let grid = fold_grid("k".into(), extents, 11).expect("folds");
            let (d, _) = grid.dispatch();
            assert!(d.iter().all(|&d| (1..=11).contains(&d)), "{extents:?} -> {d:?}");
            let cover: u64 = d.iter().map(|&d| u64::from(d)).product();
            let total: u64 = extents.iter().product();
            assert!(cover >= total, "{extents:?} -> {d:?}");
            if let Grid::Folded { exact, .. } = grid {
                assert_eq!(exact, cover == total);
            }
        }
        assert!(fold_grid("k".into(), [2000, 1, 1], 11).is_err());
    }
}
