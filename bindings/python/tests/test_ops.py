"""Ops as compute expressions."""

import numpy as np
import pytest
from conftest import DEVICES

import weft_nn
import weft_nn as weft


@weft.op
def mish_scale(x, w):
    return weft.compute(x.shape, lambda n, c, h, v: weft.mish(x[n, c, h, v]) * w[c])


CONV = """
const @k : f32[8,4,3,3] = random(1)
graph @main(%x: f32[1,4,16,16], %w: f32[8]) -> (y: f32[1,8,16,16]) {
  %k = const @k : f32[8,4,3,3]
  %0 = conv %x, %k {pads=[1,1,1,1]} : f32[1,8,16,16]
  %1 = relu %0 : f32[1,8,16,16]
  return %1
}
"""
RNG = np.random.default_rng(3)
INPUTS = {"x": RNG.standard_normal((1, 4, 16, 16)).astype(np.float32), "w": np.arange(8, dtype=np.float32)}


def put(module):
    for match in module.find("relu(x)"):
        match.replace(mish_scale, match["x"], module.inputs[1])


def wanted():
    """With the convolution of Weft and the rest of numpy."""
    plain = weft.compile(weft.Model.from_text(CONV.replace("return %1", "return %0"))).run(INPUTS)["y"]
    return plain * np.tanh(np.log1p(np.exp(plain))) * INPUTS["w"][:, None, None]


@pytest.mark.parametrize("device", DEVICES)
def test_behind_a_convolution_it_is_one_kernel(device):
    session = weft.compile(weft.Model.from_text(CONV), device=device, passes=[put])
    np.testing.assert_allclose(session.run(INPUTS)["y"], wanted(), rtol=1e-4, atol=1e-5)
    if device != "interpreter":
        [kernel] = session.kernels
        assert "conv" in kernel.schedule and "call_tensor" in kernel.schedule


@pytest.mark.parametrize("device", DEVICES)
def test_the_same_in_text(device):
    text = CONV.replace("relu %0", "call_tensor @mish_scale %0, %w")
    text += mish_scale.text(np.zeros((1, 8, 16, 16), np.float32), INPUTS["w"])
    session = weft.compile(weft.Model.from_text(text), device=device)
    np.testing.assert_allclose(session.run(INPUTS)["y"], wanted(), rtol=1e-4, atol=1e-5)
    assert device == "interpreter" or len(session.kernels) == 1


def test_in_half_precision():
    session = weft.compile(weft.Model.from_text(CONV), device=DEVICES[0], passes=[put], amp="fp16")
    np.testing.assert_allclose(session.run(INPUTS)["y"], wanted(), rtol=2e-2, atol=2e-2)


def test_open_sizes():
    text = CONV.replace("[1,4,16,16]", "[n,4,16,16]").replace("[1,8,16,16]", "[n,8,16,16]")
    session = weft.compile(weft.Model.from_text(text), dims={"n": (1, 4)}, device=DEVICES[0], passes=[put])
    for n in [1, 3]:
        given = {"x": np.repeat(INPUTS["x"], n, 0), "w": INPUTS["w"]}
        np.testing.assert_allclose(session.run(given)["y"], np.repeat(wanted(), n, 0), rtol=1e-4, atol=1e-5)


@weft.op
def softmax(x):
    rows, columns = x.shape
    j, k = weft.index(columns), weft.index(columns)
    largest = weft.compute([rows], lambda i: weft.max(x[i, j], j))
    return weft.compute(x.shape, lambda i, j: weft.exp(x[i, j] - largest[i]) / weft.sum(weft.exp(x[i, k] - largest[i]), k))


def test_reductions():
    x = RNG.standard_normal((3, 7)).astype(np.float32)
    e = np.exp(x - x.max(1, keepdims=True))
    np.testing.assert_allclose(softmax(x), e / e.sum(1, keepdims=True), rtol=1e-5)
    half = softmax(x.astype(np.float16))
    assert half.dtype == np.float16
    np.testing.assert_allclose(half, e / e.sum(1, keepdims=True), rtol=1e-2, atol=1e-3)

    @weft.op
    def product(a, b):
        k = weft.index(a.shape[1])
        return weft.compute([a.shape[0], b.shape[1]], lambda i, j: weft.sum(a[i, k] * b[k, j], k))

    a, b = RNG.standard_normal((5, 6)).astype(np.float32), RNG.standard_normal((6, 4)).astype(np.float32)
    np.testing.assert_allclose(product(a, b), a @ b, rtol=1e-4, atol=1e-5)

    @weft.op
    def statistics(x):
        k = weft.index(x.shape[0])
        s = weft.sum(x[k], k)
        # A reduction that is used twice is one stage.
        return weft.compute([], lambda: s / x.shape[0]), weft.compute([], lambda: s * s)

    v = np.arange(5, dtype=np.float32)
    mean, square = statistics(v)
    assert (mean, square) == (2, 100) and statistics.text(v).count("reduce sum") == 1


def test_indices_conditions_and_types():
    @weft.op
    def flipped(x, *, fill=0.0):
        n = x.shape[0]
        return weft.compute([n + 2], lambda i: weft.where(i < n, x[(n - 1 - i) % n], fill))

    x = np.array([1, 2, 3], np.float32)
    assert flipped(x).tolist() == [3, 2, 1, 0, 0]
    assert flipped(x, fill=-1.5).tolist() == [3, 2, 1, -1.5, -1.5]

    @weft.op
    def picked(x, i):
        return weft.compute([i.shape[0], x.shape[1]], lambda a, b: x[i[a], b])

    x = np.arange(12, dtype=np.float32).reshape(4, 3)
    assert picked(x, np.array([2, 0], np.int32)).tolist() == x[[2, 0]].tolist()

    @weft.op(name="position")
    def numbers(x):
        return weft.compute(x.shape, lambda i: weft.cast(i * 2, "float32") + weft.cast(x[i], np.float32))

    assert numbers(np.array([10, 20], np.int32)).tolist() == [10, 22] and numbers.name == "position"

    @weft.op
    def compared(x, y):
        return weft.compute(x.shape, lambda i: (x[i] >= y[i]) & ~(x[i] == 3)), weft.compute(x.shape, lambda i: -x[i] % 2 ** x[i])

    a, b = compared(np.array([1, 2, 3], np.float32), np.array([1, 3, 1], np.float32))
    assert a.tolist() == [True, False, False] and b.tolist() == [1, 2, 5]


def test_functions_are_those_of_numpy():
    x = np.array([0.1, 0.7, 1.3], np.float32)
    for name in ["exp", "log", "sqrt", "sin", "cos", "tan", "tanh", "floor", "ceil", "sign"]:
        f = getattr(weft_nn, name)
        op = weft.op(lambda x: weft.compute(x.shape, lambda i: f(x[i])), name=name)
        np.testing.assert_allclose(op(x), getattr(np, name)(x), rtol=1e-4, err_msg=name)
    others = {
        "sigmoid": 1 / (1 + np.exp(-x)),
        "softplus": np.log1p(np.exp(x)),
        "mish": x * np.tanh(np.log1p(np.exp(x))),
        "relu": x,
    }
    for name, want in others.items():
        f = getattr(weft_nn, name)
        op = weft.op(lambda x: weft.compute(x.shape, lambda i: f(x[i])), name=name)
        np.testing.assert_allclose(op(x), want, rtol=1e-4, err_msg=name)
    big = np.array([-1000, 1000], np.float32)
    assert weft.op(lambda x: weft.compute(x.shape, lambda i: weft.softplus(x[i])), name="big")(big).tolist() == [0, 1000]


@pytest.mark.parametrize(
    "wrong, why",
    [
        (lambda x, y: weft.compute(x.shape, lambda i: x[i] + y[i]), "float32 and int32 meet"),
        (lambda x, y: weft.compute(x.shape, lambda i: x[i, i]), "1 dimensions has 2 indices"),
        (lambda x, y: weft.compute(x.shape, lambda i: x[i] if x[i] > 0 else 0), "weft_nn.where"),
        (lambda x, y: weft.compute(x.shape, lambda i: x[i * weft.index(2)]), "outside of its reduction"),
        (lambda x, y: weft.compute(x.shape, lambda i: weft.sum(x[i], i + 1)), "index variables"),
        (lambda x, y: weft.compute(x.shape, lambda i: x[x[i]]), "is no index"),
        (lambda x, y: weft.compute(x.shape, lambda i: "a"), "the element is 'a'"),
        (lambda x, y: x[0], "return what weft_nn.compute makes"),
        (lambda x, y: weft.compute(x.shape, lambda i: y[i] * 1.5), "no number of type int32"),
        (lambda x, y: weft.compute(x.shape, lambda i: weft.cast(x[i], "float8")), "float8"),
    ],
)
def test_mistakes_have_a_reason(wrong, why):
    with pytest.raises(weft_nn.Error) as error:
        weft.op(wrong, name="wrong").text(np.zeros(3, np.float32), np.zeros(3, np.int32))
    assert error.value.code == 2 and why in str(error.value)


@pytest.mark.parametrize("device", DEVICES)
def test_an_index_out_of_range_counts_as_the_nearest(device):
    @weft_nn.op
    def rows_of(x, rows):
        return weft_nn.compute([rows.shape[0], x.shape[1]], lambda r, c: x[rows[r], c])

    def replace(module):
        for match in module.find("gather(x, rows)"):
            match.replace(rows_of, match["x"], match["rows"])

    text = "graph @main(%x: f32[4,3], %i: i64[4]) -> (y: f32[4,3]) {\n  %y = gather %x, %i {axis=0} : f32[4,3]\n  return %y\n}\n"
    session = weft_nn.compile(weft_nn.Model.from_text(text), device=device, passes=[replace])
    x, rows = np.arange(12, dtype=np.float32).reshape(4, 3), np.array([3, -1, 99, 1])
    np.testing.assert_array_equal(session.run({"x": x, "i": rows})["y"], x[[3, 0, 3, 1]])
