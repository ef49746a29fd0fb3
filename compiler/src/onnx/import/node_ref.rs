//! A node of the file while it is imported.

use super::super::error::{ImportError, UnsupportedOp};
use super::super::proto::{AttributeProto, NodeProto};
use super::binding::Binding;
use super::canonical_domain;
use crate::fault::{Fault, FaultKind};
use crate::graph::ValueId;
use crate::name::Name;

/// A node while it is imported: for messages and for what control structures need.
pub(super) struct NodeRef<'p> {
    pub(super) node: &'p NodeProto,
    pub(super) name: Name,
    pub(super) attrs: Vec<(&'p str, &'p AttributeProto)>,
}
impl NodeRef<'_> {
    pub(super) fn op(&self) -> String {
        self.node.op_type.clone().unwrap_or_default()
    }
    /// An error about this node.
    pub(super) fn invalid(&self, message: impl Into<String>) -> ImportError {
        ImportError::Invalid { node: self.name, op: self.op(), message: message.into() }
    }
    /// A use of an operator that is not supported.
    pub(super) fn unsupported(&self, why: impl Into<String>) -> ImportError {
        let domain = canonical_domain(self.node.domain.as_deref()).to_string();
        ImportError::Unsupported(vec![UnsupportedOp { op: self.op(), domain, nodes: vec![self.name], why: why.into() }])
    }
    /// An op's error about this node.
    pub(super) fn refused(&self, Fault { kind, message }: Fault) -> ImportError {
        match kind {
            FaultKind::Invalid => self.invalid(message),
            FaultKind::Unsupported => self.unsupported(message),
            FaultKind::TooLarge | FaultKind::NoRoom => {
                ImportError::TooLarge { node: self.name, op: self.op(), message }
            }
        }
    }
}

/// The name of a node; `OpType_index` where the file has none.
pub(super) fn node_name(prefix: &str, node: &NodeProto, index: usize) -> Name {
    match node.name.as_deref().filter(|n| !n.is_empty()) {
        Some(name) => Name::new(&format!("{prefix}{name}")),
        None => Name::new(&format!("{prefix}{}_{index}", node.op_type.as_deref().unwrap_or(""))),
    }
}

/// The operands as values, `None` for those that are left out.
///
/// # Errors
/// An operand that is a sequence.
pub(super) fn tensors(node: &NodeRef<'_>, given: &[Binding]) -> Result<Vec<Option<ValueId>>, ImportError> {
    let one = |(i, binding): (usize, &Binding)| match binding {
        Binding::Sequence(_) => Err(node.invalid(format!("input {i} is a sequence, the operator takes tensors"))),
        other => Ok(other.value()),
    };
    given.iter().enumerate().map(one).collect()
}
