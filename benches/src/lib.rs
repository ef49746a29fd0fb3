//! Weft's model zoo, statistics and benchmark suites.

// A page has the zoo alone.
#[cfg(not(target_family = "wasm"))]
pub mod scaling;
#[cfg(not(target_family = "wasm"))]
pub mod shapes;
#[cfg(not(target_family = "wasm"))]
pub mod test_device;
pub mod zoo;

#[cfg(not(target_family = "wasm"))]
pub use weft::statistics;
