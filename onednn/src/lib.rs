//! The external target `dnnl`: convolutions and matrix products in oneDNN.
//!
//! The library is loaded when a network is compiled for it: version 2 or 3, whose C interfaces differ. A region becomes
//! a JSON graph ([`Graph`]), and a runtime that reads that graph makes primitives once, with weights in the library's own
//! layout. `docs/onednn.md` describes the graph.
//!
//! `unsafe` is in `library` alone, which wraps what the library gives in types that free it.
#![warn(missing_docs)]

mod convert;
mod graph;
mod library;
mod runtime;
mod target;

pub use graph::{Attributes, Constant, Graph, Node, Port, PostOp};
pub use library::Library;
pub use runtime::Runtime;
pub use target::{Dnnl, TARGET};
