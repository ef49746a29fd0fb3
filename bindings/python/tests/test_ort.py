"""The classes of onnxruntime."""

from pathlib import Path

import numpy as np
import pytest

from conftest import DEVICES

import weft_nn
import weft_nn.ort as ort

onnx = pytest.importorskip("onnx")
import onnx.parser  # noqa: E402


@pytest.fixture
def path(tmp_path):
    """y = max(x + b, 0) and s, the shape of x, for rows of any number."""
    model = onnx.parser.parse_model(
        """
        <ir_version: 8, opset_import: ["" : 17]>
        main (float[n,3] x) => (float[n,3] y, float[n,3] z)
        <float[3] b = {1, -2, 3}>
        {
            a = Add(x, b)
            y = Relu(a)
            z = Neg(a)
        }
        """
    )
    onnx.helper.set_model_props(model, {"character": "a\nb"})
    place = tmp_path / "model.onnx"
    onnx.save(model, place)
    return str(place)


def test_a_session_as_scripts_use_it(path):
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.add_session_config_entry("session.x", "1")
    session = ort.InferenceSession(path, options, providers=["CUDAExecutionProvider", "CPUExecutionProvider"])
    [x] = session.get_inputs()
    assert (x.name, x.type, x.shape) == ("x", "tensor(float)", ["n", 3])
    assert [o.name for o in session.get_outputs()] == ["y", "z"]
    for rows in [1, 4, 4, 9]:
        given = np.random.default_rng(rows).standard_normal((rows, 3)).astype(np.float32)
        y, z = session.run(None, {"x": given})
        a = given + np.array([1, -2, 3], np.float32)
        np.testing.assert_allclose(y, np.maximum(a, 0), rtol=1e-6)
        np.testing.assert_allclose(z, -a, rtol=1e-6)
        [only] = session.run(["z"], {"x": given})
        np.testing.assert_array_equal(only, z)
        [of_lists] = session.run(["z"], {"x": given.tolist()})
        np.testing.assert_array_equal(of_lists, z)
    with pytest.raises(weft_nn.Error, match="`q`"):
        session.run(["q"], {"x": given})
    assert session.get_modelmeta().custom_metadata_map == {"character": "a\nb"}
    assert session.get_session_options() is options and "WeftExecutionProvider" in session.get_providers()


def test_options_of_the_provider(path):
    with open(path, "rb") as file:
        session = ort.InferenceSession(
            file.read(), providers=[("WeftExecutionProvider", {"device": "cpu", "fuse": "off"})]
        )
    assert session.run(None, {"x": np.zeros((1, 3), np.float32)})[0].tolist() == [[1, 0, 3]]
    with pytest.raises(weft_nn.Error):
        ort.InferenceSession(path, providers=["WeftExecutionProvider"], provider_options=[{"device": "no such"}])


def test_bindings(path):
    session = ort.InferenceSession(path, providers=[("WeftExecutionProvider", {"device": "cpu"})])
    binding = session.io_binding()
    x = np.ones((2, 3), np.float32)
    binding.bind_cpu_input("x", x)
    binding.bind_output("y")
    room = ort.OrtValue.ortvalue_from_shape_and_type([2, 3], np.float32)
    binding.bind_ortvalue_output("z", room)
    session.run_with_iobinding(binding)
    y, z = binding.copy_outputs_to_cpu()
    assert y.tolist() == [[2, 0, 4]] * 2 and z.tolist() == [[-2, 1, -4]] * 2
    assert room.numpy() is z and room.data_type() == "tensor(float)" and room.shape() == [2, 3]


@pytest.mark.parametrize("device", DEVICES)
def test_bindings_keep_values_on_the_device(path, device):
    session = ort.InferenceSession(path, providers=[("WeftExecutionProvider", {"device": device})])
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    bias = np.array([1, -2, 3], np.float32)
    binding = session.io_binding()
    value = ort.OrtValue.ortvalue_from_numpy(x, "cuda", 0)
    binding.bind_output("z")
    binding.bind_output("y", "cuda")
    for _ in range(3):
        binding.bind_ortvalue_input("x", value)
        session.run_with_iobinding(binding)
        z, value = binding.get_outputs()
        assert (value.device_name(), value.shape(), value.data_type()) == ("cuda", [2, 3], "tensor(float)")
        np.testing.assert_array_equal(z.numpy(), -(x + bias))
        x = np.maximum(x + bias, 0)
    np.testing.assert_array_equal(value.numpy(), x)
    room = ort.OrtValue.ortvalue_from_shape_and_type([2, 3], np.float32, "cuda")
    binding.bind_ortvalue_input("x", value)
    binding.bind_ortvalue_output("y", room)
    session.run_with_iobinding(binding)
    assert room.is_tensor() and binding.get_outputs()[1] is room
    np.testing.assert_array_equal(session.run(["y"], {"x": value})[0], room.numpy())


def test_a_model_that_needs_sizes_is_compiled_for_those_of_each_run():
    import onnx.reference

    path = Path(__file__).parents[3] / "cli" / "tests" / "transcripts" / "if_of_sizes.onnx"
    session = ort.InferenceSession(path, providers=[("WeftExecutionProvider", {"device": "cpu"})])
    reference = onnx.reference.ReferenceEvaluator(str(path))
    for steps in [1, 3, 1]:
        x = np.random.default_rng(steps).standard_normal((2, steps)).astype(np.float32)
        [z] = session.run(None, {"x": x})
        np.testing.assert_array_equal(z, reference.run(None, {"x": x})[0])
    with pytest.raises(weft_nn.Error) as error:
        session.get_inputs()
    assert error.value.code == 4
