"""The exceptions of onnxruntime, and its classes and functions, under the name of its native module."""

from weft_nn.ort import *  # noqa: F403
from weft_nn.ort._errors import (
    EngineError as EngineError,
    EPFail as EPFail,
    Fail as Fail,
    InvalidArgument as InvalidArgument,
    InvalidGraph as InvalidGraph,
    InvalidProtobuf as InvalidProtobuf,
    ModelLoaded as ModelLoaded,
    NoModel as NoModel,
    NoSuchFile as NoSuchFile,
    NotImplemented as NotImplemented,
    RuntimeException as RuntimeException,
)
