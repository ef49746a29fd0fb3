"""Tensors that stay where a session computes."""

import asyncio
import gc

import numpy as np
import pytest
from conftest import DEVICES, unary

import weft_nn


@pytest.mark.parametrize("device", DEVICES)
def test_results_are_inputs_of_later_runs(device):
    twice = weft_nn.compile(
        weft_nn.Model.from_text(
            "graph @main(%x: f32[4,3]) -> (y: f32[4,3]) {\n  %y = add %x, %x : f32[4,3]\n  return %y\n}\n"
        ),
        device=device,
    )
    negated = weft_nn.compile(unary("neg", "f32", "[4,3]"), device=device)
    x = np.arange(12, dtype=np.float32).reshape(4, 3)
    state = twice.to_device("x", x)
    first = state
    for _ in range(5):
        # More runs than may be in flight: a result holds nothing of its run's.
        state = twice.run({"x": state}, on_device=True)["y"]
    assert (state.shape, state.dtype) == ((4, 3), "float32") and "DeviceTensor float32" in repr(state)
    np.testing.assert_array_equal(negated.run({"x": state})["y"], -32 * x)
    np.testing.assert_array_equal(state.numpy(), 32 * x)
    np.testing.assert_array_equal(first.numpy(), x)


@pytest.mark.parametrize("device", DEVICES)
def test_they_are_arrays_for_others(device):
    session = weft_nn.compile(unary("neg", "f32", "[2,3]"), device=device)
    x = np.ones((2, 3), np.float32)
    y = session.run({"x": x}, on_device=True)["y"]
    assert np.asarray(y).tolist() == [[-1] * 3] * 2
    assert np.asarray(y, np.float64).dtype == np.float64
    assert np.from_dlpack(y).tolist() == [[-1] * 3] * 2
    with pytest.raises(ValueError):
        y.__array__(copy=False)
    assert session.compare({"x": session.to_device("x", x)}, {"y": y})["pass"]


def test_they_go_to_other_devices_through_host_memory():
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    sessions = [weft_nn.compile(unary("neg", "f32", "[2,3]"), device=device) for device in DEVICES]
    for one in sessions:
        y = one.run({"x": x}, on_device=True)["y"]
        for other in sessions:
            np.testing.assert_array_equal(other.run({"x": y})["y"], x)
            np.testing.assert_array_equal(other.run({"x": y}, on_device=True)["y"].numpy(), x)


@pytest.mark.parametrize("device", DEVICES)
def test_open_sizes_and_several_inputs(device):
    text = "graph @main(%a: f32[n,3], %b: f32[n,3]) -> (y: f32[n,3], z: f32[n,3]) {\n"
    text += "  %y = add %a, %b : f32[n,3]\n  %z = mul %a, %b : f32[n,3]\n  return %y, %z\n}\n"
    session = weft_nn.compile(weft_nn.Model.from_text(text), dims={"n": (1, 9)}, device=device)
    for n in [2, 9, 2]:
        a, b = np.full((n, 3), 2, np.float32), np.full((n, 3), 5, np.float32)
        first = session.run({"a": a, "b": b}, on_device=True)
        second = session.run({"a": first["y"], "b": b})
        np.testing.assert_array_equal(second["y"], np.full((n, 3), 12))
        np.testing.assert_array_equal(first["z"].numpy(), np.full((n, 3), 10))


def test_what_does_not_fit_is_refused():
    session = weft_nn.compile(unary("neg", "f32", "[2,3]"), device=DEVICES[0])
    other = weft_nn.compile(unary("neg", "f32", "[3,2]")).run({"x": np.ones((3, 2), np.float32)}, on_device=True)["y"]
    with pytest.raises(weft_nn.Error, match=r"shape \[3, 2\]") as error:
        session.run({"x": other})
    assert error.value.code == 3 and error.value.place == "input `x`: f32[2,3]"
    with pytest.raises(weft_nn.Error, match="`q`; there are: x"):
        session.to_device("q", np.ones((2, 3), np.float32))
    with pytest.raises(weft_nn.Error, match="float64"):
        session.to_device("x", np.ones((2, 3)))


def test_they_outlive_their_session_and_are_awaited():
    session = weft_nn.compile(unary("neg", "f32", "[2,3]"), device=DEVICES[0], runs_in_flight=2)
    x = np.ones((2, 3), np.float32)

    async def several():
        return await asyncio.gather(*(session.run_async({"x": x}, on_device=True) for _ in range(4)))

    results = [outputs["y"] for outputs in asyncio.run(several())]
    del session
    gc.collect()
    for y in results:
        np.testing.assert_array_equal(y.numpy(), -x)


# Results that are inputs, unused inputs, and inputs that only the host reads.
ON_HOST = {
    "identity": "(%x: f32[4], %q: f32[4]) -> (y: f32[4], z: f32[4]) {\n  %z = exp %q : f32[4]\n  return %x, %z\n}\n",
    "reshape": "(%x: f32[4], %q: f32[4]) -> (y: f32[2,2], z: f32[4]) {\n  %y = reshape %x {shape=[2,2]} : f32[2,2]\n"
    "  %z = exp %q : f32[4]\n  return %y, %z\n}\n",
    "unused": "(%x: f32[4], %q: f32[4]) -> (y: f32[4], z: f32[4]) {\n  %z = exp %q : f32[4]\n  return %z, %z\n}\n",
}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("kind", ON_HOST)
def test_inputs_that_no_kernel_reads(device, kind):
    session = weft_nn.compile(weft_nn.Model.from_text("graph @main" + ON_HOST[kind]), device=device)
    x, q = np.arange(4, dtype=np.float32), np.ones(4, np.float32)
    state = session.to_device("x", x)
    other = weft_nn.compile(unary("neg", "f32", "[4]"), device=device).run({"x": -x}, on_device=True)["y"]
    for given in [state, other]:
        for on_device in [False, True]:
            results = session.run({"x": given, "q": q}, on_device=on_device)
            y = np.exp(q) if kind == "unused" else x
            np.testing.assert_allclose(np.asarray(results["y"]).ravel(), y, rtol=1e-5)
    np.testing.assert_array_equal(state.numpy(), x)


# The product of a token with all tokens so far, and these.
CACHE = """
    <ir_version: 8, opset_import: ["" : 17]>
    main (float[4,1,16] q, float[4,n,16] past) => (float[4,1,16] o, float[4,n1,16] now) {
        now = Concat<axis=1>(past, q)
        kt = Transpose<perm=[0,2,1]>(now)
        a = MatMul(q, kt)
        p = Softmax<axis=-1>(a)
        o = MatMul(p, now)
    }
"""


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("way", ["on_device", "io_binding"])
def test_a_cache_of_open_length(device, way):
    onnx = pytest.importorskip("onnx")
    import onnx.parser
    import weft_nn.ort as ort

    model = onnx.parser.parse_model(CACHE)
    steps = 200 if device != "interpreter" else 10
    tokens = np.random.default_rng(0).standard_normal((steps, 4, 1, 16), np.float32)
    before = np.zeros((4, 1, 16), np.float32)
    if way == "on_device":
        session = weft_nn.compile(model, device=device, dims={"n": (1, 256)})
        past = session.to_device("past", before)
        for q in tokens:
            results = session.run({"q": q, "past": past}, on_device=True)
            past, o = results["now"], results["o"]
            assert device != "0" or "llvmpipe" not in session.device or past.device == session.device
        with pytest.raises(weft_nn.Error, match="from 1 to 256|1..256"):
            session.to_device("past", np.zeros((4, 300, 16), np.float32))
    else:
        session = ort.InferenceSession(
            model.SerializeToString(), providers=[("WeftExecutionProvider", {"device": device})]
        )
        past = ort.OrtValue.ortvalue_from_numpy(before, "cuda", 0)
        for q in tokens:
            binding = session.io_binding()
            binding.bind_cpu_input("q", q)
            binding.bind_ortvalue_input("past", past)
            binding.bind_output("o", "cuda")
            binding.bind_output("now", "cuda")
            session.run_with_iobinding(binding)
            o, past = binding.get_outputs()
    now = np.concatenate([before, *tokens], 1)
    np.testing.assert_array_equal(past.numpy(), now)
    a = tokens[-1] @ now.transpose(0, 2, 1)
    p = np.exp(a - a.max(-1, keepdims=True))
    np.testing.assert_allclose(o.numpy(), p / p.sum(-1, keepdims=True) @ now, rtol=1e-3, atol=1e-4)
