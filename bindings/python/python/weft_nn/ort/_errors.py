"""The exceptions of onnxruntime. All are weft_nn.Error too, with code, place and help."""

from __future__ import annotations

from typing import NoReturn, Optional

from weft_nn._errors import BUG, DEVICE, INPUT, UNSUPPORTED, USAGE, Error


class _Status(Error):
    """An error of onnxruntime's own, whose text has its number and name."""

    _number, _word = 1, "FAIL"

    def __str__(self) -> str:
        return f"[ONNXRuntimeError] : {self._number} : {self._word} : {super().__str__()}"


class Fail(_Status):
    """Anything that no other class is for."""


class InvalidArgument(_Status):
    """Inputs or names that do not fit the model."""

    _number, _word = 2, "INVALID_ARGUMENT"


class NoSuchFile(_Status):
    """A file that is not there."""

    _number, _word = 3, "NO_SUCHFILE"


class NoModel(_Status):
    """Not raised."""

    _number, _word = 4, "NO_MODEL"


class EngineError(_Status):
    """Not raised."""

    _number, _word = 5, "ENGINE_ERROR"


class RuntimeException(_Status):
    """A bug of Weft's."""

    _number, _word = 6, "RUNTIME_EXCEPTION"


class InvalidProtobuf(_Status):
    """Bytes that are no ONNX model."""

    _number, _word = 7, "INVALID_PROTOBUF"


class ModelLoaded(_Status):
    """Not raised."""

    _number, _word = 8, "MODEL_LOADED"


class NotImplemented(_Status):
    """Operators that Weft does not have."""

    _number, _word = 9, "NOT_IMPLEMENTED"


class InvalidGraph(_Status):
    """A model that is not valid."""

    _number, _word = 10, "INVALID_GRAPH"


class EPFail(_Status):
    """A device that is not there or has not enough memory."""

    _number, _word = 11, "EP_FAIL"


class MissingInput(Error, ValueError):
    """An input without a value."""


class NoArray(Error, RuntimeError):
    """Something that is no array."""


class NoOption(Error, RuntimeError):
    """An entry of the options that is not there."""


class NoSource(Error, TypeError):
    """Something that no model is loaded from."""


_CLASSES = {USAGE: InvalidArgument, UNSUPPORTED: NotImplemented, DEVICE: EPFail, BUG: RuntimeException}


def raise_as(error: Error, of_input: Optional[type[Error]]) -> NoReturn:
    """Raises an error as onnxruntime's class; `of_input` is that for a bad model or input."""
    kind = of_input if error.code == INPUT and of_input else _CLASSES.get(error.code, Fail)
    raise kind(error.message, error.code, error.place, error.help) from error
