//! The selection seen from a group, a kernel or a remark, and values that panes keep.

use crate::once::visit;
use crate::state::Viewer;
use compiler::remark::Remark;
use std::sync::Arc;

impl Viewer {
    /// The value for a key: as it was kept, else made now.
    pub(crate) fn once<K: PartialEq + 'static, T: 'static>(
        &mut self,
        key: K,
        make: impl FnOnce(&mut Viewer) -> T,
    ) -> Arc<T> {
        if let Some(known) = self.memos.of::<K, T>().of(&key) {
            return known;
        }
        let made = make(self);
        self.memos.of::<K, T>().keep(key, made)
    }
    /// Whether something that came from these nodes is marked.
    pub fn marks(&self, origins: &[String]) -> bool {
        visit(origins.len());
        origins.iter().any(|o| self.selected().contains(o))
    }
    /// Whether a kernel runs for a marked group.
    pub fn marks_kernel(&self, kernel: usize) -> bool {
        self.trace().kernels[kernel].groups.iter().any(|&g| self.marks(&self.trace().groups[g].origins))
    }
    /// Whether a remark is about the selection.
    pub fn marks_remark(&self, r: &Remark) -> bool {
        visit(r.nodes.len());
        r.nodes.iter().any(|n| self.selected().contains(n.as_str()))
    }
}
