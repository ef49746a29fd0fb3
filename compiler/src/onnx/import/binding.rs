//! Meanings of a model's names during import.
//!
//! Modules have only tensors. Sequences, optionals and narrow types exist only during import:
//! - a sequence is the list of its tensors, so lengths and positions must be known, and a loop that carries one is
//!   unrolled. As an input or result of the model, element `i` of `x` is named `x.i`;
//! - an optional is its element, or nothing;
//! - a tensor of a narrow type (int4, float8 ...) is a tensor of bytes, with the type kept beside it. An importer that
//!   supports such types takes them (`ImportContext::take_narrow`), ops with `keeps_elements` move them, and all others
//!   refuse them.

use crate::graph::ValueId;
use crate::name::Name;
use crate::ops::narrow::Narrow;

/// The meaning of a name.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Binding {
    /// An operand that is left out, or an optional without an element.
    Absent,
    /// A tensor; of a type that Weft only stores, its bytes.
    Tensor(ValueId, Option<Narrow>),
    /// Tensors in order.
    Sequence(Vec<Binding>),
}

impl Binding {
    pub(super) fn tensor(value: ValueId) -> Binding {
        Binding::Tensor(value, None)
    }
    /// The value of a plain tensor.
    pub(super) fn value(&self) -> Option<ValueId> {
        match self {
            Binding::Tensor(v, _) => Some(*v),
            _ => None,
        }
    }
    /// The kind, for messages.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Binding::Absent => "nothing",
            Binding::Tensor(_, None) => "a tensor",
            Binding::Tensor(_, Some(narrow)) => narrow.name(),
            Binding::Sequence(_) => "a sequence",
        }
    }
    /// The values in order.
    pub(super) fn values(&self) -> Vec<ValueId> {
        match self {
            Binding::Absent => vec![],
            Binding::Tensor(v, _) => vec![*v],
            Binding::Sequence(list) => list.iter().flat_map(Binding::values).collect(),
        }
    }
    /// The values as results of the model: element `i` of the sequence `name` is `name.i`.
    pub(super) fn named(&self, name: &str) -> Vec<(Name, ValueId)> {
        match self {
            Binding::Absent => vec![],
            Binding::Tensor(v, _) => vec![(Name::new(name), *v)],
            Binding::Sequence(list) => {
                list.iter().enumerate().flat_map(|(i, x)| x.named(&element_name(name, i))).collect()
            }
        }
    }
    /// The same with other values, in order; `None` where there are too few.
    pub(super) fn with_values(&self, values: &mut impl Iterator<Item = ValueId>) -> Option<Binding> {
        Some(match self {
            Binding::Absent => Binding::Absent,
            Binding::Tensor(_, narrow) => Binding::Tensor(values.next()?, *narrow),
            Binding::Sequence(list) => {
                Binding::Sequence(list.iter().map(|x| x.with_values(values)).collect::<Option<_>>()?)
            }
        })
    }
    /// True if both have the same number of tensors in the same positions, with the same narrow types.
    pub(super) fn is_like(&self, other: &Binding) -> bool {
        match (self, other) {
            (Binding::Absent, Binding::Absent) => true,
            (Binding::Tensor(_, a), Binding::Tensor(_, b)) => a == b,
            (Binding::Sequence(a), Binding::Sequence(b)) => {
                a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.is_like(b))
            }
            _ => false,
        }
    }
}

/// The name of element `i` of the sequence `name`, where that is an input or a result.
pub fn element_name(name: &str, i: usize) -> String {
    format!("{name}.{i}")
}
