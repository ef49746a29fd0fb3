//! Networks of the zoo, random ones and small ones of each kind, on every target. One program has all of them: each
//! program is linked with everything. Tests that count allocations stand apart, and so do those of [whole networks].
//!
//! [whole networks]: ../whole_networks.rs

#[path = "../../../c-source/tests/shared/built.rs"]
mod built;
mod calls;
mod cast_chains;
mod device_tensors;
mod functions;
mod layouts;
mod members;
mod open_sizes;
mod plans;
mod random_networks;
mod wide_integers;
mod zoo_text;
