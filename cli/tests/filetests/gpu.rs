//! Running on the first adapter.

use compiler::dtype::DType;
use compiler::graph::Module;
use compiler::name::Name;
use compiler::plan::{BufferView, Content, Dispatch, EmitKernel, Plan, PlanBuffer, PlanKernel, Step};
use compiler::tensor::Tensor;
use compiler::tir::{Access, BufferId, Encoding, Scope, TensorFunction};
use runtime_gpu::{Gpu, Session, SessionOptions};
use shaders_gen::Emitter;
use std::collections::HashMap;
use std::sync::Arc;

/// Runs a plan once.
pub fn run_plan(gpu: Arc<Gpu>, plan: &Plan, module: &Module, inputs: &[Tensor]) -> Result<Vec<Tensor>, String> {
    let session = Session::open(gpu, plan, module, &SessionOptions::default(), &mut |_, _, _| ());
    session.and_then(|s| s.run(inputs)).map_err(|e| e.to_string())
}

/// Runs a scheduled tensor function without symbols. Operands are in the form the kernels read (packed).
pub fn run_tensor_function(gpu: Arc<Gpu>, f: &TensorFunction, inputs: &[Tensor]) -> Result<Vec<Tensor>, String> {
    let plan = plan_function(&gpu, f)?;
    run_plan(gpu, &plan, &Module::new("main"), inputs)
}

fn plan_function(gpu: &Gpu, f: &TensorFunction) -> Result<Plan, String> {
    let mut plan = Plan::default();
    let mut places: HashMap<BufferId, usize> = HashMap::new();
    for (id, b) in f.buffers.iter().filter(|(_, b)| b.scope == Scope::Global) {
        let (shape, bytes) = constant_shape(f, id)?;
        let read = f.inputs().position(|i| i == id);
        let content = read.map_or(Content::Pool, Content::Input);
        let slice = if bytes <= gpu.profile.max_binding { bytes } else { gpu.profile.slice_bytes() };
        places.insert(id, plan.buffers.len());
        let view = view(b.name, plan.buffers.len(), b.dtype, shape, b.encoding);
        plan.buffers.push(PlanBuffer { content, bytes, slice_bytes: slice, encoding: None });
        match f.params.iter().find(|p| p.buffer == id).map(|p| p.access) {
            Some(Access::Read) => plan.inputs.push(view),
            Some(Access::Write) => plan.outputs.push(view),
            None => {}
        }
    }
    let mut dispatches = Vec::new();
    for (i, (name, _)) in f.kernels().into_iter().enumerate() {
        let emitted = Emitter.emit(f, name, &gpu.profile).map_err(|e| e.to_string())?;
        let buffers = emitted.bindings.iter().map(|b| (places[&b.buffer], b.slice)).collect();
        dispatches.push(Dispatch {
            kernel: i,
            buffers,
            grid: emitted.grid,
            symbols: vec![],
            group: 0,
            flops: 0,
            bytes: 0,
        });
        plan.kernels.push(PlanKernel { name: emitted.name.clone(), emitted, function: f.name, part: name });
    }
    plan.steps.push(Step::Gpu(dispatches));
    Ok(plan)
}

fn view(name: Name, buffer: usize, dtype: DType, shape: Vec<usize>, encoding: Encoding) -> BufferView {
    BufferView { name, buffer, dtype, shape, encoding }
}

/// Shape and bytes in storage form, a multiple of 16.
fn constant_shape(f: &TensorFunction, id: BufferId) -> Result<(Vec<usize>, u64), String> {
    let b = &f.buffers[id];
    let shape = compiler::int::const_dims(&b.shape).ok_or_else(|| format!("%{} has an open shape", b.name))?;
    let bytes = b.encoding.storage_bytes(b.dtype, shape.iter().product::<usize>() as u64);
    Ok((shape, bytes.next_multiple_of(16)))
}
