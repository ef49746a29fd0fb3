//! Inputs that are read where they lie, and results that are computed into the memory that is handed out.

use crate::CpuError;
use crate::constants::Place;
use crate::result_memory::ResultMemory;
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
    /// Places for the outputs. For each, whether kernels write it in the memory that is given for it.
    ///
    /// # Errors
    /// Memory for another type or shape.
    pub(crate) fn given_memory(
        &mut self,
        inputs: &[Tensor],
        memory: &mut [Option<ResultMemory<'_>>],
    ) -> Result<Vec<bool>, CpuError> {
        let outputs = &self.session.plan.outputs;
        let mut all = vec![false; outputs.len()];
        for ((view, memory), direct) in outputs.iter().zip(memory).zip(&mut all) {
            let Some(memory) = memory.as_mut().filter(|_| self.is_written_whole(view)) else { continue };
            memory.check(view.name.as_str(), view.dtype, &view.shape)?;
            let (at, bytes) = (memory.bytes.as_mut_ptr(), memory.bytes.len());
            let range = memory.bytes.as_ptr_range();
            let apart = |t: &Tensor| {
                let input = t.bytes().as_ptr_range();
                input.end <= range.start || range.end <= input.start
            };
            let fits = bytes as u64 >= self.session.plan.buffers[view.buffer].bytes && at.cast::<u64>().is_aligned();
            if fits && inputs.iter().all(apart) {
                self.places[view.buffer] = Place { at, bytes };
                *direct = true;
            }
        }
        let own = |(view, given): (&BufferView, &bool)| if *given { None } else { self.memory_of(view) };
        self.results = outputs.iter().zip(&all).map(own).collect();
        Ok(all)
    }
    /// Memory for an output that takes the place of its buffer, if kernels can write the output's own bytes there.
    fn memory_of(&mut self, view: &BufferView) -> Option<Vec<u8>> {
        if !self.is_written_whole(view) {
            return None;
        }
        let buffer = &self.session.plan.buffers[view.buffer];
        let mut memory = reserve(buffer.bytes as usize).ok()?;
        if self.session.stores_parts {
            memory.resize(buffer.bytes as usize, 0);
        }
        let at: *mut u8 = memory.as_mut_ptr();
        at.cast::<u64>().is_aligned().then(|| {
            self.places[view.buffer] = Place { at, bytes: buffer.bytes as usize };
            memory
        })
    }
    /// True if kernels can write an output's own bytes in the place of its buffer, all of them.
    fn is_written_whole(&self, view: &BufferView) -> bool {
        let plan = &self.session.plan;
        let (buffer, bytes) = (&plan.buffers[view.buffer], bytes_of(view) as u64);
        let straight = |s: &Step| matches!(s, Step::Gpu(_) | Step::Host(_) | Step::Copy { .. });
        let alone = plan.outputs.iter().filter(|v| v.buffer == view.buffer).count() == 1;
        let whole = matches!(buffer.content, Content::Pool)
            && is_stored_as_it_is(view.encoding, view.dtype)
            && view.dtype != DType::Bool
            && buffer.bytes.checked_sub(bytes).is_some_and(|padding| padding < 64);
        // A plan of a stranger may leave elements unwritten: the arena holds no secret.
        !self.session.is_foreign && whole && alone && plan.steps.iter().all(straight)
    }
    /// The outputs, of which kernels have written the `given` ones in the caller's memory.
    pub(crate) fn outputs(
        &mut self,
        given: &[bool],
        memory: &mut [Option<ResultMemory<'_>>],
    ) -> Result<Vec<Option<Tensor>>, CpuError> {
        let mut outputs = vec![];
        for (i, (view, given)) in self.session.plan.outputs.iter().zip(given).enumerate() {
            let result = if *given { None } else { Some(self.result(i, view)?) };
            outputs.push(match (result, memory.get_mut(i)) {
                (Some(t), Some(Some(memory))) => memory.take(view.name.as_str(), &t).map(|()| None)?,
                (result, _) => result,
            });
        }
        Ok(outputs)
    }
    /// The output of this number.
    fn result(&mut self, number: usize, view: &BufferView) -> Result<Tensor, CpuError> {
        let Some(mut memory) = self.results[number].take() else { return self.read(view) };
        // SAFETY: there is room for the buffer, which is no shorter, and kernels have written every element: the
        // compiler has proved its schedules complete, but for those that store parts, where the memory was zeroed.
        unsafe { memory.set_len(bytes_of(view)) };
        Tensor::from_bytes(view.dtype, view.shape.clone(), memory.into()).map_err(CpuError::Internal)
    }
}

/// Bytes of the elements of a view that are stored as they are.
fn bytes_of(view: &BufferView) -> usize {
    view.shape.iter().product::<usize>() * view.dtype.size()
}
