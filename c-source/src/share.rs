//! Values that occur several times in a block's expression are computed once.

use crate::expr::{Values, binary, cast, number, unary, value_type, wrapped_index};
use std::collections::HashMap;
use tensor_ir::interpreter::scalar::Num;
use tensor_ir::tir::Expr;
use tensor_ir::tir::analysis::shared::{Part, Uses};

/// A value that others are made of, in C.
struct Node {
    /// Operands stand in it as [`mark`]s.
    text: String,
    operands: Vec<usize>,
    /// The first operands, which are computed in any case; the others only if a condition holds.
    sure: usize,
    ty: &'static str,
    /// It is worth a variable.
    is_work: bool,
    is_load: bool,
}

impl Part for Node {
    fn operands(&self) -> Vec<usize> {
        self.operands.clone()
    }
    fn sure_operands(&self) -> usize {
        self.sure
    }
    fn is_load(&self) -> bool {
        self.is_load
    }
}

/// The values of an expression, each once; operands come before what is made of them.
pub(crate) struct Shared<'v, 'f> {
    values: &'v Values<'f>,
    nodes: Vec<Node>,
    places: HashMap<String, usize>,
}

/// An operand in a text.
fn mark(i: usize) -> String {
    format!("\u{2}{i}\u{3}")
}

impl<'v, 'f> Shared<'v, 'f> {
    /// `e` in C, with what it is made of before: types, names and values of variables.
    pub fn of(values: &'v Values<'f>, e: &Expr) -> Result<(Vec<String>, String), String> {
        let mut all = Shared { values, nodes: vec![], places: HashMap::new() };
        let root = all.intern(e)?;
        let kept = all.kept(root);
        let variable =
            |i: usize| format!("const {} t{i} = {};", all.nodes[i].ty, all.expanded(&all.nodes[i].text, &kept));
        let lets = kept.iter().map(|&i| variable(i)).collect();
        Ok((lets, all.expanded(&mark(root), &kept)))
    }
    /// `e` in C as one expression.
    pub fn whole(values: &'v Values<'f>, e: &Expr) -> Result<String, String> {
        let mut all = Shared { values, nodes: vec![], places: HashMap::new() };
        let root = all.intern(e)?;
        Ok(all.expanded(&mark(root), &[]))
    }
    fn intern(&mut self, e: &Expr) -> Result<usize, String> {
        let v = self.values;
        let of = |e: &Expr| e.dtype(v.f);
        let (text, operands, sure) = match e {
            Expr::Const(s, t) => (number(Num::of(*s, *t), *t), vec![], 0),
            Expr::Index(i, t) => (wrapped_index(*t, &v.int(i)?), vec![], 0),
            Expr::Load(b, ix) => (v.load(*b, ix)?, vec![], 0),
            Expr::All(c) => (format!("(int64_t)({})", v.conditions(c)?), vec![], 0),
            Expr::Unary(op, a) => {
                let a_at = self.intern(a)?;
                (unary(*op, of(a), &mark(a_at))?, vec![a_at], 1)
            }
            Expr::Binary(op, a, b) => {
                let both = [self.intern(a)?, self.intern(b)?];
                (binary(*op, of(a), &mark(both[0]), &mark(both[1]))?, both.to_vec(), 2)
            }
            Expr::Cast(t, a) => {
                let a_at = self.intern(a)?;
                (cast(of(a), *t, &mark(a_at)), vec![a_at], 1)
            }
            Expr::Select(c, a, b) => {
                let [c, a, b] = [self.intern(c)?, self.intern(a)?, self.intern(b)?];
                let condition = &self.nodes[c];
                // A comparison stands in parentheses; as a condition it needs no type.
                let text = condition.text.strip_prefix("(int64_t)").unwrap_or(&condition.text);
                let text = format!("({text} ? {} : {})", mark(a), mark(b));
                let sure = condition.sure;
                let rest = condition.operands[sure..].iter().copied();
                (text, condition.operands[..sure].iter().copied().chain(rest).chain([a, b]).collect(), sure)
            }
        };
        if let Some(&at) = self.places.get(&text) {
            return Ok(at);
        }
        let is_load = matches!(e, Expr::Load(..));
        let is_work = !operands.is_empty() || is_load;
        self.places.insert(text.clone(), self.nodes.len());
        self.nodes.push(Node { text, operands, sure, ty: value_type(of(e)), is_work, is_load });
        Ok(self.nodes.len() - 1)
    }
    /// Values with several uses, of which one is computed in any case.
    fn kept(&self, root: usize) -> Vec<usize> {
        let uses = Uses::of(&self.nodes, root);
        (0..root).filter(|&i| uses.count[i] > 1 && uses.sure[i] && self.nodes[i].is_work).collect()
    }
    fn expanded(&self, text: &str, kept: &[usize]) -> String {
        let mut out = String::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('\u{2}') {
            out.push_str(before);
            let (number, after) = after.split_once('\u{3}').unwrap_or((after, ""));
            match number.parse::<usize>() {
                Ok(i) if kept.contains(&i) => out.push_str(&format!("t{i}")),
                Ok(i) => out.push_str(&self.expanded(&self.nodes[i].text, kept)),
                Err(_) => {}
            }
            rest = after;
        }
        out.push_str(rest);
        out
    }
}
