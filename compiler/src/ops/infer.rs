//! The knowledge of shape inference about a node's operands: types, constant values, and integers from shape
//! arithmetic.

use super::OpResult;
use super::binary::{Div, Mul};
use super::cast::Cast;
use super::control::{Call, CallTensor, Const};
use super::unary::{Ceil, Floor};
use crate::dtype::DType;
use crate::graph::{BlockId, Function, Module, Node, TensorType, ValueId, sized};
use crate::int::Dim;
use crate::name::Name;
use crate::tensor::Tensor;
use rustc_hash::FxHashMap;
use std::cell::RefCell;
use std::rc::Rc;

/// The inputs of inference: operand types, constant operand values, symbolic integer values, callees.
pub struct InferContext<'a> {
    /// The module (constants, callees).
    pub module: &'a Module,
    /// The function the node is in.
    pub function: &'a Function,
    inputs: &'a [Option<ValueId>],
    regions: &'a [BlockId],
    values: Rc<IntValues>,
    depth: usize,
}

/// Integer values found so far in one query, so that diamonds in shape arithmetic cost no more than chains.
type IntValues = RefCell<FxHashMap<ValueId, Option<Vec<Dim>>>>;

impl<'a> InferContext<'a> {
    /// For a node with these operands and regions.
    pub fn new(
        module: &'a Module,
        function: &'a Function,
        inputs: &'a [Option<ValueId>],
        regions: &'a [BlockId],
    ) -> Self {
        InferContext { module, function, inputs, regions, values: Rc::default(), depth: 0 }
    }
    /// Number of operands, absent ones included.
    pub fn len(&self) -> usize {
        self.inputs.len()
    }
    /// True for no operands.
    pub fn is_empty(&self) -> bool {
        self.inputs.is_empty()
    }
    /// Type of operand `i`; `None` when absent.
    pub fn input(&self, i: usize) -> Option<&'a TensorType> {
        self.inputs.get(i).copied().flatten().map(|v| self.function.ty(v))
    }
    /// Type of a required operand.
    ///
    /// # Errors
    /// When it is absent.
    pub fn require(&self, i: usize) -> OpResult<&'a TensorType> {
        self.input(i).ok_or_else(|| format!("operand {i} is missing").into())
    }
    /// Type of operand 0, the data, which must be of a float type.
    ///
    /// # Errors
    /// When it is absent, or of another type.
    pub fn float_data(&self) -> OpResult<&'a TensorType> {
        let x = self.require(0)?;
        if x.dtype.is_float() { Ok(x) } else { Err(format!("data is {}, needs a float type", x.dtype).into()) }
    }
    /// A graph function of the module, the node's own among them, whose first parameters take the operands.
    ///
    /// # Errors
    /// Without such a function, with more operands than it has parameters, and for one of another type.
    pub fn callee(&self, name: Name) -> OpResult<&'a Function> {
        let f = self.function_named(name)?;
        for (i, &p) in f.params()[..self.len()].iter().enumerate() {
            let (want, got) = (f.ty(p), self.require(i)?);
            if want != got {
                return Err(format!("operand {i} of @{name} is {want:?}, got {got:?}").into());
            }
        }
        Ok(f)
    }
    /// The result types of a graph function of the module that is called with the operands, which determine the symbols
    /// of its parameters. A recursive call uses the function's own types.
    ///
    /// # Errors
    /// Without such a function, with another number of operands, and for operands that do not fit.
    pub fn called(&self, name: Name) -> OpResult<Vec<TensorType>> {
        let f = self.function_named(name)?;
        if f.params().len() != self.len() {
            return Err(format!("@{name} takes {} operands, got {}", f.params().len(), self.len()).into());
        }
        if self.function.name == name {
            return Ok(self.callee(name)?.result_types.clone());
        }
        let operands = (0..self.len()).map(|i| self.require(i)).collect::<OpResult<Vec<_>>>()?;
        let sizes = f.unify(&operands);
        let sizes = sizes.map_err(|(i, want)| format!("operand {i} of @{name} is {want:?}, got {:?}", operands[i]))?;
        match f.captured_size(&sizes) {
            Some(size) => Err(format!("@{name} decides a size `{size}`, and so does an operand: rename one").into()),
            None if sizes.is_empty() => Ok(f.result_types.clone()),
            None => Ok(f.result_types.iter().map(|t| sized(t, &sizes)).collect()),
        }
    }
    fn function_named(&self, name: Name) -> OpResult<&'a Function> {
        let missing = || format!("function @{name} is not in the module");
        let own = self.function.name == name;
        let f = if own { self.function } else { self.module.functions.get(&name).ok_or_else(missing)? };
        if f.params().len() < self.len() {
            return Err(format!("@{name} takes {} operands, got {}", f.params().len(), self.len()).into());
        }
        Ok(f)
    }
    /// Blocks owned by the node.
    pub fn regions(&self) -> &'a [BlockId] {
        self.regions
    }
    /// Value of operand `i` where it is a constant of the module.
    pub fn const_input(&self, i: usize) -> Option<Tensor> {
        let v = self.inputs.get(i).copied().flatten()?;
        const_value(self.module, self.function, v)
    }
    /// Integer elements of operand `i` (rank 0 or 1): constant, or symbolic through shape arithmetic.
    pub fn int_input(&self, i: usize) -> Option<Vec<Dim>> {
        let v = self.inputs.get(i).copied().flatten()?;
        find_int_value(self.module, self.function, v, self.depth, &self.values)
    }
}

/// The tensor of a value that a `const` node defines.
pub fn const_value(module: &Module, f: &Function, v: ValueId) -> Option<Tensor> {
    let (_, c) = f.def_op::<Const>(v)?;
    module.constants.get(&c.name)?.load().ok()
}

/// The tensor of a value that depends on small constants only: each value on the way has a static shape of at most 1024
/// elements, and no node has effects, regions or a callee. For shape arithmetic that exporters write with matrices.
pub fn folded_value(module: &Module, f: &Function, v: ValueId) -> Option<Tensor> {
    fn go(
        module: &Module,
        f: &Function,
        v: ValueId,
        depth: usize,
        known: &mut FxHashMap<ValueId, Option<Tensor>>,
    ) -> Option<Tensor> {
        let small = f.ty(v).numel().as_const().is_some_and(|n| n <= 1024);
        if depth > 64 || !small {
            return None;
        }
        if let Some(found) = known.get(&v).cloned().or_else(|| Some(Some(const_value(module, f, v)?))) {
            return found;
        }
        let node = &f.nodes[f.def_node(v)?];
        let pure = !node.op.effects().stateful && node.regions.is_empty() && node.outputs.len() == 1;
        let inner = node.op.is::<Call>() || node.op.is::<CallTensor>() || node.inputs.is_empty();
        known.insert(v, None);
        if !pure || inner || !node.op.defined_symbols().is_empty() {
            return None;
        }
        let mut inputs = Vec::with_capacity(node.inputs.len());
        for i in &node.inputs {
            inputs.push(match i {
                None => None,
                Some(i) => Some(go(module, f, *i, depth + 1, known)?),
            });
        }
        let found = crate::interpreter::eval_node(&node.op, &inputs, module).ok()?.into_iter().next();
        known.insert(v, found.clone());
        found
    }
    go(module, f, v, 0, &mut FxHashMap::default())
}

/// Integer elements of a value through chains of shape arithmetic; `None` where unknown or longer than 64 elements.
pub fn int_value(module: &Module, f: &Function, v: ValueId, depth: usize) -> Option<Vec<Dim>> {
    find_int_value(module, f, v, depth, &Rc::default())
}

fn find_int_value(module: &Module, f: &Function, v: ValueId, depth: usize, known: &Rc<IntValues>) -> Option<Vec<Dim>> {
    let ty = f.ty(v);
    let float = matches!(ty.dtype, DType::F32 | DType::F64);
    if depth > 64 || !(ty.dtype.is_int() || ty.dtype == DType::Bool || float) || ty.rank() > 1 {
        return None;
    }
    if ty.numel().as_const().is_some_and(|n| n > 64) {
        return None;
    }
    if let Some(found) = known.borrow().get(&v) {
        return found.clone();
    }
    if let Some(t) = const_value(module, f, v) {
        let values = t.to_i64_vec();
        let whole = !float || t.to_f64_vec().into_iter().all(is_whole);
        let whole = whole && (ty.dtype != DType::U64 || values.iter().all(|&v| v >= 0));
        return whole.then(|| values.into_iter().map(Dim::new).collect());
    }
    let node = &f.nodes[f.def_node(v)?];
    let mut cx = InferContext::new(module, f, &node.inputs, &node.regions);
    (cx.values, cx.depth) = (known.clone(), depth + 1);
    let found = node.op.infer_value(&cx).or_else(|| rounded(&cx, node)).and_then(|all| result_of(f, node, v, all));
    let found = found.map(|dims| dims.iter().map(|d| module.dims.settle(d)).collect::<Vec<Dim>>());
    // Sizes are computed as i64: beyond its end, u64 would be below 0.
    let in_u64 = |d: &Dim| ty.dtype != DType::U64 || module.dims.proves(d, 0);
    let exact = |d: &Dim| (!float || module.dims.is_within(d, LARGEST_WHOLE)) && in_u64(d);
    let found = found.filter(|dims| dims.iter().all(exact));
    let folded = || folded_value(module, f, v).filter(|_| !float && ty.dtype != DType::U64);
    let found = found.or_else(|| Some(folded()?.to_i64_vec().into_iter().map(Dim::new).collect()));
    known.borrow_mut().insert(v, found.clone());
    found
}

/// Up to this an f32 holds every integer.
const LARGEST_WHOLE: i64 = 1 << 24;

/// An integer that an f32 holds, as it is.
fn is_whole(v: f64) -> bool {
    v.fract() == 0.0 && v.abs() <= LARGEST_WHOLE as f64 && !(v == 0.0 && v.is_sign_negative())
}

/// The values of `v` in the list of the values of all results of its node.
fn result_of(f: &Function, node: &Node, v: ValueId, all: Vec<Dim>) -> Option<Vec<Dim>> {
    if node.outputs.len() == 1 {
        return Some(all);
    }
    let length = |v: ValueId| usize::try_from(f.ty(v).numel().as_const()?).ok();
    let before = node.outputs.iter().take_while(|&&o| o != v).map(|&o| length(o)).sum::<Option<usize>>()?;
    Some(all.get(before..before + length(v)?)?.to_vec())
}

/// A quotient of sizes in floats, or a product with a fraction, that a node rounds to an integer: exporters write that
/// for scaled sizes. The float is less than 1/2 from the exact value, and on the same side of every integer.
fn rounded(cx: &InferContext<'_>, node: &Node) -> Option<Vec<Dim>> {
    let up = node.op.is::<Ceil>();
    let cast = node.op.downcast::<Cast>().is_some_and(|c| c.to.is_int());
    if !(up || cast || node.op.is::<Floor>()) {
        return None;
    }
    let ratios = ratios(cx, *node.inputs.first()?.as_ref()?, 0)?;
    let round = |(n, d): (Dim, Dim)| {
        let fits = cx.module.dims.is_within(&n, 1 << 22) && cx.module.dims.proves(&d, 1);
        // A cast rounds towards 0.
        let fits = fits && (!cast || cx.module.dims.proves(&n, 0));
        fits.then(|| if up { n.ceil_div(d) } else { n.div(d) })
    };
    ratios.into_iter().map(round).collect()
}

/// The elements of a float value as fractions.
fn ratios(cx: &InferContext<'_>, v: ValueId, depth: usize) -> Option<Vec<(Dim, Dim)>> {
    let f = cx.function;
    let node = &f.nodes[f.def_node(v)?];
    let operand = |i: usize| node.inputs.get(i).copied().flatten();
    let ints = |v: ValueId| find_int_value(cx.module, f, v, cx.depth, &cx.values);
    if node.op.downcast::<Cast>().is_some_and(|c| c.to.is_float()) && depth < 8 {
        return ratios(cx, operand(0)?, depth + 1);
    }
    let both = |a: Vec<Dim>, b: Vec<Dim>| match (a.len(), b.len()) {
        (n, m) if n == m => Some(a.into_iter().zip(b).collect()),
        (_, 1) => Some(a.into_iter().map(|a| (a, b[0].clone())).collect::<Vec<_>>()),
        _ => None,
    };
    if node.op.is::<Div>() {
        return both(ints(operand(0)?)?, ints(operand(1)?)?);
    }
    if !node.op.is::<Mul>() {
        return None;
    }
    let (a, b) = (operand(0)?, operand(1)?);
    let (sizes, by) = match ints(a) {
        Some(sizes) => (sizes, b),
        None => (ints(b)?, a),
    };
    let by = const_value(cx.module, f, by).filter(|t| t.len() == 1)?.to_f64_vec()[0];
    // Halves, quarters ...: the product is exact.
    let of = (1..=8).map(|k| 1i64 << k).find(|&of| is_whole(by * of as f64))?;
    Some(sizes.into_iter().map(|d| (d * (by * of as f64) as i64, Dim::new(of))).collect())
}

#[cfg(test)]
mod tests;
