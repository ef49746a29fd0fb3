//! The modules of the fuzzer; see `main.rs`.

pub mod corpus;
pub mod protobuf;
pub mod raw;
pub mod runner;
pub mod target;
pub mod targets;
pub mod text;
pub mod worker;

/// Bytes that one case may have on the heap.
pub fn memory_limit() -> usize {
    2 << 30
}
