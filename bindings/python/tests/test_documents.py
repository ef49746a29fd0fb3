"""The page and the docstrings show code that runs; the stubs fit the module."""

import doctest
import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

import weft_nn

PAGE = Path(__file__).parents[3] / "docs" / "python.md"


@pytest.mark.parametrize("name", ["weft_nn", "weft_nn.expressions", "weft_nn.ort", "weft_nn.backend"])
def test_docstrings(name):
    if name.endswith("backend"):
        pytest.importorskip("onnx")
    result = doctest.testmod(importlib.import_module(name))
    assert result.attempted > 0 and result.failed == 0


def blocks():
    """The Python of the page."""
    return [part.split("```")[0] for part in PAGE.read_text(encoding="utf-8").split("```python\n")[1:]]


def test_the_page(tmp_path, monkeypatch):
    pytest.importorskip("onnx")
    monkeypatch.chdir(tmp_path)
    names = {}
    assert len(blocks()) >= 5
    for block in blocks():
        exec(compile(block, str(PAGE), "exec"), names)


def test_everything_has_a_docstring():
    public = [getattr(weft_nn, name) for name in weft_nn.__all__]
    members = [v for c in public if isinstance(c, type) for k, v in vars(c).items() if not k.startswith("_")]
    # Fields of plain records are described by the docstrings of those.
    records = {weft_nn.Port: "name dtype shape", weft_nn.Kernel: "name function schedule wgsl workgroup grid"}
    fields = [vars(c)[name] for c, names in records.items() for name in names.split()]
    assert all(o.__doc__ for o in public + [m for m in members if m not in fields])


def test_the_stubs_fit():
    pytest.importorskip("mypy")
    check = [sys.executable, "-m", "mypy.stubtest", "weft_nn._native", "--concise"]
    done = subprocess.run(check, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_command_comes_with_the_wheel():
    from weft_nn import _command

    done = subprocess.run([_command.program(), "--version"], capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.startswith("weft")
    assert os.path.dirname(_command.program()) == os.path.dirname(sys.executable)
