//! External targets of the tests: each supports a few ops of f32 and has a table of patterns. They run nothing.

use compiler::cost::NodeForm;
use compiler::dtype::DType;
use compiler::external::{ExternalPattern, ExternalTarget, Prepared, Region, TargetOptions, register_target};
use compiler::ops::binary::Add;
use compiler::ops::conv::Conv;
use compiler::ops::unary::Relu;
use compiler::pattern::{Found, Pattern, Subject, any, any_op_from, commuted, constant, op, op_from};

struct Table {
    name: &'static str,
    ops: &'static [&'static str],
    patterns: fn() -> Vec<ExternalPattern>,
    /// Nanoseconds of a multiply-accumulate, if it estimates.
    estimate: Option<f64>,
}

impl ExternalTarget for Table {
    fn name(&self) -> &'static str {
        self.name
    }
    fn supports(&self, node: &NodeForm, _options: &TargetOptions) -> Result<(), String> {
        let name = node.op.name();
        if !self.ops.contains(&name) {
            return Err(format!("no {name}"));
        }
        match node.outputs.iter().find(|t| t.dtype != DType::F32) {
            Some(t) => Err(format!("no {name} of {}", t.dtype)),
            None => Ok(()),
        }
    }
    fn patterns(&self) -> Vec<ExternalPattern> {
        (self.patterns)()
    }
    fn estimate(&self, region: &Region, _options: &TargetOptions) -> Option<f64> {
        self.estimate.map(|ns| ns * region.macs() as f64)
    }
    fn prepare(&self, _region: Region, _options: &TargetOptions) -> Result<Box<dyn Prepared>, String> {
        Err("it is a table for tests".into())
    }
}

fn conv() -> Pattern {
    op_from::<Conv>([any(), constant()])
}

fn ungrouped(s: &dyn Subject, found: &Found) -> Result<(), String> {
    let f = s.function();
    let group = found.nodes.iter().find_map(|&n| f.nodes[n].op.downcast::<Conv>()).map_or(1, |c| c.group);
    if group == 1 { Ok(()) } else { Err(format!("group is {group}")) }
}

fn sum() -> ExternalPattern {
    ExternalPattern::new("conv2d_sum", commuted::<Add>(conv(), any()))
}
fn sum_relu() -> ExternalPattern {
    ExternalPattern::new("conv2d_sum_relu", op::<Relu>([commuted::<Add>(conv(), any())]))
}

const TARGETS: &[Table] = &[
    Table { name: "larger_first", ops: &[], patterns: || vec![sum_relu(), sum()], estimate: None },
    Table { name: "smaller_first", ops: &["relu"], patterns: || vec![sum(), sum_relu()], estimate: None },
    Table {
        name: "optional",
        ops: &["conv"],
        patterns: || {
            let pattern = conv().optional(|p| commuted::<Add>(p, constant())).optional(|p| op::<Relu>([p]));
            vec![ExternalPattern::new("conv2d", pattern).check(ungrouped)]
        },
        estimate: None,
    },
    Table {
        name: "tail",
        ops: &[],
        patterns: || vec![ExternalPattern::new("conv2d_any", any_op_from([conv()]))],
        estimate: None,
    },
    Table { name: "adder", ops: &["add", "neg"], patterns: std::vec::Vec::new, estimate: None },
    Table { name: "fast", ops: &["conv"], patterns: std::vec::Vec::new, estimate: Some(0.0) },
    Table { name: "slow", ops: &["conv"], patterns: std::vec::Vec::new, estimate: Some(1e6) },
];

/// Adds the targets to the table of this process.
///
/// # Panics
/// When one has the name of another.
pub fn register() {
    TARGETS.iter().for_each(|t| register_target(t).expect("a name of its own"));
}
