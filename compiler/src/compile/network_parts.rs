//! Splits a network in which some sizes are known only after some of its nodes have run.
//!
//! [`split_network`] cuts it at the nodes that define sizes (`Op::defined_symbols`):
//! - the *head*: everything that does not depend on such a node. It is one plan, an open plan if the network has open
//!   dimensions;
//! - the nodes that decide sizes. If a few operands say the sizes of a node
//!   ([`Op::size_operands`](crate::ops::Op::size_operands): a shape, axes, `k`, the bounds of a slice), the host reads
//!   only those, and the node becomes part of the tail as a node of known sizes (`Op::with_sizes`). For an `if` whose
//!   branches differ in shape, the condition is that operand, and the region that is taken replaces the node
//!   (`Op::region_taken`). A loop that decides sizes runs as a plan. Other nodes run on the host, one by one;
//! - the *tail*: everything else, compiled for the sizes that came out. `runtime_gpu::Staged` keeps 16 of these, by
//!   shapes and by what the values that were read make of it. A tail may be split again.
//!
//! Values that the host neither reads nor computes stay on the device: results of one part are bound as inputs of the
//! next.

use super::check::is_known;
use super::sizes::{SizeError, sizes_of};
use crate::graph::{BindError, Function, Module, Node, NodeId, TensorType, ValueDef, ValueId, learn_dims};
use crate::graph::{open_dims, reinfer, set_shapes_in_order, substitute_dims};
use crate::int::{Dim, DimRanges, Int};
use crate::name::Name;
use crate::ops::control::Const;
use crate::ops::{InferContext, OpRef, const_value};
use crate::passes::rewriter::Rewriter;
use crate::passes::{CountResults, InlineFunctions, PassContext, PassError, ToANormalForm, run_pass};
use crate::tensor::Tensor;
use rustc_hash::{FxHashMap, FxHashSet};

/// Where an operand of a part comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PartValue {
    /// The n-th input of the network.
    Input(usize),
    /// The n-th result of the head.
    Head(usize),
    /// The n-th result of the nodes that decide sizes.
    Sizing(usize),
}

/// A node of the tail that defines sizes, and its operands that determine them, without constants.
#[derive(Clone, Debug)]
pub struct SizedNode {
    /// The node, of the tail's entry function.
    pub node: NodeId,
    /// Its operands that are read.
    pub operands: Vec<(usize, PartValue)>,
    /// Only the types of its results are used.
    pub types_alone: bool,
}

/// The parts of a network: modules whose entry functions take values of the parts before.
#[derive(Clone, Debug)]
pub struct NetworkParts {
    /// Everything that does not depend on such sizes. It takes the network's inputs.
    pub head: Module,
    /// The nodes that have to run to decide sizes, and depend on no other such node.
    pub sizing: Module,
    /// Its operands.
    pub sizing_operands: Vec<PartValue>,
    /// The rest, possibly with further nodes that decide sizes. Its results are the network's.
    pub tail: Module,
    /// Its operands.
    pub tail_operands: Vec<PartValue>,
    /// Its nodes whose sizes are read.
    pub sized: Vec<SizedNode>,
}

impl NetworkParts {
    /// The values that determine sizes. They are read before the tail is compiled.
    pub fn reads(&self) -> Vec<PartValue> {
        self.sized.iter().flat_map(|s| s.operands.iter().map(|o| o.1)).collect()
    }

    /// The sizes of the network's open dimensions that its inputs of these shapes have.
    ///
    /// # Errors
    /// Shapes that do not go with the network's inputs, sizes beyond these ranges.
    pub fn sizes(&self, shapes: &[&[usize]], ranges: &DimRanges) -> Result<Vec<(Name, i64)>, SizeError> {
        sizes_of(&self.head, shapes, ranges)
    }

    /// The nodes that decide sizes, for these sizes of the network's open dimensions and operands of these shapes.
    ///
    /// # Errors
    /// Sizes that a node refuses.
    pub fn sizing_at(&self, dims: &[(Name, i64)], shapes: &[Vec<usize>]) -> Result<Module, BindError> {
        let mut module = self.sizing.clone();
        set_sizes(&mut module, dims, shapes)?;
        Ok(module)
    }

    /// What the values of [`NetworkParts::reads`] make of the tail: if it is the same for two runs with operands of the
    /// same sizes, the tail is. Where only types of a node's results are used, that is their dimensions.
    ///
    /// # Errors
    /// Values that a node refuses.
    pub fn tail_form(&self, read: &[Tensor]) -> Result<Vec<String>, BindError> {
        let mut read = read.iter();
        let mut out = vec![];
        for sized in &self.sized {
            let values: Vec<_> = sized.operands.iter().zip(read.by_ref()).map(|(o, t)| (o.0, t.clone())).collect();
            out.push(match form_of(&self.tail, sized.node, values)? {
                SizedForm::Region(region) => region.to_string(),
                SizedForm::Op(op, taken) => {
                    let types = types_of(&self.tail, sized.node, &op, &taken);
                    let known = types.ok().filter(|t| sized.types_alone && t.iter().all(|t| t.const_shape().is_some()));
                    known.map_or_else(|| format!("{op:?}"), |types| format!("{types:?}"))
                }
            });
        }
        Ok(out)
    }

    /// The tail for these sizes of the network's open dimensions, operands of these shapes, and these values of
    /// [`NetworkParts::reads`].
    ///
    /// # Errors
    /// Sizes that there cannot be, or that a later node refuses.
    pub fn tail_at(&self, dims: &[(Name, i64)], shapes: &[Vec<usize>], read: &[Tensor]) -> Result<Module, BindError> {
        let mut module = self.tail.clone();
        set_sizes(&mut module, dims, shapes)?;
        let mut read = read.iter();
        let mut sizes: FxHashMap<Name, Int> = FxHashMap::default();
        for sized in &self.sized {
            let values: Vec<_> = sized.operands.iter().zip(read.by_ref()).map(|(o, t)| (o.0, t.clone())).collect();
            size_node(&mut module, sized.node, values, &mut sizes)?;
        }
        substitute_dims(&mut module, &sizes);
        let entry = module.entry;
        reinfer(&mut module, entry)?;
        Ok(module)
    }
}

/// How [`size_node`] changes a node.
enum SizedForm {
    /// The region that replaces it.
    Region(usize),
    /// The op that replaces it, with those of the operands that it takes.
    Op(OpRef, Vec<Option<usize>>),
}

/// What the values read make of a node.
fn form_of(module: &Module, n: NodeId, mut values: Vec<(usize, Tensor)>) -> Result<SizedForm, BindError> {
    let f = module.main();
    let node = &f.nodes[n];
    for &i in node.op.size_operands() {
        let constant = node.inputs.get(i).copied().flatten().and_then(|v| const_value(module, f, v));
        values.extend(constant.map(|t| (i, t)));
    }
    let value = |i: usize| values.iter().find(|v| v.0 == i).map(|v| v.1.clone());
    let operands: Vec<_> = (0..node.inputs.len()).map(value).collect();
    if let Some(region) = node.op.region_taken(&operands) {
        return Ok(SizedForm::Region(region));
    }
    let (op, taken) = node.op.with_sizes(&operands).map_err(|e| refusal(node, e.message))?;
    Ok(SizedForm::Op(op, taken))
}

fn refusal(node: &Node, message: String) -> BindError {
    BindError::Node { node: node.name, op: node.op.name(), message }
}

/// The types of a node's results with another op.
fn types_of(module: &Module, n: NodeId, op: &OpRef, taken: &[Option<usize>]) -> Result<Vec<TensorType>, BindError> {
    let f = module.main();
    let node = &f.nodes[n];
    let inputs: Vec<_> = taken.iter().map(|i| node.inputs.get((*i)?).copied().flatten()).collect();
    op.infer(&InferContext::new(module, f, &inputs, &[])).map_err(|e| refusal(node, e.message))
}

/// Gives open dimensions their sizes, and the operands of a part their shapes.
fn set_sizes(module: &mut Module, dims: &[(Name, i64)], shapes: &[Vec<usize>]) -> Result<(), BindError> {
    substitute_dims(module, &dims.iter().map(|&(d, n)| (d, Int::new(n))).collect());
    set_shapes_in_order(module, &shapes.iter().map(Vec::as_slice).collect::<Vec<_>>())
}

/// Makes the sizes that operands determine attributes of a node, and records the values of its symbols. A node with
/// regions is replaced by the region that its operands choose.
fn size_node(
    module: &mut Module,
    n: NodeId,
    values: Vec<(usize, Tensor)>,
    sizes: &mut FxHashMap<Name, Int>,
) -> Result<(), BindError> {
    let (op, taken) = match form_of(module, n, values)? {
        SizedForm::Region(region) => {
            let entry = module.entry;
            let mut r = Rewriter::new(module, entry);
            r.splice_taken(n, region);
            r.finish();
            return Ok(());
        }
        SizedForm::Op(op, taken) => (op, taken),
    };
    let types = types_of(module, n, &op, &taken)?;
    let f = module.main();
    let node = &f.nodes[n];
    for (&v, ty) in node.outputs.iter().zip(&types) {
        let old = &f.ty(v).shape;
        let fits = |(old, new): (&Dim, &Dim)| old.as_const().is_none() || old == new;
        if old.len() != ty.rank() || !old.iter().zip(&ty.shape).all(fits) {
            return Err(refusal(node, format!("the result is {ty:?}, not {:?}", f.ty(v))));
        }
        learn_dims(old, &ty.shape, sizes);
    }
    let inputs = taken.iter().map(|i| node.inputs.get((*i)?).copied().flatten()).collect();
    let node = &mut module.main_mut().nodes[n];
    (node.op, node.inputs) = (op, inputs);
    Ok(())
}

/// The parts of a network in which nodes decide sizes. `None` if no node of the entry function does (after inlining
/// calls), or if all nodes do and depend on no other.
///
/// # Errors
/// An error of inlining.
pub fn split_network(module: &Module) -> Result<Option<NetworkParts>, PassError> {
    let mut module = module.clone();
    let mut cx = PassContext::default();
    run_pass(&InlineFunctions::default(), &mut module, &mut cx)?;
    if run_pass(&CountResults {}, &mut module, &mut cx)? {
        run_pass(&InlineFunctions::default(), &mut module, &mut cx)?;
    }
    run_pass(&ToANormalForm {}, &mut module, &mut cx)?;
    let split = Split::of(module.main(), &open_dims(&module));
    let whole = split.head.is_empty() && split.tail.is_empty();
    let decides = !split.sizing.is_empty() || !split.sized.is_empty();
    Ok((decides && !whole).then(|| split.stages(&module)))
}

/// Which part each node of the entry function's body is in; constants are in all that read them.
struct Split {
    head: Vec<NodeId>,
    sizing: Vec<NodeId>,
    tail: Vec<NodeId>,
    /// Those of the tail that define sizes which are known before.
    sized: Vec<NodeId>,
}

impl Split {
    /// `known` are the dimensions that the inputs of a run have.
    fn of(f: &Function, known: &[Name]) -> Split {
        let mut split = Split { head: vec![], sizing: vec![], tail: vec![], sized: vec![] };
        let mut late: FxHashSet<ValueId> = FxHashSet::default();
        let mut effects_are_late = false;
        for &n in &f.blocks[f.body].nodes {
            let node = &f.nodes[n];
            if node.op.is::<Const>() {
                continue;
            }
            let stateful = std::iter::once(n).chain(inside(f, n)).any(|m| f.nodes[m].op.effects().stateful);
            let waits = used(f, n).iter().any(|v| late.contains(v)) || stateful && effects_are_late;
            let sizes = std::iter::once(n).chain(inside(f, n)).any(|m| !f.nodes[m].op.defined_symbols().is_empty());
            // A size may stand in attributes alone.
            let open = node.outputs.iter().any(|&v| f.ty(v).shape.iter().any(|d| !is_known(d, known)));
            if !waits && !sizes && !open {
                split.head.push(n);
                continue;
            }
            late.extend(&node.outputs);
            effects_are_late |= stateful;
            let reads = sizes && !waits && !node.op.size_operands().is_empty();
            let part = if sizes && !waits && !reads { &mut split.sizing } else { &mut split.tail };
            part.push(n);
            split.sized.extend(reads.then_some(n));
        }
        split
    }

    fn stages(&self, module: &Module) -> NetworkParts {
        let f = module.main();
        let outputs = |nodes: &[NodeId]| nodes.iter().flat_map(|&n| f.nodes[n].outputs.clone()).collect::<Vec<_>>();
        let (of_head, of_sizing) = (outputs(&self.head), outputs(&self.sizing));
        let sizing_reads = free_values(f, &self.sizing, &[]);
        let tail_reads = free_values(f, &self.tail, f.results());
        let sizes: Vec<(NodeId, Vec<(usize, ValueId)>)> = self.sized.iter().map(|&n| (n, size_values(f, n))).collect();
        let read = |v: &ValueId| sizes.iter().any(|s| s.1.iter().any(|o| o.1 == *v));
        let crossing =
            |v: &ValueId| of_head.contains(v) && (sizing_reads.contains(v) || tail_reads.contains(v) || read(v));
        let head_results: Vec<ValueId> = of_head.iter().copied().filter(crossing).collect();
        let source = |v: &ValueId| {
            let at = |list: &[ValueId]| list.iter().position(|x| x == v);
            let input = at(f.params()).map(PartValue::Input);
            input.or(at(&head_results).map(PartValue::Head)).or(at(&of_sizing).map(PartValue::Sizing))
        };
        let sized = sizes.iter().map(|(n, operands)| SizedNode {
            node: *n,
            operands: operands.iter().filter_map(|(i, v)| Some((*i, source(v)?))).collect(),
            types_alone: f.nodes[*n].outputs.iter().all(|v| has_types_alone_read(f, *v)),
        });
        let names = |n: usize| FreshNames::of(module).take(n).collect::<Vec<_>>();
        NetworkParts {
            head: part(module, &self.head, f.params(), &head_results, names(head_results.len())),
            sizing: part(module, &self.sizing, &sizing_reads, &of_sizing, names(of_sizing.len())),
            sizing_operands: sizing_reads.iter().filter_map(source).collect(),
            tail: part(module, &self.tail, &tail_reads, f.results(), f.result_names.clone()),
            tail_operands: tail_reads.iter().filter_map(source).collect(),
            sized: sized.collect(),
        }
    }
}

/// True for a value of which all uses take the type.
fn has_types_alone_read(f: &Function, v: ValueId) -> bool {
    let takes = |n: &NodeId| !f.nodes[*n].inputs.contains(&Some(v)) || f.nodes[*n].op.takes_types_alone();
    let mut blocks = f.walk().into_iter().flat_map(|n| f.nodes[n].regions.clone()).chain([f.body]);
    f.walk().iter().all(takes) && blocks.all(|b| !f.blocks[b].results.contains(&v))
}

/// The operands that say the sizes of a node, but for constants.
fn size_values(f: &Function, n: NodeId) -> Vec<(usize, ValueId)> {
    let node = &f.nodes[n];
    let there = |&i: &usize| Some((i, node.inputs.get(i).copied().flatten()?));
    let read = node.op.size_operands().iter().filter_map(there);
    read.filter(|&(_, v)| f.def_op::<Const>(v).is_none()).collect()
}

/// The nodes of the regions that a node owns.
fn inside(f: &Function, n: NodeId) -> Vec<NodeId> {
    f.nodes[n].regions.iter().flat_map(|&r| f.walk_block(r)).collect()
}

/// The values that a node uses, and those that its regions use.
fn used(f: &Function, n: NodeId) -> Vec<ValueId> {
    let node = &f.nodes[n];
    let mut out: Vec<ValueId> = node.inputs.iter().flatten().copied().collect();
    for &r in &node.regions {
        out.extend(&f.blocks[r].results);
        out.extend(f.blocks[r].nodes.iter().flat_map(|&m| used(f, m)));
    }
    out
}

/// The values that the nodes and `results` use, and neither the nodes nor constants define, in the order of their first
/// use.
pub(super) fn free_values(f: &Function, nodes: &[NodeId], results: &[ValueId]) -> Vec<ValueId> {
    let mut made: FxHashSet<ValueId> = FxHashSet::default();
    for &n in nodes {
        let nodes = std::iter::once(n).chain(inside(f, n));
        for node in nodes.map(|m| &f.nodes[m]) {
            made.extend(node.regions.iter().flat_map(|&r| &f.blocks[r].args).chain(&node.outputs));
        }
    }
    let mut seen = FxHashSet::default();
    let uses = nodes.iter().flat_map(|&n| used(f, n)).chain(results.iter().copied());
    uses.filter(|&v| !made.contains(&v) && f.def_op::<Const>(v).is_none() && seen.insert(v)).collect()
}

/// Names for values between parts: `t0`, `t1` ..., but for those that parameters, results and open dimensions of the
/// network have.
pub(super) struct FreshNames {
    taken: FxHashSet<Name>,
    next: usize,
}

impl FreshNames {
    pub(super) fn of(module: &Module) -> FreshNames {
        let f = module.main();
        let params = f.params().iter().filter_map(|&v| f.values[v].name);
        let taken = params.chain(f.result_names.iter().copied()).chain(open_dims(module));
        FreshNames { taken: taken.collect(), next: 0 }
    }
}

impl Iterator for FreshNames {
    type Item = Name;
    fn next(&mut self) -> Option<Name> {
        loop {
            let name = Name::new(&format!("t{}", self.next));
            self.next += 1;
            if !self.taken.contains(&name) {
                return Some(name);
            }
        }
    }
}

/// The module with `nodes` and the constants they read as its entry function.
pub(super) fn part(
    module: &Module,
    nodes: &[NodeId],
    params: &[ValueId],
    results: &[ValueId],
    names: Vec<Name>,
) -> Module {
    let mut out = module.clone();
    let mut names_of_params = FreshNames::of(module);
    let f = out.main_mut();
    let body = f.body;
    let old_params = f.params().to_vec();
    let mut fresh: FxHashMap<ValueId, ValueId> = FxHashMap::default();
    let mut args = vec![];
    for (i, &v) in params.iter().enumerate() {
        let name = f.values[v].name.filter(|_| old_params.contains(&v)).or_else(|| names_of_params.next());
        let arg = f.fresh_value(f.ty(v).clone(), ValueDef::Arg(body, i), name);
        fresh.insert(v, arg);
        args.push(arg);
    }
    let mut read: FxHashSet<ValueId> = nodes.iter().flat_map(|&n| used(f, n)).collect();
    read.extend(results);
    let kept: FxHashSet<NodeId> = nodes.iter().copied().collect();
    let all = std::mem::take(&mut f.blocks[body].nodes);
    for n in all {
        let constant = f.nodes[n].op.is::<Const>() && read.contains(&f.nodes[n].outputs[0]);
        if kept.contains(&n) || constant {
            f.blocks[body].nodes.push(n);
        } else {
            remove(f, n);
        }
    }
    f.blocks[body].args = args;
    f.blocks[body].results = results.to_vec();
    f.replace_uses_many(&|v| fresh.get(&v).copied().unwrap_or(v));
    f.result_names = names;
    f.result_types = f.results().iter().map(|&v| f.ty(v).clone()).collect();
    out
}

/// Takes a node and those inside it out of the function.
fn remove(f: &mut Function, n: NodeId) {
    for m in inside(f, n) {
        f.nodes[m].block = None;
    }
    for r in f.nodes[n].regions.clone() {
        f.blocks[r].nodes.clear();
        f.blocks[r].results.clear();
    }
    f.nodes[n].block = None;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interpreter::run_function;
    use crate::text::parse_module;

    const TEXT: &str = "const @k : f32[4] = [0.5, 1.0, 1.5, 2.0]\n\
        graph @main(%x: f32[2,4]) -> (a: i64[2,found], b: f32[2,4], c: i64[2,found]) {\n  %k = const @k\n  \
        %0 = relu %x : f32[2,4]\n  %1 = non_zero %0 {count=found} : i64[2,found]\n  %2 = add %0, %k : f32[2,4]\n  \
        %3 = add %1, %1 : i64[2,found]\n  return %3, %2, %1\n}\n";

    /// Runs a module part by part.
    fn in_parts(m: &Module, x: &[Tensor]) -> Vec<Tensor> {
        let Some(s) = split_network(m).unwrap_or_else(|e| panic!("{e}")) else {
            return run_function(m, m.entry, x).unwrap_or_else(|e| panic!("{e}"));
        };
        for part in [&s.head, &s.sizing, &s.tail] {
            crate::verify::verify_module(part).unwrap_or_else(|e| panic!("{e:?}"));
        }
        let head = run_function(&s.head, m.entry, x).expect("runs");
        let take = |list: &[PartValue], sized: &[Tensor]| -> Vec<Tensor> {
            let one = |v: &PartValue| match *v {
                PartValue::Input(i) => x[i].clone(),
                PartValue::Head(i) => head[i].clone(),
                PartValue::Sizing(i) => sized[i].clone(),
            };
            list.iter().map(one).collect()
        };
        let sized = run_function(&s.sizing, m.entry, &take(&s.sizing_operands, &[])).expect("runs");
        let operands = take(&s.tail_operands, &sized);
        let shapes: Vec<_> = operands.iter().map(|t| t.shape().to_vec()).collect();
        let tail = s.tail_at(&[], &shapes, &take(&s.reads(), &[])).unwrap_or_else(|e| panic!("{e}"));
        in_parts(&tail, &operands)
    }

    fn parsed(text: &str) -> Module {
        parse_module(text).unwrap_or_else(|e| panic!("{e}"))
    }

    #[test]
    fn the_parts_compute_what_the_whole_does() {
        let m = parsed(TEXT);
        let x = vec![Tensor::from_vec(vec![2, 4], vec![1.0f32, -1.0, 0.0, 2.0, 3.0, -2.0, 0.5, 0.0])];
        let got = in_parts(&m, &x);
        assert_eq!(got, run_function(&m, m.entry, &x).expect("runs"));
        assert_eq!(got[0].shape(), [2, 4]);
    }

    #[test]
    fn what_counts_is_computed_before_and_the_number_read() {
        let text = "graph @main(%x: f32[3,50], %c: bool[50]) -> (a: f32[3,kept], b: i64[2,found]) {\n  \
            %0 = compress %x, %c {axis=1, count=kept} : f32[3,kept]\n  %1 = non_zero %0 {count=found} : i64[2,found]\n  \
            return %0, %1\n}\n";
        let m = parsed(text);
        for (seed, step) in [(1, 3), (2, 1), (3, 60)] {
            let x = crate::text::random_tensor(crate::dtype::DType::F32, &[3, 50], seed);
            let c = (0..50).map(|i| f64::from(u8::from(i % step == 1 % step)));
            let inputs = [x, Tensor::from_f64(crate::dtype::DType::Bool, vec![50], c)];
            let want = run_function(&m, m.entry, &inputs).expect("runs");
            assert_eq!(in_parts(&m, &inputs), want, "every {step}");
            let s = split_network(&m).expect("splits").expect("decides sizes");
            assert!(s.sizing.main().results().is_empty() && s.sized.len() == 1);
        }
    }

    #[test]
    fn distinct_slices_are_found_by_comparing_each_with_each() {
        let attrs = |axis: Option<i64>, sorted| match axis {
            Some(axis) => format!("{{axis={axis}, sorted={sorted}, count=n}}"),
            None => format!("{{sorted={sorted}, count=n}}"),
        };
        let cases = [(None, "n", 24), (Some(0), "n,3,2", 4), (Some(1), "4,n,2", 3), (Some(-1), "4,3,n", 2)];
        for ((axis, shape, total), sorted) in cases.into_iter().flat_map(|c| [(c, true), (c, false)]) {
            for (dtype, values) in [("f32", 5), ("f32", 2), ("i64", 3), ("u8", 2), ("bool", 2), ("f16", 1)] {
                let m = parsed(&format!(
                    "graph @main(%x: {dtype}[4,3,2]) -> (a: {dtype}[{shape}], b: i64[n], c: i64[{total}], d: i64[n]) {{\n  \
                     %0, %1, %2, %3 = unique %x {}\n  return %0, %1, %2, %3\n}}\n",
                    attrs(axis, sorted)
                ));
                let number = |i: usize| if values == 5 && i % 7 == 3 { f64::NAN } else { (i * i % 11 % values) as f64 };
                let dtype = m.main().ty(m.main().params()[0]).dtype;
                let x = [Tensor::from_f64(dtype, vec![4, 3, 2], (0..24).map(number))];
                let want = run_function(&m, m.entry, &x).expect("runs");
                let got = in_parts(&m, &x);
                // A NaN is not equal to itself, so bytes are compared.
                let bytes = |list: &[Tensor]| list.iter().map(|t| t.bytes().to_vec()).collect::<Vec<_>>();
                assert_eq!(bytes(&got), bytes(&want), "{axis:?} {sorted} {dtype}");
                let s = split_network(&m).expect("splits").expect("decides a size");
                assert!(s.sizing.main().results().is_empty());
            }
        }
    }

    #[test]
    fn boxes_are_suppressed_in_rounds() {
        let text = |most: &str, center: bool| {
            format!(
                "graph @main(%b: f32[2,30,4], %s: f32[2,3,30], %m: i64[1], %o: f32[1], %l: f32[]) -> (a: i64[n,3]) {{\n  {most}\
                 %0 = non_max_suppression %b, %s, %k, %o, %l {{center_point_box={center}, count=n}} : i64[n,3]\n  return %0\n}}\n"
            )
        };
        let module = |given: bool, center: bool| match given {
            true => parsed(&text("", center).replace("%k", "%m")),
            false => parsed(&format!("const @k : i64[1] = [4]\n{}", text("%k = const @k\n  ", center))),
        };
        for (seed, center) in [(1, true), (2, false)] {
            let random = |shape: &[usize], seed| crate::text::random_tensor(crate::dtype::DType::F32, shape, seed);
            let one = |v: f32, shape| Tensor::from_vec(shape, vec![v]);
            let boxes = random(&[2, 30, 4], seed);
            let inputs =
                [boxes, random(&[2, 3, 30], seed + 9), Tensor::ints(&[3]), one(0.2, vec![1]), one(-0.5, vec![])];
            for given in [true, false] {
                let m = module(given, center);
                let want = run_function(&m, m.entry, &inputs).expect("runs");
                assert!(want[0].shape()[0] > 6);
                assert_eq!(in_parts(&m, &inputs), want, "{given} {center}");
            }
        }
    }

    #[test]
    fn sizes_that_operands_say_become_attributes() {
        let text = "graph @main(%x: f32[2,6], %k: i64[1], %a: i64[1], %s: i64[2]) -> (a: f32[2,k], b: i64[2,k], c: f32[r], d: f32[p,q]) {\n  \
            %0, %1 = top_k %x, %k {k=`k`, dynamic=true}\n  %2 = reduce_at %0, %a {kind=sum, dims=[`r`]} : f32[r]\n  \
            %3 = reshape %x, %s {dims=[`p`, `q`]} : f32[p,q]\n  return %0, %1, %2, %3\n}\n";
        let m = parsed(text);
        let x = crate::text::random_tensor(crate::dtype::DType::F32, &[2, 6], 5);
        let inputs = [x, Tensor::ints(&[4]), Tensor::ints(&[-1]), Tensor::ints(&[3, -1])];
        assert_eq!(in_parts(&m, &inputs), run_function(&m, m.entry, &inputs).expect("runs"));
        let s = split_network(&m).expect("splits").expect("decides sizes");
        assert!(s.head.main().results().is_empty() && s.sizing.main().results().is_empty());
        let wrong =
            s.tail_at(&[], &[vec![2, 6], vec![1], vec![1], vec![2]], &[Tensor::ints(&[9]), Tensor::ints(&[5, 5])]);
        assert!(wrong.is_err());
    }

    #[test]
    fn names_of_inputs_results_and_sizes_are_not_taken() {
        // The value between the parts stands where the network has an input of the name that it would get.
        for (x, y, n) in [("t0", "t1", "t2"), ("t1", "t0", "n"), ("t2", "t1", "t0"), ("x", "y", "t1")] {
            let text = format!(
                "graph @main(%{x}: f32[2,3], %{y}: f32[6]) -> (t3: i64[2,{n}], t4: i64[2,late], t5: f32[2,{n}]) {{\n  \
                 %a = relu %{x} : f32[2,3]\n  %b = non_zero %a {{count={n}}} : i64[2,{n}]\n  \
                 %c = abs %b : i64[2,{n}]\n  %d = non_zero %c {{count=late}} : i64[2,late]\n  \
                 %e = gather %{y}, %b {{axis=0}} : f32[2,{n}]\n  return %c, %d, %e\n}}\n"
            );
            let m = parsed(&text);
            let x = Tensor::from_vec(vec![2, 3], vec![1.0f32, -1.0, 0.0, 2.0, 3.0, -2.0]);
            let inputs = [x, crate::text::random_tensor(crate::dtype::DType::F32, &[6], 3)];
            assert_eq!(in_parts(&m, &inputs), run_function(&m, m.entry, &inputs).expect("runs"));
            let s = split_network(&m).expect("splits").expect("decides sizes");
            for part in [&s.head, &s.sizing, &s.tail] {
                let f = part.main();
                let mut names: Vec<Name> = f.params().iter().filter_map(|&v| f.values[v].name).collect();
                let all = names.len();
                names.sort_by_key(|n| n.to_string());
                names.dedup();
                assert_eq!((names.len(), all), (all, f.params().len()));
            }
        }
    }

    #[test]
    fn a_network_of_known_sizes_is_one_part() {
        let m = parse_module("graph @main(%x: f32[2]) -> (y: f32[2]) {\n  %0 = relu %x\n  return %0\n}\n");
        assert!(split_network(&m.expect("parses")).expect("splits").is_none());
    }
}
