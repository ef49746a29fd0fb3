//! Plans as bytes, for caches and bundles.
//!
//! The bytes hold a plan without closures: shaders in their generator's form, packers as text. They do not say which
//! form that is: a cache's key has the build that wrote them, a bundle the text of [`Plan::saved_form`]. Host functions
//! of steps are bound again from the module after its passes (`compile::bind_host_steps`).

use super::{EmitKernel, Plan};
use std::any::Any;
use std::sync::Arc;

/// The version of the bytes, generators' forms left out. Postcard stores no field names, so every change of a type in a
/// plan needs a new one; a test fails if the layout changes.
const VERSION: u32 = 2;

/// Why a plan is not saved, or bytes are no plan.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum SavedPlanError {
    /// The generator does not keep its shaders, or does not know these.
    #[error("kernel {kernel}: {why}")]
    Shader {
        /// The kernel.
        kernel: String,
        /// The generator's error.
        why: String,
    },
    /// The bytes are not a saved plan, or are damaged.
    #[error("not a saved plan: {0}")]
    Damaged(String),
}

impl Plan {
    /// The form of the plans that this build writes and reads with this generator; plans of the same form can be read.
    pub fn saved_form(emitter: &dyn EmitKernel) -> String {
        format!("plan {VERSION}, {}", emitter.saved_form())
    }

    /// The plan as bytes. `emitter` has made its kernels.
    ///
    /// # Errors
    /// [`SavedPlanError::Shader`].
    pub fn to_bytes(&self, emitter: &dyn EmitKernel) -> Result<Vec<u8>, SavedPlanError> {
        let shader = |k: &super::PlanKernel| {
            emitter.save(&k.emitted).map_err(|why| SavedPlanError::Shader { kernel: k.name.clone(), why })
        };
        let shaders = self.kernels.iter().map(shader).collect::<Result<Vec<_>, _>>()?;
        postcard::to_stdvec(&(self, shaders)).map_err(|e| SavedPlanError::Damaged(e.to_string()))
    }

    /// A plan from the bytes that [`Plan::to_bytes`] gave. Its host steps compute nothing until they are bound.
    ///
    /// # Errors
    /// Other bytes.
    pub fn from_bytes(bytes: &[u8], emitter: &dyn EmitKernel) -> Result<Plan, SavedPlanError> {
        let read = postcard::from_bytes::<(Plan, Vec<Vec<u8>>)>(bytes);
        let (mut plan, shaders) = read.map_err(|e| SavedPlanError::Damaged(e.to_string()))?;
        if shaders.len() != plan.kernels.len() {
            return Err(SavedPlanError::Damaged(format!("{} shaders, {} kernels", shaders.len(), plan.kernels.len())));
        }
        for (kernel, shader) in plan.kernels.iter_mut().zip(&shaders) {
            let restored = emitter.restore(shader);
            let refused = |why| SavedPlanError::Shader { kernel: kernel.name.clone(), why };
            kernel.emitted.module = restored.map_err(refused)?;
            emitter.check_restored(&kernel.emitted).map_err(refused)?;
        }
        plan.check().map_err(SavedPlanError::Damaged)?;
        Ok(plan)
    }
}

/// Stands for a shader until it is restored.
pub(super) fn no_module() -> Arc<dyn Any + Send + Sync> {
    Arc::new(())
}

/// A packer as the text of its tensor function.
pub(super) mod packer_text {
    use crate::text::{parse_tensor_function, print_tensor_function};
    use crate::tir::TensorFunction;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};
    use std::sync::Arc;

    pub fn serialize<S: Serializer>(packer: &Option<Arc<TensorFunction>>, to: S) -> Result<S::Ok, S::Error> {
        packer.as_ref().map(|p| print_tensor_function(p)).serialize(to)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Arc<TensorFunction>>, D::Error> {
        let text: Option<String> = Option::deserialize(from)?;
        let parse = |t: String| parse_tensor_function(&t).map(Arc::new).map_err(serde::de::Error::custom);
        text.map(parse).transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arena::Id;
    use crate::dtype::DType;
    use crate::fingerprint::Fingerprint;
    use crate::int::Int;
    use crate::name::Name;
    use crate::plan::steps::no_computation;
    use crate::plan::*;
    use crate::tir::{Access, Encoding};

    fn view(buffer: usize) -> BufferView {
        let (name, dtype, encoding) = (Name::new("v"), DType::I64, Encoding::Narrow);
        BufferView { name, buffer, dtype, shape: vec![2, 3], encoding }
    }

    /// Every type of a plan, with values that differ.
    fn plan() -> Plan {
        let name = Name::new("f");
        let emitted = EmittedKernel {
            name: "k".into(),
            workgroup: [1, 2, 3],
            grid: [4, 5, 6],
            open_grid: Some(OpenGrid { extents: [1, 2, 3].map(Int::new), row: Some(7), most: 8 }),
            open_rounds: Some((Int::new(9), 10)),
            bindings: vec![Binding { buffer: Id::from_index(1), slice: 2, access: Access::Write }],
            immediate_bytes: 11,
            uniform_bytes: 16,
            shared_bytes: 12,
            bounds_proved: true,
            wgsl: "text".into(),
            lines: vec![LineSpan { first: 13, count: 14, block: Some(name), r#loop: None }],
            module: no_module(),
        };
        let dispatch = Dispatch {
            kernel: 0,
            buffers: vec![(1, 2)],
            grid: [3, 4, 5],
            symbols: vec![-6],
            group: 7,
            flops: 8,
            bytes: 9,
        };
        let call = Some(HostCall { function: name, on_device: true, external: false });
        let (inputs, outputs) = (vec![view(1)], vec![view(2)]);
        let host = HostStep { name, inputs, outputs, node: 3, run: no_computation(), call, group: 4 };
        let handover = Handover { from: 1, to: 2 };
        let call = Call { callee: 0, arguments: vec![handover], results: vec![], group: 5 };
        let then = vec![Step::Gpu(vec![dispatch]), Step::Host(host)];
        let otherwise = vec![Step::Copy { from: 1, to: 2 }, Step::Call(call)];
        let trips = [Trips::Fixed(5), Trips::Read(view(3)), Trips::Unlimited];
        let repeat = |trips: Trips| {
            Step::Loop(Loop {
                trips,
                begin: Some(view(1)),
                go_on: None,
                index: Some(view(2)),
                body: vec![],
                carried: vec![Carried { now: 1, next: 2 }],
                collected: vec![Collected { row: view(4), all: 5, row_bytes: 6, grows: true }],
                group: 7,
            })
        };
        let branch = Step::Branch(Branch { condition: view(0), then, otherwise, group: 6 });
        let steps = [branch].into_iter().chain(trips.map(repeat)).collect();
        let host = [HostContent::Input(1), HostContent::Constant(name), HostContent::Value(2)].map(Content::Host);
        let others = [Content::Input(0), Content::Constant { name, packer: None }, Content::Pool];
        let buffer = |content| PlanBuffer { content, bytes: 16, slice_bytes: 32, encoding: Some(Encoding::Native) };
        Plan {
            buffers: others.into_iter().chain(host).map(buffer).collect(),
            kernels: vec![PlanKernel { name: "layer".into(), emitted, function: name, part: name }],
            steps,
            inputs: vec![view(0)],
            outputs: vec![view(1)],
            functions: vec![PlanFunction { name, body: vec![], buffers: vec![1, 2] }],
        }
    }

    /// If this fails, a type of plans has changed: give `VERSION` the next number, and write the digest anew.
    #[test]
    fn a_changed_layout_needs_a_new_version() {
        let bytes = postcard::to_stdvec(&plan()).expect("bytes");
        let digest = Fingerprint::of(|w| w.bytes(&bytes)).to_string();
        assert_eq!((VERSION, &digest[..16]), (2, "44988f57fdfe3ee0"), "{} bytes", bytes.len());
    }
}
