//! Index expressions, conditions and value expressions.

use crate::attr::print::print_float;
use crate::dtype::DType;
use crate::int::Int;
use crate::int::print::{self, infix};
use crate::tir::{BinaryOp, BufferId, Cond, Expr, Scalar, TensorFunction};

/// `%name` of a buffer; a number for one that is not there.
pub(super) fn buffer_name(f: Option<&TensorFunction>, b: BufferId) -> String {
    f.map_or_else(|| print::number(b), |f| f.buffer_text(b))
}

/// The text of an element of a buffer.
pub(super) fn print_element(b: BufferId, indices: &[Int], f: Option<&TensorFunction>) -> String {
    print::print_element(b, indices, &|b| buffer_name(f, b))
}

/// Infix, with the parentheses that the tree needs: `(i*4 + j) % 8`. `f` names the buffers of loads.
pub fn print_int(e: &Int, f: Option<&TensorFunction>) -> String {
    print::print_int(e, &|b| buffer_name(f, b))
}

/// `i*4 + j < 30`
pub fn print_cond(c: &Cond, f: Option<&TensorFunction>) -> String {
    print::print_cond(c, &|b| buffer_name(f, b))
}

pub(super) fn print_conds(list: &[Cond], f: Option<&TensorFunction>) -> String {
    let items: Vec<String> = list.iter().map(|c| print_cond(c, f)).collect();
    items.join(", ")
}

/// A value expression: infix arithmetic and comparisons, the rest as function calls.
pub fn print_expr(e: &Expr, f: Option<&TensorFunction>) -> String {
    let mut out = String::new();
    write_expr(&mut out, e, 0, f);
    out
}

/// Operator and binding strength of the infix operators; all associate to the left, comparisons not at all.
pub(in crate::text) fn infix_op(op: BinaryOp) -> Option<(&'static str, u8)> {
    op.infix().filter(|i| i.1 > 0)
}

fn write_expr(out: &mut String, e: &Expr, parent: u8, f: Option<&TensorFunction>) {
    let call = |out: &mut String, name: &str, args: &[&Expr]| {
        out.push_str(name);
        out.push('(');
        for (i, a) in args.iter().enumerate() {
            if i > 0 {
                out.push_str(", ");
            }
            write_expr(out, a, 0, f);
        }
        out.push(')');
    };
    match e {
        Expr::Const(v, t) => {
            let text = print_scalar(*v, *t);
            infix(out, text.starts_with('-') && parent > 2, |out| out.push_str(&text));
        }
        Expr::Index(i, t) => out.push_str(&format!("idx({}):{t}", print_int(i, f))),
        Expr::Load(b, ix) => out.push_str(&print_element(*b, ix, f)),
        Expr::Unary(op, a) => call(out, &op.name(), &[a]),
        Expr::Binary(op, a, b) => match infix_op(*op) {
            Some((symbol, level)) => infix(out, parent > level, |out| {
                // A comparison inside a comparison needs parentheses on both sides.
                write_expr(out, a, level + u8::from(level == 1), f);
                out.push_str(&format!(" {symbol} "));
                write_expr(out, b, level + 1, f);
            }),
            None => call(out, &op.name(), &[a, b]),
        },
        Expr::All(c) => out.push_str(&format!("all({})", print_conds(c, f))),
        Expr::Select(c, a, b) => call(out, "select", &[c, a, b]),
        Expr::Cast(t, a) => call(out, t.name(), &[a]),
    }
}

/// `1.5` (f32), `1.5:f16`, `3:i32`, `true`.
fn print_scalar(v: Scalar, t: DType) -> String {
    match (v, t) {
        (Scalar::Int(0), DType::Bool) => "false".to_string(),
        (Scalar::Int(1), DType::Bool) => "true".to_string(),
        (Scalar::Float(x), _) if x.is_nan() && x.to_bits() != f64::NAN.to_bits() => {
            format!("nan({}):{t}", x.to_bits())
        }
        (Scalar::Float(x), DType::F32) => print_float(x),
        (Scalar::Float(x), _) => format!("{}:{t}", print_float(x)),
        (Scalar::Int(x), _) => format!("{x}:{t}"),
    }
}
