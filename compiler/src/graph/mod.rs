//! Graph IR: a module of graph functions and tensor functions in one symbol table.
//!
//! A graph [`Function`] is arena SSA: nodes produce values; blocks hold ordered nodes; a node may own regions (blocks
//! with arguments). Values of an enclosing block are visible in a region; values of a sibling region are not.
//! The body block's arguments are the function's parameters and its results are the function's results.
//!
//! Always holds (checked by `verify`): every use is dominated by its definition; types on values agree with the op's
//! inference; names of functions, tensor functions and constants are distinct. Removed nodes stay in the arena but are
//! in no block ([`Node::block`] is `None`).

mod bind;
mod builder;
mod copy;
mod expansion;
mod extract;
mod input_sizes;
mod instantiate;
pub use crate::tensor_type::{Signature, TensorType};
pub use bind::{
    BindError, bind_dims, choose_shapes, input_ports, learn_dims, open_dims, open_dims_of, reinfer, set_input_shape,
    set_input_shapes, set_shapes_in_order, shapes_in_order, substitute_dims, substitute_function_dims,
};
pub use builder::{BuildError, FunctionBuilder};
pub(crate) use copy::CopyNodes;
pub use expansion::{EXPANSION_LIMIT, NESTING_LIMIT, check_expansion};
pub use extract::{ExtractError, Extracted, extract, outer_operands};
pub use input_sizes::{Decided, Sizes, SizesError};
pub use instantiate::instantiate_functions;
pub(crate) use instantiate::sized;

use crate::arena::{Arena, Id};
use crate::define_id;
use crate::dtype::DType;
use crate::fault::Fault;
use crate::int::DimRanges;
use crate::name::Name;
use crate::ops::OpRef;
use crate::ops::control::Loop;
use crate::tensor::{ConstData, Tensor};
use crate::tir::TensorFunction;
use indexmap::IndexMap;
use std::sync::Arc;

define_id!(/// A node of a graph function.
    NodeId);
define_id!(/// A value of a graph function.
    ValueId);
define_id!(/// A block (region body) of a graph function.
    BlockId);

/// Source nodes (names in the imported model) of a node or value; sorted, shared. A node that a pass inserted (for
/// example a cast or transpose) has the nodes that it *serves* instead: it computes none of them.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Origins {
    names: Option<Arc<Vec<Name>>>,
    served: bool,
}
impl Origins {
    /// No known source.
    pub fn none() -> Origins {
        Origins::default()
    }
    /// One source node.
    pub fn one(name: impl Into<Name>) -> Origins {
        Origins { names: Some(Arc::new(vec![name.into()])), served: false }
    }
    /// Any number of source nodes.
    pub fn from_names(names: impl IntoIterator<Item = Name>) -> Origins {
        let mut v: Vec<Name> = names.into_iter().collect();
        v.sort();
        v.dedup();
        Origins { names: (!v.is_empty()).then(|| Arc::new(v)), served: false }
    }
    /// The same for a node that is put in to serve these.
    pub fn serving(&self) -> Origins {
        Origins { names: self.names.clone(), served: self.names.is_some() }
    }
    /// True if the names are served nodes.
    pub fn are_served(&self) -> bool {
        self.served
    }
    /// The union of both. Served nodes count only if there are no other names.
    pub fn union(&self, other: &Origins) -> Origins {
        match (self, other) {
            (a, b) if b.names.is_none() || a == b => a.clone(),
            (a, b) if a.names.is_none() || a.served && !b.served => b.clone(),
            (a, b) if b.served && !a.served => a.clone(),
            (a, b) => {
                let names = Origins::from_names(a.names().iter().chain(b.names()).copied()).names;
                Origins { names, served: a.served }
            }
        }
    }
    /// The names, sorted.
    pub fn names(&self) -> &[Name] {
        self.names.as_ref().map_or(&[], |v| v.as_slice())
    }
}

/// A node: one op applied to values.
#[derive(Clone, Debug)]
pub struct Node {
    /// The op with its attributes.
    pub op: OpRef,
    /// Operands; `None` for an optional one that is absent.
    pub inputs: Vec<Option<ValueId>>,
    /// Results.
    pub outputs: Vec<ValueId>,
    /// Blocks owned by the op.
    pub regions: Vec<BlockId>,
    /// Name for messages: the source node's name, or one made from the op.
    pub name: Name,
    /// Source nodes.
    pub origins: Origins,
    /// The block that holds the node; `None` once removed.
    pub block: Option<BlockId>,
}

/// Where a value comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ValueDef {
    /// The n-th result of a node.
    Result(NodeId, usize),
    /// The n-th argument of a block.
    Arg(BlockId, usize),
}

/// A value.
#[derive(Clone, Debug)]
pub struct Value {
    /// Its type.
    pub ty: TensorType,
    /// Its definition.
    pub def: ValueDef,
    /// Name in the source model; parameters and results of the entry function always have one.
    pub name: Option<Name>,
}

/// A block: arguments, ordered nodes, results.
#[derive(Clone, Debug, Default)]
pub struct Block {
    /// Arguments.
    pub args: Vec<ValueId>,
    /// Nodes in execution order.
    pub nodes: Vec<NodeId>,
    /// Values the block yields.
    pub results: Vec<ValueId>,
    /// The node that owns the block; `None` for a function body.
    pub owner: Option<NodeId>,
}

/// A graph function.
#[derive(Clone, Debug)]
pub struct Function {
    /// Global name.
    pub name: Name,
    /// True for a fused group: it is called once per group and lowered as one unit.
    pub primitive: bool,
    /// Nodes.
    pub nodes: Arena<NodeId, Node>,
    /// Values.
    pub values: Arena<ValueId, Value>,
    /// Blocks.
    pub blocks: Arena<BlockId, Block>,
    /// The body.
    pub body: BlockId,
    /// Names of the results in the source model, as many as the body's results (empty names where none).
    pub result_names: Vec<Name>,
    /// Types of the results; kept so that a call to a function under construction (recursion) has a type.
    pub result_types: Vec<TensorType>,
}

impl Function {
    /// Uses of each value as operand of a live node or as block result.
    pub fn count_uses(&self) -> Vec<u32> {
        let mut uses = vec![0; self.values.len()];
        let mut blocks = vec![self.body];
        for n in self.walk() {
            for v in self.nodes[n].inputs.iter().flatten() {
                uses[v.index()] += 1;
            }
            blocks.extend(&self.nodes[n].regions);
        }
        // Regions of removed nodes are still in the arena, but use nothing.
        for v in blocks.into_iter().flat_map(|b| &self.blocks[b].results) {
            uses[v.index()] += 1;
        }
        uses
    }
    /// A value for messages: its name, else which result or argument it is.
    pub fn describe_value(&self, v: ValueId) -> String {
        let Some(value) = self.values.get(v) else { return "a value of another function".into() };
        match (value.name, value.def) {
            (Some(name), _) => format!("%{name}"),
            (None, ValueDef::Result(n, i)) => {
                let node = self.nodes.get(n).map_or("a lost node", |n| n.name.as_str());
                format!("result {i} of `{node}`")
            }
            (None, ValueDef::Arg(block, i)) if block == self.body => format!("parameter {i}"),
            (None, ValueDef::Arg(_, i)) => format!("argument {i} of a region"),
        }
    }
    /// An empty function.
    pub fn new(name: impl Into<Name>) -> Function {
        let mut blocks = Arena::new();
        let body = blocks.push(Block::default());
        Function {
            name: name.into(),
            primitive: false,
            nodes: Arena::new(),
            values: Arena::new(),
            blocks,
            body,
            result_names: vec![],
            result_types: vec![],
        }
    }
    /// Parameters.
    pub fn params(&self) -> &[ValueId] {
        &self.blocks[self.body].args
    }
    /// Results.
    pub fn results(&self) -> &[ValueId] {
        &self.blocks[self.body].results
    }
    /// Type of a value.
    pub fn ty(&self, v: ValueId) -> &TensorType {
        &self.values[v].ty
    }
    /// The types of a node's operands and results.
    pub fn node_types(&self, n: NodeId) -> (Vec<Option<&TensorType>>, Vec<&TensorType>) {
        let node = &self.nodes[n];
        let inputs = node.inputs.iter().map(|v| v.map(|v| self.ty(v))).collect();
        (inputs, node.outputs.iter().map(|&v| self.ty(v)).collect())
    }
    /// The node that defines `v`, unless it is a block argument.
    pub fn def_node(&self, v: ValueId) -> Option<NodeId> {
        match self.values[v].def {
            ValueDef::Result(n, _) => Some(n),
            ValueDef::Arg(..) => None,
        }
    }
    /// The op that defines `v`, downcast to `T`.
    pub fn def_op<T: 'static>(&self, v: ValueId) -> Option<(NodeId, &T)> {
        let n = self.def_node(v)?;
        self.nodes[n].op.downcast::<T>().map(|op| (n, op))
    }
    /// True when a live node or a block uses `v`.
    pub fn is_used(&self, v: ValueId) -> bool {
        self.count_uses()[v.index()] > 0
    }
    /// Gives the arguments of a loop's region the types that follow from its operands; whether any has changed.
    pub fn set_argument_types(&mut self, n: NodeId) -> bool {
        let node = &self.nodes[n];
        let (true, &[body]) = (node.op.is::<Loop>(), node.regions.as_slice()) else { return false };
        let types = Loop::argument_types(self, node);
        let mut changed = false;
        for (v, ty) in self.blocks[body].args.clone().into_iter().zip(types) {
            let Some(ty) = ty.filter(|ty| *ty != self.values[v].ty) else { continue };
            self.values[v].ty = ty;
            changed = true;
        }
        changed
    }
    /// Live nodes of the body and of all nested regions, outer before inner, in execution order.
    pub fn walk(&self) -> Vec<NodeId> {
        self.walk_block(self.body)
    }
    /// The nodes of a block with those of the regions inside, each before its regions' nodes.
    pub fn walk_block(&self, block: BlockId) -> Vec<NodeId> {
        fn go(f: &Function, b: BlockId, out: &mut Vec<NodeId>) {
            for &n in &f.blocks[b].nodes {
                out.push(n);
                for &r in &f.nodes[n].regions {
                    go(f, r, out);
                }
            }
        }
        let mut out = Vec::new();
        go(self, block, &mut out);
        out
    }
    /// Number of live nodes, nested ones included.
    pub fn live_nodes(&self) -> usize {
        self.walk().len()
    }
    /// Every use of every value: `(user node, operand position)`; uses as block results are not listed.
    pub fn uses(&self) -> Vec<Vec<(NodeId, usize)>> {
        let mut uses = vec![Vec::new(); self.values.len()];
        for n in self.walk() {
            for (i, v) in self.nodes[n].inputs.iter().enumerate() {
                if let Some(v) = v {
                    uses[crate::arena::Id::index(*v)].push((n, i));
                }
            }
        }
        uses
    }
    /// Replaces every use of `from` (operands and block results) by `to`. One walk over the function: to replace many
    /// values at once use [`Function::replace_uses_many`].
    pub fn replace_uses(&mut self, from: ValueId, to: ValueId) {
        self.replace_uses_many(&|v| if v == from { to } else { v });
    }
    /// Rewrites every operand and block result by `map`.
    pub fn replace_uses_many(&mut self, map: &dyn Fn(ValueId) -> ValueId) {
        for (_, n) in self.nodes.iter_mut() {
            for v in n.inputs.iter_mut().flatten() {
                *v = map(*v);
            }
        }
        for (_, b) in self.blocks.iter_mut() {
            for v in b.results.iter_mut() {
                *v = map(*v);
            }
        }
    }
    /// Takes nodes out of their blocks. Their values must have no uses left.
    pub fn remove_nodes(&mut self, dead: &rustc_hash::FxHashSet<NodeId>) {
        for (_, b) in self.blocks.iter_mut() {
            b.nodes.retain(|n| !dead.contains(n));
        }
        for &n in dead {
            self.nodes[n].block = None;
        }
    }
    /// A node name that no live node has: `base`, `base_1`, ... (linear; for tests and small rewrites).
    pub fn fresh_value(&mut self, ty: TensorType, def: ValueDef, name: Option<Name>) -> ValueId {
        self.values.push(Value { ty: ty.canonical(), def, name })
    }
}

/// A named constant of the module.
#[derive(Clone)]
pub struct Constant {
    /// Element type.
    pub dtype: DType,
    /// Dimensions.
    pub shape: Vec<usize>,
    /// The data, perhaps not read yet.
    pub data: ConstData,
}
impl Constant {
    /// From a tensor in memory.
    pub fn from_tensor(t: &Tensor) -> Constant {
        Constant { dtype: t.dtype(), shape: t.shape().to_vec(), data: ConstData::Inline(t.bytes().clone()) }
    }
    /// Type of the constant.
    pub fn ty(&self) -> TensorType {
        TensorType::fixed(self.dtype, &self.shape)
    }
    /// Bytes of the data.
    pub fn byte_len(&self) -> usize {
        self.shape.iter().product::<usize>() * self.dtype.size()
    }
    /// Reads the data.
    ///
    /// # Errors
    /// An error of the data source, or a wrong length.
    pub fn load(&self) -> Result<Tensor, Fault> {
        let bytes = match &self.data {
            ConstData::Inline(b) => b.clone(),
            ConstData::Lazy(source) => source.read()?,
        };
        Ok(Tensor::from_bytes(self.dtype, self.shape.clone(), bytes)?)
    }
}
impl std::fmt::Debug for Constant {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Constant({}{:?})", self.dtype, self.shape)
    }
}

/// A module: graph functions, tensor functions and constants under global names.
#[derive(Clone, Debug)]
pub struct Module {
    /// The function that a run starts in.
    pub entry: Name,
    /// Graph functions.
    pub functions: IndexMap<Name, Function>,
    /// Tensor functions, scheduled or not.
    pub tensor_functions: IndexMap<Name, TensorFunction>,
    /// Constants.
    pub constants: IndexMap<Name, Constant>,
    /// The ranges of open dimensions. They are not part of the text; they come from
    /// [`crate::compile::CompileOptions::dims`].
    pub dims: DimRanges,
}
impl Module {
    /// An empty module whose entry is `entry`.
    pub fn new(entry: impl Into<Name>) -> Module {
        Module {
            entry: entry.into(),
            functions: IndexMap::new(),
            tensor_functions: IndexMap::new(),
            constants: IndexMap::new(),
            dims: DimRanges::default(),
        }
    }
    /// The tensor function that an op calls.
    pub fn tensor_callee(&self, op: &OpRef) -> Option<&TensorFunction> {
        self.tensor_functions.get(&op.callee()?)
    }
    /// The entry function; panics when the module has none (the verifier's first rule).
    pub fn main(&self) -> &Function {
        &self.functions[&self.entry]
    }
    /// The entry function, mutable.
    pub fn main_mut(&mut self) -> &mut Function {
        &mut self.functions[&self.entry]
    }
    /// A name derived from `base` that no function, tensor function or constant has.
    pub fn fresh_name(&self, base: &str) -> Name {
        let taken = |n: &Name| {
            self.functions.contains_key(n) || self.tensor_functions.contains_key(n) || self.constants.contains_key(n)
        };
        let first = Name::new(base);
        if !taken(&first) {
            return first;
        }
        (1..).map(|i| Name::new(&format!("{base}_{i}"))).find(|n| !taken(n)).expect("a free name")
    }
    /// Adds a tensor function under its own name, or a name derived from it; one that is there already under some name
    /// is not added again. Returns the name.
    pub fn add_tensor_function(&mut self, f: &TensorFunction) -> Name {
        if let Some((&name, _)) = self.tensor_functions.iter().find(|(_, there)| *there == f) {
            return name;
        }
        let name = self.fresh_name(f.name.as_str());
        self.tensor_functions.insert(name, TensorFunction { name, ..f.clone() });
        name
    }
    /// Adds a constant under a fresh name derived from `base`.
    pub fn add_constant(&mut self, base: &str, t: &Tensor) -> Name {
        let name = self.fresh_name(base);
        self.constants.insert(name, Constant::from_tensor(t));
        name
    }
}
