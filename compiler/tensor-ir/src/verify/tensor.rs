//! Rules of tensor functions.

use super::VerifyError;
use crate::arena::Id;
use crate::dtype::DType;
use crate::int::print::print_cond;
use crate::int::{self, Bounds, Facts, Int, IntNode};
use crate::name::Name;
use crate::tir::{
    Access, Block, Buffer, BufferId, Cond, Encoding, Expr, For, LoopKind, Scalar, Scope, Stmt, TensorFunction,
};
use rustc_hash::{FxHashMap, FxHashSet};
use std::cell::OnceCell;

pub(super) struct Verifier<'f> {
    pub(super) f: &'f TensorFunction,
    errors: &'f mut Vec<VerifyError>,
    /// Loops around the current place.
    pub(super) loops: Vec<(Name, LoopKind)>,
    vars: FxHashSet<Name>,
    blocks: FxHashSet<Name>,
    kernels: FxHashSet<Name>,
    /// The kernel around the current place.
    pub(super) kernel: Option<Name>,
    /// The kernel that uses a local buffer.
    users: FxHashMap<BufferId, Name>,
    /// Ranges of symbols and loop variables, computed when a divisor needs them.
    pub(super) bounds: OnceCell<Bounds>,
}

pub(super) fn verify(f: &TensorFunction, errors: &mut Vec<VerifyError>) {
    let mut v = Verifier {
        f,
        errors,
        loops: vec![],
        vars: FxHashSet::default(),
        blocks: FxHashSet::default(),
        kernels: FxHashSet::default(),
        kernel: None,
        users: FxHashMap::default(),
        bounds: OnceCell::new(),
    };
    v.params();
    v.updates();
    v.buffers();
    for (i, &(name, low, high)) in f.symbols.iter().enumerate() {
        if !v.vars.insert(name) {
            v.error(&format!("symbol {i}"), format!("the name `{name}` is taken"));
        }
        if low > high {
            v.error(&format!("symbol `{name}`"), format!("the range {low}..={high} is empty"));
        }
    }
    v.stmt(&f.body, true);
    v.lifetimes();
    v.prepacks();
}

impl Verifier<'_> {
    pub(super) fn error(&mut self, place: &str, message: impl Into<String>) {
        let place = Some(place.to_string());
        self.errors.push(VerifyError { function: self.f.name, place, message: message.into() });
    }
    fn params(&mut self) {
        let mut seen = FxHashSet::default();
        let mut writes = false;
        for (i, p) in self.f.params.iter().enumerate() {
            let place = format!("parameter {i}");
            match self.f.buffers.get(p.buffer) {
                None => self.error(&place, "its buffer does not exist"),
                Some(b) if b.scope != Scope::Global => self.error(&place, "its buffer is not global"),
                Some(_) => {}
            }
            if !seen.insert(p.buffer) {
                self.error(&place, "two parameters share a buffer");
            }
            if writes && p.access == Access::Read {
                self.error(&place, "a read parameter stands after a write parameter");
            }
            writes |= p.access == Access::Write;
        }
    }
    fn updates(&mut self) {
        let f = self.f;
        for u in &f.updates {
            let place = format!("update of {}", f.buffer_text(u.result));
            if !f.outputs().any(|b| b == u.result) {
                self.error(&place, "it is no write parameter");
            }
            let form = |b: BufferId| f.buffers.get(b).map(|b| (b.dtype, b.encoding));
            if let Some(of) = u.of
                && (!f.inputs().any(|b| b == of) || form(of) != form(u.result))
            {
                self.error(&place, format!("{} is no read parameter of this form", f.buffer_text(of)));
            }
            if u.of.is_some_and(|of| f.declared_shape(of) != f.declared_shape(u.result)) {
                self.error(&place, "the operand has another shape");
            }
            if f.updates.iter().filter(|v| v.result == u.result || (v.of.is_some() && v.of == u.of)).count() > 1 {
                self.error(&place, "two updates share a parameter");
            }
        }
    }
    fn buffers(&mut self) {
        let mut names = FxHashSet::default();
        for (_, b) in self.f.buffers.iter() {
            let place = format!("buffer %{}", b.name);
            if !names.insert(b.name) {
                self.error(&place, "two buffers have this name");
            }
            for d in &b.shape {
                if d.as_const().is_some_and(|c| c <= 0) || d.reads_buffer() {
                    self.error(&place, format!("the extent {d} is not positive"));
                }
                for v in d.vars() {
                    if self.f.symbols.iter().all(|s| s.0 != v) {
                        self.error(&place, format!("`{v}` is no symbol of the function"));
                    }
                }
            }
            self.storage(&place, b);
        }
    }
    fn storage(&mut self, place: &str, b: &Buffer) {
        let suits = match b.encoding {
            Encoding::Native => true,
            Encoding::HalfPair => matches!(b.dtype, DType::F16 | DType::BF16),
            Encoding::ByteQuad => matches!(b.dtype, DType::U8 | DType::I8 | DType::Bool),
            Encoding::Narrow => matches!(b.dtype, DType::I64 | DType::U64),
        };
        if !suits {
            self.error(place, format!("{:?} does not store {}", b.encoding, b.dtype));
        }
        let packs = b.encoding == Encoding::ByteQuad && matches!(b.scope, Scope::Shared | Scope::Register);
        if b.encoding != Encoding::Native && b.scope != Scope::Global && !packs {
            self.error(place, "only global buffers have an encoding, and staged bytes");
        }
        if let Scope::Subgroup { lane_dim, size } = b.scope {
            if lane_dim as usize >= b.shape.len() {
                self.error(place, format!("there is no dimension {lane_dim} to distribute over lanes"));
            }
            if !size.is_power_of_two() {
                self.error(place, format!("{size} lanes are not a power of two"));
            }
        }
    }
    fn stmt(&mut self, s: &Stmt, top: bool) {
        match s {
            Stmt::Seq(list) => list.iter().for_each(|s| self.stmt(s, top)),
            Stmt::For(l) => self.for_loop(l),
            Stmt::Block(b) => self.block(b),
            Stmt::Barrier => {}
            Stmt::Kernel(name, body) => {
                let place = format!("kernel {name}");
                if !top {
                    self.error(&place, "a kernel stands inside a loop or another kernel");
                }
                if !self.kernels.insert(*name) {
                    self.error(&place, "two kernels have this name");
                }
                let outer = self.kernel.replace(*name);
                self.stmt(body, false);
                self.kernel = outer;
            }
        }
    }
    /// Registers and workgroup memory last as long as the nest that they are used in: outside of kernels, nothing says
    /// that two nests are run by the same threads.
    fn lifetimes(&mut self) {
        let f = self.f;
        let Stmt::Seq(list) = &f.body else { return };
        let mut first: FxHashMap<BufferId, usize> = FxHashMap::default();
        for (n, s) in list.iter().enumerate().filter(|(_, s)| !matches!(s, Stmt::Kernel(..))) {
            for b in s.blocks() {
                let local = |(id, buffer): &(BufferId, &Buffer)| buffer.scope != Scope::Global && b.accesses(*id);
                for (id, buffer) in f.buffers.iter().filter(local) {
                    if *first.entry(id).or_insert(n) != n {
                        let text = format!("%{} is no device memory, and was used by another nest", buffer.name);
                        self.error(&format!("block {}", b.name), text);
                    }
                }
            }
        }
    }
    fn for_loop(&mut self, l: &For) {
        let place = format!("loop {}", l.var);
        self.int(&place, &l.extent);
        let extent = l.extent.as_const();
        if extent.is_some_and(|c| c <= 0) {
            self.error(&place, format!("the extent {} is not positive", l.extent));
        }
        match l.kind {
            LoopKind::Group(3..) | LoopKind::Local(3..) | LoopKind::Subgroup(2..) => {
                self.error(&place, "there is no such axis");
            }
            LoopKind::Vectorize if !matches!(extent, Some(2..=4)) => {
                self.error(&place, format!("a vectorised loop has 2, 3 or 4 iterations, not {}", l.extent));
            }
            _ => {}
        }
        if !self.vars.insert(l.var) {
            self.error(&place, "the variable is used by another loop or symbol");
        }
        self.subgroups(&place, l);
        self.loops.push((l.var, l.kind));
        self.stmt(&l.body, false);
        self.loops.pop();
    }
    /// Variables in scope, arity and dtype of loads, divisors.
    fn int(&mut self, place: &str, e: &Int) {
        for v in e.vars() {
            let known = self.loops.iter().any(|l| l.0 == v) || self.f.symbols.iter().any(|s| s.0 == v);
            if !known {
                self.error(place, format!("`{v}` is no loop around it and no symbol"));
            }
        }
        let mut found = Vec::new();
        e.visit(&mut |n| match n.node() {
            IntNode::Load(b, ix) => found.push((Some(*b), ix.len())),
            IntNode::Div(_, d) | IntNode::Mod(_, d) if !self.is_positive(d) => found.push((None, 0)),
            _ => {}
        });
        for (b, rank) in found {
            let Some(b) = b else {
                self.error(place, format!("a divisor in {e} is not positive"));
                continue;
            };
            self.element(place, b, rank);
            if let Some(buffer) = self.f.buffers.get(b)
                && !buffer.dtype.is_int()
            {
                self.error(place, format!("%{} is an index, but not of integers", buffer.name));
            }
        }
    }
    /// Symbols count as positive: if one is 0, the dimension whose index it divides has no elements, so the index is
    /// never evaluated.
    fn is_positive(&self, e: &Int) -> bool {
        let bounds = || {
            let mut bounds = self.f.bounds();
            for &(symbol, low, high) in self.f.symbols.iter().filter(|s| s.1 == 0) {
                bounds.insert(symbol, low.max(1), high.max(1));
            }
            bounds
        };
        match e.as_const() {
            Some(c) => c > 0,
            None => int::prove(e, 1, i64::MAX, self.bounds.get_or_init(bounds)),
        }
    }
    /// An access with `rank` indices.
    fn element(&mut self, place: &str, b: BufferId, rank: usize) {
        let Some(buffer) = self.f.buffers.get(b) else {
            return self.error(place, format!("there is no buffer number {}", b.index()));
        };
        if buffer.shape.len() != rank {
            let dims = buffer.shape.len();
            self.error(place, format!("%{} has {dims} dimensions and is accessed with {rank} indices", buffer.name));
        }
        if buffer.scope != Scope::Global
            && let Some(kernel) = self.kernel
            && *self.users.entry(b).or_insert(kernel) != kernel
        {
            self.error(place, format!("%{} is local to a kernel and used in two", buffer.name));
        }
    }
    fn block(&mut self, b: &Block) {
        let place = format!("block {}", b.name);
        if !self.blocks.insert(b.name) {
            self.error(&place, "two blocks have this name");
        }
        for c in &b.guards {
            self.int(&place, &c.lhs);
            self.int(&place, &c.rhs);
        }
        b.indices.iter().for_each(|i| self.int(&place, i));
        self.element(&place, b.buffer, b.indices.len());
        b.value.visit_ints(&mut |i| self.int(&place, i));
        for (buffer, ix) in b.value.loads() {
            self.element(&place, buffer, ix.len());
        }
        if self.f.params.iter().any(|p| p.buffer == b.buffer && p.access == Access::Read) {
            self.error(&place, "it stores to a read parameter");
        }
        let Some(buffer) = self.f.buffers.get(b.buffer) else { return };
        match self.dtype(&b.value) {
            Err(message) => self.error(&place, message),
            Ok(t) if t == buffer.dtype => {}
            // A reduction may widen what it sums.
            Ok(t) if b.reduce.is_some() && t.is_float() == buffer.dtype.is_float() && t != DType::Bool => {}
            Ok(t) => self.error(&place, format!("the value is {t}, %{} is {}", buffer.name, buffer.dtype)),
        }
        self.first_iteration(&place, b);
        self.fragments(&place, b);
        if let Scope::Subgroup { lane_dim, .. } = buffer.scope
            && let Some(lane) = b.indices.get(lane_dim as usize)
        {
            let own = self.loops.iter().any(|l| l.1 == LoopKind::Local(0) && lane.uses(l.0));
            if !own {
                self.error(&place, format!("the store to %{} is not to the lane's own elements", buffer.name));
            }
        }
    }
    /// A reduction that sets its identity itself does so in the first iteration of its loops, which no condition may
    /// leave out.
    fn first_iteration(&mut self, place: &str, b: &Block) {
        if !b.reduce.is_some_and(|r| r.init) || b.guards.is_empty() {
            return;
        }
        let loops = self.f.reduction_loops(b.name);
        let (own, others): (Vec<&Cond>, Vec<&Cond>) =
            b.guards.iter().partition(|c| loops.iter().any(|v| c.lhs.uses(*v) || c.rhs.uses(*v)));
        if own.is_empty() {
            return;
        }
        let mut facts = Facts::new(self.bounds.get_or_init(|| self.f.bounds()).clone());
        facts.assume(&others.into_iter().cloned().collect::<Vec<_>>());
        let first = |i: &Int| loops.iter().fold(i.clone(), |i, v| i.substitute(*v, &Int::new(0)));
        if let Some(c) = own.into_iter().find(|c| facts.decide(&c.map(&mut |i| first(i))) != Some(true)) {
            let text = "may leave out the first iteration, which sets the identity: set it in a block of its own, without `init`";
            self.error(place, format!("the condition {} {text}", print_cond(c, &|b| self.f.buffer_text(b))));
        }
    }
    /// The dtype of a value whose parts agree.
    fn dtype(&self, e: &Expr) -> Result<DType, String> {
        let same = |what: &str, a: DType, b: DType| {
            if a == b { Ok(a) } else { Err(format!("{what} of {a} and {b}")) }
        };
        Ok(match e {
            Expr::Const(v, t) => {
                if matches!(v, Scalar::Float(_)) != t.is_float() {
                    return Err(format!("a constant of {t} is {v:?}"));
                }
                *t
            }
            Expr::Index(_, DType::Bool) => return Err("an index is no bool".into()),
            Expr::Index(_, t) => *t,
            Expr::Load(b, _) => match self.f.buffers.get(*b) {
                Some(b) => b.dtype,
                None => return Err("a load from no buffer".into()),
            },
            Expr::Unary(op, a) => {
                let t = self.dtype(a)?;
                match op {
                    _ if !op.domain().takes(t) => return Err(format!("`{}` of {t}", op.name())),
                    _ if op.is_test() => DType::Bool,
                    _ => t,
                }
            }
            Expr::Binary(op, a, b) => {
                let t = same(&format!("`{}`", op.name()), self.dtype(a)?, self.dtype(b)?)?;
                match op {
                    _ if !op.domain().takes(t) => return Err(format!("`{}` of {t}", op.name())),
                    _ if op.is_comparison() => DType::Bool,
                    _ => t,
                }
            }
            Expr::All(_) => DType::Bool,
            Expr::Select(c, a, b) => {
                let t = self.dtype(c)?;
                if t != DType::Bool {
                    return Err(format!("`select` by {t}"));
                }
                same("`select`", self.dtype(a)?, self.dtype(b)?)?
            }
            Expr::Cast(t, a) => {
                self.dtype(a)?;
                *t
            }
        })
    }
    fn prepacks(&mut self) {
        for p in &self.f.prepacks {
            let name = self.f.buffers.get(p.buffer).map(|b| b.name);
            let place = format!("prepack {}", name.unwrap_or_else(|| Name::new("?")));
            if !self.f.inputs().any(|b| b == p.buffer) {
                self.error(&place, "it is for no read parameter");
            }
            let accesses: Vec<Access> = p.packer.params.iter().map(|p| p.access).collect();
            let packed = p.packer.outputs().next().and_then(|b| p.packer.buffers.get(b));
            if accesses != [Access::Read, Access::Write] {
                self.error(&place, "the packer has one read and one write parameter");
            } else if let (Some(packed), Some(b)) = (packed, self.f.buffers.get(p.buffer))
                && (packed.dtype, &packed.shape) != (b.dtype, &b.shape)
            {
                self.error(&place, format!("the packer makes {:?}, the parameter is {:?}", packed.shape, b.shape));
            }
            verify(&p.packer, self.errors);
        }
    }
}
