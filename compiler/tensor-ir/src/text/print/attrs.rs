//! Attributes: `{pads=[1,1,1,1], mode=linear}`.

use super::expr::buffer_name;
pub use crate::attr::print::{print_attrs, print_value};
use crate::attr::{Attrs, print::print_attrs_with};
use crate::tir::TensorFunction;

/// The same inside a tensor function, whose buffers index expressions may read.
pub(super) fn print_attrs_in(attrs: &Attrs, f: Option<&TensorFunction>) -> String {
    print_attrs_with(attrs, &|b| buffer_name(f, b))
}
