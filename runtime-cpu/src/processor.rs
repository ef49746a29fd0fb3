//! The processor as a target: an instruction set and the threads that sessions share.

use crate::team::Team;
use crate::{CpuError, Isa};
use tensor_ir::profile::DeviceProfile;

/// This machine's processor. Sessions on it share its threads.
#[derive(Debug)]
pub struct Processor {
    isa: Isa,
    /// Threads beside the caller's; `None` for one thread.
    team: Option<Team>,
}

/// Bytes a nanosecond that a core reads from memory beside the others: two channels of DDR5 serve about four cores.
const BYTES_A_CORE: f64 = 12.0;

/// The driver of a processor's profile.
const NATIVE: &str = "native";

impl Processor {
    /// Starts `threads` threads, one for each core if that is 0. `isa`: the instruction set; default is the widest that
    /// the machine has.
    ///
    /// # Errors
    /// An instruction set that the machine lacks; threads that do not start.
    pub fn open(threads: usize, isa: Option<Isa>) -> Result<Processor, CpuError> {
        let isa = isa.unwrap_or_else(Isa::best);
        if !isa.is_available() {
            return Err(CpuError::Open(format!("this machine has no {}", isa.name())));
        }
        let cores = || std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let threads = if threads == 0 { cores() } else { threads };
        let team = if threads == 1 { None } else { Some(Team::start(threads - 1)) };
        let team = team.transpose().map_err(|e| CpuError::Open(format!("{threads} threads do not start: {e}")))?;
        Ok(Processor { isa, team })
    }
    /// The instruction set whose bodies run.
    pub fn isa(&self) -> Isa {
        self.isa
    }
    /// Threads that kernels run on.
    pub fn threads(&self) -> usize {
        1 + self.team.as_ref().map_or(0, Team::helpers)
    }
    /// The profile to compile for: cores, register tile, rates.
    pub fn profile(&self) -> DeviceProfile {
        let cores = u32::try_from(self.threads()).unwrap_or(1);
        DeviceProfile {
            driver: NATIVE.into(),
            driver_version: self.isa.name().into(),
            gflops: f64::from(cores) * self.isa.gflops(),
            gb_s: f64::from(cores) * BYTES_A_CORE,
            ..DeviceProfile::processor(cores, self.isa.tile())
        }
    }
    /// The instruction set of a profile of this machine's processor.
    pub fn isa_of(profile: &DeviceProfile) -> Option<Isa> {
        let own = |i: &Isa| i.is_available() && i.name() == profile.driver_version;
        Isa::ALL.into_iter().find(|i| profile.driver == NATIVE && own(i))
    }
    pub(crate) fn team(&self) -> Option<&Team> {
        self.team.as_ref()
    }
}
