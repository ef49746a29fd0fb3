//! Rows that programs add to the tables of ops, instructions, rules, fusion rules, quirks and external targets.

use crate::error::Error;
use compiler::external::{ExternalTarget, register_target};
use compiler::onnx::OnnxImport;
use compiler::ops::{OpDef, register_importers, register_op};
use compiler::passes::fuse_ops::{FusionRule, register_fusion_rule};
use compiler::passes::{AlterLayout, PassDef};
use compiler::profile::quirks::{self, Quirk};
use compiler::schedule::rules::{self, Rule};
use compiler::schedule::{InstructionDef, ScheduleProvider, register_instruction};
use runtime_gpu::HostFunctions;
use std::sync::Arc;

/// The types that extensions are written with.
pub mod extend {
    pub use compiler::arena::Id;
    pub use compiler::attr::{Attr, AttrStruct, Attrs};
    pub use compiler::cost::NodeForm;
    pub use compiler::external::find_target;
    pub use compiler::external::{ExternalPattern, ExternalTarget, Prepared, Region, TargetOptions, TargetSpec};
    pub use compiler::fault::Fault;
    pub use compiler::graph::{BlockId, Constant, Function, Module, Node, NodeId, Origins, ValueDef, ValueId};
    pub use compiler::name::Name;
    pub use compiler::onnx::{ImportContext, OnnxAttr, OnnxAttrs, OnnxImport};
    pub use compiler::ops::control::Const;
    pub use compiler::ops::{Op, OpDef, OpRef, find_onnx, find_op};
    pub use compiler::passes::fuse_ops::{FusionRule, GroupGraph};
    pub use compiler::passes::rewriter::Rewriter;
    pub use compiler::passes::{
        AlterLayout, FunctionPass, OwnPass, Pass, PassContext, PassDef, PassError, PipelineOptions,
        ReplaceWithHostCalls, Sequential,
    };
    pub use compiler::pattern::{Found, Pattern, Plain, Subject};
    pub use compiler::profile::quirks::{Quirk, Seen};
    pub use compiler::schedule::rules::Rule;
    pub use compiler::schedule::{
        Instruction, InstructionDef, Rules, ScheduleOptions, ScheduleProvider, ScheduleTarget,
    };
    pub use compiler::text::{parse_instructions, parse_module, parse_pipeline};
    pub use compiler::tir::TensorFunction;
    pub use compiler::trace::Kernel as KernelTrace;
    pub use compiler::verify::verify_module;
    pub use runtime_gpu::{DeviceCall, DeviceOperand};
}

/// The rows that a program adds.
#[derive(Default)]
pub struct Extensions {
    /// Passes, found by name before those of the table, for the registry of a `PassContext`.
    pub passes: Vec<PassDef>,
    /// Callbacks that set the layouts of ops.
    pub alter_layouts: Vec<AlterLayout>,
    /// Ops that models and text may name, each with its ONNX importers.
    pub ops: Vec<(OpDef, &'static [OnnxImport])>,
    /// ONNX importers that make nodes of ops that are there.
    pub importers: Vec<&'static [OnnxImport]>,
    /// Schedule instructions that text and rules may use.
    pub instructions: Vec<InstructionDef>,
    /// Schedule rules, which are tried before those of the table.
    pub rules: Vec<Rule>,
    /// Fusion rules, which run before those of the table.
    pub fusion_rules: Vec<FusionRule>,
    /// Quirks of drivers, for added rules.
    pub quirks: Vec<Quirk>,
    /// External targets, which run parts of graphs.
    pub targets: Vec<&'static dyn ExternalTarget>,
    /// Who schedules functions that come without a schedule, if not the rules: for
    /// [`CompileOptions`](compiler::compile::CompileOptions).
    pub schedules: Option<Arc<dyn ScheduleProvider>>,
    /// Host functions, which graphs call by name.
    pub host_functions: HostFunctions,
}

impl Extensions {
    /// Adds ops, importers, instructions, rules, quirks and targets to the tables of this process. Call it before
    /// anything is loaded. Passes, callbacks and host functions stay in this struct; pass them where they are needed.
    ///
    /// # Errors
    /// [`Error::Extension`]: a row of that name is there.
    pub fn register(&mut self) -> Result<(), Error> {
        let ops = self.ops.drain(..).map(|(op, onnx)| register_op(op, onnx));
        let importers = self.importers.drain(..).map(register_importers);
        let instructions = self.instructions.drain(..).map(register_instruction);
        let rules = self.rules.drain(..).map(rules::register);
        let fusion_rules = self.fusion_rules.drain(..).map(register_fusion_rule);
        let quirks = self.quirks.drain(..).map(quirks::register);
        let targets = self.targets.drain(..).map(register_target);
        ops.chain(importers)
            .chain(instructions)
            .chain(rules)
            .chain(fusion_rules)
            .chain(quirks)
            .chain(targets)
            .collect::<Result<(), String>>()
            .map_err(Error::Extension)
    }
}
