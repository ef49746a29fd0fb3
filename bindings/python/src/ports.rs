//! Inputs and results of models.

use crate::arrays::name_of;
use pyo3::prelude::*;
use weft::TensorType;

/// An input or a result of a model: `name`, `dtype` (numpy's name of the element type) and `shape`, a list with a
/// number for each dimension that is fixed, and a text for one that stays open.
#[pyclass(frozen, get_all, module = "weft_nn")]
pub struct Port {
    /// As the model has it.
    name: String,
    /// numpy's name of the element type.
    dtype: &'static str,
    /// A number for each dimension that is fixed, and a text for one that stays open.
    shape: Vec<Size>,
}

/// The size of a dimension.
#[derive(Clone, IntoPyObject, IntoPyObjectRef)]
pub enum Size {
    Fixed(i64),
    Open(String),
}

impl Size {
    /// Of a dimension.
    pub fn of(d: &weft::Dim) -> Size {
        d.as_const().map_or_else(|| Size::Open(d.to_string()), Size::Fixed)
    }
}

impl std::fmt::Display for Size {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Size::Fixed(n) => write!(f, "{n}"),
            Size::Open(text) => write!(f, "'{text}'"),
        }
    }
}

impl Port {
    /// Of a value of this type.
    pub fn new(name: String, ty: &TensorType) -> Port {
        Port { name, dtype: name_of(ty.dtype), shape: ty.shape.iter().map(Size::of).collect() }
    }
}

#[pymethods]
impl Port {
    fn __repr__(&self) -> String {
        let shape: Vec<String> = self.shape.iter().map(Size::to_string).collect();
        format!("Port(name={:?}, dtype={:?}, shape=[{}])", self.name, self.dtype, shape.join(", "))
    }
}
