//! Reduce stages with vectors: lanes go along the results or along the reduction, whichever gives contiguous loads.
//!
//! Float sums and products accumulate in f64, whatever their dtype; integers exactly, in their own width.

use super::super::scalar::{Num, binary, identity};
use super::form::Loop;
use super::frame::{Frame, Nest};
use super::lanes::{LANES, Lanes, write_elements};
use super::nest::PARALLEL_WORK;
use super::program::{Class, class};
use super::view::View;
use crate::dtype::DType;
use crate::tir::{BinaryOp, Combiner, Expr, Real, TensorFunction};
use rayon::prelude::*;

/// A reduce stage over `spatial` results, each over all `reduction` iterations.
pub(super) struct Reduction {
    nest: Nest,
    /// Extents of the loops that are not the nest's free ones.
    outer: Vec<usize>,
    /// Lanes run along the results.
    lanes_are_results: bool,
    combiner: Combiner,
    dtype: DType,
    results: usize,
}

impl Reduction {
    pub(super) fn new(
        f: &TensorFunction,
        e: &Expr,
        spatial: &[Loop],
        reduction: &[Loop],
        combiner: Combiner,
        dtype: DType,
    ) -> Option<Reduction> {
        let across = Nest::new(f, e, reduction, spatial)?;
        let along = Nest::new(f, e, spatial, reduction)?;
        let lanes_are_results = across.cost() <= along.cost() + 1.0;
        let extents = |l: &[Loop]| l.iter().map(|l| l.extent).collect::<Vec<_>>();
        let results = extents(spatial).iter().product();
        let (nest, outer) = if lanes_are_results { (across, extents(reduction)) } else { (along, extents(spatial)) };
        Some(Reduction { nest, outer, lanes_are_results, combiner, dtype, results })
    }

    /// Writes all results to `out`.
    pub(super) fn run(&self, views: &[Option<View<'_>>], out: &mut [u8]) -> Result<(), String> {
        let size = self.dtype.size();
        let work = self.nest.len() * self.outer.iter().product::<usize>();
        let parts = rayon::current_num_threads() * 4;
        let task = self.results.div_ceil(parts).max(8).min(if self.lanes_are_results { LANES } else { usize::MAX });
        // Chunks of 8 elements keep every element type aligned.
        let task = task.next_multiple_of(8);
        let go = |(i, part): (usize, &mut [u8])| {
            let range = i * task..i * task + part.len() / size;
            if self.lanes_are_results { self.across(views, range, part) } else { self.along(views, range, part) }
        };
        if work > PARALLEL_WORK {
            out.par_chunks_mut(task * size).enumerate().try_for_each(go)
        } else {
            out.chunks_mut(task * size).enumerate().try_for_each(go)
        }
    }

    /// Lanes are results: each reduction iteration is combined into a register of accumulators.
    fn across(&self, views: &[Option<View<'_>>], range: std::ops::Range<usize>, out: &mut [u8]) -> Result<(), String> {
        let n = range.len();
        let mut frame = Frame::new(&self.nest, views);
        frame.set_block(range.start, n);
        let mut acc = self.accumulator();
        for step in 0..self.outer.iter().product() {
            frame.set_fixed(&unflatten(step, &self.outer));
            self.combine(&mut acc, frame.run()?, n);
        }
        write_elements(out, self.dtype, &acc, n);
        Ok(())
    }

    /// Lanes are reduction iterations: each block is folded into the one accumulator of a result.
    fn along(&self, views: &[Option<View<'_>>], range: std::ops::Range<usize>, out: &mut [u8]) -> Result<(), String> {
        let (size, total) = (self.dtype.size(), self.nest.len());
        let mut frame = Frame::new(&self.nest, views);
        let mut lanes = self.accumulator();
        for (i, result) in range.enumerate() {
            let point = unflatten(result, &self.outer);
            let mut acc = identity(self.combiner, self.wide());
            let mut at = 0;
            while at < total {
                let n = LANES.min(total - at);
                if at > 0 || i == 0 || n < total {
                    frame.set_block(at, n);
                }
                frame.set_fixed(&point);
                acc = self.fold(acc, frame.run()?, n);
                at += n;
            }
            match &mut lanes {
                Lanes::F32(v) => v[0] = acc.float() as f32,
                Lanes::F64(v) => v[0] = acc.float(),
                Lanes::I64(v) => v[0] = acc.int(),
                Lanes::Bool(v) => v[0] = acc.truth() as u8,
            }
            write_elements(&mut out[i * size..(i + 1) * size], self.dtype, &lanes, 1);
        }
        Ok(())
    }

    /// The dtype of accumulation.
    fn wide(&self) -> DType {
        match self.combiner {
            Combiner::Sum | Combiner::Prod if self.dtype.is_float() => DType::F64,
            _ => self.dtype,
        }
    }

    fn accumulator(&self) -> Lanes {
        Lanes::new(class(self.wide()), Some(identity(self.combiner, self.wide())))
    }

    fn combine(&self, acc: &mut Lanes, x: &Lanes, n: usize) {
        let op = self.combiner.operator();
        match (acc, x) {
            (Lanes::F64(a), Lanes::F32(x)) if op == BinaryOp::Add => {
                a[..n].iter_mut().zip(&x[..n]).for_each(|(a, x)| *a += *x as f64);
            }
            (Lanes::F64(a), Lanes::F32(x)) => {
                a[..n].iter_mut().zip(&x[..n]).for_each(|(a, x)| *a = f64::binary(op, *a, *x as f64));
            }
            (Lanes::F64(a), Lanes::F64(x)) => {
                a[..n].iter_mut().zip(&x[..n]).for_each(|(a, x)| *a = f64::binary(op, *a, *x));
            }
            (Lanes::F32(a), Lanes::F32(x)) if op == BinaryOp::Max => {
                a[..n].iter_mut().zip(&x[..n]).for_each(|(a, x)| *a = f32::binary(BinaryOp::Max, *a, *x));
            }
            (Lanes::F32(a), Lanes::F32(x)) => {
                a[..n].iter_mut().zip(&x[..n]).for_each(|(a, x)| *a = f32::binary(op, *a, *x));
            }
            (Lanes::I64(a), Lanes::I64(x)) => {
                a[..n].iter_mut().zip(&x[..n]).for_each(|(a, x)| *a = op.of_ints(self.dtype, *a, *x));
            }
            (Lanes::Bool(a), Lanes::Bool(x)) => {
                a[..n].iter_mut().zip(&x[..n]).for_each(|(a, x)| {
                    *a = op.of_ints(DType::Bool, *a as i64, *x as i64) as u8;
                });
            }
            _ => {}
        }
    }

    fn fold(&self, acc: Num, x: &Lanes, n: usize) -> Num {
        let op = self.combiner.operator();
        match x {
            Lanes::F32(x) if op == BinaryOp::Add => Num::F(acc.float() + sum(&x[..n])),
            Lanes::F32(x) => x[..n].iter().fold(acc, |a, x| binary(op, self.wide(), a, Num::F(*x as f64))),
            Lanes::F64(x) => x[..n].iter().fold(acc, |a, x| binary(op, self.wide(), a, Num::F(*x))),
            Lanes::I64(x) => Num::I(x[..n].iter().fold(acc.int(), |a, x| op.of_ints(self.dtype, a, *x))),
            Lanes::Bool(x) => Num::I(x[..n].iter().fold(acc.int(), |a, x| op.of_ints(DType::Bool, a, *x as i64))),
        }
    }
}

/// The classes of the value and the accumulator fit.
pub(super) fn fits(value: DType, dtype: DType) -> bool {
    let (v, d) = (class(value), class(dtype));
    v == d || (v == Class::F32 && d == Class::F64)
}

fn sum(x: &[f32]) -> f64 {
    let mut parts = [0f64; 8];
    let chunks = x.chunks_exact(8);
    let tail: f64 = chunks.remainder().iter().map(|x| *x as f64).sum();
    for c in chunks {
        parts.iter_mut().zip(c).for_each(|(p, x)| *p += *x as f64);
    }
    parts.iter().sum::<f64>() + tail
}

fn unflatten(mut flat: usize, extents: &[usize]) -> smallvec::SmallVec<[i64; 8]> {
    let mut out: smallvec::SmallVec<[i64; 8]> = smallvec::smallvec![0; extents.len()];
    for (o, e) in out.iter_mut().zip(extents).rev() {
        *o = (flat % e) as i64;
        flat /= e;
    }
    out
}
