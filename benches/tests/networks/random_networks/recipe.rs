//! Drawing networks: lists of steps that shrink, and what each step adds to the graph.

use compiler::dtype::DType;
use compiler::graph::{FunctionBuilder, Module, TensorType, ValueId};
use compiler::int::Int;
use compiler::name::Name;
use compiler::ops::OpRef;
use compiler::ops::activation::{Gelu, HardSigmoid, LeakyRelu};
use compiler::ops::batch_norm::BatchNorm;
use compiler::ops::binary::{Add, Max, Mul, Sub};
use compiler::ops::broadcast::Expand;
use compiler::ops::clip::Clip;
use compiler::ops::concat::Concat;
use compiler::ops::conv::Conv;
use compiler::ops::conv_transpose::ConvTranspose;
use compiler::ops::gather::Gather;
use compiler::ops::global_pool::{GlobalAveragePool, GlobalMaxPool};
use compiler::ops::group_norm::{GroupNorm, InstanceNorm};
use compiler::ops::matmul::{Gemm, MatMul};
use compiler::ops::norm::LayerNorm;
use compiler::ops::pad::{Pad, PadMode};
use compiler::ops::pool::{AveragePool, MaxPool};
use compiler::ops::reduce::{Reduce, ReduceKind};
use compiler::ops::reshape::{Reshape, Unsqueeze};
use compiler::ops::resize::{Coordinates, Resize, ResizeMode};
use compiler::ops::select::Where;
use compiler::ops::slice::Slice;
use compiler::ops::softmax::{LogSoftmax, Softmax};
use compiler::ops::split::Split;
use compiler::ops::transpose::Transpose;
use compiler::ops::unary::{Abs, HardSwish, Neg, Relu, Sigmoid, Tanh};
use compiler::tensor::Tensor;
use compiler::text::random_tensor;
use proptest::prelude::*;

/// Values larger than this are left alone: the interpreter is slow.
const LARGEST: usize = 20_000;
/// Results of a network at most.
const RESULTS: usize = 4;

/// One step: what to add, to which value, and numbers for its attributes.
#[derive(Clone, Debug)]
pub struct Step {
    kind: Kind,
    value: usize,
    other: usize,
    draws: [u8; 8],
}

/// A network's source: everything else follows from it.
#[derive(Clone, Debug)]
pub struct Network {
    /// Shape of the input.
    pub input: [usize; 4],
    /// Steps in order.
    pub steps: Vec<Step>,
}

impl Network {
    /// The network without steps that weigh elements by 0: whether that gives NaN for NaN is up to the driver.
    pub fn without_zero_weights(mut self) -> Network {
        self.steps.retain(|s| !matches!(s.kind, Kind::Resize));
        self
    }
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Conv,
    ConvTranspose,
    Pool,
    GlobalPool,
    Unary,
    Binary,
    BinaryConst,
    BatchNorm,
    LayerNorm,
    GroupNorm,
    Softmax,
    Reduce,
    MatMul,
    Gemm,
    Concat,
    Split,
    Slice,
    Pad,
    Transpose,
    Reshape,
    Unsqueeze,
    Expand,
    Resize,
    Gather,
    Select,
    Fork,
}

/// Any network: convolutions, their elementwise company and data movement, on sizes of 1 to 9.
pub fn network() -> impl Strategy<Value = Network> {
    use Kind::*;
    let kind = prop_oneof![
        6 => Just(Conv),
        8 => prop::sample::select(vec![Unary, Binary, BinaryConst, BatchNorm]),
        3 => prop::sample::select(vec![Concat, Split, Slice, Pad, Transpose]),
        3 => prop::sample::select(vec![Pool, GlobalPool, ConvTranspose, Resize]),
        3 => prop::sample::select(vec![LayerNorm, GroupNorm, Softmax, Reduce, MatMul, Gemm]),
        2 => prop::sample::select(vec![Reshape, Unsqueeze, Expand, Gather, Select]),
        2 => Just(Fork),
    ];
    // Mostly the newest value, so that chains arise.
    let value = prop_oneof![3 => Just(0usize), 1 => 1usize..6];
    let step = (kind, value, 0usize..8, any::<[u8; 8]>());
    let step = step.prop_map(|(kind, value, other, draws)| Step { kind, value, other, draws });
    let input = (1usize..3, prop::sample::select(vec![1usize, 2, 3, 4, 5, 6, 8, 12, 16]), 1usize..10, 1usize..10);
    let input = input.prop_map(|(n, c, h, w)| [n, c, h, w]);
    (input, prop::collection::vec(step, 1..14)).prop_map(|(input, steps)| Network { input, steps })
}

/// A module that was drawn.
pub struct Drawn {
    /// The module.
    pub module: Module,
    /// Steps of its network.
    pub steps: usize,
    /// Those that did not fit the values that were there.
    pub left_out: usize,
}

/// Builds the network's module. A step that does not fit is left out.
pub fn build(network: &Network) -> Drawn {
    let mut left_out = 0;
    let mut module = Module::new("main");
    let mut b = FunctionBuilder::new(&mut module, "main");
    let x = b.param("x", TensorType::fixed(DType::F32, &network.input));
    let mut g = Growing { b, values: vec![x], draws: [0; 8], at: 0, constants: 0 };
    for (i, s) in network.steps.iter().enumerate() {
        g.b.set_source(Some(Name::new(&format!("step_{i}"))));
        (g.draws, g.at) = (s.draws, 0);
        let newest = g.values.len() - 1;
        let v = g.values[newest - s.value.min(newest)];
        let other = g.values[s.other % g.values.len()];
        match g.add(s.kind, v, other) {
            Some(made) => g.values.extend(made),
            None => left_out += 1,
        }
    }
    let uses = g.b.function.uses();
    let mut results: Vec<ValueId> = Vec::new();
    for &v in g.values.iter().rev() {
        if uses[compiler::arena::Id::index(v)].is_empty() && !results.contains(&v) {
            results.push(v);
        }
    }
    results.truncate(RESULTS);
    let named: Vec<(Name, ValueId)> =
        results.into_iter().enumerate().map(|(i, v)| (Name::new(&format!("y{i}")), v)).collect();
    g.b.finish(&named);
    Drawn { module, steps: network.steps.len(), left_out }
}

struct Growing<'m> {
    b: FunctionBuilder<'m>,
    values: Vec<ValueId>,
    draws: [u8; 8],
    at: usize,
    constants: u64,
}

impl Growing<'_> {
    fn shape(&self, v: ValueId) -> Vec<usize> {
        self.b.function.ty(v).const_shape().expect("constant sizes")
    }
    /// A number below `n`.
    fn draw(&mut self, n: usize) -> usize {
        self.at += 1;
        self.draws[(self.at - 1) % self.draws.len()] as usize % n.max(1)
    }
    fn flag(&mut self) -> bool {
        self.draw(2) == 1
    }
    /// A constant with elements in `[low, low + width)`.
    fn constant(&mut self, shape: &[usize], low: f64, width: f64) -> ValueId {
        self.constants += 1;
        let t = random_tensor(DType::F32, shape, 1000 + self.constants);
        let values = t.to_f64_vec().into_iter().map(|x| low + (x + 1.0) / 2.0 * width);
        self.b.constant("c", &Tensor::from_f64(DType::F32, shape.to_vec(), values))
    }
    /// Weights for sums of `depth` terms, of about variance 1 over `depth`, so that sums are no larger than their
    /// terms.
    fn weights(&mut self, shape: &[usize], depth: usize) -> ValueId {
        let bound = (3.0 / depth.max(1) as f64).sqrt();
        self.constant(shape, -bound, 2.0 * bound)
    }
    /// Adds an op; none where it does not fit or grows too large.
    fn op(&mut self, op: impl Into<OpRef>, inputs: &[ValueId]) -> Option<Vec<ValueId>> {
        let made = self.b.add_multi(op, inputs.iter().map(|&v| Some(v)).collect(), vec![]).ok()?;
        let fits = |v: &ValueId| (1..=LARGEST).contains(&self.shape(*v).iter().product());
        made.iter().all(fits).then_some(made)
    }

    fn add(&mut self, kind: Kind, v: ValueId, other: ValueId) -> Option<Vec<ValueId>> {
        let shape = self.shape(v);
        let rank = shape.len();
        match kind {
            Kind::Conv => self.conv(v, &shape),
            Kind::ConvTranspose => self.conv_transpose(v, &shape),
            Kind::Pool => self.pool(v, &shape),
            Kind::GlobalPool if rank == 4 => match self.flag() {
                true => self.op(GlobalAveragePool::default(), &[v]),
                false => self.op(GlobalMaxPool::default(), &[v]),
            },
            Kind::GlobalPool => None,
            Kind::Unary => self.unary(v),
            Kind::Binary => self.binary(v, other),
            Kind::BinaryConst => {
                let c = self.operand(&shape);
                if self.flag() { self.binary(v, c) } else { self.binary(c, v) }
            }
            Kind::BatchNorm => self.batch_norm(v, &shape),
            Kind::LayerNorm => {
                let axis = self.draw(rank);
                let (scale, bias) = (self.constant(&shape[axis..], 0.5, 1.0), self.constant(&shape[axis..], -0.5, 1.0));
                self.op(LayerNorm { axis, epsilon: 1e-3, ..LayerNorm::default() }, &[v, scale, bias])
            }
            Kind::GroupNorm if rank > 2 => {
                let channels = shape[1];
                let (scale, bias) = (self.constant(&[channels], 0.5, 1.0), self.constant(&[channels], -0.5, 1.0));
                let divisors: Vec<usize> = (1..=channels).filter(|g| channels.is_multiple_of(*g)).collect();
                match (self.flag(), divisors[self.draw(divisors.len())]) {
                    (true, _) => self.op(InstanceNorm { epsilon: 1e-3, ..InstanceNorm::default() }, &[v, scale, bias]),
                    (false, groups) => {
                        let op = GroupNorm { groups: groups as i64, epsilon: 1e-3, ..GroupNorm::default() };
                        self.op(op, &[v, scale, bias])
                    }
                }
            }
            Kind::GroupNorm => None,
            Kind::Softmax => {
                let axes = vec![self.draw(rank)];
                if self.flag() { self.op(Softmax { axes }, &[v]) } else { self.op(LogSoftmax { axes }, &[v]) }
            }
            Kind::Reduce => self.reduce(v, rank),
            Kind::MatMul => {
                let (k, n) = (*shape.last()?, 1 + self.draw(9));
                let w = self.weights(&[k, n], k);
                self.op(MatMul {}, &[v, w])
            }
            Kind::Gemm if rank == 2 => {
                let (trans_b, n) = (self.flag(), 1 + self.draw(9));
                let w = self.weights(&if trans_b { [n, shape[1]] } else { [shape[1], n] }, shape[1]);
                let bias = self.constant(&[n], -1.0, 2.0);
                self.op(Gemm { trans_b, alpha: 0.5, ..Gemm::default() }, &[v, w, bias])
            }
            Kind::Gemm => None,
            Kind::Concat => {
                let axis = self.draw(rank) as i64;
                let c = self.operand(&shape);
                let c = self.op(Add {}, &[v, c])?[0];
                let mut parts = vec![v, c];
                let same = |(i, (a, b)): (usize, (&usize, &usize))| a == b || i as i64 == axis;
                let theirs = self.shape(other);
                if theirs.len() == rank && theirs.iter().zip(&shape).enumerate().all(same) {
                    parts.push(other);
                }
                self.op(Concat { axis }, &parts)
            }
            Kind::Split => {
                let axis = self.draw(rank);
                let first = 1 + self.draw(shape[axis].saturating_sub(1));
                let rest = shape[axis].checked_sub(first).filter(|&r| r > 0)?;
                let sizes = vec![Int::from(first as i64), Int::from(rest as i64)];
                self.op(Split { axis: axis as i64, sizes }, &[v])
            }
            Kind::Slice => {
                let axis = self.draw(rank);
                let (start, step) = (self.draw(shape[axis]) as i64, 1 + self.draw(2) as i64);
                let (starts, ends) = (vec![Int::from(start)], vec![Int::from(i64::from(i32::MAX))]);
                self.op(Slice { starts, ends, axes: vec![axis as i64], steps: vec![step], dims: vec![] }, &[v])
            }
            Kind::Pad => {
                let pads = (0..2 * rank).map(|_| Int::from(self.draw(3) as i64)).collect();
                let mode = [PadMode::Constant, PadMode::Edge, PadMode::Constant][self.draw(3)];
                self.op(Pad { pads, mode, value: 0.25, dims: vec![] }, &[v])
            }
            Kind::Transpose => {
                let mut perm: Vec<usize> = (0..rank).collect();
                for i in (1..rank).rev() {
                    perm.swap(i, self.draw(i + 1));
                }
                self.op(Transpose { perm }, &[v])
            }
            Kind::Reshape => {
                let cut = self.draw(rank);
                let merged: usize = shape[cut..].iter().product();
                let mut to: Vec<Int> = shape[..cut].iter().map(|&d| Int::from(d as i64)).collect();
                to.push(Int::from(merged as i64));
                self.op(Reshape::to(to), &[v])
            }
            Kind::Unsqueeze if rank < 5 => {
                let axes = vec![self.draw(rank + 1) as i64];
                self.op(Unsqueeze { axes }, &[v])
            }
            Kind::Unsqueeze => None,
            Kind::Expand => {
                let to = shape.iter().map(|&d| Int::from(if d == 1 { 1 + self.draw(4) as i64 } else { d as i64 }));
                let to = to.collect();
                self.op(Expand { shape: to, ..Expand::default() }, &[v])
            }
            Kind::Resize if rank == 4 => {
                let mode = [ResizeMode::Nearest, ResizeMode::Linear][self.draw(2)];
                let coordinates = [Coordinates::HalfPixel, Coordinates::Asymmetric][self.draw(2)];
                let scales = vec![1.0, 1.0, 1.0 + self.draw(3) as f64 / 2.0, 2.0];
                self.op(Resize { mode, coordinates, scales, ..Resize::default() }, &[v])
            }
            Kind::Resize => None,
            Kind::Gather => {
                let axis = self.draw(rank);
                let picks: Vec<i64> = (0..1 + self.draw(4)).map(|_| self.draw(shape[axis]) as i64).collect();
                let indices = self.b.constant("i", &Tensor::ints(&picks));
                self.op(Gather { axis: axis as i64 }, &[v, indices])
            }
            Kind::Select => {
                let mask = random_tensor(DType::Bool, &shape, self.draw(200) as u64);
                let (mask, c) = (self.b.constant("mask", &mask), self.operand(&shape));
                self.op(Where {}, &[mask, v, c])
            }
            // Elementwise work on a value that stays the newest: others use it too.
            Kind::Fork => {
                let made = self.unary(v)?[0];
                let c = self.operand(&shape);
                let made = if self.flag() { self.binary(made, c)?[0] } else { made };
                Some(vec![made, v])
            }
        }
    }

    /// A constant that broadcasts with `shape`: some dims 1, some leading ones left out.
    fn operand(&mut self, shape: &[usize]) -> ValueId {
        let skip = self.draw(shape.len() + 1);
        let dims: Vec<usize> = shape[skip..].iter().map(|&d| if self.draw(3) == 0 { 1 } else { d }).collect();
        self.constant(&dims, -1.0, 2.0)
    }
    fn unary(&mut self, v: ValueId) -> Option<Vec<ValueId>> {
        match self.draw(10) {
            0..=2 => self.op(Relu {}, &[v]),
            3 => self.op(Sigmoid {}, &[v]),
            4 => self.op(Tanh {}, &[v]),
            5 => self.op(HardSwish {}, &[v]),
            6 => self.op(Gelu::default(), &[v]),
            7 => self.op(HardSigmoid::default(), &[v]),
            8 => self.op(Clip { min: Some(-0.5), max: Some(0.75) }, &[v]),
            _ => match self.draw(3) {
                0 => self.op(Neg {}, &[v]),
                1 => self.op(Abs {}, &[v]),
                _ => self.op(LeakyRelu::default(), &[v]),
            },
        }
    }
    fn binary(&mut self, a: ValueId, b: ValueId) -> Option<Vec<ValueId>> {
        match self.draw(4) {
            0 => self.op(Sub {}, &[a, b]),
            1 => self.op(Mul {}, &[a, b]),
            2 => self.op(Max {}, &[a, b]),
            _ => self.op(Add {}, &[a, b]),
        }
    }
    fn batch_norm(&mut self, v: ValueId, shape: &[usize]) -> Option<Vec<ValueId>> {
        let c = [*shape.get(1)?];
        let scale = self.constant(&c, 0.5, 1.0);
        let (bias, mean) = (self.constant(&c, -1.0, 2.0), self.constant(&c, -0.5, 1.0));
        let variance = self.constant(&c, 0.5, 1.0);
        self.op(BatchNorm::default(), &[v, scale, bias, mean, variance])
    }
    fn reduce(&mut self, v: ValueId, rank: usize) -> Option<Vec<ValueId>> {
        let kind = [ReduceKind::Sum, ReduceKind::Mean, ReduceKind::Max, ReduceKind::L2][self.draw(4)];
        let axes: Vec<usize> = (0..rank).filter(|_| self.draw(2) == 0).collect();
        let keepdims = self.flag() || axes.len() == rank;
        self.op(Reduce { kind, axes, keepdims }, &[v])
    }
    fn pool(&mut self, v: ValueId, shape: &[usize]) -> Option<Vec<ValueId>> {
        if shape.len() != 4 {
            return None;
        }
        let kernel: Vec<i64> = (0..2).map(|_| 2 + self.draw(2) as i64).collect();
        // Half of the windows neither overlap nor leave the data.
        let apart = self.flag();
        let strides = kernel.iter().map(|&k| if apart { k } else { 1 + self.draw(2) as i64 }).collect();
        let pads: Vec<i64> = (0..4).map(|_| if apart { 0 } else { self.draw(2) as i64 }).collect();
        let ceil_mode = self.flag();
        match self.draw(3) {
            0 => self.op(MaxPool { kernel, strides, pads, ceil_mode, ..MaxPool::default() }, &[v]),
            n => {
                let count_include_pad = n == 1;
                self.op(
                    AveragePool { kernel, strides, pads, ceil_mode, count_include_pad, ..AveragePool::default() },
                    &[v],
                )
            }
        }
    }
    fn conv(&mut self, v: ValueId, shape: &[usize]) -> Option<Vec<ValueId>> {
        if shape.len() != 4 {
            return None;
        }
        let channels = shape[1];
        let divisors: Vec<usize> = (1..=channels).filter(|d| channels.is_multiple_of(*d)).collect();
        let group = [1, 1, channels, divisors[self.draw(divisors.len())]][self.draw(4)];
        let out = group * (1 + self.draw(9));
        let kernel = [1 + self.draw(3), 1 + self.draw(3)];
        let strides: Vec<i64> = (0..2).map(|_| 1 + self.draw(2) as i64).collect();
        let dilations: Vec<i64> = (0..2).map(|_| 1 + self.draw(2) as i64).collect();
        let pads: Vec<i64> = (0..4).map(|_| self.draw(3) as i64).collect();
        let of = [out, channels / group, kernel[0], kernel[1]];
        let w = self.weights(&of, of[1..].iter().product());
        let conv = Conv { strides, dilations, pads, group: group as i64, ..Conv::default() };
        if self.flag() {
            let bias = self.constant(&[out], -1.0, 2.0);
            return self.op(conv, &[v, w, bias]);
        }
        self.op(conv, &[v, w])
    }
    fn conv_transpose(&mut self, v: ValueId, shape: &[usize]) -> Option<Vec<ValueId>> {
        if shape.len() != 4 {
            return None;
        }
        let out = 1 + self.draw(6);
        let kernel = [1 + self.draw(3), 1 + self.draw(3)];
        let strides: Vec<i64> = (0..2).map(|_| 1 + self.draw(2) as i64).collect();
        let pads: Vec<i64> = (0..4).map(|_| self.draw(2) as i64).collect();
        let w = self.weights(&[shape[1], out, kernel[0], kernel[1]], shape[1] * kernel[0] * kernel[1]);
        self.op(ConvTranspose { strides, pads, ..ConvTranspose::default() }, &[v, w])
    }
}
