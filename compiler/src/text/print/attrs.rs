//! Attributes: `{pads=[1,1,1,1], mode=linear}`.

use super::super::bare;
use super::print_int;
use crate::attr::{Attr, Attrs};
use crate::tir::TensorFunction;

/// ` {key=value, ...}` with a leading space, or nothing without attributes.
pub fn print_attrs(attrs: &Attrs) -> String {
    print_attrs_in(attrs, None)
}

/// The same inside a tensor function, whose buffers index expressions may read.
pub(super) fn print_attrs_in(attrs: &Attrs, f: Option<&TensorFunction>) -> String {
    if attrs.is_empty() {
        return String::new();
    }
    let list: Vec<String> = attrs.iter().map(|(k, v)| format!("{k}={}", print_attr(v, f))).collect();
    format!(" {{{}}}", list.join(", "))
}

/// One value: `[1,1]`.
pub fn print_value(a: &Attr) -> String {
    print_attr(a, None)
}

fn print_attr(a: &Attr, f: Option<&TensorFunction>) -> String {
    match a {
        Attr::Int(v) => v.to_string(),
        Attr::Float(v) => print_float(*v),
        Attr::Bool(v) => v.to_string(),
        Attr::Str(s) => bare::name(s),
        Attr::List(l) => {
            let items: Vec<String> = l.iter().map(|a| print_attr(a, f)).collect();
            format!("[{}]", items.join(","))
        }
        Attr::DType(t) => t.to_string(),
        Attr::Expr(e) => format!("`{}`", print_int(e, f)),
    }
}

/// The shortest text that reads back as `v`: always with a point, an exponent, `inf` or `nan`.
pub(super) fn print_float(v: f64) -> String {
    if v.is_nan() { "nan".to_string() } else { format!("{v:?}") }
}
