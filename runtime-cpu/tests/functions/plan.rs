//! Plans of one function.

use compiler::name::Name;
use compiler::plan::{
    BufferView, Content, Dispatch, EmitFailure, EmitKernel, EmittedKernel, HostCaller, HostResult, HostSite, Plan,
    PlanBuffer, PlanKernel, Step,
};
use compiler::profile::DeviceProfile;
use compiler::tensor::Tensor;
use compiler::tir::{BufferId, Scope, TensorFunction};
use runtime_cpu::Emitter;

/// No host functions.
pub struct NoFunctions;

impl HostCaller for NoFunctions {
    fn contains(&self, _: Name) -> bool {
        false
    }
    fn call(&self, site: &HostSite, _: Vec<Tensor>, _: &[HostResult<'_>]) -> Result<Vec<Tensor>, String> {
        Err(format!("there is no function {}", site.function))
    }
}

/// A plan of one function, with constants packed when the session opens.
///
/// # Errors
/// What no task can run.
pub fn plan_of(f: &TensorFunction, constants: &[BufferId], profile: &DeviceProfile) -> Result<Plan, EmitFailure> {
    plan_by(f, constants, &|part| {
        let emitted = Emitter.emit(f, part, profile)?;
        // What is kept of a kernel makes the same kernel.
        let module = Emitter.restore(&Emitter.save(&emitted).expect("bytes")).expect("a kernel");
        Ok(EmittedKernel { module, ..emitted })
    })
}

/// A plan of one function, whose kernels `emit` makes.
///
/// # Errors
/// Those of `emit`.
pub fn plan_by(
    f: &TensorFunction,
    constants: &[BufferId],
    emit: &dyn Fn(Name) -> Result<EmittedKernel, EmitFailure>,
) -> Result<Plan, EmitFailure> {
    let shape = |b: BufferId| -> Vec<usize> {
        f.caller_shape(b).iter().map(|d| d.as_const().expect("a number") as usize).collect()
    };
    let mut plan = Plan::default();
    let inputs: Vec<BufferId> = f.inputs().filter(|b| !constants.contains(b)).collect();
    for (id, b) in f.buffers.iter().filter(|(_, b)| b.scope == Scope::Global) {
        let numel = b.numel().as_const().expect("a number") as u64;
        let packer = f.prepacks.iter().find(|p| p.buffer == id).map(|p| std::sync::Arc::new((*p.packer).clone()));
        let content = match inputs.iter().position(|i| *i == id) {
            Some(n) => Content::Input(n),
            None if constants.contains(&id) => Content::Constant { name: b.name, packer },
            None => Content::Pool,
        };
        let bytes = b.encoding.storage_bytes(b.dtype, numel);
        plan.buffers.push(PlanBuffer { content, bytes, slice_bytes: bytes, encoding: Some(b.encoding) });
    }
    let globals: Vec<BufferId> = f.buffers.iter().filter(|(_, b)| b.scope == Scope::Global).map(|(i, _)| i).collect();
    let at = |b: BufferId| globals.iter().position(|g| *g == b).expect("a global buffer");
    for (part, _) in f.kernels() {
        let emitted = emit(part)?;
        let buffers = emitted.bindings.iter().map(|b| (at(b.buffer), 0)).collect();
        let grid = emitted.grid;
        plan.kernels.push(PlanKernel { name: part.to_string(), emitted, function: f.name, part });
        let kernel = plan.kernels.len() - 1;
        plan.steps.push(Step::Gpu(vec![Dispatch {
            kernel,
            buffers,
            grid,
            symbols: vec![],
            group: 0,
            flops: 0,
            bytes: 0,
        }]));
    }
    let view = |b: BufferId| {
        let buffer = &f.buffers[b];
        let (name, dtype, encoding) = (buffer.name, buffer.dtype, buffer.encoding);
        BufferView { name, buffer: at(b), dtype, shape: shape(b), encoding }
    };
    plan.inputs = inputs.into_iter().map(view).collect();
    plan.outputs = f.outputs().map(view).collect();
    Ok(plan)
}
