"""Models that several tests use."""

import numpy as np
import pytest

import weft_nn

# A driver's device, where there is one, the processor, and the reference.
DEVICES = [*(["0"] if weft_nn.devices() else []), "cpu", "interpreter"]

SMALL = """
graph @main(%x: f32[2,3], %w: f32[3,2]) -> (y: f32[2,2]) {
  %a = matmul %x, %w : f32[2,2]
  %y = relu %a : f32[2,2]
  return %y
}
"""


@pytest.fixture
def small():
    """A product and a ReLU, with inputs and the result that numpy computes."""
    rng = np.random.default_rng(1)
    inputs = {"x": rng.standard_normal((2, 3), np.float32), "w": rng.standard_normal((3, 2), np.float32)}
    return weft_nn.Model.from_text(SMALL), inputs, np.maximum(inputs["x"] @ inputs["w"], 0)


def unary(op: str, dtype: str, shape: str) -> weft_nn.Model:
    """A model of one operation, such as unary("neg", "f32", "[2,3]")."""
    return weft_nn.Model.from_text(
        f"graph @main(%x: {dtype}{shape}) -> (y: {dtype}{shape}) {{\n  %y = {op} %x : {dtype}{shape}\n  return %y\n}}\n"
    )
