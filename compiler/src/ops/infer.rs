//! What inference knows of a node's operands: their types, constant values, and integers through shape arithmetic.

use super::OpResult;
use super::control::{Call, CallTensor, Const};
use crate::dtype::DType;
use crate::graph::{BlockId, Function, Module, TensorType, ValueId, sized};
use crate::int::Dim;
use crate::name::Name;
use crate::tensor::Tensor;
use rustc_hash::FxHashMap;
use std::cell::RefCell;
use std::rc::Rc;

/// What inference may look at: operand types, constant operand values, symbolic integer values, callees.
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
    /// The results of a graph function of the module that takes the operands, which say what the symbols of its parameters are. In a call
    /// of itself a function has the types that it has.
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
        let found = crate::cpu::eval_node(&node.op, &inputs, module).ok()?.into_iter().next();
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
    if depth > 64 || !(ty.dtype.is_int() || ty.dtype == DType::Bool) || ty.rank() > 1 {
        return None;
    }
    if ty.numel().as_const().is_some_and(|n| n > 64) {
        return None;
    }
    if let Some(found) = known.borrow().get(&v) {
        return found.clone();
    }
    if let Some(t) = const_value(module, f, v) {
        return Some(t.to_i64_vec().into_iter().map(Dim::new).collect());
    }
    let node = &f.nodes[f.def_node(v)?];
    let mut cx = InferContext::new(module, f, &node.inputs, &node.regions);
    (cx.values, cx.depth) = (known.clone(), depth + 1);
    let found = (node.outputs.len() == 1).then(|| node.op.infer_value(&cx)).flatten();
    let found = found.or_else(|| Some(folded_value(module, f, v)?.to_i64_vec().into_iter().map(Dim::new).collect()));
    known.borrow_mut().insert(v, found.clone());
    found
}
