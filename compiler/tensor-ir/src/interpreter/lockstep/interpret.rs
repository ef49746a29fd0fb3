//! Runs a function without symbols on given operands.

use super::code::Resolver;
use super::machine::Machine;
use super::memory::Memory;
use crate::arena::Id;
use crate::dtype::DType;
use crate::fault::Fault;
use crate::interpreter::scalar::Num;
use crate::tensor::Tensor;
use crate::tir::{BufferId, TensorFunction};

/// Runs a concrete function, on subgroups of so many threads, and gives the content of `outputs`, any of its global
/// buffers.
pub(in crate::interpreter) fn interpret(
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
        for u in f.updates.iter().filter(|u| u.of == Some(b)) {
            m.stores[u.result.index()] = vec![Memory::Dense(read_tensor(t))];
        }
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
