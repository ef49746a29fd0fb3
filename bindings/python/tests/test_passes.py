"""Passes in Python, and the graph that they see."""

import numpy as np
import pytest
from conftest import DEVICES

import weft_nn

SWISH = """
const @k : f32[4,3,1,1] = random(1)
graph @main(%x: f32[1,3,4,4]) -> (y: f32[1,4,4,4]) {
  %k = const @k : f32[4,3,1,1]
  %0 = conv %x, %k : f32[1,4,4,4] !from("Conv_0")
  %1 = sigmoid %0 : f32[1,4,4,4] !from("Sigmoid_1")
  %2 = mul %1, %0 : f32[1,4,4,4] !from("Mul_2")
  %3 = sigmoid %2 : f32[1,4,4,4] !from("Sigmoid_3")
  %y = mul %2, %3 : f32[1,4,4,4] !from("Mul_4")
  return %y
}
"""
X = np.random.default_rng(2).standard_normal((1, 3, 4, 4)).astype(np.float32)


def joined(module):
    """x * sigmoid(x) becomes one op."""
    for match in module.find("mul{x, sigmoid(x)}"):
        match.replace("swish", match["x"])


def test_a_pattern_is_replaced_by_an_op():
    model = weft_nn.Model.from_text(SWISH)
    changed = model.passed(joined)
    assert [n.op for n in changed.module().nodes] == ["conv", "swish", "swish"]
    assert "sigmoid" not in changed.text() and "sigmoid" in model.text()
    [_, first, second] = changed.module().nodes
    assert first.origins == ["Mul_2", "Sigmoid_1"]
    assert second.name == "Mul_4" and [v.node.op for v in second.inputs] == ["swish"]
    for device in DEVICES:
        want = weft_nn.compile(model, device=device).run({"x": X})["y"]
        seen = []
        session = weft_nn.compile(model, device=device, passes=[joined, lambda m: seen.append([n.op for n in m.nodes])])
        np.testing.assert_allclose(session.run({"x": X})["y"], want, rtol=1e-5, atol=1e-6)
        assert seen == [["conv", "swish", "swish"]]


def test_a_pass_runs_at_its_place():
    seen = []

    def note(module):
        seen.append([n.op for n in module.nodes])

    weft_nn.compile(weft_nn.Model.from_text(SWISH), passes=[(note, "fuse-ops"), note], fuse="classic")
    assert seen[0] == ["conv", "sigmoid", "mul", "sigmoid", "mul"] and len(seen) == 2
    with pytest.raises(weft_nn.Error, match="no pass `fuse`") as error:
        weft_nn.compile(weft_nn.Model.from_text(SWISH), passes=[(note, "fuse")])
    assert error.value.code == 2
    with pytest.raises(weft_nn.Error, match="is no pass"):
        weft_nn.compile(weft_nn.Model.from_text(SWISH), passes=["fuse-ops"])


def test_named_passes_run_on_a_model():
    model = weft_nn.Model.from_text(
        "graph @main(%x: f32[4]) -> (y: f32[4]) {\n  %0 = neg %x : f32[4]\n  %1 = exp %x : f32[4]\n  return %1\n}\n"
    )
    assert [n.op for n in model.passed("eliminate-dead").module().nodes] == ["exp"]
    assert "primitive" in model.passed("eliminate-dead, fuse-ops {mode=full}").text()
    for wrong in ["no-such-pass", "eliminate-dead {x=1}", "a b"]:
        with pytest.raises(weft_nn.Error) as error:
            model.passed(wrong)
        assert error.value.code == 2


def test_what_a_pass_raises_is_raised():
    class Mine(Exception):
        pass

    def fails(module):
        raise Mine("no")

    model = weft_nn.Model.from_text(SWISH)
    for work in [lambda: weft_nn.compile(model, passes=[fails]), lambda: model.passed(fails)]:
        with pytest.raises(Mine, match="no"):
            work()


def test_a_module_is_looked_at():
    module = weft_nn.Model.from_text(SWISH).module()
    [x] = module.inputs
    [y] = module.outputs
    assert (x.name, x.dtype, x.shape, x.node, x.constant) == ("x", "float32", [1, 3, 4, 4], None, None)
    conv = module.nodes[0]
    assert (conv.name, conv.op, conv.attributes, conv.function) == ("Conv_0", "conv", {}, "main")
    assert conv.inputs[0] == x and hash(conv.inputs[0]) == hash(x) and x.users == [conv]
    assert conv.inputs[1].constant.shape == (4, 3, 1, 1) and conv.inputs[1].node is None
    assert y.node == module.nodes[-1] and y.node.inputs[0].users[-1] == y.node
    found = [m.node.name for m in module.find("conv(*, w:const, ..)[group=1]")]
    assert found == ["Conv_0"] and not list(module.find("conv(..)[group=2]"))
    tested = "relu?(mul{a, sigmoid(a)[used once]})[float][rank 4, shape 1x4x?x4].0"
    assert [m.node.name for m in module.find(tested)] == ["Mul_2", "Mul_4"]
    [match] = module.find("mul{mul(..), sigmoid(..)}")
    assert [n.op for n in match.nodes] == ["mul", "mul", "sigmoid"] and "a" not in match
    with pytest.raises(KeyError):
        match["a"]
    with pytest.raises(weft_nn.Error, match="there is no op `sigmod`") as error:
        module.find("sigmod(x)")
    assert error.value.code == 2
    assert "Conv_0" in repr(conv) and "f32[1,3,4,4]" in repr(x) and "5 nodes" in repr(module)


def test_nodes_are_added_and_values_replaced():
    module = weft_nn.Model.from_text(SWISH).module()
    [*_, last] = module.nodes
    scaled = module.add("mul", last.inputs[0], 2.5, before=last, name="scaled")
    clipped = module.add("clip", scaled, None, np.float32(0.5), before=last)
    module.replace(last, clipped)
    assert [n.op for n in module.nodes] == ["conv", "sigmoid", "mul", "mul", "clip"]
    session = weft_nn.compile(module)
    swish = weft_nn.compile(weft_nn.Model.from_text(SWISH.replace("return %y", "return %2"))).run({"x": X})["y"]
    np.testing.assert_allclose(session.run({"x": X})["y"], np.minimum(swish * 2.5, 0.5), rtol=1e-5, atol=1e-6)
    half = module.add("cast", scaled, before=clipped.node, to=np.float16)
    assert half.dtype == "float16"
    first, second = module.add("split", scaled, before=clipped.node, axis=1, sizes=[1, 3])
    assert (first.shape, second.shape) == ([1, 1, 4, 4], [1, 3, 4, 4])
    with pytest.raises(weft_nn.Error, match="cannot be replaced") as error:
        module.replace(clipped, first)
    assert error.value.code == 2
    for wrong in [
        lambda: module.add("no_such_op", scaled, before=scaled.node),
        lambda: module.add("split", scaled, before=scaled.node, axes=1),
        lambda: module.add("conv", scaled, first, before=module.nodes[-1], group=3),
        lambda: module.add("neg", weft_nn.Model.from_text(SWISH).module().inputs[0], before=scaled.node),
    ]:
        with pytest.raises(weft_nn.Error) as error:
            wrong()
        assert error.value.code == 2


def test_text_goes_both_ways():
    module = weft_nn.Model.from_text(SWISH).module()
    module.text = module.text.replace("sigmoid", "tanh")
    assert [n.op for n in module.nodes] == ["conv", "tanh", "mul", "tanh", "mul"]
    # The constant's data came along: the text names it alone.
    weft_nn.compile(module).run({"x": X})
    with pytest.raises(weft_nn.Error) as error:
        module.text = "graph @main"
    assert error.value.code == 3
    assert [n.op for n in module.nodes] == ["conv", "tanh", "mul", "tanh", "mul"]


def test_an_invalid_module_is_refused():
    def early(module):
        # The last node reads what is computed after it.
        last = module.nodes[-1]
        late = module.add("neg", last.outputs[0], before=last)
        assert late.node.op == "neg"

    with pytest.raises(weft_nn.Error, match="invalid module") as error:
        weft_nn.compile(weft_nn.Model.from_text(SWISH), passes=[early])
    assert error.value.code != 6
    module = weft_nn.Model.from_text(SWISH).module()
    early(module)
    with pytest.raises(weft_nn.Error):
        weft_nn.load(module)


def test_a_module_ends_with_its_pass():
    kept = []
    weft_nn.Model.from_text(SWISH).passed(lambda m: kept.extend([m, m.nodes[0]]))
    for use in [lambda: kept[0].nodes, lambda: kept[1].name]:
        with pytest.raises(weft_nn.Error, match="a pass that has ended"):
            use()


def test_nodes_that_are_gone_say_so():
    module = weft_nn.Model.from_text(SWISH).module()
    sigmoid = module.nodes[1]
    joined(module)
    with pytest.raises(weft_nn.Error, match="no longer in its module"):
        sigmoid.name


def test_open_sizes_are_texts():
    text = "graph @main(%x: f32[n,4]) -> (y: f32[n,4]) {\n  %0 = neg %x : f32[n,4]\n  return %0\n}\n"
    module = weft_nn.Model.from_text(text).module()
    assert module.inputs[0].shape == ["n", 4]
    [node] = module.nodes
    made = module.add("call_host", node.inputs[0], before=node, callee="f", dtypes=[np.float32], shapes=[["n", 4]])
    assert made.shape == ["n", 4] and made.node.attributes["shapes"] == [["n", 4]]
    assert made.node.attributes["dtypes"] == ["float32"]


@pytest.mark.parametrize("place", [None, "fuse-ops"])
def test_a_cache_holds_nothing_of_a_pass(tmp_path, place):
    calls = []
    for _ in range(2):
        passes = [(calls.append, place) if place else calls.append]
        weft_nn.compile(weft_nn.Model.from_text(SWISH), device=DEVICES[0], passes=passes, cache=tmp_path)
    assert len(calls) == 2


def test_ops_that_commute_match_in_either_order():
    text = "graph @main(%x: f32[3], %w: f32[3]) -> (y: f32[3]) {\n"
    text += "  %0 = sigmoid %x : f32[3]\n  %1 = mul %0, %x : f32[3]\n  %y = sub %1, %w : f32[3]\n  return %y\n}\n"
    module = weft_nn.Model.from_text(text).module()
    for pattern, count in [("mul(x, sigmoid(x))", 1), ("mul(sigmoid(x), x)", 1), ("sub(x, mul(..))", 0), ("sub(mul(..), x)", 1)]:
        assert len(list(module.find(pattern))) == count, pattern
