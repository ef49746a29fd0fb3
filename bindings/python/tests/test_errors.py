"""Errors have a code, a place and help."""

import numpy as np
import pytest

import weft_nn


def failing(call, code):
    with pytest.raises(weft_nn.Error) as raised:
        call()
    error = raised.value
    assert error.code == code, error
    assert error.message and error.message in str(error)
    return error


def test_files(tmp_path):
    assert "missing.onnx" in failing(lambda: weft_nn.load("missing.onnx"), 3).message
    assert failing(lambda: weft_nn.load(b"no model"), 3)
    junk = tmp_path / "junk.onnx"
    junk.write_bytes(b"\x00\x01junk")
    assert str(junk) in str(failing(lambda: weft_nn.load(junk), 3))
    assert failing(lambda: weft_nn.load(3), 2).message == "a model cannot be loaded from int"


def test_texts():
    error = failing(lambda: weft_nn.Model.from_text("graph @main(%x: f32[2]) -> (y: f32[2]) {\n  %y = no_op %x\n}"), 3)
    assert "no_op" in str(error)


def test_operators_that_are_not_there():
    onnx = pytest.importorskip("onnx")
    h = onnx.helper
    value = h.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1])
    node = h.make_node("NoSuchOperator", ["x"], ["y"], name="first")
    graph = h.make_graph([node], "g", [value], [h.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [1])])
    error = failing(lambda: weft_nn.load(h.make_model(graph)), 4)
    assert "NoSuchOperator" in error.message and error.help


def test_inputs(small):
    model, inputs, _ = small
    session = weft_nn.compile(model)
    error = failing(lambda: session.run({"x": inputs["x"]}), 3)
    assert "`w`" in error.message
    error = failing(lambda: session.run({**inputs, "v": inputs["w"]}), 3)
    assert "`v`" in error.message and "x, w" in error.message
    error = failing(lambda: session.run({**inputs, "x": inputs["x"].astype(np.float64)}), 3)
    assert "float64" in error.message and "`x`" in error.place and 'astype("float32")' in error.help
    error = failing(lambda: session.run({**inputs, "x": inputs["x"][:1]}), 3)
    assert "[1, 3]" in error.message and "f32[2,3]" in error.place
    error = failing(lambda: session.run({**inputs, "x": np.array([["a"]])}), 3)
    assert "array `x`" in error.place and error.help


def test_options(small):
    model = small[0]
    assert "fp16" in failing(lambda: weft_nn.compile(model, amp="fp17"), 2).help
    assert "nhwc" in failing(lambda: weft_nn.compile(model, layout="nhcw"), 2).help
    assert "classic" in failing(lambda: weft_nn.compile(model, fuse="some"), 2).help
    failing(lambda: weft_nn.compile(model, opt_level=4), 2)
    assert "ada" in failing(lambda: weft_nn.compile(model, target="no such profile"), 5).message
    error = failing(lambda: weft_nn.compile(model, device="no such device"), 5)
    assert "weft devices" in error.help and "device=" in error.help
    with pytest.raises(TypeError):
        weft_nn.compile(model, amq="fp16")
    with pytest.raises(TypeError, match="seed"):
        weft_nn.compile(model, seed=3)


def test_open_sizes_are_named_as_python_writes_them(tmp_path):
    path = tmp_path / "open.weft"
    path.write_text("graph @main(%x: f32[1,h,w]) -> (y: f32[1,h,w]) {\n  %y = relu %x : f32[1,h,w]\n  return %y\n}\n")
    error = failing(lambda: weft_nn.compile(path), 2)
    assert 'dims={"h": 640, "w": 640}' in error.help and "x f32[1,h,w]" in error.place
    assert 'dims={"h": "A..B"}' in error.help
    assert "range" in failing(lambda: weft_nn.compile(path, dims={"h": "4..2", "w": 3}), 2).message
    assert "size" in failing(lambda: weft_nn.compile(path, dims={"h": "many", "w": 3}), 2).message


NATIVE = """graph @main(%x: f32[2,2]) -> (y: f32[2,2]) {
  %y = call_host @c_0 %x {dtypes=[f32], shapes=[[2,2]], reference=c_0, target=TARGET, options=""} : f32[2,2]
  return %y
}
graph @c_0(%x: f32[2,2]) -> (y: f32[2,2]) primitive {
  %2 = matmul %x, %x : f32[2,2]
  return %2
}
"""


def test_texts_run_code_of_the_machine_only_where_that_is_allowed(tmp_path):
    """A target that nobody has registered counts as code of the machine."""
    text = NATIVE.replace("TARGET", "unknown_target")
    file = tmp_path / "native.weft"
    file.write_text(text)
    for call in [
        lambda: weft_nn.Model.from_text(text),
        lambda: weft_nn.load(file),
        lambda: weft_nn.compile(file, device="cpu"),
    ]:
        assert "unknown_target" in failing(call, 2).message
    assert weft_nn.Model.from_text(text, allow_native=True).inputs[0].name == "x"
    assert weft_nn.load(file, allow_native=True).outputs[0].name == "y"
    plain = NATIVE.replace("TARGET", "interpreter")
    session = weft_nn.compile(weft_nn.Model.from_text(plain), device="cpu")
    x = np.eye(2, dtype=np.float32)
    np.testing.assert_array_equal(session.run({"x": x})["y"], x)
    assert "allow_native" in failing(lambda: weft_nn.load(weft_nn.Model.from_text(plain), allow_native=True), 2).message
