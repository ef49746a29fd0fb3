"""The page and the docstrings show code that runs; the stubs fit the module."""

import doctest
import importlib
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import weft_nn
import weft_nn_command

ROOT = Path(__file__).parents[3]
PAGE, LAB, README = ROOT / "docs" / "python.md", ROOT / "docs" / "lab.md", ROOT / "README.md"


@pytest.mark.parametrize("name", ["weft_nn", "weft_nn.expressions", "weft_nn.extensions", "weft_nn.ort", "weft_nn.backend", "weft_nn.lab"])
def test_docstrings(name):
    if name.endswith("backend"):
        pytest.importorskip("onnx")
    result = doctest.testmod(importlib.import_module(name))
    assert result.attempted > 0 and result.failed == 0


def blocks(page):
    """The Python of a page."""
    return [part.split("```")[0] for part in page.read_text(encoding="utf-8").split("```python\n")[1:]]


def test_the_page(tmp_path, monkeypatch):
    pytest.importorskip("onnx")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", os.path.dirname(sys.executable), prepend=os.pathsep)
    shutil.copy(ROOT / "cli/tests/transcripts/decoders/std23.onnx", "decoder.onnx")
    names = {}
    assert len(blocks(PAGE)) >= 5
    for block in blocks(PAGE):
        exec(compile(block, str(PAGE), "exec"), names)


# As `model.onnx` of README.md.
CLASSIFIER = """
    <ir_version: 8, opset_import: ["" : 17]>
    main (float[1,3,224,224] image) => (float[1,3] logits) {
        a = Relu(image)
        b = GlobalAveragePool(a)
        logits = Flatten(b)
    }
"""


def test_the_readme(tmp_path, monkeypatch, capsys):
    onnx = pytest.importorskip("onnx")
    import onnx.parser

    monkeypatch.chdir(tmp_path)
    onnx.save(onnx.parser.parse_model(CLASSIFIER), "model.onnx")
    names = {}
    [block] = blocks(README)
    exec(compile(block, str(README), "exec"), names)
    wanted = np.maximum(names["image"], 0).mean((2, 3))
    np.testing.assert_allclose(names["logits"], wanted, rtol=1e-4)
    assert "GlobalAveragePool" in capsys.readouterr().out


def test_everything_has_a_docstring():
    public = [getattr(weft_nn, name) for name in weft_nn.__all__]
    members = [v for c in public if isinstance(c, type) for k, v in vars(c).items() if not k.startswith("_")]
    assert all(o.__doc__ for o in public + members)


@pytest.mark.parametrize("page", [PAGE, LAB, README])
def test_types_of_the_pages(page, tmp_path):
    pytest.importorskip("mypy")
    pytest.importorskip("onnx")
    code = tmp_path / "page.py"
    code.write_text("".join(blocks(page)), encoding="utf-8")
    done = subprocess.run([sys.executable, "-m", "mypy", "--strict", str(code)], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


def test_types_of_the_package(tmp_path):
    pytest.importorskip("mypy")
    pytest.importorskip("onnx")
    check = [sys.executable, "-m", "mypy", "--strict", "-p", "weft_nn"]
    done = subprocess.run(check, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


def test_public_names():
    from weft_nn import _native

    stub = Path(_native.__file__).with_name("_native.pyi").read_text()
    listed = {line.strip(' ",') for line in stub.split("__all__ = [")[1].split("]")[0].split("\n")} - {""}
    there = {name for name in vars(_native) if not name.startswith("_")} | {"_leave"}
    assert listed == there
    inner = {"DEBUG", "_leave", "add_importer", "add_target", "command", "version"}
    assert listed - inner <= set(weft_nn.__all__)
    assert all(hasattr(weft_nn, name) for name in weft_nn.__all__)


def test_the_stubs_fit():
    pytest.importorskip("mypy")
    check = [sys.executable, "-m", "mypy.stubtest", "weft_nn._native", "--concise"]
    done = subprocess.run(check, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_command_comes_with_the_wheel():
    program = shutil.which("weft", path=os.path.dirname(sys.executable))
    done = subprocess.run([program, "--version"], capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.startswith("weft")
    wrong = subprocess.run([program, "run", "no_such_file.onnx"], capture_output=True, text=True)
    assert wrong.returncode == 3 and "error[3]: cannot read" in wrong.stderr, wrong


@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_ctrl_c_ends_the_command():
    command = [*weft_nn_command.words(), "bench", "squeezenet1_1", "--device", "cpu", "--runs", "100000"]
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    time.sleep(3)
    assert child.poll() is None
    child.send_signal(signal.SIGINT)
    assert child.wait(10) == -signal.SIGINT


def test_running_writes_nothing_to_stderr():
    text = "graph @main(%x: f32[2]) -> (y: f32[2]) {\n  %y = relu %x : f32[2]\n  return %y\n}\n"
    program = f"""
import numpy, weft_nn
assert weft_nn.__version__
session = weft_nn.compile(weft_nn.Model.from_text({text!r}), threads=None)
session.run({{"x": numpy.zeros(2, numpy.float32)}})
session.explain()
"""
    environment = {name: value for name, value in os.environ.items() if name != "XDG_RUNTIME_DIR"}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
