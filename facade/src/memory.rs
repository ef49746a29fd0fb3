//! The memory of the system, and the memory that a model needs.

use crate::error::Error;
use compiler::graph::Module;

/// Inputs and results must fit in memory.
///
/// # Errors
/// [`Error::NoRoom`].
pub fn check_memory(module: &Module) -> Result<(), Error> {
    let f = module.main();
    let need = f
        .params()
        .iter()
        .chain(f.results())
        .filter_map(|&v| f.ty(v).bytes())
        .fold(0u64, |sum, n| sum.saturating_add(n as u64));
    check_room("inputs and results take", need)
}

/// Checks that the peak memory of the interpreter fits the available memory.
///
/// # Errors
/// [`Error::NoRoom`].
pub fn check_cpu_memory(module: &Module) -> Result<(), Error> {
    check_room("on the CPU the model takes", compiler::interpreter::peak_bytes(module.main()))
}

/// Bytes of memory that the process may still allocate: the free memory of the machine, but at most half of a limit on
/// the process (`ulimit -v`), since drivers and threads need a part of that.
pub fn free_memory() -> Option<u64> {
    let machine = runtime_gpu::available_memory();
    [machine, process_limit().map(|bytes| bytes / 2)].into_iter().flatten().min()
}

#[cfg(unix)]
fn process_limit() -> Option<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the call fills the structure that it is given.
    let known = unsafe { libc::getrlimit(libc::RLIMIT_AS, &mut limit) } == 0;
    (known && limit.rlim_cur != libc::RLIM_INFINITY).then_some(limit.rlim_cur)
}
#[cfg(not(unix))]
fn process_limit() -> Option<u64> {
    None
}

fn check_room(what: &'static str, need: u64) -> Result<(), Error> {
    match free_memory() {
        Some(free) if need > free => Err(Error::NoRoom { what, need, free }),
        _ => Ok(()),
    }
}
