//! Weft's viewer: shows a compilation from its trace.
//!
//! A [`Document`] is a trace with indices. A [`Viewer`] is the state of the view (what is shown and selected), without
//! graphics. [`show()`] draws it with egui; `open` (feature `window`) opens a window, `screenshot` (feature of the same
//! name) makes a picture, and `steps` (the same feature) drives the window without a display. The graph is a
//! [`graphview::scene::Scene`], laid out on a separate thread ([`drawing`]) and painted by [`canvas`]; [`panes`] are
//! beside it, or pages in its place.
//!
//! Always holds: the selection is a set of source nodes. Choosing a box, a line, a group, a kernel or a remark selects
//! its source nodes, and everything else with these source nodes is marked. Nothing here parses shaders: shaders that a
//! trace does not have are made again from its scheduled tensor functions.
//!
//! Deliberately absent: models and devices. A program that opens a model compiles it first and passes the trace. It may
//! give a [`live::Host`] that compiles the model again and times kernels; without one, edited schedules are still
//! checked and compiled.

#![warn(missing_docs)]

mod beside;
pub mod canvas;
pub mod delta;
mod details;
pub mod document;
pub mod drawing;
pub mod export;
mod keys;
pub mod live;
mod marked;
mod once;
mod opening;
pub mod panes;
mod picture;
mod remake;
#[cfg(feature = "screenshot")]
mod screenshot;
pub mod search;
mod show;
mod stages;
pub mod start;
mod state;
#[cfg(feature = "screenshot")]
pub mod steps;
mod svg;
mod tab;
pub mod units;
#[cfg(feature = "window")]
mod window;
mod words;
mod worker;

pub use document::Document;
#[cfg(feature = "screenshot")]
pub use screenshot::{graph_png, graph_svg, screenshot};
pub use show::show;
pub use start::{Fault, Shot};
pub use state::{Tab, Viewer};
#[cfg(feature = "window")]
pub use window::open;
