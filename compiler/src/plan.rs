//! The plan: everything that is decided before the first run. Plain data; the runtime executes it.

use crate::dtype::DType;
use crate::name::Name;
use crate::tensor::Tensor;
use crate::tir::{Access, BufferId, Encoding, TensorFunction};
use std::any::Any;
use std::sync::Arc;

/// One storage binding of a kernel, in binding order (`@group(0) @binding(index)`).
#[derive(Clone, PartialEq, Debug)]
pub struct Binding {
    /// Buffer of the tensor function.
    pub buffer: BufferId,
    /// Which slice of the buffer: elements `[bank * bank_elements, (bank + 1) * bank_elements)`. 0 where it fits one binding.
    pub bank: u32,
    /// Read-only or written.
    pub access: Access,
}

/// A kernel as the shader generator made it.
#[derive(Clone)]
pub struct EmittedKernel {
    /// Entry point name.
    pub name: String,
    /// Threads of a workgroup.
    pub workgroup: [u32; 3],
    /// Workgroups to dispatch (already folded against the device's limit per axis).
    pub grid: [u32; 3],
    /// Bindings in order.
    pub bindings: Vec<Binding>,
    /// Bytes of immediates: one i32 per symbol of the function, in order; 0 without symbols.
    pub immediate_bytes: u32,
    /// Bytes of workgroup memory.
    pub shared_bytes: u32,
    /// All accesses proved in bounds, index arithmetic proved not to overflow.
    pub bounds_proved: bool,
    /// WGSL text.
    pub wgsl: String,
    /// The validated shader module in the generator's own form (for the runtime).
    pub module: Arc<dyn Any + Send + Sync>,
}
impl std::fmt::Debug for EmittedKernel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "EmittedKernel({} {:?} x {:?})", self.name, self.grid, self.workgroup)
    }
}

/// The shader generator, as the compiler sees it.
pub trait EmitKernel {
    /// Emits kernel `kernel` of the scheduled function `f`.
    ///
    /// # Errors
    /// A message when the kernel is beyond the profile's limits or the lowering has a bug.
    fn emit(
        &self,
        f: &TensorFunction,
        kernel: Name,
        profile: &crate::profile::DeviceProfile,
    ) -> Result<EmittedKernel, String>;

    /// SPIR-V words of a kernel that this generator made.
    ///
    /// # Errors
    /// When the generator makes none, or the kernel is not its own.
    fn spirv(&self, _kernel: &EmittedKernel) -> Result<Vec<u32>, String> {
        Err("this generator makes no SPIR-V".into())
    }
}

/// What a plan buffer holds.
#[derive(Clone, PartialEq, Debug)]
pub enum Content {
    /// The n-th input of the entry function, uploaded before a run.
    Input(usize),
    /// A constant, uploaded when the session opens; with `packer`, through that tensor function (one read, one write).
    Constant {
        /// Constant of the module.
        name: Name,
        /// Prepacking function, run once on the host.
        packer: Option<Arc<TensorFunction>>,
    },
    /// An activation or scratch buffer of the pool.
    Pool,
    /// A tensor in host memory that no kernel touches; it has no bytes on the device.
    Host(HostContent),
}

/// A tensor in host memory.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum HostContent {
    /// The n-th input of the entry function.
    Input(usize),
    /// A constant of the module.
    Constant(Name),
    /// The n-th tensor between host steps.
    Value(usize),
}

/// A device buffer of the plan. Outputs are read back from the buffer that [`Plan::outputs`] names.
#[derive(Clone, PartialEq, Debug)]
pub struct PlanBuffer {
    /// What it holds.
    pub content: Content,
    /// Bytes in storage form, a multiple of 16.
    pub bytes: u64,
    /// Bytes of one bank (a multiple of 16); `bytes` where one binding holds it all.
    pub bank_bytes: u64,
}

/// Index into [`Plan::buffers`].
pub type BufferIndex = usize;
/// Index into [`Plan::kernels`].
pub type KernelIndex = usize;

/// A tensor of the entry function or of a host step, in a plan buffer.
#[derive(Clone, PartialEq, Debug)]
pub struct TensorSlot {
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

/// One dispatch.
#[derive(Clone, Debug)]
pub struct Dispatch {
    /// The kernel.
    pub kernel: KernelIndex,
    /// A plan buffer and bank for each binding of the kernel.
    pub buffers: Vec<(BufferIndex, u32)>,
    /// Values of the kernel's symbols.
    pub symbols: Vec<i32>,
    /// Group the dispatch belongs to (index into the compiled module's groups).
    pub group: usize,
}

/// A computation on the host between GPU segments.
#[derive(Clone)]
pub struct HostStep {
    /// For messages.
    pub name: Name,
    /// Tensors read back before, in operand order.
    pub inputs: Vec<TensorSlot>,
    /// Tensors uploaded after.
    pub outputs: Vec<TensorSlot>,
    /// The computation.
    pub run: Arc<dyn Fn(&[Tensor]) -> Result<Vec<Tensor>, String> + Send + Sync>,
    /// Group the step belongs to.
    pub group: usize,
}
impl std::fmt::Debug for HostStep {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "HostStep({})", self.name)
    }
}

/// A step of a run.
#[derive(Clone, Debug)]
pub enum Step {
    /// Dispatches in one compute pass.
    Gpu(Vec<Dispatch>),
    /// A host computation.
    Host(HostStep),
    /// Copies a whole buffer.
    Copy {
        /// From.
        from: BufferIndex,
        /// To.
        to: BufferIndex,
    },
}

/// A kernel of the plan: distinct shaders, shared by equal groups.
#[derive(Clone, Debug)]
pub struct PlanKernel {
    /// The shader.
    pub emitted: EmittedKernel,
    /// Tensor function it came from (in the compiled module).
    pub function: Name,
}

/// The plan of one entry function.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// Device buffers.
    pub buffers: Vec<PlanBuffer>,
    /// Kernels.
    pub kernels: Vec<PlanKernel>,
    /// Steps in order.
    pub steps: Vec<Step>,
    /// Inputs of the entry function.
    pub inputs: Vec<TensorSlot>,
    /// Results of the entry function.
    pub outputs: Vec<TensorSlot>,
}
