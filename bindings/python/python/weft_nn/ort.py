"""The classes of onnxruntime, so that a script runs on Weft with one import changed.

>>> import weft_nn.ort as onnxruntime  # instead of: import onnxruntime

There are `InferenceSession` with `SessionOptions`, `run`, `run_with_iobinding`, `get_inputs` and `get_outputs`, and
`OrtValue` in host memory and on the device. Options of threads, graph optimisations and logs have no effect: Weft has its own. Sizes that
a model leaves open stay open. Errors are `weft_nn.Error`.
"""

from __future__ import annotations

import enum
import os
from typing import Any, Dict, List, Mapping, Optional, Sequence, Union

import numpy as np

from ._native import DeviceTensor, Model, Port, Session, compile, devices, load, metadata
from ._errors import INPUT, UNSUPPORTED, Error

PROVIDER = "WeftExecutionProvider"

_TYPES = {
    "float32": "tensor(float)",
    "float64": "tensor(double)",
}


class GraphOptimizationLevel(enum.IntEnum):
    """Accepted; Weft optimises at its own level (`opt_level` of a provider's options)."""

    ORT_DISABLE_ALL = 0
    ORT_ENABLE_BASIC = 1
    ORT_ENABLE_EXTENDED = 2
    ORT_ENABLE_LAYOUT = 3
    ORT_ENABLE_ALL = 99


class ExecutionMode(enum.IntEnum):
    """Accepted without effect."""

    ORT_SEQUENTIAL = 0
    ORT_PARALLEL = 1


class SessionOptions:
    """Options of a session. All attributes of onnxruntime's class can be set; none of them changes a result."""

    def __init__(self) -> None:
        self._entries: Dict[str, str] = {}
        self.intra_op_num_threads = 0
        self.inter_op_num_threads = 0
        self.log_severity_level = 2
        self.graph_optimization_level = GraphOptimizationLevel.ORT_ENABLE_ALL
        self.execution_mode = ExecutionMode.ORT_SEQUENTIAL
        self.enable_cpu_mem_arena = True
        self.enable_mem_pattern = True
        self.enable_profiling = False

    def add_session_config_entry(self, key: str, value: str) -> None:
        """Notes an entry, which `get_session_config_entry` gives back."""
        self._entries[key] = value

    def get_session_config_entry(self, key: str) -> str:
        """The value of an entry."""
        return self._entries[key]


class RunOptions:
    """Accepted without effect."""


class NodeArg:
    """An input or a result: `name`, `shape` (a number, or a text for a size that is open, for each dimension) and
    `type`, such as "tensor(float)"."""

    def __init__(self, port: Port) -> None:
        self.name = port.name
        self.shape = port.shape
        self.type = _TYPES.get(port.dtype, f"tensor({port.dtype})")

    def __repr__(self) -> str:
        return f"NodeArg(name={self.name!r}, type={self.type!r}, shape={self.shape!r})"


class OrtValue:
    """A tensor in host memory, or on the device of a session: a result that `bind_output` left there."""

    def __init__(self, array: Union[np.ndarray, DeviceTensor], device_type: str = "cpu") -> None:
        self._array = array
        self._device_type = device_type

    @staticmethod
    def ortvalue_from_numpy(array: Any, device_type: str = "cpu", device_id: int = 0) -> OrtValue:
        """A value with a copy of the array. With another device type than "cpu" the first session that it is bound to
        uploads it, once."""
        return OrtValue(np.array(array), device_type)

    @staticmethod
    def ortvalue_from_shape_and_type(
        shape: Sequence[int], element_type: Any = np.float32, device_type: str = "cpu", device_id: int = 0
    ) -> OrtValue:
        """A value of zeros."""
        return OrtValue(np.zeros(shape, element_type), device_type)

    def numpy(self) -> np.ndarray:
        """The array; of a value on a device, a copy."""
        return self._array.numpy() if isinstance(self._array, DeviceTensor) else self._array

    def shape(self) -> List[int]:
        """The shape."""
        return list(self._array.shape)

    def data_type(self) -> str:
        """The type, such as "tensor(float)"."""
        name = str(self._array.dtype)
        return _TYPES.get(name, f"tensor({name})")

    def device_name(self) -> str:
        """Where it lies: "cpu", or the device type that was asked for."""
        return self._device_type

    def is_tensor(self) -> bool:
        """True."""
        return True

    def _on(self, session: Session, name: str) -> Union[np.ndarray, DeviceTensor]:
        """As an input of a session."""
        if self._device_type != "cpu" and isinstance(self._array, np.ndarray):
            self._array = session.to_device(name, self._array)
        return self._array


class ModelMetadata:
    """What is noted of a model: `custom_metadata_map`, the notes of its producer."""

    def __init__(self, notes: Dict[str, str]) -> None:
        self.custom_metadata_map = notes


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

    def bind_output(self, name: str, device_type: str = "cpu", device_id: int = 0) -> None:
        """Asks for a result. With another device type than "cpu" it stays on the session's device."""
        self._outputs[name] = device_type

    def bind_ortvalue_output(self, name: str, value: OrtValue) -> None:
        """Asks for a result in the memory of a value in host memory, or as a value on the device."""
        self._outputs[name] = value

    def clear_binding_inputs(self) -> None:
        """Forgets the inputs."""
        self._inputs.clear()

    def clear_binding_outputs(self) -> None:
        """Forgets the results."""
        self._outputs.clear()

    def get_outputs(self) -> List[OrtValue]:
        """The results of the last run, in the order in which they were bound."""
        return self._results

    def copy_outputs_to_cpu(self) -> List[np.ndarray]:
        """The arrays of the results."""
        return [value.numpy() for value in self._results]

    def _run(self) -> None:
        places = {n: o.device_name() if isinstance(o, OrtValue) else o for n, o in self._outputs.items()}
        stays = any(place != "cpu" for place in places.values())
        tensors = self._session._run(list(self._outputs), self._inputs, stays)
        self._results = []
        for tensor, (name, bound) in zip(tensors, self._outputs.items()):
            if places[name] == "cpu" and isinstance(tensor, DeviceTensor):
                tensor = tensor.numpy()
            if not isinstance(bound, OrtValue):
                bound = OrtValue(tensor, places[name])
            elif isinstance(tensor, DeviceTensor):
                bound._array = tensor
            else:
                np.copyto(bound.numpy(), tensor, casting="no")
            self._results.append(bound)


class InferenceSession:
    """A session of onnxruntime on Weft.

    path_or_bytes: a path or the bytes of an ONNX model.
    providers: WeftExecutionProvider with the options of `weft_nn.compile` (`device`, `amp`, `layout`, ...) in
        `provider_options`, or in a pair with its name. Names of other providers are passed over.

    Raises weft_nn.Error as `weft_nn.compile`.
    """

    def __init__(
        self,
        path_or_bytes: Union[str, bytes, os.PathLike[str]],
        sess_options: Optional[SessionOptions] = None,
        providers: Optional[Sequence[Any]] = None,
        provider_options: Optional[Sequence[Dict[str, Any]]] = None,
        **_: Any,
    ) -> None:
        self._options = sess_options or SessionOptions()
        self._settings = _settings(providers, provider_options)
        self._source = path_or_bytes
        self._sized: Dict[Any, Session] = {}
        self._needs_sizes: Optional[Error] = None
        try:
            self._model = load(path_or_bytes, keep_open=True)
            self._session = compile(self._model, **self._settings)
        except Error as error:
            if error.code != UNSUPPORTED:
                raise
            # Some models can be read only when their sizes are known: they are compiled for those of each run.
            self._needs_sizes = error

    def run(
        self, output_names: Optional[Sequence[str]], input_feed: Mapping[str, Any], run_options: Any = None
    ) -> List[np.ndarray]:
        """The results of these names, of all for None or none, in a list.

        input_feed: arrays or values by name, each with the type and shape of `get_inputs`; lists of numbers become arrays of
            that type.

        Raises weft_nn.Error: code 3 for inputs that do not fit, or a result that is not there.
        """
        return self._run(output_names, input_feed, False)

    def _run(
        self, output_names: Optional[Sequence[str]], input_feed: Mapping[str, Any], on_device: bool
    ) -> List[Any]:
        """The results of these names; on_device: each as a tensor on the device."""
        session = self._session_for({n: v._array if isinstance(v, OrtValue) else v for n, v in input_feed.items()})
        types = {port.name: port.dtype for port in session.inputs}
        given = {
            n: v._on(session, n) if isinstance(v, OrtValue) else _array(v, types.get(n)) for n, v in input_feed.items()
        }
        results = session.run(given, on_device=on_device)
        names = list(output_names or results)
        unknown = [name for name in names if name not in results]
        if unknown:
            raise Error(f"the model has no result `{unknown[0]}`; there are: {', '.join(results)}", INPUT)
        return [results[name] for name in names]

    def _session_for(self, given: Dict[str, Any]) -> Session:
        """The session for inputs of these sizes."""
        if self._needs_sizes is None:
            return self._session
        shapes: Dict[str, Sequence[int]] = {
            name: array.shape if isinstance(array, DeviceTensor) else np.shape(array) for name, array in given.items()
        }
        key = tuple(sorted(shapes.items()))
        if key not in self._sized:
            self._sized[key] = compile(load(self._source, shapes=shapes), **self._settings)
        return self._sized[key]

    def _loaded(self) -> Model:
        """The model with its sizes open."""
        if self._needs_sizes is not None:
            raise self._needs_sizes
        return self._model

    def run_with_iobinding(self, iobinding: IOBinding, run_options: Any = None) -> None:
        """Runs with what is bound."""
        iobinding._run()

    def io_binding(self) -> IOBinding:
        """A new binding of this session."""
        return IOBinding(self)

    def get_inputs(self) -> List[NodeArg]:
        """The inputs, in the model's order. A model that can be read only with sizes raises the error that says so."""
        return [NodeArg(port) for port in self._loaded().inputs]

    def get_outputs(self) -> List[NodeArg]:
        """The results, in the model's order."""
        return [NodeArg(port) for port in self._loaded().outputs]

    def get_modelmeta(self) -> ModelMetadata:
        """What is noted of the model."""
        return ModelMetadata(metadata(self._source))

    def get_session_options(self) -> SessionOptions:
        """The options that were given."""
        return self._options

    def get_providers(self) -> List[str]:
        """The providers in use."""
        return get_available_providers()

    def set_providers(self, providers: Any = None, provider_options: Any = None) -> None:
        """Compiles again with the options of these providers."""
        self._settings = _settings(providers, provider_options)
        self._sized.clear()
        if self._needs_sizes is None:
            self._session = compile(self._model, **self._settings)


def _array(given: Any, dtype: Optional[str]) -> Any:
    """Lists of numbers as an array of the input's type; anything else as it is."""
    return np.asarray(given, dtype) if dtype and isinstance(given, (list, tuple, int, float)) else given


def _settings(providers: Optional[Sequence[Any]], options: Optional[Sequence[Dict[str, Any]]]) -> Dict[str, Any]:
    """The options of Weft's provider."""
    names = [p if isinstance(p, str) else p[0] for p in providers or []]
    of_pairs = [{} if isinstance(p, str) else p[1] for p in providers or []]
    for name, own in zip(names, options or of_pairs):
        if name == PROVIDER:
            return dict(own)
    return {}


def get_available_providers() -> List[str]:
    """The names of the providers: Weft, and the CPU, which scripts ask for as the last resort."""
    return [PROVIDER, "CPUExecutionProvider"]


def get_all_providers() -> List[str]:
    """As `get_available_providers`."""
    return get_available_providers()


def get_device() -> str:
    """"GPU" if there is one that is no software driver, else "CPU"."""
    return "GPU" if any(d["type"] in ("discrete", "integrated", "virtual") for d in devices()) else "CPU"


def set_default_logger_severity(severity: int) -> None:
    """Accepted without effect: Weft writes no log."""


def disable_telemetry_events() -> None:
    """Accepted without effect: Weft sends nothing to anybody."""


def enable_telemetry_events() -> None:
    """Accepted without effect: Weft sends nothing to anybody."""
