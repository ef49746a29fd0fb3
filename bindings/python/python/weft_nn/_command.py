"""The command `weft` of this package, for texts and pages that it makes of a trace."""

from __future__ import annotations

import html
import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any, Mapping, Optional, Union

import weft_nn_command

from ._errors import Error


def _on_trace(trace: bytes, verb: str, page: bool, *options: str) -> str:
    """What a verb of the command writes about a trace: to a page, or to its output."""
    with tempfile.TemporaryDirectory() as folder:
        path, made = Path(folder, "model.trace"), Path(folder, "page.html")
        path.write_bytes(trace)
        words = [*weft_nn_command.words(), verb, str(path), *(["-o", str(made)] if page else []), *options]
        done = subprocess.run(words, capture_output=True, encoding="utf-8")
        if done.returncode != 0:
            raise _error(done)
        return made.read_text(encoding="utf-8") if page else done.stdout


def _error(done: subprocess.CompletedProcess[str]) -> Error:
    """The error that the command printed."""
    lines = [line.strip() for line in done.stderr.splitlines()]

    def part(head: str) -> Optional[str]:
        return next((line[len(head) :] for line in lines if line.startswith(head)), None)

    message = part(f"error[{done.returncode}]: ") or done.stderr.strip()
    return Error(message, done.returncode, part("at: "), part("help: "))


def explain(trace: bytes, node: Optional[str]) -> str:
    """What `weft explain` says."""
    return _on_trace(trace, "explain", False, *([] if node is None else ["--node", node]))


def report(trace: bytes) -> str:
    """The page of `weft report`."""
    return _on_trace(trace, "report", True, "--quiet")


def tune(
    model: Any,
    tuning: Union[str, os.PathLike[str]],
    *,
    device: Union[None, int, str] = None,
    seconds: float = 300,
    batch: Optional[int] = None,
    dims: Optional[Mapping[str, Any]] = None,
    amp: str = "off",
) -> str:
    """Searches for faster schedules of a model's kernels, as `weft tune` does, and keeps what it finds in a file.
    `weft_nn.compile(..., tuning=file)` uses it; a second call continues.

    model: a path, the bytes of an ONNX model, or an `onnx.ModelProto`.
    tuning: the file, which is made if it is not there; lines are added to it.
    device: a number or a part of a name, as `weft_nn.compile` takes it.
    seconds: how long to search.
    batch, dims, amp: as `weft_nn.compile` takes them.

    Returns what the command says of the search.

    Raises weft_nn.Error: as `weft_nn.compile`. Ctrl-C ends the search; what was found so far is kept.
    """
    words = [*weft_nn_command.words(), "tune", "--tuning", os.fspath(tuning), "--budget", f"{seconds}s", "--amp", amp]
    words += [] if device is None else ["--device", str(device)]
    words += [] if batch is None else ["--batch", str(batch)]
    for name, size in (dims or {}).items():
        words += ["--dim", f"{name}={size}"]
    with tempfile.TemporaryDirectory() as folder:
        if hasattr(model, "SerializeToString"):
            model = model.SerializeToString()
        if isinstance(model, bytes):
            Path(folder, "model.onnx").write_bytes(model)
            model = Path(folder, "model.onnx")
        done = subprocess.run([*words, os.fspath(model)], capture_output=True, encoding="utf-8")
    if done.returncode != 0:
        raise _error(done)
    return done.stdout


def show(page: str, height: int) -> Any:
    """Shows the page in a frame of a notebook."""
    from IPython.display import HTML, display

    frame = f'<iframe srcdoc="{html.escape(page)}" width="100%" height="{height}" style="border: 0"></iframe>'
    return display(HTML(frame))
