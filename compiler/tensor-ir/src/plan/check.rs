//! Checks a plan that was read: its bytes may come from a stranger, who makes checksums that are right.
//!
//! Checked:
//! - each index of a buffer, slice, kernel, function and input names what is there;
//! - a binding for each binding of the kernel, a number for each of its symbols;
//! - tensors fit their buffers, in a storage form that their type has;
//! - what steps write are buffers that runs write: no constants, inputs or tensors of the caller;
//! - a value is copied between buffers of one kind: on the device, or in host memory;
//! - a loop ends.
//!
//! Not checked: what the steps compute, and in which order.

use super::storage::{has_form, stored_bytes};
use super::{
    Binding, BufferIndex, BufferView, Content, Dispatch, Handover, HostContent, Loop, MOST_TRIPS, Plan, PlanBuffer,
    Step, Trips,
};
use crate::tir::Access;

/// Slices of one buffer, at most.
const MOST_SLICES: u64 = 1 << 16;

type Checked = Result<(), String>;

impl Plan {
    /// Checks what a run takes for granted.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub(super) fn check(&self) -> Checked {
        self.buffers.iter().enumerate().try_for_each(|(i, b)| self.check_buffer(i, b))?;
        for (i, view) in self.inputs.iter().enumerate() {
            self.check_view(view)?;
            let own = [Content::Input(i), Content::Host(HostContent::Input(i))];
            require(own.contains(&self.buffers[view.buffer].content), || format!("input {i} is in another buffer"))?;
        }
        self.outputs.iter().try_for_each(|view| self.check_view(view))?;
        for f in &self.functions {
            f.buffers.iter().try_for_each(|&b| self.check_written(b))?;
        }
        self.all_steps().into_iter().try_for_each(|step| self.check_step(step))
    }

    fn check_buffer(&self, i: usize, b: &PlanBuffer) -> Checked {
        if let Content::Input(n) | Content::Host(HostContent::Input(n)) = b.content {
            require(n < self.inputs.len(), || format!("buffer {i} is for input {n}, which is not there"))?;
        }
        let aligned = b.bytes.is_multiple_of(16) && (b.bytes == 0 || b.slice_bytes > 0);
        let sane = aligned && b.bytes <= isize::MAX as u64 && b.bytes.div_ceil(b.slice_bytes.max(1)) <= MOST_SLICES;
        require(sane, || format!("buffer {i} has {} bytes in slices of {}", b.bytes, b.slice_bytes))
    }

    fn check_index(&self, b: BufferIndex) -> Checked {
        require(b < self.buffers.len(), || format!("buffer {b} is not there"))
    }

    /// A buffer that steps may write.
    fn check_written(&self, b: BufferIndex) -> Checked {
        self.check_index(b)?;
        let written = matches!(self.buffers[b].content, Content::Pool | Content::Host(HostContent::Value(_)));
        require(written, || format!("a step writes buffer {b}, which is a constant or an input"))
    }

    fn is_on_host(&self, b: BufferIndex) -> bool {
        matches!(self.buffers[b].content, Content::Host(_))
    }

    /// A tensor that fits its buffer.
    fn check_view(&self, view: &BufferView) -> Checked {
        self.check_index(view.buffer)?;
        let elements = view.shape.iter().try_fold(view.dtype.size().max(4), |n, &d| n.checked_mul(d));
        require(elements.is_some(), || format!("`{}` is larger than any memory", view.name))?;
        if self.is_on_host(view.buffer) {
            return Ok(());
        }
        let form = has_form(view.encoding, view.dtype);
        require(form, || format!("`{}` has no storage form {:?} for {}", view.name, view.encoding, view.dtype))?;
        let fits = stored_bytes(view) <= self.buffers[view.buffer].bytes;
        require(fits, || format!("`{}` does not fit buffer {}", view.name, view.buffer))
    }

    fn check_step(&self, step: &Step) -> Checked {
        match step {
            Step::Gpu(list) => list.iter().try_for_each(|d| self.check_dispatch(d)),
            Step::Host(h) => {
                h.inputs.iter().chain(&h.outputs).try_for_each(|view| self.check_view(view))?;
                h.outputs.iter().try_for_each(|view| self.check_written(view.buffer))
            }
            Step::Copy { from, to } => self.check_copy(*from, *to),
            Step::Branch(b) => self.check_view(&b.condition),
            Step::Loop(l) => self.check_loop(l),
            Step::Call(c) => {
                require(c.callee < self.functions.len(), || format!("function {} is not there", c.callee))?;
                c.handovers().try_for_each(|Handover { from, to }| self.check_copy(*from, *to))
            }
        }
    }

    fn check_dispatch(&self, d: &Dispatch) -> Checked {
        let kernel = self.kernels.get(d.kernel).ok_or_else(|| format!("kernel {} is not there", d.kernel))?;
        let (name, bindings) = (&kernel.name, &kernel.emitted.bindings);
        let symbol_bytes = kernel.emitted.immediate_bytes.saturating_add(kernel.emitted.uniform_bytes);
        let counts = bindings.len() == d.buffers.len() && symbol_bytes as usize == 4 * d.symbols.len();
        require(counts, || format!("kernel `{name}` is dispatched with other bindings or symbols than it has"))?;
        for (Binding { access, .. }, &(b, slice)) in bindings.iter().zip(&d.buffers) {
            self.check_index(b)?;
            let buffer = &self.buffers[b];
            let slices = buffer.bytes.div_ceil(buffer.slice_bytes.max(1)).max(1);
            let there = !self.is_on_host(b) && u64::from(slice) < slices;
            require(there, || format!("kernel `{name}` takes slice {slice} of buffer {b}, which is not there"))?;
            if *access == Access::Write {
                self.check_written(b)?;
            }
        }
        Ok(())
    }

    fn check_copy(&self, from: BufferIndex, to: BufferIndex) -> Checked {
        self.check_index(from)?;
        self.check_written(to)?;
        let same = self.is_on_host(from) == self.is_on_host(to);
        require(same, || format!("buffer {from} is copied to buffer {to}, which is of another kind"))
    }

    fn check_loop(&self, l: &Loop) -> Checked {
        let endless = l.go_on.is_none() && matches!(l.trips, Trips::Fixed(MOST_TRIPS..=u64::MAX) | Trips::Unlimited);
        require(!endless, || format!("a loop without a condition has {MOST_TRIPS} iterations or more"))?;
        let read = if let Trips::Read(view) = &l.trips { Some(view) } else { None };
        let all = read.into_iter().chain(&l.begin).chain(&l.go_on).chain(&l.index);
        all.chain(l.collected.iter().map(|c| &c.row)).try_for_each(|view| self.check_view(view))?;
        l.index.iter().try_for_each(|view| self.check_written(view.buffer))?;
        for c in &l.carried {
            self.check_copy(c.next, c.now)?;
            self.check_written(c.next)?;
        }
        for c in &l.collected {
            self.check_written(c.all)?;
            let of_rows = self.is_on_host(c.all)
                || !self.is_on_host(c.row.buffer) && c.row_bytes <= self.buffers[c.row.buffer].bytes;
            require(of_rows, || format!("a loop collects {} bytes of buffer {}", c.row_bytes, c.row.buffer))?;
        }
        Ok(())
    }
}

fn require(holds: bool, why: impl FnOnce() -> String) -> Checked {
    if holds { Ok(()) } else { Err(why()) }
}
