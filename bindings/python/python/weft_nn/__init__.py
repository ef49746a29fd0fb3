"""Weft compiles neural networks to GPU compute shaders and runs them.

>>> import numpy as np
>>> import weft_nn
>>> model = weft_nn.Model.from_text('''
... graph @main(%x: f32[2,3]) -> (y: f32[2,3]) {
...   %y = relu %x : f32[2,3]
...   return %y
... }
... ''')
>>> session = weft_nn.compile(model)
>>> session.run({"x": np.array([[1, -2, 3], [-4, 5, -6]], np.float32)})["y"]
array([[1., 0., 3.],
       [0., 5., 0.]], dtype=float32)

`load` and `compile` read ONNX files; `weft_nn.ort` has the classes of onnxruntime, and `weft_nn.backend` is a backend
for the package onnx. Errors are `weft_nn.Error`, with `code`, `place` and `help`.
"""

from ._errors import Error
from ._native import Model, Port, Session, Trace, compile, devices, load, metadata

__all__ = ["Error", "Model", "Port", "Session", "Trace", "compile", "devices", "load", "metadata"]
