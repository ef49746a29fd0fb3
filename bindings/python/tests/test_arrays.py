"""Arrays in and out."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from conftest import DEVICES, unary

import weft_nn

DTYPES = {
    "bool": "bool",
    "u8": "uint8",
    "i8": "int8",
    "u16": "uint16",
    "i16": "int16",
    "u32": "uint32",
    "i32": "int32",
    "u64": "uint64",
    "i64": "int64",
    "f16": "float16",
    "f32": "float32",
    "f64": "float64",
}


@pytest.mark.parametrize("name", DTYPES)
def test_every_type_goes_through(name):
    model = unary("identity", name, "[2,3]")
    x = np.array([[0, 1, 2], [3, 100, 127]]).astype(DTYPES[name])
    session = weft_nn.compile(model, device="cpu")
    assert session.inputs[0].dtype == DTYPES[name]
    y = session.run({"x": x})["y"]
    assert y.dtype == x.dtype
    np.testing.assert_array_equal(y, x)


def test_bfloat16_comes_with_ml_dtypes():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    x = np.array([1.5, -2.0, 3.0], ml_dtypes.bfloat16)
    y = weft_nn.compile(unary("neg", "bf16", "[3]"), device="cpu").run({"x": x})["y"]
    assert y.dtype == ml_dtypes.bfloat16 and list(y) == [-1.5, 2.0, -3.0]


@pytest.mark.parametrize("device", ["auto", "cpu"])
def test_arrays_in_any_order_of_memory(device):
    session = weft_nn.compile(unary("neg", "f32", "[3,2]"), device=device)
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    wide = np.arange(12, dtype=np.float32).reshape(3, 4)
    for given in [x.T, np.asfortranarray(x.T), wide[:, ::2], x.T.astype(">f4"), x.T.tolist()]:
        given = np.asarray(given, np.float32) if isinstance(given, list) else given
        np.testing.assert_array_equal(session.run({"x": given})["y"], -np.asarray(given, np.float32))


def test_scalars_and_empty_arrays():
    scalar = weft_nn.compile(unary("neg", "f32", "[]"), device="cpu")
    assert scalar.run({"x": np.float32(2)})["y"] == np.float32(-2)
    empty = weft_nn.compile(unary("neg", "f32", "[0,3]"), device="cpu")
    assert empty.run({"x": np.zeros((0, 3), np.float32)})["y"].shape == (0, 3)


def test_an_input_is_given_back():
    session = weft_nn.compile(unary("neg", "f32", "[4]"))
    x = np.ones(4, np.float32)
    before = sys.getrefcount(x)
    for _ in range(10):
        session.run({"x": x})
    assert sys.getrefcount(x) == before


def test_a_result_outlives_its_session():
    session = weft_nn.compile(unary("identity", "f32", "[4]"), device="cpu")
    x = np.ones(4, np.float32)
    y = session.run({"x": x})["y"]
    del session
    x[:] = 5
    y += 1
    assert list(y) == [2, 2, 2, 2] and list(x) == [5, 5, 5, 5]


class Foreign:
    """A tensor of another package that speaks DLPack, and no more."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


@pytest.mark.skipif(not hasattr(np, "from_dlpack"), reason="this numpy has no DLPack")
def test_tensors_that_speak_dlpack():
    session = weft_nn.compile(unary("neg", "f32", "[2,3]"), device="cpu")
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    y = session.run({"x": Foreign(x)})["y"]
    np.testing.assert_array_equal(y, -x)
    np.testing.assert_array_equal(np.from_dlpack(y), -x)
    wide = np.arange(12, dtype=np.float32).reshape(2, 6)[:, ::2]
    np.testing.assert_array_equal(session.run({"x": Foreign(wide)})["y"], -wide)


@pytest.mark.parametrize("device", DEVICES)
def test_results_are_written_to_arrays(device):
    session = weft_nn.compile(unary("neg", "f32", "[64,4]"), device=device)
    x, y = np.random.default_rng(0).standard_normal((64, 4), np.float32), np.zeros((64, 4), np.float32)
    for _ in range(2):
        results = session.run({"x": x}, out={"y": y})
        assert results["y"] is y
        np.testing.assert_array_equal(y, -x)
    # The very memory of the input.
    again = x.copy()
    np.testing.assert_array_equal(session.run({"x": again}, out={"y": again})["y"], -x)
    for wrong, why in [
        (np.zeros((64, 5), np.float32), r"\[64, 5\], the result is"), (np.zeros((64, 4), np.int32), "the result is f32"),
        (np.zeros((4, 64), np.float32).T, "not contiguous"), ([1], "no array of numpy"),
    ]:
        with pytest.raises(weft_nn.Error, match=why) as error:
            session.run({"x": x}, out={"y": wrong})
        assert error.value.code == 3
    with pytest.raises(weft_nn.Error, match="no result `q`"):
        session.run({"x": x}, out={"q": y})
    with pytest.raises(weft_nn.Error, match="on_device"):
        session.run({"x": x}, out={"y": y}, on_device=True)


def test_results_that_share_no_memory():
    text = "graph @main(%x: f32[n]) -> (y: f32[n], z: f32[n]) {\n  %y = neg %x : f32[n]\n  %z = exp %x : f32[n]\n  return %y, %z\n}\n"
    session = weft_nn.compile(weft_nn.Model.from_text(text), device="cpu", dims={"n": (1, 64)})
    both = np.zeros(48, np.float32)
    results = session.run({"x": np.ones(32, np.float32)}, out={"z": both[:32]})
    np.testing.assert_allclose(both[:32], np.e, rtol=1e-5)
    assert results["y"].tolist() == [-1] * 32 and not both[32:].any()
    with pytest.raises(weft_nn.Error, match="the same memory"):
        session.run({"x": np.ones(32, np.float32)}, out={"z": both[:32], "y": both[16:]})


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory of a process as Linux has it")
@pytest.mark.parametrize("form, dims", [("33554432", None), ("n", {"n": (1, 1 << 25)})])
def test_large_tensors_are_not_copied(form, dims):
    program = """
import subprocess
import sys
from pathlib import Path
import numpy as np, weft_nn

def resident(of):
    return int([line for line in open("/proc/self/status") if line.startswith(of)][0].split()[1]) / 1024

form, dims = sys.argv[1], eval(sys.argv[2])
text = f"graph @main(%x: f32[{form}]) -> (y: f32[{form}]) {{\\n  %y = neg %x : f32[{form}]\\n  return %y\\n}}\\n"
session = weft_nn.compile(weft_nn.Model.from_text(text), device="cpu", dims=dims)
x, y = np.ones(1 << 25, np.float32), np.ones(1 << 25, np.float32)
at = y.ctypes.data
before, most = resident("VmRSS"), resident("VmHWM")
for _ in range(2):
    result = session.run({"x": x}, out={"y": y})["y"]
assert result.ctypes.data == at and y[0] == -1 == y[-1]
print(resident("VmRSS") - before, resident("VmHWM") - max(before, most))
"""
    done = subprocess.run([sys.executable, "-c", program, form, repr(dims)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    grown, peak = map(float, done.stdout.split())
    assert grown <= 4 and peak <= 4, f"{grown} and {peak} MiB for an input and a result of 128 MiB"


def test_mappings_are_inputs(small):
    from collections import UserDict
    from types import MappingProxyType

    model, inputs, wanted = small
    session = weft_nn.compile(model)
    for given in [UserDict(inputs), MappingProxyType(inputs)]:
        np.testing.assert_allclose(session.run(given)["y"], wanted, rtol=1e-5, atol=1e-6)
    with pytest.raises(TypeError):
        session.run(3)


def test_bfloat16_that_dlpack_does_not_take():
    kinds = pytest.importorskip("ml_dtypes")

    class Foreign:
        """As an array of jax: numpy's DLPack has no bfloat16."""

        def __dlpack__(self, **words):
            raise BufferError("bfloat16")

        def __dlpack_device__(self):
            return (1, 0)

        def __array__(self, dtype=None, copy=None):
            return np.ones(3, kinds.bfloat16)

    session = weft_nn.compile(unary("neg", "bf16", "[3]"), device="cpu")
    assert session.run({"x": Foreign()})["y"].astype(np.float32).tolist() == [-1] * 3
