//! Random networks of one kind of op each.

use compiler::dtype::DType;
use compiler::graph::{FunctionBuilder, Module, TensorType, ValueId};
use compiler::name::Name;
use compiler::ops::OpRef;
use compiler::ops::activation::{Elu, Gelu, GeluApproximation, LeakyRelu, Swish};
use compiler::ops::batch_norm::BatchNorm;
use compiler::ops::binary::{Add, Div, Max, Min, Mul, Sub};
use compiler::ops::clip::Clip;
use compiler::ops::concat::Concat;
use compiler::ops::conv::Conv;
use compiler::ops::global_pool::{GlobalAveragePool, GlobalMaxPool};
use compiler::ops::matmul::{Gemm, MatMul};
use compiler::ops::pool::{AveragePool, MaxPool};
use compiler::ops::softmax::Softmax;
use compiler::ops::unary::{Abs, Exp, HardSwish, Log, Mish, Neg, Relu, Round, Sigmoid, Softplus, Sqrt, Tanh};
use compiler::tensor::Tensor;
use compiler::text::random_tensor;

/// Random numbers.
pub struct Draw(u64);

impl Draw {
    pub fn new(seed: u64) -> Draw {
        Draw(seed)
    }
    /// A number from `least` to `most`.
    fn of(&mut self, least: i64, most: i64) -> i64 {
        // Knuth's MMIX generator; the upper bits are the better ones.
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        least + ((self.0 >> 33) % (most - least + 1) as u64) as i64
    }
    fn coin(&mut self) -> bool {
        self.of(0, 1) == 1
    }
    fn list(&mut self, n: usize, least: i64, most: i64) -> Vec<i64> {
        (0..n).map(|_| self.of(least, most)).collect()
    }
}

fn ty(shape: &[i64]) -> TensorType {
    let shape: Vec<usize> = shape.iter().map(|&d| d as usize).collect();
    TensorType::fixed(DType::F32, &shape)
}

fn constant(b: &mut FunctionBuilder<'_>, d: &mut Draw, name: &str, shape: &[i64]) -> ValueId {
    let shape: Vec<usize> = shape.iter().map(|&d| d as usize).collect();
    b.constant(name, &random_tensor(DType::F32, &shape, d.of(1, 1000) as u64))
}

/// A tensor that is a parameter or a constant.
fn either(b: &mut FunctionBuilder<'_>, d: &mut Draw, name: &str, shape: &[i64]) -> ValueId {
    if d.coin() { constant(b, d, name, shape) } else { b.param(name, ty(shape)) }
}

fn add(b: &mut FunctionBuilder<'_>, op: impl Into<OpRef>, operands: &[ValueId]) -> ValueId {
    b.add(op, operands).expect("it fits")
}

fn shape_of(b: &FunctionBuilder<'_>, v: ValueId) -> Vec<i64> {
    b.ty(v).const_shape().expect("fixed sizes").into_iter().map(|n| n as i64).collect()
}

fn module(build: impl FnOnce(&mut FunctionBuilder<'_>) -> Vec<ValueId>) -> Module {
    let mut m = Module::new("main");
    let mut b = FunctionBuilder::new(&mut m, "main");
    let results = build(&mut b);
    let named: Vec<(Name, ValueId)> =
        results.into_iter().enumerate().map(|(i, v)| (Name::new(&format!("y{i}")), v)).collect();
    b.finish(&named);
    m
}

/// A function of each element that is defined everywhere.
fn function(d: &mut Draw) -> OpRef {
    match d.of(0, 13) {
        0 => Relu {}.into(),
        1 => Clip { min: Some(-0.4), max: Some(0.6) }.into(),
        2 => Tanh {}.into(),
        3 => Elu { alpha: 1.3 }.into(),
        4 => LeakyRelu { alpha: 0.1 }.into(),
        5 => Abs {}.into(),
        6 => Sigmoid {}.into(),
        7 => Gelu { approximate: GeluApproximation::None }.into(),
        8 => Gelu { approximate: GeluApproximation::Tanh }.into(),
        9 => Swish { alpha: 1.7 }.into(),
        10 => HardSwish {}.into(),
        11 => Mish {}.into(),
        12 => Softplus {}.into(),
        _ => Neg {}.into(),
    }
}

fn two(d: &mut Draw) -> OpRef {
    match d.of(0, 5) {
        0 => Add {}.into(),
        1 => Mul {}.into(),
        2 => Max {}.into(),
        3 => Min {}.into(),
        4 => Sub {}.into(),
        _ => Div {}.into(),
    }
}

/// What is combined with a value, one element of it for each channel or for all; away from 0, which may divide.
fn vector(b: &mut FunctionBuilder<'_>, shape: &[i64], d: &mut Draw) -> ValueId {
    let shape: Vec<usize> = shape.iter().map(|&n| n as usize).collect();
    let drawn = random_tensor(DType::F32, &shape, d.of(1, 1000) as u64);
    let away = drawn.to_f32_vec().iter().map(|x| if *x < 0.0 { x - 0.5 } else { x + 0.5 }).collect();
    b.constant("c", &Tensor::from_vec(shape, away))
}

/// What a primitive applies to its result.
fn followed(b: &mut FunctionBuilder<'_>, d: &mut Draw, mut y: ValueId, channels: usize) -> ValueId {
    let shape = shape_of(b, y);
    match d.of(0, 3) {
        0 => {}
        1 => {
            let r = b.param("r", ty(&shape));
            y = if d.coin() { add(b, Add {}, &[r, y]) } else { add(b, Add {}, &[y, r]) };
        }
        _ => {
            // Trailing axes of size 1 behind the channels, leading ones perhaps.
            let mut other = vec![1; shape.len()];
            if d.coin() {
                other[channels] = shape[channels];
            }
            let kept = if d.coin() { channels.min(shape.len() - 1) } else { 0 };
            let v = vector(b, &other[kept..], d);
            let op = two(d);
            y = match d.coin() && op.commutes() {
                true => add(b, op, &[v, y]),
                false => add(b, op, &[y, v]),
            };
        }
    }
    if d.coin() { add(b, function(d), &[y]) } else { y }
}

pub fn convolution(d: &mut Draw) -> Module {
    module(|b| {
        let spatial = d.of(1, 3) as usize;
        let groups = [1, 1, 2, 8][d.of(0, 3) as usize];
        let (each, out_each) = (if groups == 8 { 1 } else { d.of(1, 9) }, d.of(1, 5));
        let kernel = d.list(spatial, 1, 3);
        let (strides, dilations, pads) = (d.list(spatial, 1, 2), d.list(spatial, 1, 2), d.list(2 * spatial, 0, 2));
        let mut data = vec![d.of(1, 2), each * groups];
        data.extend(d.list(spatial, 5, 9));
        let x = b.param("x", ty(&data));
        let out = out_each * groups;
        let w = either(b, d, "w", &[vec![out, each], kernel].concat());
        let mut operands = vec![x, w];
        if d.coin() {
            operands.push(either(b, d, "bias", &[out]));
        }
        let conv = Conv { strides, dilations, pads, group: groups, ..Conv::default() };
        let y = add(b, conv, &operands);
        vec![followed(b, d, y, 1)]
    })
}

pub fn product(d: &mut Draw) -> Module {
    module(|b| {
        let (m, k, n) = (d.of(1, 9), d.of(1, 9), d.of(1, 17));
        if d.of(0, 2) == 0 {
            let x = b.param("x", ty(&[m, k]));
            let trans_b = d.coin();
            let w = either(b, d, "w", &if trans_b { [n, k] } else { [k, n] });
            let mut operands = vec![x, w];
            if d.coin() {
                operands.push(either(b, d, "row", &[n]));
            }
            let y = add(b, Gemm { trans_b, ..Gemm::default() }, &operands);
            return vec![followed(b, d, y, 1)];
        }
        let lead = d.of(0, 2) as usize;
        let batch = d.list(lead, 1, 3);
        let x = b.param("x", ty(&[batch.clone(), vec![m, k]].concat()));
        let weights = match d.of(0, 2) {
            0 => vec![k, n],
            1 => [batch, vec![k, n]].concat(),
            _ => [vec![1; lead], vec![k, n]].concat(),
        };
        let w = either(b, d, "w", &weights);
        let y = add(b, MatMul {}, &[x, w]);
        vec![followed(b, d, y, lead + 1)]
    })
}

pub fn pool(d: &mut Draw) -> Module {
    module(|b| {
        let spatial = d.of(1, 3) as usize;
        let mut data = vec![d.of(1, 2), d.of(1, 20)];
        data.extend(d.list(spatial, 5, 9));
        let x = b.param("x", ty(&data));
        let (kernel, strides, pads) = (d.list(spatial, 2, 3), d.list(spatial, 1, 2), d.list(2 * spatial, 0, 1));
        let op: OpRef = match d.of(0, 3) {
            0 => MaxPool { kernel, strides, pads, ceil_mode: d.coin(), ..MaxPool::default() }.into(),
            1 => {
                let count_include_pad = d.coin();
                let ceil_mode = !count_include_pad && d.coin();
                AveragePool { kernel, strides, pads, count_include_pad, ceil_mode, ..AveragePool::default() }.into()
            }
            2 => GlobalAveragePool::default().into(),
            _ => GlobalMaxPool::default().into(),
        };
        let y = add(b, op, &[x]);
        // In the library's layout, and back.
        let shape = shape_of(b, y);
        let w = constant(b, d, "w", &[vec![5, shape[1]], vec![1; spatial]].concat());
        let z = add(b, Conv::default(), &[y, w]);
        vec![y, z]
    })
}

pub fn eltwise(d: &mut Draw) -> Module {
    module(|b| {
        let rank = d.of(1, 5) as usize;
        let shape = d.list(rank, 1, 6);
        let x = b.param("x", ty(&shape));
        let y = add(b, function(d), &[x]);
        let z = add(b, function(d), &[y]);
        // Of values that are not negative.
        let a = add(b, Abs {}, &[z]);
        let e = add(b, Exp {}, &[a]);
        let l = add(b, Log {}, &[e]);
        let s = add(b, Sqrt {}, &[e]);
        let scaled = add(b, Round {}, &[e]);
        vec![y, z, l, s, scaled]
    })
}

pub fn binary(d: &mut Draw) -> Module {
    module(|b| {
        let rank = d.of(1, 5) as usize;
        let shape = d.list(rank, 1, 6);
        let x = b.param("x", ty(&shape));
        // Some axes repeated, leading ones perhaps left out.
        let other: Vec<i64> = shape.iter().map(|&n| if d.coin() { n } else { 1 }).collect();
        let from = if other[0] == 1 && d.coin() { 1 } else { 0 };
        let v = vector(b, &other[from..], d);
        let op = two(d);
        let y = match d.coin() && op.commutes() {
            true => add(b, op, &[v, x]),
            false => add(b, op, &[x, v]),
        };
        let y = if d.coin() { add(b, function(d), &[y]) } else { y };
        let z = b.param("z", ty(&shape));
        vec![add(b, Sub {}, &[z, y])]
    })
}

pub fn concat(d: &mut Draw) -> Module {
    module(|b| {
        let (n, h, w) = (d.of(1, 2), d.of(3, 6), d.of(3, 6));
        let channels = [d.of(1, 20), 16];
        let x = b.param("x", ty(&[n, channels[0], h, w]));
        let weights = constant(b, d, "w", &[channels[1], channels[0], 1, 1]);
        let y = add(b, Conv::default(), &[x, weights]);
        let axis = [1, 1, -3][d.of(0, 2) as usize];
        let joined = add(b, Concat { axis }, &[x, y, x]);
        let other = b.param("other", ty(&[n, 2 * channels[0] + channels[1], h, w]));
        let axis = [0, 2, 3][d.of(0, 2) as usize];
        vec![joined, add(b, Concat { axis }, &[joined, other])]
    })
}

pub fn softmax(d: &mut Draw) -> Module {
    module(|b| {
        let rank = d.of(1, 4) as usize;
        let shape = d.list(rank, 1, 9);
        let x = b.param("x", ty(&shape));
        let axis = d.of(0, rank as i64 - 1) as usize;
        vec![add(b, Softmax { axes: vec![axis] }, &[x])]
    })
}

pub fn batch_norm(d: &mut Draw) -> Module {
    module(|b| {
        let spatial = d.of(0, 3) as usize;
        let channels = d.of(1, 20);
        let mut data = vec![d.of(1, 3), channels];
        data.extend(d.list(spatial, 1, 6));
        let x = b.param("x", ty(&data));
        let [scale, bias, mean] = ["scale", "shift", "mean"].map(|name| either(b, d, name, &[channels]));
        let drawn = random_tensor(DType::F32, &[channels as usize], d.of(1, 1000) as u64);
        let variance = drawn.to_f32_vec().iter().map(|x| x * x + 0.1).collect();
        let variance = b.constant("variance", &Tensor::from_vec(vec![channels as usize], variance));
        let norm = BatchNorm { epsilon: 1e-3, ..BatchNorm::default() };
        vec![add(b, norm, &[x, scale, bias, mean, variance])]
    })
}
