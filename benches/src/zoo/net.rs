//! Layers with PyTorch's parameter names and the node names of its ONNX exporter.

use super::moments::{Moments, Run};
use super::size::Size;
use super::weights::{Fill, Generated, stream_of};
use compiler::dtype::DType;
use compiler::graph::{BuildError, Constant, FunctionBuilder, Module, Origins, TensorType, ValueId};
use compiler::int::Dim;
use compiler::name::Name;
use compiler::ops::OpRef;
use compiler::ops::activation::HardSigmoid;
use compiler::ops::batch_norm::BatchNorm;
use compiler::ops::binary::{Add, Mul};
use compiler::ops::clip::Clip;
use compiler::ops::concat::Concat;
use compiler::ops::conv::Conv;
use compiler::ops::global_pool::GlobalAveragePool;
use compiler::ops::matmul::Gemm;
use compiler::ops::pool::{AveragePool, MaxPool};
use compiler::ops::reshape::Flatten;
use compiler::ops::split::Split;
use compiler::ops::unary::{HardSwish, Relu, Sigmoid};
use compiler::tensor::{ConstData, Tensor};
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// The result of building.
pub(super) type Built = Result<Act, BuildError>;

/// An activation of a network under construction.
#[derive(Clone, Debug)]
pub(super) struct Act {
    /// The value.
    pub(super) value: ValueId,
    /// The moments of its elements.
    pub(super) moments: Moments,
    /// The filters of a depthwise convolution that gave this; the means in `moments` are then those of its input, still
    /// to be multiplied by each filter's sum.
    depthwise: Option<Generated>,
}
impl Act {
    pub(super) fn channels(&self) -> usize {
        self.moments.channels()
    }
}

/// A convolution. The spread of its weights follows He et al. 2015 (fan out).
#[derive(Clone, Copy, Debug)]
pub(super) struct ConvSpec {
    pub(super) out: usize,
    pub(super) kernel: usize,
    pub(super) stride: usize,
    pub(super) pad: usize,
    /// As many groups as channels.
    pub(super) depthwise: bool,
    /// Spread of the output, when there is a bias.
    pub(super) gain: f64,
    /// With a bias; the weights are then scaled so that the output has variance `gain^2`, since no batch norm
    /// follows.
    pub(super) bias: bool,
    /// The share of its mean that is taken off each filter ([`Fill::Centered`]).
    pub(super) centered: f64,
}
impl ConvSpec {
    /// `kernel` square, stride 1, padded to keep the size, for a batch norm to follow.
    pub(super) fn same(out: usize, kernel: usize) -> ConvSpec {
        ConvSpec { out, kernel, stride: 1, pad: kernel / 2, depthwise: false, gain: 1.0, bias: false, centered: 1.0 }
    }
    pub(super) fn stride(self, stride: usize) -> ConvSpec {
        ConvSpec { stride, ..self }
    }
    pub(super) fn biased(self) -> ConvSpec {
        ConvSpec { bias: true, ..self }
    }
}

/// Builds one network.
pub(super) struct Net<'m> {
    pub(super) b: FunctionBuilder<'m>,
    /// The form to build.
    pub(super) size: Size,
    seed: u64,
    used: FxHashMap<String, usize>,
    further: Vec<(Name, ValueId)>,
}

/// The exporter's scope of a module path: `layer1.0.conv1` is `/layer1/layer1.0/conv1`.
fn scope_of(path: &str) -> String {
    let mut out = String::new();
    let mut last = String::new();
    for part in path.split('.').filter(|p| !p.is_empty()) {
        let numbered = part.bytes().all(|b| b.is_ascii_digit());
        last = if numbered && !last.is_empty() { format!("{last}.{part}") } else { part.to_string() };
        out.push('/');
        out.push_str(&last);
    }
    out
}

impl<'m> Net<'m> {
    pub(super) fn new(module: &'m mut Module, seed: u64, size: Size) -> Net<'m> {
        Net { b: FunctionBuilder::new(module, "main"), size, seed, used: FxHashMap::default(), further: vec![] }
    }

    /// The images: normalised, so of mean 0 and variance 1.
    pub(super) fn input(&mut self, batch: &Dim, [c, h, w]: [usize; 3]) -> Act {
        let shape = vec![batch.clone(), Dim::from(c), Dim::from(h), Dim::from(w)];
        let value = self.b.param("input", TensorType::new(DType::F32, shape));
        self.act(value, Moments::uniform(c, 0.0, 1.0))
    }

    /// Numbers of tokens.
    pub(super) fn tokens(&mut self, batch: &Dim, sequence: Dim) -> Act {
        let value = self.b.param("tokens", TensorType::new(DType::I64, vec![batch.clone(), sequence]));
        self.act(value, Moments::uniform(1, 0.0, 1.0))
    }

    pub(super) fn finish(mut self, name: &str, output: &Act) {
        self.b.name_value(output.value, name);
        let results = [&[(Name::new(name), output.value)], self.further.as_slice()].concat();
        self.b.finish(&results);
    }

    /// A result behind the one that building gives.
    pub(super) fn result(&mut self, name: &str, value: ValueId) {
        self.b.name_value(value, name);
        self.further.push((Name::new(name), value));
    }

    pub(super) fn act(&self, value: ValueId, moments: Moments) -> Act {
        Act { value, moments, depthwise: None }
    }

    /// Adds a node named as the exporter names the `onnx` operator of the module `path`.
    pub(super) fn node(
        &mut self,
        path: &str,
        onnx: &str,
        op: impl Into<OpRef>,
        inputs: &[ValueId],
    ) -> Result<ValueId, BuildError> {
        let base = format!("{}/{onnx}", scope_of(path));
        let count = self.used.entry(base.clone()).or_insert(0);
        let name = if *count == 0 { base.clone() } else { format!("{base}_{count}") };
        *count += 1;
        self.b.set_source(Some(Name::new(&name)));
        let value = self.b.add(op, inputs)?;
        self.b.name_value(value, format!("{name}_output_0"));
        Ok(value)
    }

    /// A node with several results, named the same way.
    pub(super) fn split(&mut self, x: ValueId, path: &str, op: Split) -> Result<Vec<ValueId>, BuildError> {
        let name = format!("{}/Split", scope_of(path));
        self.b.set_source(Some(Name::new(&name)));
        let values = self.b.add_multi(op, vec![Some(x)], vec![])?;
        for (i, &v) in values.iter().enumerate() {
            self.b.name_value(v, format!("{name}_output_{i}"));
        }
        Ok(values)
    }

    /// A parameter that is generated when it is read.
    pub(super) fn param(&mut self, name: &str, shape: &[usize], fill: Fill) -> (ValueId, Generated) {
        let len = shape.iter().product();
        let generated = Generated { stream: stream_of(self.seed, name), len, fill };
        let data = ConstData::Lazy(Arc::new(generated.clone()));
        let value = self.constant(name, Constant { dtype: DType::F32, shape: shape.to_vec(), data });
        (value, generated)
    }

    /// A constant that is no parameter.
    pub(super) fn scalar(&mut self, name: &str, value: f32) -> ValueId {
        self.tensor(name, &Tensor::scalar(value))
    }

    /// A constant of any shape that is no parameter.
    pub(super) fn tensor(&mut self, name: &str, value: &Tensor) -> ValueId {
        self.constant(name, Constant::from_tensor(value))
    }

    fn constant(&mut self, name: &str, constant: Constant) -> ValueId {
        let global = self.b.module.fresh_name(name);
        self.b.module.constants.insert(global, constant);
        self.b.set_source(Some(global));
        self.b.set_origins(Origins::none());
        let value = self.b.const_ref(global);
        self.b.name_value(value, global);
        value
    }

    pub(super) fn conv(&mut self, x: &Act, path: &str, spec: ConvSpec) -> Built {
        let (groups, taps) = (if spec.depthwise { x.channels() } else { 1 }, spec.kernel * spec.kernel);
        let row = x.channels() / groups * taps;
        // A filter of one or three channels that sums to 0 would see edges only.
        let plain = spec.depthwise || x.channels() <= 3;
        let left = 1.0 - spec.centered;
        let square = if plain { x.moments.square() } else { x.moments.var() + (left * x.moments.mean()).powi(2) };
        let variance = match spec.bias {
            true => spec.gain * spec.gain / (row as f64 * square),
            false => 2.0 / (spec.out / groups * taps) as f64,
        };
        let std = variance.sqrt();
        let fill = match (spec.depthwise, plain) {
            (true, _) => Fill::Balanced { std, row },
            (false, true) => Fill::Normal { std },
            (false, false) => Fill::Centered { std, share: spec.centered, row },
        };
        let shape = [spec.out, x.channels() / groups, spec.kernel, spec.kernel];
        let (weight, generated) = self.param(&format!("{path}.weight"), &shape, fill);
        let mut inputs = vec![x.value, weight];
        if spec.bias {
            inputs.push(self.bias(path, spec.out));
        }
        let op = Conv {
            strides: vec![spec.stride as i64; 2],
            pads: vec![spec.pad as i64; 4],
            group: groups as i64,
            ..Conv::default()
        };
        let value = self.node(path, "Conv", op, &inputs)?;
        let moments = match spec.depthwise {
            true => x.moments.shrink(row as f64 * variance),
            false => Moments::uniform(spec.out, 0.0, row as f64 * variance * square),
        };
        Ok(Act { value, moments, depthwise: spec.depthwise.then_some(generated) })
    }

    pub(super) fn bias(&mut self, path: &str, len: usize) -> ValueId {
        self.param(&format!("{path}.bias"), &[len], Fill::Runs { runs: vec![(len, 0.0, 0.05)], spread: 0.0 }).0
    }

    /// A batch norm whose output has about variance `gain^2`.
    pub(super) fn batch_norm(&mut self, x: &Act, path: &str, gain: f64, epsilon: f64) -> Built {
        let c = x.channels();
        let named = |what: &str| format!("{path}.{what}");
        let runs = |base: f64, std: f64, spread: f64| Fill::Runs { runs: vec![(c, base, std)], spread };
        let scale = self.param(&named("weight"), &[c], runs(gain, 0.0, 0.2)).0;
        let bias = self.param(&named("bias"), &[c], runs(0.0, JITTER * gain, 0.0)).0;
        let all = &x.moments.0;
        let mean = match &x.depthwise {
            Some(weight) => {
                let means = all.iter().map(|r| (r.channels, r.mean)).collect();
                Fill::RowSums { weight: Box::new(weight.clone()), row: weight.len / c, means }
            }
            None => {
                let run = |r: &Run| (r.channels, r.mean, JITTER * r.var.sqrt());
                Fill::Runs { runs: all.iter().map(run).collect(), spread: 0.0 }
            }
        };
        let var = Fill::Runs { runs: all.iter().map(|r| (r.channels, r.var, 0.0)).collect(), spread: 0.2 };
        let mean = self.param(&named("running_mean"), &[c], mean).0;
        let var = self.param(&named("running_var"), &[c], var).0;
        let op = BatchNorm { epsilon, ..BatchNorm::default() };
        let value = self.node(path, "BatchNormalization", op, &[x.value, scale, bias, mean, var])?;
        Ok(self.act(value, Moments::uniform(c, 0.0, gain * gain)))
    }

    pub(super) fn relu(&mut self, x: &Act, path: &str) -> Built {
        let value = self.node(path, "Relu", Relu {}, &[x.value])?;
        Ok(self.act(value, x.moments.map(|x| x.max(0.0))))
    }

    pub(super) fn relu6(&mut self, x: &Act, path: &str) -> Built {
        let op = Clip { min: Some(0.0), max: Some(6.0) };
        let value = self.node(path, "Clip", op, &[x.value])?;
        Ok(self.act(value, x.moments.map(|x| x.clamp(0.0, 6.0))))
    }

    pub(super) fn hard_swish(&mut self, x: &Act, path: &str) -> Built {
        let value = self.node(path, "HardSwish", HardSwish {}, &[x.value])?;
        Ok(self.act(value, x.moments.map(|x| x * (x / 6.0 + 0.5).clamp(0.0, 1.0))))
    }

    pub(super) fn hard_sigmoid(&mut self, x: &Act, path: &str) -> Built {
        let op = HardSigmoid { alpha: 1.0 / 6.0, beta: 0.5 };
        let value = self.node(path, "HardSigmoid", op, &[x.value])?;
        Ok(self.act(value, x.moments.map(|x| (x / 6.0 + 0.5).clamp(0.0, 1.0))))
    }

    pub(super) fn sigmoid(&mut self, x: &Act, path: &str) -> Built {
        let value = self.node(path, "Sigmoid", Sigmoid {}, &[x.value])?;
        Ok(self.act(value, x.moments.map(|x| 1.0 / (1.0 + (-x).exp()))))
    }

    /// `x * sigmoid(x)`, as the exporter writes it.
    pub(super) fn silu(&mut self, x: &Act, path: &str) -> Built {
        let gate = self.node(path, "Sigmoid", Sigmoid {}, &[x.value])?;
        let value = self.node(path, "Mul", Mul {}, &[x.value, gate])?;
        Ok(self.act(value, x.moments.map(|x| x / (1.0 + (-x).exp()))))
    }

    pub(super) fn add(&mut self, a: &Act, b: &Act, path: &str) -> Built {
        let value = self.node(path, "Add", Add {}, &[a.value, b.value])?;
        Ok(self.act(value, a.moments.add(&b.moments)))
    }

    pub(super) fn mul(&mut self, a: &Act, b: &Act, path: &str) -> Built {
        let value = self.node(path, "Mul", Mul {}, &[a.value, b.value])?;
        Ok(self.act(value, a.moments.mul(&b.moments)))
    }

    pub(super) fn concat(&mut self, parts: &[&Act], path: &str) -> Built {
        let values: Vec<ValueId> = parts.iter().map(|p| p.value).collect();
        let value = self.node(path, "Concat", Concat { axis: 1 }, &values)?;
        let moments: Vec<&Moments> = parts.iter().map(|p| &p.moments).collect();
        Ok(self.act(value, Moments::concat(&moments)))
    }

    pub(super) fn max_pool(
        &mut self,
        x: &Act,
        path: &str,
        kernel: usize,
        stride: usize,
        pad: usize,
        ceil_mode: bool,
    ) -> Built {
        let op = MaxPool {
            kernel: vec![kernel as i64; 2],
            strides: vec![stride as i64; 2],
            pads: vec![pad as i64; 4],
            ceil_mode,
            ..MaxPool::default()
        };
        let value = self.node(path, "MaxPool", op, &[x.value])?;
        Ok(self.act(value, x.moments.max_pooled()))
    }

    pub(super) fn average_pool(&mut self, x: &Act, path: &str, kernel: usize) -> Built {
        let window = vec![kernel as i64; 2];
        let op = AveragePool { kernel: window.clone(), strides: window, ..AveragePool::default() };
        let value = self.node(path, "AveragePool", op, &[x.value])?;
        Ok(self.act(value, x.moments.shrink(0.5)))
    }

    pub(super) fn global_average_pool(&mut self, x: &Act, path: &str) -> Built {
        let value = self.node(path, "GlobalAveragePool", GlobalAveragePool::default(), &[x.value])?;
        Ok(self.act(value, x.moments.shrink(0.2)))
    }

    pub(super) fn flatten(&mut self, x: &Act, path: &str) -> Built {
        let value = self.node(path, "Flatten", Flatten { axis: 1 }, &[x.value])?;
        Ok(self.act(value, x.moments.clone()))
    }

    /// A dense layer of rank-2 data with `inputs` features; its output has variance `gain^2`.
    pub(super) fn linear(&mut self, x: &Act, path: &str, inputs: usize, out: usize, gain: f64) -> Built {
        let std = gain / (inputs as f64 * x.moments.var()).sqrt();
        let weight =
            self.param(&format!("{path}.weight"), &[out, inputs], Fill::Centered { std, share: 1.0, row: inputs }).0;
        let bias = self.bias(path, out);
        let op = Gemm { trans_b: true, ..Gemm::default() };
        let value = self.node(path, "Gemm", op, &[x.value, weight, bias])?;
        Ok(self.act(value, Moments::uniform(out, 0.0, gain * gain)))
    }

    /// Global average pool, flatten, and the dense layer that gives the logits.
    pub(super) fn head(&mut self, x: &Act, pool: &str, dense: &str) -> Built {
        let pooled = self.global_average_pool(x, pool)?;
        let flat = self.flatten(&pooled, "")?;
        let features = flat.channels();
        self.linear(&flat, dense, features, 1000, LOGIT_SPREAD)
    }
}

/// Spread of what each of `blocks` residual blocks adds to its input: all of them together add half the variance that
/// was there. Trained networks lie near this (De and Smith 2020, "Batch Normalization Biases Residual Blocks Towards
/// the Identity Function in Deep Networks"). Blocks that add more make a deep network chaotic: it then magnifies the
/// rounding of its input a hundredfold, and no precision but f64 gives the same logits twice.
pub(super) fn branch_gain(blocks: usize) -> f64 {
    (0.5 / blocks.max(1) as f64).sqrt()
}

/// Gain of batch norms before a smooth activation: it is then nearly linear on both sides of 0.
pub(super) const SMOOTH_GAIN: f64 = 2.5;
/// Gain of the input of a gate's sigmoid.
pub(super) const GATE_GAIN: f64 = 0.3;
/// Spread of the offsets of channels, relative to that of their values.
const JITTER: f64 = 0.05;
/// Standard deviation of the logits.
pub(super) const LOGIT_SPREAD: f64 = 2.0;
