//! Buffers of short floats that a kernel widens to f32 as a whole, before its tasks begin.
//!
//! Windows that overlap read an element many times. Tiles read f32 where it lies; of shorter floats each tile has to
//! copy all of its windows, each element of them once for each tap, which takes longer than to multiply them.

use crate::form::Form;
use crate::halves;
use crate::isa::Isa;
use crate::memory::View;
use crate::team::Team;
use std::cell::RefCell;
use std::sync::atomic::{AtomicUsize, Ordering};
use tensor_ir::dtype::DType;
use tensor_ir::int::Int;
use tensor_ir::name::Name;
use tensor_ir::tir::{Buffer, BufferId, Scope, Stmt, TensorFunction};

/// Reads of an element from which on it is one of windows that overlap.
const OVERLAPS: f64 = 1.2;

/// Elements that a thread widens at a time.
const PORTION: usize = 1 << 14;

/// The buffers of a kernel, with their elements, that are read so often. `size` gives the value of an extent.
pub(crate) fn find(
    f: &TensorFunction,
    body: &Stmt,
    size: &impl Fn(&Int) -> Result<i64, String>,
) -> Result<Vec<(BufferId, usize)>, String> {
    let short = |b: &Buffer| b.scope == Scope::Global && matches!(b.dtype, DType::F16 | DType::BF16);
    if !f.buffers.iter().any(|(_, b)| short(b)) {
        return Ok(vec![]);
    }
    let mut reads = vec![];
    collect(body, &mut vec![], &mut reads, size)?;
    let written = |id| body.blocks().iter().any(|b| b.buffer == id);
    let mut found: Vec<(BufferId, usize)> = vec![];
    for (id, times) in reads {
        if short(&f.buffers[id]) && !written(id) && !found.iter().any(|w| w.0 == id) {
            let elements = size(&f.buffers[id].numel())?;
            if times > OVERLAPS * elements as f64 {
                found.push((id, elements as usize));
            }
        }
    }
    Ok(found)
}

/// How often each load of a reduction reads an element of its own: the iterations of the loops that move it.
fn collect(
    s: &Stmt,
    loops: &mut Vec<(Name, i64)>,
    reads: &mut Vec<(BufferId, f64)>,
    size: &impl Fn(&Int) -> Result<i64, String>,
) -> Result<(), String> {
    match s {
        Stmt::Barrier => {}
        Stmt::Seq(list) => list.iter().try_for_each(|s| collect(s, loops, reads, size))?,
        Stmt::Kernel(_, s) => collect(s, loops, reads, size)?,
        Stmt::For(l) => {
            loops.push((l.var, size(&l.extent)?));
            collect(&l.body, loops, reads, size)?;
            loops.pop();
        }
        Stmt::Block(b) if b.reduce.is_some() => reads.extend(b.value.loads().into_iter().map(|(id, indices)| {
            let moves = |l: &&(Name, i64)| indices.iter().any(|i| i.uses(l.0));
            (id, loops.iter().filter(moves).map(|l| l.1 as f64).product())
        })),
        Stmt::Block(_) => {}
    }
    Ok(())
}

thread_local! {
    /// Memory of the last kernel that this thread ran, used again.
    static WIDE: RefCell<Vec<f32>> = const { RefCell::new(vec![]) };
}

/// Calls `run` with the buffers of a kernel, of which those in the list, by number, are copies in f32.
pub(crate) fn with(
    list: &[(usize, usize)],
    bound: &[Option<View>],
    (isa, team): (Isa, Option<&Team>),
    run: impl FnOnce(&[Option<View>]),
) {
    // A file may name any sizes: nothing is reserved for elements that are not there.
    list.iter().filter_map(|w| Some((bound[w.0]?, w.1))).for_each(|(view, n)| view.require_all(0, n as i64 - 1));
    let mut memory = WIDE.take();
    let need = list.iter().map(|w| w.1).sum();
    if memory.len() < need {
        memory.resize(need, 0.0);
    }
    let mut bound = bound.to_vec();
    let mut rest = &mut memory[..];
    for &(n, elements) in list {
        let Some(from) = bound[n] else { continue };
        let (to, others) = rest.split_at_mut(elements);
        rest = others;
        bound[n] = Some(View::new(to.as_mut_ptr().cast(), size_of_val(to), Form::F32));
        widen(isa, &from, to, team);
    }
    run(&bound);
    WIDE.set(memory);
}

fn widen(isa: Isa, from: &View, to: &mut [f32], team: Option<&Team>) {
    let to = View::new(to.as_mut_ptr().cast(), size_of_val(to), Form::F32);
    let (next, all) = (AtomicUsize::new(0), to.elements());
    let work = || {
        loop {
            let at = next.fetch_add(PORTION, Ordering::Relaxed);
            if at >= all {
                return;
            }
            // SAFETY: the elements are in both buffers, as was checked, and this portion is one thread's alone.
            unsafe {
                let part = std::slice::from_raw_parts_mut(to.pointer(at as i64), PORTION.min(all - at));
                halves::widen(isa, from.form(), from.bytes_of(at as i64), part);
            }
        }
    };
    match team.filter(|team| all > PORTION && team.helpers() > 0) {
        Some(team) => team.share(&work),
        None => work(),
    }
}
