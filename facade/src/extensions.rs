//! What programs add to the tables of ops, instructions and rules.

use crate::error::Error;
use compiler::onnx::OnnxImport;
use compiler::ops::{OpDef, register_op};
use compiler::passes::{AlterLayout, PassDef};
use compiler::schedule::rules::{self, Rule};
use compiler::schedule::{InstructionDef, register_instruction};
use runtime_gpu::HostFunctions;

/// The types that extensions are written with.
pub mod extend {
    pub use compiler::onnx::OnnxImport;
    pub use compiler::ops::{Op, OpDef};
    pub use compiler::passes::{AlterLayout, FunctionPass, Pass, PassContext, PassDef, Sequential};
    pub use compiler::schedule::rules::Rule;
    pub use compiler::schedule::{Instruction, InstructionDef};
    pub use runtime_gpu::{DeviceCall, DeviceOperand};
}

/// What a program of one's own adds.
#[derive(Default)]
pub struct Extensions {
    /// Passes that a pipeline finds by name, before those of the table: a `PassContext`'s registry takes them.
    pub passes: Vec<PassDef>,
    /// Callbacks that are asked in which layout an op has to run.
    pub alter_layouts: Vec<AlterLayout>,
    /// Ops that models and text may name, each with its ONNX importers.
    pub ops: Vec<(OpDef, &'static [OnnxImport])>,
    /// Schedule instructions that text and rules may use.
    pub instructions: Vec<InstructionDef>,
    /// Schedule rules, which are asked before those of the table.
    pub rules: Vec<Rule>,
    /// Host functions, which graphs call by name.
    pub host_functions: HostFunctions,
}

impl Extensions {
    /// Makes ops, instructions and rules known in this process; to be called before anything is loaded. Passes, callbacks and host
    /// functions stay here, for whom they are given to.
    ///
    /// # Errors
    /// [`Error::Extension`]: a row of that name is there.
    pub fn register(&mut self) -> Result<(), Error> {
        let ops = self.ops.drain(..).map(|(op, onnx)| register_op(op, onnx));
        let instructions = self.instructions.drain(..).map(register_instruction);
        let rules = self.rules.drain(..).map(rules::register);
        ops.chain(instructions).chain(rules).collect::<Result<(), String>>().map_err(Error::Extension)
    }
}
