"""Arrays in and out."""

import sys

import numpy as np
import pytest
from conftest import unary

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
