//! Tensors that stay where a session computes.

use crate::arrays::{array_of, name_of};
use crate::interrupt::wait;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use weft::{DType, Device, RunInput, RunTensor, Tensor};

/// A tensor that stays where a session computes: `session.run(inputs, on_device=True)` returns such results, and
/// `session.to_device` uploads inputs. It can be an input of each session; sessions on the same device take it without
/// a copy, for others it goes through host memory. `numpy()`, `numpy.asarray` and DLPack read it.
#[pyclass(frozen, module = "weft_nn")]
pub struct DeviceTensor {
    pub place: Place,
}

/// Where it is.
pub enum Place {
    Device(weft::DeviceTensor, Device),
    /// For sessions that compute in host memory.
    Host(Tensor),
}

impl Place {
    /// Of a result on `device`.
    pub fn of(result: RunTensor, device: &Device) -> Place {
        match result {
            RunTensor::Device(t) => Place::Device(t, device.clone()),
            RunTensor::Host(t) => Place::Host(t),
        }
    }
}

impl DeviceTensor {
    /// Type and shape.
    pub fn form(&self) -> (DType, &[usize]) {
        match &self.place {
            Place::Device(t, _) => (t.dtype(), t.shape()),
            Place::Host(t) => (t.dtype(), t.shape()),
        }
    }
    /// The tensor in host memory, once the device is done.
    ///
    /// # Errors
    /// A lost device; what a signal raised.
    pub fn read(&self, py: Python<'_>) -> PyResult<Tensor> {
        match &self.place {
            Place::Device(t, device) => wait(py, device.read(t)),
            Place::Host(t) => Ok(t.clone()),
        }
    }
    /// As an input of a session on `device`; `None` if it is not there.
    pub fn on(&self, device: &Device) -> Option<RunInput<'_>> {
        match (&self.place, device) {
            (Place::Device(t, Device::Gpu(own)), Device::Gpu(other)) if std::sync::Arc::ptr_eq(own, other) => {
                Some(RunInput::Device(t))
            }
            (Place::Device(..), _) => None,
            (Place::Host(t), _) => Some(RunInput::Host(t)),
        }
    }
}

#[pymethods]
impl DeviceTensor {
    /// The shape, as a tuple.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, pyo3::types::PyTuple>> {
        pyo3::types::PyTuple::new(py, self.form().1)
    }
    /// numpy's name of the element type.
    #[getter]
    fn dtype(&self) -> &'static str {
        name_of(self.form().0)
    }
    /// The device, or "host memory" where a session computes there.
    #[getter]
    fn device(&self) -> String {
        match &self.place {
            Place::Device(_, device) => device.label(),
            Place::Host(_) => "host memory".into(),
        }
    }
    /// A copy in host memory, as an array; waits until the device is done.
    ///
    /// Raises weft_nn.Error: code 5 for a lost device.
    fn numpy<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        array_of(py, self.read(py)?)
    }
    /// `numpy.asarray(tensor)`.
    #[pyo3(signature = (dtype=None, copy=None))]
    fn __array__<'py>(
        &self,
        py: Python<'py>,
        dtype: Option<Bound<'py, PyAny>>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        if copy == Some(false) {
            let why = "a tensor on a device cannot be an array without a copy";
            return Err(pyo3::exceptions::PyValueError::new_err(why));
        }
        let array = self.numpy(py)?;
        match dtype {
            Some(dtype) => array.call_method1("astype", (dtype,)),
            None => Ok(array),
        }
    }
    /// A copy in host memory, for `torch.from_dlpack(tensor)` and others.
    #[pyo3(signature = (**words))]
    fn __dlpack__<'py>(&self, py: Python<'py>, words: Option<Bound<'py, PyDict>>) -> PyResult<Bound<'py, PyAny>> {
        if let Some(words) = &words {
            // The copy is made here, and belongs to nobody else.
            let _ = words.del_item("copy");
        }
        self.numpy(py)?.call_method("__dlpack__", (), words.as_ref())
    }
    fn __dlpack_device__(&self) -> (i32, i32) {
        (1, 0)
    }
    fn __repr__(&self) -> String {
        let (dtype, shape) = self.form();
        format!("<weft_nn.DeviceTensor {} {shape:?} on {}>", name_of(dtype), self.device())
    }
}
