"""The classes of onnxruntime, under the name of its module of sessions."""

from weft_nn.ort import *  # noqa: F403
