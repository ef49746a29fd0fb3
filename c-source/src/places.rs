//! Where the tensors of a plan are in memory, and the types of their elements.

use crate::expr::stored_type;
use tensor_ir::dtype::DType;
use tensor_ir::plan::{BufferView, Content, HostContent, Plan, PlanBuffer};

/// What arena and blob are aligned to, and every place in them.
const ALIGNED: u64 = 64;

/// Bytes of the memory that a run of the plan writes: inputs and intermediates.
pub fn arena_bytes(plan: &Plan) -> u64 {
    let own = |b: &&PlanBuffer| matches!(b.content, Content::Input(_) | Content::Pool);
    plan.buffers.iter().filter(own).map(|b| b.bytes.next_multiple_of(ALIGNED)).sum()
}

/// Where the plan's buffers are: in the arena, in the blob of constants, or where the caller has an input.
pub(crate) struct Places {
    all: Vec<Option<String>>,
    /// The constants.
    pub blob: Vec<u8>,
}

/// Lays out the plan. `packed` has the bytes of a constant's buffer.
///
/// # Errors
/// What `packed` says.
pub(crate) fn places(plan: &Plan, packed: &dyn Fn(&PlanBuffer) -> Result<Vec<u8>, String>) -> Result<Places, String> {
    let mut p = Places { all: vec![], blob: vec![] };
    let mut arena = 0;
    for b in &plan.buffers {
        let place = match &b.content {
            Content::Input(_) | Content::Pool => {
                let at = arena;
                arena += b.bytes.next_multiple_of(ALIGNED);
                Some(format!("arena + {at}"))
            }
            Content::Constant { .. } => {
                let at = p.blob.len() as u64;
                let mut bytes = packed(b)?;
                let length = (bytes.len() as u64).max(b.bytes).next_multiple_of(ALIGNED);
                bytes.resize(usize::try_from(length).map_err(|e| e.to_string())?, 0);
                p.blob.extend(bytes);
                Some(format!("weights + {at}"))
            }
            Content::Host(HostContent::Input(n)) => Some(format!("inputs[{n}]")),
            Content::Host(_) => None,
        };
        p.all.push(place);
    }
    Ok(p)
}

impl Places {
    /// The address of a buffer, as an expression.
    ///
    /// # Errors
    /// The host makes it; `name` is what it has.
    pub fn of(&self, buffer: usize, name: &str) -> Result<String, String> {
        self.all[buffer].clone().ok_or_else(|| format!("`{name}` is made on the host, step by step"))
    }
}

/// The C type of an element outside.
pub(crate) fn host_type(t: DType) -> &'static str {
    match t {
        DType::F32 => "float",
        DType::F64 => "double",
        DType::F16 | DType::BF16 | DType::U16 => "uint16_t",
        DType::Bool | DType::U8 => "uint8_t",
        DType::I8 => "int8_t",
        DType::I16 => "int16_t",
        DType::I32 => "int32_t",
        DType::U32 => "uint32_t",
        DType::U64 => "uint64_t",
        _ => "int64_t",
    }
}

/// The C type of an element of a view where it is.
pub(crate) fn view_type(plan: &Plan, v: &BufferView) -> &'static str {
    match plan.buffers[v.buffer].content {
        Content::Host(_) => host_type(v.dtype),
        _ => stored_type(v.dtype, v.encoding, true),
    }
}
