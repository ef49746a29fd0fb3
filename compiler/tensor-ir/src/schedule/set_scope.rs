//! `set-scope`: moves a buffer to another memory.
//!
//! Before -> after, `set-scope {buffer=t, scope=shared}`: the loops stay, `t` is in workgroup memory. Refused if an
//! access would no longer see the same elements.

use super::loops::{find_buffer, reductions_into};
use super::{Instruction, Refusal};
use crate::name::Name;
use crate::tir::{Scope, TensorFunction};
use crate::{attr_enum, attr_struct};

attr_enum! {
    /// A memory.
    pub enum MemoryScope {
        /// Device memory.
        Global = "global",
        /// Workgroup memory.
        Shared = "shared",
        /// Private to each thread.
        Register = "register",
    }
}
impl MemoryScope {
    /// The buffer scope.
    pub fn scope(self) -> Scope {
        match self {
            MemoryScope::Global => Scope::Global,
            MemoryScope::Shared => Scope::Shared,
            MemoryScope::Register => Scope::Register,
        }
    }
}

attr_struct! {
    /// Sets the memory of a buffer that is not a parameter.
    pub struct SetScope("set-scope") {
        /// The buffer.
        pub buffer: Name = "".into(),
        /// The memory.
        pub scope: MemoryScope = MemoryScope::Global,
    }
}

impl Instruction for SetScope {
    fn apply(&self, f: &mut TensorFunction) -> Result<(), Refusal> {
        let id = find_buffer(f, self.buffer)?;
        if f.params.iter().any(|p| p.buffer == id) {
            return Err(Refusal::at(self.buffer, "a parameter stays in device memory"));
        }
        let before = reductions_into(f, id);
        f.buffers[id].move_to(self.scope.scope());
        // A buffer that is not global lives anew in each iteration of the loops around its life.
        match before.iter().zip(reductions_into(f, id)).find(|(a, b)| **a != *b) {
            Some((a, _)) => Err(Refusal::at(a.0, format!("would not start anew where `{}` does now", self.buffer))),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::schedule::testing::*;
    use crate::tir::Scope;

    #[test]
    fn sets_the_scope_of_a_local_buffer() {
        let f = matmul(3, 4, 5);
        let g = scheduled(&f, &["compute-at {block=mm, at=y_i0}", "set-scope {buffer=mm, scope=shared}"]);
        assert_eq!(g.buffers.iter().find(|b| b.1.name == "mm".into()).expect("buffer").1.scope, Scope::Shared);
        assert_same(&f, &g);
        assert!(refusal(&f, "set-scope {buffer=y, scope=shared}").contains("parameter"));
        assert!(refusal(&g, "set-scope {buffer=mm, scope=global}").contains("start anew"));
        let large = matmul(3000, 4000, 5);
        assert!(refusal(&large, "set-scope {buffer=mm, scope=shared}").contains("46875 KiB inside a workgroup"));
    }
}
