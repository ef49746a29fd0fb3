//! C from scheduled kernels: a network as a folder of C11 that a compiler builds with nothing else, for
//! microcontrollers, audits and machines that Weft does not run on.
//!
//! A third implementor of [`tensor_ir::plan::EmitKernel`], beside shaders and the CPU target's programs. It takes the
//! schedules of the profile `cpu`: a workgroup is an iteration of a loop, there are no threads and no subgroups. A
//! kernel becomes a function (`kernel`); values are `float`, `double` or `int64_t`, and mean what
//! [`tensor_ir::interpreter::scalar`] says (`expr`, and the functions of `weft_math.h`). A nest that `tensorize` made
//! one operation becomes sums in GNU vectors, printed from the nest itself, and plain loops for other compilers
//! (`tile`). [`program()`] writes the plan around them: buffers are places in one arena, constants places in one blob.
//!
//! [`Build`] lets the system's compiler make a shared object of files of C and loads it: external targets that write C
//! use it.
//!
//! Deliberately absent: graphs, ops, threads; steps on the host, calls, loops with as many rows as data decide, open
//! sizes.
#![warn(missing_docs)]

mod emit;
mod expr;
mod kernel;
mod left;
mod object;
mod places;
mod products;
mod program;
mod share;
mod statements;
mod steps;
mod tile;

pub use emit::Emitter;
pub use object::{Build, Lines, check_compiler};
pub use places::arena_bytes;
pub use program::{File, MAIN, program};
