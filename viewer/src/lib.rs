//! Weft's viewer: what a compilation did, from its trace.
//!
//! A [`Document`] is a trace with indices, a [`Viewer`] what is shown and selected of it, without graphics; [`show()`] draws it
//! with egui; `open` (feature `window`) puts it into a window, `screenshot` (feature of the same name) into a picture. The
//! graph is a [`graphview::scene::Scene`], laid out on a thread of its own ([`drawing`]) and painted by [`canvas`]; [`panes`]
//! are what stands beside it.
//!
//! Always holds: selection is a set of source nodes. Choosing a box, a line, a group, a kernel or a remark selects the nodes it
//! came from, and everything else that came from them is marked. Nothing here parses shaders: what the trace lacks is made
//! anew from its scheduled tensor functions.
//!
//! Deliberately absent: models and devices. Whoever opens a model compiles it first and hands over the trace, and may give a
//! [`live::Host`] that compiles it anew and times kernels; without one, edited schedules are checked and compiled all the same.

#![warn(missing_docs)]

pub mod canvas;
pub mod document;
pub mod drawing;
pub mod export;
mod keys;
pub mod live;
mod opening;
pub mod panes;
#[cfg(feature = "screenshot")]
mod screenshot;
pub mod search;
mod show;
pub mod start;
mod state;
#[cfg(feature = "window")]
mod window;
mod worker;

pub use document::Document;
#[cfg(feature = "screenshot")]
pub use screenshot::screenshot;
pub use show::show;
pub use start::{Fault, Shot};
pub use state::{Tab, Viewer};
#[cfg(feature = "window")]
pub use window::open;
