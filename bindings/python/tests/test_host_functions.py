"""Functions in Python that a network calls."""

import threading

import numpy as np
import pytest

from conftest import DEVICES

import weft_nn

CALL = """
graph @main(%x: f32[2,3]) -> (y: f32[2,3]) {
  %0 = exp %x : f32[2,3]
  %1 = call_host @mine %0 {dtypes=[f32], shapes=[[2,3]]} : f32[2,3]
  %y = neg %1 : f32[2,3]
  return %y
}
"""
X = np.arange(6, dtype=np.float32).reshape(2, 3) / 4


@pytest.mark.parametrize("device", DEVICES)
def test_a_function_of_arrays(device):
    seen = []

    def mine(x):
        seen.append((x.dtype, x.shape, x.flags.writeable))
        return x + 1

    session = weft_nn.compile(weft_nn.Model.from_text(CALL), device=device, host_functions={"mine": mine})
    for _ in range(3):
        np.testing.assert_allclose(session.run({"x": X})["y"], -(np.exp(X) + 1), rtol=1e-5)
    assert seen == [(np.dtype("float32"), (2, 3), False)] * 3


@pytest.mark.parametrize("device", DEVICES)
def test_an_operand_may_be_kept(device):
    kept = []
    session = weft_nn.compile(
        weft_nn.Model.from_text(CALL), device=device, host_functions={"mine": lambda x: kept.append(x) or [x]}
    )
    for i in range(4):
        session.run({"x": X * i})
    for i, array in enumerate(kept):
        np.testing.assert_allclose(array, np.exp(X * i), rtol=1e-5)


@pytest.mark.parametrize("device", DEVICES)
def test_what_it_raises_is_raised(device):
    class Mine(Exception):
        pass

    def mine(x):
        raise Mine("not today")

    session = weft_nn.compile(weft_nn.Model.from_text(CALL), device=device, host_functions={"mine": mine})
    with pytest.raises(Mine, match="not today") as error:
        session.run({"x": X})
    assert error.traceback[-1].name == "mine"
    for bench in [lambda: session.bench({"x": X}, runs=1), lambda: session.compare({"x": X}, {"y": X})]:
        with pytest.raises(Mine):
            bench()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("wrong", [lambda x: x[0], lambda x: x.astype(np.float64), lambda x: [x, x]])
def test_results_of_another_type_are_refused(wrong, device):
    session = weft_nn.compile(weft_nn.Model.from_text(CALL), device=device, host_functions={"mine": wrong})
    with pytest.raises(weft_nn.Error, match="mine") as error:
        session.run({"x": X})
    assert error.value.code != 6


def test_a_function_that_is_missing_or_none():
    for device in DEVICES:
        with pytest.raises(weft_nn.Error, match="`mine`, which is not registered") as error:
            weft_nn.compile(weft_nn.Model.from_text(CALL), device=device).run({"x": X})
        assert error.value.code == 3 and "host_functions=" in error.value.help
    with pytest.raises(weft_nn.Error) as error:
        weft_nn.compile(weft_nn.Model.from_text(CALL), host_functions={"mine": 3})
    assert error.value.code == 2


def test_nodes_are_replaced_by_name():
    model = weft_nn.Model.from_text(CALL.replace("call_host @mine %0 {dtypes=[f32], shapes=[[2,3]]}", "tanh %0"))
    session = weft_nn.compile(model, host_functions={"mine": lambda x: x * 2}, host_calls={"op:tanh": "mine"})
    np.testing.assert_allclose(session.run({"x": X})["y"], -2 * np.exp(X), rtol=1e-5)
    with pytest.raises(weft_nn.Error, match="op:tan"):
        weft_nn.compile(model, host_functions={"mine": lambda x: x}, host_calls={"op:tan": "mine"})


def test_threads_call_it_at_once():
    session = weft_nn.compile(
        weft_nn.Model.from_text(CALL), device=DEVICES[0], host_functions={"mine": lambda x: x + 1}, runs_in_flight=2
    )
    wrong = []

    def work(i):
        for _ in range(10):
            if not np.allclose(session.run({"x": X * i})["y"], -(np.exp(X * i) + 1), rtol=1e-4):
                wrong.append(i)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert not wrong
