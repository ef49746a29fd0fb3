//! Weft's model zoo, statistics and benchmark suites.

pub mod scaling;
pub mod shapes;
pub mod test_device;
pub mod zoo;

pub use weft::statistics;
