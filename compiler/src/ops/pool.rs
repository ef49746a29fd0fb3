//! Pooling over windows: the largest element, the mean, or a norm.

use super::data_layout::data_layout_rule;
use super::window::{AutoPad, DataLayout, Window, WindowSpec, export_channels_first};
use super::{Homogeneity, InferContext, LayoutRule, Op, OpResult};
use crate::attr_struct;
use crate::dtype::DType;
use crate::graph::{TensorType, ValueId};
use crate::int::{Int, flatten_index, product};
use crate::ops::onnx::{ExportContext, ImportContext, OnnxAttr, OnnxImport};
use crate::te::ComputeContext;
use crate::tir::{BinaryOp, BufferId, Combiner, Cond, Expr, UnaryOp};

/// Declares a pool: the attributes of its window, those of its own, the layout, and what follows from the window.
macro_rules! pools {
    ($($(#[$doc:meta])* $name:ident($text:literal) { $($(#[$about:meta])* $attr:ident: $ty:ty = $default:expr),* })*) => { $(
        attr_struct! {
            $(#[$doc])*
            pub struct $name($text) {
                /// Size of the window along the spatial axes.
                pub kernel: Vec<i64> = vec![],
                /// Steps; empty for 1.
                pub strides: Vec<i64> = vec![],
                /// Distances of the window's elements; empty for 1.
                pub dilations: Vec<i64> = vec![],
                /// Padding: all beginnings, then all ends; empty for 0.
                pub pads: Vec<i64> = vec![],
                /// Automatic padding where sizes are symbolic.
                pub auto_pad: AutoPad = AutoPad::NotSet,
                /// Rounds the number of windows up.
                pub ceil_mode: bool = false,
                $($(#[$about])* pub $attr: $ty = $default,)*
                /// Layout of data and results.
                pub layout: DataLayout = DataLayout::Nchw,
            }
        }
        data_layout_rule!($name);
        impl $name {
            /// The window attributes.
            pub fn spec(&self) -> WindowSpec {
                WindowSpec {
                    strides: self.strides.clone(),
                    dilations: self.dilations.clone(),
                    pads: self.pads.clone(),
                    auto_pad: self.auto_pad,
                    ceil_mode: self.ceil_mode,
                }
            }
            /// The window over data of shape `data`.
            ///
            /// # Errors
            /// When the attributes do not fit the shape.
            pub fn window(&self, data: &[Int]) -> OpResult<Window> {
                let kernel: Vec<Int> = self.kernel.iter().map(|&k| Int::new(k)).collect();
                Window::new(&self.spec(), &kernel, self.layout.spatial(data))
            }
            fn infer_data(&self, x: &TensorType) -> OpResult<TensorType> {
                self.layout.check(x)?;
                let spatial = self.window(&x.shape)?.output(self.layout.spatial(&x.shape))?;
                Ok(TensorType::new(x.dtype, self.layout.with_spatial(&x.shape, spatial)))
            }
            fn export_as(
                &self,
                cx: &mut ExportContext<'_>,
                name: &str,
                more: Vec<(&'static str, OnnxAttr)>,
            ) -> OpResult<()> {
                let mut attrs = vec![("kernel_shape", OnnxAttr::Ints(self.kernel.clone()))];
                let unit = self.dilations.iter().all(|&d| d == 1);
                // The opset that is written knows dilations of no pool but the maximum and the norm.
                attrs.extend(self.spec().export(self.kernel.len()).into_iter().filter(|a| a.0 != "dilations" || !unit));
                attrs.extend(more);
                export_channels_first(cx, self.layout, name, attrs)
            }
            /// The pool with the window that an ONNX node says.
            fn import_window(cx: &ImportContext<'_, '_>) -> OpResult<$name> {
                let x = cx.ty(0)?;
                DataLayout::Nchw.check(&x)?;
                let kernel = cx.attrs.ints("kernel_shape").ok_or("attribute kernel_shape is missing")?.to_vec();
                let mut spec = WindowSpec::import(cx)?;
                let taps: Vec<Int> = kernel.iter().map(|&k| Int::new(k)).collect();
                spec.resolve(&taps, &x.shape[2..])?;
                let WindowSpec { strides, dilations, pads, auto_pad, ceil_mode } = spec;
                Ok($name { kernel, strides, dilations, pads, auto_pad, ceil_mode, ..$name::default() })
            }
        }
    )* };
}

pools! {
    /// Largest element of each window; with `indices` also its place.
    MaxPool("max_pool") {
        /// Also gives the position of each maximum in the flattened NCHW data, as i64.
        indices: bool = false,
        /// Those positions count spatial axes first-axis-fastest.
        column_major: bool = false
    }
    /// Mean of each window.
    AveragePool("average_pool") {
        /// Padding counts as elements of value 0.
        count_include_pad: bool = false
    }
    /// `(sum |x|^p)^(1/p)` of each window.
    LpPool("lp_pool") {
        /// Order of the norm.
        p: i64 = 2
    }
}

/// A window over the data operand, ready to be reduced.
struct WindowScan {
    data: BufferId,
    layout: DataLayout,
    window: Window,
    input: Vec<Int>,
    steps: Vec<Int>,
}
impl WindowScan {
    /// For the first operand and result of the node.
    fn new(cx: &ComputeContext<'_>, layout: DataLayout, window: Window) -> OpResult<WindowScan> {
        let data = cx.require(0)?;
        let input = layout.spatial(&cx.shape(data)).to_vec();
        let steps = layout.spatial(&cx.output_type(0).shape).to_vec();
        Ok(WindowScan { data, layout, window, input, steps })
    }
    /// Combines `value(o, at, x)` of each element `x`, at `at` of the data, in the window of result `o`; a tap outside
    /// of the data counts as `outside`.
    fn reduce(
        &self,
        cx: &mut ComputeContext<'_>,
        label: &str,
        combiner: Combiner,
        (outside, dtype): (f64, DType),
        value: impl Fn(&[Int], &[Int], Expr) -> Expr,
    ) -> BufferId {
        let (shape, outside) = (cx.output_type(0).shape.clone(), Expr::constant(outside, dtype));
        cx.reduce(label, &shape, dtype, &self.window.kernel, combiner, |o, r| {
            let (at, conds) = self.tap(o, r);
            Expr::guarded(conds, value(o, &at, Expr::load(self.data, at.clone())), outside.clone())
        })
    }
    /// Index of tap `r` of the window of result `o`, and when it lies inside the data.
    fn tap(&self, o: &[Int], r: &[Int]) -> (Vec<Int>, Vec<Cond>) {
        let mut conds = vec![];
        let at = (0..self.input.len())
            .map(|d| {
                let step = &self.layout.spatial(o)[d];
                self.window.position(d, step, &r[d], &self.input[d], &self.steps[d], &mut conds)
            })
            .collect();
        (self.layout.with_spatial(o, at), conds)
    }
}

impl Op for MaxPool {
    fn arity(&self) -> (usize, usize) {
        (1, 1)
    }
    fn num_results(&self) -> usize {
        1 + self.indices as usize
    }
    fn infer(&self, cx: &InferContext<'_>) -> OpResult<Vec<TensorType>> {
        let values = self.infer_data(cx.require(0)?)?;
        let places = TensorType::new(DType::I64, values.shape.clone());
        Ok(if self.indices { vec![values, places] } else { vec![values] })
    }
    fn compute(&self, cx: &mut ComputeContext<'_>) -> OpResult<()> {
        let (xs, out) = (cx.shape(cx.require(0)?), cx.output_type(0).clone());
        let scan = WindowScan::new(cx, self.layout, self.window(&xs)?)?;
        // Where places are asked for, no padding is larger than an element: there is one in each window, which has a
        // place.
        let outside = match self.indices && out.dtype.is_float() {
            true => f64::NEG_INFINITY,
            false => out.dtype.lowest(),
        };
        let best = scan.reduce(cx, "", Combiner::Max, (outside, out.dtype), |_, _, x| x);
        cx.output(0, best);
        if self.indices {
            let none = f64::from(i32::MAX);
            let first = scan.reduce(cx, "first", Combiner::Min, (none, DType::I32), |o, at, value| {
                let mut equal = Expr::binary(BinaryOp::Eq, value.clone(), Expr::load(best, o.to_vec()));
                if out.dtype.is_float() {
                    equal = Expr::binary(BinaryOp::Or, equal, Expr::unary(UnaryOp::IsNan, value));
                }
                let place = Expr::Index(self.place(at, &xs), DType::I32);
                Expr::select(equal, place, Expr::constant(none, DType::I32))
            });
            let places = cx.compute("indices", &out.shape, DType::I64, |o| {
                Expr::load(first, o.to_vec()).cast(DType::I32, DType::I64)
            });
            cx.output(1, places);
        }
        Ok(())
    }
    fn positions(&self, result: usize, operands: &[Option<&TensorType>]) -> Option<Int> {
        (result == 1).then_some(operands.first()?.as_ref()?.numel())
    }
    fn homogeneity(&self) -> Homogeneity {
        if self.indices { Homogeneity::None } else { Homogeneity::Positive }
    }
    fn layout(&self) -> Option<&dyn LayoutRule> {
        Some(self)
    }
    fn export(&self, cx: &mut ExportContext<'_>) -> OpResult<()> {
        let more = vec![
            ("ceil_mode", OnnxAttr::Int(self.ceil_mode as i64)),
            ("storage_order", OnnxAttr::Int(self.column_major as i64)),
        ];
        self.export_as(cx, "MaxPool", more)
    }
}
impl MaxPool {
    /// Position of index `at` of data of shape `data` in the flattened NCHW data.
    fn place(&self, at: &[Int], data: &[Int]) -> Int {
        let (mut spatial, mut sizes) = (self.layout.spatial(at).to_vec(), self.layout.spatial(data).to_vec());
        let area = product(&sizes);
        if self.column_major {
            spatial.reverse();
            sizes.reverse();
        }
        (at[0].clone() * self.layout.channels(data) + self.layout.channel(at)) * area + flatten_index(&spatial, &sizes)
    }
}

impl Op for AveragePool {
    fn arity(&self) -> (usize, usize) {
        (1, 1)
    }
    fn infer(&self, cx: &InferContext<'_>) -> OpResult<Vec<TensorType>> {
        Ok(vec![self.infer_data(cx.float_data()?)?])
    }
    fn compute(&self, cx: &mut ComputeContext<'_>) -> OpResult<()> {
        let (xs, out) = (cx.shape(cx.require(0)?), cx.output_type(0).clone());
        let scan = WindowScan::new(cx, self.layout, self.window(&xs)?)?;
        let acc = out.dtype.accumulator();
        let sum = scan.reduce(cx, "sum", Combiner::Sum, (0.0, acc), |_, _, x| x.cast(out.dtype, acc));
        let mean = cx.compute("", &out.shape, out.dtype, |o| {
            let steps = self.layout.spatial(o);
            let counts = (0..steps.len()).map(|d| self.count(&scan, d, &steps[d]));
            let (fixed, open): (Vec<Int>, Vec<Int>) = counts.partition(|n| n.as_const().is_some());
            let fixed = fixed.iter().filter_map(Int::as_const).product::<i64>();
            let sum = Expr::load(sum, o.to_vec());
            // A product of numbers by axis, not of an index: each of them differs along one axis alone.
            let count = open.into_iter().map(|n| Expr::Index(n, acc)).reduce(|a, b| a * b);
            let mean = match count {
                None => sum * Expr::constant(1.0 / fixed as f64, acc),
                Some(count) if fixed == 1 => sum / count,
                Some(count) => sum / (count * Expr::constant(fixed as f64, acc)),
            };
            mean.cast(acc, out.dtype)
        });
        cx.output(0, mean);
        Ok(())
    }
    fn homogeneity(&self) -> Homogeneity {
        Homogeneity::Full
    }
    fn layout(&self) -> Option<&dyn LayoutRule> {
        Some(self)
    }
    fn export(&self, cx: &mut ExportContext<'_>) -> OpResult<()> {
        let more = vec![
            ("ceil_mode", OnnxAttr::Int(self.ceil_mode as i64)),
            ("count_include_pad", OnnxAttr::Int(self.count_include_pad as i64)),
        ];
        self.export_as(cx, "AveragePool", more)
    }
}
impl AveragePool {
    /// Number of elements that count along spatial axis `d` of window `step`: all taps if none can be outside of the
    /// data.
    fn count(&self, scan: &WindowScan, d: usize, step: &Int) -> Int {
        let w = &scan.window;
        let mut conds = vec![];
        w.position(d, step, &Int::new(0), &scan.input[d], &scan.steps[d], &mut conds);
        if conds.is_empty() {
            return w.kernel[d].clone();
        }
        if !self.count_include_pad {
            return w.taps_between(d, step, &Int::new(0), &scan.input[d]);
        }
        // Rounding up may let the last window leave even the padding; those taps never count.
        if !self.ceil_mode {
            return w.kernel[d].clone();
        }
        let low = Int::new(0) - &w.begin[d];
        w.taps_between(d, step, &low, &(scan.input[d].clone() + &w.end[d]))
    }
}

impl Op for LpPool {
    fn arity(&self) -> (usize, usize) {
        (1, 1)
    }
    fn infer(&self, cx: &InferContext<'_>) -> OpResult<Vec<TensorType>> {
        let x = cx.require(0)?;
        check_norm(x.dtype, self.p)?;
        Ok(vec![self.infer_data(x)?])
    }
    fn compute(&self, cx: &mut ComputeContext<'_>) -> OpResult<()> {
        let (xs, out) = (cx.shape(cx.require(0)?), cx.output_type(0).clone());
        let scan = WindowScan::new(cx, self.layout, self.window(&xs)?)?;
        let acc = out.dtype.accumulator();
        let terms = |_: &[Int], _: &[Int], x: Expr| power(x.cast(out.dtype, acc), self.p, acc);
        let sum = scan.reduce(cx, "sum", Combiner::Sum, (0.0, acc), terms);
        let norm = cx.compute("", &out.shape, out.dtype, |o| {
            root(Expr::load(sum, o.to_vec()), self.p, acc).cast(acc, out.dtype)
        });
        cx.output(0, norm);
        Ok(())
    }
    fn layout(&self) -> Option<&dyn LayoutRule> {
        Some(self)
    }
    fn export(&self, cx: &mut ExportContext<'_>) -> OpResult<()> {
        self.export_as(cx, "LpPool", vec![("p", OnnxAttr::Int(self.p))])
    }
}

/// `|x|^p`.
pub(super) fn power(x: Expr, p: i64, dtype: DType) -> Expr {
    match p {
        1 => Expr::unary(UnaryOp::Abs, x),
        2 => x.clone() * x,
        _ => Expr::binary(BinaryOp::Pow, Expr::unary(UnaryOp::Abs, x), Expr::constant(p as f64, dtype)),
    }
}

/// `x^(1/p)`.
pub(super) fn root(x: Expr, p: i64, dtype: DType) -> Expr {
    match p {
        1 => x,
        2 => Expr::unary(UnaryOp::Sqrt, x),
        _ => Expr::binary(BinaryOp::Pow, x, Expr::constant(1.0 / p as f64, dtype)),
    }
}

/// Refuses a norm of other than floats, or of an order below 1.
pub(super) fn check_norm(dtype: DType, p: i64) -> OpResult<()> {
    if dtype.is_float() && p >= 1 {
        return Ok(());
    }
    Err(format!("data is {dtype} and p is {p}: needs a float type and p of at least 1").into())
}

fn import_max_pool(cx: &mut ImportContext<'_, '_>) -> OpResult<Vec<ValueId>> {
    let column_major = cx.attrs.int("storage_order").unwrap_or(0) != 0;
    let op = MaxPool { indices: cx.num_outputs > 1, column_major, ..MaxPool::import_window(cx)? };
    let inputs = cx.inputs.clone();
    cx.add_multi(op, inputs)
}

pub(super) fn import_average_pool(cx: &mut ImportContext<'_, '_>) -> OpResult<Vec<ValueId>> {
    let count_include_pad = cx.attrs.int("count_include_pad").unwrap_or(0) != 0;
    let op = AveragePool { count_include_pad, ..AveragePool::import_window(cx)? };
    let inputs = cx.inputs.clone();
    cx.add_multi(op, inputs)
}

fn import_lp_pool(cx: &mut ImportContext<'_, '_>) -> OpResult<Vec<ValueId>> {
    let op = LpPool { p: cx.attrs.int("p").unwrap_or(2), ..LpPool::import_window(cx)? };
    let inputs = cx.inputs.clone();
    cx.add_multi(op, inputs)
}

/// ONNX importers of this family.
pub const ONNX: &[OnnxImport] = &[
    OnnxImport { op_type: "MaxPool", domain: "", since: 1, import: import_max_pool },
    OnnxImport { op_type: "AveragePool", domain: "", since: 1, import: import_average_pool },
    OnnxImport { op_type: "LpPool", domain: "", since: 2, import: import_lp_pool },
];

#[cfg(test)]
mod tests;
