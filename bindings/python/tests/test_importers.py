"""Importers of ONNX operators in Python."""

import numpy as np
import pytest

from conftest import DEVICES

import weft_nn

pytest.importorskip("onnx")
import onnx.helper as oh  # noqa: E402
import onnx.numpy_helper as nh  # noqa: E402
from onnx import TensorProto  # noqa: E402

X = np.arange(-3, 3, dtype=np.float32).reshape(2, 3)
W = np.array([1, 10, 100], np.float32)


def model(op, inputs=("x",), outputs=("z",), domain="acme", shape=(2, 3), **attributes):
    """An Exp, the operator, and a Neg."""
    value = lambda name, shape: oh.make_tensor_value_info(name, TensorProto.FLOAT, shape)
    nodes = [
        oh.make_node("Exp", ["x"], ["e"]),
        oh.make_node(op, ["e" if i == "x" else i for i in inputs], list(outputs), "mine", domain=domain, **attributes),
        oh.make_node("Neg", [outputs[0]], ["y"]),
    ]
    graph = oh.make_graph(nodes, "g", [value("x", shape)], [value("y", shape)], [nh.from_array(W, "w")])
    return oh.make_model(graph, opset_imports=[oh.make_opsetid("", 17), oh.make_opsetid("acme", 1)], ir_version=8)


@pytest.mark.parametrize("device", DEVICES)
def test_an_importer_builds_nodes(device):
    seen = []

    def scale(module, x, w=None, b=None, *, factor=1.0, mode="none", axes=()):
        seen.append((x.shape, x.dtype, w.constant.tolist(), b, mode, list(axes)))
        return module.add("mul", module.add("mul", x, w), factor)

    weft_nn.register_onnx("acme", "Scale", scale)
    m = model("Scale", ["x", "w", ""], factor=2.0, mode="linear", axes=[1, 2])
    session = weft_nn.compile(m, device=device)
    np.testing.assert_allclose(session.run({"x": X})["y"], -np.exp(X) * W * 2, rtol=1e-5)
    assert seen[0] == ([2, 3], "float32", [1, 10, 100], None, "linear", [1, 2])


@pytest.mark.parametrize("device", DEVICES)
def test_a_compute_expression_is_an_importer(device):
    @weft_nn.register_onnx("acme", "MishScale")
    @weft_nn.op
    def mish_scale(x, w, *, power=1):
        return weft_nn.compute(x.shape, lambda n, c: weft_nn.mish(x[n, c]) * w[c] ** power)

    session = weft_nn.compile(model("MishScale", ["x", "w"]), device=device)
    e = np.exp(X)
    np.testing.assert_allclose(session.run({"x": X})["y"], -e * np.tanh(np.log1p(np.exp(e))) * W, rtol=1e-4)
    if device == "cpu":
        # One kernel with its neighbours.
        assert len(session.kernels) == 1


def test_two_nodes_share_a_compute_expression():
    weft_nn.register_onnx("acme", "Twice", weft_nn.op(lambda x: weft_nn.compute(x.shape, lambda i, j: x[i, j] * 2), name="twice"))
    m = model("Twice")
    m.graph.node.insert(2, oh.make_node("Twice", ["z"], ["z2"], domain="acme"))
    m.graph.node[3].input[0] = "z2"
    loaded = weft_nn.load(m)
    assert loaded.text().count("\ntensor @twice") == 1
    np.testing.assert_allclose(weft_nn.compile(loaded).run({"x": X})["y"], -4 * np.exp(X), rtol=1e-5)


def test_several_results_and_open_sizes():
    def split(module, x):
        return module.add("neg", x), module.add("relu", x)

    weft_nn.register_onnx("acme", "Split", split)
    session = weft_nn.compile(model("Split", outputs=("z", "unused"), shape=("n", 3)), dims={"n": (1, 8)})
    for n in [1, 5]:
        x = np.ones((n, 3), np.float32)
        np.testing.assert_allclose(session.run({"x": x})["y"], np.exp(x), rtol=1e-5)


def test_nodes_keep_the_name_of_the_node():
    weft_nn.register_onnx("acme", "Named", lambda module, x: module.add("relu", x))
    [node] = [n for n in weft_nn.load(model("Named")).module().nodes if n.op == "relu"]
    assert (node.name, node.origins) == ("mine", ["mine"])


def test_without_an_importer_it_is_unsupported():
    with pytest.raises(weft_nn.Error, match="Nothing") as error:
        weft_nn.load(model("Nothing"))
    assert error.value.code == 4


def test_what_it_raises_the_load_raises():
    def fail(module, x):
        raise KeyError("not today")

    weft_nn.register_onnx("acme", "Fails", fail)
    with pytest.raises(KeyError, match="not today"):
        weft_nn.load(model("Fails"))
    weft_nn.register_onnx("acme", "Fails", lambda module, x: module.add("relu", x))
    weft_nn.load(model("Fails"))


def test_wrong_results_are_refused():
    other = weft_nn.load(model("Relu", domain="")).module()
    for importer, why in [
        (lambda module, x: None, "an importer returned None"),
        (lambda module, x: other.inputs[0], "an importer returned"),
        (lambda module, x: [], "returned 0 results, the node names 1"),
        (lambda module, x: module.add("no_such_op", x), "no op `no_such_op`"),
        (lambda module, x: module.add("matmul", x, x), "does not take these operands"),
    ]:
        weft_nn.register_onnx("acme", "Wrong", importer)
        with pytest.raises(weft_nn.Error, match=why) as error:
            weft_nn.load(model("Wrong"))
        assert error.value.code == 2
    with pytest.raises(weft_nn.Error, match="Weft imports Relu itself"):
        weft_nn.register_onnx("ai.onnx", "Relu", lambda module, x: x)
    with pytest.raises(weft_nn.Error, match="is no importer"):
        weft_nn.register_onnx("acme", "Wrong", 3)


def test_its_module_is_gone_afterwards():
    kept = []
    weft_nn.register_onnx("acme", "Kept", lambda module, x: kept.append((module, x)) or x)
    np.testing.assert_allclose(weft_nn.compile(model("Kept")).run({"x": X})["y"], -np.exp(X), rtol=1e-5)
    with pytest.raises(weft_nn.Error):
        kept[0][0].nodes


def test_an_operator_may_become_a_host_function():
    """An operator that is imported as a call of a host function."""
    weft_nn.register_onnx(
        "acme", "Host", lambda module, x: module.add("call_host", x, callee="mine", dtypes=[np.float32], shapes=[x.shape])
    )
    session = weft_nn.compile(model("Host"), host_functions={"mine": lambda x: x + 1})
    np.testing.assert_allclose(session.run({"x": X})["y"], -(np.exp(X) + 1), rtol=1e-5)
