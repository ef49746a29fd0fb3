"""The classes of onnxruntime."""

import subprocess
import sys
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
    with pytest.raises(weft_nn.Error, match="Invalid output name:q"):
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
    [port] = session.get_inputs()
    assert (port.name, port.type, len(port.shape)) == ("x", "tensor(float)", 2)
    assert [o.name for o in session.get_outputs()] == ["z"]


HEAD = '<ir_version: 8, opset_import: ["" : 17, "acme" : 1]> main '
RELU = HEAD + "(float[n,3] x) => (float[n,3] y) { y = Relu(x) }"


def opened(text, *options, **words):
    return ort.InferenceSession(onnx.parser.parse_model(text).SerializeToString(), *options, **words)


X = np.ones((2, 3), np.float32)


@pytest.mark.parametrize(
    "feed, names, kind, said",
    [
        ({}, None, ValueError, "Required inputs (['x']) are missing from input feed ([])."),
        ({"x": X, "q": X}, None, "InvalidArgument", "Invalid input name: q"),
        ({"x": X.astype(np.float64)}, None, "InvalidArgument", "Actual: (tensor(double)) , expected: (tensor(float))"),
        ({"x": X[0]}, None, "InvalidArgument", "Invalid rank for input: x Got: 1 Expected: 2"),
        ({"x": X[:, :2]}, None, "InvalidArgument", "index: 1 Got: 2 Expected: 3"),
        ({"x": X}, ["q"], "InvalidArgument", "[ONNXRuntimeError] : 2 : INVALID_ARGUMENT : Invalid output name:q"),
        ({"x": "a"}, None, RuntimeError, "Input must be a list of dictionaries or a single numpy array for input 'x'."),
    ],
)
def test_exceptions_of_runs(feed, names, kind, said):
    from weft_nn.ort.capi import onnxruntime_pybind11_state as state

    with pytest.raises(getattr(state, kind) if isinstance(kind, str) else kind) as error:
        opened(RELU).run(names, feed)
    assert said in str(error.value) and isinstance(error.value, weft_nn.Error)


def test_exceptions_of_files(tmp_path):
    from weft_nn.ort.capi._pybind_state import InvalidArgument, InvalidProtobuf, NoSuchFile, NotImplemented

    unknown = onnx.parser.parse_model(HEAD + "(float[n,3] x) => (float[n,3] y) { y = acme.Foo(x) }")
    cases = [
        (str(tmp_path / "none.onnx"), NoSuchFile), (b"abcdefgh", InvalidProtobuf), (b"", InvalidArgument),
        (None, TypeError), (unknown.SerializeToString(), NotImplemented),
    ]
    for source, kind in cases:
        with pytest.raises(kind) as error:
            ort.InferenceSession(source)
        assert isinstance(error.value, weft_nn.Error)


def test_options():
    options = ort.SessionOptions()
    with pytest.raises(AttributeError, match="no attribute 'intra_op_threads'"):
        options.intra_op_threads = 1
    with pytest.raises(TypeError):
        options.intra_op_num_threads = "x"
    with pytest.raises(RuntimeError, match="configuration with key: none"):
        options.get_session_config_entry("none")
    options.add_free_dimension_override_by_name("n", 5)
    options.intra_op_num_threads = 1
    session = opened(RELU, options, providers=[("WeftExecutionProvider", {"device": "cpu"})])
    assert [p.shape for p in session.get_inputs() + session.get_outputs()] == [[5, 3], [5, 3]]
    assert "1 thread)" in session._ready.session.device
    with pytest.raises(weft_nn.Error, match="index: 0 Got: 2 Expected: 5"):
        session.run(None, {"x": X})
    assert session.get_provider_options() == {"WeftExecutionProvider": {"device": "cpu"}, "CPUExecutionProvider": {}}
    run = ort.RunOptions()
    run.add_run_config_entry("a", "b")
    assert run.get_run_config_entry("a") == "b"
    run.terminate = True
    with pytest.raises(weft_nn.Error, match="terminate flag"):
        session.run(None, {"x": np.ones((5, 3), np.float32)}, run)


def test_profiles(tmp_path):
    import json

    options = ort.SessionOptions()
    options.enable_profiling = True
    options.profile_file_prefix = str(tmp_path / "runs")
    session = opened(RELU, options)
    session.run(None, {"x": X})
    [event] = json.loads(Path(session.end_profiling()).read_text())
    assert event["name"] == "model_run" and event["dur"] > 0
    assert opened(RELU).end_profiling() == ""


def test_ports_are_those_of_the_file():
    model = onnx.parser.parse_model(HEAD + "(float[1,?,8] x, float[2] w) => (float[1,?,8] y, float[2] z) { y = Relu(x) z = Neg(w) }")
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.ones(2, np.float32), "w"))
    model.producer_name, model.domain, model.doc_string, model.model_version = "p", "d", "t", 7
    session = ort.InferenceSession(model.SerializeToString())
    assert [(i.name, i.shape) for i in session.get_inputs()] == [("x", [1, None, 8])]
    assert [(i.name, i.shape) for i in session.get_outputs()] == [("y", [1, None, 8]), ("z", [2])]
    assert [i.name for i in session.get_overridable_initializers()] == ["w"]
    meta = session.get_modelmeta()
    found = (meta.producer_name, meta.domain, meta.description, meta.version, meta.graph_name, meta.custom_metadata_map)
    assert found == ("p", "d", "t", 7, "main", {})


def test_sequences_and_texts():
    from onnx import TensorProto, helper

    value = helper.make_tensor_value_info
    nodes = [
        helper.make_node("SequenceConstruct", ["x", "z"], ["s"]),
        helper.make_node("Identity", ["label"], ["same"]),
        helper.make_node("Relu", ["x"], ["r"]),
    ]
    ins = [value("x", TensorProto.FLOAT, [2]), value("label", TensorProto.STRING, [2]), value("z", TensorProto.FLOAT, [2])]
    outs = [
        helper.make_tensor_sequence_value_info("s", TensorProto.FLOAT, None), value("same", TensorProto.STRING, [2]),
        value("r", TensorProto.FLOAT, [2]),
    ]
    model = helper.make_model(helper.make_graph(nodes, "g", ins, outs), opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    session = ort.InferenceSession(model.SerializeToString())
    assert [(p.name, p.type) for p in session.get_outputs()] == [
        ("s", "seq(tensor(float))"), ("same", "tensor(string)"), ("r", "tensor(float)")
    ]
    x, z = np.array([2, -1], np.float32), np.array([5, 6], np.float32)
    s, same, r = session.run(None, {"x": x, "z": z, "label": np.array(["a", "b"])})
    assert [a.tolist() for a in s] == [[2, -1], [5, 6]] and same.tolist() == ["a", "b"] and r.tolist() == [2, 0]
    [only] = session.run(["s"], {"x": x, "z": z, "label": ["a", "b"]})
    assert len(only) == 2


def test_values():
    x = X.copy()
    value = ort.OrtValue.ortvalue_from_numpy(x)
    assert (value.shape(), value.data_type(), value.element_type(), value.tensor_size_in_bytes()) == ([2, 3], "tensor(float)", 1, 24)
    assert value.data_ptr() == x.ctypes.data and np.shares_memory(value.numpy(), x)
    assert value.has_value() and value.is_tensor() and not value.is_sparse_tensor() and not value.is_tensor_sequence()
    value.update_inplace(2 * X)
    assert x[0, 0] == 2
    with pytest.raises(weft_nn.Error):
        value.update_inplace(X[0])
    session = opened(RELU)
    [y] = session.run_with_ort_values(["y"], {"x": value})
    np.testing.assert_array_equal(y.numpy(), 2 * X)
    assert ort.OrtValue.ortvalue_from_shape_and_type([2], 7).numpy().dtype == np.int64
    halves = np.ones(3, np.uint16)
    assert ort.OrtValue.ortvalue_from_numpy_with_onnx_type(halves, 10).data_type() == "tensor(float16)"
    assert np.from_dlpack(value).shape == (2, 3)


def test_pointers_are_bound():
    session, y = opened(RELU), np.zeros((2, 3), np.float32)
    x = -X
    binding = session.io_binding()
    binding.bind_input("x", "cpu", 0, np.float32, x.shape, x.ctypes.data)
    binding.bind_output("y", "cpu", 0, np.float32, y.shape, y.ctypes.data)
    x += 4
    session.run_with_iobinding(binding)
    np.testing.assert_array_equal(y, 3 * X)
    [bound] = binding.get_outputs()
    assert bound.data_ptr() == y.ctypes.data
    binding.bind_output("y", "cpu", 0, np.float32, (3, 2), y.ctypes.data)
    with pytest.raises(weft_nn.Error, match="the result is "):
        session.run_with_iobinding(binding)
    with pytest.raises(weft_nn.Error, match="memory of cuda"):
        binding.bind_input("x", "cuda", 0, np.float32, x.shape, 16)


def test_sizes_that_come_again_are_compiled_for():
    session = opened(RELU, providers=[("WeftExecutionProvider", {"device": "cpu"})])
    for rows in [*range(1, 9), 8, 8, 7]:
        x = -np.ones((rows, 3), np.float32)
        assert session.run(None, {"x": x})[0].tolist() == [[0] * 3] * rows
    assert len(session._sized) == 4 and sum(ready is not None for ready in session._sized.values()) == 2


def test_runs_in_the_background():
    import queue

    done = queue.Queue()
    opened(RELU).run_async(None, {"x": -X}, lambda *results: done.put(results), 7)
    results, user, error = done.get(timeout=60)
    assert results[0].tolist() == [[0] * 3] * 2 and (user, error) == (7, "")


def test_it_stands_in_for_the_package():
    """Projects import modules of onnxruntime, too."""
    program = """
import sys
import weft_nn.ort
sys.modules["onnxruntime"] = weft_nn.ort
import onnxruntime
from onnxruntime.capi import _pybind_state as C
from onnxruntime.capi.onnxruntime_pybind11_state import NoSuchFile
assert C.get_available_providers() == onnxruntime.get_available_providers()
try:
    onnxruntime.InferenceSession("/no/such/file.onnx", providers=["CPUExecutionProvider"])
except NoSuchFile as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0 and "NO_SUCHFILE" in done.stdout, done.stderr


def test_sizes_beyond_those_that_are_declared():
    """One compilation is for sizes from 1 to 65536; others are compiled for alone. Audio has more samples."""
    session = opened(HEAD + "(float[n] x) => (float[n] y) { y = Neg(x) }")
    for size in (70000, 0, 3):
        x = np.arange(size, dtype=np.float32)
        np.testing.assert_array_equal(session.run(None, {"x": x})[0], -x)


# Names of onnxruntime 1.32 that are for libraries of providers, adapters, compiled models and sparse tensors, and imports of its own.
NOT_HERE = """
AdapterFormat LoraAdapter ModelCompiler ModelPackage ModelPackageComponentContext ModelPackageContext ModelPackageOptions
ModelPackageWriteMode OrtCompileApiFlags OrtDeviceVendorId OrtEpAssignedNode OrtEpAssignedSubgraph OrtEpContextData
OrtEpContextDataBuffer OrtEpDevice OrtExecutionProviderDevicePolicy OrtExternalInitializerInfo OrtHardwareDevice
OrtHardwareDeviceType OrtMemoryInfoDeviceType OrtSparseFormat OrtSyncStream SparseTensor contextlib import_capi_exception
onnxruntime_validation unregister_execution_provider_library capi
InferenceSession.create_ortvalue_from_shape_and_type InferenceSession.get_input_epdevices
InferenceSession.get_provider_graph_assignment_info InferenceSession.release_captured_graph
InferenceSession.set_ep_dynamic_options InferenceSession.set_tuning_results
OrtValue.as_sparse_tensor OrtValue.ort_value_from_sparse_tensor SessionOptions.add_external_initializers
SessionOptions.add_external_initializers_from_files_in_memory SessionOptions.add_initializer
SessionOptions.add_provider_for_devices SessionOptions.clear_ep_context_data_read_func
SessionOptions.set_ep_context_data_read_func SessionOptions.set_load_cancellation_flag
SessionOptions.set_provider_selection_policy SessionOptions.set_provider_selection_policy_delegate RunOptions.add_active_adapter
""".split()


def test_the_names_of_onnxruntime():
    original = pytest.importorskip("onnxruntime")
    made = {c: getattr(ort, c)() for c in ("SessionOptions", "RunOptions")}
    missing = {name for name in dir(original) if not name.startswith("_") and not hasattr(ort, name)}
    for owner in ("InferenceSession", "SessionOptions", "RunOptions", "OrtValue", "IOBinding", "OrtDevice", "OrtMemoryInfo"):
        names = [n for n in dir(getattr(original, owner)) if not n.startswith("_") and hasattr(ort, owner)]
        ours = made.get(owner, getattr(ort, owner))
        known = set(dir(ours)) | ({"name", "allocator_type", "device_id", "mem_type", "device_mem_type", "device_vendor_id", "create_v2"})
        missing |= {f"{owner}.{n}" for n in names if n not in known}
    assert missing <= set(NOT_HERE), missing - set(NOT_HERE)


def test_devices_and_memory():
    device = ort.OrtDevice.make("cuda", 1)
    assert (device.device_type(), device.device_id(), device.device_vendor_id()) == (ort.OrtDevice.cuda(), 1, 0)
    assert ort.OrtDevice(ort.OrtDevice.cpu(), ort.OrtDevice.default_memory(), 2).device_id() == 2
    with pytest.raises(Exception, match="Unsupported device type: abacus"):
        ort.OrtDevice.make("abacus", 0)
    info = ort.OrtMemoryInfo("Cpu", ort.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, ort.OrtMemType.DEFAULT)
    ort.create_and_register_allocator(info, ort.OrtArenaCfg({"max_mem": 1 << 20}))
    with pytest.raises(Exception, match="Invalid OrtArenaCfg option: size"):
        ort.OrtArenaCfg({"size": 1})
    a, b = (ort.OrtValue.ortvalue_from_numpy(np.full(3, x, np.float32)) for x in (1, 2))
    ort.copy_tensors([a], [b])
    assert b.numpy().tolist() == [1, 1, 1]


def test_providers_of_the_options():
    options = ort.SessionOptions()
    assert not options.has_providers()
    options.add_provider("WeftExecutionProvider", {"device": "cpu"})
    session = opened(HEAD + "(float[2] x) => (float[2] y) { y = Neg(x) }", options)
    assert options.has_providers() and session.get_provider_options()["WeftExecutionProvider"] == {"device": "cpu"}
    fetches = []
    x = ort.OrtValue.ortvalue_from_numpy(np.ones(2, np.float32))
    session.run_with_ortvaluevector(None, ["x"], [x], ["y"], fetches, [])
    assert fetches[0].numpy().tolist() == [-1, -1]
    assert [m.name for m in session.get_input_memory_infos()] == ["Cpu"] == [m.name for m in session.get_output_memory_infos()]
