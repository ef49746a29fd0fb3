//! Weft's model zoo, statistics and benchmark suites.

pub mod statistics;
pub mod zoo;
