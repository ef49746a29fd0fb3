//! Constants on their way to the device: read, packed, encoded and written one after another, large ones a few rows at a time,
//! so that the host never holds much more than the largest of them.

use crate::device::Gpu;
use crate::error::GpuError;
use crate::storage::encode_tensor;
use compiler::graph::Module;
use compiler::name::Name;
use compiler::plan::{Content, Plan, PlanBuffer};
use compiler::tensor::Tensor;
use compiler::tir::{Encoding, TensorFunction};
use std::sync::Arc;

/// Bytes that are packed at once, and bytes of mapped buffers that may wait for the device to take them.
const PORTION: usize = 16 << 20;

/// Uploads the constants of a module.
pub(crate) struct Upload<'a> {
    gpu: &'a Gpu,
    module: &'a Module,
    /// Bytes written since the device last took over what was mapped.
    waiting: usize,
}

impl<'a> Upload<'a> {
    pub(crate) fn new(gpu: &'a Gpu, module: &'a Module) -> Self {
        Upload { gpu, module, waiting: 0 }
    }

    /// Fills the mapped slices of buffer `b` with constant `name`, through `packer` where there is one; with `packed`, which has been
    /// made of it before, instead.
    ///
    /// # Errors
    /// An unreadable constant, a value without a storage form, a lost device.
    pub(crate) fn constant(
        &mut self,
        name: Name,
        packer: Option<&TensorFunction>,
        packed: Option<&[u8]>,
        b: &PlanBuffer,
        slices: &[wgpu::Buffer],
    ) -> Result<(), GpuError> {
        let mut at = 0;
        let mut write = |bytes: &[u8]| -> Result<(), GpuError> {
            copy(slices, b.slice_bytes as usize, at, bytes)?;
            at += bytes.len();
            Ok(())
        };
        match packed {
            Some(bytes) => write(bytes)?,
            None => storage_parts(self.module, name, packer, b.encoding, &mut write)?,
        }
        slices.iter().for_each(wgpu::Buffer::unmap);
        self.waiting += b.bytes as usize;
        if self.waiting > PORTION { self.hand_over() } else { Ok(()) }
    }

    /// What was mapped stays in host memory until a submission takes it.
    fn hand_over(&mut self) -> Result<(), GpuError> {
        self.waiting = 0;
        self.gpu.queue.submit([]);
        self.gpu.wait()
    }
}

/// Calls `write` with the bytes of constant `name` in storage form, packed where there is a packer, in order and a portion at a time.
///
/// # Errors
/// An unreadable constant, a value without a storage form, what `write` says.
pub(crate) fn storage_parts(
    module: &Module,
    name: Name,
    packer: Option<&TensorFunction>,
    encoding: Option<Encoding>,
    write: &mut dyn FnMut(&[u8]) -> Result<(), GpuError>,
) -> Result<(), GpuError> {
    let host = |e: String| GpuError::Host(format!("constant {name}: {e}"));
    let source = load_constant(module, name)?;
    let mut encoded = |t: &Tensor| -> Result<(), GpuError> {
        let narrow = if t.dtype().size() == 8 { Encoding::Narrow } else { Encoding::Native };
        write(&encode_tensor(t, encoding.unwrap_or(narrow)).map_err(host)?)
    };
    let Some(f) = packer else { return encoded(&source) };
    let source = [source];
    for part in portions(f) {
        let packed = compiler::cpu::run_tensor_function(part.as_ref().unwrap_or(f), &source);
        let packed = packed.map_err(|e| host(format!("packing: {e}")))?.pop();
        encoded(&packed.ok_or_else(|| host("its packer has no result".into()))?)?;
    }
    Ok(())
}

/// Reads a constant.
///
/// # Errors
/// When its source does not give its data.
pub(crate) fn load_constant(module: &Module, name: Name) -> Result<Tensor, GpuError> {
    let c = module.constants.get(&name);
    let c = c.ok_or_else(|| GpuError::Internal(format!("constant {name} is not in the module")))?;
    c.load().map_err(|e| GpuError::Host(format!("constant {name}: {e}")))
}

/// Functions that compute the result of `f` a portion at a time, in order; `None` stands for all of it. A portion ends at a
/// multiple of 8 bytes, where mapped memory may be split.
fn portions(f: &TensorFunction) -> Vec<Option<TensorFunction>> {
    let Some((rows, row)) = f.result_rows() else { return vec![None] };
    let element = f.outputs().next().map_or(4, |b| f.buffers[b].dtype.size());
    let at_once = (PORTION / (row * element).max(1)).max(1);
    if at_once >= rows || !(row * element * at_once).is_multiple_of(8) {
        return vec![None];
    }
    (0..rows).step_by(at_once).map(|start| f.with_rows(start, at_once.min(rows - start))).collect()
}

/// Writes `bytes` at `offset` of the data that the slices hold together.
fn copy(slices: &[wgpu::Buffer], slice_bytes: usize, offset: usize, bytes: &[u8]) -> Result<(), GpuError> {
    let mut done = 0;
    while done < bytes.len() {
        let (slice, from) = ((offset + done) / slice_bytes, (offset + done) % slice_bytes);
        let n = (slice_bytes - from).min(bytes.len() - done);
        let slice =
            slices.get(slice).ok_or_else(|| GpuError::Internal("a constant is larger than its buffer".into()))?;
        let end = (from + n).next_multiple_of(4).min(slice.size() as usize);
        let range = from as u64..end as u64;
        let mut view = slice.get_mapped_range_mut(range).map_err(|e| GpuError::Internal(e.to_string()))?;
        view.slice(..n).copy_from_slice(&bytes[done..done + n]);
        done += n;
    }
    Ok(())
}

/// Where constants are, told by what they are: for each buffer of `plan`, which one of `before` holds the same constant.
pub(crate) fn same_constants(before: &Plan, plan: &Plan) -> Vec<Option<usize>> {
    let same = |a: &PlanBuffer, b: &PlanBuffer| match (&a.content, &b.content) {
        (Content::Constant { name: a, packer: p }, Content::Constant { name: b, packer: q }) => {
            a == b && p.as_ref().map(Arc::as_ptr) == q.as_ref().map(Arc::as_ptr)
        }
        (Content::Host(a), Content::Host(b)) => a == b,
        _ => false,
    };
    plan.buffers.iter().map(|b| before.buffers.iter().position(|a| same(a, b))).collect()
}
