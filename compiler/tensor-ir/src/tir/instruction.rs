//! The interface of a schedule instruction to a tensor function, which holds a trace and pending instructions. The
//! instructions, their table and their application are in [`schedule`](crate::schedule).

use super::TensorFunction;
use crate::attr::AttrObject;
use crate::attr::print::print_attrs;
use crate::name::Name;
use std::fmt;
use std::sync::Arc;

/// One schedule instruction.
pub trait Instruction: AttrObject {
    /// Rewrites `f`. On an error `f` may be half rewritten; callers apply to a copy.
    ///
    /// # Errors
    /// A message and the loop or block it is about.
    fn apply(&self, f: &mut TensorFunction) -> Result<(), Refusal>;
    /// False for an instruction that changes nothing of any function.
    fn rewrites(&self) -> bool {
        true
    }
}

/// A message with the loop or block to mark.
#[derive(Debug, Clone)]
pub struct Refusal {
    /// The error.
    pub message: String,
    /// The loop variable or block name to mark in the printed nest.
    pub culprit: Option<Name>,
}
impl Refusal {
    /// About `culprit`.
    pub fn at(culprit: Name, message: impl Into<String>) -> Refusal {
        Refusal { message: message.into(), culprit: Some(culprit) }
    }
    /// About no place in particular.
    pub fn new(message: impl Into<String>) -> Refusal {
        Refusal { message: message.into(), culprit: None }
    }
}

/// A shared instruction.
#[derive(Clone)]
pub struct InstrRef(Arc<dyn Instruction>);
impl InstrRef {
    /// Its text: `split {loop=i, factors=[0,4]}`.
    pub fn text(&self) -> String {
        format!("{}{}", self.name(), print_attrs(&self.attrs()))
    }
    /// Wraps an instruction.
    pub fn new(i: impl Instruction) -> InstrRef {
        InstrRef(Arc::new(i))
    }
}
impl<T: Instruction> From<T> for InstrRef {
    fn from(i: T) -> InstrRef {
        InstrRef::new(i)
    }
}
impl std::ops::Deref for InstrRef {
    type Target = dyn Instruction;
    fn deref(&self) -> &(dyn Instruction + 'static) {
        &*self.0
    }
}
impl fmt::Debug for InstrRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
impl PartialEq for InstrRef {
    fn eq(&self, other: &InstrRef) -> bool {
        self.0.same(&*other.0 as &dyn AttrObject)
    }
}
