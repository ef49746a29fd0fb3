//! `RNN`, `GRU` and `LSTM`, composed of other ops on import. The products with the inputs of all steps are one matrix
//! product; a few steps are unrolled, more become a loop.

use super::OpResult;
use super::binary::{Add, Greater, Mul, Sub};
use super::clip::Clip;
use super::concat::Concat;
use super::control::Loop;
use super::gather::Gather;
use super::generate::Full;
use super::linear_attention::range;
use super::matmul::MatMul;
use super::named_activation::NamedActivation;
use super::quantize::DynamicWeights;
use super::reshape::{Squeeze, Unsqueeze};
use super::select::Where;
use super::shape::Shape;
use super::slice::Slice;
use super::transpose::Transpose;
use crate::dtype::DType;
use crate::fault::Fault;
use crate::graph::{TensorType, ValueId};
use crate::int::{Dim, Int};
use crate::ops::onnx::{ImportContext, OnnxImport};

/// ONNX importers.
pub const ONNX: &[OnnxImport] = &[
    OnnxImport { op_type: "RNN", domain: "", since: 7, import: |cx| import(cx, Kind::Simple) },
    OnnxImport { op_type: "GRU", domain: "", since: 7, import: |cx| import(cx, Kind::Gated) },
    OnnxImport { op_type: "LSTM", domain: "", since: 7, import: |cx| import(cx, Kind::LongShort) },
    OnnxImport { op_type: "DynamicQuantizeLSTM", domain: "com.microsoft", since: 1, import: import_dynamic_lstm },
];

/// The most steps that are unrolled.
const UNROLLED: i64 = 8;

type Context<'a, 'm> = ImportContext<'a, 'm>;

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    /// `h = f(x W + h R + b)`.
    Simple,
    /// Gates z, r and the candidate h.
    Gated,
    /// Gates i, o, f and the candidate c.
    LongShort,
}
impl Kind {
    fn gates(self) -> i64 {
        match self {
            Kind::Simple => 1,
            Kind::Gated => 3,
            Kind::LongShort => 4,
        }
    }
    fn activations(self) -> &'static [&'static str] {
        match self {
            Kind::Simple => &["Tanh"],
            Kind::Gated => &["Sigmoid", "Tanh"],
            Kind::LongShort => &["Sigmoid", "Tanh", "Tanh"],
        }
    }
}

/// Weights that states or inputs are multiplied by.
enum Weights {
    /// `[inputs, gates * hidden]`.
    Plain(ValueId),
    /// Bytes of that shape; what is multiplied is quantised for each product.
    Dynamic(DynamicWeights),
}
impl Weights {
    fn times(&self, cx: &mut Context<'_, '_>, x: ValueId) -> OpResult<ValueId> {
        match self {
            Weights::Plain(w) => cx.add(MatMul {}, &[x, *w]),
            Weights::Dynamic(w) => w.times(cx, x),
        }
    }
}

/// The data of one direction for every step.
struct Cell {
    kind: Kind,
    hidden: i64,
    activations: Vec<NamedActivation>,
    clip: Option<f64>,
    /// `R^T`, `[hidden, gates * hidden]`; for a GRU its columns of the gates z and r, and those of the candidate.
    recurrence: Vec<Weights>,
    /// Bias of the recurrence of the candidate of a GRU with `linear_before_reset`.
    candidate_bias: Option<ValueId>,
    linear_before_reset: bool,
    input_forget: bool,
    /// Weights of the cell state in the gates i, o and f.
    peepholes: Option<[ValueId; 3]>,
}
impl Cell {
    fn gate(&self, cx: &mut Context<'_, '_>, x: ValueId, i: i64) -> OpResult<ValueId> {
        range(cx, x, 1, i * self.hidden, (i + 1) * self.hidden)
    }
    fn activate(&self, cx: &mut Context<'_, '_>, i: usize, x: ValueId) -> OpResult<ValueId> {
        let x = match self.clip {
            Some(c) => cx.add(Clip { min: Some(-c), max: Some(c) }, &[x])?,
            None => x,
        };
        self.activations[i].apply(cx, x)
    }
    /// The next hidden state (and cell state) from the input's share of the gates.
    fn step(
        &self,
        cx: &mut Context<'_, '_>,
        x: ValueId,
        h: ValueId,
        c: Option<ValueId>,
    ) -> OpResult<(ValueId, Option<ValueId>)> {
        match (self.kind, c) {
            (Kind::LongShort, Some(c)) => self.long_short(cx, x, h, c).map(|(h, c)| (h, Some(c))),
            (Kind::Gated, _) => Ok((self.gated(cx, x, h)?, None)),
            _ => {
                let past = self.recurrence[0].times(cx, h)?;
                let sum = cx.add(Add {}, &[x, past])?;
                Ok((self.activate(cx, 0, sum)?, None))
            }
        }
    }
    fn long_short(&self, cx: &mut Context<'_, '_>, x: ValueId, h: ValueId, c: ValueId) -> OpResult<(ValueId, ValueId)> {
        let past = self.recurrence[0].times(cx, h)?;
        let sum = cx.add(Add {}, &[x, past])?;
        let look = |cx: &mut Context<'_, '_>, gate: ValueId, which: usize, c: ValueId| match self.peepholes {
            None => Ok(gate),
            Some(p) => {
                let seen = cx.add(Mul {}, &[p[which], c])?;
                cx.add(Add {}, &[gate, seen])
            }
        };
        let i = self.gate(cx, sum, 0)?;
        let i = look(cx, i, 0, c)?;
        let i = self.activate(cx, 0, i)?;
        let f = match self.input_forget {
            true => {
                let one = cx.number(1.0, cx.type_of(i).dtype);
                cx.add(Sub {}, &[one, i])?
            }
            false => {
                let f = self.gate(cx, sum, 2)?;
                let f = look(cx, f, 2, c)?;
                self.activate(cx, 0, f)?
            }
        };
        let candidate = self.gate(cx, sum, 3)?;
        let candidate = self.activate(cx, 1, candidate)?;
        let (kept, new) = (cx.add(Mul {}, &[f, c])?, cx.add(Mul {}, &[i, candidate])?);
        let c = cx.add(Add {}, &[kept, new])?;
        let o = self.gate(cx, sum, 1)?;
        let o = look(cx, o, 1, c)?;
        let o = self.activate(cx, 0, o)?;
        let shown = self.activations[2].apply(cx, c)?;
        Ok((cx.add(Mul {}, &[o, shown])?, c))
    }
    /// `h = (1 - z) h' + z h`, where the candidate h' sees the past through the gate r before or after the recurrence.
    fn gated(&self, cx: &mut Context<'_, '_>, x: ValueId, h: ValueId) -> OpResult<ValueId> {
        let n = self.hidden;
        let (gates, candidate) = (&self.recurrence[0], &self.recurrence[1]);
        let past = gates.times(cx, h)?;
        let input = range(cx, x, 1, 0, 2 * n)?;
        let sum = cx.add(Add {}, &[input, past])?;
        let (z, r) = (self.gate(cx, sum, 0)?, self.gate(cx, sum, 1)?);
        let (z, r) = (self.activate(cx, 0, z)?, self.activate(cx, 0, r)?);
        let add_bias = |cx: &mut Context<'_, '_>, v: ValueId| match self.candidate_bias {
            Some(b) => cx.add(Add {}, &[v, b]),
            None => Ok(v),
        };
        let past = match self.linear_before_reset {
            true => {
                let past = candidate.times(cx, h)?;
                let past = add_bias(cx, past)?;
                cx.add(Mul {}, &[r, past])?
            }
            false => {
                let open = cx.add(Mul {}, &[r, h])?;
                let past = candidate.times(cx, open)?;
                add_bias(cx, past)?
            }
        };
        let input = self.gate(cx, x, 2)?;
        let new = cx.add(Add {}, &[input, past])?;
        let new = self.activate(cx, 1, new)?;
        let one = cx.number(1.0, cx.type_of(z).dtype);
        let rest = cx.add(Sub {}, &[one, z])?;
        let (new, kept) = (cx.add(Mul {}, &[rest, new])?, cx.add(Mul {}, &[z, h])?);
        cx.add(Add {}, &[new, kept])
    }
}

/// Entry `d` of axis 0, without that axis.
fn entry(cx: &mut Context<'_, '_>, x: ValueId, d: i64) -> OpResult<ValueId> {
    let part = range(cx, x, 0, d, d + 1)?;
    cx.add(Squeeze { axes: vec![0] }, &[part])
}

/// What the steps leave: the hidden states of all of them, the last one, and the last cell state of an LSTM.
type Steps = (ValueId, ValueId, Option<ValueId>);

/// A sequence of one direction.
struct Sequence<'c> {
    cell: &'c Cell,
    /// The inputs' share of the gates, `[steps, batch, gates * hidden]`.
    inputs: ValueId,
    steps: Dim,
    backward: bool,
    /// How many steps each entry of the batch has.
    lengths: Option<ValueId>,
}
impl Sequence<'_> {
    fn run(&self, cx: &mut Context<'_, '_>, h: ValueId, c: Option<ValueId>) -> OpResult<Steps> {
        match self.steps.as_const() {
            Some(0) => Err("the sequence has no steps".into()),
            Some(steps) if steps <= UNROLLED => self.unroll(cx, steps, h, c),
            _ => self.repeat(cx, h, c),
        }
    }
    fn unroll(&self, cx: &mut Context<'_, '_>, steps: i64, h: ValueId, c: Option<ValueId>) -> OpResult<Steps> {
        let (mut h, mut c) = (h, c);
        let mut shown = vec![];
        for k in 0..steps {
            let t = if self.backward { steps - 1 - k } else { k };
            let now = entry(cx, self.inputs, t)?;
            let place = self.lengths.map(|lengths| cx.number(t as f64, cx.type_of(lengths).dtype));
            let visible;
            (visible, h, c) = self.step(cx, now, place, h, c)?;
            shown.push(cx.add(Unsqueeze { axes: vec![0] }, &[visible])?);
        }
        if self.backward {
            shown.reverse();
        }
        Ok((cx.add(Concat { axis: 0 }, &shown)?, h, c))
    }
    /// A loop; backwards over the reversed sequence.
    fn repeat(&self, cx: &mut Context<'_, '_>, h: ValueId, c: Option<ValueId>) -> OpResult<Steps> {
        let inputs = if self.backward { reversed(cx, self.inputs)? } else { self.inputs };
        let first: Vec<ValueId> = std::iter::once(h).chain(c).collect();
        let types: Vec<_> = first.iter().map(|&v| cx.type_of(v)).collect();
        let body = cx.b.new_block();
        let index = cx.b.block_arg(body, None, TensorType::new(DType::I64, vec![]));
        let last = self.lengths.filter(|_| self.backward).map(|v| self.last(cx, cx.type_of(v).dtype)).transpose()?;
        let args: Vec<ValueId> = types.into_iter().map(|ty| cx.b.block_arg(body, None, ty)).collect();
        let yields = cx.in_block(body, |cx| {
            let now = cx.add(Gather { axis: 0 }, &[inputs, index])?;
            let place = match self.lengths {
                Some(lengths) => Some(place(cx, index, last, cx.type_of(lengths).dtype)?),
                None => None,
            };
            let (visible, h, c) = self.step(cx, now, place, args[0], args.get(1).copied())?;
            Ok(std::iter::once(h).chain(c).chain([visible]).collect())
        })?;
        cx.b.set_block_results(body, yields);
        let op = Loop { trips: Some(self.steps.clone()), ..Loop::default() };
        let operands = [None, None].into_iter().chain(first.iter().map(|&v| Some(v))).collect();
        let results = cx.b.add_multi(op, operands, vec![body]).map_err(|e| e.why)?;
        let shown = results[first.len()];
        let shown = if self.backward { reversed(cx, shown)? } else { shown };
        Ok((shown, results[0], c.map(|_| results[1])))
    }
    /// The place in the sequence of its last step.
    fn last(&self, cx: &mut Context<'_, '_>, dtype: DType) -> OpResult<ValueId> {
        let steps = cx.add(Shape { start: 0, end: Some(1) }, &[self.inputs])?;
        let steps = cx.add(Squeeze { axes: vec![0] }, &[steps])?;
        let (steps, one) = (cx.cast(steps, dtype)?, cx.number(1.0, dtype));
        cx.add(Sub {}, &[steps, one])
    }
    /// The output of a step (zero beyond the end of an entry's sequence), and the next states (then unchanged).
    fn step(
        &self,
        cx: &mut Context<'_, '_>,
        now: ValueId,
        place: Option<ValueId>,
        h: ValueId,
        c: Option<ValueId>,
    ) -> OpResult<Steps> {
        let (next, next_c) = self.cell.step(cx, now, h, c)?;
        let (Some(lengths), Some(place)) = (self.lengths, place) else { return Ok((next, next, next_c)) };
        let inside = cx.add(Greater {}, &[lengths, place])?;
        let inside = cx.add(Unsqueeze { axes: vec![1] }, &[inside])?;
        let zero = cx.number(0.0, cx.type_of(next).dtype);
        let visible = cx.add(Where {}, &[inside, next, zero])?;
        let kept = cx.add(Where {}, &[inside, next, h])?;
        let kept_c = match (next_c, c) {
            (Some(new), Some(old)) => Some(cx.add(Where {}, &[inside, new, old])?),
            _ => None,
        };
        Ok((visible, kept, kept_c))
    }
}

/// Axis 0 backwards.
fn reversed(cx: &mut Context<'_, '_>, x: ValueId) -> OpResult<ValueId> {
    let (starts, ends) = (vec![Int::new(-1)], vec![Int::new(-i64::from(i32::MAX))]);
    cx.add(Slice { starts, ends, axes: vec![0], steps: vec![-1], dims: vec![] }, &[x])
}

/// The place in a sequence of step `index`; `last` is that of its last step, where it is read backwards.
fn place(cx: &mut Context<'_, '_>, index: ValueId, last: Option<ValueId>, dtype: DType) -> OpResult<ValueId> {
    let index = cx.cast(index, dtype)?;
    match last {
        Some(last) => cx.add(Sub {}, &[last, index]),
        None => Ok(index),
    }
}

/// Transposes where the model has the batch first.
fn swap(cx: &mut Context<'_, '_>, v: ValueId, perm: &[usize]) -> OpResult<ValueId> {
    match cx.attrs.int("layout").unwrap_or(0) != 0 {
        true => cx.add(Transpose { perm: perm.to_vec() }, &[v]),
        false => Ok(v),
    }
}

fn directions(cx: &Context<'_, '_>) -> OpResult<&'static [bool]> {
    match cx.attrs.str("direction").unwrap_or("forward") {
        "forward" => Ok(&[false]),
        "reverse" => Ok(&[true]),
        "bidirectional" => Ok(&[false, true]),
        other => Err(format!("direction `{other}` is unknown").into()),
    }
}

/// The first state of direction `d`: operand `i`, else zeros.
fn first_state(cx: &mut Context<'_, '_>, i: usize, d: i64, x: ValueId, hidden: i64) -> OpResult<ValueId> {
    if let Some(v) = cx.opt(i) {
        let v = swap(cx, v, &[1, 0, 2])?;
        return entry(cx, v, d);
    }
    let ty = cx.type_of(x);
    let shape = vec![ty.shape[1].clone(), Dim::new(hidden)];
    cx.add(Full { shape, value: 0.0, dtype: ty.dtype, dims: vec![] }, &[])
}

/// The weights of direction `d`, for inputs and for states.
type PrepareWeights<'p, 'a, 'm> = &'p dyn Fn(&mut Context<'a, 'm>, i64) -> OpResult<[Weights; 2]>;

fn import(cx: &mut Context<'_, '_>, kind: Kind) -> OpResult<Vec<ValueId>> {
    let hidden = hidden_size(cx, 2)?;
    let transposed = |cx: &mut Context<'_, '_>, i: usize, d: i64| {
        let v = cx.input(i)?;
        let v = entry(cx, v, d)?;
        let v = cx.add(Transpose { perm: vec![1, 0] }, &[v])?;
        check_width(&cx.type_of(v).shape[1], kind.gates() * hidden)?;
        Ok::<_, Fault>(v)
    };
    import_layers(cx, kind, hidden, &|cx, d| {
        Ok([Weights::Plain(transposed(cx, 1, d)?), Weights::Plain(transposed(cx, 2, d)?)])
    })
}

fn check_width(width: &Dim, gates: i64) -> OpResult<()> {
    match width.as_const() {
        Some(n) if n != gates => Err(format!("weights and recurrence need {gates} rows, not {n}").into()),
        _ => Ok(()),
    }
}

/// The hidden size: the last axis of the recurrence, or axis 1 of one that is stored transposed.
fn hidden_size(cx: &Context<'_, '_>, axis: usize) -> OpResult<i64> {
    if cx.ty(0)?.rank() != 3 || cx.ty(1)?.rank() != 3 || cx.ty(2)?.rank() != 3 {
        return Err("data, weights and recurrence must be of rank 3".into());
    }
    let recurrence = cx.ty(2)?.shape;
    let hidden = recurrence[axis]
        .as_const()
        .ok_or_else(|| Fault::unsupported("the hidden size is not known at compile time"))?;
    match cx.attrs.int("hidden_size") {
        Some(h) if h != hidden => Err(format!("hidden_size does not match the recurrence {recurrence:?}").into()),
        _ => Ok(hidden),
    }
}

/// An LSTM whose weights are bytes, `[directions, inputs, 4 * hidden]`, and whose inputs and states are quantised when
/// they meet them.
fn import_dynamic_lstm(cx: &mut Context<'_, '_>) -> OpResult<Vec<ValueId>> {
    let known =
        ["activation_alpha", "activation_beta", "activations", "clip", "direction", "hidden_size", "input_forget"];
    cx.only_attrs(&known)?;
    let hidden = hidden_size(cx, 1)?;
    let of = |cx: &mut Context<'_, '_>, i: usize, scale: usize, d: i64| {
        let operands = [cx.input(i)?, cx.input(scale)?];
        let zero = cx.opt(scale + 1);
        let mut part = |v: ValueId| entry(cx, v, d);
        let w =
            DynamicWeights { bytes: part(operands[0])?, scale: part(operands[1])?, zero: zero.map(part).transpose()? };
        check_width(&cx.type_of(w.bytes).shape[1], Kind::LongShort.gates() * hidden)?;
        Ok::<_, Fault>(Weights::Dynamic(w))
    };
    import_layers(cx, Kind::LongShort, hidden, &|cx, d| Ok([of(cx, 1, 8, d)?, of(cx, 2, 10, d)?]))
}

fn import_layers<'a, 'm>(
    cx: &mut Context<'a, 'm>,
    kind: Kind,
    hidden: i64,
    weights: PrepareWeights<'_, 'a, 'm>,
) -> OpResult<Vec<ValueId>> {
    let x = cx.input(0)?;
    let x = swap(cx, x, &[1, 0, 2])?;
    let directions = directions(cx)?;
    let activations = NamedActivation::list(cx, kind.activations(), directions.len())?;
    let per = kind.activations().len();
    let mut all = [Vec::new(), Vec::new(), Vec::new()];
    for (d, &backward) in directions.iter().enumerate() {
        let of = activations[d * per..(d + 1) * per].to_vec();
        let d = d as i64;
        let weights = weights(cx, d)?;
        let (inputs, cell) = prepare(cx, (kind, hidden), x, d, weights, of)?;
        let h = first_state(cx, 5, d, x, hidden)?;
        let c = match kind {
            Kind::LongShort => Some(first_state(cx, 6, d, x, hidden)?),
            _ => None,
        };
        let steps = cx.type_of(x).shape[0].clone();
        let sequence = Sequence { cell: &cell, inputs, steps, backward, lengths: cx.opt(4) };
        let (whole, h, c) = sequence.run(cx, h, c)?;
        all[0].push(cx.add(Unsqueeze { axes: vec![1] }, &[whole])?);
        all[1].push(cx.add(Unsqueeze { axes: vec![0] }, &[h])?);
        if let Some(c) = c {
            all[2].push(cx.add(Unsqueeze { axes: vec![0] }, &[c])?);
        }
    }
    let whole = cx.add(Concat { axis: 1 }, &all[0])?;
    let mut out = vec![swap(cx, whole, &[2, 0, 1, 3])?];
    for list in all[1..].iter().filter(|l| !l.is_empty()) {
        let state = cx.add(Concat { axis: 0 }, list)?;
        out.push(swap(cx, state, &[1, 0, 2])?);
    }
    Ok(out)
}

/// The inputs' share of the gates of all steps, and the cell of direction `d`.
fn prepare(
    cx: &mut Context<'_, '_>,
    (kind, hidden): (Kind, i64),
    x: ValueId,
    d: i64,
    [w, recurrence]: [Weights; 2],
    activations: Vec<NamedActivation>,
) -> OpResult<(ValueId, Cell)> {
    let width = kind.gates() * hidden;
    let mut inputs = w.times(cx, x)?;
    let linear_before_reset = cx.attrs.int("linear_before_reset").unwrap_or(0) != 0;
    let mut candidate_bias = None;
    if let Some(bias) = cx.opt(3) {
        let bias = entry(cx, bias, d)?;
        let (input, past) = (range(cx, bias, 0, 0, width)?, range(cx, bias, 0, width, 2 * width)?);
        inputs = cx.add(Add {}, &[inputs, input])?;
        let mut past = past;
        if kind == Kind::Gated {
            candidate_bias = Some(range(cx, past, 0, 2 * hidden, 3 * hidden)?);
            let zeros = Full { shape: vec![Int::new(hidden)], value: 0.0, dtype: cx.type_of(bias).dtype, dims: vec![] };
            let parts = [range(cx, past, 0, 0, 2 * hidden)?, cx.add(zeros, &[])?];
            past = cx.add(Concat { axis: 0 }, &parts)?;
        }
        inputs = cx.add(Add {}, &[inputs, past])?;
    }
    let peepholes = match cx.opt(7) {
        Some(p) if kind == Kind::LongShort => {
            let p = entry(cx, p, d)?;
            let part = |cx: &mut Context<'_, '_>, i: i64| range(cx, p, 0, i * hidden, (i + 1) * hidden);
            Some([part(cx, 0)?, part(cx, 1)?, part(cx, 2)?])
        }
        _ => None,
    };
    let recurrence = match recurrence {
        Weights::Plain(r) if kind == Kind::Gated => {
            let parts = [range(cx, r, 1, 0, 2 * hidden)?, range(cx, r, 1, 2 * hidden, width)?];
            parts.map(Weights::Plain).into()
        }
        other => vec![other],
    };
    let cell = Cell {
        kind,
        hidden,
        activations,
        clip: cx.attrs.float("clip").filter(|&c| c > 0.0),
        recurrence,
        candidate_bias,
        linear_before_reset,
        input_forget: cx.attrs.int("input_forget").unwrap_or(0) != 0,
        peepholes,
    };
    Ok((inputs, cell))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::onnx::OnnxAttr;
    use crate::ops::testing::{assert_close, random, run, run_onnx};
    use crate::tensor::Tensor;

    fn flipped(x: &Tensor) -> Tensor {
        let (n, row) = (x.shape()[0], x.len() / x.shape()[0]);
        let v = x.to_f64_vec();
        Tensor::from_f64(
            x.dtype(),
            x.shape().to_vec(),
            (0..n).rev().flat_map(|i| v[i * row..(i + 1) * row].to_vec()).collect::<Vec<_>>(),
        )
    }

    #[test]
    fn a_simple_cell_by_hand() {
        let x = Tensor::from_vec(vec![2, 1, 1], vec![0.5f32, -1.0]);
        let (w, r) = (Tensor::from_vec(vec![1, 1, 1], vec![2.0f32]), Tensor::from_vec(vec![1, 1, 1], vec![-0.5f32]));
        let got = run_onnx(("RNN", 14), &[], &[Some(&x), Some(&w), Some(&r)], 2).unwrap();
        let first = 1f64.tanh();
        let second = (-2.0 - 0.5 * first).tanh();
        assert!(got[0].to_f64_vec().iter().zip([first, second]).all(|(g, w)| (g - w).abs() < 1e-6));
        assert_eq!(got[1].to_f64_vec()[0], got[0].to_f64_vec()[1]);
    }

    #[test]
    fn a_loop_goes_on_where_the_unrolled_steps_end() {
        for (op, gates) in [("RNN", 1), ("GRU", 3), ("LSTM", 4)] {
            let (x, w, r) = (random(&[12, 2, 3], 1), random(&[2, gates * 5, 3], 2), random(&[2, gates * 5, 5], 3));
            let part = |from: i64, to: i64| {
                run(Slice { starts: vec![Int::new(from)], ends: vec![Int::new(to)], ..Slice::default() }, &[&x])
            };
            let states = if op == "LSTM" { 3 } else { 2 };
            for (direction, first, second) in
                [("forward", part(0, 6), part(6, 12)), ("reverse", part(6, 12), part(0, 6))]
            {
                let attrs = [("direction", OnnxAttr::Str(direction.into()))];
                let weights = [&w, &r].map(|t| {
                    run(Slice { starts: vec![Int::new(0)], ends: vec![Int::new(1)], ..Slice::default() }, &[t])
                });
                let of = |x: &Tensor, h: Option<&Tensor>, c: Option<&Tensor>| {
                    let operands = [Some(x), Some(&weights[0]), Some(&weights[1]), None, None, h, c];
                    run_onnx((op, 14), &attrs, &operands[..if op == "LSTM" { 7 } else { 6 }], states).unwrap()
                };
                let whole = of(&x, None, None);
                let begun = of(&first, None, None);
                let ended = of(&second, Some(&begun[1]), begun.get(2));
                for (got, want) in whole[1..].iter().zip(&ended[1..]) {
                    assert_close(got, want, 1e-6);
                }
            }
        }
    }

    #[test]
    fn backward_is_forward_over_the_reversed_sequence() {
        for (op, gates, steps) in
            [("RNN", 1, 4), ("GRU", 3, 4), ("LSTM", 4, 4), ("RNN", 1, 9), ("GRU", 3, 9), ("LSTM", 4, 9)]
        {
            let (x, w, r) = (random(&[steps, 2, 3], 1), random(&[1, gates * 5, 3], 2), random(&[1, gates * 5, 5], 3));
            let of = |x: &Tensor, direction: &str| {
                let attrs = [("direction", OnnxAttr::Str(direction.into()))];
                run_onnx((op, 14), &attrs, &[Some(x), Some(&w), Some(&r)], 2).unwrap()
            };
            let (forward, backward) = (of(&flipped(&x), "forward"), of(&x, "reverse"));
            assert_close(&flipped(&backward[0]), &forward[0], 1e-6);
            assert_close(&backward[1], &forward[1], 1e-6);
        }
    }

    #[test]
    fn steps_beyond_a_sequence_change_nothing() {
        for (steps, direction) in [(4, "forward"), (11, "forward"), (4, "reverse"), (11, "reverse")] {
            steps_beyond(steps, direction);
        }
    }

    fn steps_beyond(steps: usize, direction: &str) {
        let attrs = [("direction", OnnxAttr::Str(direction.into()))];
        let (x, w, r) = (random(&[steps, 1, 2], 1), random(&[1, 12, 2], 2), random(&[1, 12, 3], 3));
        let lengths = Tensor::from_vec(vec![1], vec![2i32]);
        let cut = run(
            super::super::slice::Slice { starts: vec![Int::new(0)], ends: vec![Int::new(2)], ..Default::default() },
            &[&x],
        );
        let whole = run_onnx(("LSTM", 14), &attrs, &[Some(&x), Some(&w), Some(&r), None, Some(&lengths)], 3).unwrap();
        let short = run_onnx(("LSTM", 14), &attrs, &[Some(&cut), Some(&w), Some(&r)], 3).unwrap();
        assert_close(&whole[1], &short[1], 1e-6);
        assert_close(&whole[2], &short[2], 1e-6);
        assert!(whole[0].to_f64_vec()[6..].iter().all(|&v| v == 0.0));
    }
}
