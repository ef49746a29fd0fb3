//! transposed-phases: computes a transposed convolution with strides as one dense convolution, if that is cheaper.
//!
//! ```text
//! %y = conv_transpose %x, const @w {strides=[2, 2]}     =>     %0 = conv %x, const @w2
//!                                                              %y = depth_to_space %0 {block=2}
//! ```
//!
//! With stride `s`, a result at position `a * s + phase` adds only the taps `q * s + phase` of the window. Each phase
//! is a dense convolution of the data with these taps. The phases of both axes are `s * s` groups of channels of one
//! convolution; `depth_to_space` puts them into their places, and a slice cuts off the padding. The source form visits
//! `s * s` times as many taps, and asks of each whether it falls on an element.
//!
//! It takes windows of two dimensions of one group with equal strides and constant weights. `@w2` is computed when it
//! is read. Where the window is no multiple of the stride, some phases have fewer taps: weights of 0 in their place
//! would make NaN of infinities and NaN beside what the source form reads, so that such windows stay. (Shi et al. 2016,
//! "Is the deconvolution layer the same as a convolutional layer?")

mod apart;

use self::apart::Apart;
use super::rewriter::{Rewriter, rewrite_functions};
use super::scaled_weights::constant_of;
use super::{Pass, PassContext, PassError};
use crate::attr_struct;
use crate::cost::{NodeForm, Weighed};
use crate::fault::Fault;
use crate::graph::{Constant, Function, Module, NodeId, TensorType};
use crate::int::Int;
use crate::name::Name;
use crate::ops::OpRef;
use crate::ops::conv::Conv;
use crate::ops::conv_transpose::{ConvTranspose, PhasedAxis};
use crate::ops::slice::Slice;
use crate::ops::space_depth::{BlockOrder, DepthToSpace};
use crate::tensor::{ConstData, DataSource, Tensor};
use bytes::Bytes;
use std::sync::Arc;

attr_struct! {
    /// Replaces transposed convolutions by convolutions whose results are put into their places.
    pub struct TransposedPhases("transposed-phases") {
        /// Replaces whatever it costs, and with weights of 0 too.
        pub always: bool = false,
        /// Replaces those alone whose groups have fewer channels; 0: any.
        pub narrow: i64 = 0,
    }
}

impl Pass for TransposedPhases {
    fn opt_level(&self) -> u8 {
        3
    }
    fn run(&self, module: &mut Module, cx: &mut PassContext) -> Result<bool, PassError> {
        let model = cx.costs();
        Ok(rewrite_functions(module, |r| {
            for n in r.f.walk() {
                if r.is_dead(n) || self.narrow > 0 && !is_narrow(&r.f, n, self.narrow) {
                    continue;
                }
                r.normalize(n);
                let Some(op) = r.f.nodes[n].op.downcast::<ConvTranspose>().cloned() else { continue };
                let name = r.f.nodes[n].name;
                let ways = Ways { of_zeros: self.always, apart: !cx.target().profile.model().shaders };
                let phases = match ways.find(r, n, &op) {
                    Ok(phases) => phases,
                    Err(why) => {
                        cx.missed(self, &[name], format!("{name} stays a transposed convolution: {why}"));
                        continue;
                    }
                };
                let w = Weighed::nodes(&*model, phases.forms(), &[NodeForm::of(&r.f, n)]);
                let (new, old, how) = (w.one / 1e3, w.other / 1e3, w.verdict(1.0, "the convolution"));
                let how = if self.always { String::new() } else { format!(" ({how})") };
                let text = format!("as a convolution it takes {new:.1} us, else {old:.1} us{how}");
                if !self.always && w.one >= w.other {
                    cx.missed(self, &[name], format!("{name} stays a transposed convolution: {text}"));
                    continue;
                }
                match phases.replace(r, n) {
                    Ok(()) => cx.applied(self, &[name], format!("{name} became a convolution: {text}")),
                    Err(why) => cx.missed(self, &[name], format!("{name} stays a transposed convolution: {why}")),
                }
            }
        }))
    }
}

/// True for an op with fewer than `least` channels in a group.
fn is_narrow(f: &Function, n: NodeId, least: i64) -> bool {
    f.nodes[n].op.channels_of_group(&f.node_types(n).0).is_some_and(|channels| channels < least)
}

/// The forms that a transposed convolution may get.
struct Ways {
    /// One convolution, with weights of 0 too.
    of_zeros: bool,
    /// A convolution for each phase. Devices launch a kernel for each, and there it has not been measured.
    apart: bool,
}

/// A form of a transposed convolution.
enum Form {
    Together(Box<Phases>),
    Apart(Apart),
}

impl Ways {
    /// # Errors
    /// Why there is no form.
    fn find(&self, r: &Rewriter<'_>, n: NodeId, op: &ConvTranspose) -> Result<Form, String> {
        let zeros = "its window is no multiple of its stride, and weights of 0 would spread NaN";
        let together = Phases::of(r, n, op).and_then(|p| match p.has_zeros && !self.of_zeros {
            true => Err(zeros.into()),
            false => Ok(p),
        });
        match together {
            Err(_) if self.apart => Apart::of(r, n, op).map(Form::Apart),
            other => other.map(|p| Form::Together(Box::new(p))),
        }
    }
}

impl Form {
    fn forms(&self) -> &[NodeForm] {
        match self {
            Form::Together(p) => &p.forms,
            Form::Apart(p) => &p.forms,
        }
    }
    fn replace(self, r: &mut Rewriter<'_>, n: NodeId) -> Result<(), String> {
        match self {
            Form::Together(p) => p.replace(r, n),
            Form::Apart(p) => p.replace(r, n),
        }
    }
}

/// The nodes that take the place of a transposed convolution.
struct Phases {
    conv: Conv,
    place: DepthToSpace,
    crop: Option<Slice>,
    weights: Constant,
    bias: Option<Constant>,
    forms: Vec<NodeForm>,
    /// Some taps of the dense convolution are none of the source's.
    has_zeros: bool,
}

/// What the dense convolution is of.
struct Operands {
    x: TensorType,
    weights: Constant,
    bias: Option<Constant>,
    out_channels: usize,
}

impl Phases {
    /// # Errors
    /// Why there is no such form.
    fn of(r: &Rewriter<'_>, n: NodeId, op: &ConvTranspose) -> Result<Phases, String> {
        let node = &r.f.nodes[n];
        let (x, w) = node.inputs[0].zip(node.inputs.get(1).copied().flatten()).ok_or("an operand is missing")?;
        let (x, result) = (r.f.ty(x).clone(), r.f.ty(node.outputs[0]).clone());
        let axes = op.phases(&x.shape, &r.f.ty(w).shape).map_err(|e| e.to_string())?;
        let [h, v] = &axes[..] else { return Err("it is not of two dimensions".into()) };
        if h.stride != v.stride {
            return Err(format!("its strides are {} and {}", h.stride, v.stride));
        }
        let (_, weights) = constant_of(r, Some(w)).ok_or("its weights are not constant")?;
        let bias = node.inputs.get(2).copied().flatten();
        let bias = bias.map(|b| constant_of(r, Some(b)).ok_or("its bias is not constant")).transpose()?;
        let [in_channels, out_channels, ..] = weights.shape[..] else {
            return Err("its weights have no channels".into());
        };
        let stride = h.stride as usize;
        let taps = [h.taps as usize, v.taps as usize];
        let channels = stride * stride * out_channels;
        let has_zeros = weights.shape[2..] != [taps[0] * stride, taps[1] * stride];
        let source = PhaseWeights { weights: weights.clone(), stride, taps };
        let shape = vec![channels, in_channels, taps[0], taps[1]];
        let made = Constant { dtype: weights.dtype, shape, data: ConstData::Lazy(Arc::new(source)) };
        let repeated = bias.map(|(_, b)| repeat(&b, stride * stride)).transpose()?;
        let own = Operands { x, weights: made, bias: repeated, out_channels };
        Ok(Phases { has_zeros, ..Phases::made(op, &axes, own, result)? })
    }
    /// The nodes for these axes.
    fn made(op: &ConvTranspose, axes: &[PhasedAxis], own: Operands, result: TensorType) -> Result<Phases, String> {
        let conv = Conv {
            pads: axes.iter().map(|a| a.before).chain(axes.iter().map(|a| a.after)).collect(),
            layout: op.layout,
            ..Conv::default()
        };
        let place = DepthToSpace { block: axes[0].stride, order: BlockOrder::Dcr, layout: op.layout };
        let of = |spatial: &dyn Fn(&PhasedAxis) -> Int, channels: usize| {
            let (spatial, channels) = (axes.iter().map(spatial).collect(), Int::new(channels as i64));
            let shape = op.layout.shape(&own.x.shape[0], &channels, spatial).map_err(|e| e.to_string());
            shape.map(|s| TensorType::new(result.dtype, s))
        };
        let dense = of(&|a| a.results.clone(), own.weights.shape[0])?;
        let placed = of(&|a| a.results.clone() * a.stride, own.out_channels)?;
        let first = op.layout.spatial_axes(4).start as i64;
        let crop = (placed != result).then(|| Slice {
            starts: axes.iter().map(|a| Int::new(a.cut)).collect(),
            ends: axes.iter().map(|a| a.output.clone() + a.cut).collect(),
            axes: vec![first, first + 1],
            ..Slice::default()
        });
        let mut inputs = vec![Some((own.x, false)), Some((own.weights.ty(), true))];
        inputs.extend(own.bias.iter().map(|b| Some((b.ty(), true))));
        let mut forms = vec![
            NodeForm { op: conv.clone().into(), inputs, outputs: vec![dense.clone()] },
            NodeForm { op: place.clone().into(), inputs: vec![Some((dense, false))], outputs: vec![placed.clone()] },
        ];
        if let Some(crop) = &crop {
            let op: OpRef = crop.clone().into();
            forms.push(NodeForm { op, inputs: vec![Some((placed, false))], outputs: vec![result] });
        }
        Ok(Phases { conv, place, crop, weights: own.weights, bias: own.bias, forms, has_zeros: false })
    }
    fn replace(self, r: &mut Rewriter<'_>, n: NodeId) -> Result<(), String> {
        let node = r.f.nodes[n].clone();
        let name = |label: &str| Name::new(&format!("{}.{label}", node.name));
        let origins = || node.origins.clone();
        let mut inputs = vec![node.inputs[0]];
        inputs.push(Some(r.constant_before(n, name("weights").as_str(), self.weights, origins())));
        if let Some(bias) = self.bias {
            inputs.push(Some(r.constant_before(n, name("bias").as_str(), bias, origins())));
        }
        let dense = r.add_before(n, self.conv, inputs, name("phases"), origins())?[0];
        let label = if self.crop.is_some() { name("placed") } else { node.name };
        let mut y = r.add_before(n, self.place, vec![Some(dense)], label, origins())?[0];
        if let Some(crop) = self.crop {
            y = r.add_before(n, crop, vec![Some(y)], node.name, origins())?[0];
        }
        r.replace_node(n, y).map_err(|own| format!("its result is {own:?}, and of its phases {:?}", r.f.ty(y)))
    }
}

/// A vector of channels, so many times one after another.
fn repeat(c: &Constant, times: usize) -> Result<Constant, String> {
    let t = c.load().map_err(|e| e.to_string())?;
    let values = t.to_f64_vec().repeat(times);
    let shape = vec![values.len()];
    Ok(Constant::from_tensor(&Tensor::from_f64(t.dtype(), shape, values)))
}

/// The weights of all phases: `w2[(py * s + px) * out + o, c, ty, tx] = w[c, o, qy * s + py, qx * s + px]`, where the
/// last tap comes first, `q = taps - 1 - t`; 0 beyond the window.
struct PhaseWeights {
    weights: Constant,
    stride: usize,
    taps: [usize; 2],
}

impl DataSource for PhaseWeights {
    fn read(&self) -> Result<Bytes, Fault> {
        let old = self.weights.load()?;
        let [channels, out, height, width] = self.weights.shape[..] else { return Ok(Bytes::new()) };
        let (s, [th, tw]) = (self.stride, self.taps);
        let values = old.to_f64_vec();
        let mut new = Vec::with_capacity(s * s * out * channels * th * tw);
        for (phase, o, c) in grid([s * s, out, channels]) {
            for (t, u, _) in grid([th, tw, 1]) {
                let (y, x) = ((th - 1 - t) * s + phase / s, (tw - 1 - u) * s + phase % s);
                let inside = y < height && x < width;
                new.push(if inside { values[((c * out + o) * height + y) * width + x] } else { 0.0 });
            }
        }
        let shape = vec![s * s * out, channels, th, tw];
        Ok(Tensor::from_f64(old.dtype(), shape, new).bytes().clone())
    }
}

/// Three nested loops.
fn grid([a, b, c]: [usize; 3]) -> impl Iterator<Item = (usize, usize, usize)> {
    (0..a).flat_map(move |x| (0..b).flat_map(move |y| (0..c).map(move |z| (x, y, z))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interpreter::run_function;
    use crate::ops::testing::{assert_close, random};
    use crate::passes::run_pass;
    use crate::text::parse_module;

    /// `(attributes, size of the window, sizes of data and result)`: windows that are smaller than the stride, as
    /// large, larger, and no multiple of it; results that begin within a step.
    #[test]
    fn results_are_those_of_the_transposed_convolution() {
        for (attrs, window, data, result) in [
            ("strides=[2, 2]", [2, 2], [3, 4], [6, 8]),
            ("strides=[2, 2], pads=[1, 1, 1, 1]", [4, 4], [3, 4], [6, 8]),
            ("strides=[2, 2], pads=[1, 1, 1, 1], output_padding=[1, 1]", [3, 3], [4, 2], [8, 4]),
            ("strides=[3, 3], pads=[0, 1, 1, 0]", [5, 4], [3, 3], [10, 9]),
            ("strides=[3, 3], output_padding=[1, 0]", [2, 1], [3, 2], [9, 4]),
            ("strides=[2, 2], pads=[2, 2, 2, 2]", [5, 5], [4, 4], [7, 7]),
        ] {
            for last in [false, true] {
                let shape = |channels: i64, [h, w]: [i64; 2]| match last {
                    true => format!("f32[2,{h},{w},{channels}]"),
                    false => format!("f32[2,{channels},{h},{w}]"),
                };
                let layout = if last { ", layout=nhwc" } else { "" };
                let ([h, w], x, y) = (window, shape(3, data), shape(5, result));
                let text = format!(
                    "const @w : f32[3,5,{h},{w}] = random(1)\nconst @b : f32[5] = random(2)
                     graph @main(%x: {x}) -> (y: {y}) {{
                       %w = const @w
                       %b = const @b
                       %y = conv_transpose %x, %w, %b {{{attrs}{layout}}}
                       return %y
                     }}"
                );
                let mut m = parse_module(&text).unwrap_or_else(|e| panic!("{e}: {text}"));
                let main = m.main().name;
                let sizes: Vec<usize> = m
                    .main()
                    .params()
                    .iter()
                    .flat_map(|v| crate::int::const_dims(&m.main().ty(*v).shape).expect("numbers"))
                    .collect();
                let x = random(&sizes, 3);
                let want = run_function(&m, main, std::slice::from_ref(&x)).expect("runs");
                run_pass(&TransposedPhases { always: true, narrow: 0 }, &mut m, &mut PassContext::default())
                    .expect("a pass");
                assert!(m.main().walk().into_iter().all(|n| !m.main().nodes[n].op.is::<ConvTranspose>()), "{text}");
                let got = run_function(&m, main, &[x]).expect("runs");
                assert_close(&got[0], &want[0], 1e-5);
            }
        }
    }
}
