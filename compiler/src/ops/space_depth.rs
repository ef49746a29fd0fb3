//! Moves blocks of the spatial axes into channels and back.

use super::window::{DataLayout, export_channels_first};
use super::{InferContext, LayoutRule, Op, OpRef, OpResult};
use crate::graph::{TensorType, ValueId};
use crate::int::{Dim, Int, simplify};
use crate::ops::onnx::{ExportContext, ImportContext, OnnxAttr, OnnxImport};
use crate::ops::reshape::{divide_dims, loop_bounds};
use crate::te::ComputeContext;
use crate::tir::Expr;
use crate::{attr_enum, attr_struct};

attr_enum! {
    /// Order of the channels of a block.
    pub enum BlockOrder {
        /// The position in the block is the outer part of the channel.
        Dcr = "dcr",
        /// The position in the block is the inner part of the channel.
        Crd = "crd",
    }
}

attr_struct! {
    /// Each group of `block * block` channels becomes a block of space.
    pub struct DepthToSpace("depth_to_space") {
        /// Height and width of a block.
        pub block: i64 = 1,
        /// Order of the channels.
        pub order: BlockOrder = BlockOrder::Dcr,
        /// Layout of the data.
        pub layout: DataLayout = DataLayout::Nchw,
    }
}

attr_struct! {
    /// Each block of space becomes `block * block` groups of channels.
    pub struct SpaceToDepth("space_to_depth") {
        /// Height and width of a block.
        pub block: i64 = 1,
        /// Layout of the data.
        pub layout: DataLayout = DataLayout::Nchw,
    }
}

/// Axes of channel, height and width.
fn axes(layout: DataLayout) -> [usize; 3] {
    match layout {
        DataLayout::Nchw => [1, 2, 3],
        DataLayout::Nhwc => [3, 1, 2],
        // Refused by inference.
        _ => [1, 2, 3],
    }
}

fn exact(d: &Dim, by: i64) -> OpResult<Dim> {
    divide_dims(std::slice::from_ref(d), &[Dim::new(by)]).ok_or_else(|| format!("{d} is no multiple of {by}").into())
}

fn check(x: &TensorType, block: i64, layout: DataLayout) -> OpResult<()> {
    if layout.block().is_some() {
        return Err(format!("has no form in {}", layout.title()).into());
    }
    match x.rank() == 4 && (1..=1 << 15).contains(&block) {
        true => Ok(()),
        false => Err(format!("takes rank 4 and a positive block, got rank {} and {block}", x.rank()).into()),
    }
}

impl Op for DepthToSpace {
    fn arity(&self) -> (usize, usize) {
        (1, 1)
    }
    fn keeps_elements(&self) -> bool {
        true
    }
    fn infer(&self, cx: &InferContext<'_>) -> OpResult<Vec<TensorType>> {
        let mut ty = cx.require(0)?.clone();
        check(&ty, self.block, self.layout)?;
        let [c, h, w] = axes(self.layout);
        ty.shape[c] = exact(&ty.shape[c], self.block * self.block)?;
        ty.shape[h] = ty.shape[h].clone() * self.block;
        ty.shape[w] = ty.shape[w].clone() * self.block;
        Ok(vec![ty])
    }
    fn compute(&self, cx: &mut ComputeContext<'_>) -> OpResult<()> {
        let x = cx.require(0)?;
        let ty = cx.output_type(0).clone();
        let [c, h, w] = axes(self.layout);
        let block = self.block;
        let out = cx.compute("", &ty.shape, ty.dtype, |i| {
            let bounds = loop_bounds(i, &ty.shape);
            let place = i[h].rem(block) * block + i[w].rem(block);
            let channel = match self.order {
                BlockOrder::Dcr => place * &ty.shape[c] + &i[c],
                BlockOrder::Crd => i[c].clone() * (block * block) + place,
            };
            let mut at = i.to_vec();
            (at[c], at[h], at[w]) = (simplify(&channel, &bounds), i[h].div(block), i[w].div(block));
            Expr::load(x, at)
        });
        cx.output(0, out);
        Ok(())
    }
    fn layout(&self) -> Option<&dyn LayoutRule> {
        Some(self)
    }
    fn export(&self, cx: &mut ExportContext<'_>) -> OpResult<()> {
        let mode = OnnxAttr::Str(self.order.name().to_uppercase());
        let attrs = vec![("blocksize", OnnxAttr::Int(self.block)), ("mode", mode)];
        export_channels_first(cx, self.layout, "DepthToSpace", attrs)
    }
}

impl Op for SpaceToDepth {
    fn arity(&self) -> (usize, usize) {
        (1, 1)
    }
    fn keeps_elements(&self) -> bool {
        true
    }
    fn infer(&self, cx: &InferContext<'_>) -> OpResult<Vec<TensorType>> {
        let mut ty = cx.require(0)?.clone();
        check(&ty, self.block, self.layout)?;
        let [c, h, w] = axes(self.layout);
        ty.shape[c] = ty.shape[c].clone() * (self.block * self.block);
        ty.shape[h] = exact(&ty.shape[h], self.block)?;
        ty.shape[w] = exact(&ty.shape[w], self.block)?;
        Ok(vec![ty])
    }
    fn compute(&self, cx: &mut ComputeContext<'_>) -> OpResult<()> {
        let x = cx.require(0)?;
        let (ty, channels) = (cx.output_type(0).clone(), cx.shape(x)[axes(self.layout)[0]].clone());
        let [c, h, w] = axes(self.layout);
        let block = self.block;
        let out = cx.compute("", &ty.shape, ty.dtype, |i| {
            let bounds = loop_bounds(i, &ty.shape);
            let place = i[c].div(&channels);
            let tidy = |e: Int| simplify(&e, &bounds);
            let mut at = i.to_vec();
            at[c] = tidy(i[c].rem(&channels));
            at[h] = tidy(i[h].clone() * block + place.div(block));
            at[w] = tidy(i[w].clone() * block + place.rem(block));
            Expr::load(x, at)
        });
        cx.output(0, out);
        Ok(())
    }
    fn layout(&self) -> Option<&dyn LayoutRule> {
        Some(self)
    }
    fn export(&self, cx: &mut ExportContext<'_>) -> OpResult<()> {
        export_channels_first(cx, self.layout, "SpaceToDepth", vec![("blocksize", OnnxAttr::Int(self.block))])
    }
}

macro_rules! layout_rule {
    ($($name:ident),*) => { $(
        impl LayoutRule for $name {
            fn data_layout(&self) -> DataLayout {
                self.layout
            }
            fn operands_to_convert(&self) -> Vec<usize> {
                vec![0]
            }
            fn results_to_convert(&self) -> Vec<usize> {
                vec![0]
            }
            fn in_layout(&self, layout: DataLayout, _cx: &InferContext<'_>) -> OpResult<OpRef> {
                match layout.block() {
                    Some(_) => Err(format!("it takes channels apart that {} splits otherwise", layout.title()).into()),
                    None => Ok($name { layout, ..self.clone() }.into()),
                }
            }
        }
    )* };
}
layout_rule!(DepthToSpace, SpaceToDepth);

/// ONNX importers.
pub const ONNX: &[OnnxImport] = &[
    OnnxImport { op_type: "DepthToSpace", domain: "", since: 1, import: import_depth_to_space },
    OnnxImport { op_type: "SpaceToDepth", domain: "", since: 1, import: import_space_to_depth },
];

fn import_depth_to_space(cx: &mut ImportContext<'_, '_>) -> OpResult<Vec<ValueId>> {
    let x = cx.input(0)?;
    let mode = cx.attrs.str("mode").unwrap_or("DCR").to_lowercase();
    let order = BlockOrder::parse(&mode).ok_or("mode is neither DCR nor CRD")?;
    let block = cx.attrs.int("blocksize").ok_or("attribute `blocksize` is missing")?;
    Ok(vec![cx.add(DepthToSpace { block, order, layout: DataLayout::Nchw }, &[x])?])
}

fn import_space_to_depth(cx: &mut ImportContext<'_, '_>) -> OpResult<Vec<ValueId>> {
    let x = cx.input(0)?;
    let block = cx.attrs.int("blocksize").ok_or("attribute `blocksize` is missing")?;
    Ok(vec![cx.add(SpaceToDepth { block, layout: DataLayout::Nchw }, &[x])?])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::testing::{assert_close, random, run, transposed, try_run};

    #[test]
    fn blocks_and_layouts() {
        let x = random(&[2, 8, 4, 6], 1);
        let nhwc = [0, 2, 3, 1];
        for order in [BlockOrder::Dcr, BlockOrder::Crd] {
            let op = DepthToSpace { block: 2, order, layout: DataLayout::Nchw };
            let y = run(op.clone(), &[&x]);
            assert_eq!(y.shape(), [2, 2, 8, 12]);
            assert_close(
                &run(DepthToSpace { layout: DataLayout::Nhwc, ..op }, &[&transposed(&x, &nhwc)]),
                &transposed(&y, &nhwc),
                0.0,
            );
        }
        let back = SpaceToDepth { block: 2, layout: DataLayout::Nchw };
        let there = DepthToSpace { block: 2, ..DepthToSpace::default() };
        assert_close(&run(back.clone(), &[&run(there, &[&x])]), &x, 0.0);
        assert_close(
            &run(SpaceToDepth { layout: DataLayout::Nhwc, ..back.clone() }, &[&transposed(&x, &nhwc)]),
            &transposed(&run(back, &[&x]), &nhwc),
            0.0,
        );
        assert!(try_run(DepthToSpace { block: 3, ..DepthToSpace::default() }, &[&x]).is_err());
        assert!(try_run(SpaceToDepth { block: 4, ..SpaceToDepth::default() }, &[&x]).is_err());
    }
}
