//! Kinds of work, from the fusion kinds of nodes.

use compiler::graph::{Function, Node as GraphNode, TensorType};
use compiler::int::Dim;
use compiler::ops::cast::Cast;
use compiler::ops::control::{Call, CallHost};
use compiler::ops::external_scope::{Composite, External};
use compiler::passes::fusion_kind::NodeInfo;
use compiler::tir::FusionKind;

/// The kind of work of a box, which decides its colour.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Category {
    /// Multiply-accumulates: convolutions, products.
    Contraction,
    /// Sums and maxima over axes or windows, norms, softmax.
    Reduction,
    /// Element by element.
    Elementwise,
    /// Moves data without computing: transposes, slices, concatenations, views.
    Movement,
    /// Changes the element type.
    Cast,
    /// Branches, loops, calls.
    Control,
    /// A fused group.
    Group,
    /// A region that an external target runs.
    External,
    /// A layer: nodes whose names begin alike.
    Layer,
    /// Parameters and results.
    Terminal,
    /// Everything else: sorting, sampling, what only the host does.
    Other,
}
impl Category {
    /// Every category, for legends.
    pub const ALL: [Category; 11] = [
        Category::Contraction,
        Category::Reduction,
        Category::Elementwise,
        Category::Movement,
        Category::Cast,
        Category::Control,
        Category::Group,
        Category::External,
        Category::Layer,
        Category::Terminal,
        Category::Other,
    ];
    /// The word for legends.
    pub fn title(self) -> &'static str {
        match self {
            Category::Contraction => "contraction",
            Category::Reduction => "reduction, norm",
            Category::Elementwise => "elementwise",
            Category::Movement => "data movement",
            Category::Cast => "cast",
            Category::Control => "control flow",
            Category::Group => "fused group",
            Category::External => "external target",
            Category::Layer => "layer",
            Category::Terminal => "input, output",
            Category::Other => "other",
        }
    }
}

/// A size for dimensions that are open, where only the kind of work matters.
const TYPICAL: i64 = 32;

/// True for ops that multiply and accumulate. They are counted for known sizes, so open ones are taken as [`TYPICAL`].
pub(crate) fn multiplies(node: &GraphNode, inputs: &[Option<&TensorType>], outputs: &[&TensorType]) -> bool {
    let sized = |t: &TensorType| {
        let dim = |d: &Dim| if d.as_const().is_some() { d.clone() } else { Dim::from(TYPICAL) };
        TensorType { shape: t.shape.iter().map(dim).collect(), ..t.clone() }
    };
    let inputs: Vec<Option<TensorType>> = inputs.iter().map(|t| t.map(sized)).collect();
    let outputs: Vec<TensorType> = outputs.iter().map(|&t| sized(t)).collect();
    let inputs: Vec<Option<&TensorType>> = inputs.iter().map(Option::as_ref).collect();
    node.op.macs(&inputs, &outputs.iter().collect::<Vec<_>>()) > 0
}

/// The category of a node, from its fusion kind (the index maps of its tensor expression).
pub(crate) fn category(f: &Function, node: &GraphNode, info: Option<&NodeInfo>) -> Category {
    let inputs: Vec<Option<&TensorType>> = node.inputs.iter().map(|v| v.map(|v| f.ty(v))).collect();
    let outputs: Vec<&TensorType> = node.outputs.iter().map(|&v| f.ty(v)).collect();
    let external = node.op.downcast::<CallHost>().is_some_and(|c| c.external_target().is_some());
    if external || node.op.is::<External>() || node.op.is::<Composite>() {
        return Category::External;
    }
    if !node.regions.is_empty() || node.op.is::<Call>() || node.op.is::<CallHost>() {
        return Category::Control;
    }
    if node.op.is::<Cast>() {
        return Category::Cast;
    }
    if multiplies(node, &inputs, &outputs) {
        return Category::Contraction;
    }
    match info.map(|i| i.kind) {
        Some(FusionKind::Elementwise | FusionKind::Broadcast) => Category::Elementwise,
        Some(FusionKind::Injective | FusionKind::Tuple) => Category::Movement,
        Some(FusionKind::Reduction | FusionKind::OutElementwiseFusable) => Category::Reduction,
        Some(FusionKind::Opaque) | None => Category::Other,
    }
}
