//! Weft's CPU target: kernels of tensor IR run by a small executor with vector operations and register tiles.
//!
//! # Decision
//!
//! The CPU is a target like a GPU: a second implementor of [`tensor_ir::plan::EmitKernel`]. Passes, fusion, layouts,
//! memory planning, prepacks, host steps, control flow, open sizes and the plan cache are those of devices. A workgroup
//! is a task of a team of threads: it has one thread, no workgroup memory, no barriers and no subgroups, and the grid
//! is the parallel loop.
//!
//! No code is generated on the user's machine, and none is compiled for its processor: a kernel is *data*, which a
//! small executor walks. Its leaves do enough work that the walk costs little:
//!
//! - a *leaf* is a block with the perfect nest of loops around it. The innermost loop, or the two innermost, are
//!   computed many elements an operation, as a vector machine does (`execute`, `lanes`), so that an operation's
//!   dispatch is paid once for some hundred elements. Loads that lie next to each other are read where they lie;
//! - a leaf of floats or short integers whose places strides describe runs as *strips* (`strips`): runs of lanes that
//!   stay in the first cache, over which a list of steps goes, each a vector body. Values that all lanes share are
//!   computed once, conditions cut the lanes into parts, and the loops of a leaf are ordered anew, so that lanes are
//!   long and transposes read whole lines of the cache. Other leaves are computed value by value (`execute`, `lanes`);
//! - a *tile* is rows x columns of sums in registers (`run_tiles`, `tile`): a nest that `tensorize` made one operation,
//!   or a reduction whose lanes lie next to each other (depthwise convolution, pooling, products with one row). All
//!   taps of a window are added up before anything is stored, so that a convolution reads its image where it lies. The
//!   leaf after a tile that reads its sums once becomes its *epilogue* (`epilogue`): steps on the sums in registers.
//!
//! The bodies of these are Rust, compiled once for each instruction set ([`Isa`]) and picked when a session opens.
//! Alternatives were measured: a code generator on the user's machine (Cranelift) reaches a quarter of the speed of
//! such bodies; a C compiler reaches it, and would have to be there.
//!
//! A kernel is translated when its sizes are known (`translate`), so that every extent and stride is a number. The
//! executor checks the bounds of whole runs of elements before it touches them: the only `unsafe` code of the workspace
//! that accesses tensors is in this crate.
//!
//! Deliberately absent: graphs, ops, wgpu, files, environment.
#![warn(missing_docs)]

mod along;
mod chains;
#[cfg(test)]
mod choices_tests;
mod constants;
mod copied;
mod copies;
mod decoding;
mod emit;
mod epilogue;
mod error;
mod execute;
mod find_decoding;
mod finish;
mod form;
mod given;
mod halves;
mod index;
mod index_lanes;
mod integer_tile;
mod integers;
mod isa;
mod lanes;
mod listed;
mod math;
mod memory;
mod packed_tile;
mod processor;
mod program;
mod result_memory;
mod row_bytes;
mod row_ranges;
mod rows_apart;
mod run_decoding;
mod run_strips;
mod run_tiles;
mod runs;
mod session;
mod share;
mod some_lanes;
mod strip_bodies;
mod strip_code;
mod strip_elements;
mod strip_folds;
mod strip_ints;
mod strip_program;
mod strips;
#[cfg(test)]
mod strips_tests;
mod team;
mod tile;
mod tile_memory;
mod tile_operands;
mod times;
mod translate;
mod translate_tiles;
mod turned;
mod unread;
mod values;
mod vectors;
mod widened;

pub use constants::pack_constant;
pub use emit::{Emitter, Kernel};
pub use error::CpuError;
pub use isa::Isa;
pub use processor::Processor;
pub use result_memory::ResultMemory;
pub use session::Session;
pub use times::{DispatchTime, Span, Work};
