//! The plan: everything that is decided before the first run, as plain data. The runtime executes it.

mod buffers;
mod check;
mod saved;
mod site;
mod stand_in;
mod steps;
pub mod storage;

pub use buffers::{BufferIndex, BufferView, Content, HostContent, KernelIndex, PlanBuffer};
pub use saved::SavedPlanError;
pub use site::{HostOperand, HostResult, HostSignature, HostSite, PrepareFunction, PreparedFunction};
pub use stand_in::StandInEmitter;
pub use steps::{
    Branch, Call, Carried, Collected, Dispatch, Handover, HostCall, HostCaller, HostComputation, HostStep, Loop,
    MOST_TRIPS, PlanFunction, Step, Trips, nested,
};

use crate::int::{Bounds, Int, simplify};
use crate::name::Name;
use crate::profile::DeviceProfile;
use crate::tir::{Access, BufferId, TensorFunction};
use std::any::Any;
use std::sync::Arc;

/// One storage binding of a kernel, in binding order (`@group(0) @binding(index)`).
#[derive(Clone, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
pub struct Binding {
    /// Buffer of the tensor function.
    pub buffer: BufferId,
    /// Which slice of the buffer: elements `[slice * slice_elements, (slice + 1) * slice_elements)`. 0 where it fits
    /// one binding.
    pub slice: u32,
    /// Read-only or written.
    pub access: Access,
}

/// Lines of a shader's text that one block of the tensor function, or the head of one of its loops, became.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub struct LineSpan {
    /// The first line, from 0.
    pub first: u32,
    /// How many lines.
    pub count: u32,
    /// The block; `None` for the head or the end of a loop around several.
    pub block: Option<Name>,
    /// The innermost enclosing loop that is also a loop in the text.
    pub r#loop: Option<Name>,
}

/// Workgroups along x, y and z that the sizes of a run tell.
#[derive(Clone, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
pub struct OpenGrid {
    /// Expressions of the symbols of the kernel's function.
    pub extents: [Int; 3],
    /// The kernel counts workgroups one after another, so many along x and the rest along y; none: the extents are the
    /// grid.
    pub row: Option<u32>,
    /// Workgroups along an axis, at most.
    pub most: u32,
}

impl OpenGrid {
    /// Workgroups along each axis, as expressions of the symbols.
    pub fn exprs(&self) -> [Int; 3] {
        let Some(row) = self.row.map(i64::from) else { return self.extents.clone() };
        let total = simplify(&self.extents.iter().fold(Int::new(1), |a, e| a * e), &Bounds::new());
        [total.min(row), total.ceil_div(row.max(1)), Int::new(1)]
    }

    /// The grid for these values of the symbols.
    ///
    /// # Errors
    /// A symbol without a value, and more workgroups than the device takes.
    pub fn at(&self, value: &dyn Fn(Name) -> Option<i64>) -> Result<[u32; 3], String> {
        let mut grid = [0u64; 3];
        for (g, e) in grid.iter_mut().zip(&self.extents) {
            let n = e.eval(value).and_then(|n| u64::try_from(n).ok());
            *g = n.ok_or_else(|| format!("{e} workgroups are no number"))?;
        }
        if let Some(row) = self.row.map(u64::from) {
            let total = grid.iter().fold(1u64, |a, &g| a.saturating_mul(g));
            grid = [total.min(row), total.div_ceil(row.max(1)), 1];
        }
        if let Some(&g) = grid.iter().find(|&&g| g > u64::from(self.most)) {
            return Err(format!("{g} workgroups along an axis, the device takes {}", self.most));
        }
        Ok(grid.map(|g| g as u32))
    }
}

/// A kernel as the shader generator made it.
#[derive(Clone, serde::Serialize, serde::Deserialize)]
pub struct EmittedKernel {
    /// Entry point name.
    pub name: String,
    /// Threads of a workgroup.
    pub workgroup: [u32; 3],
    /// Workgroups to dispatch (already folded against the device's limit per axis). With an `open_grid` the run's sizes
    /// say it.
    pub grid: [u32; 3],
    /// Workgroups as expressions, if they depend on the function's symbols.
    pub open_grid: Option<OpenGrid>,
    /// Loop iterations of a thread as an expression of the function's symbols, and the driver's limit
    /// ([`DeviceProfile::most_rounds`](crate::profile::DeviceProfile::most_rounds)); `None` if they do not depend on
    /// sizes, or the driver has no limit. Each plan for given sizes checks the limit.
    pub open_rounds: Option<(Int, u64)>,
    /// Bindings in order.
    pub bindings: Vec<Binding>,
    /// Bytes of immediates: one i32 per symbol of the function, in order; 0 without symbols.
    pub immediate_bytes: u32,
    /// The same in a uniform buffer, at the binding after all others, if the device has too few immediates; else 0.
    pub uniform_bytes: u32,
    /// Bytes of workgroup memory.
    pub shared_bytes: u32,
    /// All accesses proved in bounds, index arithmetic proved not to overflow.
    pub bounds_proved: bool,
    /// WGSL text.
    pub wgsl: String,
    /// The origin of its lines, in order; lines that belong to the whole kernel are left out.
    pub lines: Vec<LineSpan>,
    /// The validated shader module in the generator's own form (for the runtime).
    #[serde(skip, default = "saved::no_module")]
    pub module: Arc<dyn Any + Send + Sync>,
}
impl EmittedKernel {
    /// The content of its uniform buffer for these values of the symbols; `None` if it has no such buffer.
    pub fn uniform(&self, symbols: &[i32]) -> Option<Vec<u8>> {
        (self.uniform_bytes > 0).then(|| {
            let mut bytes: Vec<u8> = symbols.iter().flat_map(|s| s.to_le_bytes()).collect();
            bytes.resize(bytes.len().next_multiple_of(16), 0);
            bytes
        })
    }
}
impl std::fmt::Debug for EmittedKernel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "EmittedKernel({} {:?} x {:?})", self.name, self.grid, self.workgroup)
    }
}

/// Why a shader generator makes no shader of a kernel.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum EmitFailure {
    /// The kernel exceeds a limit of the device or the 32 bits of a shader's integers, or needs what the device lacks.
    /// The interpreter has no such limit.
    #[error("{0}")]
    BeyondDevice(String),
    /// The kernel is none that the generator can express: a bug, unless the kernel came written.
    #[error("{0}")]
    Lowering(String),
}

/// The shader generator, as the compiler sees it. Kernels are emitted in parallel: the result must follow from the
/// arguments alone.
pub trait EmitKernel: Send + Sync {
    /// Emits kernel `kernel` of the scheduled function `f`.
    ///
    /// # Errors
    /// When the kernel is beyond the profile's limits or the lowering has a bug.
    fn emit(&self, f: &TensorFunction, kernel: Name, profile: &DeviceProfile) -> Result<EmittedKernel, EmitFailure>;

    /// SPIR-V words of a kernel that this generator made; none if its kernels are no shaders.
    ///
    /// # Errors
    /// When the generator makes none, or the kernel is not its own.
    fn spirv(&self, _kernel: &EmittedKernel) -> Result<Vec<u32>, String> {
        Err("this generator makes no SPIR-V".into())
    }

    /// The form of the bytes of [`EmitKernel::save`]: builds of the generator with the same form read each other's.
    fn saved_form(&self) -> &'static str {
        "none"
    }

    /// Bytes of [`EmittedKernel::module`], for [`EmitKernel::restore`] of a build of the generator with the same form.
    ///
    /// # Errors
    /// When the generator keeps none, or the kernel is not its own.
    fn save(&self, _kernel: &EmittedKernel) -> Result<Vec<u8>, String> {
        Err("this generator's shaders cannot be kept".into())
    }

    /// Restores the bytes of [`EmitKernel::save`].
    ///
    /// # Errors
    /// Bytes of something else.
    fn restore(&self, _bytes: &[u8]) -> Result<Arc<dyn Any + Send + Sync>, String> {
        Err("this generator's shaders cannot be kept".into())
    }

    /// Holds what a saved plan says of a kernel against its restored module.
    ///
    /// # Errors
    /// Bindings or sizes that are not the module's.
    fn check_restored(&self, _kernel: &EmittedKernel) -> Result<(), String> {
        Ok(())
    }
}

/// A kernel of the plan: distinct shaders, shared by equal groups.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct PlanKernel {
    /// Unique in the plan: the layer of its first call, and what is fused with it.
    pub name: String,
    /// The shader.
    pub emitted: EmittedKernel,
    /// Tensor function it came from (in the compiled module).
    pub function: Name,
    /// The kernel of that function.
    pub part: Name,
}

/// Characters of a kernel's file name, at most.
const FILE_LENGTH: usize = 100;

/// The name of a kernel's file without extension: its position in the plan, then its name in letters, digits, `_` and
/// `-`.
pub fn kernel_file(index: usize, name: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '_' || c == '-' { c } else { '_' };
    format!("{index:03}_{}", name.chars().map(plain).take(FILE_LENGTH).collect::<String>())
}

/// The plan of one entry function.
#[derive(Clone, Debug, Default, serde::Serialize, serde::Deserialize)]
pub struct Plan {
    /// Device buffers.
    pub buffers: Vec<PlanBuffer>,
    /// Kernels.
    pub kernels: Vec<PlanKernel>,
    /// Steps in order.
    pub steps: Vec<Step>,
    /// Inputs of the entry function.
    pub inputs: Vec<BufferView>,
    /// Results of the entry function.
    pub outputs: Vec<BufferView>,
    /// The functions that steps call.
    pub functions: Vec<PlanFunction>,
}

impl Plan {
    /// All steps, as [`nested`] has them, those of called functions behind the entry function's.
    pub fn all_steps(&self) -> Vec<&Step> {
        let bodies = [&self.steps].into_iter().chain(self.functions.iter().map(|f| &f.body));
        bodies.flat_map(|body| nested(body)).collect()
    }
    /// All dispatches, in the order of the steps.
    pub fn dispatches(&self) -> impl Iterator<Item = &Dispatch> {
        self.all_steps().into_iter().flat_map(|s| if let Step::Gpu(list) = s { list.as_slice() } else { &[] })
    }
    /// The kernel or host step, by name, that is the first to read a buffer.
    pub fn reader_of(&self, buffer: BufferIndex) -> Option<&str> {
        let of_dispatch = |d: &Dispatch| {
            let kernel = &self.kernels[d.kernel];
            let mut bound = d.buffers.iter().zip(&kernel.emitted.bindings);
            bound.any(|(b, own)| b.0 == buffer && own.access == Access::Read).then_some(kernel.name.as_str())
        };
        self.all_steps().into_iter().find_map(|step| match step {
            Step::Gpu(list) => list.iter().find_map(of_dispatch),
            Step::Host(h) => h.inputs.iter().any(|v| v.buffer == buffer).then_some(h.name.as_str()),
            _ => None,
        })
    }
    /// `profile` with the limits that the plan needs.
    pub fn needs(&self, profile: &DeviceProfile) -> DeviceProfile {
        let most = |of: &dyn Fn(&EmittedKernel) -> u32| self.kernels.iter().map(|k| of(&k.emitted)).max().unwrap_or(0);
        let axis = |a: usize| most(&|k| k.workgroup[a]);
        let on_device = self.buffers.iter().filter(|b| !matches!(b.content, Content::Host(_)));
        let bytes = on_device.map(|b| (b.slice_bytes, b.bytes)).fold((0, 0), |m, b| (m.0.max(b.0), m.1.max(b.1)));
        DeviceProfile {
            shared_memory: most(&|k| k.shared_bytes),
            max_invocations: most(&|k| k.workgroup.iter().product()),
            max_workgroup_size: [axis(0), axis(1), axis(2)],
            max_workgroups: self.dispatches().flat_map(|d| d.grid).max().unwrap_or(0),
            max_storage_buffers: most(&|k| k.bindings.len() as u32),
            max_binding: bytes.0,
            max_buffer: bytes.0.min(bytes.1),
            immediates: most(&|k| k.immediate_bytes),
            ..profile.clone()
        }
    }
    /// For each buffer, the buffer of the plan `before` that holds the same constant.
    pub fn same_constants(&self, before: &Plan) -> Vec<Option<usize>> {
        let same = |a: &PlanBuffer, b: &PlanBuffer| match (&a.content, &b.content) {
            (Content::Constant { name: a, packer: p }, Content::Constant { name: b, packer: q }) => {
                a == b && p.as_ref().map(Arc::as_ptr) == q.as_ref().map(Arc::as_ptr)
            }
            (Content::Host(a), Content::Host(b)) => a == b,
            _ => false,
        };
        self.buffers.iter().map(|b| before.buffers.iter().position(|a| same(a, b))).collect()
    }
}
