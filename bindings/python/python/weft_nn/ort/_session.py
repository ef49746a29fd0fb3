"""Sessions with the interface of onnxruntime's."""

from __future__ import annotations

import json
import os
import threading
import time
from collections import OrderedDict
from typing import Any, Callable, Dict, List, Mapping, NoReturn, Optional, Sequence, Union

import numpy as np
from numpy.typing import NDArray

from weft_nn._errors import INPUT, UNSUPPORTED, Error
from weft_nn._native import DeviceTensor, Model, Session, compile, load, metadata
from . import _file
from ._devices import OrtAllocatorType, OrtMemoryInfo, OrtMemType
from ._errors import Fail, InvalidArgument, InvalidGraph, InvalidProtobuf, MissingInput, NoArray, NoSource, NoSuchFile, raise_as
from ._file import Declared, OnnxFile, Size
from ._options import RunOptions, SessionOptions
from ._values import IOBinding, OrtValue, element_name

PROVIDER = "WeftExecutionProvider"
CPU = "CPUExecutionProvider"

_Array = NDArray[Any]

_HOST = OrtMemoryInfo("Cpu", OrtAllocatorType.ORT_DEVICE_ALLOCATOR, 0, OrtMemType.DEFAULT)

# So many sessions for the sizes of runs are kept.
_KEPT = 4
# The largest size that Weft takes for a dimension of which nothing is said.
_LARGEST = 65536


class NodeArg:
    """An input or a result: `name`, `type`, such as "tensor(float)", and `shape`: for each dimension a number, the name of
    a size that is open, or None for one without a name."""

    def __init__(self, name: str, type: str, shape: Sequence[Size]) -> None:
        self.name = name
        self.type = type
        self.shape = list(shape)

    def __repr__(self) -> str:
        return f"NodeArg(name={self.name!r}, type={self.type!r}, shape={self.shape!r})"


class ModelMetadata:
    """What is noted of a model."""

    def __init__(self, file: OnnxFile, notes: Dict[str, str]) -> None:
        self.producer_name = file.texts.get(2, "")
        self.domain = file.texts.get(4, "")
        self.description = file.texts.get(6, "")
        self.graph_name = file.graph_name
        self.graph_description = file.graph_text
        self.version = file.version
        self.custom_metadata_map = notes


class _Ready:
    """A session, with what a call needs of it."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.types = {port.name: port.dtype for port in session.inputs}
        self.results = [port.name for port in session.outputs]


class InferenceSession:
    """A session of onnxruntime on Weft.

    path_or_bytes: a path or the bytes of an ONNX model.
    providers: WeftExecutionProvider with the options of `weft_nn.compile` (`device`, `amp`, `layout`, ...) in
        `provider_options`, or in a pair with its name. Names of other providers are passed over.

    A model whose sizes are open is compiled once for all of them. On the processor, sizes that come a second time are
    compiled for alone, which makes faster kernels; the last few are kept.

    Raises the exceptions of onnxruntime, all of which are weft_nn.Error.
    """

    def __init__(
        self,
        path_or_bytes: Union[str, bytes, os.PathLike[str]],
        sess_options: Optional[SessionOptions] = None,
        providers: Optional[Sequence[Any]] = None,
        provider_options: Optional[Sequence[Dict[str, Any]]] = None,
        **_: Any,
    ) -> None:
        if not isinstance(path_or_bytes, (str, bytes, bytearray, os.PathLike)):
            raise NoSource(f"Unable to load from type '{type(path_or_bytes)}'", INPUT)
        self._options = sess_options or SessionOptions()
        self._source = bytes(path_or_bytes) if isinstance(path_or_bytes, bytearray) else path_or_bytes
        self._file = _file.read(self._source)
        self._texts: Dict[str, str] = {}
        if self._file and any(d.type == "tensor(string)" for d in self._file.inputs):
            self._source, self._texts = _file.without_texts(self._source, self._file)
        self._lock = threading.Lock()
        self._begun = time.time_ns()
        self._events: List[Dict[str, Any]] = []
        self._dims = self._overrides()
        self._open_with(_settings(providers or getattr(self._options, "_providers"), provider_options))

    def _overrides(self) -> Dict[str, int]:
        """Sizes that the options give to open dimensions of the file."""
        sizes, denoted = getattr(self._options, "_sizes"), getattr(self._options, "_denoted")
        dims: Dict[str, int] = {}
        for port in self._file.inputs if self._file else []:
            for size, denotation in zip(port.shape or [], port.denotations):
                given = sizes.get(size, denoted.get(denotation) if denotation else None)
                if isinstance(size, str) and given is not None:
                    dims[size] = given
        return dims

    def _open_with(self, settings: Dict[str, Any]) -> None:
        self._settings = settings
        self._sized: OrderedDict[Any, Optional[_Ready]] = OrderedDict()
        self._needs_sizes: Optional[Error] = None
        self._compile_with = settings
        try:
            self._model = load(self._source, keep_open=True, dims=dict(self._dims))
            self._ready = _Ready(compile(self._model, **settings))
            threads = self._options.intra_op_num_threads
            if threads > 0 and self._ready.session.on_processor and "threads" not in settings:
                self._compile_with = {**settings, "device": settings.get("device", "cpu"), "threads": threads}
                self._ready = _Ready(compile(self._model, **self._compile_with))
            self._is_open = any(isinstance(size, str) for port in self._model.inputs for size in port.shape)
        except Error as error:
            if error.code != UNSUPPORTED or not self._opens_with_sizes():
                self._refuse(error)
            # Some models can be read only when their sizes are known: they are compiled for those of each run.
            self._needs_sizes = error

    def _opens_with_sizes(self) -> bool:
        """Whether Weft has the operators of the model: some can be read only when their sizes are known."""
        if self._file is None:
            return False
        sizes: Dict[str, Sequence[int]] = {}
        for port in self._file.inputs:
            if port.name not in self._texts.values():
                sizes[port.name] = [n if isinstance(n, int) else self._dims.get(n or "", 1) for n in port.shape or []]
        try:
            load(self._source, shapes=sizes)
        except Error as error:
            return error.code != UNSUPPORTED
        return True

    def _refuse(self, error: Error) -> NoReturn:
        is_path = not isinstance(self._source, bytes)
        if is_path and not os.path.exists(os.fspath(self._source)):
            raise_as(error, NoSuchFile)
        if self._source == b"":
            raise_as(error, InvalidArgument)
        raise_as(error, InvalidGraph if self._file and self._file.outputs else InvalidProtobuf)

    def run(
        self,
        output_names: Optional[Sequence[str]],
        input_feed: Mapping[str, Any],
        run_options: Optional[RunOptions] = None,
    ) -> List[Any]:
        """The results of these names, of all for None or none, in a list; a sequence is a list.

        input_feed: arrays or values by name, each with the type and shape of `get_inputs`; lists of numbers become arrays of
            that type.

        Raises ValueError for an input without a value, InvalidArgument for inputs that do not fit and for results that
        are not there, Fail if `run_options.terminate` is set.
        """
        if run_options is not None and run_options.terminate:
            raise Fail("Exiting due to terminate flag being set to true.", INPUT)
        return self._computed(output_names, input_feed, False)

    def run_with_ort_values(
        self,
        output_names: Optional[Sequence[str]],
        input_dict_ort_values: Mapping[str, OrtValue],
        run_options: Optional[RunOptions] = None,
    ) -> List[OrtValue]:
        """As `run`, with values for arrays."""
        return [OrtValue(result) for result in self.run(output_names, input_dict_ort_values, run_options)]

    def run_with_ortvaluevector(
        self,
        run_options: Optional[RunOptions],
        feed_names: Sequence[str],
        feeds: Sequence[OrtValue],
        fetch_names: Sequence[str],
        fetches: List[OrtValue],
        fetch_devices: Sequence[Any],
    ) -> None:
        """As `run`, with values in lists; results are added to `fetches`."""
        fetches.extend(self.run_with_ort_values(fetch_names, dict(zip(feed_names, feeds)), run_options))

    def run_async(
        self,
        output_names: Optional[Sequence[str]],
        input_feed: Mapping[str, Any],
        callback: Callable[[List[Any], Any, str], Any],
        user_data: Any,
        run_options: Optional[RunOptions] = None,
    ) -> None:
        """As `run`, in a thread that calls `callback(results, user_data, error)`; `error` is "" or a text."""

        def work() -> None:
            results: List[Any] = []
            said = ""
            try:
                results = self.run(output_names, input_feed, run_options)
            except Exception as error:
                said = str(error)
            callback(results, user_data, said)

        threading.Thread(target=work, daemon=True).start()

    def _computed(
        self,
        output_names: Optional[Sequence[str]],
        input_feed: Mapping[str, Any],
        on_device: bool,
        out: Optional[Dict[str, _Array]] = None,
    ) -> List[Any]:
        """The results of these names; on_device: each as a tensor on the device; out: arrays for some of them."""
        texts: Dict[str, Any] = {name: input_feed.get(of) for name, of in self._texts.items()}
        if texts:
            input_feed = {name: v for name, v in input_feed.items() if name not in self._texts.values()}
        ready = self._ready_for(input_feed)
        wanted = [self._parts(ready, name) for name in output_names or self._names(ready)]
        started = time.perf_counter_ns() if self._options.enable_profiling else 0
        try:
            given = {}
            for name, value in input_feed.items():
                if isinstance(value, OrtValue):
                    value = value._on(ready.session, name)
                elif isinstance(value, (list, tuple, int, float)) and name in ready.types:
                    value = np.asarray(value, ready.types[name])
                given[name] = value
            results: Dict[str, Any] = ready.session.run(given, on_device=on_device, out=out or None)
        except Error as error:
            self._refuse_inputs(ready, input_feed, error)
        if started:
            self._note("model_run", started)
        results.update((name, np.asarray(text, object)) for name, text in texts.items())
        return [results[part] if isinstance(part, str) else [results[p] for p in part] for part in wanted]

    def _names(self, ready: _Ready) -> List[str]:
        """The results in the file's order."""
        return [d.name for d in self._file.outputs] if self._file else ready.results

    def _parts(self, ready: _Ready, name: str) -> Union[str, List[str]]:
        """The session's result of that name, or its results that are the parts of a sequence."""
        if name in ready.results or name in self._texts:
            return name
        if self._file and any(d.name == name and d.type.startswith("seq") for d in self._file.outputs):
            return [r for r in ready.results if r.startswith(f"{name}.") and r[len(name) + 1 :].isdigit()]
        raise InvalidArgument(f"Invalid output name:{name}", INPUT, None, f"there are: {', '.join(self._names(ready))}")

    def _refuse_inputs(self, ready: _Ready, given: Mapping[str, Any], error: Error) -> NoReturn:
        """Raises what onnxruntime says of these inputs; else the error."""
        missing = [name for name in ready.types if name not in given]
        if missing:
            raise MissingInput(f"Required inputs ({missing}) are missing from input feed ({list(given)}).", INPUT) from error
        for name, value in given.items():
            if name not in ready.types:
                raise InvalidArgument(f"Invalid input name: {name}", INPUT) from error
            array = value._array if isinstance(value, OrtValue) else np.asarray(value)
            if isinstance(value, (str, bytes)) or value is None:
                raise NoArray(f"Input must be a list of dictionaries or a single numpy array for input '{name}'.", INPUT) from error
            actual, expected = (f"(tensor({element_name(t)}))" for t in (array.dtype, ready.types[name]))
            if actual != expected:
                said = f"Unexpected input data type. Actual: {actual} , expected: {expected}"
                raise InvalidArgument(f"{said} for input: {name}", INPUT) from error
            _refuse_shape(name, array.shape, next(p.shape for p in ready.session.inputs if p.name == name), error)
        raise_as(error, InvalidArgument)

    def _ready_for(self, input_feed: Mapping[str, Any]) -> _Ready:
        """The session for inputs of these sizes."""
        if self._needs_sizes is None and not self._is_open:
            return self._ready
        values = ((n, v._array if isinstance(v, OrtValue) else v) for n, v in input_feed.items())
        shapes: Dict[str, Sequence[int]] = {n: tuple(v.shape) if hasattr(v, "shape") else np.shape(v) for n, v in values}
        key = tuple(shapes.items())
        fits = self._needs_sizes is None and self._fits(shapes)
        if fits and not self._ready.session.on_processor:
            return self._ready
        if fits and key not in self._sized:
            # Sizes that do not come again are not worth a compilation.
            self._keep(key, None)
            return self._ready
        with self._lock:
            ready = self._sized.get(key)
            if ready is None:
                ready = self._compiled_for(shapes)
                self._keep(key, ready)
        return ready

    def _fits(self, shapes: Dict[str, Sequence[int]]) -> bool:
        """Whether the session for all sizes takes these: it is for a range."""
        ports = ((port.shape, shapes.get(port.name, ())) for port in self._model.inputs)
        return all(1 <= n <= _LARGEST for declared, given in ports for size, n in zip(declared, given) if isinstance(size, str))

    def _keep(self, key: Any, ready: Optional[_Ready]) -> None:
        self._sized[key] = ready
        self._sized.move_to_end(key)
        while len(self._sized) > _KEPT:
            self._sized.popitem(last=False)

    def _compiled_for(self, shapes: Dict[str, Sequence[int]]) -> _Ready:
        try:
            return _Ready(compile(load(self._source, shapes=shapes), **self._compile_with))
        except Error as error:
            if self._needs_sizes is None:
                # The session for all sizes says what is wrong.
                return self._ready
            raise_as(error, InvalidArgument)

    def run_with_iobinding(self, iobinding: IOBinding, run_options: Optional[RunOptions] = None) -> None:
        """Runs with what is bound."""
        if run_options is not None and run_options.terminate:
            raise Fail("Exiting due to terminate flag being set to true.", INPUT)
        iobinding._run()

    def io_binding(self) -> IOBinding:
        """A new binding of this session."""
        return IOBinding(self)

    def get_inputs(self) -> List[NodeArg]:
        """The inputs that need a value, in the file's order."""
        if self._file is None:
            return [NodeArg(p.name, f"tensor({element_name(p.dtype)})", p.shape) for p in self._ready.session.inputs]
        return [self._described(d, {}) for d in self._file.inputs]

    def get_outputs(self) -> List[NodeArg]:
        """The results, in the file's order."""
        known = {} if self._needs_sizes else {p.name: p.shape for p in self._ready.session.outputs}
        if self._file is None:
            ports = self._ready.session.outputs
            return [NodeArg(p.name, f"tensor({element_name(p.dtype)})", p.shape) for p in ports]
        return [self._described(d, known) for d in self._file.outputs]

    def get_overridable_initializers(self) -> List[NodeArg]:
        """Inputs with a value in the file. They are constants: `run` takes no others."""
        return [self._described(d, {}) for d in self._file.overridable] if self._file else []

    def _described(self, port: Declared, known: Mapping[str, Sequence[Size]]) -> NodeArg:
        """As the file has it, with the overrides of the options; sizes that are missing there as the compilation has them."""
        inputs = self._file.inputs if self._file else []
        names = {size for d in inputs for size in d.shape or [] if isinstance(size, str)}
        found = [n if isinstance(n, int) or n in names else None for n in known.get(port.name, [])]
        shape = found if port.shape is None else port.shape
        filled = [n if n is not None or len(found) != len(shape) else found[i] for i, n in enumerate(shape)]
        return NodeArg(port.name, port.type, [self._dims.get(n, n) if isinstance(n, str) else n for n in filled])

    def get_modelmeta(self) -> ModelMetadata:
        """What is noted of the model."""
        return ModelMetadata(self._file, self._file.notes) if self._file else ModelMetadata(OnnxFile(), metadata(self._source))

    def get_session_options(self) -> SessionOptions:
        """The options that were given."""
        return self._options

    def get_providers(self) -> List[str]:
        """The providers in use."""
        return [PROVIDER, CPU]

    def get_provider_options(self) -> Dict[str, Dict[str, str]]:
        """The options of each provider, as texts."""
        return {PROVIDER: {name: str(value) for name, value in self._settings.items()}, CPU: {}}

    def set_providers(
        self, providers: Optional[Sequence[Any]] = None, provider_options: Optional[Sequence[Dict[str, Any]]] = None
    ) -> None:
        """Compiles again with the options of these providers."""
        self._open_with(_settings(providers, provider_options))

    def get_input_memory_infos(self) -> List[OrtMemoryInfo]:
        """Where each input is expected: in host memory."""
        return [_HOST for _ in self.get_inputs()]

    def get_output_memory_infos(self) -> List[OrtMemoryInfo]:
        """Where each result of `run` is: in host memory."""
        return [_HOST for _ in self.get_outputs()]

    def get_tuning_results(self) -> List[Any]:
        """None: `weft_nn.tune` keeps what it finds in a file."""
        return []

    def enable_fallback(self) -> None:
        """Accepted without effect."""

    def disable_fallback(self) -> None:
        """Accepted without effect."""

    def _note(self, name: str, started: int) -> None:
        now = time.perf_counter_ns()
        at = (time.time_ns() - self._begun - (now - started)) // 1000
        event = {"cat": "Session", "pid": os.getpid(), "tid": threading.get_ident(), "ph": "X", "args": {}}
        self._events.append({**event, "name": name, "ts": at, "dur": (now - started) // 1000})

    def get_profiling_start_time_ns(self) -> int:
        """When the session was made, in nanoseconds."""
        return self._begun

    def end_profiling(self) -> str:
        """Writes the times of the runs as a file for chrome://tracing and Perfetto, if the options have
        `enable_profiling`; its name. `Session.bench` of weft_nn has times of kernels."""
        if not self._options.enable_profiling:
            return ""
        path = f"{self._options.profile_file_prefix}{time.strftime('_%Y-%m-%d_%H-%M-%S')}.json"
        with open(path, "w", encoding="utf-8") as file:
            json.dump(self._events, file)
        self._events = []
        return path


def _refuse_shape(name: str, given: Sequence[int], wanted: Sequence[Size], error: Error) -> None:
    fix = "Please fix either the inputs/outputs or the model."
    if len(given) != len(wanted):
        said = f"Invalid rank for input: {name} Got: {len(given)} Expected: {len(wanted)} {fix}"
        raise InvalidArgument(said, INPUT) from error
    pairs = enumerate(zip(given, wanted))
    wrong = [f" index: {i} Got: {n} Expected: {size}" for i, (n, size) in pairs if isinstance(size, int) and n != size]
    if wrong:
        said = f"Got invalid dimensions for input: {name} for the following indices"
        raise InvalidArgument("\n".join([said, *wrong, f" {fix}"]), INPUT) from error


def _settings(providers: Optional[Sequence[Any]], options: Optional[Sequence[Dict[str, Any]]]) -> Dict[str, Any]:
    """The options of Weft's provider."""
    names = [p if isinstance(p, str) else p[0] for p in providers or []]
    of_pairs = [{} if isinstance(p, str) else p[1] for p in providers or []]
    for name, own in zip(names, options or of_pairs):
        if name == PROVIDER:
            return dict(own)
    return {}
