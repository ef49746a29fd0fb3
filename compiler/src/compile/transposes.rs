//! Counting layout changes.

use crate::graph::Module;
use crate::ops::control::Const;
use crate::ops::layout_transform::LayoutTransform;
use crate::ops::transpose::Transpose;

/// Layout changes of a graph, before fusion hides them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Serialize, serde::Deserialize)]
pub struct TransposeReport {
    /// Of values that depend on inputs, and move data.
    pub activation: usize,
    /// Of constants, folded at compile time or when a session opens.
    pub weight_folded: usize,
    /// Of constants, done in each run.
    pub weight_runtime: usize,
}

impl TransposeReport {
    /// Counts one layout change, unless it is a view.
    fn count(&mut self, from_constants: bool, view: bool) {
        match (view, from_constants) {
            (true, _) => {}
            (false, true) => self.weight_runtime += 1,
            (false, false) => self.activation += 1,
        }
    }
}

/// Counts the transposes and layout transforms of the entry function that move data (one that only moves dimensions of extent 1 is a
/// view). Which values are constants follows from the graph.
pub fn count_transposes(module: &Module) -> TransposeReport {
    let f = module.main();
    let mut constant = vec![false; f.values.len()];
    let mut report = TransposeReport::default();
    for n in f.walk() {
        let node = &f.nodes[n];
        let from_constants = node.op.is::<Const>()
            || (!node.inputs.is_empty() && node.inputs.iter().flatten().all(|v| constant[crate::arena::Id::index(*v)]));
        for v in &node.outputs {
            constant[crate::arena::Id::index(*v)] = from_constants;
        }
        let Some(input) = node.inputs.first().copied().flatten() else { continue };
        if let Some(t) = node.op.downcast::<LayoutTransform>() {
            report.count(from_constants, t.keeps_order(&f.ty(input).shape));
            continue;
        }
        let Some(t) = node.op.downcast::<Transpose>() else { continue };
        let shape = &f.ty(input).shape;
        let Ok(perm) = t.perm(shape.len()) else { continue };
        let moved: Vec<usize> = perm.into_iter().filter(|&d| !shape[d].is(1)).collect();
        report.count(from_constants, moved.windows(2).all(|w| w[0] < w[1]));
    }
    report
}
