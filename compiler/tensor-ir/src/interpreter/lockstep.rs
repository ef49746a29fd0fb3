//! The tensor-IR interpreter: runs any statement exactly as the conventions of [`crate::tir`] say.
//!
//! Workgroups of a kernel run one after another. Inside a workgroup, each leaf statement is executed for all threads
//! before the next statement; within a statement all threads read before any of them writes. Every index is checked
//! against its buffer, and stores to subgroup buffers are checked against the lane.
//!
//! Anything that is a race on a device is an error here: two threads store different values to one element in one
//! statement, or both reduce into it; a thread reads an element that another one stores in the same statement; a
//! workgroup reads an element that another one of the same kernel stores, or stores a different value there.
//!
//! It is slow and simple on purpose: it is the reference for schedules.

mod code;
mod launch;
mod machine;
mod memory;
mod sample;
mod value;

use super::bind::{Bound, bind};
use super::scalar::Num;
use crate::arena::Id;
use crate::dtype::DType;
use crate::fault::Fault;
use crate::name::Name;
use crate::tensor::Tensor;
use crate::tir::{BufferId, TensorFunction};
use code::Resolver;
use machine::Machine;
use memory::Memory;
pub(crate) use sample::sample_kernels;

/// Runs a tensor function, scheduled or not. Operands that have a prepacking are given unpacked; symbols are bound by
/// the operands' shapes. Results are in parameter order.
///
/// # Errors
/// Operands that do not fit; any access out of bounds, with block, buffer and index; a race within one statement.
pub fn run_scheduled(f: &TensorFunction, inputs: &[Tensor]) -> Result<Vec<Tensor>, String> {
    run_scheduled_with(f, &[], inputs)
}

/// [`run_scheduled`] with values for symbols that the operands' shapes do not bind.
///
/// # Errors
/// As [`run_scheduled`].
pub fn run_scheduled_with(
    f: &TensorFunction,
    symbols: &[(Name, i64)],
    inputs: &[Tensor],
) -> Result<Vec<Tensor>, String> {
    run_bound(bind(f, symbols, inputs)?, None)
}

/// [`run_scheduled`] on subgroups of `size` threads. Subgroup i runs task i; with fewer subgroups than tasks, they
/// continue in rounds. Lanes share out loops.
///
/// # Errors
/// As [`run_scheduled`]; workgroups that are no whole number of subgroups.
pub fn run_scheduled_on_subgroups(f: &TensorFunction, inputs: &[Tensor], size: usize) -> Result<Vec<Tensor>, String> {
    run_bound(bind(f, &[], inputs)?, Some(size))
}

fn run_bound(bound: Bound<'_>, subgroup: Option<usize>) -> Result<Vec<Tensor>, String> {
    let Bound { f, inputs, results } = bound;
    let outputs: Vec<BufferId> = f.outputs().collect();
    Ok(Bound::shaped(interpret(&f, &inputs, &outputs, subgroup)?, results))
}

/// Runs a concrete function, on subgroups of so many threads, and gives the content of `outputs`, any of its global
/// buffers.
pub(super) fn interpret(
    f: &TensorFunction,
    inputs: &[Tensor],
    outputs: &[BufferId],
    subgroup: Option<usize>,
) -> Result<Vec<Tensor>, Fault> {
    let mut resolver = Resolver::new(f);
    let code = resolver.stmt(&f.body)?;
    let mut m: Machine<Num> = Machine::new(f, resolver.count, None, subgroup)?;
    for (b, t) in f.inputs().zip(inputs) {
        m.stores[b.index()] = vec![Memory::Dense(read_tensor(t))];
    }
    m.run_top(&code)?;
    outputs
        .iter()
        .map(|b| {
            let (info, store) = (&m.buffers[b.index()], &m.stores[b.index()]);
            match store.first() {
                Some(Memory::Dense(data)) => Ok(write_tensor(info.dtype, info.shape.clone(), data)),
                _ => Err(format!("`{}` is no global buffer", info.name).into()),
            }
        })
        .collect()
}

fn read_tensor(t: &Tensor) -> Vec<Num> {
    if t.dtype().is_float() {
        t.to_f64_vec().into_iter().map(Num::F).collect()
    } else {
        t.to_i64_vec().into_iter().map(Num::I).collect()
    }
}

fn write_tensor(dtype: DType, shape: Vec<usize>, data: &[Num]) -> Tensor {
    match dtype {
        DType::I64 => Tensor::from_vec(shape, data.iter().map(|x| x.int()).collect()),
        DType::U64 => Tensor::from_vec(shape, data.iter().map(|x| x.int() as u64).collect()),
        _ => Tensor::from_f64(dtype, shape, data.iter().map(|x| x.float())),
    }
}

#[cfg(test)]
mod tests;
