//! Machines that run networks: a GPU, the processor, or the interpreter.

use crate::error::Error;
use crate::execution::{Execution, Pending};
use crate::options::Options;
use crate::program::Program;
use compiler::graph::Module;
use compiler::profile::DeviceProfile;
use compiler::tensor::Tensor;
use runtime_gpu::{DeviceTensor, Part};

/// A machine that runs networks.
pub(crate) trait Machine: Send + Sync {
    /// Name, backend and driver in one text.
    fn label(&self) -> String;

    /// Its capabilities.
    fn profile(&self) -> DeviceProfile;

    /// True if it runs plans, so that a network is compiled for it.
    fn runs_plans(&self) -> bool {
        true
    }

    /// The named profile, limited to what this machine can do.
    ///
    /// # Errors
    /// [`Error::NoShaders`].
    fn as_here(&self, named: DeviceProfile) -> Result<DeviceProfile, Error>;

    /// Opens a network, `module`, that is compiled.
    ///
    /// # Errors
    /// No memory; limits of the machine; constants that cannot be read.
    fn open(&self, program: Program, module: &Module, options: &Options) -> Result<Box<dyn Execution>, Error>;

    /// Opens a part of a network, which is compiled.
    ///
    /// # Errors
    /// As [`Machine::open`].
    fn open_part(&self, program: Program, module: Module, options: &Options) -> Result<Part<Error>, Error>;

    /// The elements of a tensor that is in its own memory.
    ///
    /// # Errors
    /// [`Error::Input`]: it has no memory of its own. A buffer that cannot be copied from, a lost device.
    fn read<'a>(&'a self, _tensor: &'a DeviceTensor) -> Pending<'a, Tensor> {
        let why = format!("{} has no tensors of its own", self.label());
        Box::pin(async { Err(Error::Input(why)) })
    }
}
