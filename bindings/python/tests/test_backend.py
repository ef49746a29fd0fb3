"""ONNX's own runner of backend tests, held against the list of cases in docs/conformance.txt."""

import os
import re
import unittest
from pathlib import Path

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
import onnx.backend.test  # noqa: E402
from onnx.backend.test.loader import load_model_tests  # noqa: E402

import weft_nn.backend as backend  # noqa: E402

LIST = Path(__file__).parents[3] / "docs" / "conformance.txt"

_T = onnx.TensorProto
TYPES = [_T.BOOL, _T.UINT8, _T.INT8, _T.UINT16, _T.INT16, _T.UINT32, _T.INT32, _T.UINT64, _T.INT64]
TYPES += [_T.FLOAT16, _T.FLOAT, _T.DOUBLE]

# Every so many cases, unless WEFT_ALL_CASES asks for all of them.
STEP = 1 if os.environ.get("WEFT_ALL_CASES") else 12


def listed(ends):
    """The cases that end in one of these ways on the CPU by the list, as they stand or with constants."""
    lines = [line.split() for line in LIST.read_text().splitlines() if not line.startswith("#")]
    return {name for name, *_, cpu in lines if cpu.split("/")[-1] in ends}


def is_of_arrays(case):
    """True for a case whose inputs and results are tensors of types that Weft has: numpy alone does not tell the type of
    a narrower one, and sequences and optionals have no place in an array."""
    model = case.model or onnx.load(Path(case.model_dir) / "model.onnx")
    kinds = [value.type for value in [*model.graph.input, *model.graph.output]]
    return all(k.WhichOneof("value") == "tensor_type" and k.tensor_type.elem_type in TYPES for k in kinds)


class Runner(onnx.backend.test.BackendTest):
    """The runner with Weft's tolerance, which its list of cases is made with."""

    @classmethod
    def assert_similar_outputs(cls, ref_outputs, outputs, rtol, atol, model_dir=None):
        assert len(outputs) == len(ref_outputs)
        for want, got in zip(ref_outputs, outputs):
            want, got = np.asarray(want), np.asarray(got)
            assert (got.dtype, got.shape) == (want.dtype, want.shape)
            if want.dtype.kind != "f":
                np.testing.assert_array_equal(got, want)
                continue
            tolerance = 1e-2 if want.dtype == np.float16 else 1e-3
            finite = np.abs(want[np.isfinite(want)])
            np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance * finite.max(initial=0))


def cases():
    """The runner's tests of nodes on the CPU, by name: those that the list has as right, and those without support."""
    tests = Runner(backend, __name__).test_cases["OnnxBackendNodeModelTest"]
    loaded = sorted(load_model_tests(kind="node"), key=lambda case: case.name)
    right, refused = listed(("host", "device", "device+host")), listed(("operator", "type"))
    of = lambda chosen: {case.name: tests(f"{case.name}_cpu") for case in chosen}
    return of(c for c in loaded if c.name in right and is_of_arrays(c)), of(c for c in loaded if c.name in refused)


# The list is of the cases of one version of onnx; other versions have some of them with other values.
LISTED = onnx.__version__ == "1.22.0"
CASES, REFUSED = cases() if LISTED else ({}, {})
of_the_list = pytest.mark.skipif(not LISTED, reason="docs/conformance.txt is made with onnx 1.22.0")


@of_the_list
def test_the_list_was_read():
    assert len(CASES) > 1000 and len(REFUSED) > 50


@of_the_list
@pytest.mark.parametrize("name", list(CASES)[::STEP])
def test_case(name):
    result = unittest.TestResult()
    CASES[name].run(result)
    problems = [text for _, text in result.failures + result.errors]
    assert not problems, problems[0]
    assert result.testsRun == 1 and not result.skipped, result.skipped


@of_the_list
@pytest.mark.parametrize("name", list(REFUSED)[::STEP])
def test_refused_case(name):
    result = unittest.TestResult()
    REFUSED[name].run(result)
    assert not result.failures, result.failures[0][1]
    if not result.skipped:
        [(_, text)] = result.errors
        assert re.search(r"^weft_nn\.\S*Error: ", text, re.MULTILINE), text


def test_nodes_run_by_themselves():
    node = onnx.helper.make_node("Add", ["x", "y"], ["z"])
    x, y = np.ones((2, 3), np.float32), np.arange(3, dtype=np.float32)
    [z] = backend.run_node(node, [x, y])
    np.testing.assert_array_equal(z, x + y)


def test_devices_and_operators():
    assert backend.supports_device("CPU") and backend.supports_device("CUDA")
    node = onnx.helper.make_node("NoSuchOperator", ["x"], ["y"])
    value = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1, 1])
    graph = onnx.helper.make_graph([node], "g", [value], [onnx.helper.make_tensor_value_info("y", 1, [1])])
    model = onnx.helper.make_model(graph)
    assert not backend.is_compatible(model)
