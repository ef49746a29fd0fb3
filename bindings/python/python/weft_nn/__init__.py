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

import atexit as _atexit
import os as _os
import sys as _sys

if _sys.platform == "linux" and "XDG_RUNTIME_DIR" not in _os.environ:
    # Mesa's layer that puts devices in order looks for a window system, and says on stderr that it finds none.
    _os.environ.setdefault("NODEVICE_SELECT", "1")

from . import _native
from ._errors import Error
from ._native import (
    DeviceTensor,
    Kernel,
    Match,
    Model,
    Module,
    Node,
    NodeForm,
    Port,
    Region,
    Session,
    TensorForm,
    Trace,
    Value,
    compile,
    devices,
    load,
    metadata,
)
from ._elements import index
from ._functions import (
    cast,
    ceil,
    cos,
    exp,
    floor,
    isnan,
    log,
    max,
    maximum,
    min,
    minimum,
    mish,
    prod,
    relu,
    sigmoid,
    sign,
    sin,
    softplus,
    sqrt,
    sum,
    tan,
    tanh,
    where,
)
from ._tools import bisect, tune
from .expressions import Op, compute, op
from .extensions import ExternalTarget, register_onnx, register_target

_atexit.register(_native._leave)

__version__ = _native.version()

# `max`, `min` and `sum` are there, and not for `import *`.
__all__ = [
    "DeviceTensor",
    "Error",
    "ExternalTarget",
    "Kernel",
    "Match",
    "Model",
    "Module",
    "Node",
    "NodeForm",
    "Op",
    "Port",
    "Region",
    "Session",
    "TensorForm",
    "Trace",
    "Value",
    "bisect",
    "cast",
    "compile",
    "compute",
    "devices",
    "index",
    "load",
    "metadata",
    "op",
    "register_onnx",
    "register_target",
    "tune",
    "where",
]
