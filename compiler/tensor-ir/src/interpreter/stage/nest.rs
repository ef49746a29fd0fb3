//! Builds nests, and fills memory with the values of a nest for all its free iterations.

use super::form::{Form, Loop};
use super::frame::{Frame, Nest};
use super::lanes::{LANES, write_elements};
use super::program::Program;
use super::view::View;
use crate::dtype::DType;
use crate::tir::{Expr, TensorFunction};
use rayon::prelude::*;

/// Elements below which threads cost more than they give.
pub(super) const PARALLEL_WORK: usize = 1 << 15;

impl Nest {
    /// Compiles `e` over `fixed` loops, then `free` loops. Neighbouring free loops that every index walks as one become
    /// one.
    pub(super) fn new(f: &TensorFunction, e: &Expr, fixed: &[Loop], free: &[Loop]) -> Option<Nest> {
        let loops: Vec<Loop> = fixed.iter().chain(free).copied().collect();
        let mut program = Program::compile(f, e, &loops)?;
        let mut extents: Vec<usize> = free.iter().map(|l| l.extent).collect();
        for inner in (1..extents.len()).rev() {
            let (i, j) = (fixed.len() + inner - 1, fixed.len() + inner);
            let n = extents[inner];
            if program.forms.iter().all(|f| walks_as_one(f, i, j, n)) {
                program.forms.iter_mut().for_each(|f| f.drop_loop(i));
                extents[inner - 1] *= n;
                extents.remove(inner);
            }
        }
        if extents.is_empty() {
            extents.push(1);
            program.forms.iter_mut().for_each(Form::add_loop);
        }
        Some(Nest { program, fixed: fixed.len(), free: extents })
    }

    /// Number of free iterations.
    pub(super) fn len(&self) -> usize {
        self.free.iter().product()
    }

    /// Estimated cost of one free iteration when lanes run along the last free loop.
    pub(super) fn cost(&self) -> f64 {
        let lane = self.fixed + self.free.len() - 1;
        let lanes = self.len().clamp(1, LANES) as f64;
        let row = (self.free[self.free.len() - 1] as f64).clamp(1.0, lanes);
        let mut cost = self.program.instrs.len() as f64 * (0.3 + 40.0 / lanes);
        for (_, form) in self.program.loads() {
            let step = match form.coefs[lane] {
                _ if form.atoms_use(lane) => 10.0,
                0 => 0.3,
                1 | -1 => 0.5,
                s if s.abs() < 16 => 2.0,
                _ => 4.0,
            };
            cost += step + 15.0 / row;
        }
        cost
    }

    /// Writes the value of every free iteration to `out`, row-major, as elements of `dtype`.
    pub(super) fn fill(
        &self,
        views: &[Option<View<'_>>],
        fixed: &[i64],
        dtype: DType,
        out: &mut [u8],
        parallel: bool,
    ) -> Result<(), String> {
        let size = dtype.size();
        let task = task_elements(self.len());
        let run = |(i, part): (usize, &mut [u8])| -> Result<(), String> {
            let mut frame = Frame::new(self, views);
            let (mut at, end) = (i * task, i * task + part.len() / size);
            while at < end {
                let n = LANES.min(end - at);
                frame.set_block(at, n);
                frame.set_fixed(fixed);
                let from = (at - i * task) * size;
                write_elements(&mut part[from..from + n * size], dtype, frame.run()?, n);
                at += n;
            }
            Ok(())
        };
        if parallel && self.len() > PARALLEL_WORK {
            out.par_chunks_mut(task * size).enumerate().try_for_each(run)
        } else {
            out.chunks_mut(task * size).enumerate().try_for_each(run)
        }
    }
}

/// Elements of one task: whole blocks, enough tasks for every thread.
fn task_elements(len: usize) -> usize {
    let tasks = rayon::current_num_threads() * 4;
    len.div_ceil(tasks).next_multiple_of(LANES).clamp(LANES, 64 * LANES)
}

fn walks_as_one(f: &Form, outer: usize, inner: usize, extent: usize) -> bool {
    Some(f.coefs[outer]) == f.coefs[inner].checked_mul(extent as i64) && !f.atoms_use(outer) && !f.atoms_use(inner)
}
