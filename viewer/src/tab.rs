//! The panes beside the graph, by name.

/// The pane beside the graph.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tab {
    /// All that is known of a box.
    Node,
    /// A kernel, from its tensor function to shaders.
    Kernel,
    /// The module's text at a stage.
    Text,
    /// Fused groups.
    Groups,
    /// Where the time goes.
    Time,
    /// Live ranges of buffers.
    Memory,
    /// Casts, nodes that stay in f32, errors.
    Precision,
    /// Remarks of passes.
    Remarks,
    /// The layers of two compilations.
    Difference,
}
impl Tab {
    /// Every tab with its title.
    pub const ALL: [(Tab, &'static str); 9] = [
        (Tab::Node, "Node"),
        (Tab::Kernel, "Kernel"),
        (Tab::Text, "Text"),
        (Tab::Groups, "Groups"),
        (Tab::Time, "Time"),
        (Tab::Memory, "Memory"),
        (Tab::Precision, "Precision"),
        (Tab::Remarks, "Remarks"),
        (Tab::Difference, "Difference"),
    ];
}
