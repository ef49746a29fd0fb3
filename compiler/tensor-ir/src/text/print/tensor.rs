//! Tensor functions.

use super::attrs::print_attrs_in;
use super::expr::{buffer_name, print_conds, print_element};
use super::{print_expr, print_int};
use crate::bare;
use crate::int::print::print_shaped;
use crate::tir::{Access, Block, Buffer, BufferId, Combiner, Encoding, For, InstrRef, Scope, Stmt, TensorFunction};

/// Text of a tensor function, in canonical form.
pub fn print_tensor_function(f: &TensorFunction) -> String {
    let mut p = Printer { f: &f.canonical(), out: String::new(), indent: 0 };
    p.function("tensor");
    p.out
}

/// Text of a statement of `f`.
pub fn print_stmt(s: &Stmt, f: &TensorFunction) -> String {
    let mut p = Printer { f, out: String::new(), indent: 0 };
    p.stmt(s);
    p.out
}

/// `split {loop=i, factors=[0,4]}`
pub fn print_instruction(i: &InstrRef) -> String {
    i.text()
}

struct Printer<'f> {
    f: &'f TensorFunction,
    out: String,
    indent: usize,
}

impl Printer<'_> {
    fn line(&mut self, text: &str) {
        self.out.extend(std::iter::repeat_n("  ", self.indent));
        self.out.push_str(text);
        self.out.push('\n');
    }
    fn braces(&mut self, head: &str, body: impl FnOnce(&mut Self)) {
        self.line(&format!("{head} {{"));
        self.indent += 1;
        body(self);
        self.indent -= 1;
        self.line("}");
    }
    /// The function after `head`, `tensor` or `prepack %B = tensor`.
    fn function(&mut self, head: &str) {
        let f = self.f;
        let params: Vec<String> = f
            .params
            .iter()
            .map(|p| {
                let direction = if p.access == Access::Write { "out " } else { "" };
                format!("{direction}{}", print_buffer(f, p.buffer, true))
            })
            .collect();
        self.braces(&format!("{head} @{}({})", bare::after_sigil(f.name.as_str()), params.join(", ")), |p| p.content());
    }
    fn content(&mut self) {
        let f = self.f;
        for (name, low, high) in &f.symbols {
            self.line(&format!("symbol {} in {low}..={high}", bare::name(name.as_str())));
        }
        for b in f.buffers.ids().filter(|&b| f.params.iter().all(|p| p.buffer != b)) {
            self.line(&format!("buffer {}", print_buffer(f, b, false)));
        }
        for u in &f.updates {
            let of = u.of.map(|b| format!(" of {}", buffer_name(Some(f), b)));
            self.line(&format!("update {}{}", buffer_name(Some(f), u.result), of.unwrap_or_default()));
        }
        for p in &f.prepacks {
            let mut inner = Printer { f: &p.packer, out: String::new(), indent: self.indent };
            inner.function(&format!("prepack {} = tensor", buffer_name(Some(f), p.buffer)));
            self.out.push_str(&inner.out);
        }
        self.stmt(&f.body);
        self.trace("applied", &f.trace);
        self.trace("schedule", &f.pending);
    }
    fn trace(&mut self, head: &str, list: &[InstrRef]) {
        if list.is_empty() {
            return;
        }
        self.braces(head, |p| {
            for i in list {
                p.line(&format!("{}{}", i.name(), print_attrs_in(&i.attrs(), Some(p.f))));
            }
        });
    }
    fn stmt(&mut self, s: &Stmt) {
        match s {
            Stmt::Seq(list) => list.iter().for_each(|s| self.stmt(s)),
            Stmt::For(l) => self.braces(&print_for(l, self.f), |p| p.stmt(&l.body)),
            Stmt::Block(b) => self.block(b),
            Stmt::Barrier => self.line("barrier"),
            Stmt::Kernel(name, s) => self.braces(&format!("kernel {}", bare::name(name.as_str())), |p| p.stmt(s)),
        }
    }
    fn block(&mut self, b: &Block) {
        let f = Some(self.f);
        let mut head = format!("block {}", bare::name(b.name.as_str()));
        if let Some(r) = b.reduce {
            head.push_str(&format!(" reduce {}", combiner_word(r.combiner)));
            if r.init {
                head.push_str(" init");
            }
        }
        if !b.guards.is_empty() {
            head.push_str(&format!(" where ({})", print_conds(&b.guards, f)));
        }
        let store = format!("{} <- {}", print_element(b.buffer, &b.indices, f), print_expr(&b.value, f));
        self.line(&format!("{head} {{ {store} }}"));
    }
}

fn print_for(l: &For, f: &TensorFunction) -> String {
    let (var, extent) = (bare::name(l.var.as_str()), print_int(&l.extent, Some(f)));
    format!("{}for {var} in 0..{extent}", l.kind.word().map(|w| format!("{w} ")).unwrap_or_default())
}

pub(in crate::text) fn combiner_word(c: Combiner) -> &'static str {
    match c {
        Combiner::Sum => "sum",
        Combiner::Prod => "prod",
        Combiner::Max => "max",
        Combiner::Min => "min",
    }
}

/// `%name: f32[4] scope encoding`; the default scope of a parameter and the native encoding are not written.
fn print_buffer(f: &TensorFunction, b: BufferId, param: bool) -> String {
    let Some(Buffer { dtype, shape, scope, encoding, .. }) = f.buffers.get(b) else {
        return buffer_name(Some(f), b);
    };
    let mut out = format!("{}: {}", buffer_name(Some(f), b), print_shaped(*dtype, shape));
    match scope {
        Scope::Global if param => {}
        Scope::Global => out.push_str(" global"),
        Scope::Shared => out.push_str(" shared"),
        Scope::Register => out.push_str(" register"),
        Scope::Fragment(role) => out.push_str(&format!(" fragment({})", role.word())),
        Scope::Subgroup { lane_dim, size } => out.push_str(&format!(" subgroup({lane_dim}, {size})")),
    }
    match encoding {
        Encoding::Native => {}
        Encoding::HalfPair => out.push_str(" half_pair"),
        Encoding::ByteQuad => out.push_str(" byte_quad"),
        Encoding::Narrow => out.push_str(" narrow"),
    }
    out
}
