"""Kernels with their schedules, other schedules, and tuning."""

import re

import numpy as np
import pytest
from conftest import DEVICES

import weft_nn

PRODUCT = """
const @w : f32[32,24] = random(1)
graph @main(%x: f32[16,32]) -> (y: f32[16,24]) {
  %w = const @w : f32[32,24]
  %0 = matmul %x, %w : f32[16,24]
  %y = relu %0 : f32[16,24]
  return %y
}
"""
X = np.random.default_rng(5).standard_normal((16, 32)).astype(np.float32)


@pytest.mark.parametrize("device", [d for d in DEVICES if d != "interpreter"])
def test_a_schedule_is_read_and_changed(device):
    session = weft_nn.compile(weft_nn.Model.from_text(PRODUCT), device=device)
    want = session.run({"x": X})["y"]
    [kernel] = session.kernels
    assert "cut-kernel" in kernel.schedule and "matmul" in kernel.name and len(kernel.grid) == 3
    assert ("fn " in kernel.wgsl) == (device != "cpu")
    same = session.with_schedules({kernel.function: kernel.schedule})
    assert [k.schedule for k in same.kernels] == [kernel.schedule]
    np.testing.assert_array_equal(same.run({"x": X})["y"], want)
    # One of the choices that the rules had is changed by hand; they follow it.
    point = re.search(r"(choose \{[^}]*point=rows, value=)(\d+)(, of=\[)([\d,]+)\]\}", kernel.schedule)
    assert point, kernel.schedule
    other = next(v for v in point[4].split(",") if v != point[2])
    changed = kernel.schedule.replace(point[0], point[0].replace(f"value={point[2]}", f"value={other}"))
    again = session.with_schedules({kernel.function: changed})
    assert f"value={other}" in again.kernels[0].schedule and again.kernels[0].schedule != kernel.schedule
    np.testing.assert_allclose(again.run({"x": X})["y"], want, rtol=1e-4, atol=1e-5)


def test_what_is_no_schedule_is_refused():
    session = weft_nn.compile(weft_nn.Model.from_text(PRODUCT), device="cpu")
    [kernel] = session.kernels
    with pytest.raises(weft_nn.Error, match=kernel.function) as error:
        session.with_schedules({"no_such_function": kernel.schedule})
    assert error.value.code == 3
    for text in ["splt {loop=i}", "split {loop=no_such_loop, factors=[0,4], into=[a,b]}"]:
        with pytest.raises(weft_nn.Error) as error:
            session.with_schedules({kernel.function: text})
        assert error.value.code in (2, 3), error.value


def test_tuning(tmp_path):
    onnx = pytest.importorskip("onnx")
    import onnx.parser

    model = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 17]>
        main (float[16,32] x, float[32,24] w) => (float[16,24] y) { y = MatMul(x, w) }"""
    )
    file = tmp_path / "tuning.jsonl"
    stages = []
    found = weft_nn.tune(model, file, device="cpu", seconds=1, threads=1, progress=lambda *at: stages.append(at))
    assert found["model"] and file.exists() and any(stage.startswith("tune") for stage, *_ in stages)
    session = weft_nn.compile(model, device="cpu", tuning=file)
    w = np.random.default_rng(6).standard_normal((32, 24)).astype(np.float32)
    np.testing.assert_allclose(session.run({"x": X, "w": w})["y"], X @ w, rtol=1e-4, atol=1e-4)
    with file.open("ab") as lines:
        lines.write(b"no line of a database\n")
    with pytest.warns(UserWarning, match="skipped .*line [0-9]+: "):
        session = weft_nn.compile(model, device="cpu", tuning=file)
    np.testing.assert_allclose(session.run({"x": X, "w": w})["y"], X @ w, rtol=1e-4, atol=1e-4)
    (tmp_path / "garbage.jsonl").write_text("no line of a database\n")
    with pytest.raises(weft_nn.Error, match="line 1: "):
        weft_nn.compile(model, device="cpu", tuning=tmp_path / "garbage.jsonl")
    with pytest.raises(weft_nn.Error) as error:
        weft_nn.compile(model, tuning=tmp_path / "missing.jsonl")
    assert error.value.code == 2 and "weft_nn.tune" in error.value.help
    with pytest.raises(weft_nn.Error, match="no such device|nowhere"):
        weft_nn.tune(model, file, device="nowhere", seconds=1)


def test_a_search_ends_where_progress_raises(tmp_path):
    text = "graph @main(%x: f32[64,256], %w: f32[256,128]) -> (y: f32[64,128]) {\n  %y = matmul %x, %w : f32[64,128]\n  return %y\n}\n"
    model = tmp_path / "net.weft"
    model.write_text(text)
    [kernel] = weft_nn.compile(model, device="cpu").kernels
    calls = []

    def enough(stage, at_work, done, total):
        calls.append(stage)
        if stage.startswith("tune"):
            raise RuntimeError("enough")

    with pytest.raises(weft_nn.Error, match="stopped"):
        weft_nn.tune(model, tmp_path / "tuning.jsonl", device="cpu", seconds=600, kernel=kernel.name, progress=enough)
    assert sum(stage.startswith("tune") for stage in calls) == 1


def test_what_makes_a_result_wrong(tmp_path):
    text = "graph @main(%x: f32[2,3]) -> (y: f32[2,3]) {\n  %y = relu %x : f32[2,3]\n  return %y\n}\n"
    model = tmp_path / "net.weft"
    model.write_text(text)
    x = np.array([[1, -2, 3], [-4, 5, -6]], np.float32)
    assert weft_nn.bisect(model, {"x": x}, device="cpu")["pass"]
    found = weft_nn.bisect(model, {"x": x}, against={"y": x}, device="cpu", folder=tmp_path / "found")
    assert not found["pass"] and found["cause"]["kind"] == "model", found
    with pytest.raises(TypeError, match="speed"):
        weft_nn.bisect(model, device="cpu", speed="high")
