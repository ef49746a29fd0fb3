//! Inputs of runs, in host memory or where a session computes.

use crate::device_tensor::DeviceTensor;
use pyo3::prelude::*;
use weft::Tensor;

/// An input: in host memory, or a tensor of a session.
pub enum Given {
    Host(Tensor),
    Device(Py<DeviceTensor>),
}

/// Inputs in host memory.
///
/// # Errors
/// As [`DeviceTensor::read`].
pub fn in_memory(py: Python<'_>, given: Vec<(String, Given)>) -> PyResult<Vec<(String, Tensor)>> {
    let one = |(name, given)| match given {
        Given::Host(t) => Ok((name, t)),
        Given::Device(t) => Ok((name, t.get().read(py)?)),
    };
    given.into_iter().map(one).collect()
}

/// The inputs as a session takes them.
pub fn named(inputs: &[(String, Tensor)]) -> Vec<(&str, Tensor)> {
    inputs.iter().map(|(name, t)| (name.as_str(), t.clone())).collect()
}

/// The inputs in the model's order.
pub fn in_order(session: &weft::Session, inputs: &[(String, Tensor)]) -> Vec<Tensor> {
    let find = |name: &String| inputs.iter().find(|i| i.0 == *name).map(|i| i.1.clone());
    session.inputs().iter().filter_map(|(name, _)| find(name)).collect()
}
