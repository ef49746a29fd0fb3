//! What the `weft` command does, as a library: loading of models and inputs, the choice of a device, compilation,
//! tuning, benchmarks, comparison, bisection.
//!
//! Each is a function of a typed request ([`settings::Settings`] are a part of all), a watcher for messages and
//! progress ([`watcher::Watcher`]), and gives a typed record or a typed error ([`error::Error`]). Nothing here knows a
//! command line or a terminal.

pub mod bench;
pub mod bisect;
pub mod bundles;
pub mod ceilings;
pub mod classes;
pub mod compare;
pub mod device;
pub mod dims;
pub mod driver_stats;
pub mod error;
pub mod executor;
pub mod explain;
pub mod external;
pub mod extract;
pub mod host_calls;
pub mod images;
pub mod inputs;
pub mod layout_options;
pub mod match_models;
pub mod models;
pub mod node_names;
pub mod options;
pub mod overlay;
pub mod own_process;
pub mod parts;
pub mod pictures;
pub mod precision;
pub mod progress;
pub mod range_checks;
pub mod record;
pub mod report;
pub mod results;
pub mod said;
pub mod settings;
pub mod shown;
pub mod state;
pub mod traces;
pub mod tune;
pub mod tuning;
pub mod values_by_name;
pub mod watcher;
pub mod worker;

pub use error::{Code, Error, Result};
pub use graphview::{document, figures, names};
pub use settings::Settings;
pub use weft::{arrays, statistics, written};
