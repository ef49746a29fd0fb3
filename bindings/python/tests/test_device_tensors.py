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
