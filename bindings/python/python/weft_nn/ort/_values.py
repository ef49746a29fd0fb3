"""Tensors in host memory and on the device, and their bindings to names."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any, Dict, List, Optional, Sequence, Tuple, Union

import numpy as np
from numpy.typing import NDArray

from weft_nn._errors import INPUT, USAGE
from weft_nn._native import DeviceTensor, Session
from ._errors import Fail, InvalidArgument
from ._file import ELEMENTS

if TYPE_CHECKING:
    from ._session import InferenceSession

_Array = NDArray[Any]

# numpy's names where onnxruntime has others.
_NAMES = {"float32": "float", "float64": "double", "object": "string"}
_NUMBERS = {name: number for number, name in ELEMENTS.items()}


def element_name(dtype: Any) -> str:
    """onnxruntime's name of an element type."""
    name = str(dtype)
    return "string" if name[:2] in ("<U", "|S", ">U") else _NAMES.get(name, name)


def _dtype(given: Any) -> Any:
    """numpy's type of an element type: one of numpy's, or ONNX's number."""
    if not isinstance(given, int):
        return np.dtype(given)
    name = ELEMENTS.get(given, "?")
    if name == "bfloat16":
        import ml_dtypes  # type: ignore[import-not-found, unused-ignore]

        return np.dtype(ml_dtypes.bfloat16)
    name = {"float": "float32", "double": "float64"}.get(name, name)
    try:
        return np.dtype(name)
    except TypeError:
        raise InvalidArgument(f"there are no arrays of ONNX's element type {given} ({name})", USAGE) from None


def _at(pointer: int, dtype: Any, shape: Sequence[int]) -> _Array:
    """The array in somebody's memory."""
    kind = _dtype(dtype)
    size = int(np.prod(shape, dtype=np.int64)) * kind.itemsize
    if size == 0:
        return np.empty(tuple(shape), kind)
    memory: Any = (ctypes.c_byte * size).from_address(pointer)
    array: _Array = np.frombuffer(memory, kind).reshape(tuple(shape))
    return array


class OrtValue:
    """A tensor in host memory, or on the device of a session; or a sequence of tensors, which a model returned."""

    def __init__(self, array: Union[_Array, DeviceTensor, List[Any]], device_type: str = "cpu") -> None:
        self._array: Any = array
        self._device_type = device_type
        self._number: Optional[int] = None

    @staticmethod
    def ortvalue_from_numpy(array: Any, device_type: str = "cpu", device_id: int = 0, vendor_id: int = -1) -> OrtValue:
        """A value in the memory of the array. With another device type than "cpu" it has a copy, and the first session
        that it is bound to uploads it, once."""
        return OrtValue(np.ascontiguousarray(array) if device_type == "cpu" else np.array(array), device_type)

    @staticmethod
    def ortvalue_from_numpy_with_onnx_type(array: Any, onnx_element_type: int) -> OrtValue:
        """A value in the memory of the array, whose bytes are elements of another type of the same size."""
        given = np.ascontiguousarray(array)
        kind = _dtype(onnx_element_type)
        if given.dtype.itemsize != kind.itemsize:
            raise InvalidArgument(f"elements of {given.dtype} have another size than those of {kind}", INPUT)
        return OrtValue(given.view(kind))

    @staticmethod
    def ortvalue_from_shape_and_type(
        shape: Sequence[int],
        element_type: Any = np.float32,
        device_type: str = "cpu",
        device_id: int = 0,
        vendor_id: int = -1,
    ) -> OrtValue:
        """A value of zeros."""
        return OrtValue(np.zeros(shape, _dtype(element_type)), device_type)

    @staticmethod
    def from_dlpack(tensor: Any, is_bool_tensor: bool = False) -> OrtValue:
        """A value in the memory of a tensor of another package, in host memory."""
        array = np.from_dlpack(tensor)
        return OrtValue(array.view(np.bool_) if is_bool_tensor else array)

    def __dlpack__(self, **words: Any) -> Any:
        return self._array.__dlpack__(**words)

    def __dlpack_device__(self) -> Tuple[int, int]:
        return (1, 0)

    def numpy(self) -> _Array:
        """The array; of a value on a device, a copy."""
        if isinstance(self._array, list):
            raise Fail("the value is a sequence, not a tensor", INPUT)
        array: _Array = self._array.numpy() if isinstance(self._array, DeviceTensor) else self._array
        return array

    def update_inplace(self, array: Any) -> None:
        """Writes the elements of an array of the same type and shape."""
        given = np.asarray(array)
        if list(given.shape) != self.shape() or element_name(given.dtype) != element_name(self._array.dtype):
            raise InvalidArgument(f"the value is {self.data_type()} {self.shape()}, the array {given.dtype} {given.shape}", INPUT)
        if isinstance(self._array, np.ndarray):
            np.copyto(self._array, given)
        else:
            self._array = np.array(given)

    def shape(self) -> List[int]:
        """The shape."""
        return list(self._array.shape)

    def data_type(self) -> str:
        """The type, such as "tensor(float)"."""
        if isinstance(self._array, list):
            return f"seq(tensor({element_name(self._array[0].dtype) if self._array else 'float'}))"
        return f"tensor({element_name(self._array.dtype)})"

    def element_type(self) -> int:
        """ONNX's number of the element type."""
        return _NUMBERS.get(element_name(self._array.dtype), 0)

    def data_ptr(self) -> int:
        """Where the elements lie in host memory."""
        if not isinstance(self._array, np.ndarray):
            raise Fail("the value is on a device", INPUT, None, "numpy() copies it to host memory")
        return int(self._array.ctypes.data)

    def tensor_size_in_bytes(self) -> int:
        """Bytes of all elements."""
        return int(np.prod(self.shape(), dtype=np.int64) * np.dtype(self._array.dtype).itemsize)

    def device_name(self) -> str:
        """Where it lies: "cpu", or the device type that was asked for."""
        return self._device_type

    def has_value(self) -> bool:
        """True."""
        return True

    def is_tensor(self) -> bool:
        """True for one tensor."""
        return not isinstance(self._array, list)

    def is_tensor_sequence(self) -> bool:
        """True for a sequence."""
        return isinstance(self._array, list)

    def is_sparse_tensor(self) -> bool:
        """False."""
        return False

    def _on(self, session: Session, name: str) -> Any:
        """As an input of a session."""
        if self._device_type != "cpu" and isinstance(self._array, np.ndarray):
            self._array = session.to_device(name, self._array)
        return self._array


class IOBinding:
    """Inputs and results that are bound to names, for `run_with_iobinding`."""

    def __init__(self, session: InferenceSession) -> None:
        self._session = session
        self._inputs: Dict[str, Any] = {}
        self._outputs: Dict[str, Union[str, OrtValue]] = {}
        self._results: List[OrtValue] = []

    def bind_cpu_input(self, name: str, array: Any) -> None:
        """Binds an array to an input."""
        self._inputs[name] = array

    def bind_ortvalue_input(self, name: str, value: OrtValue) -> None:
        """Binds a value to an input. One on the device is used where it is."""
        self._inputs[name] = value

    def bind_input(
        self, name: str, device_type: str, device_id: int, element_type: Any, shape: Sequence[int], buffer_ptr: int
    ) -> None:
        """Binds memory to an input: that of the host, where it is read at each run."""
        self._inputs[name] = self._memory(device_type, element_type, shape, buffer_ptr)

    def bind_output(
        self,
        name: str,
        device_type: str = "cpu",
        device_id: int = 0,
        element_type: Any = None,
        shape: Optional[Sequence[int]] = None,
        buffer_ptr: Optional[int] = None,
    ) -> None:
        """Asks for a result. With a pointer it is written there, in host memory; with another device type than "cpu" it
        stays on the session's device."""
        if buffer_ptr:
            self._outputs[name] = OrtValue(self._memory(device_type, element_type, shape or (), buffer_ptr))
        else:
            self._outputs[name] = device_type

    @staticmethod
    def _memory(device_type: str, element_type: Any, shape: Sequence[int], pointer: int) -> _Array:
        if device_type != "cpu":
            raise InvalidArgument(
                f"a pointer to memory of {device_type}", USAGE, None, "bind an OrtValue with that device type instead"
            )
        return _at(pointer, element_type, shape)

    def bind_ortvalue_output(self, name: str, value: OrtValue) -> None:
        """Asks for a result in the memory of a value in host memory, or as a value on the device."""
        self._outputs[name] = value

    def synchronize_inputs(self) -> None:
        """Nothing: uploads and runs are in order."""

    def synchronize_outputs(self) -> None:
        """Nothing: whoever reads a result waits for it."""

    def clear_binding_inputs(self) -> None:
        """Forgets the inputs."""
        self._inputs.clear()

    def clear_binding_outputs(self) -> None:
        """Forgets the results."""
        self._outputs.clear()

    def get_outputs(self) -> List[OrtValue]:
        """The results of the last run, in the order in which they were bound."""
        return self._results

    get_outputs_as_ortvaluevector = get_outputs

    def copy_outputs_to_cpu(self) -> List[_Array]:
        """The arrays of the results."""
        return [value.numpy() for value in self._results]

    def _run(self) -> None:
        places = {n: o.device_name() if isinstance(o, OrtValue) else o for n, o in self._outputs.items()}
        stays = any(place != "cpu" for place in places.values())
        tensors = self._session._computed(list(self._outputs), self._inputs, stays, {} if stays else self._room())
        self._results = []
        for tensor, (name, bound) in zip(tensors, self._outputs.items()):
            if places[name] == "cpu" and isinstance(tensor, DeviceTensor):
                tensor = tensor.numpy()
            if not isinstance(bound, OrtValue):
                bound = OrtValue(tensor, places[name])
            elif isinstance(tensor, DeviceTensor):
                bound._array = tensor
            elif tensor is not bound._array:
                _copied(name, bound.numpy(), tensor)
            self._results.append(bound)

    def _room(self) -> Dict[str, _Array]:
        """Arrays that a run can write its results to."""
        values = {name: o._array for name, o in self._outputs.items() if isinstance(o, OrtValue)}
        arrays = {name: a for name, a in values.items() if isinstance(a, np.ndarray)}
        return {name: a for name, a in arrays.items() if a.flags.c_contiguous and a.flags.writeable}


def _copied(name: str, to: _Array, result: _Array) -> None:
    if (to.dtype, to.shape) != (result.dtype, result.shape):
        given, made = f"{to.dtype}{list(to.shape)}", f"{result.dtype}{list(result.shape)}"
        raise InvalidArgument(f"the value for the result `{name}` is {given}, the result is {made}", INPUT)
    np.copyto(to, result)
