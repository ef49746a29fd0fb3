//! winograd: computes convolutions by transformed tiles and matrix products, if that is cheaper.
//!
//! ```text
//! %y = conv %x, const @w {pads=[1, 1, 1, 1]}      %0 = winograd_input %x {tile=4, pads=[1, 1, 1, 1]}
//!                                             =>  %1 = matmul const @u, %0
//!                                                 %y = winograd_output %1 {tile=4, height=.., width=..}
//! ```
//!
//! It takes f32 convolutions of one group with 3x3 windows, stride 1 and constant weights; `@u` are the transformed
//! weights, computed when they are read. F(4, 3) needs a quarter of the convolution's multiplications, and F(2, 3) less
//! than half. But both read and write overlapping tiles, and their weights are 4 or 1.8 times as large, so the cost
//! model decides. The loss of precision is given in [`crate::ops::winograd`]; because of it, the gain must be at least
//! a tenth.

use super::fold_constants::folded_constant;
use super::rewriter::{Rewriter, rewrite_functions};
use super::scaled_weights::constant_of;
use super::{Pass, PassContext, PassError};
use crate::attr_struct;
use crate::cost::{NodeForm, Weighed};
use crate::dtype::DType;
use crate::graph::{Module, NodeId, TensorType};
use crate::int::{Int, const_dims};
use crate::name::Name;
use crate::ops::DataLayout;
use crate::ops::conv::Conv;
use crate::ops::matmul::MatMul;
use crate::ops::winograd::{WinogradInput, WinogradOutput, WinogradWeights};

attr_struct! {
    /// Replaces convolutions by Winograd's transforms around matrix products.
    pub struct Winograd("winograd") {
        /// Results of a tile along each axis, 2 or 4; 0 for the cheaper one, where it is cheaper than the convolution.
        pub tile: i64 = 0,
    }
}

/// Weights may grow to this many bytes: a binding of every device.
const MOST_BYTES: usize = 128 << 20;

/// Tiles must be that much faster: their sums are less precise.
const LEAST_GAIN: f64 = 1.1;

impl Pass for Winograd {
    fn opt_level(&self) -> u8 {
        3
    }
    fn run(&self, module: &mut Module, cx: &mut PassContext) -> Result<bool, PassError> {
        let tiles: &[i64] = match self.tile {
            0 => &[2, 4],
            2 => &[2],
            4 => &[4],
            other => return Err(PassError::request("winograd", format!("tile is {other}, needs 0, 2 or 4"))),
        };
        let model = cx.costs();
        Ok(rewrite_functions(module, |r| {
            for n in r.f.walk() {
                if r.is_dead(n) {
                    continue;
                }
                r.normalize(n);
                let Some(conv) = taken(r, n) else { continue };
                let name = r.f.nodes[n].name;
                let (forms, refused): (Vec<_>, Vec<_>) =
                    tiles.iter().map(|&t| Tiles::of(r, n, &conv, t)).partition(Result::is_ok);
                let direct = [NodeForm::of(&r.f, n)];
                let weighed = forms.into_iter().flatten().map(|f| (Weighed::nodes(&*model, &f.forms, &direct), f));
                // A measured time is not compared with an estimate.
                let order = |a: &(Weighed, Tiles), b: &(Weighed, Tiles)| {
                    b.0.measured.cmp(&a.0.measured).then(a.0.one.total_cmp(&b.0.one))
                };
                let Some((weighed, form)) = weighed.min_by(order) else {
                    if let Some(why) = refused.into_iter().find_map(Result::err) {
                        cx.missed(self, &[name], format!("{name} stays a convolution: {why}"));
                    }
                    continue;
                };
                let [tiles, direct] = [weighed.one / 1e3, weighed.other / 1e3];
                // If the user asks for a tile size, there is no choice to explain.
                let verdict = || format!(" ({})", weighed.verdict(1.0 / LEAST_GAIN, "the tiled form"));
                let how = if self.tile == 0 { verdict() } else { String::new() };
                let text = format!("F({}, 3) takes {tiles:.1} us, the convolution {direct:.1} us{how}", form.tile);
                if self.tile == 0 && tiles * LEAST_GAIN >= direct {
                    cx.missed(self, &[name], format!("{name} stays a convolution: {text}"));
                    continue;
                }
                match form.replace(r, n) {
                    Ok(()) => cx.applied(self, &[name], format!("{name} became transforms of tiles: {text}")),
                    Err(why) => cx.missed(self, &[name], format!("{name} stays a convolution: {why}")),
                }
            }
        }))
    }
}

/// The convolution that `n` is, where it has such a form.
fn taken(r: &Rewriter<'_>, n: NodeId) -> Option<Conv> {
    let node = &r.f.nodes[n];
    let conv = node.op.downcast::<Conv>()?;
    let x = r.f.ty(node.inputs.first().copied().flatten()?);
    let (_, weights) = constant_of(r, node.inputs.get(1).copied().flatten())?;
    let fits = weights.shape.len() == 4
        && weights.shape[2..] == [3, 3]
        && weights.dtype == DType::F32
        && x.dtype == DType::F32
        && conv.group == 1
        && [&conv.strides, &conv.dilations].iter().all(|list| list.iter().all(|s| *s == 1))
        && conv.layout.block().is_none();
    fits.then(|| conv.clone())
}

/// The nodes that take the place of a convolution.
struct Tiles {
    tile: i64,
    input: WinogradInput,
    weights: WinogradWeights,
    output: WinogradOutput,
    forms: [NodeForm; 3],
    weights_type: TensorType,
}

impl Tiles {
    /// The forms for tiles of `tile` results.
    ///
    /// # Errors
    /// Why there are none.
    fn of(r: &Rewriter<'_>, n: NodeId, conv: &Conv, tile: i64) -> Result<Tiles, String> {
        let node = &r.f.nodes[n];
        let (x, w, y) = (node.inputs[0], node.inputs[1], node.outputs.first());
        let (x, w, y) = x.zip(w).zip(y).map(|((x, w), y)| (x, w, *y)).ok_or("an operand is missing")?;
        let [x, w, result] = [x, w, y].map(|v| r.f.ty(v).clone());
        let layout = conv.layout;
        let window = conv.window(&x.shape, &w.shape).map_err(|e| e.to_string())?;
        let pads = window.begin.iter().chain(&window.end).map(Int::as_const).collect::<Option<_>>();
        let pads = pads.ok_or("its padding depends on an open size")?;
        let [height, width] = layout.spatial(&result.shape) else { return Err("it is not of two dimensions".into()) };
        let (input, weights) = (WinogradInput { tile, pads, layout }, WinogradWeights { tile, layout });
        let output = WinogradOutput { tile, height: height.clone(), width: width.clone(), layout };
        let v = input.result(&x).map_err(|e| e.to_string())?;
        let u = weights.result(&w).map_err(|e| e.to_string())?;
        if u.bytes().is_none_or(|b| b > MOST_BYTES) {
            return Err(format!("the transformed weights are beyond {} MiB", MOST_BYTES >> 20));
        }
        let last = layout == DataLayout::Nhwc;
        let mut m = v.clone();
        m.shape[if last { 3 } else { 2 }] = w.shape[0].clone();
        let operands =
            if last { [(v.clone(), false), (u.clone(), true)] } else { [(u.clone(), true), (v.clone(), false)] };
        let (input_op, product, output_op) = (input.clone().into(), MatMul {}.into(), output.clone().into());
        let bias = node.inputs.get(2).copied().flatten().map(|b| (r.f.ty(b).clone(), true));
        let images = output.images(&m.shape).map_err(|e| e.to_string())?;
        if images != result.shape[0] {
            return Err(format!(
                "of open sizes it is not proved that the tiles, {images}, belong to {} images",
                result.shape[0]
            ));
        }
        let forms = [
            NodeForm { op: input_op, inputs: vec![Some((x, false))], outputs: vec![v] },
            NodeForm { op: product, inputs: operands.map(Some).to_vec(), outputs: vec![m.clone()] },
            NodeForm { op: output_op, inputs: vec![Some((m, false)), bias], outputs: vec![result] },
        ];
        Ok(Tiles { tile, input, weights, output, forms, weights_type: u })
    }
    fn replace(self, r: &mut Rewriter<'_>, n: NodeId) -> Result<(), String> {
        let node = r.f.nodes[n].clone();
        let (x, w, bias) = (node.inputs[0], node.inputs[1], node.inputs.get(2).copied().flatten());
        let (_, constant) = constant_of(r, w).ok_or("its weights are not constant")?;
        let shape = const_dims(&self.weights_type.shape).ok_or("its weights are open")?;
        let u = folded_constant(self.weights.clone().into(), vec![Some(constant)], DType::F32, shape)?;
        let name = |label: &str| Name::new(&format!("{}.{label}", node.name));
        let origins = || node.origins.clone();
        let u = r.constant_before(n, name("weights").as_str(), u, origins());
        let v = r.add_before(n, self.input, vec![x], name("tiles"), origins())?[0];
        let operands = if self.output.layout == DataLayout::Nhwc { [v, u] } else { [u, v] };
        let m = r.add_before(n, MatMul {}, operands.map(Some).to_vec(), name("products"), origins())?[0];
        let inputs = [Some(m), bias].into_iter().take(if bias.is_some() { 2 } else { 1 }).collect();
        let y = r.add_before(n, self.output, inputs, node.name, origins())?[0];
        r.replace_node(n, y).map_err(|own| format!("its result is {own:?}, and of tiles {:?}", r.f.ty(y)))
    }
}
