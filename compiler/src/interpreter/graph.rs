//! Graph functions, node by node.

use super::closures::{Closure, Closures};
use super::ranges::{NodeOutOfRange, note_out_of_range};
use super::{HostCalls, eval_node};
use crate::fault::{Fault, FaultKind};
use crate::graph::{BlockId, Function, Module, NodeId, ValueId};
use crate::int::Dim;
use crate::name::Name;
use crate::ops::control::{Call, CallHost, CallTensor, Const, If, Loop};
use crate::ops::function_values::{Apply, FunctionValue, Lambda};
use crate::plan::HostCaller;
use crate::tensor::Tensor;
use rustc_hash::{FxHashMap, FxHashSet};
use std::sync::Arc;

/// Deepest nesting of calls: recursion without an end is an error, not a crash.
pub const MAX_CALL_DEPTH: usize = 256;

/// Why a function could not be run.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum ExecError {
    /// The module has no such function.
    #[error("function @{0} is not in the module")]
    UnknownFunction(Name),
    /// The operands do not fit the parameters.
    #[error("@{function}: {message}")]
    Inputs {
        /// The function.
        function: Name,
        /// The mismatch.
        message: String,
    },
    /// A node failed.
    #[error("{op} `{node}`: {why}")]
    Node {
        /// Op name.
        op: &'static str,
        /// Node name.
        node: Name,
        /// The error of the op.
        why: Fault,
    },
    /// A host function is not registered.
    #[error("`{node}` calls the host function `{callee}`, which is not registered")]
    UnknownHostFunction {
        /// Node name.
        node: Name,
        /// Name it asks for.
        callee: Name,
    },
    /// Calls nest too deeply.
    #[error("calls of @{0} nest deeper than {MAX_CALL_DEPTH}")]
    Depth(Name),
}

impl ExecError {
    /// True when nothing is wrong but that this machine has no room for it.
    pub fn is_no_room(&self) -> bool {
        matches!(self, ExecError::Node { why, .. } if why.kind == FaultKind::NoRoom)
    }
}

/// Runs a graph function on host tensors, without host functions.
///
/// # Errors
/// Operands that do not fit, or the first node that fails.
pub fn run_function(module: &Module, name: Name, inputs: &[Tensor]) -> Result<Vec<Tensor>, ExecError> {
    Interpreter::new(module).run(name, inputs)
}

type Observer<'a> = Box<dyn FnMut(&Function, NodeId, &[Tensor]) + 'a>;

/// Runs graph functions; constants are read once for all runs.
pub struct Interpreter<'a> {
    module: &'a Module,
    host: HostCalls<'a>,
    observer: Option<Observer<'a>>,
    out_of_range: Option<&'a mut Vec<NodeOutOfRange>>,
    constants: FxHashMap<Name, Tensor>,
    symbols: Symbols,
    lifetimes: FxHashMap<(Name, BlockId), Arc<Vec<Vec<ValueId>>>>,
    depth: usize,
    closures: Closures,
}

type Env = FxHashMap<ValueId, Tensor>;

/// Values of the symbolic dimensions of the function that runs.
type Symbols = FxHashMap<Name, i64>;

impl<'a> Interpreter<'a> {
    /// For functions of `module`.
    pub fn new(module: &'a Module) -> Self {
        Interpreter {
            module,
            host: HostCalls::default(),
            observer: None,
            out_of_range: None,
            constants: FxHashMap::default(),
            symbols: Symbols::default(),
            lifetimes: FxHashMap::default(),
            depth: 0,
            closures: Closures::default(),
        }
    }
    /// With host functions for `call_host` nodes.
    pub fn with_host(mut self, host: &'a dyn HostCaller) -> Self {
        self.host = HostCalls::of(host);
        self
    }
    /// Calls `observer` with the results of every node that is not a constant, in execution order; nodes of regions
    /// and called functions come before the node that runs them.
    pub fn observe(mut self, observer: impl FnMut(&Function, NodeId, &[Tensor]) + 'a) -> Self {
        self.observer = Some(Box::new(observer));
        self
    }

    /// Runs function `name`.
    ///
    /// # Errors
    /// Operands that do not fit, or the first node that fails.
    pub fn run(&mut self, name: Name, inputs: &[Tensor]) -> Result<Vec<Tensor>, ExecError> {
        self.depth = 0;
        self.closures.clear();
        self.call(name, inputs.to_vec())
    }

    /// Runs function `name` again from the `values` of an earlier run, some of which `change` replaces: only nodes that
    /// depend on the replaced values are computed. `values` has the parameters and the results of the body's nodes,
    /// without constants.
    ///
    /// # Errors
    /// As [`Interpreter::run`].
    pub fn rerun(
        &mut self,
        name: Name,
        values: &FxHashMap<ValueId, Tensor>,
        change: &dyn Fn(ValueId, &Tensor) -> Option<Tensor>,
    ) -> Result<Vec<Tensor>, ExecError> {
        let module = self.module;
        let f = module.functions.get(&name).ok_or(ExecError::UnknownFunction(name))?;
        self.depth = 0;
        for (&v, t) in values {
            self.learn_symbols(&f.ty(v).shape, t.shape());
        }
        let (mut env, mut changed) = (values.clone(), FxHashSet::default());
        for &v in f.params() {
            if let Some(new) = values.get(&v).and_then(|t| change(v, t)) {
                changed.insert(v);
                env.insert(v, new);
            }
        }
        for &n in &f.blocks[f.body].nodes {
            let node = &f.nodes[n];
            let mut used = Vec::new();
            collect_uses(f, n, &mut used);
            let known = node.outputs.iter().all(|v| values.contains_key(v));
            let fresh = used.iter().any(|v| changed.contains(v));
            let results = match known && !fresh {
                true => node.outputs.iter().map(|v| values[v].clone()).collect(),
                false => self.run_node(f, n, &mut env)?,
            };
            for (&v, t) in node.outputs.iter().zip(results) {
                let new = change(v, &t);
                if fresh || new.is_some() {
                    changed.insert(v);
                }
                env.insert(v, new.unwrap_or(t));
            }
        }
        results(f, f.body, &env)
    }

    fn call(&mut self, name: Name, inputs: Vec<Tensor>) -> Result<Vec<Tensor>, ExecError> {
        let module = self.module;
        let f = module.functions.get(&name).ok_or(ExecError::UnknownFunction(name))?;
        let symbols = check_inputs(f, &inputs).map_err(|message| ExecError::Inputs { function: name, message })?;
        // A call of a fused group does not count: the depth is that of the source functions.
        if self.depth >= MAX_CALL_DEPTH && !f.primitive {
            return Err(ExecError::Depth(name));
        }
        self.depth += 1;
        let mut env: Env = f.params().iter().copied().zip(inputs).collect();
        // A group sees the symbols of its caller: not all of them need occur alone in its parameters.
        let outer = self.symbols.clone();
        self.symbols.extend(symbols);
        let result = self.run_block(f, f.body, &mut env);
        self.symbols = outer;
        self.depth -= 1;
        result
    }

    fn run_block(&mut self, f: &Function, block: BlockId, env: &mut Env) -> Result<Vec<Tensor>, ExecError> {
        let last_uses =
            Arc::clone(self.lifetimes.entry((f.name, block)).or_insert_with(|| Arc::new(last_uses(f, block))));
        for (i, &n) in f.blocks[block].nodes.iter().enumerate() {
            let results = self.run_node(f, n, env)?;
            let node = &f.nodes[n];
            if results.len() != node.outputs.len() {
                let message = format!("gives {} results instead of {}", results.len(), node.outputs.len());
                return Err(node_error(f, n, message));
            }
            for (&v, t) in node.outputs.iter().zip(&results) {
                self.learn_symbols(&f.ty(v).shape, t.shape());
            }
            if let Some(observer) = &mut self.observer
                && !node.op.is::<Const>()
            {
                observer(f, n, &results);
            }
            env.extend(node.outputs.iter().copied().zip(results));
            for dead in &last_uses[i] {
                env.remove(dead);
            }
        }
        results(f, block, env)
    }

    /// Counts elements that are out of range ([`Op::checked`](crate::ops::Op::checked)), also in regions and callees.
    pub fn count_out_of_range(mut self, found: &'a mut Vec<NodeOutOfRange>) -> Self {
        self.out_of_range = Some(found);
        self
    }

    fn run_node(&mut self, f: &Function, n: NodeId, env: &mut Env) -> Result<Vec<Tensor>, ExecError> {
        let node = &f.nodes[n];
        let mut inputs: Vec<Option<Tensor>> = Vec::with_capacity(node.inputs.len());
        for v in &node.inputs {
            inputs.push(match v {
                None => None,
                Some(v) => Some(env.get(v).cloned().ok_or_else(|| {
                    node_error(f, n, format!("bug: the operand {} has no value", f.describe_value(*v)))
                })?),
            });
        }
        if let Some(c) = node.op.downcast::<Const>() {
            return self.constant(c.name).map(|t| vec![t]).map_err(|m| node_error(f, n, m));
        }
        if let Some(c) = node.op.downcast::<Call>() {
            let inputs = required(inputs).map_err(|m| node_error(f, n, m))?;
            return self.call(c.callee, inputs);
        }
        if let Some(c) = node.op.downcast::<CallHost>() {
            let inputs = required(inputs).map_err(|m| node_error(f, n, m))?;
            return self.call_host(f, n, c, inputs);
        }
        if let Some(c) = node.op.downcast::<FunctionValue>() {
            let captured = required(inputs).map_err(|m| node_error(f, n, m))?;
            return self.closures.add(Closure::Function(c.callee, captured)).map_err(|m| node_error(f, n, m));
        }
        if node.op.is::<Lambda>() {
            let mut used = vec![];
            collect_uses(f, n, &mut used);
            let captured = used.iter().filter_map(|v| Some((*v, env.get(v)?.clone()))).collect();
            let closure = Closure::Region(f.name, node.regions[0], captured);
            return self.closures.add(closure).map_err(|m| node_error(f, n, m));
        }
        if node.op.is::<Apply>() {
            let inputs = required(inputs).map_err(|m| node_error(f, n, m))?;
            return self.apply(f, n, inputs);
        }
        if node.op.is_scope() || node.op.is::<If>() {
            return self.run_regions(f, n, &inputs, env);
        }
        if let Some(op) = node.op.downcast::<Loop>() {
            return self.run_loop(f, n, op, &inputs, env);
        }
        note_out_of_range(self.out_of_range.as_deref_mut(), node, &inputs);
        let bound = (!self.symbols.is_empty()).then(|| node.op.bind(&|v| self.symbols.get(&v).copied()));
        let op = bound.as_ref().unwrap_or(&node.op);
        let results = eval_node(op, &inputs, self.module).map_err(|m| node_error(f, n, m))?;
        match node.op.is::<CallTensor>() {
            true => Ok(results.into_iter().zip(&node.outputs).map(|(t, &v)| in_shape_of(t, f, v)).collect()),
            false => Ok(results),
        }
    }

    /// Symbols that a node defines (a count of elements found ...) get their values from its results.
    fn learn_symbols(&mut self, shape: &[Dim], actual: &[usize]) {
        for (d, &n) in shape.iter().zip(actual) {
            if let Some(v) = d.as_var() {
                self.symbols.insert(v, n as i64);
            }
        }
    }

    fn run_regions(
        &mut self,
        f: &Function,
        n: NodeId,
        inputs: &[Option<Tensor>],
        env: &mut Env,
    ) -> Result<Vec<Tensor>, ExecError> {
        let node = &f.nodes[n];
        let taken = node.op.region_taken(inputs);
        let region = taken.ok_or_else(|| node_error(f, n, "its operands do not say which region runs"))?;
        let block = *node.regions.get(region).ok_or_else(|| node_error(f, n, format!("has no region {region}")))?;
        self.run_block(f, block, env)
    }

    /// Applies the function value in front to the others.
    fn apply(&mut self, f: &Function, n: NodeId, inputs: Vec<Tensor>) -> Result<Vec<Tensor>, ExecError> {
        let closure = inputs.first().and_then(|t| self.closures.get(t));
        let closure = closure.ok_or_else(|| node_error(f, n, "operand 0 is no function value"))?;
        let given = inputs.into_iter().skip(1);
        match closure {
            Closure::Function(callee, captured) => self.call(callee, captured.into_iter().chain(given).collect()),
            Closure::Region(name, body, mut env) => {
                if self.depth >= MAX_CALL_DEPTH {
                    return Err(ExecError::Depth(f.nodes[n].name));
                }
                let module = self.module;
                let owner = module.functions.get(&name).ok_or(ExecError::UnknownFunction(name))?;
                env.extend(owner.blocks[body].args.iter().copied().zip(given));
                self.depth += 1;
                let results = self.run_block(owner, body, &mut env);
                self.depth -= 1;
                results
            }
        }
    }

    fn run_loop(
        &mut self,
        f: &Function,
        n: NodeId,
        op: &Loop,
        inputs: &[Option<Tensor>],
        env: &mut Env,
    ) -> Result<Vec<Tensor>, ExecError> {
        let node = &f.nodes[n];
        let fail = |why: Fault| node_error(f, n, why);
        let &[body] = node.regions.as_slice() else { return Err(fail("needs one region".into())) };
        let number = |i: usize| inputs.get(i).and_then(|t| t.as_ref()).and_then(|t| t.to_i64_vec().first().copied());
        let symbols = self.symbols.clone();
        let size = |d: &Dim| d.eval(&|s| symbols.get(&s).copied());
        let most = number(0).or(op.trips.as_ref().and_then(size));
        let mut go_on = number(1).is_none_or(|c| c != 0);
        let mut carried = required(inputs[Loop::CONTROL.min(inputs.len())..].to_vec()).map_err(|m| fail(m.into()))?;
        let args = &f.blocks[body].args;
        let mut rows: Vec<Vec<Tensor>> = vec![vec![]; node.outputs.len().saturating_sub(carried.len())];
        let mut trip = 0;
        while go_on && most.is_none_or(|most| trip < most) {
            let arguments = std::iter::once(Tensor::scalar(trip)).chain(carried);
            env.extend(args.iter().copied().zip(arguments));
            let mut yielded = self.run_block(f, body, env)?.into_iter();
            if op.r#while {
                go_on = yielded.next().is_some_and(|t| t.to_i64_vec().first().is_some_and(|&c| c != 0));
            }
            carried = yielded.by_ref().take(args.len().saturating_sub(1)).collect();
            rows.iter_mut().zip(yielded).for_each(|(list, t)| list.push(t));
            trip += 1;
        }
        for (list, &v) in rows.iter().zip(&node.outputs[carried.len()..]) {
            let ty = f.ty(v);
            let size = |d: &Dim| size(d).and_then(|n| usize::try_from(n).ok());
            let row = ty.shape.iter().skip(1).map(size).collect::<Option<Vec<_>>>();
            let row = list.first().map(|t| t.shape().to_vec()).or(row);
            let row = row.ok_or_else(|| fail("the size of what it collects is not known".into()))?;
            carried.push(Tensor::stack(ty.dtype, &row, list).map_err(fail)?);
        }
        Ok(carried)
    }

    /// Runs the registered function; without one, the reference graph function.
    fn call_host(
        &mut self,
        f: &Function,
        n: NodeId,
        op: &CallHost,
        inputs: Vec<Tensor>,
    ) -> Result<Vec<Tensor>, ExecError> {
        if !self.host.contains(op.callee) {
            return match op.reference_function() {
                Some(reference) => self.call(reference, inputs),
                None => Err(ExecError::UnknownHostFunction { node: f.nodes[n].name, callee: op.callee }),
            };
        }
        let symbols = &self.symbols;
        let size = |d: &Dim| d.eval(&|v| symbols.get(&v).copied()).and_then(|n| usize::try_from(n).ok());
        let shapes: Vec<_> = op.shapes.iter().map(|s| s.iter().map(size).collect()).collect();
        self.host.call((f, n), op, inputs, &shapes).map_err(|m| node_error(f, n, m))
    }

    fn constant(&mut self, name: Name) -> Result<Tensor, Fault> {
        if let Some(t) = self.constants.get(&name) {
            return Ok(t.clone());
        }
        let c = self.module.constants.get(&name).ok_or_else(|| format!("constant @{name} is not in the module"))?;
        let t = c.load()?;
        self.constants.insert(name, t.clone());
        Ok(t)
    }
}

/// The results of a block.
fn results(f: &Function, block: BlockId, env: &Env) -> Result<Vec<Tensor>, ExecError> {
    let value = |v: &ValueId| {
        let message = || format!("bug: {} has no value", f.describe_value(*v));
        env.get(v).cloned().ok_or_else(|| ExecError::Inputs { function: f.name, message: message() })
    };
    f.blocks[block].results.iter().map(value).collect()
}

/// A result of a tensor function in the value's shape: a schedule may have flattened its parameters.
fn in_shape_of(t: Tensor, f: &Function, v: ValueId) -> Tensor {
    match f.ty(v).const_shape() {
        Some(shape) if shape != t.shape() && shape.iter().product::<usize>() == t.len() => t.reshaped(shape),
        _ => t,
    }
}

fn required(inputs: Vec<Option<Tensor>>) -> Result<Vec<Tensor>, String> {
    inputs.into_iter().enumerate().map(|(i, t)| t.ok_or_else(|| format!("operand {i} is missing"))).collect()
}

fn node_error(f: &Function, n: NodeId, why: impl Into<Fault>) -> ExecError {
    ExecError::Node { op: f.nodes[n].op.name(), node: f.nodes[n].name, why: why.into() }
}

/// Number, dtypes, ranks and sizes; a symbol has one value in all parameters. Returns the values.
fn check_inputs(f: &Function, inputs: &[Tensor]) -> Result<Symbols, String> {
    if f.params().len() != inputs.len() {
        return Err(format!("takes {} inputs, got {}", f.params().len(), inputs.len()));
    }
    let mut symbols = Symbols::default();
    for (i, (&p, t)) in f.params().iter().zip(inputs).enumerate() {
        let ty = f.ty(p);
        let label = f.values[p].name.map_or_else(|| format!("input {i}"), |n| format!("input `{n}`"));
        let mismatch = || format!("{label} is {}{:?}, got {}{:?}", ty.dtype, ty.shape, t.dtype(), t.shape());
        if ty.dtype != t.dtype() || ty.rank() != t.shape().len() {
            return Err(mismatch());
        }
        for (d, &n) in ty.shape.iter().zip(t.shape()) {
            let n = n as i64;
            let want = match (d.as_const(), d.as_var()) {
                (Some(c), _) => c,
                (_, Some(v)) => *symbols.entry(v).or_insert(n),
                _ => d.eval(&|v| symbols.get(&v).copied()).unwrap_or(n),
            };
            if want != n {
                return Err(mismatch());
            }
        }
    }
    Ok(symbols)
}

/// For every node of a block: the values of that block that no later node and no result uses. Uses inside a node's
/// regions count as that node's.
fn last_uses(f: &Function, block: BlockId) -> Vec<Vec<ValueId>> {
    let b = &f.blocks[block];
    let mut own: FxHashSet<ValueId> = b.args.iter().copied().collect();
    for &n in &b.nodes {
        own.extend(&f.nodes[n].outputs);
    }
    let mut seen: FxHashSet<ValueId> = b.results.iter().copied().collect();
    let mut out = vec![Vec::new(); b.nodes.len()];
    for (i, &n) in b.nodes.iter().enumerate().rev() {
        let mut used = f.nodes[n].outputs.clone();
        collect_uses(f, n, &mut used);
        for v in used {
            if own.contains(&v) && seen.insert(v) {
                out[i].push(v);
            }
        }
    }
    out
}

/// The peak of the bytes of all live values during a run of the function's body. Values whose sizes are known only at
/// run time, and values of regions and callees, are not counted.
pub fn peak_bytes(f: &Function) -> u64 {
    let bytes = |v: &ValueId| f.ty(*v).bytes().unwrap_or(0) as u64;
    let total = |list: &[ValueId]| list.iter().map(bytes).fold(0, u64::saturating_add);
    let mut now = total(f.params());
    let mut most = now;
    for (&n, dead) in f.blocks[f.body].nodes.iter().zip(last_uses(f, f.body)) {
        now = now.saturating_add(total(&f.nodes[n].outputs));
        most = most.max(now);
        now = now.saturating_sub(total(&dead));
    }
    most
}

/// The values that node `n` reads, those of its regions included.
pub(crate) fn collect_uses(f: &Function, n: NodeId, out: &mut Vec<ValueId>) {
    out.extend(f.nodes[n].inputs.iter().flatten());
    for &r in &f.nodes[n].regions {
        out.extend(&f.blocks[r].results);
        for &inner in &f.blocks[r].nodes {
            collect_uses(f, inner, out);
        }
    }
}

#[cfg(test)]
mod tests;
