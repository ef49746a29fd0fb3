"""Models as files, parts of them, comparisons of compilations, and searches."""

import numpy as np
import pytest
from conftest import unary

import weft_nn

LAYERS = """
graph @main(%x: f32[n,3]) -> (y: f32[n,3]) {
  %a = neg %x : f32[n,3]
  %b = exp %a : f32[n,3]
  %y = sqrt %b : f32[n,3]
  return %y
}
"""


def test_a_model_becomes_an_onnx_file(tmp_path):
    path = tmp_path / "model.onnx"
    weft_nn.export(weft_nn.Model.from_text(LAYERS), path)
    x = np.ones((2, 3), np.float32)
    session = weft_nn.compile(path, dims={"n": 2})
    np.testing.assert_allclose(session.run({"x": x})["y"], np.exp(-x / 2), rtol=1e-5)
    module = weft_nn.load(path, keep_open=True).module()
    assert [node.op for node in module.nodes] == ["neg", "exp", "sqrt"]


def test_a_part_is_a_model(tmp_path):
    path = tmp_path / "part.onnx"
    made = weft_nn.extract(weft_nn.Model.from_text(LAYERS), path, begin=["a"], end=["b"], dims={"n": 2})
    assert made["nodes"] == 1
    [port] = weft_nn.load(path).inputs
    y = weft_nn.compile(path).run({port.name: np.zeros((2, 3), np.float32)})
    assert [v.tolist() for v in y.values()] == [[[1] * 3] * 2]
    with pytest.raises(weft_nn.Error, match="nothing") as error:
        weft_nn.extract(weft_nn.Model.from_text(LAYERS), path, begin=["nothing"], end=["b"], dims={"n": 2})
    assert error.value.code == 2


def test_two_compilations_are_compared(tmp_path):
    model = weft_nn.Model.from_text(LAYERS)
    fused, apart = (weft_nn.compile(model, device="cpu", dims={"n": 2}, fuse=fuse).trace() for fuse in ("full", "off"))
    assert weft_nn.diff(fused, fused)["equal"] is True
    apart.save(tmp_path / "apart.trace")
    assert weft_nn.diff(fused, tmp_path / "apart.trace")["equal"] is False
    with pytest.raises(weft_nn.Error):
        weft_nn.diff(fused, tmp_path / "none.trace")


def test_searches_take_what_compile_takes(tmp_path):
    model = weft_nn.Model.from_text(LAYERS)
    found = weft_nn.tune(model, tmp_path / "t.jsonl", device="cpu", seconds=0.5, dims={"n": (1, 4)}, threads=1, layout="nchw")
    assert found
    found = weft_nn.tune(unary("neg", "f32", "[2,3]"), tmp_path / "u.jsonl", device="cpu", seconds=0.5, shapes={"x": [2, 3]})
    assert found
    assert weft_nn.bisect(model, {"x": np.ones((2, 3), np.float32)}, device="cpu", dims={"n": (1, 4)})["pass"]
