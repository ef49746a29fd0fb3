//! Decides which nodes are in f16: forward over the operands, then backward from the users.

use super::fit::{Fit, fit_constant, fit_values};
use super::keep::KeepF32;
use crate::dtype::DType;
use crate::graph::{Function, Module, NodeId, TensorType, ValueId};
use crate::int::{const_dims, product};
use crate::name::Name;
use crate::ops::cast::Cast;
use crate::ops::control::Const;
use crate::ops::{InferContext, OpResult, Precision};
use crate::passes::fusion_kind::describe_node;
use crate::tir::FusionKind;
use rustc_hash::{FxHashMap, FxHashSet};

/// The decision for a node with f32 operands.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Choice {
    /// Its f32 operands become f16.
    Half {
        /// All but the constants at these places.
        single: Vec<usize>,
        /// Why.
        why: String,
    },
    /// Its operands are f32, being inputs of the model and slight constants, and its results become f16.
    ReadsInputs,
    /// Its operands are f32.
    Full {
        /// Why.
        why: String,
        /// For its own sake, and not only since an operand is f32.
        forced: bool,
    },
}

/// Constants of fewer elements than one in so many of the data that their op reads and writes are slight: f16 would
/// save a few percent of its traffic at most, and round every result the same way.
const SLIGHT: i64 = 16;

/// Rows and columns of a matrix that matrix units multiply, at most.
const DEEP: usize = 16;
/// Rows and columns of a product that matrix units are used for, at least.
const LEAST: usize = 4;

/// The knowledge about an f32 value of the model.
#[derive(Clone, Copy, PartialEq, Debug)]
enum State {
    Half,
    Constant(Name),
    /// f32; `forced` since some node before needs it, `large` when it may exceed f16.
    Full {
        forced: bool,
        large: bool,
    },
}

struct Decider<'a> {
    module: &'a Module,
    f: &'a Function,
    keep: &'a [KeepF32],
    /// The function with every f32 value in f16, to ask ops what they would give.
    halves: Function,
    states: FxHashMap<ValueId, State>,
    fits: FxHashMap<Name, Fit>,
    matrices: bool,
    choices: FxHashMap<NodeId, Choice>,
}

/// The choice for every node that has f32 operands and can take f16 ones. With `half_inputs` parameters count as f16;
/// with `matrices` f16 operands of products pay even if they save no bytes.
pub(super) fn choose(
    module: &Module,
    f: &Function,
    keep: &[KeepF32],
    half_inputs: bool,
    matrices: bool,
) -> FxHashMap<NodeId, Choice> {
    let nodes = f.walk();
    if !half_inputs && !nodes.iter().any(|&n| f.nodes[n].op.precision() == Precision::Always) {
        return FxHashMap::default();
    }
    let mut d = Decider {
        module,
        f,
        keep,
        halves: with_halves(f),
        states: FxHashMap::default(),
        fits: FxHashMap::default(),
        matrices,
        choices: FxHashMap::default(),
    };
    if half_inputs {
        d.states.extend(f.params().iter().map(|&p| (p, State::Half)));
    }
    for &n in &nodes {
        d.visit(n);
    }
    d.follow_users(&nodes);
    d.choices
}

fn with_halves(f: &Function) -> Function {
    let mut out = f.clone();
    for v in f.values.ids().filter(|&v| f.ty(v).dtype == DType::F32) {
        out.values[v].ty.dtype = DType::F16;
    }
    out
}

impl Decider<'_> {
    fn state(&self, v: ValueId) -> State {
        self.states.get(&v).copied().unwrap_or(State::Full { forced: false, large: false })
    }
    fn is_single(&self, v: ValueId) -> bool {
        self.f.ty(v).dtype == DType::F32
    }

    fn visit(&mut self, n: NodeId) {
        let node = &self.f.nodes[n];
        if let Some(c) = node.op.downcast::<Const>() {
            self.states.insert(node.outputs[0], State::Constant(c.name));
            return;
        }
        let operands: Vec<ValueId> = node.inputs.iter().flatten().copied().filter(|&v| self.is_single(v)).collect();
        // A cast reads its operand as it stands.
        if operands.is_empty() || node.op.is::<Cast>() {
            return;
        }
        let states: Vec<State> = operands.iter().map(|&v| self.state(v)).collect();
        let choice = match self.half(n, &states) {
            Ok(half) => half,
            Err((why, forced)) => Choice::Full { why, forced },
        };
        let large = self.gives_large(n, &choice, &states);
        let halves: Vec<bool> = match &choice {
            Choice::Half { single, .. } => {
                let types = self.infer(n, single).unwrap_or_default();
                types.iter().map(|t| t.dtype == DType::F16).collect()
            }
            Choice::ReadsInputs => vec![true; node.outputs.len()],
            Choice::Full { .. } => vec![],
        };
        for (i, &v) in node.outputs.iter().enumerate() {
            if !self.is_single(v) {
                continue;
            }
            let half = halves.get(i).copied().unwrap_or_default();
            let forced = matches!(choice, Choice::Full { forced: true, .. })
                || states.iter().any(|s| matches!(s, State::Full { forced: true, .. }));
            self.states.insert(v, if half { State::Half } else { State::Full { forced, large } });
        }
        self.choices.insert(n, choice);
    }

    /// f16 for the node, or why not (and whether that is for its own sake).
    fn half(&mut self, n: NodeId, states: &[State]) -> Result<Choice, (String, bool)> {
        let node = &self.f.nodes[n];
        let op = &node.op;
        if !node.regions.is_empty() || op.callee().is_some() {
            return Err(("its operands and results keep their types".into(), false));
        }
        if let Some(k) = self.keep.iter().find(|k| k.covers(node)) {
            return Err((k.why.clone(), true));
        }
        if !op.has_compute() {
            return Err(("it runs on the host".into(), false));
        }
        let class = op.precision();
        if class == Precision::Never && !op.widens() {
            return Err(("its class is never: exponentials, powers and long sums need f32".into(), true));
        }
        let full = states.iter().find(|s| matches!(s, State::Full { .. }));
        let large = states.iter().any(|s| matches!(s, State::Full { large: true, .. }));
        if large {
            return Err(("an operand may be larger than f16 holds".into(), class == Precision::Always));
        }
        let data = states.contains(&State::Half);
        if class != Precision::Always && full.is_some() {
            return Err(("it follows its operands, and one of them is f32".into(), false));
        }
        if class == Precision::Never && !data {
            return Err(("none of its operands is f16".into(), false));
        }
        self.check_attributes(n)?;
        let single = self.single_operands(n);
        if class != Precision::Never {
            self.check_constants(n, &single)?;
        }
        if class == Precision::Always && self.reads_inputs(n, &single) {
            return Ok(Choice::ReadsInputs);
        }
        let mut single = self.single_beside_matrices(n, single);
        if class == Precision::Always {
            single = self.taken_single(n, single);
            self.check_constants(n, &single)?;
        }
        self.infer(n, &single).map_err(|e| (format!("f16 operands are refused: {e}"), false))?;
        let why = match class {
            Precision::Always => "its class is always, sums are kept in f32",
            Precision::Follow => "it follows its operands",
            Precision::Never => "its data are f16, inside it computes in f32",
        };
        Ok(Choice::Half { single, why: why.into() })
    }

    /// The constant operands that stay f32.
    fn single_operands(&self, n: NodeId) -> Vec<usize> {
        let node = &self.f.nodes[n];
        let stays = |i: &usize| {
            let constant = node.inputs[*i].is_some_and(|v| matches!(self.state(v), State::Constant(_)));
            constant
                && match node.op.precision() {
                    Precision::Never => true,
                    Precision::Always => node.op.single_operands().contains(i) || self.is_slight(n, *i),
                    Precision::Follow => false,
                }
        };
        (0..node.inputs.len()).filter(stays).collect()
    }

    /// `single` without slight operands where the op does not take them in f32 beside f16 data.
    fn taken_single(&mut self, n: NodeId, mut single: Vec<usize>) -> Vec<usize> {
        let taken = self.infer(n, &single).is_ok_and(|types| types.iter().all(|t| t.dtype == DType::F16));
        if !taken {
            let own = self.f.nodes[n].op.single_operands();
            single.retain(|i| own.contains(i));
        }
        single
    }

    /// Those of `single` that stay f32 on matrix units, which take f16 for both operands of a product.
    fn single_beside_matrices(&mut self, n: NodeId, single: Vec<usize>) -> Vec<usize> {
        let op = &self.f.nodes[n].op;
        if !self.matrices || op.precision() != Precision::Always {
            return single;
        }
        let stays = |i: &usize| op.single_operands().contains(i) || !self.is_deep(n, *i);
        let (own, slight): (Vec<usize>, Vec<usize>) = single.into_iter().partition(stays);
        if self.check_constants(n, &own).is_ok() { own } else { [own, slight].concat() }
    }

    /// Operand `i` has so many elements for each of its largest dimension that a product with it fills matrices, if as
    /// many results are sums of the same elements. In a depthwise convolution each result has its own.
    fn is_deep(&self, n: NodeId, i: usize) -> bool {
        let channels = self.f.nodes[n].op.channels_of_group(&self.f.node_types(n).0);
        if channels.is_some_and(|c| c < LEAST as i64) {
            return false;
        }
        let dims = self.f.nodes[n].inputs[i].and_then(|v| const_dims(&self.f.ty(v).shape)).unwrap_or_default();
        let largest = dims.iter().copied().max().unwrap_or(1).max(1);
        dims.iter().product::<usize>() / largest >= DEEP
    }

    /// Operand `i` has few elements beside the data that node `n` reads and writes.
    fn is_slight(&self, n: NodeId, i: usize) -> bool {
        let node = &self.f.nodes[n];
        let elements = |v: ValueId| product(&self.f.ty(v).shape).as_const();
        let constant = |v: &ValueId| matches!(self.state(*v), State::Constant(_));
        let data = node.inputs.iter().flatten().filter(|v| !constant(v)).chain(&node.outputs);
        let data: Option<i64> = data.map(|&v| elements(v)).sum();
        let own = node.inputs[i].and_then(elements);
        own.zip(data).is_some_and(|(own, data)| own.saturating_mul(SLIGHT) < data)
    }

    /// Matrix units multiply two operands neither of which is a constant.
    fn multiplies_data(&self, n: NodeId) -> bool {
        let node = &self.f.nodes[n];
        let data = |i: &usize| {
            let v = node.inputs[*i].filter(|v| self.is_single(*v) && !node.op.single_operands().contains(i));
            v.is_some_and(|v| !matches!(self.state(v), State::Constant(_)))
        };
        let data: Vec<usize> = (0..node.inputs.len()).filter(data).collect();
        let of_result = node.outputs.first().and_then(|v| const_dims(&self.f.ty(*v).shape)).unwrap_or_default();
        let matrix = matches!(of_result[..], [.., rows, columns] if rows >= LEAST && columns >= LEAST);
        self.matrices && matrix && data.len() > 1 && data.iter().all(|&i| self.is_deep(n, i))
    }

    /// The op's data come from outside in f32, and all its constants stay f32: it reads no fewer bytes in f16, nor does
    /// it multiply faster.
    fn reads_inputs(&self, n: NodeId, single: &[usize]) -> bool {
        !self.multiplies_data(n)
            && self.f.nodes[n].inputs.iter().enumerate().all(|(i, v)| match v.map(|v| self.state(v)) {
                Some(State::Constant(_)) => single.contains(&i),
                Some(State::Full { forced, large }) => !forced && !large,
                Some(State::Half) => false,
                None => true,
            })
    }

    fn check_attributes(&self, n: NodeId) -> Result<(), (String, bool)> {
        for v in self.f.nodes[n].op.data_constants() {
            if let Some(why) = fit_values(&[v as f32]).reason("an attribute") {
                return Err((why, true));
            }
        }
        Ok(())
    }

    /// Small numbers are lost only in constants that become f16; a large one makes the result large in f32, too.
    fn check_constants(&mut self, n: NodeId, single: &[usize]) -> Result<(), (String, bool)> {
        let f = self.f;
        for (i, v) in f.nodes[n].inputs.iter().enumerate() {
            let Some(State::Constant(name)) = v.map(|v| self.state(v)) else { continue };
            let fit = self.fit(name).clone();
            let lost = matches!(fit, Fit::Overflow(_)) || !single.contains(&i);
            if let Some(why) = fit.reason(&format!("the constant @{name}")).filter(|_| lost) {
                return Err((why, true));
            }
        }
        Ok(())
    }

    fn fit(&mut self, name: Name) -> &Fit {
        let module = self.module;
        self.fits.entry(name).or_insert_with(|| {
            // Data that cannot be read fail where they are needed, with their place.
            module.constants.get(&name).and_then(|c| fit_constant(c).ok()).unwrap_or(Fit::Yes)
        })
    }

    /// The result types for f16 operands, of which the constants at the places `single` stay f32.
    fn infer(&mut self, n: NodeId, single: &[usize]) -> OpResult<Vec<TensorType>> {
        let node = &self.f.nodes[n];
        let kept: Vec<ValueId> = single.iter().filter_map(|&i| node.inputs[i]).filter(|&v| self.is_single(v)).collect();
        for &v in &kept {
            self.halves.values[v].ty.dtype = DType::F32;
        }
        let types = node.op.infer(&InferContext::new(self.module, &self.halves, &node.inputs, &node.regions));
        for v in kept {
            self.halves.values[v].ty.dtype = DType::F16;
        }
        types
    }

    /// A constant beyond f16 makes the result suspect; what follows it stays suspect, until an op of its own scale.
    fn gives_large(&mut self, n: NodeId, choice: &Choice, states: &[State]) -> bool {
        if matches!(choice, Choice::Half { .. }) || self.f.nodes[n].op.widens() {
            return false;
        }
        let own = states.iter().any(|s| match s {
            State::Constant(name) => matches!(self.fit(*name), Fit::Overflow(_)),
            _ => false,
        });
        let follows = self.f.nodes[n].op.precision() == Precision::Follow;
        own || follows && states.iter().any(|s| matches!(s, State::Full { large: true, .. }))
    }

    /// An elementwise op or a reduction whose users all compute in f32, some of them for their own sake, gains nothing
    /// from rounding: it computes in f32, too.
    fn follow_users(&mut self, nodes: &[NodeId]) {
        let uses = self.f.uses();
        let escaping: FxHashSet<ValueId> = self.f.blocks.iter().flat_map(|(_, b)| b.results.iter().copied()).collect();
        for &n in nodes.iter().rev() {
            let node = &self.f.nodes[n];
            let half = matches!(self.choices.get(&n), Some(Choice::Half { .. }));
            if !half || node.op.precision() == Precision::Always {
                continue;
            }
            let users = || node.outputs.iter().flat_map(|v| &uses[crate::arena::Id::index(*v)]).map(|u| u.0);
            let needs = |u| matches!(self.choices.get(&u), Some(Choice::Full { forced: true, .. }));
            let full = |u| matches!(self.choices.get(&u), Some(Choice::Full { .. }));
            let all_full = users().any(needs) && users().all(full);
            let alone = !node.outputs.iter().any(|v| escaping.contains(v));
            let kind = || describe_node(self.module, self.f, n).map(|i| i.kind);
            let cheap = || kind().is_some_and(|k| k <= FusionKind::Broadcast || k == FusionKind::Reduction);
            if alone && all_full && cheap() {
                let why = "every user of its result computes in f32".into();
                self.choices.insert(n, Choice::Full { why, forced: true });
            }
        }
    }
}
