//! Random graphs for the tests of the layout pass: convolutions and pools with ops of every family in between, on data
//! of rank 4 and of derived ranks. An op that refuses its operands is left out.

use crate::dtype::DType;
use crate::graph::{FunctionBuilder, Module, TensorType, ValueId};
use crate::int::{Int, const_dims};
use crate::name::Name;
use crate::ops::control::{Const, If};
use crate::ops::window::DataLayout;
use crate::ops::{OpRef, OpResult};
use crate::ops::{
    activation, arg_reduce, batch_norm, binary, broadcast, cast, clip, concat, conv, conv_transpose, gather,
    global_pool, group_norm, local_norm, matmul, norm, pad, pool, reduce, reshape, resize, scan, select, slice,
    softmax, space_depth, split, transpose, unary,
};
use crate::tensor::Tensor;

/// A linear congruential generator.
pub struct Dice(u64);
impl Dice {
    /// From a seed.
    pub fn new(seed: u64) -> Dice {
        Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x2545_f491_4f6c_dd1d)
    }
    /// A number below `n`.
    pub fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) as usize % n
    }
    /// True once in `n`.
    pub fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }
    /// One of a list.
    pub fn of<T: Clone>(&mut self, list: &[T]) -> T {
        list[self.below(list.len())].clone()
    }
    fn tensor(&mut self, shape: &[usize]) -> Tensor {
        let n: usize = shape.iter().product();
        Tensor::from_f64(DType::F32, shape.to_vec(), (0..n).map(|_| self.below(2001) as f64 / 1000.0 - 1.0))
    }
}

fn ints(v: &[i64]) -> Vec<Int> {
    v.iter().map(|&i| Int::new(i)).collect()
}

/// A module with `size` random ops behind one input of rank 4, and its inputs.
pub fn random_graph(seed: u64, size: usize, channels: &[usize]) -> (Module, Vec<Tensor>) {
    let mut d = Dice::new(seed);
    let mut module = Module::new("main");
    let mut b = FunctionBuilder::new(&mut module, "main");
    let shape = [1 + d.below(2), d.of(channels), 3 + d.below(5), 3 + d.below(5)];
    let inputs = vec![d.tensor(&shape), d.tensor(&[shape[1], 1, 1]), d.tensor(&shape)];
    let mut values: Vec<ValueId> = Vec::new();
    for (i, t) in inputs.iter().enumerate() {
        values.push(b.param(format!("x{i}").as_str(), TensorType::fixed(DType::F32, t.shape())));
    }
    for _ in 0..size {
        // Later values more often, so that chains grow long.
        let back = 3 + d.below(6);
        let x = values[values.len() - 1 - d.below(values.len().min(back))];
        let dims = const_dims(&b.ty(x).shape).expect("constant");
        if dims.iter().product::<usize>() > 6000 || dims.contains(&0) {
            continue;
        }
        let made = match dims.len() {
            4 => add_rank4(&mut b, &mut d, x, &dims, &values, channels),
            r if r > 0 => add_any(&mut b, &mut d, x, &dims, &values),
            _ => continue,
        };
        values.extend(made.unwrap_or_default());
    }
    let last = values[values.len() - 1];
    let mut results = vec![(Name::new("last"), last)];
    for i in 0..d.below(3) {
        results.push((Name::new(&format!("more{i}")), d.of(&values)));
    }
    b.finish(&results);
    (module, inputs)
}

/// The module with all nodes but constants moved into the first branch of an `if`: they read constants, weights and
/// inputs of the block around them. The condition is the last input; without it the results are zeros.
pub fn in_branch(module: &Module) -> Module {
    let mut out = module.clone();
    let mut f = module.main().clone();
    let body = f.body;
    let nodes = std::mem::take(&mut f.blocks[body].nodes);
    let results = std::mem::take(&mut f.blocks[body].results);
    let names = f.result_names.clone();
    let (outer, inner) = nodes.into_iter().partition(|&n| f.nodes[n].op.is::<Const>());
    f.blocks[body].nodes = outer;
    let mut b = FunctionBuilder::resume(&mut out, f);
    let condition = b.param("condition", TensorType::fixed(DType::Bool, &[]));
    let [then, otherwise] = [b.new_block(), b.new_block()];
    for &n in &inner {
        b.function.nodes[n].block = Some(then);
    }
    b.function.blocks[then].nodes = inner;
    let zeros = b.in_block(otherwise, |b| {
        let zero = |&v: &ValueId| {
            let ty = b.ty(v).clone();
            let zeros = Tensor::zeros(ty.dtype, const_dims(&ty.shape).expect("constant"));
            b.constant("zeros", &zeros)
        };
        results.iter().map(zero).collect()
    });
    b.set_block_results(then, results);
    b.set_block_results(otherwise, zeros);
    let made = b.add_multi(If::default(), vec![Some(condition)], vec![then, otherwise]).expect("equal types");
    b.finish(&names.into_iter().zip(made).collect::<Vec<_>>());
    out
}

type Built = OpResult<Vec<ValueId>>;

fn add(b: &mut FunctionBuilder<'_>, op: impl Into<OpRef>, inputs: &[ValueId]) -> Built {
    b.add_multi(op, inputs.iter().map(|&v| Some(v)).collect(), vec![]).map_err(|e| e.why)
}

/// Ops with a native layout.
fn add_rank4(
    b: &mut FunctionBuilder<'_>,
    d: &mut Dice,
    x: ValueId,
    dims: &[usize],
    values: &[ValueId],
    channels: &[usize],
) -> Built {
    let (c, kernel) = (dims[1], d.of(&[1usize, 3]));
    let pads = if kernel == 3 { vec![1; 4] } else { vec![] };
    let (pool_kernel, strides) = (vec![2i64, 2], vec![1 + d.below(2) as i64, 1]);
    match d.below(14) {
        0..=2 => {
            let group = if d.one_in(3) { c } else { 1 };
            let out = if group > 1 { c } else { d.of(channels) };
            let w = b.constant("w", &d.tensor(&[out, c / group, kernel, kernel]));
            let bias = b.constant("bias", &d.tensor(&[out]));
            let op = conv::Conv { pads, group: group as i64, ..Default::default() };
            add(b, op, &[x, w, bias][..2 + d.below(2)])
        }
        3 => {
            let out = d.of(channels);
            let w = b.constant("w", &d.tensor(&[c, out, kernel, kernel]));
            add(
                b,
                conv_transpose::ConvTranspose { strides: vec![1 + d.below(2) as i64; 2], ..Default::default() },
                &[x, w],
            )
        }
        4 => {
            let indices = d.one_in(2);
            let op = pool::MaxPool { kernel: pool_kernel, strides, pads: vec![1; 4], indices, ..Default::default() };
            let out = add(b, op, &[x])?;
            if indices { Ok([vec![out[0]], add(b, cast::Cast::new(DType::F32), &out[1..])?].concat()) } else { Ok(out) }
        }
        5 => add(b, pool::AveragePool { kernel: pool_kernel, pads: vec![0, 1, 1, 0], ..Default::default() }, &[x]),
        6 => add(b, pool::LpPool { kernel: pool_kernel, strides, ..Default::default() }, &[x]),
        7 => add(b, global_pool::GlobalAveragePool::default(), &[x]),
        8 => {
            let vectors: Vec<ValueId> = (0..3).map(|_| b.constant("v", &d.tensor(&[c]))).collect();
            let variance = Tensor::from_f64(DType::F32, vec![c], (0..c).map(|i| 0.5 + i as f64 * 0.1));
            let variance = b.constant("variance", &variance);
            add(b, batch_norm::BatchNorm::default(), &[x, vectors[0], vectors[1], vectors[2], variance])
        }
        9 => {
            let sizes = ints(&[dims[0] as i64, c as i64, dims[2] as i64 * 2, 1 + d.below(9) as i64]);
            let mode = d.of(&[resize::ResizeMode::Nearest, resize::ResizeMode::Linear]);
            add(b, resize::Resize { mode, sizes, ..Default::default() }, &[x])
        }
        10 => match d.below(4) {
            0 => add(b, local_norm::Lrn { size: 3, ..Default::default() }, &[x]),
            1 => {
                let v: Vec<ValueId> = (0..2).map(|_| b.constant("v", &d.tensor(&[c]))).collect();
                let groups = if c % 2 == 0 && d.one_in(2) { c as i64 / 2 } else { 1 };
                match d.one_in(2) {
                    true => add(b, group_norm::InstanceNorm::default(), &[x, v[0], v[1]]),
                    false => add(b, group_norm::GroupNorm { groups, ..Default::default() }, &[x, v[0], v[1]]),
                }
            }
            2 => add(b, space_depth::DepthToSpace { block: 2, ..Default::default() }, &[x]),
            _ => add(b, space_depth::SpaceToDepth { block: 2, ..Default::default() }, &[x]),
        },
        _ => add_any(b, d, x, dims, values),
    }
}

/// Ops that take any rank.
fn add_any(b: &mut FunctionBuilder<'_>, d: &mut Dice, x: ValueId, dims: &[usize], values: &[ValueId]) -> Built {
    let rank = dims.len();
    let axis = d.below(rank);
    // Negative axes as well.
    let signed = if d.one_in(2) { axis as i64 } else { axis as i64 - rank as i64 };
    let n = dims[axis];
    match d.below(22) {
        0 => add(b, d.of(&[OpRef::from(unary::Relu {}), unary::Tanh {}.into(), unary::Sigmoid {}.into()]), &[x]),
        1..=4 => add_binary(b, d, x, dims, values),
        5 => {
            let same: Vec<ValueId> = values.iter().copied().filter(|&v| b.ty(v) == b.ty(x)).collect();
            let other = d.of(&same);
            let c = b.constant("c", &d.tensor(dims));
            add(b, concat::Concat { axis: signed }, &[x, other, if d.one_in(2) { c } else { x }])
        }
        6 => {
            let first = 1 + d.below(n) as i64;
            let op = split::Split { axis: signed, sizes: ints(&[first, n as i64 - first]) };
            if first < n as i64 { add(b, op, &[x]) } else { Err("nothing to split".into()) }
        }
        7 => {
            let (start, step) = (d.below(n) as i64, d.of(&[1i64, 1, 2, -1]));
            let ends = if step > 0 { n as i64 } else { -(n as i64) - 1 };
            let op = slice::Slice {
                starts: ints(&[start]),
                ends: ints(&[ends]),
                axes: vec![signed],
                steps: vec![step],
                dims: vec![],
            };
            add(b, op, &[x])
        }
        8 => {
            let mut pads = vec![0; 2 * rank];
            (pads[axis], pads[axis + rank]) = (d.below(3) as i64, d.below(3) as i64 - 1);
            add(b, pad::Pad { pads: ints(&pads), value: 0.5, ..Default::default() }, &[x])
        }
        9..=10 => {
            let mut axes: Vec<usize> = (0..rank).filter(|_| d.one_in(3)).collect();
            if axes.is_empty() {
                axes.push(axis);
            }
            let kind = d.of(&[reduce::ReduceKind::Mean, reduce::ReduceKind::Max, reduce::ReduceKind::L2]);
            add(b, reduce::Reduce { kind, axes, keepdims: d.one_in(2) }, &[x])
        }
        11 => {
            let axes = if d.one_in(4) && rank > 2 { vec![1, 2] } else { vec![axis] };
            let op: OpRef =
                if d.one_in(2) { softmax::Softmax { axes }.into() } else { softmax::LogSoftmax { axes }.into() };
            add(b, op, &[x])
        }
        12 => {
            let op = arg_reduce::ArgReduce { axis, keepdims: d.one_in(2), ..Default::default() };
            let place = add(b, op, &[x])?;
            add(b, cast::Cast::new(DType::F32), &place)
        }
        13 => add(b, scan::CumSum { axis: signed, exclusive: d.one_in(2), reverse: d.one_in(2), dynamic: false }, &[x]),
        14 => {
            let list = match d.below(3) {
                0 => Tensor::from_vec(vec![], vec![d.below(n) as i64]),
                1 => Tensor::ints(&[0, d.below(n) as i64, -1]),
                _ => Tensor::from_vec(vec![1, 2], vec![0i64, d.below(n) as i64]),
            };
            let list = b.constant("list", &list);
            add(b, gather::Gather { axis: signed }, &[x, list])
        }
        15 => {
            let scale = b.constant("scale", &d.tensor(&dims[axis..]));
            add(b, norm::LayerNorm { axis, ..Default::default() }, &[x, scale])
        }
        16 => match d.below(5) {
            0 => add(b, reshape::Flatten { axis: signed }, &[x]),
            1 => add(b, reshape::Unsqueeze { axes: vec![signed] }, &[x]),
            2 if n == 1 => add(b, reshape::Squeeze { axes: vec![signed] }, &[x]),
            3 => add(b, reshape::Reshape::to(ints(&[dims[0] as i64, -1])), &[x]),
            _ => add(b, local_norm::LpNorm { axis, p: 2 }, &[x]),
        },
        17 => {
            let mut perm: Vec<usize> = (0..rank).collect();
            let perms = [[0, 2, 3, 1], [0, 3, 1, 2], [0, 1, 3, 2], [3, 1, 0, 2]];
            if rank == 4 {
                perm = d.of(&perms).to_vec()
            } else {
                perm.swap(0, axis)
            }
            add(b, transpose::Transpose { perm }, &[x])
        }
        18 => {
            let zero = b.constant("zero", &Tensor::from_f64(DType::F32, vec![], [0.0]));
            let condition = add(b, binary::Greater {}, &[x, zero])?;
            let other = b.constant("other", &d.tensor(&dims[axis..]));
            add(b, select::Where {}, &[condition[0], x, other])
        }
        19 => {
            let mut repeats = vec![1; rank];
            repeats[axis] = 2;
            add(b, broadcast::Tile { repeats: ints(&repeats), dims: vec![] }, &[x])
        }
        20 => {
            let shape = [dims[rank.min(2) - 1], 1, 1];
            let slope = b.constant("slope", &d.tensor(&shape[..rank.min(4) - 1]));
            add(b, binary::PRelu {}, &[x, slope])
        }
        _ => match d.below(4) {
            0 => add(b, clip::Clip { min: Some(-0.5), max: Some(0.75) }, &[x]),
            1 => add(b, activation::LeakyRelu::default(), &[x]),
            2 if rank >= 2 => {
                let w = b.constant("w", &d.tensor(&[dims[rank - 1], 4]));
                add(b, matmul::MatMul {}, &[x, w])
            }
            _ => {
                let mut to: Vec<i64> = dims.iter().map(|&n| n as i64).collect();
                to[axis] = if n == 1 { 3 } else { n as i64 };
                add(b, broadcast::Expand { shape: ints(&to), dims: vec![] }, &[x])
            }
        },
    }
}

/// An elementwise op with another value of any broadcastable shape, on either side.
fn add_binary(b: &mut FunctionBuilder<'_>, d: &mut Dice, x: ValueId, dims: &[usize], values: &[ValueId]) -> Built {
    let other = if d.one_in(2) {
        d.of(values)
    } else {
        let mut shape = dims[d.below(dims.len() + 1)..].to_vec();
        for n in &mut shape {
            if d.one_in(2) {
                *n = 1;
            }
        }
        let t = d.tensor(&shape);
        b.constant("k", &t)
    };
    let op = d.of(&[OpRef::from(binary::Add {}), binary::Mul {}.into(), binary::Sub {}.into(), binary::Max {}.into()]);
    if d.one_in(2) { add(b, op, &[x, other]) } else { add(b, op, &[other, x]) }
}

/// Layouts that the convolutions of a module have.
pub fn conv_layouts(module: &Module) -> Vec<DataLayout> {
    let f = module.main();
    f.walk().into_iter().filter_map(|n| f.nodes[n].op.downcast::<conv::Conv>().map(|c| c.layout)).collect()
}
