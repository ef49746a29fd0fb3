//! Text of integer expressions and conditions.

use super::{Cond, CondOp, Int, IntNode};
use crate::arena::{BufferId, Id};
use crate::bare;
use crate::dtype::DType;

/// The text of a buffer that an expression reads: `%name`.
pub(crate) type BufferName<'a> = &'a dyn Fn(BufferId) -> String;

/// The text of a buffer outside of its function: its number.
pub(crate) fn number(b: BufferId) -> String {
    format!("%{}", b.index())
}

/// `%x[i, j]`
pub(crate) fn print_element(b: BufferId, indices: &[Int], name: BufferName<'_>) -> String {
    let items: Vec<String> = indices.iter().map(|i| print_int(i, name)).collect();
    format!("{}[{}]", name(b), items.join(", "))
}

/// Infix, with the parentheses that the tree needs: `(i*4 + j) % 8`.
pub(crate) fn print_int(e: &Int, name: BufferName<'_>) -> String {
    let mut out = String::new();
    write_int(&mut out, e, 0, name);
    out
}

fn write_int(out: &mut String, e: &Int, parent: u8, name: BufferName<'_>) {
    let (a, b, op, level) = match e.node() {
        IntNode::Const(c) if *c < 0 && parent > 1 => return out.push_str(&format!("({c})")),
        IntNode::Const(c) => return out.push_str(&c.to_string()),
        IntNode::Var(v) => return out.push_str(&bare::name(v.as_str())),
        IntNode::Load(b, ix) => return out.push_str(&print_element(*b, ix, name)),
        IntNode::Min(a, b) => return out.push_str(&format!("min({}, {})", print_int(a, name), print_int(b, name))),
        IntNode::Max(a, b) => return out.push_str(&format!("max({}, {})", print_int(a, name), print_int(b, name))),
        IntNode::Add(a, b) => (a, b, " + ", 1),
        IntNode::Sub(a, b) => (a, b, " - ", 1),
        IntNode::Mul(a, b) => (a, b, "*", 2),
        IntNode::Div(a, b) => (a, b, "/", 2),
        // With spaces: `%` right before a name is a buffer.
        IntNode::Mod(a, b) => (a, b, " % ", 2),
    };
    infix(out, parent > level, |out| {
        write_int(out, a, level, name);
        out.push_str(op);
        write_int(out, b, level + 1, name);
    });
}

/// The text of `write`, in parentheses if requested.
pub(crate) fn infix(out: &mut String, parentheses: bool, write: impl FnOnce(&mut String)) {
    if parentheses {
        out.push('(');
    }
    write(out);
    if parentheses {
        out.push(')');
    }
}

/// `i*4 + j < 30`
pub(crate) fn print_cond(c: &Cond, name: BufferName<'_>) -> String {
    let op = match c.op {
        CondOp::Lt => "<",
        CondOp::Ge => ">=",
        CondOp::Eq => "==",
    };
    format!("{} {op} {}", print_int(&c.lhs, name), print_int(&c.rhs, name))
}

impl std::fmt::Display for Cond {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&print_cond(self, &number))
    }
}

/// `f32[n,64]`
pub(crate) fn print_shaped(dtype: DType, shape: &[Int]) -> String {
    let dims: Vec<String> = shape.iter().map(|d| print_int(d, &number)).collect();
    format!("{dtype}[{}]", dims.join(","))
}
