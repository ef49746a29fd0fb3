"""Where tensors lie, in onnxruntime's words. Weft decides it by itself, so these say it and change nothing."""

from __future__ import annotations

import enum
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple, Union

from weft_nn._errors import USAGE
from ._errors import InvalidArgument


class OrtAllocatorType(enum.IntEnum):
    """Accepted without effect."""

    INVALID = -1
    ORT_DEVICE_ALLOCATOR = 0
    ORT_ARENA_ALLOCATOR = 1


class OrtMemType(enum.IntEnum):
    """Accepted without effect."""

    CPU_INPUT = -2
    CPU_OUTPUT = -1
    CPU = -1
    DEFAULT = 0


class OrtDeviceMemoryType(enum.IntEnum):
    """Kinds of memory of a device."""

    DEFAULT = 0
    HOST_ACCESSIBLE = 5


_TYPES = {"cpu": 0, "cuda": 1, "gpu": 1, "dml": 1, "webgpu": 1, "fpga": 2, "npu": 3, "cann": 3}


class OrtDevice:
    """A device by its type and number: `OrtDevice.make("cpu", 0)`."""

    def __init__(self, device_type: Union[int, OrtDevice], memory: int = 0, *numbers: int) -> None:
        if isinstance(device_type, OrtDevice):
            self._all: Tuple[int, int, int, int] = device_type._all
        else:
            # Vendor and number, or the number alone.
            self._all = (device_type, memory, numbers[0] if len(numbers) > 1 else 0, numbers[-1] if numbers else 0)

    @staticmethod
    def make(ort_device_name: str, device_id: int, vendor_id: int = -1) -> OrtDevice:
        """The device of that type, such as "cpu" or "cuda", and number."""
        if ort_device_name not in _TYPES:
            raise InvalidArgument(f"Unsupported device type: {ort_device_name}", USAGE, None, f"there are: {', '.join(_TYPES)}")
        return OrtDevice(_TYPES[ort_device_name], 0, max(vendor_id, 0), device_id)

    def _get_c_device(self) -> OrtDevice:
        return self

    def device_type(self) -> int:
        """0 of the processor, 1 of a GPU."""
        return self._all[0]

    def device_mem_type(self) -> int:
        """The kind of memory, as of OrtDeviceMemoryType."""
        return self._all[1]

    mem_type = device_mem_type

    def device_vendor_id(self) -> int:
        """The number of the vendor; 0 where nothing is said."""
        return self._all[2]

    vendor_id = device_vendor_id

    def device_id(self) -> int:
        """Its number among those of its type."""
        return self._all[3]

    @staticmethod
    def cpu() -> int:
        """The type of the processor."""
        return 0

    @staticmethod
    def cuda() -> int:
        """The type of GPUs, as of `gpu`."""
        return 1

    gpu = dml = webgpu = cuda

    @staticmethod
    def fpga() -> int:
        """The type of programmable hardware."""
        return 2

    @staticmethod
    def npu() -> int:
        """The type of neural processors."""
        return 3

    cann = npu

    @staticmethod
    def default_memory() -> int:
        """The usual kind of memory."""
        return 0


class OrtMemoryInfo:
    """Memory of a device: its name, allocator, number and kind."""

    def __init__(self, name: str, allocator_type: OrtAllocatorType, device_id: int, mem_type: OrtMemType) -> None:
        self.name, self.allocator_type, self.device_id, self.mem_type = name, allocator_type, device_id, mem_type
        self.device_mem_type, self.device_vendor_id = OrtDeviceMemoryType.DEFAULT, 0


class OrtArenaCfg:
    """Sizes of an arena: four numbers, or a dictionary of them."""

    def __init__(self, *given: Any) -> None:
        names = ("max_mem", "arena_extend_strategy", "initial_chunk_size_bytes", "max_dead_bytes_per_chunk")
        known = {**dict.fromkeys(names, -1), "max_mem": 0, "initial_growth_chunk_size_bytes": -1, "max_power_of_two_extend_bytes": -1}
        entries: Mapping[str, Any] = given[0] if given and isinstance(given[0], Mapping) else dict(zip(names, given))
        for name in entries:
            if name not in known:
                raise InvalidArgument(f"Invalid OrtArenaCfg option: {name}", USAGE, None, f"there are: {', '.join(known)}")
        known.update({name: int(value) for name, value in entries.items()})
        self.max_mem, self.arena_extend_strategy = known["max_mem"], known["arena_extend_strategy"]
        self.initial_chunk_size_bytes = known["initial_chunk_size_bytes"]
        self.max_dead_bytes_per_chunk = known["max_dead_bytes_per_chunk"]
        self.initial_growth_chunk_size_bytes = known["initial_growth_chunk_size_bytes"]
        self.max_power_of_two_extend_bytes = known["max_power_of_two_extend_bytes"]


def create_and_register_allocator(mem_info: OrtMemoryInfo, arena_cfg: Optional[OrtArenaCfg]) -> None:
    """Accepted without effect: a session has memory of its own."""


def create_and_register_allocator_v2(
    provider_type: str, mem_info: OrtMemoryInfo, options: Dict[str, str], arena_cfg: Optional[OrtArenaCfg]
) -> None:
    """Accepted without effect: a session has memory of its own."""


def get_ep_devices() -> List[Any]:
    """None: providers of others do not run on Weft; `weft_nn.devices` lists its devices."""
    return []


def register_execution_provider_library(registration_name: str, library_path: str) -> None:
    """Raises InvalidArgument: libraries of providers for onnxruntime do not run on Weft."""
    raise InvalidArgument(
        f"{library_path}: libraries of providers for onnxruntime do not run on Weft", USAGE, None, "use weft_nn.register_target"
    )


def copy_tensors(src: Sequence[Any], dst: Sequence[Any], stream: Any = None) -> None:
    """Writes the elements of values into others, of equal types and shapes."""
    if len(src) != len(dst):
        raise InvalidArgument(f"{len(src)} values for {len(dst)}", USAGE)
    for one, other in zip(src, dst):
        other.update_inplace(one.numpy())
