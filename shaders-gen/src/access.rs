//! The elements of a buffer that an access reads or writes, in the buffer's physical order.

use crate::error::EmitError;
use crate::lanes::{Lane, per_lane, split_lane};
use crate::tree::has_load;
use tensor_ir::int::{self, Facts, Int, divisor};
use tensor_ir::tir::{Buffer, Scope};

/// The elements of one access.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Form {
    /// One element for all lanes.
    One(Int),
    /// `count` neighbours from `base` on, `base` a multiple of `align` (at most 4).
    Run { base: Int, count: u8, align: i64 },
    /// An element for each lane.
    Each(Vec<Int>),
}

/// An access with its indices resolved.
#[derive(Clone, Debug)]
pub(crate) struct Access {
    pub form: Form,
    /// Index along the distributed dimension of a subgroup buffer, one for each lane (or one for all).
    pub lane_index: Vec<Int>,
    /// Proved in bounds as a whole under the conditions in force.
    pub proved: bool,
}

/// Physical shape of a buffer: a subgroup buffer keeps only its lane's own slots along the distributed dimension.
pub(crate) fn physical_shape(buffer: &Buffer) -> Vec<Int> {
    let mut shape = buffer.shape.clone();
    if let Scope::Subgroup { lane_dim, size } = buffer.scope {
        let d = &mut shape[lane_dim as usize];
        *d = d.ceil_div(i64::from(size));
    }
    shape
}

/// Number of elements of a buffer that is not global.
///
/// # Errors
/// When its shape is not constant.
pub(crate) fn local_numel(buffer: &Buffer) -> Result<u32, EmitError> {
    int::const_dims(&physical_shape(buffer))
        .and_then(|d| u32::try_from(d.iter().product::<usize>()).ok())
        .filter(|n| *n > 0)
        .ok_or_else(|| {
            EmitError::unsupported(format!("buffer `{}` outside global memory needs a constant shape", buffer.name))
        })
}

/// Resolves an access. Indices that are loaded from memory are clamped into their dimension.
pub(crate) fn resolve(buffer: &Buffer, indices: &[Int], lane: Option<Lane>, ranges: &mut Facts) -> Access {
    resolve_as(buffer, indices, lane, (ranges, true))
}

/// The elements of an access, whether or not they are in bounds.
pub(crate) fn resolve_form(buffer: &Buffer, indices: &[Int], lane: Option<Lane>, ranges: &mut Facts) -> Form {
    resolve_as(buffer, indices, lane, (ranges, false)).form
}

fn resolve_as(
    buffer: &Buffer,
    indices: &[Int],
    lane: Option<Lane>,
    (ranges, wants_proof): (&mut Facts, bool),
) -> Access {
    let mut indices = indices.to_vec();
    let mut lane_index = Vec::new();
    let mut proved = true;
    for (k, (index, dim)) in indices.iter_mut().zip(&buffer.shape).enumerate() {
        let loaded = has_load(index);
        let inside = match dim.as_const().map(|d| d - 1) {
            _ if !wants_proof && !loaded => false,
            Some(high) => ranges.prove(index, 0, high),
            None => ranges.prove_below(index, dim),
        };
        if !inside && loaded && !lane.is_some_and(|l| index.uses(l.var)) {
            *index = index.min(dim.clone() - 1).max(0);
        } else {
            proved &= inside;
        }
        if let Scope::Subgroup { lane_dim, size } = buffer.scope
            && lane_dim as usize == k
        {
            let size = i64::from(size);
            lane_index = match lane {
                Some(l) if index.uses(l.var) => per_lane(index, l),
                _ => vec![index.clone()],
            };
            *index = ranges.simplify(&index.div(size));
        }
    }
    let shape = physical_shape(buffer);
    let flat = ranges.simplify(&int::flatten_index(&indices, &shape));
    let form = form_of(&flat, lane, lane_index.len() > 1, ranges);
    if wants_proof && !proved && lane_index.is_empty() {
        proved = prove_flat(&flat, &int::product(&shape), ranges);
    }
    Access { form, lane_index, proved }
}

fn form_of(flat: &Int, lane: Option<Lane>, scattered: bool, ranges: &mut Facts) -> Form {
    let Some(lane) = lane.filter(|l| scattered || flat.uses(l.var)) else {
        return Form::One(flat.clone());
    };
    match split_lane(flat, lane) {
        Some((base, 0)) if !scattered => Form::One(ranges.simplify(&base)),
        Some((base, 1)) if !scattered => {
            let align = divisor(&base);
            let base = ranges.simplify(&base);
            let align = [4, 2, 1].into_iter().find(|a| align % a == 0 || divisor(&base) % a == 0).unwrap_or(1);
            Form::Run { base, count: lane.count, align }
        }
        _ => Form::Each(per_lane(flat, lane).iter().map(|i| ranges.simplify(i)).collect()),
    }
}

fn prove_flat(flat: &Int, numel: &Int, ranges: &mut Facts) -> bool {
    match numel.as_const() {
        Some(n) => ranges.prove(flat, 0, n - 1),
        None => ranges.prove_below(flat, numel),
    }
}
