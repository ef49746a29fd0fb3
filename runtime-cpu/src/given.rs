//! Inputs that are read where they lie, and results that are computed into the memory that is handed out.

use crate::CpuError;
use crate::constants::Place;
use crate::session::Run;
use std::borrow::Cow;
use tensor_ir::dtype::DType;
use tensor_ir::plan::storage::{encode_tensor, is_stored_as_it_is};
use tensor_ir::plan::{BufferView, Content, HostContent, Step};
use tensor_ir::tensor::{Tensor, reserve};

impl Run<'_> {
    pub(crate) fn inputs_on_host(&mut self, inputs: &[Tensor]) {
        for (i, b) in self.session.plan.buffers.iter().enumerate() {
            if let Content::Host(HostContent::Input(n)) = b.content {
                self.host[i] = inputs.get(n).cloned();
            }
        }
    }
    /// The place of an input's own bytes, if kernels can read it there: no step of a plan that the compiler made writes
    /// to an input; a stranger's plan may.
    pub(crate) fn where_it_lies(&self, view: &BufferView, t: &Tensor) -> Option<Place> {
        let buffer = &self.session.plan.buffers[view.buffer];
        let own = matches!(buffer.content, Content::Input(_)) && !self.is_on_host(view.buffer);
        let own = own && !self.session.is_foreign;
        let Ok(Cow::Borrowed(bytes)) = encode_tensor(t, view.encoding) else { return None };
        let fits = bytes.len() as u64 >= buffer.bytes && bytes.as_ptr().cast::<u64>().is_aligned();
        (own && fits).then_some(Place { at: bytes.as_ptr().cast_mut(), bytes: bytes.len() })
    }
    /// Memory for an output that takes the place of its buffer, if kernels can write the output's own bytes there.
    pub(crate) fn memory_of(&mut self, view: &BufferView) -> Option<Vec<u8>> {
        let plan = &self.session.plan;
        let (buffer, bytes) = (&plan.buffers[view.buffer], bytes_of(view) as u64);
        let straight = |s: &Step| matches!(s, Step::Gpu(_) | Step::Host(_) | Step::Copy { .. });
        let alone = plan.outputs.iter().filter(|v| v.buffer == view.buffer).count() == 1;
        let whole = matches!(buffer.content, Content::Pool)
            && is_stored_as_it_is(view.encoding, view.dtype)
            && view.dtype != DType::Bool
            && buffer.bytes.checked_sub(bytes).is_some_and(|padding| padding < 64);
        // A plan of a stranger may leave elements unwritten: the arena holds no secret.
        if self.session.is_foreign || !whole || !alone || !plan.steps.iter().all(straight) {
            return None;
        }
        let mut memory = reserve(buffer.bytes as usize).ok()?;
        let at: *mut u8 = memory.as_mut_ptr();
        at.cast::<u64>().is_aligned().then(|| {
            self.places[view.buffer] = Place { at, bytes: buffer.bytes as usize };
            memory
        })
    }
    /// The output of this number.
    pub(crate) fn result(&mut self, number: usize, view: &BufferView) -> Result<Tensor, CpuError> {
        let Some(mut memory) = self.results[number].take() else { return self.read(view) };
        // SAFETY: there is room for the buffer, which is no shorter, and kernels have written every element: the
        // compiler has proved its schedules complete.
        unsafe { memory.set_len(bytes_of(view)) };
        Tensor::from_bytes(view.dtype, view.shape.clone(), memory.into()).map_err(CpuError::Internal)
    }
}

/// Bytes of the elements of a view that are stored as they are.
fn bytes_of(view: &BufferView) -> usize {
    view.shape.iter().product::<usize>() * view.dtype.size()
}
