//! Weft's runtime on wgpu: adapters and their profiles, sessions with everything prepared, runs and timings.
//!
//! A [`Session`] owns the device buffers, pipelines and bind groups of one [`compiler::plan::Plan`]. A run only writes
//! inputs, encodes, submits and reads back. Nothing is compiled in a run, and no memory is allocated except for new
//! results.
//!
//! Any number of threads and futures may run on one session, and any number of sessions on one device: runs never write
//! the data that they share, and each run has its own resources for the data that it writes (`resources.rs`).
//!
//! Limits are checked before anything is dispatched: bindings and buffers against the profile, memory against the free
//! memory of the system. Tensors that no kernel uses stay on the host, and a host step between GPU segments reads back
//! only its operands.

mod adapters;
mod bindings;
mod buffers;
pub mod cache;
mod calls;
mod canary;
mod constants;
mod counted_cores;
mod device;
mod device_outputs;
mod driver_stats;
mod error;
mod figures;
mod first_dispatch;
mod host_copies;
mod host_functions;
mod host_memory;
mod in_flight;
mod loops;
mod margins;
mod open;
mod part;
mod pipelines;
mod planned;
mod poller;
mod pool;
mod prepacked;
mod race;
mod readback;
mod recorder;
mod resident;
mod resources;
mod run;
mod session;
mod shared_parts;
mod staged;
mod staging;
mod subgroup_sizes;
mod tensors;
mod timestamps;
mod transfers;

pub use adapters::{AdapterDescription, list_adapters, processor_model, profile_of};
pub use compiler::plan::storage::{decode_tensor, encode_tensor};
pub use constants::source_digest;
pub use device::{DeviceChoice, Gpu};
pub use device_outputs::DeviceOutputs;
pub use error::GpuError;
pub use figures::{DeviceFigures, Figure, Source};
pub use host_functions::{DeviceCall, DeviceFunction, DeviceOperand, HostFunctions};
pub use host_memory::available_memory;
pub use in_flight::InFlight;
pub use open::{Alone, OpenSession};
pub use part::{OpenPlanned, PartError, PartRun, Ran, RunPart, Visit, observed};
pub use planned::Planned;
pub use prepacked::Prepacked;
pub use race::{Racer, Runner, Sample, Standing, error_of_median, race, race_of};
pub use recorder::{Doing, Recorded, Recorder, Span};
pub use resident::{Edge, HostCallTime, Resident};
pub use run::RunTimes;
pub use session::{OpenTimes, Session, SessionOptions};
pub use shared_parts::Opened;
pub use staged::{Open, Part, Staged};
pub use tensors::{DeviceTensor, RunInput, RunTensor};
pub use timestamps::TimeSource;
pub use transfers::Transfers;
/// The library that device functions are written with.
pub use wgpu;

/// The code of docs/build-a-model.md, as a test.
#[cfg(doctest)]
#[doc = include_str!("../../docs/build-a-model.md")]
struct BuildAModel;
