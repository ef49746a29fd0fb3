//! The target `interpreter`: the reference interpreter as an external target. It shows how small a target is, and tests
//! the passes and the calls without any library.

use super::options::TargetOptions;
use super::region::Region;
use super::target::{ExternalTarget, Prepared};
use crate::cost::NodeForm;
use crate::interpreter::Interpreter;
use crate::tensor::{Tensor, TensorMut};

/// Runs every op on the host. `ops=conv+relu` limits it to some.
pub struct InterpreterTarget;

impl ExternalTarget for InterpreterTarget {
    fn name(&self) -> &'static str {
        "interpreter"
    }
    fn is_native(&self) -> bool {
        false
    }
    fn options(&self) -> &'static [(&'static str, &'static str)] {
        &[("ops", "names of the ops that it takes, joined by `+`; all by default")]
    }
    fn supports(&self, node: &NodeForm, options: &TargetOptions) -> Result<(), String> {
        let name = node.op.name();
        let taken = options.get("ops").is_none_or(|list| list.split('+').any(|op| op == name));
        if taken { Ok(()) } else { Err(format!("`{name}` is not among its `ops`")) }
    }
    fn prepare(&self, region: Region, _options: &TargetOptions) -> Result<Box<dyn Prepared>, String> {
        Ok(Box::new(region))
    }
}

impl Prepared for Region {
    fn run(&self, inputs: &[Tensor], outputs: &mut [TensorMut]) -> Result<(), String> {
        let module = self.module();
        let results = Interpreter::new(module).run(module.entry, inputs).map_err(|e| e.to_string())?;
        for (result, output) in results.iter().zip(outputs) {
            output.bytes_mut().copy_from_slice(result.bytes());
        }
        Ok(())
    }
}
