"""What the command does with models: searches for faster schedules, and for what makes a result wrong, in this process;
parts of models, ONNX files and comparisons of compilations."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, Mapping, Optional, Sequence, Union

import weft_nn_command

from . import _native
from ._errors import BUG, Error

_Path = Union[str, "os.PathLike[str]"]
_Progress = Callable[[str, str, int, int], Any]


@contextmanager
def _file(model: Any) -> Iterator[str]:
    """The path of a model, which is one, or a Model, the bytes of an ONNX file, or an `onnx.ModelProto`."""
    if isinstance(model, _native.Model):
        model = model.to_onnx()
    if hasattr(model, "SerializeToString"):
        model = model.SerializeToString()
    if isinstance(model, bytearray):
        model = bytes(model)
    if not isinstance(model, bytes):
        yield os.fspath(model)
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.onnx")
        path.write_bytes(model)
        yield str(path)


def _dict(given: Optional[Mapping[str, Any]]) -> Optional[Dict[str, Any]]:
    return None if given is None else dict(given)


def _shapes(given: Optional[Mapping[str, Sequence[int]]]) -> Optional[Dict[str, str]]:
    """As the command takes them."""
    return None if given is None else {name: "x".join(str(n) for n in shape) for name, shape in given.items()}


def _command(*words: str) -> Dict[str, Any]:
    """What the command says, in a process of its own."""
    done = subprocess.run([*weft_nn_command.words(), *words, "--json"], capture_output=True, text=True)
    try:
        said: Dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        raise Error(f"weft {words[0]}: {done.stderr.strip() or done.stdout.strip()}", done.returncode or BUG) from None
    error = said.get("error")
    if error:
        raise Error(error["message"], error["code"], error.get("where"), error.get("help"))
    return said


def export(model: Any, path: _Path) -> None:
    """Writes a model as an ONNX file, for other systems.

    model: what `weft_nn.load` takes, such as a Model that passes have changed.
    path: of the file.

    Raises weft_nn.Error: as `load`; code 3 for nodes that ONNX has no operator for.
    """
    loaded = model if isinstance(model, _native.Model) else _native.load(model, keep_open=True)
    Path(path).write_bytes(loaded.to_onnx())


def extract(
    model: Any,
    path: _Path,
    *,
    begin: Sequence[str] = (),
    end: Sequence[str] = (),
    dims: Optional[Mapping[str, Any]] = None,
) -> Dict[str, Any]:
    """Writes a part of a model as a model of its own, as `weft extract` does.

    model: as `tune` takes it.
    path: of the ONNX file.
    begin, end: names of tensors, nodes or layers at which the part begins and ends; the model's own without.
    dims: sizes of dimensions that the model leaves open.

    Returns what was written, as `weft extract --json` has it: "nodes", "inputs", "outputs".

    Raises weft_nn.Error: as `load`; code 2 for names that the model does not have.
    """
    with _file(model) as source:
        names = [word for name in begin for word in ("--from", name)] + [word for name in end for word in ("--to", name)]
        sizes = [word for name, size in (dims or {}).items() for word in ("--dim", f"{name}={size}")]
        return _command("extract", source, "-o", os.fspath(path), *names, *sizes)


def diff(a: Union[_native.Trace, _Path], b: Union[_native.Trace, _Path]) -> Dict[str, Any]:
    """What differs between two compilations, as `weft diff` says.

    a, b: records of compilations (`Session.trace`), or their files.

    Returns what `weft diff --json` has: "equal", "verdict", "layers" and all differences.

    Raises weft_nn.Error: code 3 for a file that is no record.
    """
    with tempfile.TemporaryDirectory() as folder:
        paths = []
        for name, given in (("a", a), ("b", b)):
            path = Path(folder, f"{name}.trace")
            if isinstance(given, _native.Trace):
                given.save(path)
            paths.append(os.fspath(path if isinstance(given, _native.Trace) else given))
        return _command("diff", *paths)


def tune(
    model: Any,
    tuning: _Path,
    *,
    device: Union[None, int, str] = None,
    seconds: float = 300,
    batch: Optional[int] = None,
    dims: Optional[Mapping[str, Any]] = None,
    shapes: Optional[Mapping[str, Sequence[int]]] = None,
    amp: str = "off",
    kernel: Optional[str] = None,
    same_sums: bool = False,
    template: Sequence[_Path] = (),
    progress: Optional[_Progress] = None,
    **options: Any,
) -> Dict[str, Any]:
    """Searches for faster schedules of a model's kernels, as `weft tune` does, and keeps what it finds in a file.
    `weft_nn.compile(..., tuning=file)` uses it; a second call continues.

    model: a path, a Model, the bytes of an ONNX model, or an `onnx.ModelProto`.
    tuning: the file, which is made if it is not there; lines are added to it.
    device: a number or a part of a name, as `weft_nn.compile` takes it.
    seconds: how long to search.
    batch, dims, shapes, amp: as `weft_nn.compile` takes them.
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
            template=[os.fspath(t) for t in template], progress=progress, device=device, batch=batch,
            dim=_dict(dims), shape=_shapes(shapes), amp=amp, **options,
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
    shapes: Optional[Mapping[str, Sequence[int]]] = None,
    amp: str = "off",
    progress: Optional[_Progress] = None,
    **options: Any,
) -> Dict[str, Any]:
    """Finds the node, pass, schedule rule or choice of precision that makes a result wrong, as `weft bisect` does.

    model: a path, a Model, the bytes of an ONNX model, or an `onnx.ModelProto`.
    inputs: arrays by name; random ones without.
    against: the right results by name, and inner tensors too; without, those of the interpreter.
    folder: where the smallest part that is wrong by itself is written, with its inputs and a command; without, a folder
        named after the model, beside the program.
    rtol, atol: tolerances, as `Session.compare` takes them.
    device, batch, dims, shapes, amp, options: as `weft_nn.compile` takes them.
    progress: as of `tune`.

    Returns what was found, as `weft bisect --json` has it: "pass" is true where the results are right.

    Raises weft_nn.Error: as `weft_nn.compile`. Ctrl-C ends the search.
    """
    with _file(model) as path:
        return _native.bisect(
            path, None if folder is None else os.fspath(folder), None if inputs is None else dict(inputs),
            None if against is None else dict(against), rtol=rtol, atol=atol, progress=progress, device=device,
            batch=batch, dim=_dict(dims), shape=_shapes(shapes), amp=amp, **options,
        )
