//! Array strides in SPIR-V modules that are written to files.
//!
//! naga writes the stride of every array. Vulkan requires it for arrays in buffers. For arrays in workgroup memory and
//! registers, whose layout the driver chooses, newer validators refuse it (VUID-StandaloneSpirv-None-10684), so it is
//! removed. wgpu gives drivers naga's own SPIR-V.

use rustc_hash::{FxHashMap, FxHashSet};

/// Words before the first instruction.
const HEADER: usize = 5;
const OP_TYPE_ARRAY: u32 = 28;
const OP_TYPE_RUNTIME_ARRAY: u32 = 29;
const OP_TYPE_STRUCT: u32 = 30;
const OP_TYPE_POINTER: u32 = 32;
const OP_DECORATE: u32 = 71;
const ARRAY_STRIDE: u32 = 6;
/// Uniform, push constant, storage buffer.
const LAID_OUT: [u32; 3] = [2, 9, 12];

/// The instructions: opcode, and all words.
fn instructions(words: &[u32]) -> impl Iterator<Item = (u32, &[u32])> {
    let mut at = HEADER;
    std::iter::from_fn(move || {
        let first = *words.get(at)?;
        let own = words.get(at..at + (first >> 16).max(1) as usize)?;
        at += own.len();
        Some((first & 0xffff, own))
    })
}

/// The module without strides of arrays that no buffer holds.
pub(crate) fn without_strides_of_locals(words: &[u32]) -> Vec<u32> {
    let mut parts: FxHashMap<u32, Vec<u32>> = FxHashMap::default();
    let mut laid_out: Vec<u32> = Vec::new();
    for (op, own) in instructions(words) {
        match (op, own) {
            (OP_TYPE_ARRAY | OP_TYPE_RUNTIME_ARRAY, [_, id, element, ..]) => drop(parts.insert(*id, vec![*element])),
            (OP_TYPE_STRUCT, [_, id, members @ ..]) => drop(parts.insert(*id, members.to_vec())),
            (OP_TYPE_POINTER, [_, _, class, to]) if LAID_OUT.contains(class) => laid_out.push(*to),
            _ => {}
        }
    }
    let mut kept: FxHashSet<u32> = FxHashSet::default();
    while let Some(id) = laid_out.pop() {
        if kept.insert(id) {
            laid_out.extend(parts.get(&id).into_iter().flatten());
        }
    }
    let mut out = words[..HEADER.min(words.len())].to_vec();
    for (op, own) in instructions(words) {
        let local = matches!((op, own), (OP_DECORATE, [_, id, ARRAY_STRIDE, ..]) if !kept.contains(id));
        if !local {
            out.extend(own);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn instruction(op: u32, operands: &[u32]) -> Vec<u32> {
        let count = operands.len() as u32 + 1;
        std::iter::once(count << 16 | op).chain(operands.iter().copied()).collect()
    }

    #[test]
    fn strides_stay_where_a_buffer_holds_the_array() {
        let (uint, length, of_buffer, inside, block, of_workgroup) = (1, 2, 3, 4, 5, 6);
        let stride = |id| instruction(OP_DECORATE, &[id, ARRAY_STRIDE, 4]);
        let types = [
            instruction(OP_TYPE_ARRAY, &[inside, uint, length]),
            instruction(OP_TYPE_RUNTIME_ARRAY, &[of_buffer, inside]),
            instruction(OP_TYPE_STRUCT, &[block, of_buffer]),
            instruction(OP_TYPE_ARRAY, &[of_workgroup, uint, length]),
            instruction(OP_TYPE_POINTER, &[7, 12, block]),
            instruction(OP_TYPE_POINTER, &[8, 4, of_workgroup]),
        ];
        let module = |strides: &[u32]| {
            let decorations: Vec<u32> = strides.iter().flat_map(|id| stride(*id)).collect();
            [vec![0; HEADER], decorations, types.concat()].concat()
        };
        assert_eq!(
            without_strides_of_locals(&module(&[of_buffer, inside, of_workgroup])),
            module(&[of_buffer, inside])
        );
    }
}
