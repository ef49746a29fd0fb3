//! Building graph functions: every node is type-checked as it is added.

use super::{Block, BlockId, Constant, Function, Module, Node, NodeId, Origins, TensorType, ValueDef, ValueId};
use crate::fault::Fault;
use crate::name::Name;
use crate::ops::control::Const;
use crate::ops::{InferContext, OpRef, OpResult};
use crate::tensor::{MAX_RANK, Tensor};

/// Why a node could not be added.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{op} `{node}`: {why}")]
pub struct BuildError {
    /// Op name.
    pub op: &'static str,
    /// Node name.
    pub node: Name,
    /// The error of the op.
    pub why: Fault,
}

/// Adds nodes to one block of a function of a module. Types are inferred at once.
///
/// A convolution with batch norm and ReLU: built, printed, optimised, run on the interpreter. (`docs/build-a-model.md`
/// runs it on a device too.)
///
/// ```
/// use compiler::dtype::DType;
/// use compiler::graph::{FunctionBuilder, Module, TensorType};
/// use compiler::name::Name;
/// use compiler::ops::{batch_norm::BatchNorm, conv::Conv, unary::Relu};
/// use compiler::passes::{PassContext, Sequential};
/// use compiler::tensor::Tensor;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let mut module = Module::new("main");
/// let mut b = FunctionBuilder::new(&mut module, "main");
/// let x = b.param("x", TensorType::fixed(DType::F32, &[1, 1, 2, 2]));
/// let w = b.constant("w", &Tensor::from_vec(vec![1, 1, 1, 1], vec![3.0f32]));
/// let [scale, bias, mean, variance] =
///     [2.0f32, 1.0, 0.5, 1.0].map(|v| b.constant("bn", &Tensor::from_vec(vec![1], vec![v])));
/// let c = b.add(Conv::default(), &[x, w])?;
/// let n = b.add(BatchNorm { epsilon: 0.0, ..BatchNorm::default() }, &[c, scale, bias, mean, variance])?;
/// let y = b.add(Relu {}, &[n])?;
/// b.finish(&[(Name::new("y"), y)]);
///
/// // What it says as text, and that the text says all of it.
/// let text = compiler::text::print_module(&module);
/// assert!(text.contains("= conv %x, %0 : f32[1,1,2,2]"), "{text}");
/// compiler::text::compare_modules(&module, &compiler::text::parse_module(&text)?)?;
///
/// // 2 * (3 x - 0.5) + 1, and nothing below 0.
/// let input = Tensor::from_vec(vec![1, 1, 2, 2], vec![-1.0f32, 0.0, 1.0, 2.0]);
/// let run = |m: &Module| compiler::interpreter::run_function(m, m.entry, &[input.clone()]);
/// assert_eq!(run(&module)?[0].to_f32_vec(), [0.0, 0.0, 6.0, 12.0]);
///
/// // The passes fold the norm into the convolution and make one group of the rest.
/// let mut cx = PassContext::default();
/// Sequential::new(["fold-batch-norm", "eliminate-dead", "fuse-ops"]).run(&mut module, &mut cx)?;
/// let groups = module.functions.values().filter(|f| f.primitive).count();
/// assert_eq!(groups, 1, "{}", compiler::text::print_module(&module));
/// assert_eq!(run(&module)?[0].to_f32_vec(), [0.0, 0.0, 6.0, 12.0]);
/// # Ok(())
/// # }
/// ```
pub struct FunctionBuilder<'m> {
    /// The module: constants are added to it.
    pub module: &'m mut Module,
    /// The function under construction (put back into the module by [`FunctionBuilder::finish`]).
    pub function: Function,
    block: BlockId,
    name: Option<Name>,
    origins: Origins,
}

/// Result types, unless one of them cannot be: sizes in files and attributes may be anything.
///
/// # Errors
/// The first type that is negative, too large for any memory, or of too many dimensions.
pub(super) fn possible(types: Vec<TensorType>) -> OpResult<Vec<TensorType>> {
    match types.iter().find(|t| !t.is_sane()) {
        Some(t) if t.rank() > MAX_RANK => {
            Err(format!("a result has {} dimensions, at most {MAX_RANK} are", t.rank()).into())
        }
        Some(t) => Err(Fault::too_large(format!("a result is {t:?}, which no memory holds"))),
        None => Ok(types),
    }
}

impl<'m> FunctionBuilder<'m> {
    /// Starts a function `name`.
    pub fn new(module: &'m mut Module, name: impl Into<Name>) -> Self {
        let function = Function::new(name);
        let block = function.body;
        FunctionBuilder { module, function, block, name: None, origins: Origins::none() }
    }
    /// Goes on with an existing function, at the end of its body.
    pub fn resume(module: &'m mut Module, function: Function) -> Self {
        let block = function.body;
        FunctionBuilder { module, function, block, name: None, origins: Origins::none() }
    }
    /// Name and origin of the nodes that are added from now on (the source node's name); `None` names them after the
    /// op.
    pub fn set_source(&mut self, name: Option<Name>) {
        self.name = name;
        self.origins = name.map_or(Origins::none(), Origins::one);
    }
    /// Origins of the nodes that are added from now on.
    pub fn set_origins(&mut self, origins: Origins) {
        self.origins = origins;
    }
    /// Adds a parameter (an argument of the body block).
    pub fn param(&mut self, name: impl Into<Name>, ty: TensorType) -> ValueId {
        let body = self.function.body;
        self.block_arg(body, Some(name.into()), ty)
    }
    /// Adds an argument to `block`.
    pub fn block_arg(&mut self, block: BlockId, name: Option<Name>, ty: TensorType) -> ValueId {
        let index = self.function.blocks[block].args.len();
        let v = self.function.fresh_value(ty, ValueDef::Arg(block, index), name);
        self.function.blocks[block].args.push(v);
        v
    }
    /// A new empty block, for a region; build into it with [`FunctionBuilder::in_block`].
    pub fn new_block(&mut self) -> BlockId {
        self.function.blocks.push(Block::default())
    }
    /// Runs `f` with `block` as the insertion point.
    pub fn in_block<R>(&mut self, block: BlockId, f: impl FnOnce(&mut Self) -> R) -> R {
        let saved = self.enter(block);
        let r = f(self);
        self.enter(saved);
        r
    }
    /// Adds nodes to `block` from now on; the block they were added to before.
    pub(crate) fn enter(&mut self, block: BlockId) -> BlockId {
        std::mem::replace(&mut self.block, block)
    }
    /// Runs `f`; if it fails, the nodes that it added to the current block are removed again.
    ///
    /// # Errors
    /// As `f`.
    pub fn attempt<R, E>(&mut self, f: impl FnOnce(&mut Self) -> Result<R, E>) -> Result<R, E> {
        let before = self.function.blocks[self.block].nodes.len();
        let done = f(self);
        if done.is_err() {
            let block = &mut self.function.blocks[self.block];
            for n in block.nodes.drain(before.min(block.nodes.len())..) {
                self.function.nodes[n].block = None;
            }
        }
        done
    }
    /// Sets what `block` yields.
    pub fn set_block_results(&mut self, block: BlockId, results: Vec<ValueId>) {
        self.function.blocks[block].results = results;
    }
    /// Adds a constant of the module and the node that reads it.
    pub fn constant(&mut self, base: &str, t: &Tensor) -> ValueId {
        let name = self.module.add_constant(base, t);
        self.const_ref(name)
    }
    /// Adds a node that reads the constant `name`, which must be in the module.
    pub fn const_ref(&mut self, name: Name) -> ValueId {
        let ty =
            self.module.constants.get(&name).map(Constant::ty).unwrap_or_else(|| panic!("constant @{name} is missing"));
        self.push_node(OpRef::new(Const { name }), vec![], vec![], vec![ty])[0]
    }
    /// Adds a node with one result.
    ///
    /// # Errors
    /// When the op's inference refuses the operands.
    pub fn add(&mut self, op: impl Into<OpRef>, inputs: &[ValueId]) -> Result<ValueId, BuildError> {
        let inputs: Vec<_> = inputs.iter().map(|&v| Some(v)).collect();
        Ok(self.add_multi(op, inputs, vec![])?[0])
    }
    /// Adds a node with any operands, regions and results.
    ///
    /// # Errors
    /// When the op's inference refuses the operands.
    pub fn add_multi(
        &mut self,
        op: impl Into<OpRef>,
        inputs: Vec<Option<ValueId>>,
        regions: Vec<BlockId>,
    ) -> Result<Vec<ValueId>, BuildError> {
        let op = op.into();
        let refused = |why| BuildError { op: op.name(), node: self.name.unwrap_or_else(|| Name::new(op.name())), why };
        let (low, high) = op.arity();
        if !(low..=high).contains(&inputs.len()) {
            return Err(refused(format!("{} operands; the op takes {low} to {high}", inputs.len()).into()));
        }
        let cx = InferContext::new(self.module, &self.function, &inputs, &regions);
        let types = op.infer(&cx).and_then(possible).map_err(refused)?;
        Ok(self.push_node(op, inputs, regions, types))
    }
    /// Appends a node whose result types are known.
    pub fn push_node(
        &mut self,
        op: OpRef,
        inputs: Vec<Option<ValueId>>,
        regions: Vec<BlockId>,
        types: Vec<TensorType>,
    ) -> Vec<ValueId> {
        let id = <NodeId as crate::arena::Id>::from_index(self.function.nodes.len());
        let name = self.name.unwrap_or_else(|| Name::new(&format!("{}_{}", op.name(), crate::arena::Id::index(id))));
        let outputs: Vec<ValueId> = types
            .into_iter()
            .enumerate()
            .map(|(i, ty)| self.function.fresh_value(ty, ValueDef::Result(id, i), None))
            .collect();
        for &r in &regions {
            self.function.blocks[r].owner = Some(id);
        }
        self.function.nodes.push(Node {
            op,
            inputs,
            outputs: outputs.clone(),
            regions,
            name,
            origins: self.origins.clone(),
            block: Some(self.block),
        });
        self.function.blocks[self.block].nodes.push(id);
        outputs
    }
    /// Names a value as in the source model.
    pub fn name_value(&mut self, v: ValueId, name: impl Into<Name>) {
        self.function.values[v].name = Some(name.into());
    }
    /// Type of a value.
    pub fn ty(&self, v: ValueId) -> &TensorType {
        self.function.ty(v)
    }
    /// Sets the results and puts the function into the module.
    pub fn finish(mut self, results: &[(Name, ValueId)]) -> Name {
        let body = self.function.body;
        self.function.blocks[body].results = results.iter().map(|r| r.1).collect();
        self.function.result_names = results.iter().map(|r| r.0).collect();
        self.function.result_types = results.iter().map(|r| self.function.ty(r.1).clone()).collect();
        let name = self.function.name;
        self.module.functions.insert(name, self.function);
        name
    }
}
