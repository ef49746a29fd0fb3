//! Resolves loop kinds: bound loops become axis variables, unrolled loops are repeated, vectorised loops become the
//! *lane* of their leaves. Indices are simplified, so that constants emerge.
//!
//! An index of a vectorised leaf is split into `base + step * lane`; aligned runs become vector accesses, anything else
//! is gathered. A leaf that cannot run as a vector (a reduction over the lanes, a guard that differs between them) is
//! repeated for each lane.

use crate::error::EmitError;
use crate::grid::Axes;
use crate::lanes::{Lane, is_multiple, split_lane};
use crate::tree::{Leaf, Node};
use rustc_hash::FxHashMap;
use tensor_ir::dtype::DType;
use tensor_ir::int::{self, Facts, Int};
use tensor_ir::name::Name;
use tensor_ir::tir::{
    BinaryOp, Block, Combiner, Cond, CondOp, Expr, For, LoopKind, Scalar, Scope, Stmt, TensorFunction, UnaryOp,
};

/// Leaves of one kernel beyond which unrolling is refused.
const MAX_LEAVES: usize = 1 << 16;

pub(crate) struct Expander<'a> {
    pub function: &'a TensorFunction,
    pub kernel: Name,
    pub axes: &'a Axes,
    pub ranges: &'a mut Facts,
    env: FxHashMap<Name, Int>,
    reductions: FxHashMap<Name, Vec<Name>>,
    lane: Option<Lane>,
    conds: Vec<Cond>,
    /// Loops around the place that are one operation.
    tensor: Vec<(Name, i64)>,
    leaves: usize,
}

impl<'a> Expander<'a> {
    pub fn new(function: &'a TensorFunction, kernel: Name, axes: &'a Axes, ranges: &'a mut Facts) -> Self {
        for axis in axes.all() {
            ranges.declare(axis.var, 0, axis.extent - 1);
        }
        Expander {
            function,
            kernel,
            axes,
            ranges,
            env: FxHashMap::default(),
            reductions: FxHashMap::default(),
            lane: None,
            conds: vec![],
            tensor: vec![],
            leaves: 0,
        }
    }

    /// Expands a statement.
    ///
    /// # Errors
    /// When an extent that must be constant is not, or unrolling is out of hand.
    pub fn stmt(&mut self, s: &Stmt) -> Result<Node, EmitError> {
        match s {
            Stmt::Seq(list) => Ok(Node::seq(list.iter().map(|s| self.stmt(s)).collect::<Result<_, _>>()?)),
            Stmt::For(l) => {
                let node = self.for_loop(l);
                self.env.remove(&l.var);
                node
            }
            Stmt::Block(b) => self.block(b),
            Stmt::Kernel(_, body) => self.stmt(body),
            Stmt::Barrier => Ok(Node::Barrier),
        }
    }

    fn for_loop(&mut self, l: &For) -> Result<Node, EmitError> {
        let extent = self.int(&l.extent);
        match l.kind {
            LoopKind::Group(_) | LoopKind::Local(_) => self.bound_loop(l, &extent),
            LoopKind::Subgroup(_) => self.subgroup_loop(l, &extent),
            LoopKind::Lane => self.counted_loop(l, extent, true),
            LoopKind::Tensor => self.tensor_loop(l, &extent),
            LoopKind::Serial if !extent.is(1) => self.counted_loop(l, extent, false),
            LoopKind::Serial => self.instance(l, Int::new(0)),
            LoopKind::Combine => self.combined_loop(l, &extent),
            LoopKind::Unroll | LoopKind::Vectorize => {
                let Some(n) = extent.as_const() else {
                    return Err(EmitError::unsupported(format!(
                        "kernel `{}`: loop `{}` is unrolled, so its extent must be a constant",
                        self.kernel, l.var
                    )));
                };
                if l.kind == LoopKind::Vectorize { self.vector_loop(l, n) } else { self.repeat(l, 0, n) }
            }
        }
    }

    fn bound_loop(&mut self, l: &For, extent: &Int) -> Result<Node, EmitError> {
        let axis = self.axes.get(l.kind).expect("axes hold every bound loop");
        self.env.insert(l.var, Int::var(axis.var));
        if self.axes.covers(l.kind, extent) {
            return self.stmt(&l.body);
        }
        let cond = Cond::lt(Int::var(axis.var), extent);
        self.conds.push(cond.clone());
        let body = self.stmt(&l.body);
        self.conds.pop();
        Ok(Node::when(vec![cond], body?))
    }

    /// Subgroups beyond the loop would leave the flow that all threads share, so there are none.
    fn subgroup_loop(&mut self, l: &For, extent: &Int) -> Result<Node, EmitError> {
        let axis = self.axes.get(l.kind).expect("axes hold every bound loop");
        if !extent.is(axis.extent) {
            let text = format!("kernel `{}`: loops over subgroups run {extent} and {} times", self.kernel, axis.extent);
            return Err(EmitError::unsupported(text));
        }
        self.env.insert(l.var, Int::var(axis.var));
        self.stmt(&l.body)
    }

    /// The loop's variable stays in the leaf, which is one operation for all its values.
    fn tensor_loop(&mut self, l: &For, extent: &Int) -> Result<Node, EmitError> {
        let Some(n) = extent.as_const() else {
            let text = format!(
                "kernel `{}`: loop `{}` is one operation, so its extent must be a constant",
                self.kernel, l.var
            );
            return Err(EmitError::unsupported(text));
        };
        self.ranges.declare(l.var, 0, n - 1);
        self.env.insert(l.var, Int::var(l.var));
        self.tensor.push((l.var, n));
        let body = self.stmt(&l.body);
        self.tensor.pop();
        body
    }

    fn counted_loop(&mut self, l: &For, extent: Int, spread: bool) -> Result<Node, EmitError> {
        let high = self.ranges.span(&extent).high;
        if high <= 0 {
            return Ok(Node::Seq(vec![]));
        }
        // An instance of an unrolled outer loop may have another extent: it is another variable then.
        let mut var = l.var;
        for n in 1.. {
            match self.ranges.declared(var) {
                Some(known) if known != (0, high - 1) => var = Name::new(&format!("{}_{n}", l.var)),
                _ => break,
            }
        }
        self.ranges.declare(var, 0, high - 1);
        self.env.insert(l.var, Int::var(var));
        let body = self.stmt(&l.body)?;
        Ok(Node::Loop { var, extent, spread, body: Box::new(body) })
    }

    /// Each thread along x has its own iteration.
    fn combined_loop(&mut self, l: &For, extent: &Int) -> Result<Node, EmitError> {
        let text = |why: &str| format!("kernel `{}`: loop `{}` is combined, but {why}", self.kernel, l.var);
        let [x, y, z] = self.axes.local;
        let alone = [y, z].iter().flatten().all(|a| a.extent == 1);
        let Some(axis) = x.filter(|a| alone && extent.is(a.extent)) else {
            return Err(EmitError::unsupported(text("it has other iterations than the workgroup has threads")));
        };
        let refused = EmitError::unsupported(text("holds more than one reduction without conditions"));
        let Stmt::Block(b) = &l.body else { return Err(refused) };
        self.env.insert(l.var, Int::var(axis.var));
        match self.block(b)? {
            Node::Leaf(leaf) if b.reduce.is_some_and(|r| !r.init) && leaf.guards.is_empty() => {
                Ok(Node::Leaf(Box::new(Leaf { across: true, ..*leaf })))
            }
            _ => Err(refused),
        }
    }

    fn instance(&mut self, l: &For, value: Int) -> Result<Node, EmitError> {
        self.env.insert(l.var, value);
        self.stmt(&l.body)
    }

    fn repeat(&mut self, l: &For, from: i64, to: i64) -> Result<Node, EmitError> {
        Ok(Node::seq((from..to).map(|i| self.instance(l, Int::new(i))).collect::<Result<_, _>>()?))
    }

    /// Lanes come in fours where possible; a longer loop becomes several vectors.
    fn vector_loop(&mut self, l: &For, n: i64) -> Result<Node, EmitError> {
        let mut nested = self.lane.is_some();
        l.body.visit(&mut |s| nested |= matches!(s, Stmt::For(l) if l.kind == LoopKind::Vectorize && !l.extent.is(1)));
        let count = match n {
            _ if nested => 1,
            3 => 3,
            n if n % 4 == 0 => 4,
            n if n % 2 == 0 => 2,
            _ => 1,
        };
        if count == 1 {
            return self.repeat(l, 0, n);
        }
        let var = if n == count { l.var } else { Name::new(&format!("{}_lane", l.var)) };
        self.ranges.declare(var, 0, count - 1);
        self.lane = Some(Lane { var, count: count as u8 });
        let chunks = (0..n / count).map(|c| self.instance(l, Int::new(c * count) + Int::var(var)));
        let chunks: Result<Vec<Node>, EmitError> = chunks.collect();
        self.lane = None;
        Ok(Node::seq(chunks?))
    }

    fn int(&mut self, e: &Int) -> Int {
        let env = &self.env;
        let e = e.replace(&mut |v| env.get(&v).cloned());
        self.ranges.simplify(&e)
    }

    fn block(&mut self, b: &Block) -> Result<Node, EmitError> {
        let init = b.reduce.filter(|r| r.init).map(|_| self.init_conds(b));
        let mut leaf = Leaf {
            block: b.name,
            guards: b.guards.iter().map(|c| c.map(&mut |i| self.int(i))).collect(),
            facts: self.conds.clone(),
            buffer: b.buffer,
            indices: b.indices.iter().map(|i| self.int(i)).collect(),
            value: self.expr(&b.value),
            combiner: b.reduce.map(|r| r.combiner),
            init,
            lane: self.lane,
            across: false,
            tensor: self.tensor.clone(),
        };
        let mut out = Vec::new();
        if self.vectorize(&mut leaf) {
            self.finish(leaf, &mut out);
        } else {
            let lane = leaf.lane.take().expect("only a leaf with lanes is split");
            for v in 0..i64::from(lane.count) {
                let one = self.substitute(&leaf, lane.var, &Int::new(v));
                self.finish(one, &mut out);
            }
        }
        self.leaves += out.len();
        if self.leaves > MAX_LEAVES {
            return Err(EmitError::unsupported(format!(
                "kernel `{}` unrolls to more than {MAX_LEAVES} statements",
                self.kernel
            )));
        }
        Ok(Node::seq(out))
    }

    /// Conditions for the identity: all reduction loops are at 0.
    fn init_conds(&mut self, b: &Block) -> Vec<Cond> {
        let function = self.function;
        let loops = self.reductions.entry(b.name).or_insert_with(|| function.reduction_loops(b.name)).clone();
        let values: Vec<Int> = loops.into_iter().map(|v| self.int(&Int::var(v))).collect();
        values.into_iter().filter(|v| !v.is(0)).map(|v| Cond::eq(v, 0)).collect()
    }

    fn expr(&mut self, e: &Expr) -> Expr {
        let env = self.env.clone();
        let ranges = &mut *self.ranges;
        let e = e.map_ints(&mut |i| ranges.simplify(&i.replace(&mut |v| env.get(&v).cloned())));
        fold_conditions(&e, ranges)
    }

    fn substitute(&mut self, leaf: &Leaf, var: Name, by: &Int) -> Leaf {
        let ranges = &mut *self.ranges;
        let mut int = |i: &Int| if i.uses(var) { ranges.simplify(&i.substitute(var, by)) } else { i.clone() };
        let guards = leaf.guards.iter().map(|c| c.map(&mut int)).collect();
        let facts = leaf.facts.iter().map(|c| c.map(&mut int)).collect();
        let init = leaf.init.as_ref().map(|list| list.iter().map(|c| c.map(&mut int)).collect());
        let indices = leaf.indices.iter().map(&mut int).collect();
        let value = leaf.value.map_ints(&mut int);
        let value = fold_conditions(&value, ranges);
        Leaf { guards, facts, init, indices, value, lane: None, ..leaf.clone() }
    }

    /// Drops guards that always hold and the whole leaf when one never does.
    fn finish(&mut self, mut leaf: Leaf, out: &mut Vec<Node>) {
        let mut never = false;
        leaf.guards.retain(|c| {
            let known = self.ranges.decide(c);
            never |= known == Some(false);
            known != Some(true)
        });
        if let Some(init) = &mut leaf.init {
            let mut ruled_out = false;
            init.retain(|c| {
                let known = self.ranges.decide(c);
                ruled_out |= known == Some(false);
                known != Some(true)
            });
            if ruled_out {
                leaf.init = None;
            }
        }
        if never || adds_nothing(&leaf) {
            return;
        }
        leaf.facts.extend(leaf.guards.iter().cloned());
        out.push(Node::Leaf(Box::new(leaf)));
    }

    /// Brings a leaf with lanes into a form that one vector operation can do; false when there is none.
    fn vectorize(&mut self, leaf: &mut Leaf) -> bool {
        let Some(lane) = leaf.lane else { return true };
        let stores = leaf.indices.iter().any(|i| i.uses(lane.var));
        if !stores {
            let mut used = leaf.combiner.is_some();
            leaf.visit_ints(&mut |i| used |= i.uses(lane.var));
            if !used {
                leaf.lane = None;
            }
            return !used;
        }
        if !leaf.tensor.is_empty() || leaf.init.iter().flatten().any(|c| c.lhs.uses(lane.var)) {
            return false;
        }
        let mut guards = Vec::with_capacity(leaf.guards.len());
        let mut exact = Vec::new();
        for g in leaf.guards.clone() {
            if self.ranges.decide(&g) == Some(true) {
                continue;
            }
            if !g.lhs.uses(lane.var) && !g.rhs.uses(lane.var) {
                guards.push(g);
            } else if let Some(all) = uniform_guard(&g, lane) {
                exact.push(g);
                guards.push(all);
            } else if let Some(first) = self.padded_tail(&g, leaf, lane) {
                guards.push(first);
            } else {
                return false;
            }
        }
        leaf.guards = guards;
        leaf.facts.extend(exact);
        true
    }

    /// `flat(store) < numel` of a global buffer: lanes beyond the end fall into the buffer's padding to 16 bytes, so
    /// only the first lane is tested.
    fn padded_tail(&mut self, g: &Cond, leaf: &Leaf, lane: Lane) -> Option<Cond> {
        let buffer = &self.function.buffers[leaf.buffer];
        if buffer.scope != Scope::Global || g.op != CondOp::Lt || leaf.combiner.is_some() {
            return None;
        }
        let flat = self.ranges.simplify(&int::flatten_index(&leaf.indices, &buffer.shape));
        let (base, step) = split_lane(&flat, lane)?;
        if step != 1 || !is_multiple(&base, i64::from(lane.count)) || 4 % lane.count != 0 {
            return None;
        }
        let slack = (buffer.numel() - flat) - (g.rhs.clone() - g.lhs.clone());
        self.ranges.simplify(&slack).is(0).then(|| Cond::lt(base, buffer.numel()))
    }
}

/// A guard that all lanes agree on although it uses the lane: `b + v < c` with `b` and `c` multiples of the lane count.
fn uniform_guard(g: &Cond, lane: Lane) -> Option<Cond> {
    let n = i64::from(lane.count);
    if g.op == CondOp::Eq || g.rhs.uses(lane.var) {
        return None;
    }
    let (base, step) = split_lane(&g.lhs, lane)?;
    (step == 1 && is_multiple(&base, n) && is_multiple(&g.rhs, n)).then(|| Cond {
        lhs: base,
        op: g.op,
        rhs: g.rhs.clone(),
    })
}

/// True if 0 is added to a running sum. Sums begin at +0 and are never -0, so that does not change them.
fn adds_nothing(leaf: &Leaf) -> bool {
    let zero = match &leaf.value {
        Expr::Const(Scalar::Float(v), _) => v.to_bits() == 0,
        Expr::Const(Scalar::Int(v), _) => *v == 0,
        _ => false,
    };
    zero && leaf.combiner == Some(Combiner::Sum) && leaf.init.is_none()
}

/// Removes conditions that are decided by the ranges of variables, selects on them, and the factors 1 and -1 that are
/// left of some.
fn fold_conditions(e: &Expr, ranges: &mut Facts) -> Expr {
    e.rewrite(&mut |i| i.clone(), &mut |e| match e {
        Expr::All(conds) => {
            let known: Vec<Option<bool>> = conds.iter().map(|c| ranges.decide(c)).collect();
            if known.contains(&Some(false)) {
                return Some(Expr::Const(Scalar::Int(0), DType::Bool));
            }
            let open: Vec<Cond> =
                conds.iter().zip(known).filter(|(_, k)| *k != Some(true)).map(|(c, _)| c.clone()).collect();
            Some(if open.is_empty() { Expr::Const(Scalar::Int(1), DType::Bool) } else { Expr::All(open) })
        }
        Expr::Select(c, a, b) => match **c {
            Expr::Const(Scalar::Int(v), _) => Some(if v != 0 { (**a).clone() } else { (**b).clone() }),
            _ => None,
        },
        Expr::Binary(BinaryOp::Mul, a, b) => match **a {
            Expr::Const(Scalar::Float(1.0), _) => Some((**b).clone()),
            Expr::Const(Scalar::Float(-1.0), _) => Some(Expr::unary(UnaryOp::Neg, (**b).clone())),
            _ => None,
        },
        _ => None,
    })
}
