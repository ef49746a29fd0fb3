//! The statements of a kernel in C.

use crate::expr::{Values, buffer_name, element_type};
use crate::statements::Statements;
use crate::tile;
use tensor_ir::name::Name;
use tensor_ir::tir::{Buffer, BufferId, For, LoopKind, Scope, Stmt, TensorFunction};

/// Bytes of memory of its own that a kernel may take from the stack.
const MOST_OWN: i64 = 1 << 20;

/// A kernel in C.
pub(crate) struct Kernel {
    /// Global buffers in the order of the bindings: their C types, and whether they are written.
    pub parameters: Vec<Parameter>,
    /// What the function does, without its braces.
    pub body: String,
}

pub(crate) struct Parameter {
    pub buffer: BufferId,
    pub name: String,
    pub ty: &'static str,
    pub written: bool,
}

impl Kernel {
    /// `const float *restrict p0, float *restrict out`
    pub fn signature(&self) -> String {
        let one = |p: &Parameter| {
            let constant = if p.written { "" } else { "const " };
            format!("{constant}{} *restrict {}", p.ty, p.name)
        };
        self.parameters.iter().map(one).collect::<Vec<_>>().join(", ")
    }
}

/// A kernel of a scheduled function.
///
/// # Errors
/// Loops over threads and subgroups, open sizes, functions without a C.
pub(crate) fn print(f: &TensorFunction, kernel: Name) -> Result<Kernel, String> {
    let kernels = f.kernels();
    let body = kernels.iter().find(|k| k.0 == kernel).ok_or_else(|| format!("there is no kernel `{kernel}`"))?.1;
    let blocks = body.blocks();
    let used = |id: BufferId| blocks.iter().any(|b| b.accesses(id));
    let parameter = |(buffer, b): (BufferId, &Buffer)| Parameter {
        buffer,
        name: buffer_name(buffer, b),
        ty: element_type(b),
        written: blocks.iter().any(|block| block.buffer == buffer),
    };
    let global = |(id, b): &(BufferId, &Buffer)| b.scope == Scope::Global && used(*id);
    let mut p = Statements { values: Values { f, bounds: f.bounds() }, out: String::new(), depth: 1 };
    for (id, b) in f.buffers.iter().filter(|(id, b)| b.scope != Scope::Global && used(*id)) {
        let n = p.values.size(&b.numel())?.max(1);
        if n.saturating_mul(8) > MOST_OWN {
            return Err(format!("`{}` has {n} elements of memory of its own", b.name));
        }
        p.line(&format!("{} {}[{n}];", element_type(b), buffer_name(id, b)));
    }
    statement(&mut p, body)?;
    Ok(Kernel { parameters: f.buffers.iter().filter(global).map(parameter).collect(), body: p.out })
}

fn statement(p: &mut Statements<'_>, s: &Stmt) -> Result<(), String> {
    match s {
        Stmt::Barrier => Ok(()),
        Stmt::Seq(list) => list.iter().try_for_each(|s| statement(p, s)),
        Stmt::Kernel(_, s) => statement(p, s),
        Stmt::Block(b) => p.leaf(b),
        Stmt::For(l) => r#loop(p, l),
    }
}

fn r#loop(p: &mut Statements<'_>, l: &For) -> Result<(), String> {
    let count = p.values.size(&l.extent)?;
    match l.kind {
        LoopKind::Combine | LoopKind::Subgroup(_) | LoopKind::Lane => {
            Err(format!("loop `{}` is one over a subgroup, which C has none of", l.var))
        }
        LoopKind::Local(_) if count > 1 => Err(format!("loop `{}` is one over threads, which C has none of", l.var)),
        LoopKind::Tensor => tile::print(p, l),
        _ => p.each(l.var, count, |p| statement(p, &l.body)),
    }
}
