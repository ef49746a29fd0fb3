//! Counting layout changes.

use crate::graph::Module;
use crate::ops::control::Const;
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

/// Counts the transposes of the entry function that move data (a permutation that only moves dimensions of extent 1 is a
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
        let Some(t) = node.op.downcast::<Transpose>() else { continue };
        let Some(input) = node.inputs.first().copied().flatten() else { continue };
        let shape = &f.ty(input).shape;
        let Ok(perm) = t.perm(shape.len()) else { continue };
        let moved: Vec<usize> = perm.into_iter().filter(|&d| !shape[d].is(1)).collect();
        if moved.windows(2).all(|w| w[0] < w[1]) {
            continue;
        }
        if from_constants {
            report.weight_runtime += 1;
        } else {
            report.activation += 1;
        }
    }
    report
}
