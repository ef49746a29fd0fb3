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
from ._elements import Expr, Tensor, index
# So written, they are public for type checkers too. `max`, `min` and `sum` are not for `import *`.
from ._functions import (
    cast as cast,
    ceil as ceil,
    cos as cos,
    exp as exp,
    floor as floor,
    isnan as isnan,
    log as log,
    max as max,
    maximum as maximum,
    min as min,
    minimum as minimum,
    mish as mish,
    prod as prod,
    relu as relu,
    sigmoid as sigmoid,
    sign as sign,
    sin as sin,
    softplus as softplus,
    sqrt as sqrt,
    sum as sum,
    tan as tan,
    tanh as tanh,
    where as where,
)
from ._tools import bisect, diff, export, extract, tune
from .expressions import Op, compute, op
from .extensions import ExternalTarget, register_onnx, register_target

_atexit.register(_native._leave)

__version__ = _native.version()

__all__ = [
    "DeviceTensor",
    "Error",
    "Expr",
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
    "Tensor",
    "TensorForm",
    "Trace",
    "Value",
    "bisect",
    "cast",
    "compile",
    "compute",
    "devices",
    "diff",
    "export",
    "extract",
    "index",
    "load",
    "metadata",
    "op",
    "register_onnx",
    "register_target",
    "tune",
    "where",
]
