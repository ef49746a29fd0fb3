//! `set-scope`: moves a buffer to another memory.
//!
//! Before -> after, `set-scope {buffer=t, scope=shared}`: the loops stay, `t` is workgroup memory. Right only when every
//! access sees the same elements as before: the loops between its writer and its readers are the caller's business.

use super::loops::find_buffer;
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
        f.buffers[id].scope = self.scope.scope();
        Ok(())
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
    }
}
