//! Memory of sessions: blocks, places in them, and the constants of a plan.

use crate::emit::Kernel;
use crate::execute::Line;
use crate::{CpuError, Isa};
use bytes::Bytes;
use rustc_hash::FxHashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use tensor_ir::dtype::DType;
use tensor_ir::fault::Fault;
use tensor_ir::name::Name;
use tensor_ir::plan::storage::encode_tensor;
use tensor_ir::plan::{Content, HostContent, Plan, PlanBuffer};
use tensor_ir::tensor::{Tensor, ensure_room};
use tensor_ir::tir::{BufferId, Encoding, TensorFunction};

/// Memory that is aligned to cache lines.
pub(crate) struct Block {
    memory: Vec<u8>,
    /// Where the first line begins.
    first: usize,
}
impl Block {
    /// Zeros. The system has pages for them once something is written there: inputs that are read where they lie take
    /// none.
    ///
    /// # Errors
    /// More bytes than there is memory for.
    pub(crate) fn of(bytes: u64) -> Result<Block, CpuError> {
        let lines = (bytes as usize).div_ceil(64).max(1).saturating_mul(64);
        ensure_room(lines).map_err(|e| CpuError::NoRoom(format!("a buffer of the network: {e}")))?;
        // Zeros of a larger alignment would be written one by one.
        let memory = vec![0u8; lines.saturating_add(64)];
        let first = memory.as_ptr().align_offset(64);
        Ok(Block { memory, first })
    }
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        let lines = self.memory.len() - 64;
        &mut self.memory[self.first..self.first + lines]
    }
    pub(crate) fn place(&mut self) -> Place {
        let lines = self.bytes_mut();
        Place { at: lines.as_mut_ptr(), bytes: lines.len() }
    }
}

/// The buffers that runs write, at their places in one arena.
pub(crate) struct Activations {
    pub places: Vec<Place>,
    _arena: Block,
}

/// Where a buffer of the plan is.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    pub at: *mut u8,
    pub bytes: usize,
}
// SAFETY: places point into memory that the run or the session holds; nobody writes to constants after the session has
// opened.
unsafe impl Send for Place {}
// SAFETY: as above.
unsafe impl Sync for Place {}

impl Place {
    pub(crate) const NONE: Place = Place { at: std::ptr::dangling_mut::<Line>().cast(), bytes: 0 };

    pub(crate) fn read<'a>(&self, bytes: usize) -> &'a [u8] {
        // SAFETY: the place has `bytes` bytes that nothing writes while steps between kernels run: these run one after
        // another.
        unsafe { std::slice::from_raw_parts(self.at, self.bytes.min(bytes)) }
    }
    pub(crate) fn write(&self, at: usize, bytes: &[u8]) -> Result<(), CpuError> {
        if at.saturating_add(bytes.len()) > self.bytes {
            return Err(CpuError::Internal(format!("{} bytes at {at} of a buffer of {}", bytes.len(), self.bytes)));
        }
        // SAFETY: in bounds, as just checked; the source is another buffer, or the very same place.
        unsafe { std::ptr::copy(bytes.as_ptr(), self.at.add(at), bytes.len()) };
        Ok(())
    }
}

/// Constants of a plan, by buffer.
pub(crate) struct Constants {
    pub places: Vec<Place>,
    pub host: FxHashMap<usize, Tensor>,
    /// Where they are, for all sessions that share them.
    memory: Arc<Vec<Held>>,
}

/// Memory of a constant.
#[allow(dead_code, reason = "places point there")]
enum Held {
    Own(Block),
    /// Data that are packed and aligned already, such as a part of a file that is mapped.
    Given(Bytes),
}

impl Held {
    /// The memory of a buffer with these data, and its place: the data themselves if they are aligned and whole.
    fn of(b: &PlanBuffer, data: Bytes) -> Result<(Held, Place), CpuError> {
        if data.as_ptr().cast::<Line>().is_aligned() && data.len() as u64 >= b.bytes {
            let place = Place { at: data.as_ptr().cast_mut(), bytes: data.len() };
            return Ok((Held::Given(data), place));
        }
        let mut block = Block::of(b.bytes.max(data.len() as u64))?;
        block.bytes_mut()[..data.len()].copy_from_slice(&data);
        let place = block.place();
        Ok((Held::Own(block), place))
    }
}

impl Constants {
    /// New memory for the buffers of a plan that runs write.
    ///
    /// # Errors
    /// None is left.
    pub(crate) fn activations(&self, plan: &Plan) -> Result<Activations, CpuError> {
        let own = |c: &Content| matches!(c, Content::Input(_) | Content::Pool);
        let total = plan.buffers.iter().filter(|b| own(&b.content)).map(|b| b.bytes.next_multiple_of(64));
        let mut arena = Block::of(total.fold(0, u64::saturating_add))?;
        let all = arena.place();
        let mut at = 0;
        let places = plan.buffers.iter().zip(&self.places).map(|(b, constant)| {
            if !own(&b.content) {
                return *constant;
            }
            let place = Place { at: all.at.wrapping_add(at), bytes: b.bytes as usize };
            at += b.bytes.next_multiple_of(64) as usize;
            place
        });
        Ok(Activations { places: places.collect(), _arena: arena })
    }
    /// `ready`: bytes of buffers that were packed before.
    pub(crate) fn load(
        plan: &Plan,
        load: &dyn Fn(Name) -> Result<Tensor, Fault>,
        ready: &dyn Fn(usize) -> Option<Bytes>,
        isa: Isa,
    ) -> Result<Constants, CpuError> {
        let (mut places, mut memory) = (vec![Place::NONE; plan.buffers.len()], vec![]);
        let mut host = FxHashMap::default();
        for (i, b) in plan.buffers.iter().enumerate() {
            let failed = |name: Name, e: Fault| {
                let message = format!("constant {name}: {e}");
                CpuError::of(Fault { message, ..e.clone() }, |_| CpuError::Constant(name.to_string(), e.message))
            };
            let read = |name: Name| load(name).map_err(|e| failed(name, e));
            match &b.content {
                Content::Constant { name, packer } => {
                    let pack = |t| pack_constant(b, t, packer.as_deref(), isa).map_err(|e| failed(*name, e));
                    let bytes = match ready(i) {
                        Some(bytes) => bytes,
                        None => pack(read(*name)?)?.into(),
                    };
                    let (held, place) = Held::of(b, bytes)?;
                    places[i] = place;
                    memory.push(held);
                }
                Content::Host(HostContent::Constant(name)) => {
                    host.insert(i, read(*name)?);
                }
                _ => {}
            }
        }
        Ok(Constants { places, host, memory: Arc::new(memory) })
    }
    /// For another plan, of whose buffers `from` says which of these has its constant.
    pub(crate) fn of(&self, from: &[Option<usize>]) -> Constants {
        let places = from.iter().map(|i| i.map_or(Place::NONE, |i| self.places[i])).collect();
        let host = from.iter().enumerate().filter_map(|(to, i)| Some((to, self.host.get(&(*i)?)?.clone())));
        Constants { places, host: host.collect(), memory: self.memory.clone() }
    }
}

/// The bytes of `t` as kernels of any device read them: through `packer`, if there is one, in the storage form of `b`.
///
/// # Errors
/// A value without a storage form; no room.
pub fn pack_constant(
    b: &PlanBuffer,
    mut t: Tensor,
    packer: Option<&TensorFunction>,
    isa: Isa,
) -> Result<Vec<u8>, Fault> {
    if let Some(packer) = packer {
        if let Some(p) = Packing::of(b, packer) {
            return p.run(t, isa);
        }
        let packed = tensor_ir::interpreter::run_tensor_function(packer, &[t]).map_err(|e| e.to_string())?.pop();
        t = packed.ok_or("its packer has no result")?;
    }
    let narrow = if t.dtype().size() == 8 { Encoding::Narrow } else { Encoding::Native };
    encode_tensor(&t, b.encoding.unwrap_or(narrow)).map(|bytes| bytes.into_owned())
}

/// How a packer that runs as a kernel reads and writes elements of this type.
fn form_of(t: DType) -> Encoding {
    if matches!(t, DType::U8 | DType::I8) { Encoding::ByteQuad } else { Encoding::Native }
}

/// A packer that runs as a kernel.
struct Packing {
    kernel: Kernel,
    input: BufferId,
    output: BufferId,
    /// Bytes of the output.
    size: usize,
}

impl Packing {
    /// `None` for a packer that the interpreter has to run.
    fn of(b: &PlanBuffer, packer: &TensorFunction) -> Option<Packing> {
        let (input, output) = (packer.inputs().next()?, packer.outputs().next()?);
        let form = form_of(packer.buffers[output].dtype);
        if b.encoding.is_some_and(|e| e != form) {
            return None;
        }
        let kernel = Kernel::of_function(packer).filter(|k| k.program(&[]).is_ok())?;
        let elements = packer.buffers[output].numel().as_const()?;
        Some(Packing { kernel, input, output, size: elements as usize * packer.buffers[output].dtype.size() })
    }
    /// The packed bytes. Data are there twice at most at any time, as `check_weights` of the facade counts.
    fn run(&self, t: Tensor, isa: Isa) -> Result<Vec<u8>, Fault> {
        let block = |bytes: usize| Block::of(bytes as u64).map_err(|e| Fault::no_room(e.to_string()));
        let given = encode_tensor(&t, form_of(t.dtype()))?;
        let mut from = block(given.len())?;
        from.bytes_mut()[..given.len()].copy_from_slice(&given);
        drop(given);
        drop(t);
        let mut to = block(self.size)?;
        let places = [(self.input, from.place()), (self.output, to.place())].map(|(b, p)| (b, p.at, p.bytes));
        let ran = catch_unwind(AssertUnwindSafe(|| self.kernel.run_on(&places, isa)));
        ran.map_err(|_| "its packer fails")?.map_err(|e| e.to_string())?;
        drop(from);
        Ok(to.bytes_mut()[..self.size].to_vec())
    }
}
