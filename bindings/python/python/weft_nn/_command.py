"""The command `weft` of this package, for texts and pages that it makes of a trace."""

from __future__ import annotations

import html
import importlib.metadata
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any, Optional

from ._errors import DEVICE, Error


def program() -> str:
    """The command that was installed with this package; else the one on the PATH."""
    try:
        files = importlib.metadata.files("weft-nn") or []
    except importlib.metadata.PackageNotFoundError:
        files = []
    own = [str(Path(str(file.locate())).resolve()) for file in files if file.name in ("weft", "weft.exe")]
    found = own[0] if own else shutil.which("weft")
    if found is None:
        raise Error(
            "the command `weft` is not installed",
            DEVICE,
            None,
            "a wheel of `cargo xtask wheel` has it; or install it with cargo (see the README)",
        )
    return found


def _on_trace(trace: bytes, verb: str, page: bool, *options: str) -> str:
    """What a verb of the command writes about a trace: to a page, or to its output."""
    with tempfile.TemporaryDirectory() as folder:
        path, made = Path(folder, "model.trace"), Path(folder, "page.html")
        path.write_bytes(trace)
        words = [program(), verb, str(path), *(["-o", str(made)] if page else []), *options]
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


def show(page: str, height: int) -> Any:
    """Shows the page in a frame of a notebook."""
    from IPython.display import HTML, display

    frame = f'<iframe srcdoc="{html.escape(page)}" width="100%" height="{height}" style="border: 0"></iframe>'
    return display(HTML(frame))
