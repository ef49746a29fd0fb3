//! Pooling by a norm.

use super::data_layout::data_layout_rule;
use super::pool::{Scan, import_window, window_spec};
use super::window::{AutoPad, DataLayout, Window, WindowSpec, export_channels_first};
use super::{InferContext, LayoutRule, Op, OpResult};
use crate::attr_struct;
use crate::dtype::DType;
use crate::graph::{TensorType, ValueId};
use crate::int::Int;
use crate::ops::onnx::{ExportContext, ImportContext, OnnxAttr, OnnxImport};
use crate::te::ComputeContext;
use crate::tir::{BinaryOp, Combiner, Expr, UnaryOp};

attr_struct! {
    /// `(sum |x|^p)^(1/p)` of each window.
    pub struct LpPool("lp_pool") {
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
        /// Order of the norm.
        pub p: i64 = 2,
        /// Layout of data and result.
        pub layout: DataLayout = DataLayout::Nchw,
    }
}
data_layout_rule!(LpPool);
window_spec!(LpPool);

impl Op for LpPool {
    fn arity(&self) -> (usize, usize) {
        (1, 1)
    }
    fn infer(&self, cx: &InferContext<'_>) -> OpResult<Vec<TensorType>> {
        let out = self.infer_data(cx)?;
        if !out.dtype.is_float() || self.p < 1 {
            return Err(
                format!("data is {} and p is {}: needs a float type and p of at least 1", out.dtype, self.p).into()
            );
        }
        Ok(vec![out])
    }
    fn compute(&self, cx: &mut ComputeContext<'_>) -> OpResult<()> {
        let xs = cx.shape(cx.require(0)?);
        let scan = Scan::new(cx, self.layout, self.window(&xs))?;
        let out = cx.output_type(0).clone();
        let acc = out.dtype.accumulator();
        let sum = cx.reduce("sum", &out.shape, acc, &scan.window.kernel, Combiner::Sum, |o, r| {
            let (at, conds) = scan.tap(o, r);
            let x = Expr::load(scan.data, at).cast(out.dtype, acc);
            Expr::guarded(conds, power(x, self.p, acc), Expr::constant(0.0, acc))
        });
        let norm = cx.compute("", &out.shape, out.dtype, |o| {
            root(Expr::load(sum, o.to_vec()), self.p, acc).cast(acc, out.dtype)
        });
        cx.output(0, norm);
        Ok(())
    }
    fn layout(&self) -> Option<&dyn LayoutRule> {
        Some(self)
    }
    fn layout_name(&self) -> Option<&'static str> {
        Some(self.layout.title())
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

fn import_lp_pool(cx: &mut ImportContext<'_, '_>) -> OpResult<Vec<ValueId>> {
    let (spec, kernel) = import_window(cx)?;
    let op = LpPool {
        kernel,
        strides: spec.strides,
        dilations: spec.dilations,
        pads: spec.pads,
        auto_pad: spec.auto_pad,
        ceil_mode: spec.ceil_mode,
        p: cx.attrs.int("p").unwrap_or(2),
        layout: DataLayout::Nchw,
    };
    let inputs = cx.inputs.clone();
    cx.add_multi(op, inputs)
}

/// ONNX importers of this family.
pub const ONNX: &[OnnxImport] = &[OnnxImport { op_type: "LpPool", domain: "", since: 2, import: import_lp_pool }];
