//! The buffers of a plan, and tensors in them.

use crate::dtype::DType;
use crate::name::Name;
use crate::tir::{Encoding, TensorFunction};
use std::sync::Arc;

/// The content of a plan buffer.
#[derive(Clone, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
pub enum Content {
    /// The n-th input of the entry function, uploaded before a run.
    Input(usize),
    /// A constant, uploaded when the session opens; with `packer`, through that tensor function (one read, one write).
    Constant {
        /// Constant of the module.
        name: Name,
        /// Prepacking function, run once on the host.
        #[serde(with = "super::saved::packer_text")]
        packer: Option<Arc<TensorFunction>>,
    },
    /// An activation or scratch buffer of the pool.
    Pool,
    /// A tensor in host memory that no kernel touches; it has no bytes on the device.
    Host(HostContent),
}

/// A tensor in host memory.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, serde::Serialize, serde::Deserialize)]
pub enum HostContent {
    /// The n-th input of the entry function.
    Input(usize),
    /// A constant of the module.
    Constant(Name),
    /// The n-th tensor between host steps.
    Value(usize),
}

/// A device buffer of the plan. Outputs are read back from the buffer that `Plan::outputs` names.
#[derive(Clone, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
pub struct PlanBuffer {
    /// Its content.
    pub content: Content,
    /// Bytes in storage form, a multiple of 16.
    pub bytes: u64,
    /// Bytes of one slice (a multiple of 16); `bytes` if one binding holds the whole buffer.
    pub slice_bytes: u64,
    /// The storage form in which kernels, host steps or results read a constant; `None` if it is not a constant.
    pub encoding: Option<Encoding>,
}

/// Index into `Plan::buffers`.
pub type BufferIndex = usize;
/// Index into `Plan::kernels`.
pub type KernelIndex = usize;

/// A tensor of the entry function or of a host step, in a plan buffer.
#[derive(Clone, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
pub struct BufferView {
    /// Name in the source model.
    pub name: Name,
    /// The buffer that holds it.
    pub buffer: BufferIndex,
    /// Logical type.
    pub dtype: DType,
    /// Shape.
    pub shape: Vec<usize>,
    /// Storage form.
    pub encoding: Encoding,
}
