"""Bundles in Python."""

import shutil
import subprocess
import warnings

import numpy as np
import pytest

from conftest import DEVICES, SMALL

import weft_nn
import weft_nn_command

X = np.random.default_rng(1).standard_normal((2, 3), np.float32)
W = np.random.default_rng(2).standard_normal((3, 2), np.float32)
INPUTS = {"x": X, "w": W}


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    """A bundle of SMALL for the processor and for a profile that no device here has."""
    folder = tmp_path_factory.mktemp("bundle")
    (folder / "small.weft").write_text(SMALL)
    words = ["compile", folder / "small.weft", "-o", folder / "small.bundle", "--for", "cpu,ada"]
    subprocess.run([*weft_nn_command.words(), *map(str, words)], check=True, capture_output=True)
    return folder / "small.bundle"


def test_a_bundle_runs_where_it_was_compiled_for(bundle):
    model = weft_nn.load(bundle)
    assert [p.name for p in model.inputs] == ["x", "w"] and [p.name for p in model.outputs] == ["y"]
    for source in [model, bundle, bundle.read_bytes()]:
        session = weft_nn.compile(source, device="cpu", require_compiled=True)
        np.testing.assert_allclose(session.run(INPUTS)["y"], np.maximum(X @ W, 0), rtol=1e-5)
    assert session.compare(INPUTS, "reference")["pass"]
    assert len(session.kernels) == 1 and "matmul" in session.trace().explain()


def test_elsewhere_it_is_compiled_with_a_warning(bundle):
    device = next((d for d in DEVICES if d not in ("cpu", "interpreter")), None)
    if device is None:
        pytest.skip("no driver")
    with pytest.warns(UserWarning, match="no plan suits"):
        session = weft_nn.compile(bundle, device=device)
    np.testing.assert_allclose(session.run(INPUTS)["y"], np.maximum(X @ W, 0), rtol=1e-5)
    with pytest.raises(weft_nn.Error, match="no plan suits") as error:
        weft_nn.compile(bundle, device=device, require_compiled=True)
    assert error.value.code == 5


def test_the_interpreter_runs_it(bundle):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        session = weft_nn.compile(bundle, device="interpreter")
    np.testing.assert_allclose(session.run(INPUTS)["y"], np.maximum(X @ W, 0), rtol=1e-5)


def test_what_does_not_apply_is_refused(bundle):
    for option in [{"amp": "fp16"}, {"target": "ada"}, {"passes": [print]}, {"external": ["interpreter"]}]:
        with pytest.raises(weft_nn.Error, match="does not apply to a bundle") as error:
            weft_nn.compile(bundle, device="cpu", **option)
        assert error.value.code == 2
    for load in [lambda: weft_nn.load(bundle, batch=2), lambda: weft_nn.compile(weft_nn.load(bundle), batch=2)]:
        with pytest.raises(weft_nn.Error, match="sizes already") as error:
            load()
        assert error.value.code == 2
    with pytest.raises(weft_nn.Error, match="kernels already"):
        weft_nn.compile(bundle, device="cpu").with_schedules({})
    model = weft_nn.Model.from_text(SMALL)
    for option, of in [("allow_native", "is for texts and bundles"), ("require_compiled", "is for bundles")]:
        with pytest.raises(weft_nn.Error, match=of) as error:
            weft_nn.compile(model, **{option: True})
        assert error.value.code == 2


def test_a_damaged_bundle_is_refused(bundle):
    data = bytearray(bundle.read_bytes())
    data[-40] ^= 1
    with pytest.raises(weft_nn.Error, match="damaged") as error:
        weft_nn.load(bytes(data))
    assert error.value.code == 3


@pytest.fixture(scope="module")
def native(tmp_path_factory):
    """A bundle whose network calls the external target `c`, which compiles C."""
    folder = tmp_path_factory.mktemp("native")
    (folder / "small.weft").write_text(SMALL)
    words = ["compile", folder / "small.weft", "-o", folder / "small.bundle", "--device", "cpu", "--external", "c:min_macs=0"]
    done = subprocess.run([*weft_nn_command.words(), *map(str, words)], capture_output=True, text=True)
    if done.returncode == 5:
        pytest.skip(done.stderr)
    assert done.returncode == 0, done.stderr
    return folder / "small.bundle"


def test_code_of_the_machine_has_to_be_allowed(native):
    with pytest.raises(weft_nn.Error, match="`c`|\\bc\\b") as error:
        weft_nn.compile(native, device="cpu")
    assert error.value.code == 2 and "allow_native=" in error.value.help


@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")
def test_allowed_code_runs(native):
    for session in [
        weft_nn.compile(native, device="cpu", allow_native=True),
        weft_nn.compile(weft_nn.load(native, allow_native=True), device="cpu", require_compiled=True),
    ]:
        np.testing.assert_allclose(session.run(INPUTS)["y"], np.maximum(X @ W, 0), rtol=1e-5)
