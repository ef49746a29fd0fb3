//! The emitter of the CPU target: a kernel is kept as its scheduled tensor function and becomes a [`Program`] for the
//! sizes of a run.

use crate::memory::View;
use crate::program::Program;
use crate::translate::translate;
use crate::{Isa, Processor, execute};
use rustc_hash::FxHashMap;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};
use tensor_ir::arena::Id;
use tensor_ir::dtype::DType;
use tensor_ir::int::Bounds;
use tensor_ir::name::Name;
use tensor_ir::plan::{Binding, EmitFailure, EmitKernel, EmittedKernel, OpenGrid};
use tensor_ir::profile::DeviceProfile;
use tensor_ir::text::print_tensor_function;
use tensor_ir::tir::{Access, Buffer, BufferId, Encoding, LoopKind, Scope, Stmt, TensorFunction};

/// Makes kernels for [`Session`](crate::Session)s. [`EmittedKernel::module`] holds a [`Kernel`].
#[derive(Clone, Copy, Debug, Default)]
pub struct Emitter;

/// A kernel for any sizes.
pub struct Kernel {
    /// The function, of which other kernels are left out.
    function: TensorFunction,
    kernel: Name,
    /// What it is for the sizes that runs had.
    programs: Mutex<FxHashMap<Vec<i64>, Arc<Program>>>,
}

impl Kernel {
    pub(crate) fn new(f: &TensorFunction, kernel: Name) -> Result<Kernel, String> {
        let body =
            f.kernels().into_iter().find(|k| k.0 == kernel).ok_or_else(|| format!("there is no kernel `{kernel}`"))?;
        let body = Stmt::Kernel(kernel, Box::new(body.1.clone()));
        let mut function = f.clone();
        (function.body, function.trace, function.pending, function.prepacks) = (body, vec![], vec![], vec![]);
        Ok(Kernel { function, kernel, programs: Mutex::default() })
    }
    /// It leaves elements of a result as they are.
    pub(crate) fn stores_parts(&self) -> bool {
        !self.function.updates.is_empty()
    }
    /// The kernel of an unscheduled function as a whole; `None` if it keeps intermediate results in memory, or elements
    /// that kernels hold otherwise than tensors do.
    pub(crate) fn of_function(f: &TensorFunction) -> Option<Kernel> {
        if !f.updates.is_empty() {
            return None;
        }
        let is_byte = |b: &Buffer| matches!(b.dtype, DType::U8 | DType::I8);
        let plain = |b: &Buffer| {
            let float = matches!(b.dtype, DType::F32 | DType::F16 | DType::BF16);
            b.encoding == Encoding::Native && (float || is_byte(b))
        };
        let parameters = f.buffers.iter().all(|(id, b)| f.params.iter().any(|p| p.buffer == id) && plain(b));
        let (name, body) = (Name::new("whole"), f.body.clone());
        let mut whole = TensorFunction { body: Stmt::Kernel(name, Box::new(body)), ..f.clone() };
        for id in whole.buffers.ids().collect::<Vec<_>>() {
            if is_byte(&whole.buffers[id]) {
                whole.buffers[id].encoding = Encoding::ByteQuad;
            }
        }
        if parameters { Kernel::new(&whole, name).ok() } else { None }
    }
    /// Runs a kernel of fixed sizes on the bytes of its buffers, on this thread.
    pub(crate) fn run_on(&self, buffers: &[(BufferId, *mut u8, usize)], isa: Isa) -> Result<(), String> {
        let program = self.program(&[])?;
        let views: Vec<(usize, View)> = buffers.iter().map(|&(b, at, bytes)| self.view_of(b, at, bytes)).collect();
        let mut bound = vec![None; self.function.buffers.len()];
        views.iter().for_each(|(n, v)| bound[*n] = Some(*v));
        execute::run(&program, &bound, isa, None);
        Ok(())
    }
    /// The program for these values of the symbols.
    pub(crate) fn program(&self, symbols: &[i64]) -> Result<Arc<Program>, String> {
        let mut programs = self.programs.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(p) = programs.get(symbols) {
            return Ok(p.clone());
        }
        let made = Arc::new(translate(&self.function, self.kernel, symbols)?);
        programs.insert(symbols.to_vec(), made.clone());
        Ok(made)
    }
    /// The number of a buffer, and how its elements are stored.
    pub(crate) fn view(&self, b: &Binding, at: *mut u8, bytes: usize) -> (usize, View) {
        self.view_of(b.buffer, at, bytes)
    }
    fn view_of(&self, b: BufferId, at: *mut u8, bytes: usize) -> (usize, View) {
        let buffer = &self.function.buffers[b];
        let form = crate::form::Form::of(buffer.dtype, buffer.encoding, buffer.scope);
        (b.index(), View::new(at, bytes, form))
    }
    /// Runs the kernel on bound buffers.
    pub(crate) fn run(&self, program: &Program, views: &[(usize, View)], on: &Processor) {
        let mut bound = vec![None; self.function.buffers.len()];
        views.iter().for_each(|(n, v)| bound[*n] = Some(*v));
        execute::run(program, &bound, on.isa(), on.team());
    }
}

impl EmitKernel for Emitter {
    fn emit(&self, f: &TensorFunction, kernel: Name, _: &DeviceProfile) -> Result<EmittedKernel, EmitFailure> {
        let made = Kernel::new(f, kernel).map_err(EmitFailure::Lowering)?;
        if f.symbols.is_empty() {
            // What a task cannot do (threads, workgroup memory) is for other devices.
            made.program(&[]).map_err(EmitFailure::BeyondDevice)?;
        }
        let open = grid(f, kernel);
        let closed = [0, 1, 2].map(|a| open[a].as_const().and_then(|n| u32::try_from(n).ok()));
        let [Some(x), Some(y), Some(z)] = closed else {
            return Ok(emitted(f, kernel, made, [1; 3], Some(OpenGrid { extents: open, row: None, most: u32::MAX })));
        };
        Ok(emitted(f, kernel, made, [x, y, z], None))
    }
    /// None: kernels are data.
    fn spirv(&self, _: &EmittedKernel) -> Result<Vec<u32>, String> {
        Ok(vec![])
    }
    fn saved_form(&self) -> &'static str {
        "tensor function 1"
    }
    fn save(&self, kernel: &EmittedKernel) -> Result<Vec<u8>, String> {
        let k = kernel.module.downcast_ref::<Kernel>().ok_or("the kernel has another generator")?;
        // The form that keeps the numbers of buffers, which bindings name.
        postcard::to_stdvec(&k.function).map_err(|e| e.to_string())
    }
    fn restore(&self, bytes: &[u8]) -> Result<Arc<dyn Any + Send + Sync>, String> {
        let f: TensorFunction = postcard::from_bytes(bytes).map_err(|e| e.to_string())?;
        let kernel = f.kernels().first().map(|k| k.0).ok_or("a kernel without a body")?;
        let made = Kernel::new(&f, kernel)?;
        if f.symbols.is_empty() {
            // The bytes may come from a stranger: names and numbers that are none would end a run.
            let translated = catch_unwind(AssertUnwindSafe(|| made.program(&[])));
            translated.map_err(|_| format!("kernel `{kernel}` names what is not there"))??;
        }
        Ok(Arc::new(made))
    }
    fn check_restored(&self, kernel: &EmittedKernel) -> Result<(), String> {
        let made = kernel.module.downcast_ref::<Kernel>().ok_or("the kernel has another generator")?;
        let same = kernel.bindings == bindings(&made.function)
            && kernel.immediate_bytes as usize == 4 * made.function.symbols.len();
        if same { Ok(()) } else { Err("it has other bindings than its function".into()) }
    }
}

fn emitted(
    f: &TensorFunction,
    kernel: Name,
    made: Kernel,
    grid: [u32; 3],
    open_grid: Option<OpenGrid>,
) -> EmittedKernel {
    EmittedKernel {
        name: kernel.to_string(),
        workgroup: [1; 3],
        grid,
        open_grid,
        open_rounds: None,
        bindings: bindings(&made.function),
        immediate_bytes: 4 * f.symbols.len() as u32,
        uniform_bytes: 0,
        shared_bytes: 0,
        bounds_proved: true,
        wgsl: print_tensor_function(&made.function),
        lines: vec![],
        module: Arc::new(made),
    }
}

/// The global buffers that the kernel accesses, those that it writes with that access.
fn bindings(f: &TensorFunction) -> Vec<Binding> {
    let blocks = f.body.blocks();
    let each = f.buffers.iter().filter(|(_, b)| b.scope == Scope::Global).filter_map(|(buffer, _)| {
        let written = blocks.iter().any(|b| b.buffer == buffer);
        let access = if written { Access::Write } else { Access::Read };
        blocks.iter().any(|b| b.accesses(buffer)).then_some(Binding { buffer, slice: 0, access })
    });
    each.collect()
}

/// Workgroups along x, y and z.
fn grid(f: &TensorFunction, kernel: Name) -> [tensor_ir::int::Int; 3] {
    let mut grid = [1, 1, 1].map(tensor_ir::int::Int::new);
    let none = Bounds::new();
    for (_, body) in f.kernels().into_iter().filter(|k| k.0 == kernel) {
        body.visit(&mut |s| {
            if let Stmt::For(l) = s
                && let LoopKind::Group(a) = l.kind
            {
                let axis = &mut grid[usize::from(a)];
                *axis = tensor_ir::int::simplify(&axis.max(l.extent.clone()), &none);
            }
        });
    }
    grid
}

#[cfg(test)]
mod tests {
    use super::*;
    use tensor_ir::text::parse_tensor_function;

    /// Saved kernels may come from a stranger's bundle: one that names a loop that is not there must not be restored.
    #[test]
    fn a_forged_kernel_is_refused() {
        let text = "tensor @t(%x: f32[4], out %y: f32[4]) {\n  kernel k {\n    for loop_i in 0..4 { block y { %y[loop_i] <- \
                    %x[loop_i] } }\n  }\n}\n";
        let f = parse_tensor_function(text).expect("it parses");
        let bytes = postcard::to_stdvec(&Kernel::new(&f, Name::new("k")).expect("a kernel").function).expect("bytes");
        assert!(Emitter.restore(&bytes).is_ok());
        let mut refused = 0;
        for at in (0..bytes.len()).filter(|&at| bytes[at..].starts_with(b"loop_i")) {
            let mut forged = bytes.clone();
            forged[at + 5] = b'j';
            refused += usize::from(Emitter.restore(&forged).is_err());
        }
        assert!(refused > 0, "a use of a loop that is not there was restored");
        for bit in 0..8 * bytes.len() {
            let mut forged = bytes.clone();
            forged[bit / 8] ^= 1 << (bit % 8);
            // Whatever it is, it is an error or a kernel.
            let _ = Emitter.restore(&forged);
        }
    }
}
