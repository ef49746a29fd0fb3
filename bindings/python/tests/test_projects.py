"""Inference code of other projects, with the import of onnxruntime changed and nothing else."""

import importlib
import json
import os
import shutil
import subprocess
import sys
import types
from pathlib import Path

import pytest

import weft_nn
import weft_nn.ort


def on_weft(name: str, old: str, new: str) -> types.ModuleType:
    """The module of that name, built again from its source with one line changed."""
    module = importlib.import_module(name)
    source = Path(module.__file__).read_text(encoding="utf-8")
    assert source.count(old) == 1
    made = types.ModuleType(name)
    made.__file__, made.__package__ = module.__file__, module.__package__
    exec(compile(source.replace(old, new), module.__file__, "exec"), vars(made))
    return made


CONTENTS = {
    "python": b"import os\n\ndef main(n):\n    return [i for i in range(n)]\n\nif __name__ == '__main__':\n    print(main(3))\n",
    "html": b"<!doctype html><html><head><title>x</title></head><body><p>Hello</p></body></html>\n" * 4,
    "markdown": Path(__file__).parents[3].joinpath("docs", "bundle.md").read_bytes(),
    "rust": Path(__file__).parents[1].joinpath("src", "session.rs").read_bytes(),
}


def test_magika():
    """Types of files: https://github.com/google/magika. It gives a batch of lists as input."""
    pytest.importorskip("magika", reason="the package magika is not here")
    original = importlib.import_module("magika.magika").Magika()
    changed = on_weft("magika.magika", "import onnxruntime as rt\n", "import weft_nn.ort as rt\n")
    assert changed.rt is weft_nn.ort
    ours = changed.Magika()
    for label, content in CONTENTS.items():
        got, wanted = ours.identify_bytes(content), original.identify_bytes(content)
        assert got.output.label == wanted.output.label == label
        assert abs(got.score - wanted.score) < 1e-4


READ = """
import json, sys
import cv2, numpy as np
import rapidocr_onnxruntime

page = np.full((120, 420, 3), 255, np.uint8)
for y, text in [(45, "Weft 2026"), (100, "one kernel")]:
    cv2.putText(page, text, (20, y), cv2.FONT_HERSHEY_SIMPLEX, 1.5, (0, 0, 0), 3)
found, _ = rapidocr_onnxruntime.RapidOCR()(page)
engine = sys.modules["rapidocr_onnxruntime.utils.infer_engine"]
lines = [[np.asarray(box).tolist(), text, float(score)] for box, text, score in found]
print(json.dumps([engine.InferenceSession.__module__, lines]))
"""


@pytest.mark.skipif(weft_nn._native.DEBUG, reason="takes minutes without optimisation: install a release wheel")
def test_rapidocr(tmp_path):
    """Text in pictures: https://github.com/RapidAI/RapidOCR. Three networks whose inputs have open sizes."""
    package = pytest.importorskip("rapidocr_onnxruntime", reason="the package is not here", exc_type=ImportError)
    copy = tmp_path / "rapidocr_onnxruntime"
    shutil.copytree(Path(package.__file__).parent, copy)
    engine = copy / "utils" / "infer_engine.py"
    source = engine.read_text(encoding="utf-8")
    assert source.count("from onnxruntime import (") == 1
    engine.write_text(source.replace("from onnxruntime import (", "from weft_nn.ort import ("), encoding="utf-8")

    def read(path):
        environment = dict(os.environ, PYTHONPATH=path)
        done = subprocess.run([sys.executable, "-c", READ], capture_output=True, text=True, env=environment)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])

    (module, ours), (other, original) = read(str(tmp_path)), read("")
    assert module == "weft_nn.ort" and other.startswith("onnxruntime")
    assert [line[1] for line in ours] == [line[1] for line in original] == ["Weft 2026", "one kernel"]
    for (box, _, score), (wanted_box, _, wanted_score) in zip(ours, original):
        assert max(abs(a - b) for p, q in zip(box, wanted_box) for a, b in zip(p, q)) <= 1
        assert abs(score - wanted_score) < 1e-3
