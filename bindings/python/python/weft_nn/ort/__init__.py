"""The classes of onnxruntime, so that a script runs on Weft with one import changed.

>>> import weft_nn.ort as onnxruntime  # instead of: import onnxruntime
>>> from weft_nn.ort.capi.onnxruntime_pybind11_state import InvalidArgument, NoSuchFile

There are `InferenceSession` with `SessionOptions`, `RunOptions`, `run`, `run_with_ort_values`, `run_with_iobinding`,
`get_inputs`, `get_outputs` and `get_modelmeta`, and `OrtValue` in host memory and on the device. Sizes that a model
leaves open stay open. Exceptions are those of onnxruntime, and weft_nn.Error too.
"""

from __future__ import annotations

from typing import List

from weft_nn._native import devices
from ._devices import (
    OrtAllocatorType,
    OrtArenaCfg,
    OrtDevice,
    OrtDeviceMemoryType,
    OrtMemoryInfo,
    OrtMemType,
    copy_tensors,
    create_and_register_allocator,
    create_and_register_allocator_v2,
    get_ep_devices,
    register_execution_provider_library,
)
from ._options import ExecutionMode, ExecutionOrder, GraphOptimizationLevel, RunOptions, SessionOptions
from ._session import CPU, PROVIDER, InferenceSession, ModelMetadata, NodeArg
from ._values import IOBinding, OrtValue

# That of the onnxruntime whose interface this is; scripts compare it.
__version__ = "1.23.0"
version = __version__
package_name = "weft-nn"
cuda_version = ""

__all__ = [
    "ExecutionMode",
    "ExecutionOrder",
    "GraphOptimizationLevel",
    "IOBinding",
    "InferenceSession",
    "ModelMetadata",
    "NodeArg",
    "OrtAllocatorType",
    "OrtArenaCfg",
    "OrtDevice",
    "OrtDeviceMemoryType",
    "OrtMemType",
    "OrtMemoryInfo",
    "OrtValue",
    "RunOptions",
    "SessionIOBinding",
    "SessionOptions",
    "copy_tensors",
    "create_and_register_allocator",
    "create_and_register_allocator_v2",
    "disable_telemetry_events",
    "enable_telemetry_events",
    "get_all_providers",
    "get_available_providers",
    "get_build_info",
    "get_device",
    "get_ep_devices",
    "get_version_string",
    "has_collective_ops",
    "preload_dlls",
    "print_debug_info",
    "register_execution_provider_library",
    "set_default_logger_callback",
    "set_default_logger_severity",
    "set_default_logger_verbosity",
    "set_global_thread_pool_sizes",
    "set_seed",
]

SessionIOBinding = IOBinding


def get_version_string() -> str:
    """The version of the onnxruntime whose interface this is."""
    return __version__


def get_build_info() -> str:
    """Says that this is Weft."""
    import weft_nn

    return f"Weft {weft_nn.__version__}"


def get_available_providers() -> List[str]:
    """The names of the providers: Weft, and the CPU, which scripts ask for as the last resort."""
    return [PROVIDER, CPU]


def get_all_providers() -> List[str]:
    """As `get_available_providers`."""
    return get_available_providers()


def get_device() -> str:
    """"GPU" if there is one that is no software driver, else "CPU"."""
    return "GPU" if any(d["type"] in ("discrete", "integrated", "virtual") for d in devices()) else "CPU"


def set_default_logger_severity(severity: int) -> None:
    """Accepted without effect: Weft writes no log."""


def set_default_logger_verbosity(verbosity: int) -> None:
    """Accepted without effect: Weft writes no log."""


def set_default_logger_callback(callback: object, severity: int = 2) -> None:
    """Accepted without effect: Weft writes no log."""


def set_global_thread_pool_sizes(intra_op_num_threads: int = 0, inter_op_num_threads: int = 0) -> None:
    """Accepted without effect: all sessions on the processor share its threads."""


def has_collective_ops() -> bool:
    """False: a network runs on one device."""
    return False


def print_debug_info() -> None:
    """Prints the version and the devices."""
    print(get_build_info())
    for device in devices():
        print(f"{device['index']}: {device['name']}, {device['driver']}")


def set_seed(seed: int) -> None:
    """Accepted without effect: random operators of a model have their own seeds."""


def preload_dlls(cuda: bool = True, cudnn: bool = True, msvc: bool = True, directory: object = None) -> None:
    """Accepted without effect: Weft needs no libraries."""


def disable_telemetry_events() -> None:
    """Accepted without effect: Weft sends nothing to anybody."""


def enable_telemetry_events() -> None:
    """Accepted without effect: Weft sends nothing to anybody."""
