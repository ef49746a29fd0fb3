"""External targets in Python."""

import threading

import numpy as np
import pytest

from conftest import DEVICES

import weft_nn

TEXT = """
const @w : f32[2,2,1,1] = [1.0, -1.0, 0.5, 2.0]
graph @main(%x: f32[1,2,1,2]) -> (y: f32[1,2,1,2]) {
  %w = const @w
  %0 = conv %x, %w : f32[1,2,1,2]
  %1 = relu %0 : f32[1,2,1,2]
  %2 = exp %1 : f32[1,2,1,2]
  %y = add %2, %1 : f32[1,2,1,2]
  return %y
}
"""
X = np.array([1, -2, 0.5, 3], np.float32).reshape(1, 2, 1, 2)
W = np.array([1, -1, 0.5, 2], np.float32).reshape(2, 2)


def wanted(factor=1):
    z = np.maximum(np.einsum("oi,nihw->nohw", W, X), 0) * np.float32(factor)
    return np.exp(z) + z


@weft_nn.register_target
class Accelerator(weft_nn.ExternalTarget):
    """Runs 1x1 convolutions with a relu, and writes down what it is asked."""

    name = "accelerator"
    options = {"scale": "a factor of every result"}
    patterns = [("conv_relu", "relu(conv(..))", lambda nodes: nodes[1].attributes["group"] == 1)]

    def __init__(self):
        self.asked, self.prepared, self.runs = [], [], 0

    def supports(self, node, options):
        self.asked.append((node.op, node.inputs[0].dtype, node.inputs[0].shape))
        return "it has no exp" if node.op == "exp" else False

    def prepare(self, region, options):
        [composite] = region.nodes
        conv, relu = composite.body
        weights = conv.inputs[1].constant
        group = conv.all_attributes["group"]
        self.prepared.append((composite.attributes["name"], [v.shape for v in region.inputs], group, region.macs))
        scale = np.float32(options.get("scale", 1))

        def run(x):
            assert not x.flags.writeable
            self.runs += 1
            return np.maximum(np.einsum("oi,nihw->nohw", weights[:, :, 0, 0], x), 0) * scale

        return run


@pytest.fixture
def target():
    """A new target in the place of the last test's."""
    made = Accelerator()
    weft_nn.register_target(made)
    return made


@pytest.mark.parametrize("device", DEVICES)
def test_a_region_runs_in_the_target(device, target):
    session = weft_nn.compile(weft_nn.Model.from_text(TEXT), device=device, external=["accelerator"])
    for _ in range(3):
        np.testing.assert_allclose(session.run({"x": X})["y"], wanted(), rtol=1e-5)
    if device == "interpreter":
        # It runs the model itself: no target is asked.
        assert target.asked == [] and target.runs == 0
    else:
        assert ("exp", "float32", [1, 2, 1, 2]) in target.asked and target.runs == 3
        assert target.prepared == [("accelerator.conv_relu", [[1, 2, 1, 2]], 1, 8)]


def test_options_reach_it_and_comparisons_notice_them(target):
    session = weft_nn.compile(weft_nn.Model.from_text(TEXT), device="cpu", external=["accelerator:scale=3"])
    np.testing.assert_allclose(session.run({"x": X})["y"], wanted(3), rtol=1e-5)
    assert not session.compare({"x": X}, "reference")["pass"]
    assert weft_nn.compile(weft_nn.Model.from_text(TEXT), device="cpu", external=["accelerator"]).compare({"x": X}, "reference")["pass"]


def test_reasons_are_explained(target):
    session = weft_nn.compile(weft_nn.Model.from_text(TEXT), device="cpu", external=["accelerator"])
    remarks = str(session.trace().to_dict()["remarks"])
    assert "accelerator: it has no exp" in remarks and "accelerator: no add" in remarks
    assert "accelerator.conv_relu" in remarks


def test_a_check_refuses_a_match():
    class Picky(Accelerator):
        name = "picky"
        patterns = [("conv_relu", "relu(conv(..))", lambda nodes: "too many channels")]

    weft_nn.register_target(Picky)
    session = weft_nn.compile(weft_nn.Model.from_text(TEXT), device="cpu", external=["picky"])
    assert "is not picky.conv_relu: too many channels" in str(session.trace().to_dict()["remarks"])
    np.testing.assert_allclose(session.run({"x": X})["y"], wanted(), rtol=1e-5)


def test_the_first_of_several_targets_takes_a_node(target):
    taken = []

    class Second(weft_nn.ExternalTarget):
        name = "second"

        def supports(self, node, options):
            return node.op in ("exp", "conv")

        def prepare(self, region, options):
            taken.extend(node.op for node in region.nodes)
            return region.run

    weft_nn.register_target(Second())
    for order, runs in [(["accelerator", "second"], 1), (["second", "accelerator"], 1)]:
        taken.clear()
        target.runs = 0
        session = weft_nn.compile(weft_nn.Model.from_text(TEXT), device="cpu", external=order)
        np.testing.assert_allclose(session.run({"x": X})["y"], wanted(), rtol=1e-5)
        assert (taken, target.runs) == (["exp"], runs)


def test_an_estimate_leaves_a_region_with_weft():
    for estimate, prepared in [(1e12, 0), (1.0, 1)]:

        class Priced(Accelerator):
            name = "priced"

            def estimate(self, region, options):
                assert region.macs == 8
                return estimate

        target = Priced()
        weft_nn.register_target(target)
        weft_nn.compile(weft_nn.Model.from_text(TEXT), device="cpu", external=["priced"]).run({"x": X})
        if estimate > 1:
            assert target.prepared == []


OPEN = """
graph @main(%x: f32[n,3]) -> (y: f32[n,3]) {
  %y = exp %x : f32[n,3]
  return %y
}
"""


def test_each_list_of_sizes_is_prepared_once():
    sizes = []

    class Sized(weft_nn.ExternalTarget):
        name = "sized"

        def supports(self, node, options):
            assert node.inputs[0].shape in (["n", 3], [2, 3])
            return node.op == "exp"

        def prepare(self, region, options):
            sizes.append(region.inputs[0].shape)
            return np.exp

    weft_nn.register_target(Sized)
    model = weft_nn.load(weft_nn.Model.from_text(OPEN), dims={"n": (1, 8)})
    session = weft_nn.compile(model, device="cpu", external=["sized"])
    for n in [2, 5, 2, 5]:
        x = np.ones((n, 3), np.float32)
        np.testing.assert_allclose(session.run({"x": x})["y"], np.exp(x), rtol=1e-6)
    assert sizes == [[2, 3], [5, 3]]


class Mine(Exception):
    pass


def raising(method):
    def fail(self, *_):
        raise Mine(method)

    return type("Raising", (Accelerator,), {"name": "raising", method: fail})


@pytest.mark.parametrize("method", ["check", "supports", "estimate"])
def test_what_it_raises_ends_the_compilation(method):
    weft_nn.register_target(raising(method))
    with pytest.raises(Mine, match=method):
        weft_nn.compile(weft_nn.Model.from_text(TEXT), device="cpu", external=["raising"])


def test_what_a_check_of_a_match_raises_ends_the_compilation():
    class Checked(Accelerator):
        name = "raising"
        patterns = [("conv", "relu(conv(..))", lambda nodes: 1 / 0)]

    weft_nn.register_target(Checked)
    with pytest.raises(ZeroDivisionError):
        weft_nn.compile(weft_nn.Model.from_text(TEXT), device="cpu", external=["raising"])


@pytest.mark.parametrize("device", [d for d in DEVICES if d != "interpreter"])
def test_what_prepare_and_a_run_raise_is_raised(device):
    weft_nn.register_target(raising("prepare"))
    session = weft_nn.compile(weft_nn.Model.from_text(TEXT), device=device, external=["raising"])
    for _ in range(2):
        with pytest.raises(Mine, match="prepare"):
            session.run({"x": X})

    def run(x):
        raise Mine("run")

    weft_nn.register_target(type("Raising", (Accelerator,), {"name": "raising", "prepare": lambda *_: run}))
    with pytest.raises(Mine, match="run") as error:
        weft_nn.compile(weft_nn.Model.from_text(TEXT), device=device, external=["raising"]).run({"x": X})
    assert error.traceback[-1].name == "run"


@pytest.mark.parametrize(
    "result, why",
    [
        (lambda x: x[0], "its result 0 is float32"),
        (lambda x: x.astype(np.float64), "its result 0 is float64"),
        (lambda x: [x, x], "it returned 2 results, the region has 1"),
    ],
)
def test_results_of_another_type_are_refused(result, why):
    weft_nn.register_target(type("Wrong", (Accelerator,), {"name": "wrong", "prepare": lambda *_: result}))
    with pytest.raises(weft_nn.Error, match=why) as error:
        weft_nn.compile(weft_nn.Model.from_text(TEXT), device="cpu", external=["wrong"]).run({"x": X})
    assert error.value.code != 6 and "`wrong`" in error.value.message


def test_a_prepare_without_a_function_is_refused():
    weft_nn.register_target(type("Wrong", (Accelerator,), {"name": "wrong", "prepare": lambda *_: None}))
    with pytest.raises(weft_nn.Error, match="`prepare` of the target wrong returned None") as error:
        weft_nn.compile(weft_nn.Model.from_text(TEXT), device="cpu", external=["wrong"]).run({"x": X})
    assert error.value.code == 2


def test_wrong_registrations_and_names_are_refused():
    named = lambda **parts: type("Named", (weft_nn.ExternalTarget,), parts)
    for parts, why in [
        ({"name": "interpreter"}, "there is an external target `interpreter`"),
        ({"name": "a b"}, "'a b'|\"a b\""),
        ({"name": "p", "patterns": [("x", "relu(")]}, "the pattern"),
        ({"name": "p", "patterns": ["relu(..)"]}, "is no row of patterns"),
        ({"name": "p", "options": {"a=b": ""}}, "a=b"),
    ]:
        with pytest.raises(weft_nn.Error, match=why) as error:
            weft_nn.register_target(named(**parts))
        assert error.value.code == 2
    for external, why in [("acceler", "there is no external target `acceler`"), ("accelerator:x=1", "has no option `x`")]:
        with pytest.raises(weft_nn.Error, match=why) as error:
            weft_nn.compile(weft_nn.Model.from_text(TEXT), external=[external])
        assert error.value.code == 2


def test_threads_run_it_at_once(target):
    session = weft_nn.compile(weft_nn.Model.from_text(TEXT), device="cpu", external=["accelerator"], runs_in_flight=2)
    wrong = []

    def work():
        for _ in range(10):
            if not np.allclose(session.run({"x": X})["y"], wanted(), rtol=1e-5):
                wrong.append(1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert not wrong and target.runs == 40 and len(target.prepared) == 1


def test_the_cache_holds_no_plan_of_it(target, tmp_path):
    for _ in range(2):
        target.asked.clear()
        weft_nn.compile(weft_nn.Model.from_text(TEXT), device="cpu", external=["accelerator"], cache=tmp_path)
        assert target.asked
