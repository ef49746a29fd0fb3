//! Runs a JSON graph: primitives are made once, and weights brought into the library's own layout once.

use crate::graph::{Attributes, BinaryFunction, Eltwise, FORMAT, Graph, Node, PoolKind, PostOp};
use crate::library::{Descriptor, Library, Memories, Pool, Post, Primitive, Tensors, Window, argument};
use compiler::external::Prepared;
use compiler::tensor::{Tensor, TensorMut};
use std::collections::{HashMap, HashSet};
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};

/// A graph that is ready to run.
pub struct Runtime {
    library: Arc<Library>,
    threads: Option<i32>,
    steps: Vec<Step>,
    inputs: Vec<usize>,
    outputs: Vec<usize>,
    /// Every tensor. A run has them all: two runs at once take turns.
    memories: Mutex<Memories>,
}

/// A primitive with its tensors, by number of the argument and place among the memories.
struct Step {
    primitive: Arc<Primitive>,
    tensors: Vec<(i32, usize)>,
}

impl Runtime {
    /// Makes the primitives of a graph, whose constants have the data `constants`, in its order. `threads` is for
    /// libraries with OpenMP.
    ///
    /// # Errors
    /// A graph of another format, unknown names, and what the library does not implement.
    pub fn new(
        library: Arc<Library>,
        graph: &Graph,
        constants: &[Tensor],
        threads: Option<i32>,
    ) -> Result<Runtime, String> {
        if graph.format != FORMAT {
            return Err(format!("the graph's format is `{}`, not `{FORMAT}`", graph.format));
        }
        if graph.constants.len() != constants.len() {
            return Err(format!("data of {} constants for {}", constants.len(), graph.constants.len()));
        }
        threads.into_iter().for_each(|n| library.set_threads(n));
        let mut b = Builder {
            memories: Memories::new(library.clone()),
            values: HashMap::new(),
            constants: graph.constants.iter().map(|c| c.name.clone()).collect(),
            steps: vec![],
            library: library.clone(),
        };
        let mut inputs = vec![];
        for port in &graph.inputs {
            inputs.push(b.plain(&port.name, &port.shape)?);
        }
        for (port, data) in graph.constants.iter().zip(constants) {
            let place = b.plain(&port.name, &port.shape)?;
            b.memories.write(place, data.bytes())?;
        }
        for node in &graph.nodes {
            b.node(node).map_err(|e| format!("`{}`: {e}", node.name))?;
        }
        let mut outputs = vec![];
        for name in &graph.outputs {
            outputs.push(b.read_plain(name)?.place);
        }
        Ok(Runtime { library, threads, steps: b.steps, inputs, outputs, memories: Mutex::new(b.memories) })
    }
}

impl Prepared for Runtime {
    fn run(&self, inputs: &[Tensor], outputs: &mut [TensorMut]) -> Result<(), String> {
        let mut memories = self.memories.lock().unwrap_or_else(PoisonError::into_inner);
        self.threads.into_iter().for_each(|n| self.library.set_threads(n));
        for (&place, t) in self.inputs.iter().zip(inputs) {
            memories.write(place, t.bytes())?;
        }
        for step in &self.steps {
            memories.run(&step.primitive, &step.tensors)?;
        }
        self.outputs.iter().zip(outputs).try_for_each(|(&place, t)| memories.read(place, t.bytes_mut()))
    }
}

/// A value while the graph is read.
#[derive(Clone)]
struct Value {
    /// Its memory.
    place: usize,
    shape: Vec<i64>,
    layout: Rc<Descriptor>,
    /// It is dense and row-major.
    plain: bool,
}

struct Builder {
    library: Arc<Library>,
    memories: Memories,
    values: HashMap<String, Value>,
    /// Names of the values that are constants.
    constants: HashSet<String>,
    steps: Vec<Step>,
}

/// Post-ops of a primitive, and the tensors that they read.
#[derive(Default)]
struct Posts {
    list: Vec<Post>,
    tensors: Vec<(i32, usize)>,
}

/// Strides of a dense, row-major tensor.
pub(crate) fn dense(shape: &[i64]) -> Vec<i64> {
    let mut strides = vec![1; shape.len()];
    for i in (1..shape.len()).rev() {
        strides[i - 1] = strides[i] * shape[i].max(1);
    }
    strides
}

impl Builder {
    fn dense(&self, shape: &[i64]) -> Result<Descriptor, String> {
        // A scalar is a tensor of one element.
        let shape = if shape.is_empty() { &[1][..] } else { shape };
        self.library.descriptor(shape, Some(&dense(shape)))
    }
    fn chosen(&self, shape: &[i64]) -> Result<Descriptor, String> {
        self.library.descriptor(shape, None)
    }
    fn add(&mut self, name: &str, shape: &[i64], layout: Descriptor, plain: bool) -> Result<usize, String> {
        let place = self.memories.add(&layout)?;
        let value = Value { place, shape: shape.to_vec(), layout: Rc::new(layout), plain };
        self.values.insert(name.into(), value);
        Ok(place)
    }
    /// A named tensor as it crosses the border.
    fn plain(&mut self, name: &str, shape: &[i64]) -> Result<usize, String> {
        let layout = self.dense(shape)?;
        self.add(name, shape, layout, true)
    }
    fn value(&self, name: &str) -> Result<Value, String> {
        self.values.get(name).cloned().ok_or_else(|| format!("no tensor is called `{name}` before it is read"))
    }
    fn input(&self, node: &Node, i: usize) -> Result<Value, String> {
        self.value(node.inputs.get(i).ok_or_else(|| format!("has {} inputs", node.inputs.len()))?)
    }
    /// A value, dense and row-major.
    fn read_plain(&mut self, name: &str) -> Result<Value, String> {
        let value = self.value(name)?;
        if value.plain {
            return Ok(value);
        }
        let layout = Rc::new(self.dense(&value.shape)?);
        let place = self.memories.add(&layout)?;
        self.copy((value.place, &value.layout), (place, &layout))?;
        let plain = Value { place, layout, plain: true, ..value };
        // Whoever else wants it so finds it.
        self.values.insert(name.into(), plain.clone());
        Ok(plain)
    }
    /// The place of a value as a primitive wants it: its own, or that of a copy that each run makes.
    fn read_as(&mut self, value: &Value, wanted: &Descriptor) -> Result<usize, String> {
        if value.layout.equals(wanted)? {
            return Ok(value.place);
        }
        let to = self.memories.add(wanted)?;
        self.copy((value.place, &value.layout), (to, wanted))?;
        Ok(to)
    }
    /// Copies in each run.
    fn copy(&mut self, from: (usize, &Descriptor), to: (usize, &Descriptor)) -> Result<(), String> {
        let primitive = Arc::new(self.library.reorder(from.1, to.1)?);
        self.steps.push(Step { primitive, tensors: vec![(argument::SOURCE, from.0), (argument::DESTINATION, to.0)] });
        Ok(())
    }
    /// The place of weights as a primitive wants them. `view` is how it sees the stored ones. Constants are copied now,
    /// once; others in each run.
    fn weights(&mut self, name: &str, view: &Descriptor, wanted: &Descriptor) -> Result<usize, String> {
        let stored = self.read_plain(name)?.place;
        let from = self.memories.view(stored, view)?;
        if view.equals(wanted)? {
            return Ok(from);
        }
        let to = self.memories.add(wanted)?;
        if !self.constants.contains(name) {
            self.copy((from, view), (to, wanted))?;
            return Ok(to);
        }
        let reorder = self.library.reorder(view, wanted)?;
        self.memories.run(&reorder, &[(argument::SOURCE, from), (argument::DESTINATION, to)])?;
        Ok(to)
    }
    /// Post-ops as the library has them, and the tensors that they read beside the primitive's own. `channels` is the
    /// axis of a result of `rank` axes along which the operand of a binary one may vary.
    fn post_ops(&mut self, node: &Node, rank: usize, channels: usize) -> Result<Posts, String> {
        let mut posts = Posts::default();
        for (i, op) in node.post_ops.iter().enumerate() {
            posts.list.push(match op {
                PostOp::Eltwise(function) => Post::Map(*function),
                PostOp::Sum { .. } => Post::Sum,
                PostOp::Binary { function, input } => {
                    let other = self.read_plain(input)?;
                    let mut shape = vec![1; rank];
                    shape[channels] = other.shape.iter().product();
                    let layout = Rc::new(self.dense(&shape)?);
                    posts.tensors.push((
                        argument::post_op(i, self.library.version().0),
                        self.memories.view(other.place, &layout)?,
                    ));
                    Post::Binary(*function, layout)
                }
            });
        }
        Ok(posts)
    }
    /// Brings what a primitive adds into its result's memory.
    fn copy_sums(&mut self, node: &Node, to: (usize, &Descriptor)) -> Result<(), String> {
        for op in &node.post_ops {
            if let PostOp::Sum { input } = op {
                let value = self.value(input)?;
                self.copy((value.place, &value.layout), to)?;
            }
        }
        Ok(())
    }
    fn node(&mut self, node: &Node) -> Result<(), String> {
        match &node.attributes {
            Attributes::Convolution { strides, dilates, pads_begin, pads_end, groups } => {
                let window = Window { strides, dilates, begin: pads_begin, end: pads_end };
                self.convolution(node, &window, *groups)
            }
            Attributes::Matmul { transposed_weights } => self.matmul(node, *transposed_weights),
            Attributes::Pool { kind, kernel, strides, dilates, pads_begin, pads_end } => {
                let window = Window { strides, dilates, begin: pads_begin, end: pads_end };
                self.pool(node, *kind, kernel, &window)
            }
            Attributes::Binary { function } => self.binary(node, *function),
            Attributes::Eltwise(function) => self.map(node, *function),
            Attributes::Concat { axis } => self.concat(node, *axis),
            Attributes::Softmax { axis } => self.softmax(node, *axis),
            Attributes::BatchNorm { epsilon } => self.batch_norm(node, *epsilon),
        }
    }
    /// A pool keeps the layout of its data.
    fn pool(&mut self, node: &Node, kind: PoolKind, kernel: &[i64], window: &Window<'_>) -> Result<(), String> {
        let data = self.input(node, 0)?;
        let spatial = data.shape.len().checked_sub(2).ok_or("data without channels")?;
        if [kernel, window.strides, window.dilates, window.begin, window.end].iter().any(|l| l.len() != spatial) {
            return Err(format!("attributes do not fit data of shape {:?}", data.shape));
        }
        let kind = match kind {
            PoolKind::Max => Pool::Max,
            PoolKind::Average => Pool::Average,
            PoolKind::AverageWithPadding => Pool::AverageWithPadding,
        };
        let any = self.chosen(&node.shape)?;
        let primitive = Arc::new(self.library.pool((&data.layout, &any), kind, kernel, window)?);
        let layout = primitive.destination()?;
        let plain = layout.equals(&self.dense(&node.shape)?)?;
        let place = self.add(&node.output, &node.shape, layout, plain)?;
        self.steps
            .push(Step { primitive, tensors: vec![(argument::SOURCE, data.place), (argument::DESTINATION, place)] });
        Ok(())
    }
    /// A second operand of the same shape is brought into the layout of the first, one that is repeated is read as it
    /// is at the border.
    fn binary(&mut self, node: &Node, function: BinaryFunction) -> Result<(), String> {
        let (a, b) = (self.input(node, 0)?, self.input(node, 1)?);
        let rank = a.shape.len();
        let posts = self.post_ops(node, rank, rank - 1)?;
        let (layout, second) = if a.shape == b.shape {
            (a.layout.clone(), self.read_as(&b, &a.layout)?)
        } else {
            let place = self.read_plain(&node.inputs[1])?.place;
            let missing = rank.checked_sub(b.shape.len()).ok_or("an operand of more axes than the result")?;
            let shape = [vec![1; missing], b.shape].concat();
            let layout = Rc::new(self.dense(&shape)?);
            (layout.clone(), self.memories.view(place, &layout)?)
        };
        let primitive = self.library.binary(function, &a.layout, &layout, &posts.list)?;
        let mut tensors = vec![(argument::SOURCE, a.place), (argument::SECOND, second)];
        tensors.extend(posts.tensors);
        self.alike(node, &a, primitive, tensors)
    }
    fn concat(&mut self, node: &Node, axis: usize) -> Result<(), String> {
        let values: Vec<Value> = (0..node.inputs.len()).map(|i| self.input(node, i)).collect::<Result<_, _>>()?;
        let layouts: Vec<&Descriptor> = values.iter().map(|v| &*v.layout).collect();
        let any = self.chosen(&node.shape)?;
        let primitive = Arc::new(self.library.concat(&any, axis, &layouts)?);
        let layout = primitive.destination()?;
        let plain = layout.equals(&self.dense(&node.shape)?)?;
        let place = self.add(&node.output, &node.shape, layout, plain)?;
        let sources = values.iter().enumerate().map(|(i, v)| (argument::multiple(i), v.place));
        let tensors = sources.chain([(argument::DESTINATION, place)]).collect();
        self.steps.push(Step { primitive, tensors });
        Ok(())
    }
    fn softmax(&mut self, node: &Node, axis: usize) -> Result<(), String> {
        let data = self.input(node, 0)?;
        let primitive = self.library.softmax(&data.layout, axis)?;
        self.alike(node, &data, primitive, vec![(argument::SOURCE, data.place)])
    }
    fn batch_norm(&mut self, node: &Node, epsilon: f32) -> Result<(), String> {
        let data = self.input(node, 0)?;
        let primitive = self.library.batch_norm(&data.layout, epsilon)?;
        let [mean, variance, scale, shift] = argument::STATISTICS;
        let mut tensors = vec![(argument::SOURCE, data.place)];
        for (i, number) in [scale, shift, mean, variance].into_iter().enumerate() {
            let name = node.inputs.get(i + 1).ok_or_else(|| format!("has {} inputs, not 5", node.inputs.len()))?;
            tensors.push((number, self.read_plain(name)?.place));
        }
        self.alike(node, &data, primitive, tensors)
    }
    fn map(&mut self, node: &Node, function: Eltwise) -> Result<(), String> {
        let data = self.input(node, 0)?;
        let primitive = self.library.map(&data.layout, function)?;
        self.alike(node, &data, primitive, vec![(argument::SOURCE, data.place)])
    }
    /// Adds a result that is stored as `data` is, and the step that makes it.
    fn alike(
        &mut self,
        node: &Node,
        data: &Value,
        primitive: Primitive,
        mut tensors: Vec<(i32, usize)>,
    ) -> Result<(), String> {
        let place = self.memories.add(&data.layout)?;
        let value = Value { place, shape: node.shape.clone(), ..data.clone() };
        self.values.insert(node.output.clone(), value);
        tensors.push((argument::DESTINATION, place));
        self.steps.push(Step { primitive: Arc::new(primitive), tensors });
        Ok(())
    }
    fn convolution(&mut self, node: &Node, window: &Window<'_>, groups: i64) -> Result<(), String> {
        let (data, weights) = (self.input(node, 0)?, self.input(node, 1)?);
        let spatial = data.shape.len().checked_sub(2).ok_or("data without channels")?;
        let lists = [window.strides, window.dilates, window.begin, window.end];
        if lists.iter().any(|l| l.len() != spatial) || weights.shape.len() != data.shape.len() || groups < 1 {
            return Err(format!("attributes do not fit data of shape {:?}", data.shape));
        }
        let mut shape = weights.shape.clone();
        if groups > 1 {
            shape[0] /= groups;
            shape.insert(0, groups);
        }
        let bias = if node.inputs.len() > 2 { Some(self.input(node, 2)?) } else { None };
        let posts = self.post_ops(node, data.shape.len(), 1)?;
        let any = [self.chosen(&data.shape)?, self.chosen(&shape)?, self.chosen(&node.shape)?];
        let [source, filter, destination] = &any;
        let tensors = Tensors { source, weights: filter, bias: bias.as_ref().map(|b| &*b.layout), destination };
        let primitive = Arc::new(self.library.convolution(tensors, window, &posts.list)?);
        let source = self.read_as(&data, &primitive.source()?)?;
        let filter = self.weights(&node.inputs[1], &self.dense(&shape)?, &primitive.weights()?)?;
        let layout = primitive.destination()?;
        let plain = layout.equals(&self.dense(&node.shape)?)?;
        let destination = self.add(&node.output, &node.shape, layout, plain)?;
        self.finish(node, primitive, [source, filter, destination], (bias.map(|b| b.place), posts))
    }
    fn matmul(&mut self, node: &Node, transposed: bool) -> Result<(), String> {
        let weights = self.input(node, 1)?;
        let data = self.read_plain(node.inputs.first().ok_or("has no inputs")?)?;
        let rank = weights.shape.len();
        // Leading axes of the data are rows, if the weights have none.
        let rows = |shape: &[i64]| match shape {
            [lead @ .., last] if rank == 2 => vec![lead.iter().product(), *last],
            other => other.to_vec(),
        };
        let (from, to) = (rows(&data.shape), rows(&node.shape));
        if rank < 2 || from.len() != rank || to.len() != rank {
            return Err(format!("data of shape {:?} with weights of shape {:?}", data.shape, weights.shape));
        }
        let (mut shape, mut strides) = (weights.shape.clone(), dense(&weights.shape));
        if transposed {
            shape.swap(rank - 1, rank - 2);
            strides.swap(rank - 1, rank - 2);
        }
        let view = self.library.descriptor(&shape, Some(&strides))?;
        let constant = self.constants.contains(&node.inputs[1]);
        let filter = if constant { self.chosen(&shape)? } else { self.library.descriptor(&shape, Some(&strides))? };
        let bias = match node.inputs.get(2) {
            None => None,
            Some(name) => {
                let place = self.read_plain(name)?.place;
                let mut row = vec![1; rank];
                row[rank - 1] = shape[rank - 1];
                let layout = self.dense(&row)?;
                Some((self.memories.view(place, &layout)?, layout))
            }
        };
        let posts = self.post_ops(node, rank, rank - 1)?;
        let (source, destination) = (self.dense(&from)?, self.dense(&to)?);
        let tensors =
            Tensors { source: &source, weights: &filter, bias: bias.as_ref().map(|b| &b.1), destination: &destination };
        let primitive = Arc::new(self.library.matmul(tensors, &posts.list)?);
        let filter = self.weights(&node.inputs[1], &view, &primitive.weights()?)?;
        let source = self.memories.view(data.place, &source)?;
        let place = self.plain(&node.output, &node.shape)?;
        let destination = self.memories.view(place, &destination)?;
        self.finish(node, primitive, [source, filter, destination], (bias.map(|b| b.0), posts))
    }
    /// Adds the steps of a primitive: what its result starts with, and itself.
    fn finish(
        &mut self,
        node: &Node,
        primitive: Arc<Primitive>,
        [source, weights, destination]: [usize; 3],
        (bias, posts): (Option<usize>, Posts),
    ) -> Result<(), String> {
        let result = self.value(&node.output)?;
        self.copy_sums(node, (result.place, &result.layout))?;
        let mut tensors =
            vec![(argument::SOURCE, source), (argument::WEIGHTS, weights), (argument::DESTINATION, destination)];
        tensors.extend(bias.map(|place| (argument::BIAS, place)));
        tensors.extend(posts.tensors);
        self.steps.push(Step { primitive, tensors });
        Ok(())
    }
}
