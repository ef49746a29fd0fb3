//! Nodes of two models that compute the same, matched by values and structure, not by names: `weft diff a.onnx b.onnx`.
//!
//! Both models run on the interpreter with the same drawn inputs. Nodes whose results are equal within the tolerance
//! are candidates. A pair whose nodes have no other candidate is matched by its values. Of several candidates the one
//! with the same op is taken; of several such that with matched operands, else that which is read at the same operand
//! of a matched node.
//! Nodes that neither tells apart (two branches with equal weights) are reported as ambiguous; nothing is guessed.

mod record;

use crate::error::{Error, Result};
use crate::inputs::Inputs;
use crate::models::{Chance, inputs_for, load};
use crate::progress::log;
use crate::settings::Settings;
use crate::values_by_name::{exact_values, nodes_of};
use compiler::graph::{Function, Module, Node, NodeId, Origins, ValueDef, ValueId};
use compiler::name::Name;
use compiler::ops::control::Const;
use compiler::tensor::Tensor;
pub use record::{Ambiguous, How, ModelDiff, NodePair, Parting, Why};
use rustc_hash::{FxHashMap, FxHashSet};

/// Results that are equal up to this share of their norm are one: two exporters' files differ by the order of sums.
pub const RTOL: f64 = 1e-4;
/// The same for a model beside one in fewer bits: taken where nodes at which the models part are not found otherwise.
const COARSE: f64 = 0.05;

/// Matches the nodes of two models. Results are equal up to `rtol` of their norm; without it, up to [`RTOL`], or for a
/// model beside one in fewer bits up to what these need.
///
/// # Errors
/// Models that cannot be loaded or run; inputs of which one model has others than the other.
pub fn match_models(paths: [&str; 2], rtol: Option<f64>, settings: &Settings) -> Result<ModelDiff> {
    let [a, b] = [load(paths[0], settings, None)?, load(paths[1], settings, None)?];
    let inputs = inputs_for(&a, None, settings)?;
    let chance = Chance::of(&a, &inputs, None);
    match_modules(paths, [&a, &b], &inputs, rtol, settings).map_err(|e| chance.blamed(e))
}

/// Matches the nodes of two modules, which are called `paths`, with inputs of the first.
///
/// # Errors
/// Modules that cannot run; inputs of which one has others than the other.
pub fn match_modules(
    paths: [&str; 2],
    [a, b]: [&Module; 2],
    inputs: &[Tensor],
    rtol: Option<f64>,
    settings: &Settings,
) -> Result<ModelDiff> {
    let sides = both([a, b], inputs, settings)?;
    let at = |rtol: f64| Matching::new(&sides, rtol).found(paths);
    let fine = at(rtol.unwrap_or(RTOL));
    if rtol.is_some() || !fine.partings.is_empty() || fine.pairs.len() == fine.nodes[0] {
        return Ok(fine);
    }
    let coarse = at(COARSE);
    Ok(if coarse.pairs.len() > fine.pairs.len() { coarse } else { fine })
}

/// Both modules with their values; they take the same inputs.
fn both<'m>([a, b]: [&'m Module; 2], inputs: &[Tensor], settings: &Settings) -> Result<[Side<'m>; 2]> {
    refuse_other_inputs(a, b)?;
    Ok([Side::run(a, inputs, settings)?, Side::run(b, inputs, settings)?])
}

/// Refuses two models that take inputs of different types.
///
/// # Errors
/// Code 2, with both lists.
pub fn refuse_other_inputs(a: &Module, b: &Module) -> Result<()> {
    let types =
        |m: &Module| -> Vec<String> { m.main().params().iter().map(|&p| format!("{:?}", m.main().ty(p))).collect() };
    if types(a) != types(b) {
        let [x, y] = [types(a), types(b)].map(|t| t.join(", "));
        return Err(Error::usage(format!("the models take other inputs: {x}; and {y}"))
            .help("--dim and --shape give both the same sizes"));
    }
    Ok(())
}

/// The second model. Its nodes that are matched, or part, have the names of their counterparts in the first; where
/// another node has such a name, that gets a mark.
///
/// # Errors
/// As of [`match_models`].
pub fn named_alike(first: &str, second: &str, input: &Inputs, settings: &Settings) -> Result<Module> {
    let given = crate::inputs::given(input, first, settings)?;
    let [a, mut b] = [load(first, settings, given.as_ref())?, load(second, settings, given.as_ref())?];
    let inputs = inputs_for(&a, given.as_ref(), settings)?;
    let chance = Chance::of(&a, &inputs, given.as_ref());
    let found = match_modules([first, second], [&a, &b], &inputs, None, settings).map_err(|e| chance.blamed(e))?;
    let pairs = found.pairs.iter().map(|p| (&p.a, &p.b)).chain(found.partings.iter().map(|p| (&p.a, &p.b)));
    let names: FxHashMap<&str, &str> = pairs.map(|(a, b)| (b.as_str(), a.as_str())).collect();
    log(settings, format!("{} of {} nodes of {second} have a counterpart in {first}", names.len(), found.nodes[1]));
    let taken: FxHashSet<String> = nodes_of(a.main()).map(|n| a.main().nodes[n].name.to_string()).collect();
    let new = |name: Name| match names.get(name.as_str()) {
        Some(counterpart) => Name::new(counterpart),
        None if taken.contains(name.as_str()) => Name::new(&format!("{name} (second)")),
        None => name,
    };
    for f in b.functions.values_mut() {
        for n in f.walk() {
            let node = &mut f.nodes[n];
            node.origins = Origins::from_names(node.origins.names().iter().map(|&o| new(o)));
            node.name = new(node.name);
        }
    }
    Ok(b)
}

/// One model with the values of its nodes.
struct Side<'m> {
    f: &'m Function,
    nodes: Vec<NodeId>,
    /// The place of each node in `nodes`.
    places: FxHashMap<NodeId, usize>,
    /// First results; constants.
    values: FxHashMap<ValueId, Tensor>,
    /// Nodes that read the first result of each, with the operand.
    users: Vec<Vec<(usize, usize)>>,
}

impl<'m> Side<'m> {
    fn run(module: &'m Module, inputs: &[Tensor], settings: &Settings) -> Result<Side<'m>> {
        let f = module.main();
        let nodes: Vec<NodeId> = nodes_of(f).filter(|&n| !f.nodes[n].outputs.is_empty()).collect();
        let places: FxHashMap<NodeId, usize> = nodes.iter().enumerate().map(|(i, &n)| (n, i)).collect();
        let (mut values, _) = exact_values(module, inputs, settings, |_| true)?;
        for v in f.values.ids() {
            let constant = f.def_op::<Const>(v).and_then(|(_, c)| module.constants.get(&c.name));
            if let Some(t) = constant.and_then(|c| c.load().ok()) {
                values.insert(v, t);
            }
        }
        let mut users = vec![vec![]; nodes.len()];
        for (at, &n) in nodes.iter().enumerate() {
            for (i, v) in f.nodes[n].inputs.iter().enumerate() {
                if let Some(&maker) = v.and_then(|v| f.def_node(v)).and_then(|n| places.get(&n)) {
                    users[maker].push((at, i));
                }
            }
        }
        Ok(Side { f, nodes, places, values, users })
    }
    fn name(&self, at: usize) -> String {
        self.f.nodes[self.nodes[at]].name.to_string()
    }
    fn op(&self, at: usize) -> &'static str {
        self.f.nodes[self.nodes[at]].op.name()
    }
    fn node(&self, at: usize) -> &Node {
        &self.f.nodes[self.nodes[at]]
    }
    /// It reads an input, or what another node computes.
    fn reads_data(&self, at: usize) -> bool {
        self.node(at).inputs.iter().flatten().any(|&v| self.f.def_op::<Const>(v).is_none())
    }
    /// Nodes that compute from these, without them.
    fn behind(&self, from: &[usize]) -> Vec<usize> {
        let mut seen: FxHashSet<usize> = from.iter().copied().collect();
        let (mut open, mut out) = (from.to_vec(), vec![]);
        while let Some(at) = open.pop() {
            for &(user, _) in &self.users[at] {
                if seen.insert(user) {
                    open.push(user);
                    out.push(user);
                }
            }
        }
        out
    }
    fn value(&self, at: usize) -> Option<&Tensor> {
        self.values.get(&self.f.nodes[self.nodes[at]].outputs[0])
    }
}

/// `norm(a-b) / norm(b)`; `None` for other shapes or for numbers beside floats.
fn distance(a: &Tensor, b: &Tensor) -> Option<f64> {
    if a.shape() != b.shape() || a.dtype().is_float() != b.dtype().is_float() {
        return None;
    }
    let (mut error, mut norm) = (0.0f64, 0.0f64);
    for (x, y) in a.to_f64_vec().into_iter().zip(b.to_f64_vec()) {
        if x != y && !(x.is_nan() && y.is_nan()) {
            error += (x - y) * (x - y);
        }
        norm += if y.is_finite() { y * y } else { 0.0 };
    }
    let found = if error == 0.0 { 0.0 } else { (error / norm).sqrt() };
    Some(if found.is_nan() { f64::INFINITY } else { found })
}

struct Matching<'s, 'm> {
    sides: &'s [Side<'m>; 2],
    rtol: f64,
    /// Nodes of the second model with the values of each node of the first, and how far they are from it.
    candidates: Vec<Vec<(usize, f64)>>,
    /// Partners, of both sides.
    partner: [Vec<Option<usize>>; 2],
    how: Vec<Option<How>>,
}

impl<'s, 'm> Matching<'s, 'm> {
    fn new(sides: &'s [Side<'m>; 2], rtol: f64) -> Matching<'s, 'm> {
        let [a, b] = sides;
        let mut by_shape: FxHashMap<&[usize], Vec<(usize, &Tensor)>> = FxHashMap::default();
        for at in 0..b.nodes.len() {
            if let Some(t) = b.value(at) {
                by_shape.entry(t.shape()).or_default().push((at, t));
            }
        }
        let of = |at: usize| -> Vec<(usize, f64)> {
            let Some(t) = a.value(at) else { return vec![] };
            let like = by_shape.get(t.shape()).into_iter().flatten();
            like.filter_map(|(i, u)| Some((*i, distance(t, u).filter(|&d| d <= rtol)?))).collect()
        };
        let candidates = (0..a.nodes.len()).map(of).collect();
        let partner = [vec![None; a.nodes.len()], vec![None; b.nodes.len()]];
        let mut m = Matching { sides, rtol, candidates, partner, how: vec![None; a.nodes.len()] };
        while [How::Values, How::Op, How::Operands, How::Users].into_iter().any(|by| m.step(by)) {}
        m
    }

    /// Candidates of node `x` that are free, and that `by` allows.
    fn open(&self, x: usize, by: How) -> Vec<usize> {
        let free = self.candidates[x].iter().map(|c| c.0).filter(|&y| self.partner[1][y].is_none());
        free.filter(|&y| by == How::Values || self.sides[0].op(x) == self.sides[1].op(y))
            .filter(|&y| match by {
                How::Values | How::Op => true,
                How::Operands => self.reads_the_same(x, y, true),
                How::Users => self.is_read_alike(x, y),
            })
            .collect()
    }

    /// Matches every free pair of which neither has another candidate that `by` allows.
    fn step(&mut self, by: How) -> bool {
        let free = |m: &Self, x: usize| m.partner[0][x].is_none();
        let open: Vec<Vec<usize>> =
            (0..self.candidates.len()).map(|x| if free(self, x) { self.open(x, by) } else { vec![] }).collect();
        let mut wanted = vec![0usize; self.sides[1].nodes.len()];
        open.iter().flatten().for_each(|&y| wanted[y] += 1);
        let mut any = false;
        for (x, list) in open.iter().enumerate() {
            if let [y] = list[..]
                && wanted[y] == 1
            {
                (self.partner[0][x], self.partner[1][y], self.how[x]) = (Some(y), Some(x), Some(by));
                any = true;
            }
        }
        any
    }

    /// The operands of two nodes are matched, one after the other: inputs of one place, results of matched nodes, and,
    /// if `constants` says so, equal constants.
    fn reads_the_same(&self, x: usize, y: usize, constants: bool) -> bool {
        let [a, b] = self.sides;
        let (p, q) = (&a.f.nodes[a.nodes[x]].inputs, &b.f.nodes[b.nodes[y]].inputs);
        p.len() == q.len()
            && p.iter().zip(q).all(|(v, w)| match (v, w) {
                (None, None) => true,
                (Some(v), Some(w)) => self.same_value(*v, *w, constants),
                _ => false,
            })
    }

    fn same_value(&self, v: ValueId, w: ValueId, constants: bool) -> bool {
        let [a, b] = self.sides;
        match (a.f.values[v].def, b.f.values[w].def) {
            (ValueDef::Arg(_, i), ValueDef::Arg(_, j)) => i == j,
            (ValueDef::Result(n, i), ValueDef::Result(m, j)) => match (a.places.get(&n), b.places.get(&m)) {
                (Some(&x), Some(&y)) => i == j && self.partner[0][x] == Some(y),
                (None, None) => !constants || self.same_constant(v, w),
                _ => false,
            },
            _ => false,
        }
    }

    fn same_constant(&self, v: ValueId, w: ValueId) -> bool {
        let pair = (self.sides[0].values.get(&v), self.sides[1].values.get(&w));
        matches!(pair, (Some(s), Some(t)) if distance(s, t).is_some_and(|d| d <= self.rtol))
    }

    /// A matched pair reads both nodes at the same operand.
    fn is_read_alike(&self, x: usize, y: usize) -> bool {
        let [a, b] = self.sides;
        a.users[x]
            .iter()
            .any(|(u, i)| self.partner[0][*u].is_some_and(|w| b.users[y].contains(&(w, *i)) && a.op(*u) == b.op(w)))
    }

    fn found(&self, paths: [&str; 2]) -> ModelDiff {
        let [a, b] = self.sides;
        let mut out = ModelDiff {
            a: paths[0].into(),
            b: paths[1].into(),
            nodes: [a.nodes.len(), b.nodes.len()],
            rtol: self.rtol,
            pairs: vec![],
            ambiguous: vec![],
            only_a: vec![],
            only_b: vec![],
            partings: vec![],
            behind_a: vec![],
            behind_b: vec![],
        };
        let mut groups: Vec<(Vec<usize>, Vec<usize>)> = vec![];
        for x in 0..a.nodes.len() {
            if let (Some(y), Some(by)) = (self.partner[0][x], self.how[x]) {
                let rel_l2 = self.candidates[x].iter().find(|c| c.0 == y).map_or(0.0, |c| c.1);
                out.pairs.push(NodePair { a: a.name(x), b: b.name(y), op: a.op(x).into(), by, rel_l2 });
                continue;
            }
            let open = self.open(x, How::Values);
            match groups.iter_mut().find(|g| g.1.iter().any(|y| open.contains(y))) {
                _ if open.is_empty() => out.only_a.push(a.name(x)),
                Some(group) => {
                    group.0.push(x);
                    group.1.extend(open);
                    group.1.sort_unstable();
                    group.1.dedup();
                }
                None => groups.push((vec![x], open)),
            }
        }
        let grouped = |y: &usize| groups.iter().any(|g| g.1.contains(y));
        let single = (0..b.nodes.len()).filter(|&y| self.partner[1][y].is_none());
        out.only_b = single.filter(|y| !grouped(y)).map(|y| b.name(y)).collect();
        let parted = self.parted();
        out.partings = parted.iter().map(|&(x, y)| self.parting(x, y)).collect();
        let behind = |side: usize, from: Vec<usize>, only: &[String]| -> Vec<String> {
            let found = self.sides[side].behind(&from);
            let names: FxHashSet<String> = found.into_iter().map(|at| self.sides[side].name(at)).collect();
            only.iter().filter(|n| names.contains(*n)).cloned().collect()
        };
        out.behind_a = behind(0, parted.iter().map(|p| p.0).collect(), &out.only_a);
        out.behind_b = behind(1, parted.iter().map(|p| p.1).collect(), &out.only_b);
        let names = |(x, y): &(Vec<usize>, Vec<usize>)| Ambiguous {
            a: x.iter().map(|&i| a.name(i)).collect(),
            b: y.iter().map(|&i| b.name(i)).collect(),
        };
        out.ambiguous = groups.iter().map(names).collect();
        out
    }

    /// Pairs with the same operands, constants aside, and other results: of one op, else of two. Each node has one
    /// counterpart, or none.
    fn parted(&self) -> Vec<(usize, usize)> {
        let [a, b] = self.sides;
        let first: Vec<usize> =
            (0..a.nodes.len()).filter(|&x| self.partner[0][x].is_none() && self.candidates[x].is_empty()).collect();
        let second: Vec<usize> = (0..b.nodes.len()).filter(|&y| self.partner[1][y].is_none()).collect();
        let mut out: Vec<(usize, usize)> = vec![];
        for of_one_op in [true, false] {
            let fits = |x: usize, y: usize| {
                (a.op(x) == b.op(y)) == of_one_op && self.reads_the_same(x, y, false) && (of_one_op || a.reads_data(x))
            };
            let free = |p: &(usize, usize), out: &[(usize, usize)]| out.iter().all(|q| q.0 != p.0 && q.1 != p.1);
            let all = first.iter().flat_map(|&x| second.iter().map(move |&y| (x, y)));
            let open: Vec<(usize, usize)> = all.filter(|p| free(p, &out) && fits(p.0, p.1)).collect();
            let single = |p: &&(usize, usize)| open.iter().filter(|q| q.0 == p.0 || q.1 == p.1).count() == 1;
            out.extend(open.iter().filter(single));
        }
        out.sort_unstable();
        out
    }

    fn parting(&self, x: usize, y: usize) -> Parting {
        let [a, b] = self.sides;
        let [p, q] = [a.node(x), b.node(y)];
        let constant = |v: &Option<ValueId>| v.is_some_and(|v| a.f.def_op::<Const>(v).is_some());
        let other = |(v, w): (&Option<ValueId>, &Option<ValueId>)| {
            constant(v) && matches!((v, w), (Some(v), Some(w)) if !self.same_constant(*v, *w))
        };
        let pairs = p.inputs.iter().zip(&q.inputs).enumerate();
        let constants: Vec<usize> = pairs.filter(|(_, pair)| other(*pair)).map(|(i, _)| i).collect();
        let one_op = a.op(x) == b.op(y);
        let reasons = [
            (!one_op, Why::Op),
            (!constants.is_empty(), Why::Constants),
            (one_op && p.op != q.op, Why::Attributes),
            (one_op && (!p.regions.is_empty() || p.op.callee().is_some()), Why::Inner),
        ];
        let mut why: Vec<Why> = reasons.into_iter().filter(|r| r.0).map(|r| r.1).collect();
        if why.is_empty() {
            why.push(Why::Tolerance);
        }
        Parting {
            a: a.name(x),
            b: b.name(y),
            op: a.op(x).into(),
            op_b: b.op(y).into(),
            rel_l2: a.value(x).zip(b.value(y)).and_then(|(s, t)| distance(s, t)),
            constants,
            why,
        }
    }
}
