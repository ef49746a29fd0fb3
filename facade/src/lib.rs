//! Weft compiles neural networks to compute shaders and runs them on whatever GPU there is.
//!
//! There are three steps: load a [`Model`], compile it to a [`CompiledModel`] for a device, and run it in a
//! [`Session`].
//!
//! ```
//! use weft::{Device, Model, Options, Tensor};
//!
//! # fn main() -> Result<(), weft::Error> {
//! let model = Model::from_text(
//!     "graph @main(%x: f32[2,3], %w: f32[3,2]) -> (y: f32[2,2]) {
//!        %a = matmul %x, %w : f32[2,2]
//!        %y = relu %a : f32[2,2]
//!        return %y
//!      }",
//! )?;
//! let device = Device::best();
//! let session = model.compile(&Options::for_device(&device))?.session(&device)?;
//!
//! let x = Tensor::from_vec(vec![2, 3], vec![1f32, 2.0, 3.0, -1.0, -2.0, -3.0]);
//! let w = Tensor::from_vec(vec![3, 2], vec![1f32, 0.0, 0.0, 1.0, 1.0, 1.0]);
//! let outputs = session.run(&[("x", x), ("w", w)])?;
//! assert_eq!(outputs["y"].shape(), [2, 2]);
//! assert_eq!(outputs["y"].to_f32_vec(), [4.0, 5.0, 0.0, 0.0]);
//! # Ok(())
//! # }
//! ```
//!
//! [`Model::load`] reads `.onnx` and `.weft` files. Shapes are in elements, outermost dimension first, as NumPy has
//! them; sizes of memory are in bytes and times in milliseconds. Sizes that a model leaves open are given when it is
//! loaded ([`Sizes`]), or stay open: one compilation then serves all sizes of a range.
//!
//! ```
//! use weft::{Device, Model, Options, Sizes, Tensor};
//!
//! # fn main() -> Result<(), weft::Error> {
//! let text = "graph @main(%x: f32[n,3]) -> (y: f32[n,3]) {\n  %y = relu %x : f32[n,3]\n  return %y\n}\n";
//! let model = Model::from_text(text)?.with_sizes(&Sizes { open: vec![("n".into(), 1, 64)], ..Sizes::default() })?;
//! let device = Device::best();
//! let session = model.compile(&Options::for_device(&device))?.session(&device)?;
//! for n in [1, 7, 64] {
//!     let outputs = session.run(&[("x", Tensor::from_vec(vec![n, 3], vec![-1f32; n * 3]))])?;
//!     assert_eq!(outputs["y"].shape(), [n, 3]);
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # Starting fast
//!
//! A [`Cache`] keeps compiled plans and the driver's pipelines on disk, and on request weights in the form for the
//! device. A later start uses them if model (its structure, and its weights' files), options, device, driver and build
//! of the program are the same. A truncated, changed or unrelated file is ignored and made again. Processes may share
//! the folder.
//!
//! ```
//! use weft::{Cache, Device, Model, Options};
//!
//! # fn main() -> Result<(), weft::Error> {
//! # let folder = tempfile::tempdir().expect("a folder");
//! # let model = Model::from_text("graph @main(%x: f32[4]) -> (y: f32[4]) {\n  %y = exp %x : f32[4]\n  return %y\n}\n")?;
//! let options = Options::default().cache(Cache::at(folder.path()).with_weights());
//! assert!(!model.compile(&options)?.came_from_disk());
//! assert!(model.compile(&options)?.came_from_disk());
//! # Ok(())
//! # }
//! ```
//!
//! # Tensors on the device, and runs in flight
//!
//! [`Session::run_on_device`] leaves results where the kernels wrote them. They can be inputs of other sessions on the
//! device without a copy. Your own wgpu buffer can be an input or take a result ([`DeviceTensor::from_buffer`]); your
//! commands and Weft's share the device's queue, which keeps their order.
//!
//! ```
//! use weft::{Device, Model, Options, RunInput, Tensor, Transfers};
//!
//! # fn main() -> Result<(), weft::Error> {
//! # let Ok(device) = Device::open("0") else { return Ok(()) };
//! let text = "graph @main(%x: f32[4]) -> (y: f32[4]) {\n  %y = add %x, %x : f32[4]\n  return %y\n}\n";
//! let open = || Model::from_text(text)?.compile(&Options::for_device(&device))?.session(&device);
//! let (first, second) = (open()?, open()?);
//! let x = Tensor::from_vec(vec![4], vec![1f32, 2.0, 3.0, 4.0]);
//! let twice = first.run_on_device(&[("x", RunInput::Host(&x))], &[])?;
//! let between = twice.get("y").expect("a result");
//! let fourfold = second.run_on_device(&[("x", RunInput::Device(&between))], &[])?;
//! assert_eq!(fourfold.transfers(), Transfers::default());
//! assert_eq!(fourfold.read()?["y"].to_f32_vec(), [4.0, 8.0, 12.0, 16.0]);
//! # Ok(())
//! # }
//! ```
//!
//! With [`Options::runs_in_flight`] above 1, the host writes inputs and reads results of some runs while the device
//! works on others: [`Session::submit`] starts a run and does not wait. Sessions on one device share equal pipelines
//! and equal weights.
//!
//! ```
//! use weft::{Device, Model, Options, RunInput, Tensor};
//!
//! # fn main() -> Result<(), weft::Error> {
//! # let Ok(device) = Device::open("0") else { return Ok(()) };
//! # let text = "graph @main(%x: f32[4]) -> (y: f32[4]) {\n  %y = add %x, %x : f32[4]\n  return %y\n}\n";
//! let options = Options::for_device(&device).runs_in_flight(2);
//! let session = Model::from_text(text)?.compile(&options)?.session(&device)?;
//! let [one, two] = [1f32, 2.0].map(|v| Tensor::from_vec(vec![4], vec![v; 4]));
//! let first = session.submit(&[("x", RunInput::Host(&one))])?;
//! let second = session.submit(&[("x", RunInput::Host(&two))])?;
//! assert_eq!(first.wait()?["y"].to_f32_vec(), [2.0; 4]);
//! assert_eq!(second.wait()?["y"].to_f32_vec(), [4.0; 4]);
//! # Ok(())
//! # }
//! ```
//!
//! # Extensions
//!
//! [`Extensions`] adds ops with their ONNX importers, schedule instructions, schedule rules, fusion rules and quirks to
//! the tables of the process, before anything is loaded. It also adds external targets, which [`Options::external`]
//! lets take parts of a network. Your own passes run in a [`PassContext`](extend::PassContext) whose registry has them,
//! or are functions ([`OwnPass`](extend::OwnPass)) of [`Options::pipeline`]. Host functions, which a network calls by
//! name, are given with the [`Options`]. The documents `add-an-op`, `add-a-pass`, `add-a-rule` and `expert-kernel` show
//! each.
//!
//! ```
//! use weft::{Device, HostFunctions, Model, Options, Tensor};
//!
//! # fn main() -> Result<(), weft::Error> {
//! let mut functions = HostFunctions::new();
//! functions.register("negate", |inputs: &[Tensor]| {
//!     let x = &inputs[0];
//!     Ok(vec![Tensor::from_vec(x.shape().to_vec(), x.to_f32_vec().iter().map(|v| -v).collect::<Vec<f32>>())])
//! });
//! let model = Model::from_text(
//!     "graph @main(%x: f32[3]) -> (y: f32[3]) {
//!        %y = call_host @negate %x {dtypes=[f32], shapes=[[3]]} : f32[3]
//!        return %y
//!      }",
//! )?;
//! let device = Device::best();
//! let session = model.compile(&Options::for_device(&device).host_functions(functions))?.session(&device)?;
//! let outputs = session.run(&[("x", Tensor::from_vec(vec![3], vec![1f32, -2.0, 3.0]))])?;
//! assert_eq!(outputs["y"].to_f32_vec(), [-1.0, 2.0, -3.0]);
//! # Ok(())
//! # }
//! ```
#![warn(missing_docs)]

mod advice;
mod alone;
#[cfg(feature = "npz")]
pub mod arrays;
mod build;
mod bundle;
pub mod calibrated;
pub mod calibration;
pub mod ceilings;
mod compiled;
mod cpu_form;
mod device;
pub mod dlpack;
mod emitters;
mod error;
mod execution;
mod extensions;
pub mod external;
pub mod files;
pub mod host_library;
mod interpreted;
mod machine;
pub mod memory;
mod model;
mod native;
mod on_device;
mod on_gpu;
mod options;
mod origin;
mod outputs;
pub mod plain_files;
mod program;
pub mod races;
mod session;
pub mod speed;
mod staged;
pub mod statistics;
mod trace;
mod tuning;
pub mod written;

pub use advice::{Advice, Code, Spelling};
pub use bundle::{Bundle, BundleContents, EntryContents};
pub use compiled::CompiledModel;
pub use compiler::agreement::{Difference, Tolerance, agree};
pub use compiler::dtype::DType;
pub use compiler::graph::{Decided, Sizes, SizesError, TensorType};
pub use compiler::int::Dim;
pub use compiler::passes::{AmpMode, FuseMode, KeepF32, LayoutMode};
pub use compiler::tensor::{Tensor, TensorMut};
pub use compiler::trace::CompileTrace;
pub use device::{Device, named_profile};
pub use emitters::emitter;
pub use error::Error;
pub use execution::INTERPRETER;
pub use extensions::{Extensions, extend};
pub use model::Model;
pub use native::{PartOnProcessor, packed_constant, processor_name};
pub use on_device::{DeviceOutputs, InFlight};
pub use options::{Cache, Options, Progress, Watch, cache_dir};
pub use origin::refuse_machine_code;
pub use outputs::Outputs;
pub use runtime_cpu::ResultMemory;
pub use runtime_gpu::{
    AdapterDescription, DeviceTensor, HostFunctions, RunInput, RunTensor, Transfers, list_adapters, wgpu,
};
pub use session::Session;
pub use tuning::{
    BY_HAND, CalibrationLine, CeilingsLine, DeviceLine, FunctionLine, Line, RefusedLine, RegionLine, SampleLine,
    TuningDatabase, TuningLine, describe_choices, parse_choices,
};
