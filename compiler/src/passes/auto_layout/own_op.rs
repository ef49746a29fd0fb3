//! An op of another crate takes part through its properties: this one is in no table, and runs in NHWC between two
//! convolutions.

use super::*;
use crate::graph::{FunctionBuilder, TensorType};
use crate::int::Int;
use crate::interpreter::run_function;
use crate::ops::conv::Conv;
use crate::ops::testing::{assert_close, random};
use crate::ops::{InferContext, LayoutRule, Op, OpRef, OpResult};
use crate::passes::{EliminateDead, run_pass};
use crate::profile::DeviceProfile;
use crate::te::ComputeContext;
use crate::tir::Expr;

attr_struct! {
    /// Data minus its mirror image along the first spatial axis, and their sum.
    pub struct Mirror("test_mirror") {
        /// Layout of data and results.
        pub layout: DataLayout = DataLayout::Nchw,
    }
}

impl Op for Mirror {
    fn arity(&self) -> (usize, usize) {
        (1, 1)
    }
    fn num_results(&self) -> usize {
        2
    }
    fn infer(&self, cx: &InferContext<'_>) -> OpResult<Vec<TensorType>> {
        Ok(vec![cx.require(0)?.clone(); 2])
    }
    fn compute(&self, cx: &mut ComputeContext<'_>) -> OpResult<()> {
        let x = cx.require(0)?;
        let ty = cx.output_type(0).clone();
        let height = self.layout.spatial(&ty.shape)[0].clone();
        for (i, sign) in [-1.0, 1.0].into_iter().enumerate() {
            let label = if i == 0 { "difference" } else { "sum" };
            let out = cx.compute(label, &ty.shape, ty.dtype, |o| {
                let mut spatial = self.layout.spatial(o).to_vec();
                spatial[0] = height.clone() - Int::new(1) - &spatial[0];
                let other = Expr::load(x, self.layout.with_spatial(o, spatial));
                Expr::load(x, o.to_vec()) + other * Expr::constant(sign, ty.dtype)
            });
            cx.output(i, out);
        }
        Ok(())
    }
    fn layout(&self) -> Option<&dyn LayoutRule> {
        Some(self)
    }
}
impl LayoutRule for Mirror {
    fn data_layout(&self) -> DataLayout {
        self.layout
    }
    fn operands_to_convert(&self) -> Vec<usize> {
        vec![0]
    }
    fn results_to_convert(&self) -> Vec<usize> {
        vec![0, 1]
    }
    fn in_layout(&self, layout: DataLayout, _cx: &InferContext<'_>) -> OpResult<OpRef> {
        Ok(Mirror { layout }.into())
    }
}

#[test]
fn joins_without_an_edit_to_the_pass() {
    let mut m = Module::new("main");
    let mut b = FunctionBuilder::new(&mut m, "main");
    let x = b.param("x", TensorType::fixed(crate::dtype::DType::F32, &[1, 8, 5, 6]));
    let w = b.constant("w", &random(&[8, 8, 1, 1], 1));
    let y = b.add(Conv::default(), &[x, w]).expect("conv");
    let parts = b.add_multi(Mirror::default(), vec![Some(y)], vec![]).expect("mirror");
    let [p, q] = [0, 1].map(|i| b.add(Conv::default(), &[parts[i], w]).expect("conv"));
    b.finish(&[(Name::new("p"), p), (Name::new("q"), q)]);
    let inputs = [random(&[1, 8, 5, 6], 2)];
    let want = run_function(&m, m.entry, &inputs).expect("runs");
    for mode in [LayoutMode::Nhwc, LayoutMode::Nchw8c] {
        let mut new = m.clone();
        let mut cx = PassContext::new(DeviceProfile::lavapipe());
        cx.layout = mode;
        run_pass(&AutoLayout::default(), &mut new, &mut cx).expect("the pass runs");
        run_pass(&EliminateDead {}, &mut new, &mut cx).expect("the pass runs");
        let got = run_function(&new, new.entry, &inputs).expect("runs");
        got.iter().zip(&want).for_each(|(g, w)| assert_close(g, w, 1e-5));
        let f = new.main();
        let nodes: Vec<&'static str> = f.walk().iter().map(|&n| f.nodes[n].op.name()).collect();
        let changes = nodes.iter().filter(|n| ["transpose", "layout_transform"].contains(n)).count();
        assert_eq!((nodes.iter().filter(|&&n| n == "test_mirror").count(), changes), (1, 3), "{mode}: {nodes:?}");
    }
}
