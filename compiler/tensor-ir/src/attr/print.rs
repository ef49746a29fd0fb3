//! Text of attributes: `{pads=[1,1,1,1], mode=linear}`.

use super::value::{Attr, Attrs};
use crate::bare;
use crate::int::print::{BufferName, number, print_int};

/// ` {key=value, ...}` with a leading space, or nothing without attributes; `name` names the buffers that index
/// expressions read.
pub(crate) fn print_attrs_with(attrs: &Attrs, name: BufferName<'_>) -> String {
    if attrs.is_empty() {
        return String::new();
    }
    let list: Vec<String> = attrs.iter().map(|(k, v)| format!("{k}={}", print_attr(v, name))).collect();
    format!(" {{{}}}", list.join(", "))
}

/// ` {key=value, ...}` with a leading space, or nothing without attributes.
pub fn print_attrs(attrs: &Attrs) -> String {
    print_attrs_with(attrs, &number)
}

/// One value: `[1,1]`.
pub fn print_value(a: &Attr) -> String {
    print_attr(a, &number)
}

fn print_attr(a: &Attr, name: BufferName<'_>) -> String {
    match a {
        Attr::Int(v) => v.to_string(),
        Attr::Float(v) => print_float(*v),
        Attr::Bool(v) => v.to_string(),
        Attr::Str(s) => bare::name(s),
        Attr::List(l) => {
            let items: Vec<String> = l.iter().map(|a| print_attr(a, name)).collect();
            format!("[{}]", items.join(","))
        }
        Attr::DType(t) => t.to_string(),
        Attr::Expr(e) => format!("`{}`", print_int(e, name)),
    }
}

/// The shortest text that reads back as `v`: always with a point, an exponent, `inf` or `nan`.
pub(crate) fn print_float(v: f64) -> String {
    if v.is_nan() { "nan".to_string() } else { format!("{v:?}") }
}
