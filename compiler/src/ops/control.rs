//! Constants, calls and structured control flow.

use super::{InferContext, Op, OpRef, OpResult};
use crate::attr_struct;
use crate::dtype::DType;
use crate::fault::Fault;
use crate::graph::{BlockId, Function, Node, TensorType, ValueId, open_dims_of};
use crate::int::{Bounds, Dim, Int, simplify};
use crate::name::Name;
use crate::ops::onnx::OnnxImport;
use crate::te::ComputeContext;
use crate::tensor::Tensor;
use crate::tir::{BufferId, TensorFunction};
use rustc_hash::FxHashMap;
use tensor_ir::text::print_attrs;

/// ONNX importers: none makes these ops as they are.
pub const ONNX: &[OnnxImport] = &[];

attr_struct! {
    /// Reads the module constant `name`. No operands.
    pub struct Const("const") {
        /// Global name of the constant.
        pub name: Name = Name::new(""),
    }
}
impl Op for Const {
    fn arity(&self) -> (usize, usize) {
        (0, 0)
    }
    fn infer(&self, cx: &InferContext<'_>) -> OpResult<Vec<TensorType>> {
        let c = cx
            .module
            .constants
            .get(&self.name)
            .ok_or_else(|| format!("constant @{} is not in the module", self.name))?;
        Ok(vec![c.ty()])
    }
    fn has_compute(&self) -> bool {
        false
    }
}

attr_struct! {
    /// Calls the graph function `callee`; operands are its parameters, results its results. Recursion is allowed. In
    /// each call the operands determine the symbols of the parameters' types.
    pub struct Call("call") {
        /// Global name of the function.
        pub callee: Name = Name::new(""),
    }
}
impl Op for Call {
    fn arity(&self) -> (usize, usize) {
        (0, usize::MAX)
    }
    fn infer(&self, cx: &InferContext<'_>) -> OpResult<Vec<TensorType>> {
        cx.called(self.callee)
    }
    fn callee(&self) -> Option<Name> {
        Some(self.callee)
    }
    fn has_compute(&self) -> bool {
        false
    }
}

attr_struct! {
    /// Calls the tensor function `callee` in destination-passing style: operands are its read parameters, results its
    /// write parameters, in order. The stages of a plain function are the op's tensor expression, so that it fuses with
    /// its neighbours; one with a schedule of its own is called as it is.
    pub struct CallTensor("call_tensor") {
        /// Global name of the tensor function.
        pub callee: Name = Name::new(""),
        /// Symbols of the callee that no operand's shape determines ...
        pub symbols: Vec<Name> = vec![],
        /// ... and their values in this call.
        pub sizes: Vec<Int> = vec![],
    }
}
impl CallTensor {
    /// The values of the callee's symbols for operands of these shapes.
    pub fn unify<'s>(
        &self,
        callee: &TensorFunction,
        shapes: impl IntoIterator<Item = (BufferId, &'s [Int])>,
    ) -> FxHashMap<Name, Int> {
        let mut known = callee.unify(shapes);
        known.extend(self.symbols.iter().copied().zip(self.sizes.iter().cloned()));
        known
    }
}
impl Op for CallTensor {
    fn arity(&self) -> (usize, usize) {
        (0, usize::MAX)
    }
    fn infer(&self, cx: &InferContext<'_>) -> OpResult<Vec<TensorType>> {
        let f = cx
            .module
            .tensor_functions
            .get(&self.callee)
            .ok_or_else(|| format!("tensor function @{} is not in the module", self.callee))?;
        if f.inputs().count() != cx.len() {
            return Err(format!("@{} reads {} tensors, got {}", self.callee, f.inputs().count(), cx.len()).into());
        }
        let given = (0..cx.len()).map(|i| cx.input(i).map_or(&[][..], |t| t.shape.as_slice()));
        let known = self.unify(f, f.inputs().zip(given));
        let size = |d: &Dim| simplify(&d.replace(&mut |v| known.get(&v).cloned()), &Bounds::new());
        let result = |b| TensorType::new(f.buffers[b].dtype, f.declared_shape(b).iter().map(size).collect());
        Ok(f.outputs().map(result).collect())
    }
    fn callee(&self) -> Option<Name> {
        Some(self.callee)
    }
    fn compute(&self, cx: &mut ComputeContext<'_>) -> OpResult<()> {
        let callee = cx.callee()?;
        let types: Vec<TensorType> = cx.call_types().collect();
        let buffers = callee.inputs().chain(callee.outputs());
        let sizes = self.unify(callee, buffers.zip(types.iter().map(|t| t.shape.as_slice())));
        cx.inline_callee(&sizes)
    }
}

attr_struct! {
    /// Calls a registered host function: an op without a kernel, an expert's own code, an external library. It is never
    /// merged with another call, fused or left out, and keeps its place among the other effects.
    pub struct CallHost("call_host") {
        /// Registered name.
        pub callee: Name = Name::new(""),
        /// Result dtypes.
        pub dtypes: Vec<DType> = vec![],
        /// Result shapes.
        pub shapes: Vec<Vec<Int>> = vec![],
        /// On a device it works on device buffers, through the queue; else on tensors in host memory.
        pub on_device: bool = false,
        /// For each result the operand whose memory it reuses, -1 for none; results beyond the list reuse none. An
        /// operand that is read later is copied first.
        pub in_place: Vec<i64> = vec![],
        /// A graph function that computes the same, if the host function cannot run (not registered, no device).
        pub reference: Name = Name::new(""),
        /// The external target that runs the reference; empty: a registered host function.
        pub target: Name = Name::new(""),
        /// Options of the target, `NAME=VALUE` joined by `:`.
        pub options: String = String::new(),
    }
}
impl CallHost {
    /// The external target that runs the reference function.
    pub fn external_target(&self) -> Option<Name> {
        (!self.target.as_str().is_empty()).then_some(self.target)
    }
    /// The operand whose memory result `i` reuses.
    pub fn in_place_operand(&self, i: usize) -> Option<usize> {
        self.in_place.get(i).and_then(|&operand| usize::try_from(operand).ok())
    }
    /// The graph function that computes the same.
    pub fn reference_function(&self) -> Option<Name> {
        (!self.reference.as_str().is_empty()).then_some(self.reference)
    }
    /// Each result in place of an operand has its type, and no two share one.
    fn check_in_place(&self, cx: &InferContext<'_>, types: &[TensorType]) -> OpResult<()> {
        if self.in_place.len() > types.len() {
            return Err("`in_place` has more entries than there are results".into());
        }
        let mut taken = vec![];
        for (i, ty) in types.iter().enumerate() {
            let Some(operand) = self.in_place_operand(i) else { continue };
            let held = cx.require(operand)?;
            if held != ty {
                return Err(
                    format!("result {i} is {ty:?}, and operand {operand}, whose place it takes, {held:?}").into()
                );
            }
            if taken.contains(&operand) {
                return Err(format!("two results take the place of operand {operand}").into());
            }
            taken.push(operand);
        }
        Ok(())
    }
    fn check_reference(&self, cx: &InferContext<'_>, types: &[TensorType]) -> OpResult<()> {
        let Some(reference) = self.reference_function() else {
            return match self.external_target() {
                Some(target) => Err(format!("needs a `reference`, the function that {target} runs").into()),
                None => Ok(()),
            };
        };
        let f = cx.module.functions.get(&reference);
        let f = f.ok_or_else(|| format!("function @{reference}, its reference, is not in the module"))?;
        if f.params().len() != cx.len() || f.result_types != types {
            return Err(format!("@{reference}, its reference, has other operands or results").into());
        }
        Ok(())
    }
}
impl Op for CallHost {
    fn arity(&self) -> (usize, usize) {
        (0, usize::MAX)
    }
    fn infer(&self, cx: &InferContext<'_>) -> OpResult<Vec<TensorType>> {
        let types = declared_types(&self.dtypes, &self.shapes)?;
        self.check_in_place(cx, &types)?;
        self.check_reference(cx, &types)?;
        Ok(types)
    }
    fn has_compute(&self) -> bool {
        false
    }
    fn eval_host(&self, _inputs: &[Option<Tensor>]) -> Option<OpResult<Vec<Tensor>>> {
        Some(Err(format!("calls the host function `{}`, which is not registered", self.callee).into()))
    }
    /// A region of an external target computes its results and does nothing else.
    fn effects(&self) -> super::Effects {
        super::Effects { stateful: self.target.as_str().is_empty() }
    }
}

pub(super) fn declared_types(dtypes: &[DType], shapes: &[Vec<Int>]) -> OpResult<Vec<TensorType>> {
    if dtypes.len() != shapes.len() {
        return Err("dtypes and shapes differ in number".into());
    }
    Ok(dtypes.iter().zip(shapes).map(|(d, s)| TensorType::new(*d, s.clone())).collect())
}

attr_struct! {
    /// Runs region 0 when the boolean scalar operand is true, region 1 otherwise; the regions take no arguments and
    /// yield the results. Sizes that differ between the regions, or that one of them defines, are new symbols.
    pub struct If("if") {
        /// Result shapes, where there are such sizes; empty: the regions yield the same types.
        pub shapes: Vec<Vec<Int>> = vec![],
        /// The symbols of such sizes in `shapes`.
        pub dims: Vec<Name> = vec![],
    }
}
impl If {
    /// The result types of these two regions, with symbols made by `fresh` for sizes in which they differ.
    ///
    /// # Errors
    /// Regions that differ in the number of results, or in a dtype or a rank.
    pub fn of_regions(f: &Function, regions: [BlockId; 2], mut fresh: impl FnMut(usize) -> Name) -> OpResult<If> {
        let sides = [Side::of(f, regions[0]), Side::of(f, regions[1])];
        let (mut shapes, mut dims) = (vec![], vec![]);
        for pair in paired(&sides)? {
            let shape = pair.0.shape.iter().zip(&pair.1.shape).map(|(a, b)| {
                if a == b && sides.iter().all(|s| s.knows_outside(a)) {
                    return a.clone();
                }
                dims.push(fresh(dims.len()));
                Int::var(dims[dims.len() - 1])
            });
            shapes.push(shape.collect());
        }
        Ok(if dims.is_empty() { If::default() } else { If { shapes, dims } })
    }

    /// The declared shape of a result, which must be that of both sides but for the symbols.
    fn check_declared(&self, declared: &[Int], types: (&TensorType, &TensorType), sides: &[Side; 2]) -> OpResult<()> {
        if declared.len() != types.0.rank() {
            return Err(format!("`shapes` declares {declared:?} for {:?}", types.0).into());
        }
        for (d, (a, b)) in declared.iter().zip(types.0.shape.iter().zip(&types.1.shape)) {
            let open = d.as_var().is_some_and(|v| self.dims.contains(&v));
            let same = d == a && d == b && sides.iter().all(|s| s.knows_outside(d));
            if !open && !same {
                let text = format!("`shapes` declares {d}, the branches yield {a} and {b}: it must be one of `dims`");
                return Err(text.into());
            }
        }
        Ok(())
    }
}

/// The yielded values of a region of an `if`.
struct Side {
    types: Vec<TensorType>,
    /// Symbols that its nodes define.
    defines: Vec<Name>,
}
impl Side {
    fn of(f: &Function, block: BlockId) -> Side {
        let types = f.blocks[block].results.iter().map(|&v| f.ty(v).clone()).collect();
        let defines = f.walk_block(block).into_iter().flat_map(|n| f.nodes[n].op.defined_symbols()).collect();
        Side { types, defines }
    }
    fn knows_outside(&self, d: &Int) -> bool {
        d.vars().iter().all(|v| !self.defines.contains(v))
    }
}

/// The results of both sides side by side.
fn paired(sides: &[Side; 2]) -> OpResult<Vec<(&TensorType, &TensorType)>> {
    let (a, b) = (&sides[0].types, &sides[1].types);
    if a.len() != b.len() {
        return Err(format!("one branch yields {} values, the other {}", a.len(), b.len()).into());
    }
    let pairs: Vec<_> = a.iter().zip(b).collect();
    match pairs.iter().find(|(a, b)| a.dtype != b.dtype || a.rank() != b.rank()) {
        // ONNX allows it.
        Some((a, b)) => {
            let why = format!("the branches yield {a:?} and {b:?}: dtype and rank must be one");
            // Often sizes decide the condition.
            let names = open_dims_of([*a, *b]).iter().map(|d| format!("`{d}`")).collect::<Vec<_>>().join(", ");
            let given = format!(", unless sizes say which of them it is: {names} may be given");
            Err(Fault::unsupported(if names.is_empty() { why } else { why + &given }))
        }
        None => Ok(pairs),
    }
}

impl Op for If {
    fn arity(&self) -> (usize, usize) {
        (1, 1)
    }
    fn infer(&self, cx: &InferContext<'_>) -> OpResult<Vec<TensorType>> {
        let &[then, otherwise] = cx.regions() else { return Err("needs two regions".into()) };
        let cond = cx.require(0)?;
        if !is_one_bool(cond) {
            return Err(format!("the condition is {cond:?}, not one bool").into());
        }
        let sides = [Side::of(cx.function, then), Side::of(cx.function, otherwise)];
        let pairs = paired(&sides)?;
        if self.shapes.is_empty() {
            let wanted = If::of_regions(cx.function, [then, otherwise], |i| Name::new(&format!("n{i}")))?;
            if !wanted.dims.is_empty() {
                let (a, b) = (&sides[0].types, &sides[1].types);
                let declared = print_attrs(&OpRef::new(wanted).attrs());
                let text = format!("the branches yield {a:?} and {b:?}: declare the sizes that differ,{declared}");
                return Err(text.into());
            }
            return Ok(pairs.into_iter().map(|p| p.0.clone()).collect());
        }
        if self.shapes.len() != pairs.len() {
            return Err(format!("`shapes` declares {} results, there are {}", self.shapes.len(), pairs.len()).into());
        }
        let declared = pairs.into_iter().zip(&self.shapes).map(|(types, shape)| {
            self.check_declared(shape, types, &sides)?;
            Ok(TensorType::new(types.0.dtype, shape.clone()))
        });
        declared.collect()
    }
    fn has_compute(&self) -> bool {
        false
    }
    fn defined_symbols(&self) -> Vec<Name> {
        self.dims.clone()
    }
    fn size_operands(&self) -> &'static [usize] {
        &[0]
    }
    fn region_taken(&self, operands: &[Option<Tensor>]) -> Option<usize> {
        let condition = operands.first()?.as_ref().filter(|t| t.dtype() == DType::Bool && t.len() == 1)?;
        Some(usize::from(condition.to_i64_vec()[0] == 0))
    }
}

attr_struct! {
    /// Runs its one region at once: a scope for bindings.
    pub struct Let("let") {}
}
impl Op for Let {
    fn arity(&self) -> (usize, usize) {
        (0, 0)
    }
    fn infer(&self, cx: &InferContext<'_>) -> OpResult<Vec<TensorType>> {
        let [body] = cx.regions() else { return Err("needs one region".into()) };
        Ok(cx.function.blocks[*body].results.iter().map(|&v| cx.function.ty(v).clone()).collect())
    }
    fn has_compute(&self) -> bool {
        false
    }
    fn is_scope(&self) -> bool {
        true
    }
    fn region_taken(&self, _operands: &[Option<Tensor>]) -> Option<usize> {
        Some(0)
    }
}

attr_struct! {
    /// Runs its one region repeatedly. Operands: the largest number of iterations (i64; absent: `trips`, else no
    /// limit), whether to run at all (bool; absent: yes), then the first carried values. The region takes the number of
    /// the iteration (i64, from 0) and the carried values. It yields, with `while`, whether to continue (bool), then
    /// the next carried values, then the rows to collect. Results: the last carried values, then the collected rows
    /// along a new axis 0.
    pub struct Loop("loop") {
        /// The number of iterations, if it is known or a size and operand 0 is absent.
        pub trips: Option<Int> = None,
        /// The region yields whether to go on.
        pub r#while: bool = false,
        /// The symbol of the number of iterations, if only a run decides it and rows are collected; empty for none.
        pub count: Name = Name::new(""),
    }
}
impl Loop {
    /// Number of operands before the first carried values.
    pub const CONTROL: usize = 2;
    /// Values of the region before the next carried ones.
    pub fn leading(&self) -> usize {
        usize::from(self.r#while)
    }
    /// Types of the region's arguments, which follow from the operands; none for an operand that is missing.
    pub fn argument_types(f: &Function, node: &Node) -> Vec<Option<TensorType>> {
        let carried = node.inputs.iter().skip(Loop::CONTROL).map(|v| v.map(|v| f.ty(v).clone()));
        [Some(TensorType::new(DType::I64, vec![]))].into_iter().chain(carried).collect()
    }
    /// The number of iterations, for the axis of collected rows.
    fn iterations(&self, cx: &InferContext<'_>) -> OpResult<Int> {
        let counted = self.trips.clone().filter(|_| !self.r#while && cx.input(1).is_none());
        match (self.count.as_str().is_empty(), counted) {
            (false, _) => Ok(Int::var(self.count)),
            (true, Some(trips)) => Ok(trips),
            (true, None) => {
                Err("only a run decides the number of iterations: it needs `count`, a symbol for it".into())
            }
        }
    }
    fn check_control(&self, cx: &InferContext<'_>) -> OpResult<()> {
        let most = if self.r#while { i64::MAX } else { tensor_ir::plan::MOST_TRIPS as i64 - 1 };
        if let Some(n) = self.trips.as_ref().and_then(Int::as_const).filter(|n| !(0..=most).contains(n)) {
            return Err(format!("it has {n} iterations, not 0 to {most}: without a condition, more take hours").into());
        }
        if let Some(t) = cx.input(0).filter(|t| t.dtype != DType::I64 || !t.numel().is(1)) {
            return Err(format!("the number of iterations is {t:?}, not one i64").into());
        }
        if let Some(t) = cx.input(1).filter(|t| !is_one_bool(t)) {
            return Err(format!("the condition is {t:?}, not one bool").into());
        }
        match (self.trips.is_some(), cx.input(0).is_some()) {
            (true, true) => Err("the number of iterations is given twice".into()),
            (false, false) if !self.r#while => Err("nothing ends it: no number and no `while`".into()),
            _ => Ok(()),
        }
    }
}
impl Op for Loop {
    fn arity(&self) -> (usize, usize) {
        (Loop::CONTROL, usize::MAX)
    }
    fn infer(&self, cx: &InferContext<'_>) -> OpResult<Vec<TensorType>> {
        let &[body] = cx.regions() else { return Err("needs one region".into()) };
        self.check_control(cx)?;
        let block = &cx.function.blocks[body];
        let types = |list: &[ValueId]| list.iter().map(|&v| cx.function.ty(v).clone()).collect::<Vec<_>>();
        let (args, yields) = (types(&block.args), types(&block.results));
        let carried: Vec<TensorType> =
            (Loop::CONTROL..cx.len()).map(|i| cx.require(i).cloned()).collect::<OpResult<_>>()?;
        let index = TensorType::new(DType::I64, vec![]);
        if args.first() != Some(&index) || args[1..] != carried {
            let want: Vec<_> = [index].iter().chain(&carried).cloned().collect();
            return Err(format!("its region takes {args:?}, the operands are for {want:?}").into());
        }
        let (leading, rest) = yields.split_at_checked(self.leading()).unwrap_or((&[], &[]));
        if leading.len() != self.leading() || leading.iter().any(|t| !is_one_bool(t)) {
            return Err("its region must yield first whether to go on, one bool".into());
        }
        let (next, rows) = rest.split_at_checked(carried.len()).unwrap_or((rest, &[]));
        if next != carried {
            let text = format!("what an iteration leaves for the next is {next:?}, it was {carried:?}");
            return Err(Fault::unsupported(text));
        }
        let count = if rows.is_empty() { Int::new(0) } else { self.iterations(cx)? };
        let collected = rows.iter().map(|t| {
            let shape = std::iter::once(count.clone()).chain(t.shape.iter().cloned()).collect();
            TensorType::new(t.dtype, shape)
        });
        Ok(carried.iter().cloned().chain(collected).collect())
    }
    fn has_compute(&self) -> bool {
        false
    }
    fn defined_symbols(&self) -> Vec<Name> {
        if self.count.as_str().is_empty() { vec![] } else { vec![self.count] }
    }
}

fn is_one_bool(t: &TensorType) -> bool {
    t.dtype == DType::Bool && t.numel().is(1)
}
