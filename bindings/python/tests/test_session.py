"""Models, sessions and what they tell of themselves."""

import asyncio
import gc
import os
import threading
import time

import numpy as np
import pytest
from conftest import DEVICES, unary

import weft_nn
from weft_nn import _native


def test_a_run_gives_arrays_by_name(small):
    model, inputs, expected = small
    session = weft_nn.compile(model)
    outputs = session.run(inputs)
    assert list(outputs) == ["y"]
    np.testing.assert_allclose(outputs["y"], expected, rtol=1e-5, atol=1e-6)
    outputs["y"] += 1  # A result belongs to the caller.
    np.testing.assert_allclose(session.run(inputs)["y"], expected, rtol=1e-5, atol=1e-6)


def test_the_interpreter_gives_the_same(small):
    model, inputs, expected = small
    session = weft_nn.compile(model, device="interpreter")
    np.testing.assert_allclose(session.run(inputs)["y"], expected, rtol=1e-5, atol=1e-6)


def test_ports_have_names_types_and_shapes(small):
    session = weft_nn.compile(small[0])
    ports = [(p.name, p.dtype, p.shape) for p in session.inputs]
    assert ports == [("x", "float32", [2, 3]), ("w", "float32", [3, 2])]
    assert [(p.name, p.dtype, p.shape) for p in session.outputs] == [("y", "float32", [2, 2])]
    assert repr(session.inputs[0]) == "Port(name=\"x\", dtype=\"float32\", shape=[2, 3])"


def test_text_goes_both_ways(small):
    text = small[0].text()
    assert "matmul %x, %w" in text
    assert weft_nn.Model.from_text(text).text() == text


def test_open_sizes(tmp_path):
    path = tmp_path / "open.weft"
    path.write_text("graph @main(%x: f32[n,3]) -> (y: f32[n,3]) {\n  %y = relu %x : f32[n,3]\n  return %y\n}\n")
    assert weft_nn.load(path).inputs[0].shape == [1, 3]
    assert weft_nn.load(path, dims={"n": 5}).inputs[0].shape == [5, 3]
    assert weft_nn.load(path, shapes={"x": [7, 3]}).inputs[0].shape == [7, 3]
    for size in [(1, 64), "1..64"]:
        session = weft_nn.compile(path, dims={"n": size})
        assert session.inputs[0].shape == ["n", 3]
        for n in [1, 7, 64]:
            assert session.run({"x": np.full((n, 3), -1, np.float32)})["y"].shape == (n, 3)
        with pytest.raises(weft_nn.Error, match="65"):
            session.run({"x": np.zeros((65, 3), np.float32)})
    with pytest.raises(weft_nn.Error) as error:
        weft_nn.load(path, dims={"m": 5})
    assert error.value.code == 2
    assert error.value.message == "no dimension is called `m`; the open ones are: n"


def test_threads_share_a_session(small):
    model, inputs, expected = small
    session = weft_nn.compile(model, runs_in_flight=2)
    wrong = []

    def work():
        for _ in range(20):
            if not np.allclose(session.run(inputs)["y"], expected, rtol=1e-5, atol=1e-6):
                wrong.append(1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert not wrong


def test_runs_are_awaited(small):
    model, inputs, expected = small
    session = weft_nn.compile(model, runs_in_flight=2)

    async def several():
        return await asyncio.gather(*(session.run_async(inputs) for _ in range(6)))

    for outputs in asyncio.run(several()):
        np.testing.assert_allclose(outputs["y"], expected, rtol=1e-5, atol=1e-6)
    with pytest.raises(weft_nn.Error, match="`w`"):
        asyncio.run(session.run_async({"x": inputs["x"]}))


def test_bench_has_the_statistics_of_the_command(small):
    model, inputs, _ = small
    for device in DEVICES:
        latency = weft_nn.compile(model, device=device).bench(inputs, warmup=2, runs=5)["latency_ms"]
        assert len(latency["samples"]) == 5
        assert latency["min"] <= latency["median"] <= latency["p90"] <= latency["p99"] <= max(latency["samples"])


def test_compare(small):
    model, inputs, expected = small
    session = weft_nn.compile(model)
    assert session.compare(inputs, {"y": expected})["pass"]
    far = session.compare(inputs, {"y": expected + 1})
    assert not far["pass"] and far["outputs"][0]["name"] == "y" and far["outputs"][0]["why"]
    with pytest.raises(weft_nn.Error) as error:
        session.compare(inputs, {"z": expected})
    assert error.value.code == 3
    with pytest.raises(weft_nn.Error) as error:
        weft_nn.compile(model, device="interpreter").compare(inputs)
    assert error.value.code == 2
    if session.place == "device":
        assert session.compare(inputs)["pass"]
    with pytest.raises(weft_nn.Error) as error:
        session.compare(inputs, "fp32")
    assert error.value.code == 2


def test_mixed_precision(small):
    model, inputs, expected = small
    session = weft_nn.compile(model, amp="fp16")
    assert np.allclose(session.run(inputs)["y"], expected, rtol=2e-2, atol=2e-2)
    calibrated = weft_nn.compile(model, amp="auto", inputs=inputs)
    assert np.allclose(calibrated.run(inputs)["y"], expected, rtol=2e-2, atol=2e-2)
    with pytest.raises(weft_nn.Error, match="`w`"):
        weft_nn.compile(model, amp="auto", inputs={"x": inputs["x"]})


def test_a_trace_is_explained_and_shown(small, tmp_path):
    session = weft_nn.compile(small[0])
    trace = session.trace()
    record = trace.to_dict()
    assert record["groups"] and record["kernels"] and record["passes"]
    path = tmp_path / "a.trace"
    trace.save(path)
    assert path.read_bytes() == trace.data
    assert "Groups, in the order they run" in session.explain()
    assert "matmul" in session.explain("matmul_0")
    with pytest.raises(weft_nn.Error) as error:
        session.explain("{no such node}")
    assert error.value.code == 2 and "{no such node}" in error.value.message
    page = trace.report()
    assert page.startswith("<!doctype html>")


def test_show_puts_the_page_into_a_notebook(small, capsys, monkeypatch):
    display = pytest.importorskip("IPython.display")
    shown = []
    monkeypatch.setattr(display, "display", shown.append)
    session = weft_nn.compile(small[0])
    session.show(height=300)
    assert 'height="300"' in shown[0].data and "srcdoc=" in shown[0].data


def test_a_cache_serves_the_next_session(small, tmp_path):
    model, inputs, expected = small
    for _ in range(2):
        session = weft_nn.compile(model, cache=tmp_path, cache_weights=True)
        np.testing.assert_allclose(session.run(inputs)["y"], expected, rtol=1e-5, atol=1e-6)
    if session.place == "device":
        assert any(tmp_path.iterdir())


def test_devices_are_listed():
    for device in weft_nn.devices():
        assert {"index", "name", "backend", "driver", "type"} <= set(device)


def resident():
    """Bytes of memory that the process has."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="memory is read from /proc")
@pytest.mark.parametrize("device", DEVICES)
def test_the_memory_of_runs_is_given_back(device):
    x = np.zeros((64, 256), np.float32)
    session = weft_nn.compile(unary("neg", "f32", "[64,256]"), device=device)
    after = {}
    for i in range(1, 2001):
        session.run({"x": x})
        if i in (200, 2000):
            gc.collect()
            after[i] = resident()
    # 1,800 results of 64 KiB are 112 MiB.
    assert after[2000] - after[200] <= 4 << 20


def test_a_run_costs_little_more_than_its_parts():
    session = weft_nn.compile(unary("exp", "f32", "[64,256]"))
    x = {"x": np.ones((64, 256), np.float32)}

    def timed():
        start = time.perf_counter()
        session.run(x)
        return (time.perf_counter() - start) * 1e3

    own, bare = [], []
    for _ in range(10):
        bare.append(session.bench(x, warmup=2, runs=30)["latency_ms"]["min"])
        own.append(min(timed() for _ in range(30)))
    # The shortest times: a machine that does other work lengthens the others.
    print(f"{min(own):.3f} ms, {min(bare):.3f} ms in the library")
    # Without optimisation the module itself takes some 0.3 ms.
    assert min(own) - min(bare) <= (1 if _native.DEBUG else max(0.05 * min(bare), 0.05))


def test_a_session_is_closed(small):
    model, inputs, wanted = small
    with weft_nn.compile(model, device="cpu") as session:
        np.testing.assert_allclose(session.run(inputs)["y"], wanted, rtol=1e-5, atol=1e-6)
    with pytest.raises(weft_nn.Error, match="the session is closed") as error:
        session.run(inputs)
    assert error.value.code == 2
    session.close()


def test_models_from_open_files():
    onnx = pytest.importorskip("onnx")
    import io

    import onnx.parser

    text = '<ir_version: 8, opset_import: ["" : 17]> main (float[2] x) => (float[2] y) { y = Neg(x) }'
    data = onnx.parser.parse_model(text).SerializeToString()
    for source in [data, bytearray(data), memoryview(data), io.BytesIO(data)]:
        assert weft_nn.compile(source).run({"x": np.ones(2, np.float32)})["y"].tolist() == [-1, -1]
