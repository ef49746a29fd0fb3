//! Weft's model zoo, statistics and benchmark suites.

pub mod zoo;
pub mod statistics;
