//! numpy's arrays and Weft's tensors.
//!
//! A contiguous array, or tensor that speaks DLPack, becomes a tensor that shares its memory; any other is copied
//! first. A result becomes an array that owns the result's memory.

use crate::errors::input;
use bytes::Bytes;
use numpy::ndarray::{ArrayView1, ArrayViewMut1, ArrayViewMutD, IxDyn};
use numpy::{Element, PyArray1, PyArrayDescrMethods, PyArrayDyn, PyUntypedArray, PyUntypedArrayMethods};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyFloat, PyInt, PyList, PyMapping, PyTuple};
use weft::{DType, ResultMemory, Tensor, TensorMut, TensorType};

/// A dictionary, or the items of another mapping.
pub struct Dict<'py>(pub Bound<'py, PyDict>);

impl<'py> FromPyObject<'_, 'py> for Dict<'py> {
    type Error = PyErr;
    fn extract(given: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        if let Ok(dict) = given.cast::<PyDict>() {
            return Ok(Dict(dict.to_owned()));
        }
        let dict = PyDict::new(given.py());
        dict.update(given.cast::<PyMapping>()?.as_any().cast()?)?;
        Ok(Dict(dict))
    }
}

/// numpy's name of an element type.
pub fn name_of(dtype: DType) -> &'static str {
    match dtype {
        DType::Bool => "bool",
        DType::U8 => "uint8",
        DType::I8 => "int8",
        DType::U16 => "uint16",
        DType::I16 => "int16",
        DType::U32 => "uint32",
        DType::I32 => "int32",
        DType::U64 => "uint64",
        DType::I64 => "int64",
        DType::F16 => "float16",
        DType::BF16 => "bfloat16",
        DType::F32 => "float32",
        DType::F64 => "float64",
    }
}

/// numpy, imported once.
fn numpy(py: Python<'_>) -> PyResult<&Bound<'_, PyModule>> {
    static NUMPY: PyOnceLock<Py<PyModule>> = PyOnceLock::new();
    let module = NUMPY.get_or_try_init(py, || py.import("numpy").map(Bound::unbind))?;
    Ok(module.bind(py))
}

/// The tensors of a dictionary of arrays.
///
/// # Errors
/// As [`tensor_of`].
pub fn tensors_of(arrays: &Bound<'_, PyDict>) -> PyResult<Vec<(String, Tensor)>> {
    let one = |(name, array): (Bound<'_, PyAny>, Bound<'_, PyAny>)| {
        let name: String = name.extract()?;
        let tensor = tensor_of(&name, &array)?;
        Ok((name, tensor))
    };
    arrays.iter().map(one).collect()
}

/// The tensor of an array, or of something that numpy makes an array of.
///
/// # Errors
/// An element type that Weft does not have.
pub fn tensor_of(name: &str, array: &Bound<'_, PyAny>) -> PyResult<Tensor> {
    let py = array.py();
    let array = match array.cast::<PyUntypedArray>() {
        Ok(array) if array.is_c_contiguous() && array.dtype().is_native_byteorder() != Some(false) => array.clone(),
        _ => in_order(py, array)?,
    };
    let dtype = dtype_of(name, &array)?;
    let shape = array.shape().to_vec();
    let len = array.len() * dtype.size();
    let owner = Shared { data: data_of(&array), len, _array: array.unbind() };
    Tensor::from_bytes(dtype, shape, Bytes::from_owner(owner)).map_err(pyo3::exceptions::PyValueError::new_err)
}

/// The tensors of an array, or of a list of arrays.
///
/// # Errors
/// An element type that Weft does not have.
pub fn results_of(name: &str, results: &Bound<'_, PyAny>) -> PyResult<Vec<Tensor>> {
    let one = |array: &Bound<'_, PyAny>| tensor_of(name, array);
    let is_list = results.is_instance_of::<PyList>() || results.is_instance_of::<PyTuple>();
    if is_list { results.try_iter()?.map(|array| one(&array?)).collect() } else { Ok(vec![one(results)?]) }
}

/// The arrays of tensors.
///
/// # Errors
/// An element type that no package here has for numpy.
pub fn arrays_of(py: Python<'_>, tensors: Vec<Tensor>) -> PyResult<Bound<'_, PyList>> {
    PyList::new(py, tensors.into_iter().map(|t| array_of(py, t)).collect::<PyResult<Vec<_>>>()?)
}

/// A contiguous array with the machine's order of bytes; one that is so already is not copied.
fn in_order<'py>(py: Python<'py>, array: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyUntypedArray>> {
    let foreign = array.cast::<PyUntypedArray>().is_err() && array.hasattr("__dlpack__")?;
    let numpy_of = |how: &str| numpy(py)?.call_method1(how, (array,));
    // numpy's DLPack has no bfloat16, and arrays of jax are arrays of numpy too.
    let array = if foreign { numpy_of("from_dlpack").or_else(|_| numpy_of("asarray"))? } else { numpy_of("asarray")? };
    let own = array.getattr("dtype")?.call_method1("newbyteorder", ("=",))?;
    let order = PyDict::new(py);
    order.set_item("dtype", own)?;
    order.set_item("order", "C")?;
    Ok(numpy(py)?.call_method("asarray", (array,), Some(&order))?.cast_into()?)
}

fn dtype_of(name: &str, array: &Bound<'_, PyUntypedArray>) -> PyResult<DType> {
    let own = array.dtype();
    // Types of other packages have larger numbers.
    let known = if own.num() < 24 { number_type(own.kind(), own.itemsize()) } else { None };
    if let Some(known) = known {
        return Ok(known);
    }
    let given: String = array.dtype().getattr("name")?.extract()?;
    DType::ALL.into_iter().find(|&t| name_of(t) == given).ok_or_else(|| {
        let known = DType::ALL.map(name_of).join(", ");
        input(
            format!("elements of type {given} are not supported"),
            format!("array `{name}`"),
            format!("convert it with `.astype(...)` to one of {known}"),
        )
    })
}

/// numpy's own number type of this kind and size.
fn number_type(kind: u8, size: usize) -> Option<DType> {
    Some(match (kind, size) {
        (b'b', 1) => DType::Bool,
        (b'i', 1) => DType::I8,
        (b'i', 2) => DType::I16,
        (b'i', 4) => DType::I32,
        (b'i', 8) => DType::I64,
        (b'u', 1) => DType::U8,
        (b'u', 2) => DType::U16,
        (b'u', 4) => DType::U32,
        (b'u', 8) => DType::U64,
        (b'f', 2) => DType::F16,
        (b'f', 4) => DType::F32,
        (b'f', 8) => DType::F64,
        _ => return None,
    })
}

/// Memory of an array that results are written to.
pub struct Room {
    pub name: String,
    _array: Py<PyUntypedArray>,
    dtype: DType,
    shape: Vec<usize>,
    at: *mut u8,
    len: usize,
}
// SAFETY: the memory belongs to the array, which is kept; the caller of a run does not use it meanwhile.
unsafe impl Send for Room {}

impl Room {
    /// Of arrays by the names of results.
    ///
    /// # Errors
    /// Something that is no array; an array that is not contiguous or cannot be written; two with the same memory.
    pub fn of_each(arrays: &Bound<'_, PyDict>) -> PyResult<Vec<Room>> {
        let mut all: Vec<Room> = vec![];
        for (name, given) in arrays {
            let name: String = name.extract()?;
            let refused = |why: &str| {
                input(
                    why,
                    format!("the array for the result `{name}`"),
                    "numpy.empty makes one that results are written to",
                )
            };
            let array = given.cast::<PyUntypedArray>().map_err(|_| refused("it is no array of numpy"))?;
            let own = array.dtype().is_native_byteorder() != Some(false);
            if !array.is_c_contiguous() || !own || !array.getattr("flags")?.getattr("writeable")?.is_truthy()? {
                return Err(refused("it is not contiguous, or cannot be written"));
            }
            let dtype = dtype_of(&name, array)?;
            let (at, len) = (data_of(array).cast_mut(), array.len() * dtype.size());
            let (start, shape) = (at as usize, array.shape().to_vec());
            let meets = |r: &Room| start < r.at as usize + r.len && (r.at as usize) < start + len;
            if all.iter().any(meets) {
                return Err(refused("another result is wanted in the same memory"));
            }
            all.push(Room { name, _array: array.clone().unbind(), dtype, shape, at, len });
        }
        Ok(all)
    }
    /// As a run takes it.
    pub fn memory(&mut self) -> ResultMemory<'_> {
        // SAFETY: a contiguous array has this many bytes from there on, and no other room of a run has them.
        let bytes =
            if self.len == 0 { &mut [][..] } else { unsafe { std::slice::from_raw_parts_mut(self.at, self.len) } };
        ResultMemory { dtype: self.dtype, shape: &self.shape, bytes }
    }
}

/// Where the elements of an array lie.
fn data_of(array: &Bound<'_, PyUntypedArray>) -> *const u8 {
    // SAFETY: the pointer is that of an array that is alive.
    unsafe { (*array.as_array_ptr()).fields.data.cast() }
}

/// The memory of an array, which lives as long as this.
struct Shared {
    data: *const u8,
    len: usize,
    _array: Py<PyUntypedArray>,
}
// SAFETY: the memory belongs to the array, which is kept; Weft only reads it.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}
impl AsRef<[u8]> for Shared {
    fn as_ref(&self) -> &[u8] {
        if self.len == 0 {
            return &[];
        }
        // SAFETY: a contiguous array has this many bytes from there on. numpy does not move the memory of an array that
        // others refer to.
        unsafe { std::slice::from_raw_parts(self.data, self.len) }
    }
}

/// An operand of a new node.
pub enum Operand<V> {
    Value(V),
    Absent,
    Tensor(Tensor),
}

/// An operand that is no value of a graph: None, an array, or a number, which has the type `number`.
///
/// # Errors
/// Something else; a number without a type.
pub fn operand_of<V>(item: &Bound<'_, PyAny>, number: Option<DType>) -> PyResult<Operand<V>> {
    if item.is_none() {
        return Ok(Operand::Absent);
    }
    let is_number = item.is_instance_of::<PyFloat>() || item.is_instance_of::<PyInt>();
    match number.filter(|_| is_number) {
        Some(dtype) => Ok(Operand::Tensor(Tensor::from_f64(dtype, vec![], [item.extract()?]))),
        None => tensor_of("an operand", item).map(Operand::Tensor),
    }
}

/// The element type that numpy makes of something.
///
/// # Errors
/// A type that Weft does not have.
pub fn numpy_dtype(given: &Bound<'_, PyAny>) -> PyResult<DType> {
    let name: String = numpy(given.py())?.call_method1("dtype", (given,))?.getattr("name")?.extract()?;
    DType::ALL.into_iter().find(|&t| name_of(t) == name).ok_or_else(|| {
        input(
            format!("{name} is no element type"),
            "an attribute",
            "numbers, texts, lists and numpy's types are attributes",
        )
    })
}

/// The tensor as an array that may not be written, in the tensor's memory.
///
/// # Errors
/// An element type that no package here has for numpy.
pub fn view_of<'py>(py: Python<'py>, tensor: &Tensor) -> PyResult<Bound<'py, PyAny>> {
    let (dtype, shape, bytes) = (tensor.dtype(), tensor.shape().to_vec(), tensor.bytes());
    // SAFETY: the bytes stay where they are while the tensor lives, which the array's base object keeps; nobody writes
    // them.
    let view = unsafe { ArrayView1::from_shape_ptr(bytes.len(), bytes.as_ptr()) };
    let owner = Bound::new(py, View { _tensor: tensor.clone() })?;
    // SAFETY: as above; it is made read-only before anybody else sees it.
    let array = unsafe { PyArray1::<u8>::borrow_from_array(&view, owner.into_any()) };
    array.call_method1("setflags", (false,))?;
    array.call_method1("view", (numpy_type(py, dtype)?,))?.call_method1("reshape", (shape,))
}

/// The owner of the memory of a view.
#[pyclass(frozen)]
struct View {
    _tensor: Tensor,
}

/// The owner of the memory of a result.
#[pyclass(frozen)]
struct Memory {
    _tensor: TensorMut,
}

/// A result as an array that may be written: in the result's own memory, if nobody else has that.
///
/// # Errors
/// An element type that no package here has for numpy.
pub fn array_of<'py>(py: Python<'py>, tensor: Tensor) -> PyResult<Bound<'py, PyAny>> {
    let (dtype, shape) = (tensor.dtype(), tensor.shape().to_vec());
    let mut memory = TensorMut::of(tensor);
    let bytes = memory.bytes_mut();
    if bytes.as_ptr().cast::<u64>().is_aligned() && !bytes.is_empty() {
        match dtype {
            DType::F32 => return over::<f32>(py, &shape, memory),
            DType::F64 => return over::<f64>(py, &shape, memory),
            DType::I64 => return over::<i64>(py, &shape, memory),
            DType::I32 => return over::<i32>(py, &shape, memory),
            DType::U8 => return over::<u8>(py, &shape, memory),
            _ => {}
        }
    }
    // SAFETY: the bytes stay where they are while `memory` lives, which the array's base object keeps; nothing else
    // reads or writes them.
    let view = unsafe { ArrayViewMut1::from_shape_ptr(bytes.len(), bytes.as_mut_ptr()) };
    let owner = Bound::new(py, Memory { _tensor: memory })?;
    // SAFETY: as above.
    let array = unsafe { PyArray1::<u8>::borrow_from_array(&view, owner.into_any()) };
    array.call_method1("view", (numpy_type(py, dtype)?,))?.call_method1("reshape", (shape,))
}

/// The array of elements of a common type, whose memory is aligned to 8 bytes: made at once, since small models return
/// such.
fn over<'py, T: Element>(py: Python<'py>, shape: &[usize], mut memory: TensorMut) -> PyResult<Bound<'py, PyAny>> {
    let at: *mut T = memory.bytes_mut().as_mut_ptr().cast();
    // SAFETY: the memory is aligned to 8 bytes, has the elements of the shape, and stays where it is while `memory`
    // lives, which the array's base object keeps; nothing else reads or writes it.
    let view = unsafe { ArrayViewMutD::<T>::from_shape_ptr(IxDyn(shape), at) };
    let owner = Bound::new(py, Memory { _tensor: memory })?;
    // SAFETY: as above.
    Ok(unsafe { PyArrayDyn::<T>::borrow_from_array(&view, owner.into_any()) }.into_any())
}

fn numpy_type(py: Python<'_>, dtype: DType) -> PyResult<Bound<'_, PyAny>> {
    match dtype {
        DType::BF16 => py.import("ml_dtypes").and_then(|m| m.getattr("bfloat16")).map_err(|_| {
            input("numpy has no bfloat16", "a result", "install the package ml_dtypes, or add a Cast to the model")
        }),
        _ => numpy(py)?.call_method1("dtype", (name_of(dtype),)),
    }
}

/// Inputs, each with its type and shape, have the types and shapes of the model's.
///
/// # Errors
/// The first that has not, with what fits.
pub fn check<'a>(
    inputs: impl Iterator<Item = (&'a str, DType, &'a [usize])>,
    ports: &[(String, TensorType)],
) -> PyResult<()> {
    for (name, dtype, shape) in inputs {
        let Some((_, ty)) = ports.iter().find(|p| p.0 == name) else { continue };
        let fits = |(d, &n): (_, &usize)| fixed(d).is_none_or(|d| d == n);
        let shape_fits = shape.len() == ty.shape.len() && ty.shape.iter().zip(shape).all(fits);
        if dtype == ty.dtype && shape_fits {
            continue;
        }
        let (given, wanted) = (name_of(dtype), name_of(ty.dtype));
        let place = format!("input `{name}`: {ty:?}");
        if given != wanted {
            let help = format!("convert it with `.astype(\"{wanted}\")`");
            return Err(input(format!("the array has elements of type {given}, not {wanted}"), place, help));
        }
        let help = "sizes that the model fixes change with `shapes=`, `dims=` or `batch=` of weft_nn.compile";
        return Err(input(format!("the array has the shape {shape:?}"), place, help));
    }
    Ok(())
}

/// A size that is fixed.
fn fixed(d: &weft::Dim) -> Option<usize> {
    usize::try_from(d.as_const()?).ok()
}
