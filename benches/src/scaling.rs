//! Graphs of any size, to measure the growth of the optimiser's time.
//!
//! Widths are small, so that the time depends on the graph and not on its weights.

use compiler::dtype::DType;
use compiler::graph::{BuildError, FunctionBuilder, Module, TensorType, ValueId};
use compiler::name::Name;
use compiler::ops::OpRef;
use compiler::ops::batch_norm::BatchNorm;
use compiler::ops::binary::{Add, Mul};
use compiler::ops::concat::Concat;
use compiler::ops::conv::Conv;
use compiler::ops::matmul::MatMul;
use compiler::ops::pool::MaxPool;
use compiler::ops::reshape::Reshape;
use compiler::ops::softmax::Softmax;
use compiler::ops::transpose::Transpose;
use compiler::ops::unary::{Erf, Relu, Sigmoid, Tanh};
use compiler::passes::{Clock, PassContext, PassError, PassStats, PipelineOptions, Sequential, default_pipeline};
use compiler::profile::DeviceProfile;
use compiler::tensor::Tensor;
use std::sync::Arc;

/// A family of graphs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Family {
    /// Convolution, batch norm, relu and a residual sum, over and over.
    Residual,
    /// Attention layers with written-out gelu.
    Attention,
    /// Convolutions in four branches that meet in a concat.
    Branches,
    /// Elementwise diamonds: each value is used twice.
    Diamonds,
}
impl Family {
    /// All of them.
    pub const ALL: [Family; 4] = [Family::Residual, Family::Attention, Family::Branches, Family::Diamonds];
    /// Name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Family::Residual => "residual",
            Family::Attention => "attention",
            Family::Branches => "branches",
            Family::Diamonds => "diamonds",
        }
    }
}

const WIDTH: usize = 8;
const TOKENS: usize = 16;

struct Net<'m> {
    b: FunctionBuilder<'m>,
    constants: usize,
    nodes: usize,
}

impl Net<'_> {
    /// A node with a source name of its own.
    fn add(&mut self, op: impl Into<OpRef>, inputs: &[ValueId]) -> Result<ValueId, BuildError> {
        let op = op.into();
        self.b.set_source(Some(Name::new(&format!("{}_{}", op.name(), self.nodes))));
        self.nodes += 1;
        self.b.add(op, inputs)
    }
    /// A constant whose values differ from those of the others.
    fn constant(&mut self, shape: &[usize]) -> ValueId {
        self.constants += 1;
        let count: usize = shape.iter().product();
        let values = (0..count).map(|i| 0.5 + ((i * 7 + self.constants * 13) % 97) as f32 / 97.0).collect();
        self.b.set_source(None);
        let name = format!("c{}", self.constants);
        self.b.constant(&name, &Tensor::from_vec(shape.to_vec(), values))
    }
    fn conv(&mut self, x: ValueId, out: usize, kernel: usize) -> Result<ValueId, BuildError> {
        let channels = self.b.ty(x).shape[1].as_const().unwrap_or(1) as usize;
        let w = self.constant(&[out, channels, kernel, kernel]);
        let pad = kernel as i64 / 2;
        let conv = self.add(Conv { pads: vec![pad; 4], ..Conv::default() }, &[x, w])?;
        let [scale, bias, mean, variance] = [(); 4].map(|_| self.constant(&[out]));
        let norm = self.add(BatchNorm::default(), &[conv, scale, bias, mean, variance])?;
        self.add(Relu {}, &[norm])
    }
    fn residual(&mut self, x: ValueId) -> Result<ValueId, BuildError> {
        let a = self.conv(x, WIDTH, 3)?;
        let b = self.conv(a, WIDTH, 1)?;
        self.add(Add {}, &[b, x])
    }
    fn branches(&mut self, x: ValueId) -> Result<ValueId, BuildError> {
        let a = self.conv(x, 2, 1)?;
        let b = self.conv(x, 2, 1)?;
        let b = self.conv(b, 2, 3)?;
        let c = self.conv(x, 2, 3)?;
        let pool = MaxPool { kernel: vec![3, 3], pads: vec![1; 4], ..MaxPool::default() };
        let d = self.add(pool, &[x])?;
        let d = self.conv(d, 2, 1)?;
        self.add(Concat { axis: 1 }, &[a, b, c, d])
    }
    fn linear(&mut self, x: ValueId, from: usize, to: usize) -> Result<ValueId, BuildError> {
        let (w, b) = (self.constant(&[from, to]), self.constant(&[to]));
        let y = self.add(MatMul {}, &[x, w])?;
        self.add(Add {}, &[y, b])
    }
    fn attention(&mut self, x: ValueId) -> Result<ValueId, BuildError> {
        let mut heads = vec![];
        for perm in [[1, 0, 2], [1, 2, 0], [1, 0, 2]] {
            let y = self.linear(x, WIDTH, WIDTH)?;
            let y = self.add(Reshape::to(vec![TOKENS.into(), 2.into(), (WIDTH / 2).into()]), &[y])?;
            heads.push(self.add(Transpose { perm: perm.to_vec() }, &[y])?);
        }
        let scores = self.add(MatMul {}, &[heads[0], heads[1]])?;
        let scores = self.add(Softmax { axes: vec![2] }, &[scores])?;
        let mixed = self.add(MatMul {}, &[scores, heads[2]])?;
        let mixed = self.add(Transpose { perm: vec![1, 0, 2] }, &[mixed])?;
        let mixed = self.add(Reshape::to(vec![TOKENS.into(), WIDTH.into()]), &[mixed])?;
        let x = self.add(Add {}, &[x, mixed])?;
        let y = self.linear(x, WIDTH, 2 * WIDTH)?;
        let [root, one, half] = [std::f32::consts::FRAC_1_SQRT_2, 1.0, 0.5].map(|v| {
            self.constants += 1;
            let name = format!("c{}", self.constants);
            self.b.constant(&name, &Tensor::scalar(v))
        });
        let e = self.add(Mul {}, &[y, root])?;
        let e = self.add(Erf {}, &[e])?;
        let e = self.add(Add {}, &[e, one])?;
        let y = self.add(Mul {}, &[y, e])?;
        let y = self.add(Mul {}, &[y, half])?;
        let y = self.linear(y, 2 * WIDTH, WIDTH)?;
        self.add(Add {}, &[x, y])
    }
    fn diamond(&mut self, x: ValueId) -> Result<ValueId, BuildError> {
        let a = self.add(Sigmoid {}, &[x])?;
        let b = self.add(Tanh {}, &[x])?;
        self.add(Add {}, &[a, b])
    }
}

/// A graph of about `nodes` nodes, constants included.
///
/// # Errors
/// None but bugs: the graphs type-check.
pub fn build(family: Family, nodes: usize) -> Result<Module, BuildError> {
    let mut module = Module::new("main");
    let b = FunctionBuilder::new(&mut module, "main");
    let mut net = Net { b, constants: 0, nodes: 0 };
    let shape: &[usize] = match family {
        Family::Attention => &[TOKENS, WIDTH],
        _ => &[1, WIDTH, 8, 8],
    };
    let mut x = net.b.param("x", TensorType::fixed(DType::F32, shape));
    while net.nodes + net.constants < nodes {
        x = match family {
            Family::Residual => net.residual(x)?,
            Family::Attention => net.attention(x)?,
            Family::Branches => net.branches(x)?,
            Family::Diamonds => net.diamond(x)?,
        };
    }
    net.b.finish(&[(Name::new("y"), x)]);
    Ok(module)
}

/// Milliseconds since the program's start.
pub struct WallClock(std::time::Instant);
impl Default for WallClock {
    fn default() -> WallClock {
        WallClock(std::time::Instant::now())
    }
}
impl Clock for WallClock {
    fn now_ms(&self) -> f64 {
        self.0.elapsed().as_secs_f64() * 1e3
    }
}

/// Optimises a module with the standard passes for `profile`; what each pass did, with its milliseconds.
///
/// # Errors
/// An error of a pass.
pub fn optimize(module: &mut Module, profile: &DeviceProfile) -> Result<Vec<PassStats>, PassError> {
    let options = PipelineOptions::default();
    let mut cx = PassContext::new(profile.clone());
    options.configure(&mut cx);
    cx.clock = Some(Arc::new(WallClock::default()));
    Sequential::new(default_pipeline(&options)).run(module, &mut cx)?;
    Ok(cx.stats)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn graphs_have_the_size_asked_for_and_optimise() {
        for family in Family::ALL {
            let mut m = build(family, 200).unwrap();
            compiler::verify::verify_module(&m).unwrap();
            let nodes = m.main().live_nodes();
            assert!((200..260).contains(&nodes), "{family:?}: {nodes}");
            let stats = optimize(&mut m, &DeviceProfile::lavapipe()).unwrap();
            assert!(stats.iter().any(|s| s.name == "fuse-ops"), "{family:?}");
            compiler::verify::verify_module(&m).unwrap();
        }
    }
}
