"""As `onnxruntime_pybind11_state`."""

from weft_nn.ort.capi.onnxruntime_pybind11_state import *  # noqa: F403
