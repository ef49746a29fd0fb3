//! The external target `dnnl`: convolutions and matrix products in oneDNN.
//!
//! The library is loaded when a network is compiled for it: version 2 or 3, whose C interfaces differ. A region becomes
//! a JSON graph ([`Graph`]). In the JSON style a runtime reads that graph and makes primitives once, with weights in
//! the library's own layout. In the C source style the graph becomes C that does the same, which the system's compiler
//! builds. `docs/onednn.md` describes both.
//!
//! `unsafe` is in `library`, which wraps what the library gives in types that free it, and in `built`, which calls the
//! C.
#![warn(missing_docs)]

mod built;
mod c_source;
mod convert;
mod elementwise;
mod graph;
mod library;
mod runtime;
mod target;

pub use graph::{Attributes, BinaryFunction, Constant, Eltwise, Function, Graph, Node, PoolKind, Port, PostOp};
pub use library::Library;
pub use runtime::Runtime;
pub use target::{Dnnl, TARGET};
