"""Searches of the command, in this process: for faster schedules, and for what makes a result wrong."""

from __future__ import annotations

import os
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, Mapping, Optional, Sequence, Union

import weft_nn_command

from . import _native

_Path = Union[str, "os.PathLike[str]"]
_Progress = Callable[[str, str, int, int], Any]


@contextmanager
def _file(model: Any) -> Iterator[str]:
    """The path of a model, which is one, or the bytes of an ONNX file, or an `onnx.ModelProto`."""
    if hasattr(model, "SerializeToString"):
        model = model.SerializeToString()
    if not isinstance(model, bytes):
        yield os.fspath(model)
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.onnx")
        path.write_bytes(model)
        yield str(path)


def tune(
    model: Any,
    tuning: _Path,
    *,
    device: Union[None, int, str] = None,
    seconds: float = 300,
    batch: Optional[int] = None,
    dims: Optional[Mapping[str, Any]] = None,
    amp: str = "off",
    kernel: Optional[str] = None,
    same_sums: bool = False,
    template: Sequence[_Path] = (),
    progress: Optional[_Progress] = None,
    **options: Any,
) -> Dict[str, Any]:
    """Searches for faster schedules of a model's kernels, as `weft tune` does, and keeps what it finds in a file.
    `weft_nn.compile(..., tuning=file)` uses it; a second call continues.

    model: a path, the bytes of an ONNX model, or an `onnx.ModelProto`.
    tuning: the file, which is made if it is not there; lines are added to it.
    device: a number or a part of a name, as `weft_nn.compile` takes it.
    seconds: how long to search.
    batch, dims, amp: as `weft_nn.compile` takes them.
    kernel: tune one kernel alone, by its name.
    same_sums: only schedules that sum in the default's order.
    template: files of schedule templates (docs/tuning.md).
    progress: called with the stage, what is at work, how many steps are done and of how many; if it raises, the search ends.
    options: further options of `weft_nn.compile`, such as threads=4 or layout="nhwc".

    Returns what was found, as `weft tune --json` has it. Messages go to the logger "weft_nn".

    Raises weft_nn.Error: as `weft_nn.compile`. Ctrl-C ends the search; what was found so far is kept.
    """
    with _file(model) as path:
        return _native.tune(
            path, os.fspath(tuning), weft_nn_command.words(), seconds=seconds, kernel=kernel, same_sums=same_sums,
            template=[os.fspath(t) for t in template], progress=progress, device=device, batch=batch, dim=dims, amp=amp,
            **options,
        )


def bisect(
    model: Any,
    inputs: Optional[Mapping[str, Any]] = None,
    *,
    against: Optional[Mapping[str, Any]] = None,
    folder: Optional[_Path] = None,
    rtol: Optional[float] = None,
    atol: Optional[float] = None,
    device: Union[None, int, str] = None,
    batch: Optional[int] = None,
    dims: Optional[Mapping[str, Any]] = None,
    amp: str = "off",
    progress: Optional[_Progress] = None,
    **options: Any,
) -> Dict[str, Any]:
    """Finds the node, pass, schedule rule or choice of precision that makes a result wrong, as `weft bisect` does.

    model: a path, the bytes of an ONNX model, or an `onnx.ModelProto`.
    inputs: arrays by name; random ones without.
    against: the right results by name, and inner tensors too; without, those of the interpreter.
    folder: where the smallest part that is wrong by itself is written, with its inputs and a command; without, a folder
        named after the model, beside the program.
    rtol, atol: tolerances, as `Session.compare` takes them.
    device, batch, dims, amp, options: as `weft_nn.compile` takes them.
    progress: as of `tune`.

    Returns what was found, as `weft bisect --json` has it: "pass" is true where the results are right.

    Raises weft_nn.Error: as `weft_nn.compile`. Ctrl-C ends the search.
    """
    with _file(model) as path:
        return _native.bisect(
            path, None if folder is None else os.fspath(folder), None if inputs is None else dict(inputs),
            None if against is None else dict(against), rtol=rtol, atol=atol, progress=progress, device=device,
            batch=batch, dim=dims, amp=amp, **options,
        )
