//! Reports of groups, memory and layout changes. Compiled modules and traces both hold them.

/// How a group is executed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum GroupKind {
    /// By one or more dispatches.
    Kernel,
    /// Not at all: the result is the operand's buffer under another shape.
    View,
    /// On the host.
    Host,
    /// It is control flow: the host reads the condition, and the groups inside have their own forms.
    Control,
}

/// Byte counts of the plan.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
pub struct MemoryReport {
    /// Constants on the device.
    pub weights: u64,
    /// The activation pool.
    pub activations_peak: u64,
    /// The sum over the intermediates left after fusion.
    pub activations_naive: u64,
}

/// Layout changes of a graph, before fusion hides them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
pub struct TransposeReport {
    /// Layout changes of values that depend on inputs, if they move data.
    pub activation: usize,
    /// Layout changes of constants, done at compile time or when a session opens.
    pub weight_folded: usize,
    /// Layout changes of constants, done in each run.
    pub weight_runtime: usize,
}

impl TransposeReport {
    /// Counts one layout change, unless it is a view.
    pub(crate) fn count(&mut self, from_constants: bool, view: bool) {
        match (view, from_constants) {
            (true, _) => {}
            (false, true) => self.weight_runtime += 1,
            (false, false) => self.activation += 1,
        }
    }
}
