//! External targets: libraries and code generators that run the parts of a graph that they are best at.
//!
//! A target is one implementation of [`ExternalTarget`], registered with [`register_target`]. The passes take nodes for
//! it: `merge-composite` finds its patterns, `annotate-target` asks it about each node, `merge-regions` joins what it
//! took to regions, and `partition-graph` makes each region a graph function and a `call_host` of the target, with that
//! function as the reference. `inline-external` undoes regions that do not pay. The interpreter runs the reference; a
//! plan runs the target's [`Prepared`] region ([`CallSite`]). `docs/add-a-target.md` builds one.
//!
//! Deliberately absent: files and libraries. A target that loads one is in a crate of its own.

mod interpreter;
mod options;
mod region;
mod site;
mod table;
mod target;

pub use options::TargetOptions;
pub use region::Region;
pub use site::CallSite;
pub use table::{TargetSpec, find_target, machine_options, native_targets, register_target};
pub use target::{ExternalPattern, ExternalTarget, Prepared};
