//! Counts layout changes.

use crate::graph::Module;
use crate::ops::control::Const;
use crate::report::TransposeReport;

/// Counts the transposes and layout transforms of the entry function that move data (one that only moves dimensions of
/// extent 1 is a view). Which values are constants follows from the graph.
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
        if let Some(moves) = node.op.moves_axes(&f.ty(input).shape) {
            report.count(from_constants, !moves);
        }
    }
    report
}
