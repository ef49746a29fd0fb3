//! Short text of loop nests for error messages.

use crate::name::Name;
use crate::tir::{For, Stmt, TensorFunction};
use std::fmt::Write;

/// The loops and blocks below `s`, one per line; the loop or block `culprit` is marked with `>`.
pub fn print_loops(f: &TensorFunction, s: &Stmt, culprit: Option<Name>) -> String {
    let mut out = String::new();
    write_stmt(f, s, culprit, 1, &mut out);
    out.truncate(out.trim_end().len());
    out
}

fn write_line(depth: usize, marked: bool, text: &str, out: &mut String) {
    let mark = if marked { ">" } else { " " };
    let _ = writeln!(out, "{mark}{}{text}", "  ".repeat(depth));
}

fn write_stmt(f: &TensorFunction, s: &Stmt, culprit: Option<Name>, depth: usize, out: &mut String) {
    match s {
        Stmt::Seq(list) => list.iter().for_each(|s| write_stmt(f, s, culprit, depth, out)),
        Stmt::For(l) => {
            write_line(depth, culprit == Some(l.var), &loop_text(l), out);
            write_stmt(f, &l.body, culprit, depth + 1, out);
        }
        Stmt::Block(b) => {
            let mut reads: Vec<Name> = Vec::new();
            for (id, _) in b.value.loads() {
                let name = f.buffers[id].name;
                if !reads.contains(&name) {
                    reads.push(name);
                }
            }
            let reads: Vec<String> = reads.iter().map(|n| n.to_string()).collect();
            let op = if b.reduce.is_some() { "<<" } else { "=" };
            let target = f.buffers[b.buffer].name;
            let mut text = format!("{}: {target}{:?} {op} ({})", b.name, b.indices, reads.join(", "));
            if !b.guards.is_empty() {
                let guards: Vec<String> = b.guards.iter().map(|g| format!("{} {:?} {}", g.lhs, g.op, g.rhs)).collect();
                let _ = write!(text, " if {}", guards.join(", ").to_lowercase());
            }
            write_line(depth, culprit == Some(b.name), &text, out);
        }
        Stmt::Barrier => write_line(depth, false, "barrier", out),
        Stmt::Kernel(name, s) => {
            write_line(depth, culprit == Some(*name), &format!("kernel {name}"), out);
            write_stmt(f, s, culprit, depth + 1, out);
        }
    }
}

fn loop_text(l: &For) -> String {
    let kind = l.kind.word().map_or(String::new(), |w| format!(" {w}"));
    format!("for {} in {}{kind}", l.var, l.extent)
}
