from typing import Any, Coroutine, Dict, List, Optional, Sequence, Tuple, Union, final
from os import PathLike

from numpy.typing import NDArray

__all__ = ["DEBUG", "Model", "Port", "Session", "Trace", "compile", "devices", "load", "metadata"]

DEBUG: bool

_Array = NDArray[Any]
_Size = Union[int, str, Tuple[int, int], Tuple[int, int, int]]

@final
class Port:
    @property
    def name(self) -> str: ...
    @property
    def dtype(self) -> str: ...
    @property
    def shape(self) -> List[Union[int, str]]: ...

@final
class Model:
    @staticmethod
    def from_text(text: str) -> Model: ...
    def text(self) -> str: ...
    @property
    def inputs(self) -> List[Port]: ...
    @property
    def outputs(self) -> List[Port]: ...

@final
class Session:
    def run(self, inputs: Dict[str, Any]) -> Dict[str, _Array]: ...
    def run_async(self, inputs: Dict[str, Any]) -> Coroutine[Any, Any, Dict[str, _Array]]: ...
    @property
    def inputs(self) -> List[Port]: ...
    @property
    def outputs(self) -> List[Port]: ...
    @property
    def device(self) -> str: ...
    @property
    def place(self) -> str: ...
    @property
    def is_mixed(self) -> bool: ...
    def bench(self, inputs: Dict[str, Any], *, warmup: int = 10, runs: int = 100) -> Dict[str, Any]: ...
    def compare(
        self,
        inputs: Dict[str, Any],
        against: Union[None, str, Dict[str, Any]] = None,
        *,
        rtol: Optional[float] = None,
        atol: Optional[float] = None,
    ) -> Dict[str, Any]: ...
    def trace(self) -> Trace: ...
    def explain(self, node: Optional[str] = None) -> str: ...
    def show(self, *, height: int = 800) -> Any: ...

@final
class Trace:
    @property
    def data(self) -> bytes: ...
    def save(self, path: Union[str, PathLike[str]]) -> None: ...
    def to_dict(self) -> Dict[str, Any]: ...
    def explain(self, node: Optional[str] = None) -> str: ...
    def report(self) -> str: ...
    def show(self, *, height: int = 800) -> Any: ...

def load(
    source: Any,
    *,
    batch: Optional[int] = None,
    dims: Optional[Dict[str, _Size]] = None,
    shapes: Optional[Dict[str, Sequence[int]]] = None,
    values: Optional[Dict[str, Any]] = None,
    keep_open: bool = False,
) -> Model: ...
def compile(
    model: Any,
    *,
    device: Union[None, int, str] = None,
    target: Optional[str] = None,
    amp: str = "off",
    keep_f32: Sequence[str] = ...,
    layout: str = "auto",
    fuse: str = "full",
    opt_level: int = 3,
    cache: Union[None, bool, str, PathLike[str]] = None,
    cache_weights: bool = False,
    runs_in_flight: int = 1,
    inputs: Optional[Dict[str, Any]] = None,
    batch: Optional[int] = None,
    dims: Optional[Dict[str, _Size]] = None,
    shapes: Optional[Dict[str, Sequence[int]]] = None,
    keep_open: bool = False,
) -> Session: ...
def devices() -> List[Dict[str, Any]]: ...
def metadata(source: Any) -> Dict[str, str]: ...
