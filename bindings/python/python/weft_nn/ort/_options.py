"""Options of sessions and runs."""

from __future__ import annotations

import enum
from typing import Any, Dict

from ._errors import NoOption, InvalidArgument
from weft_nn._errors import USAGE


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


class ExecutionOrder(enum.IntEnum):
    """Accepted without effect."""

    DEFAULT = 0
    PRIORITY_BASED = 1
    MEMORY_EFFICIENT = 2


class _Options:
    """Attributes with a fixed type each; others are refused."""

    _defaults: Dict[str, Any] = {}

    def __init__(self) -> None:
        object.__setattr__(self, "_entries", {})
        for name, value in self._defaults.items():
            object.__setattr__(self, name, value)

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in self._defaults:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        kind = type(self._defaults[name])
        if not isinstance(value, kind) and not (kind in (int, bool) and hasattr(value, "__index__")):
            raise TypeError(f"{name} is {kind.__name__}, not {type(value).__name__}")
        object.__setattr__(self, name, value)

    def _entry(self, key: str) -> str:
        entries: Dict[str, str] = getattr(self, "_entries")
        if key not in entries:
            raise NoOption(f"{type(self).__name__} does not have configuration with key: {key}", USAGE)
        return entries[key]


class SessionOptions(_Options):
    """Options of a session. `intra_op_num_threads` counts where the session runs on the processor, `enable_profiling`
    and the sizes of `add_free_dimension_override_by_name` everywhere; the others have no effect."""

    _defaults = {
        "enable_cpu_mem_arena": True,
        "enable_mem_pattern": True,
        "enable_mem_reuse": True,
        "enable_profiling": False,
        "execution_mode": ExecutionMode.ORT_SEQUENTIAL,
        "execution_order": ExecutionOrder.DEFAULT,
        "graph_optimization_level": GraphOptimizationLevel.ORT_ENABLE_ALL,
        "inter_op_num_threads": 0,
        "intra_op_num_threads": 0,
        "log_severity_level": -1,
        "log_verbosity_level": 0,
        "logid": "",
        "optimized_model_filepath": "",
        "profile_file_prefix": "onnxruntime_profile_",
        "use_deterministic_compute": False,
        "use_per_session_threads": True,
    }
    enable_cpu_mem_arena: bool
    enable_mem_pattern: bool
    enable_mem_reuse: bool
    enable_profiling: bool
    execution_mode: ExecutionMode
    execution_order: ExecutionOrder
    graph_optimization_level: GraphOptimizationLevel
    inter_op_num_threads: int
    intra_op_num_threads: int
    log_severity_level: int
    log_verbosity_level: int
    logid: str
    optimized_model_filepath: str
    profile_file_prefix: str
    use_deterministic_compute: bool
    use_per_session_threads: bool

    def __init__(self) -> None:
        super().__init__()
        object.__setattr__(self, "_sizes", {})
        object.__setattr__(self, "_denoted", {})
        object.__setattr__(self, "_providers", [])

    def add_provider(self, name: str, options: Dict[str, str]) -> None:
        """Adds a provider with its options; they count where the session is given none."""
        getattr(self, "_providers").append((name, dict(options)))

    def has_providers(self) -> bool:
        """Whether `add_provider` was called."""
        return bool(getattr(self, "_providers"))

    def add_session_config_entry(self, key: str, value: str) -> None:
        """Notes an entry, which `get_session_config_entry` gives back."""
        getattr(self, "_entries")[key] = value

    def get_session_config_entry(self, key: str) -> str:
        """The value of an entry."""
        return self._entry(key)

    def add_free_dimension_override_by_name(self, name: str, size: int) -> None:
        """Gives the dimension of that name a size."""
        getattr(self, "_sizes")[name] = int(size)

    def add_free_dimension_override_by_denotation(self, denotation: str, size: int) -> None:
        """Gives the dimensions with that denotation a size."""
        getattr(self, "_denoted")[denotation] = int(size)

    def register_custom_ops_library(self, path: str) -> None:
        """Raises InvalidArgument: an operator of another domain is imported by `weft_nn.register_onnx`."""
        raise InvalidArgument(
            f"{path}: libraries of operators for onnxruntime do not run on Weft", USAGE, None, "use weft_nn.register_onnx"
        )


class RunOptions(_Options):
    """Options of a run: `terminate` refuses it; the others have no effect."""

    _defaults = {
        "log_severity_level": -1,
        "log_verbosity_level": 0,
        "logid": "",
        "only_execute_path_to_fetches": False,
        "terminate": False,
    }
    log_severity_level: int
    log_verbosity_level: int
    logid: str
    only_execute_path_to_fetches: bool
    terminate: bool

    def add_run_config_entry(self, key: str, value: str) -> None:
        """Notes an entry, which `get_run_config_entry` gives back."""
        getattr(self, "_entries")[key] = value

    def get_run_config_entry(self, key: str) -> str:
        """The value of an entry."""
        return self._entry(key)
