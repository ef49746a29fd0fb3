//! The part of a graph that an external target runs.

use crate::graph::{BindError, Function, Module, NodeId, TensorType, ValueId, set_shapes_in_order};
use crate::name::Name;
use crate::ops::control::Const;
use crate::ops::external_scope::Composite;
use crate::tensor::Tensor;
use rustc_hash::FxHashMap;

/// A graph function alone in a module, with its constants: its parameters are what the region reads, its results what
/// it gives. Its nodes are ops, `composite` scopes and constants.
#[derive(Clone, Debug)]
pub struct Region {
    module: Module,
}

impl Region {
    /// The graph function `name` of a module; `None` if there is none.
    pub fn of(module: &Module, name: Name) -> Option<Region> {
        let f = module.functions.get(&name)?;
        let mut part = Module::new(name);
        part.dims = module.dims.clone();
        for n in f.walk() {
            let Some(c) = f.nodes[n].op.downcast::<Const>() else { continue };
            part.constants.insert(c.name, module.constants.get(&c.name)?.clone());
        }
        part.functions.insert(name, Function { primitive: false, ..f.clone() });
        Some(Region { module: part })
    }
    /// The region for operands of these shapes.
    ///
    /// # Errors
    /// Shapes that the region does not take.
    pub fn sized(&self, shapes: &[&[usize]]) -> Result<Region, BindError> {
        let mut module = self.module.clone();
        set_shapes_in_order(&mut module, shapes)?;
        Ok(Region { module })
    }
    /// The function, its constants, and nothing else.
    pub fn module(&self) -> &Module {
        &self.module
    }
    /// The function.
    pub fn function(&self) -> &Function {
        self.module.main()
    }
    /// Types of the operands.
    pub fn inputs(&self) -> Vec<TensorType> {
        let f = self.function();
        f.params().iter().map(|&v| f.ty(v).clone()).collect()
    }
    /// Types of the results.
    pub fn outputs(&self) -> Vec<TensorType> {
        self.function().result_types.clone()
    }
    /// Nodes in order, those of composites in place of them, without constants.
    pub fn nodes(&self) -> Vec<NodeId> {
        let f = self.function();
        let node = |n: &NodeId| !f.nodes[*n].op.is::<Const>() && !f.nodes[*n].op.is_scope();
        f.walk().into_iter().filter(node).collect()
    }
    /// The data of a value that is a constant.
    ///
    /// # Errors
    /// Data that cannot be read.
    pub fn constant(&self, v: ValueId) -> Result<Option<Tensor>, String> {
        let Some((_, c)) = self.function().def_op::<Const>(v) else { return Ok(None) };
        let Some(c) = self.module.constants.get(&c.name) else { return Ok(None) };
        c.load().map(Some).map_err(|e| e.to_string())
    }
    /// What it computes, without names and without data: equal regions of different networks have the same text.
    pub fn form(&self) -> String {
        let f = self.function();
        let mut numbers: FxHashMap<ValueId, usize> = FxHashMap::default();
        let mut number = |v: ValueId| {
            let next = numbers.len();
            *numbers.entry(v).or_insert(next)
        };
        let mut text: String = f.params().iter().map(|&v| format!("{}: {:?}\n", number(v), f.ty(v))).collect();
        for n in self.nodes() {
            let node = &f.nodes[n];
            let operand = |v: &Option<ValueId>| match v {
                None => "none".to_string(),
                Some(v) if f.def_op::<Const>(*v).is_some() => format!("constant {:?}", f.ty(*v)),
                Some(v) => number(self.source(*v)).to_string(),
            };
            let operands: Vec<String> = node.inputs.iter().map(operand).collect();
            let results: Vec<String> = node.outputs.iter().map(|&v| format!("{}: {:?}", number(v), f.ty(v))).collect();
            text.push_str(&format!("{} = {:?} {}\n", results.join(", "), node.op, operands.join(", ")));
        }
        let results: Vec<String> = f.results().iter().map(|&v| number(self.source(v)).to_string()).collect();
        text + &results.join(", ")
    }
    /// The value that a result of a composite is inside it.
    fn source(&self, v: ValueId) -> ValueId {
        let f = self.function();
        let Some(n) = f.def_node(v).filter(|&n| f.nodes[n].op.is_scope()) else { return v };
        let at = f.nodes[n].outputs.iter().position(|&o| o == v).unwrap_or(0);
        f.nodes[n].regions.first().and_then(|&b| f.blocks[b].results.get(at)).map_or(v, |&inner| self.source(inner))
    }
    /// Multiply-accumulates of a run; 0 for open sizes.
    pub fn macs(&self) -> u64 {
        let f = self.function();
        let of = |n: NodeId| {
            let (inputs, outputs) = f.node_types(n);
            f.nodes[n].op.macs(&inputs, &outputs)
        };
        self.nodes().into_iter().map(of).sum()
    }
    /// Bytes that cross its border in a run; 0 for each tensor of open size.
    pub fn border_bytes(&self) -> usize {
        self.inputs().iter().chain(&self.outputs()).map(|t| t.bytes().unwrap_or(0)).sum()
    }
    /// What it consists of, for messages: `conv2d_bias_relu x3, add`.
    pub fn summary(&self) -> String {
        let f = self.function();
        let mut counts: Vec<(&str, usize)> = vec![];
        for &n in &f.blocks[f.body].nodes {
            let op = &f.nodes[n].op;
            let name = match op.downcast::<Composite>() {
                _ if op.is::<Const>() => continue,
                Some(c) => c.name.as_str().split_once('.').map_or(c.name.as_str(), |n| n.1),
                None => op.name(),
            };
            match counts.iter_mut().find(|c| c.0 == name) {
                Some(c) => c.1 += 1,
                None => counts.push((name, 1)),
            }
        }
        let text = |&(name, n): &(&str, usize)| if n == 1 { name.to_string() } else { format!("{name} x{n}") };
        counts.iter().map(text).collect::<Vec<_>>().join(", ")
    }
}
