//! The phases of a transposed convolution as convolutions of their own, each with the taps that it has: windows of any
//! size, groups, dilations, and any number of spatial axes.

use super::super::rewriter::Rewriter;
use super::super::scaled_weights::constant_of;
use crate::cost::NodeForm;
use crate::fault::Fault;
use crate::graph::{Constant, NodeId, TensorType, ValueId};
use crate::int::{Int, simplify};
use crate::name::Name;
use crate::ops::concat::Concat;
use crate::ops::conv::Conv;
use crate::ops::conv_transpose::{ConvTranspose, SplitAxis};
use crate::ops::reshape::Reshape;
use crate::ops::slice::Slice;
use crate::ops::space_depth::{BlockOrder, DepthToSpace};
use crate::ops::transpose::Transpose;
use crate::ops::{DataLayout, OpRef};
use crate::tensor::{ConstData, DataSource, Tensor};
use bytes::Bytes;
use std::sync::Arc;

/// Phases, at most: each is a kernel.
const MOST: usize = 16;

/// The nodes that take the place of a transposed convolution.
pub(super) struct Apart {
    /// The convolution of each phase with its weights.
    convs: Vec<(Conv, Constant)>,
    /// The ops that join their results, and put these into their places.
    after: Vec<OpRef>,
    /// All of them, to be weighed.
    pub forms: Vec<NodeForm>,
}

impl Apart {
    /// # Errors
    /// Why there is no such form.
    pub fn of(r: &Rewriter<'_>, n: NodeId, op: &ConvTranspose) -> Result<Apart, String> {
        let node = &r.f.nodes[n];
        let types: Vec<TensorType> = node.inputs.iter().flatten().map(|v| r.f.ty(*v).clone()).collect();
        let [x, w, bias @ ..] = &types[..] else { return Err("an operand is missing".into()) };
        let axes = op.split_axes(&x.shape, &w.shape).map_err(|e| e.to_string())?;
        let (_, weights) = constant_of(r, node.inputs[1]).ok_or("its weights are not constant")?;
        let result = r.f.ty(node.outputs[0]).clone();
        let count: usize = axes.iter().map(|a| a.phases.len()).product();
        if count > MOST {
            return Err(format!("it has {count} phases"));
        }
        let convs: Vec<(Conv, Constant)> = combinations(&axes).map(|p| convolution(op, &axes, &p, &weights)).collect();
        let channels = op.layout.channels(&result.shape);
        let shape = |channels: Int, spatial: Vec<Int>| {
            let shape = op.layout.shape(&x.shape[0], &channels, spatial).map_err(|e| e.to_string());
            shape.map(|s| TensorType::new(result.dtype, s))
        };
        let part = shape(channels.clone(), axes.iter().map(|a| a.results.clone()).collect())?;
        let mut forms: Vec<NodeForm> = vec![];
        for (conv, weights) in &convs {
            let operands = [(x.clone(), false), (weights.ty(), true)].into_iter();
            let operands = operands.chain(bias.iter().map(|b| (b.clone(), true))).map(Some).collect();
            forms.push(NodeForm { op: conv.clone().into(), inputs: operands, outputs: vec![part.clone()] });
        }
        let joined = shape(tidy(channels * count as i64), op.layout.spatial(&part.shape).to_vec())?;
        let axis = op.layout.channel_axis(joined.rank()).ok_or("its channels are packed")? as i64;
        let mut after: Vec<(OpRef, TensorType)> = vec![(Concat { axis }.into(), joined)];
        after.extend(places(op.layout, &axes, &part)?);
        let first = op.layout.spatial_axes(result.rank()).start as i64;
        if after.last().is_some_and(|a| a.1 != result) {
            let crop = Slice {
                starts: axes.iter().map(|_| Int::new(0)).collect(),
                ends: axes.iter().map(|a| a.output.clone()).collect(),
                axes: (first..first + axes.len() as i64).collect(),
                ..Slice::default()
            };
            after.push((crop.into(), result));
        }
        let mut from = vec![Some((part, false)); count];
        for (op, to) in &after {
            let inputs = std::mem::replace(&mut from, vec![Some((to.clone(), false))]);
            forms.push(NodeForm { op: op.clone(), inputs, outputs: vec![to.clone()] });
        }
        Ok(Apart { convs, after: after.into_iter().map(|a| a.0).collect(), forms })
    }
    /// Puts the nodes in the place of node `n`.
    ///
    /// # Errors
    /// An op refuses its operands.
    pub fn replace(self, r: &mut Rewriter<'_>, n: NodeId) -> Result<(), String> {
        let node = r.f.nodes[n].clone();
        let name = |label: &str| Name::new(&format!("{}.{label}", node.name));
        let origins = || node.origins.clone();
        let mut parts: Vec<Option<ValueId>> = vec![];
        for (at, (conv, weights)) in self.convs.into_iter().enumerate() {
            let weights = r.constant_before(n, name("weights").as_str(), weights, origins());
            let mut inputs = node.inputs.clone();
            inputs[1] = Some(weights);
            parts.push(Some(r.add_before(n, conv, inputs, name(&format!("phase{at}")), origins())?[0]));
        }
        let last = self.after.len() - 1;
        let mut y = parts;
        for (at, op) in self.after.into_iter().enumerate() {
            let label = if at == last { node.name } else { name(&format!("placed{at}")) };
            y = vec![Some(r.add_before(n, op, y, label, origins())?[0])];
        }
        let new = y[0].ok_or("it has no result")?;
        r.replace_node(n, new).map_err(|own| format!("its result is {own:?}, and of its phases {:?}", r.f.ty(new)))
    }
}

fn tidy(d: Int) -> Int {
    simplify(&d, &Default::default())
}

/// A phase of each axis, the last axis fastest.
fn combinations(axes: &[SplitAxis]) -> impl Iterator<Item = Vec<usize>> {
    let all = axes.iter().fold(vec![vec![]], |all: Vec<Vec<usize>>, axis| {
        all.iter().flat_map(|p| (0..axis.phases.len()).map(move |n| [&p[..], &[n]].concat())).collect()
    });
    all.into_iter()
}

/// The convolution of one phase of each axis, and its weights.
fn convolution(op: &ConvTranspose, axes: &[SplitAxis], phases: &[usize], weights: &Constant) -> (Conv, Constant) {
    let own: Vec<_> = axes.iter().zip(phases).map(|(a, n)| &a.phases[*n]).collect();
    let conv = Conv {
        dilations: axes.iter().map(|a| a.step).collect(),
        pads: own.iter().map(|p| p.before).chain(own.iter().map(|p| p.after)).collect(),
        group: op.group,
        layout: op.layout,
        ..Conv::default()
    };
    let group = op.group as usize;
    let taps: Vec<Vec<usize>> = own.iter().map(|p| p.taps.clone()).collect();
    let channels = [weights.shape[1] * group, weights.shape[0] / group];
    let shape = channels.into_iter().chain(taps.iter().map(Vec::len)).collect();
    let source = PhaseWeights { weights: weights.clone(), group, taps };
    (conv, Constant { dtype: weights.dtype, shape, data: ConstData::Lazy(Arc::new(source)) })
}

/// The ops that put joined phases of type `part` into their places, each with the type of its result.
fn places(layout: DataLayout, axes: &[SplitAxis], part: &TensorType) -> Result<Vec<(OpRef, TensorType)>, String> {
    let strides: Vec<i64> = axes.iter().map(|a| a.phases.len() as i64).collect();
    let (batch, channels, spatial) = (&part.shape[0], layout.channels(&part.shape), layout.spatial(&part.shape));
    let wide = spatial.iter().zip(&strides).map(|(a, s)| tidy(a.clone() * *s)).collect();
    let ty = |shape: Vec<Int>| TensorType::new(part.dtype, shape);
    let whole = ty(layout.shape(batch, &channels, wide).map_err(|e| e.to_string())?);
    if let [block, other] = strides[..]
        && block == other
    {
        return Ok(vec![(DepthToSpace { block, order: BlockOrder::Dcr, layout }.into(), whole)]);
    }
    if layout != DataLayout::Nchw {
        return Err("its channels are last, and its strides differ".into());
    }
    // [n, s, t, c, a, b] -> [n, c, a, s, b, t]
    let rank = axes.len();
    let split: Vec<Int> = [batch.clone()].into_iter().chain(strides.iter().map(|s| Int::new(*s))).collect();
    let split = [&split[..], &part.shape[1..]].concat();
    let perm: Vec<usize> = [0, rank + 1].into_iter().chain((0..rank).flat_map(|d| [rank + 2 + d, 1 + d])).collect();
    let placed = perm.iter().map(|d| split[*d].clone()).collect();
    Ok(vec![
        (Reshape::to(split.clone()).into(), ty(split)),
        (Transpose { perm }.into(), ty(placed)),
        (Reshape::to(whole.shape.clone()).into(), whole),
    ])
}

/// The weights of a phase: `w2[g * out + o, c, t...] = w[g * in + c, o, taps[t]...]`.
struct PhaseWeights {
    weights: Constant,
    group: usize,
    /// The taps of each axis.
    taps: Vec<Vec<usize>>,
}

impl DataSource for PhaseWeights {
    fn read(&self) -> Result<Bytes, Fault> {
        let old = self.weights.load()?;
        let [channels, out, kernel @ ..] = &self.weights.shape[..] else { return Ok(Bytes::new()) };
        let (values, own) = (old.to_f64_vec(), channels / self.group);
        let window: usize = kernel.iter().product();
        // The places of the taps in a window.
        let taps = self.taps.iter().zip(kernel).fold(vec![0], |all: Vec<usize>, (taps, n)| {
            all.iter().flat_map(|at| taps.iter().map(move |t| at * n + t)).collect()
        });
        let mut new = Vec::with_capacity(channels * out * taps.len());
        for (g, o) in (0..self.group).flat_map(|g| (0..*out).map(move |o| (g, o))) {
            for c in 0..own {
                let start = ((g * own + c) * out + o) * window;
                new.extend(taps.iter().map(|t| values[start + t]));
            }
        }
        let lengths = self.taps.iter().map(Vec::len);
        let shape = [out * self.group, own].into_iter().chain(lengths).collect();
        Ok(Tensor::from_f64(old.dtype(), shape, new).bytes().clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interpreter::run_function;
    use crate::ops::testing::{assert_close, random};
    use crate::passes::transposed_phases::TransposedPhases;
    use crate::passes::{PassContext, run_pass};
    use crate::profile::DeviceProfile;
    use crate::text::parse_module;

    /// `(attributes, shapes of weights, data, result)`: groups, dilations, one axis and three, strides that differ,
    /// results beyond the last whole step.
    #[test]
    fn phases_are_those_of_the_transposed_convolution() {
        for (attrs, weights, data, result) in [
            ("strides=[2, 2], group=3, pads=[1, 1, 1, 1]", "6,2,3,3", "1,6,4,5", "1,6,7,9"),
            ("strides=[2, 2], dilations=[3, 3], group=2", "4,3,3,3", "2,4,3,4", "2,6,11,13"),
            ("strides=[4], dilations=[3], pads=[1, 2], group=2", "4,3,7", "1,4,9", "1,6,48"),
            ("strides=[3], pads=[1, 1], output_padding=[2]", "5,4,5", "1,5,7", "1,4,23"),
            ("strides=[2, 1, 2], pads=[1, 1, 1, 1, 1, 1]", "2,3,3,3,3", "1,2,3,4,3", "1,3,5,4,5"),
            ("strides=[2, 3], group=2", "4,1,2,4", "1,4,3,2", "1,2,6,7"),
        ] {
            let text = format!(
                "const @w : f32[{weights}] = random(1)\ngraph @main(%x: f32[{data}]) -> (y: f32[{result}]) {{
                   %w = const @w
                   %y = conv_transpose %x, %w {{{attrs}}}
                   return %y
                 }}"
            );
            let mut m = parse_module(&text).unwrap_or_else(|e| panic!("{e}: {text}"));
            let main = m.main().name;
            let x = random(&data.split(',').map(|n| n.parse().expect("a number")).collect::<Vec<usize>>(), 3);
            let want = run_function(&m, main, std::slice::from_ref(&x)).expect("runs");
            let mut cx = PassContext::new(DeviceProfile::processor(1, [14, 32]));
            run_pass(&TransposedPhases { always: true, narrow: 0 }, &mut m, &mut cx).expect("a pass");
            assert!(m.main().walk().into_iter().all(|n| !m.main().nodes[n].op.is::<ConvTranspose>()), "{text}");
            let got = run_function(&m, main, &[x]).expect("runs");
            assert_close(&got[0], &want[0], 1e-5);
        }
    }
}
