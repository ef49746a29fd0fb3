//! Tensor expressions: how an op describes its computation.
//!
//! An op of the compiler (`Op::compute`) receives a [`ComputeContext`] with the operands as buffers. It appends stages
//! with [`ComputeContext::compute`] and [`ComputeContext::reduce`], and hands over the buffer of each result with
//! [`ComputeContext::output`]. An op that calls a tensor function copies the stages of the callee
//! ([`ComputeContext::inline_callee`]). Loop variables are named after the stage, so names stay unique in a fused
//! group.

use crate::arena::Id;
use crate::dtype::DType;
use crate::fault::Fault;
use crate::int::{Bounds, Int, simplify};
use crate::name::Name;
use crate::tensor::Tensor;
use crate::tensor_type::TensorType;
use crate::tir::{
    Block, Buffer, BufferId, Combiner, Encoding, Expr, For, LoopKind, Reduce, Scope, StageSet, Stmt, TensorFunction,
    Update,
};
use rustc_hash::FxHashMap;

/// Appends the stages of one node to a tensor function.
pub struct ComputeContext<'a> {
    /// The function under construction.
    pub function: &'a mut TensorFunction,
    inputs: Vec<Option<BufferId>>,
    constants: Vec<Option<Tensor>>,
    output_types: Vec<TensorType>,
    outputs: Vec<Option<BufferId>>,
    callee: Option<&'a TensorFunction>,
    prefix: String,
}

impl<'a> ComputeContext<'a> {
    /// For a node: operand buffers, operand constants where known (at least all integer operands of rank <= 1),
    /// result types, and a prefix for names that is unique in the function.
    pub fn new(
        function: &'a mut TensorFunction,
        inputs: Vec<Option<BufferId>>,
        constants: Vec<Option<Tensor>>,
        output_types: Vec<TensorType>,
        prefix: &str,
    ) -> Self {
        let outputs = vec![None; output_types.len()];
        ComputeContext { function, inputs, constants, output_types, outputs, callee: None, prefix: prefix.to_string() }
    }
    /// For a node that calls a tensor function: `callee`.
    pub fn calling(self, callee: Option<&'a TensorFunction>) -> Self {
        ComputeContext { callee, ..self }
    }
    /// Number of operands, absent ones included.
    pub fn num_inputs(&self) -> usize {
        self.inputs.len()
    }
    /// Buffer of operand `i`; `None` when absent.
    pub fn input(&self, i: usize) -> Option<BufferId> {
        self.inputs.get(i).copied().flatten()
    }
    /// Buffer of a required operand.
    ///
    /// # Errors
    /// When it is absent.
    pub fn require(&self, i: usize) -> Result<BufferId, Fault> {
        self.input(i).ok_or_else(|| format!("operand {i} is missing").into())
    }
    /// Value of operand `i` where it is a compile-time constant.
    pub fn constant(&self, i: usize) -> Option<&Tensor> {
        self.constants.get(i).and_then(|c| c.as_ref())
    }
    /// Shape of a buffer.
    pub fn shape(&self, b: BufferId) -> Vec<Int> {
        self.function.buffers[b].shape.clone()
    }
    /// Dtype of a buffer.
    pub fn dtype(&self, b: BufferId) -> DType {
        self.function.buffers[b].dtype
    }
    /// Type of result `i`.
    pub fn output_type(&self, i: usize) -> &TensorType {
        &self.output_types[i]
    }
    fn buffer(&mut self, label: &str, shape: &[Int], dtype: DType) -> BufferId {
        let name = self.unique(label);
        self.function.buffers.push(Buffer {
            name,
            dtype,
            shape: shape.to_vec(),
            scope: Scope::Global,
            encoding: Encoding::Native,
        })
    }
    fn unique(&self, label: &str) -> Name {
        let base = if label.is_empty() { self.prefix.clone() } else { format!("{}_{label}", self.prefix) };
        let taken = |n: Name| self.function.buffers.iter().any(|(_, b)| b.name == n);
        let first = Name::new(&base);
        if !taken(first) {
            return first;
        }
        (1..).map(|i| Name::new(&format!("{base}_{i}"))).find(|&n| !taken(n)).expect("a free name")
    }
    /// A stage `out[i...] = value(i)` over `shape`. `label` distinguishes the stages of one op (empty for the main
    /// one).
    pub fn compute(
        &mut self,
        label: &str,
        shape: &[Int],
        dtype: DType,
        value: impl FnOnce(&[Int]) -> Expr,
    ) -> BufferId {
        let out = self.buffer(label, shape, dtype);
        let name = self.function.buffers[out].name;
        let loops: Vec<(Name, Int)> =
            shape.iter().enumerate().map(|(i, d)| (Name::new(&format!("{name}_i{i}")), d.clone())).collect();
        let vars: Vec<Int> = loops.iter().map(|l| Int::var(l.0)).collect();
        let value = value(&vars);
        self.push(name, loops, out, vars, value, None);
        out
    }
    /// A stage `out[i...] = combine over r of value(i, r)`; accumulates in `dtype`. Extents of constant 1 get no loop
    /// (their index is 0), and without any loop left the stage is a plain `compute`. Over an extent of 0 nothing is
    /// read, and every element is the combiner's identity.
    pub fn reduce(
        &mut self,
        label: &str,
        shape: &[Int],
        dtype: DType,
        extents: &[Int],
        combiner: Combiner,
        value: impl FnOnce(&[Int], &[Int]) -> Expr,
    ) -> BufferId {
        if extents.iter().any(|d| d.is(0)) {
            return self.compute(label, shape, dtype, |_| combiner.identity(dtype));
        }
        let out = self.buffer(label, shape, dtype);
        let name = self.function.buffers[out].name;
        let spatial = shape.iter().enumerate().map(|(i, d)| (Name::new(&format!("{name}_i{i}")), d.clone()));
        let mut loops: Vec<(Name, Int)> = spatial.collect();
        let s: Vec<Int> = loops.iter().map(|l| Int::var(l.0)).collect();
        let mut r = Vec::with_capacity(extents.len());
        for (i, d) in extents.iter().enumerate() {
            if d.is(1) {
                r.push(Int::new(0));
                continue;
            }
            let var = Name::new(&format!("{name}_r{i}"));
            loops.push((var, d.clone()));
            r.push(Int::var(var));
        }
        let value = value(&s, &r);
        let reduce = (loops.len() > s.len()).then_some(Reduce { combiner, init: true });
        self.push(name, loops, out, s, value, reduce);
        out
    }
    /// The result, stored in parts: for each value its first index along `axis`. The other elements are from
    /// operand `of`, if there is one ([`Update`]).
    pub fn update(&mut self, axis: usize, parts: &[(BufferId, Int)], of: Option<BufferId>) -> BufferId {
        let ty = self.output_types[0].clone();
        let result = self.buffer("", &ty.shape, ty.dtype);
        let base = self.function.buffers[result].name;
        for (n, (value, start)) in parts.iter().enumerate() {
            let name = Name::new(&format!("{base}_part{n}"));
            let shape = self.shape(*value);
            let loops: Vec<(Name, Int)> =
                shape.iter().enumerate().map(|(i, d)| (Name::new(&format!("{name}_i{i}")), d.clone())).collect();
            let vars: Vec<Int> = loops.iter().map(|l| Int::var(l.0)).collect();
            let mut indices = vars.clone();
            indices[axis] = simplify(&(indices[axis].clone() + start), &Bounds::new());
            self.push(name, loops, result, indices, Expr::load(*value, vars), None);
        }
        self.function.updates.push(Update { result, of });
        result
    }
    fn push(
        &mut self,
        name: Name,
        loops: Vec<(Name, Int)>,
        buffer: BufferId,
        indices: Vec<Int>,
        value: Expr,
        reduce: Option<Reduce>,
    ) {
        let stages = StageSet::default();
        let mut s = Stmt::Block(Box::new(Block { name, guards: vec![], buffer, indices, value, reduce, stages }));
        for (var, extent) in loops.into_iter().rev() {
            s = Stmt::For(Box::new(For { var, extent, kind: LoopKind::Serial, body: s }));
        }
        match &mut self.function.body {
            Stmt::Seq(list) => list.push(s),
            other => {
                let first = std::mem::replace(other, Stmt::Seq(vec![]));
                *other = Stmt::Seq(vec![first, s]);
            }
        }
    }
    /// Types of the operands that are there, and of the results, as a caller of a tensor function has them.
    pub fn call_types(&self) -> impl Iterator<Item = TensorType> + '_ {
        let operands = self.inputs.iter().flatten().map(|&b| &self.function.buffers[b]);
        let operands = operands.map(|b| TensorType::new(b.dtype, b.shape.clone()));
        operands.chain(self.output_types.iter().cloned())
    }
    /// The tensor function that the node calls.
    ///
    /// # Errors
    /// Without one.
    pub fn callee(&self) -> Result<&'a TensorFunction, Fault> {
        self.callee.ok_or_else(|| "its callee is not at hand".into())
    }
    /// Appends the stages of the callee on the operands, with `sizes` for its symbols, and hands over its results.
    ///
    /// # Errors
    /// The callee is missing, is not plain ([`TensorFunction::plain_stages`]), does not take these sizes, or has a loop
    /// without iterations.
    pub fn inline_callee(&mut self, sizes: &FxHashMap<Name, Int>) -> Result<(), Fault> {
        let callee = self.callee()?;
        callee.check_sizes(sizes)?;
        let mut own: Vec<Option<BufferId>> = vec![None; callee.buffers.len()];
        for (i, b) in callee.inputs().enumerate() {
            own[b.index()] = Some(self.require(i)?);
        }
        let sized = |e: &Int| simplify(&e.replace(&mut |v| sizes.get(&v).cloned()), &Bounds::new());
        for stage in callee.plain_stages()? {
            let made = &callee.buffers[stage.block.buffer];
            let shape: Vec<Int> = made.shape.iter().map(sized).collect();
            let out = self.buffer("", &shape, made.dtype);
            own[stage.block.buffer.index()] = Some(out);
            let name = self.function.buffers[out].name;
            let fresh = |at: usize| Name::new(&format!("{name}_l{at}"));
            let place = |var: Name| stage.loops.iter().position(|l| l.0 == var);
            let loops: Vec<(Name, Int)> =
                stage.loops.iter().enumerate().map(|(at, l)| (fresh(at), sized(&l.1))).collect();
            if let Some((at, _)) = loops.iter().enumerate().find(|(_, l)| l.1.is(0)) {
                return Err(format!("loop `{}` of @{} has no iterations", stage.loops[at].0, callee.name).into());
            }
            let mut block = stage.block.rename_buffers(&|b| own[b.index()].unwrap_or(b));
            // Loops first: a size of the caller may have the name of a loop here.
            let new = |var: Name| place(var).map(|at| Int::var(fresh(at))).or_else(|| sizes.get(&var).cloned());
            block.map_ints(&mut |i| i.replace(&mut |var| new(var)));
            self.push(name, loops, out, block.indices, block.value, block.reduce);
        }
        for (i, b) in callee.outputs().enumerate() {
            self.outputs[i] = own[b.index()];
        }
        Ok(())
    }
    /// Hands over the buffer of result `i`.
    pub fn output(&mut self, i: usize, b: BufferId) {
        self.outputs[i] = Some(b);
    }
    /// The result buffers; `None` for a result that was not handed over (it is not computed).
    pub fn into_outputs(self) -> Vec<Option<BufferId>> {
        self.outputs
    }
}

/// Index of an operand of shape `shape` that is broadcast (NumPy rules) to the result index `index`.
pub fn broadcast_index(index: &[Int], shape: &[Int]) -> Vec<Int> {
    let skip = index.len() - shape.len();
    shape.iter().zip(&index[skip..]).map(|(d, i)| if d.is(1) { Int::new(0) } else { i.clone() }).collect()
}
