//! Tensors on the device, and the inputs of a run.

use compiler::dtype::DType;
use compiler::tensor::Tensor;
use compiler::tir::Encoding;

/// A tensor in device memory.
#[derive(Clone, Debug)]
pub struct DeviceTensor {
    /// Its bytes in storage form, in slices if they exceed one binding.
    pub(crate) buffers: Vec<wgpu::Buffer>,
    pub(crate) dtype: DType,
    pub(crate) shape: Vec<usize>,
    pub(crate) encoding: Encoding,
    /// The buffers hold a constant, which sessions share: no run may write to it.
    pub(crate) constant: bool,
}

impl DeviceTensor {
    /// A caller's buffer with the elements in order, in the form of WGSL's arrays: 32 bits each (also 64-bit integers),
    /// f16 in 16 bits. It belongs to the device of the sessions. As an input it needs storage usage and a size padded
    /// to 16 bytes; for a result it needs storage usage or copy-destination usage.
    pub fn from_buffer(buffer: wgpu::Buffer, dtype: DType, shape: &[usize]) -> DeviceTensor {
        let encoding = if dtype.is_int() && dtype.size() == 8 { Encoding::Narrow } else { Encoding::Native };
        DeviceTensor { buffers: vec![buffer], dtype, shape: shape.to_vec(), encoding, constant: false }
    }
    /// The same, with elements in another storage form, as a plan's inputs and outputs have it.
    pub fn with_encoding(self, encoding: Encoding) -> DeviceTensor {
        DeviceTensor { encoding, ..self }
    }
    /// Element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }
    /// Dimensions.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }
    /// Storage form of its elements.
    pub fn encoding(&self) -> Encoding {
        self.encoding
    }
    /// Its buffers, for the caller's own commands.
    pub fn buffers(&self) -> &[wgpu::Buffer] {
        &self.buffers
    }
    /// Bytes of its buffers.
    pub(crate) fn bytes(&self) -> u64 {
        self.buffers.iter().map(wgpu::Buffer::size).sum()
    }
    /// True when its buffers were made for that.
    pub(crate) fn can(&self, usage: wgpu::BufferUsages) -> bool {
        self.buffers.iter().all(|b| b.usage().contains(usage))
    }
}

/// An input of a run.
#[derive(Clone, Copy, Debug)]
pub enum RunInput<'a> {
    /// In host memory: it is uploaded.
    Host(&'a Tensor),
    /// On the device: it is bound.
    Device(&'a DeviceTensor),
}

impl RunInput<'_> {
    /// Element type.
    pub fn dtype(&self) -> DType {
        match self {
            RunInput::Host(t) => t.dtype(),
            RunInput::Device(t) => t.dtype,
        }
    }
    /// Dimensions.
    pub fn shape(&self) -> &[usize] {
        match self {
            RunInput::Host(t) => t.shape(),
            RunInput::Device(t) => &t.shape,
        }
    }
}

/// A result of a run where it was computed, which can be an input of the next.
#[derive(Clone, Debug)]
pub enum RunTensor {
    /// In host memory.
    Host(Tensor),
    /// On the device.
    Device(DeviceTensor),
}

impl RunTensor {
    /// As an input of a run.
    pub fn as_input(&self) -> RunInput<'_> {
        match self {
            RunTensor::Host(t) => RunInput::Host(t),
            RunTensor::Device(t) => RunInput::Device(t),
        }
    }
}
