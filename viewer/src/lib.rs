//! Weft's viewer: what a compilation did, from its trace.
//!
//! [`Viewer`] is what is shown and selected, without graphics; [`show()`] draws it with egui; `open` (feature `window`)
//! puts it into a window. Selection is a set of source nodes: choosing a line of the IR, a group, a kernel or a remark
//! selects the nodes it came from, and everything else that came from them is marked.
//!
//! Deliberately absent: compiling and running. Whoever opens a model compiles it first and hands over the trace.

mod show;
mod state;
#[cfg(feature = "window")]
mod window;

pub use show::show;
pub use state::{Line, Mark, Mode, Tab, Viewer};
#[cfg(feature = "window")]
pub use window::open;
