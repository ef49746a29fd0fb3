//! Plans as bytes, for caches and bundles.
//!
//! The bytes hold a plan without closures: shaders in their generator's form, packers as text. They do not say which
//! form that is: a cache's key has the build that wrote them, a bundle the text of [`saved_form`]. Host functions of
//! steps are bound again from the module after its passes (`compile::bind_host_steps`).

use super::{EmitKernel, HostComputation, Plan};
use std::any::Any;
use std::sync::Arc;

/// The version of the bytes, generators' forms left out. Postcard stores no field names, so every change of a type in a
/// plan needs a new one; a test fails if the layout changes.
const VERSION: u32 = 1;

/// The form of the plans that this build writes and reads with this generator; plans of the same form can be read.
pub fn saved_form(emitter: &dyn EmitKernel) -> String {
    format!("plan {VERSION}, {}", emitter.saved_form())
}

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
            kernel.emitted.module =
                restored.map_err(|why| SavedPlanError::Shader { kernel: kernel.name.clone(), why })?;
        }
        Ok(plan)
    }
}

/// Stands for a shader until it is restored.
pub(super) fn no_module() -> Arc<dyn Any + Send + Sync> {
    Arc::new(())
}

/// Placeholder for the computation of a host step until it is bound.
pub(super) fn no_computation() -> HostComputation {
    Arc::new(|_, _| Err("the step of a saved plan is not bound to its module".into()))
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
