//! Nodes as external targets are asked about them.

use crate::arrays::name_of;
use crate::attributes::attr_to_py;
use crate::ports::Size;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use weft::TensorType;
use weft::extend::{self, OpRef};

/// The form of an operand or a result: `dtype` (numpy's name of the element type), `shape`, a list with a number for
/// each dimension that is fixed and a text for one that stays open, and `is_constant`, true for a constant of the
/// model.
#[pyclass(frozen, get_all, module = "weft_nn")]
pub struct TensorForm {
    /// numpy's name of the element type.
    dtype: &'static str,
    /// A number for each dimension that is fixed, and a text for one that stays open.
    shape: Vec<Size>,
    /// True for a constant of the model.
    is_constant: bool,
}

impl TensorForm {
    fn of(ty: &TensorType, is_constant: bool) -> TensorForm {
        TensorForm { dtype: name_of(ty.dtype), shape: ty.shape.iter().map(Size::of).collect(), is_constant }
    }
}

#[pymethods]
impl TensorForm {
    fn __repr__(&self) -> String {
        let shape: Vec<String> = self.shape.iter().map(Size::to_string).collect();
        let constant = if self.is_constant { "constant " } else { "" };
        format!("<weft_nn.TensorForm {constant}{}[{}]>", self.dtype, shape.join(","))
    }
}

/// A node that a target is asked about: its op with all attributes, and the types of its operands and results.
#[pyclass(frozen, module = "weft_nn")]
pub struct NodeForm {
    op: OpRef,
    inputs: Vec<Option<(TensorType, bool)>>,
    outputs: Vec<TensorType>,
}

impl NodeForm {
    /// Of the compiler's.
    pub fn of(form: &extend::NodeForm) -> NodeForm {
        NodeForm { op: form.op.clone(), inputs: form.inputs.clone(), outputs: form.outputs.clone() }
    }
}

#[pymethods]
impl NodeForm {
    /// The name of its op, such as "conv".
    #[getter]
    fn op(&self) -> &'static str {
        self.op.name()
    }
    /// All attributes of its op, those with default values too: a dictionary.
    #[getter]
    fn attributes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let dict = PyDict::new(py);
        self.op.every_attr().iter().try_for_each(|(name, value)| dict.set_item(name, attr_to_py(py, value)?))?;
        Ok(dict)
    }
    /// Its operands: a list of TensorForm, with None for one that is absent.
    #[getter]
    fn inputs(&self) -> Vec<Option<TensorForm>> {
        self.inputs.iter().map(|i| i.as_ref().map(|(ty, constant)| TensorForm::of(ty, *constant))).collect()
    }
    /// Its results: a list of TensorForm.
    #[getter]
    fn outputs(&self) -> Vec<TensorForm> {
        self.outputs.iter().map(|ty| TensorForm::of(ty, false)).collect()
    }
    fn __repr__(&self) -> String {
        format!("<weft_nn.NodeForm {}>", self.op.name())
    }
}
