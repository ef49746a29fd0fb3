//! The fingerprint of a tensor function. It covers everything that decides the function's kernels, and nothing else.
//!
//! Every struct is destructured field by field, so a new field does not compile until it is decided here whether it
//! counts. The function's own name, the applied instructions and the provenance do not count: they do not change the
//! kernels.

use super::{Block, Buffer, BufferId, Cond, Expr, For, Prepack, Reduce, Scalar, Stmt, TensorFunction, Update};
use crate::arena::Id;
use crate::attr::Attr;
use crate::fingerprint::{Fingerprint, Fingerprinter};
use crate::int::{Int, IntNode};
use crate::tir::InstrRef;

impl TensorFunction {
    /// The fingerprint of the body as it is scheduled (with the instructions that are still pending), parameters,
    /// buffers with their storage forms, prepacks and symbols. Names of blocks, loops and buffers count, since they
    /// stand in the shader.
    pub fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of(|w| w.function(self))
    }
}

/// A plain enum counts by the name of its variant.
fn variant(w: &mut Fingerprinter, v: impl std::fmt::Debug) {
    w.text(&format!("{v:?}"));
}

impl Fingerprinter {
    fn function(&mut self, f: &TensorFunction) {
        let TensorFunction {
            name: _,
            params,
            symbols,
            buffers,
            body,
            trace: _,
            pending,
            prepacks,
            updates,
            provenance: _,
        } = f;
        self.list(params.iter(), |w, p| {
            w.buffer_id(p.buffer);
            variant(w, p.access);
        });
        self.list(symbols.iter(), |w, (name, low, high)| {
            w.text(name.as_str());
            w.number(*low);
            w.number(*high);
        });
        self.number(buffers.len() as i64);
        buffers.iter().for_each(|(_, b)| self.buffer(b));
        self.stmt(body);
        self.list(pending.iter(), |w, i| w.instruction(i));
        self.list(prepacks.iter(), |w, Prepack { buffer, packer }| {
            w.buffer_id(*buffer);
            w.part(packer.fingerprint());
        });
        self.list(updates.iter(), |w, Update { result, of }| {
            w.buffer_id(*result);
            w.number(of.map_or(-1, |b| b.index() as i64));
        });
    }

    fn buffer_id(&mut self, b: BufferId) {
        self.number(b.index() as i64);
    }

    fn buffer(&mut self, b: &Buffer) {
        let Buffer { name, dtype, shape, scope, encoding } = b;
        self.text(name.as_str());
        variant(self, dtype);
        self.ints(shape);
        variant(self, scope);
        variant(self, encoding);
    }

    fn stmt(&mut self, s: &Stmt) {
        match s {
            Stmt::Seq(list) => {
                self.tag(0);
                self.list(list.iter(), |w, s| w.stmt(s));
            }
            Stmt::For(l) => {
                let For { var, extent, kind, body } = &**l;
                self.tag(1);
                self.text(var.as_str());
                self.int(extent);
                variant(self, kind);
                self.stmt(body);
            }
            Stmt::Block(b) => {
                self.tag(2);
                self.block(b);
            }
            Stmt::Barrier => self.tag(3),
            Stmt::Kernel(name, body) => {
                self.tag(4);
                self.text(name.as_str());
                self.stmt(body);
            }
        }
    }

    fn block(&mut self, b: &Block) {
        let Block { name, guards, buffer, indices, value, reduce, stages: _ } = b;
        self.text(name.as_str());
        self.conds(guards);
        self.buffer_id(*buffer);
        self.ints(indices);
        self.expr(value);
        match reduce {
            None => self.tag(0),
            Some(Reduce { combiner, init }) => {
                self.tag(1 + u8::from(*init));
                variant(self, combiner);
            }
        }
    }

    fn conds(&mut self, conds: &[Cond]) {
        self.list(conds.iter(), |w, Cond { lhs, op, rhs }| {
            w.int(lhs);
            variant(w, op);
            w.int(rhs);
        });
    }

    fn ints(&mut self, list: &[Int]) {
        self.list(list.iter(), |w, i| w.int(i));
    }

    fn int(&mut self, i: &Int) {
        let (tag, parts) = match i.node() {
            IntNode::Const(c) => {
                self.tag(0);
                return self.number(*c);
            }
            IntNode::Var(v) => {
                self.tag(1);
                return self.text(v.as_str());
            }
            IntNode::Load(b, indices) => {
                self.tag(2);
                self.buffer_id(*b);
                return self.ints(indices);
            }
            IntNode::Add(a, b) => (3, [a, b]),
            IntNode::Sub(a, b) => (4, [a, b]),
            IntNode::Mul(a, b) => (5, [a, b]),
            IntNode::Div(a, b) => (6, [a, b]),
            IntNode::Mod(a, b) => (7, [a, b]),
            IntNode::Min(a, b) => (8, [a, b]),
            IntNode::Max(a, b) => (9, [a, b]),
        };
        self.tag(tag);
        parts.into_iter().for_each(|p| self.int(p));
    }

    fn scalar(&mut self, s: Scalar) {
        match s {
            Scalar::Float(v) => {
                self.tag(0);
                self.number(v.to_bits() as i64);
            }
            Scalar::Int(v) => {
                self.tag(1);
                self.number(v);
            }
        }
    }

    fn expr(&mut self, e: &Expr) {
        match e {
            Expr::Const(s, dtype) => {
                self.tag(0);
                self.scalar(*s);
                variant(self, dtype);
            }
            Expr::Index(i, dtype) => {
                self.tag(1);
                self.int(i);
                variant(self, dtype);
            }
            Expr::Load(b, indices) => {
                self.tag(2);
                self.buffer_id(*b);
                self.ints(indices);
            }
            Expr::Unary(op, a) => {
                self.tag(3);
                variant(self, op);
                self.expr(a);
            }
            Expr::Binary(op, a, b) => {
                self.tag(4);
                variant(self, op);
                self.expr(a);
                self.expr(b);
            }
            Expr::All(conds) => {
                self.tag(5);
                self.conds(conds);
            }
            Expr::Select(c, a, b) => {
                self.tag(6);
                self.expr(c);
                self.expr(a);
                self.expr(b);
            }
            Expr::Cast(dtype, a) => {
                self.tag(7);
                variant(self, dtype);
                self.expr(a);
            }
        }
    }

    fn instruction(&mut self, i: &InstrRef) {
        self.text(i.name());
        let attrs = i.attrs();
        self.list(attrs.iter(), |w, (name, value)| {
            w.text(name);
            w.attr(value);
        });
    }

    fn attr(&mut self, a: &Attr) {
        match a {
            Attr::Int(v) => self.scalar(Scalar::Int(*v)),
            Attr::Float(v) => self.scalar(Scalar::Float(*v)),
            Attr::Bool(v) => self.tag(2 + u8::from(*v)),
            Attr::Str(text) => {
                self.tag(4);
                self.text(text);
            }
            Attr::List(list) => {
                self.tag(5);
                self.list(list.iter(), |w, a| w.attr(a));
            }
            Attr::DType(dtype) => {
                self.tag(6);
                variant(self, dtype);
            }
            Attr::Expr(i) => {
                self.tag(7);
                self.int(i);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::text::parse_tensor_function;

    const FUNCTION: &str = "tensor @f(%x: f32[8,4], out %y: f32[8]) {
  prepack %x = tensor @pack(%x: f32[4,8], out %p: f32[8,4]) {
    for a in 0..8 { for b in 0..4 { block p { %p[a, b] <- %x[b, a] } } }
  }
  for i in 0..8 { for k in 0..4 { block y reduce sum init { %y[i] <- %x[i, k] * 2.0 } } }
  schedule { bind {loop=i, axis=local_x} cut-kernel }
}
";

    fn of(text: &str) -> crate::fingerprint::Fingerprint {
        parse_tensor_function(text).expect("it parses").fingerprint()
    }

    #[test]
    fn everything_that_decides_a_kernel_counts() {
        let own = of(FUNCTION);
        assert_eq!(own, of(&FUNCTION.replace("@f(", "@g(").replace("@pack(", "@other(")));
        for (from, to) in [
            ("%x[b, a] }", "%x[b, a] * 2.0 }"),
            ("%x[i, k] * 2.0", "%x[i, k] * 3.0"),
            ("%x[i, k] * 2.0", "%x[i, k] + 2.0"),
            ("reduce sum", "reduce max"),
            ("axis=local_x", "axis=group_x"),
            ("out %y: f32[8]", "out %y: f16[8]"),
            ("block y", "block z"),
            ("for i in 0..8 { for k", "for i in 0..7 { for k"),
        ] {
            let changed = FUNCTION.replace(from, to);
            assert_ne!(changed, FUNCTION, "{from}");
            assert_ne!(own, of(&changed), "{from} -> {to}");
        }
    }

    #[test]
    fn storage_forms_symbols_and_pending_instructions_count() {
        let f = parse_tensor_function(FUNCTION).expect("it parses");
        let own = f.fingerprint();
        let mut changed = f.clone();
        let first = changed.params[0].buffer;
        changed.buffers[first].encoding = crate::tir::Encoding::HalfPair;
        assert_ne!(own, changed.fingerprint());
        let mut changed = f.clone();
        changed.symbols.push(("n".into(), 1, 8));
        assert_ne!(own, changed.fingerprint());
        let mut changed = f.clone();
        changed.pending.pop();
        assert_ne!(own, changed.fingerprint());
        let mut changed = f.clone();
        changed.trace = std::mem::take(&mut changed.pending.clone());
        assert_eq!(own, changed.fingerprint());
    }
}
