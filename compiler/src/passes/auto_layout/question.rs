//! Questions to callbacks of other crates about the layout of an op, and their answers.

use crate::graph::TensorType;
use crate::name::Name;
use crate::ops::{DataLayout, OpRef};
use crate::profile::DeviceProfile;
use std::fmt;
use std::sync::Arc;

/// A node that a callback is asked about.
#[derive(Clone, Debug)]
pub struct LayoutQuestion<'a> {
    /// The op.
    pub op: &'a OpRef,
    /// The node's name in the model.
    pub name: Name,
    /// Types of the operands; none for those that are absent.
    pub inputs: Vec<Option<&'a TensorType>>,
    /// Types of the results.
    pub outputs: Vec<&'a TensorType>,
    /// The target.
    pub profile: &'a DeviceProfile,
}

/// The answer of a callback.
#[derive(Clone, PartialEq, Debug)]
pub enum LayoutAnswer {
    /// It runs in this layout.
    Layout(DataLayout),
    /// This op takes its place: of the same operands it gives results of the same types.
    Op(OpRef),
}

type Ask = dyn Fn(&LayoutQuestion<'_>) -> Option<LayoutAnswer> + Send + Sync;

/// A named callback, for [`PassContext::alter_layouts`](crate::passes::PassContext::alter_layouts). It must always give
/// the same answer to the same question.
#[derive(Clone)]
pub struct AlterLayout {
    pub(super) name: &'static str,
    pub(super) ask: Arc<Ask>,
}

impl AlterLayout {
    /// A callback about every op.
    pub fn new(
        name: &'static str,
        ask: impl Fn(&LayoutQuestion<'_>) -> Option<LayoutAnswer> + Send + Sync + 'static,
    ) -> AlterLayout {
        AlterLayout { name, ask: Arc::new(ask) }
    }
    /// A callback about ops of type `T`.
    pub fn of<T: 'static>(
        name: &'static str,
        ask: impl Fn(&T, &LayoutQuestion<'_>) -> Option<LayoutAnswer> + Send + Sync + 'static,
    ) -> AlterLayout {
        AlterLayout::new(name, move |q| ask(q.op.downcast::<T>()?, q))
    }
    /// Its name, which remarks show.
    pub fn name(&self) -> &'static str {
        self.name
    }
}
impl fmt::Debug for AlterLayout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AlterLayout").field(&self.name).finish()
    }
}
/// The same callback, not merely one of the same name.
impl PartialEq for AlterLayout {
    fn eq(&self, other: &AlterLayout) -> bool {
        Arc::ptr_eq(&self.ask, &other.ask)
    }
}
