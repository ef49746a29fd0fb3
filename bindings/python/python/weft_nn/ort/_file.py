"""What an ONNX file says of its inputs, results and producer, read without the rest of it."""

from __future__ import annotations

import mmap
import os
from dataclasses import dataclass, field
from typing import Any, Dict, Iterator, List, Optional, Tuple, Union

# Element types by ONNX's numbers, as onnxruntime writes them.
ELEMENTS = {
    1: "float", 2: "uint8", 3: "int8", 4: "uint16", 5: "int16", 6: "int32", 7: "int64", 8: "string", 9: "bool",
    10: "float16", 11: "double", 12: "uint32", 13: "uint64", 14: "complex64", 15: "complex128", 16: "bfloat16",
    17: "float8e4m3fn", 18: "float8e4m3fnuz", 19: "float8e5m2", 20: "float8e5m2fnuz", 21: "uint4", 22: "int4",
}  # fmt: skip

Size = Union[int, str, None]


@dataclass
class Declared:
    """An input or a result as the file has it; `shape` is None where it has none."""

    name: str
    type: str
    shape: Optional[List[Size]]
    denotations: List[str]


@dataclass
class OnnxFile:
    """Inputs without those that have a value in the file, which are `overridable`; results; and the producer's notes."""

    inputs: List[Declared] = field(default_factory=list)
    outputs: List[Declared] = field(default_factory=list)
    overridable: List[Declared] = field(default_factory=list)
    texts: Dict[int, str] = field(default_factory=dict)
    version: int = (1 << 63) - 1
    graph_name: str = ""
    graph_text: str = ""
    notes: Dict[str, str] = field(default_factory=dict)


def _number(data: Any, at: int) -> Tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7


def _spans(data: Any) -> Iterator[Tuple[int, Any, Any]]:
    """Numbers and values of a message's fields, a number or a part of `data` each, and the whole fields."""
    at, end = 0, len(data)
    while at < end:
        start = at
        key, at = _number(data, at)
        kind = key & 7
        if kind == 0:
            value, at = _number(data, at)
            yield key >> 3, value, data[start:at]
            continue
        size, at = _number(data, at) if kind == 2 else ({1: 8, 5: 4}[kind], at)
        if at + size > end:
            raise ValueError("a field ends behind the file")
        value, at = data[at : at + size], at + size
        yield key >> 3, value, data[start:at]


def _fields(data: Any) -> Iterator[Tuple[int, Any]]:
    return ((number, value) for number, value, _ in _spans(data))


def _text(value: Any) -> str:
    return bytes(value).decode("utf-8", "replace")


def _dims(shape: Any) -> Tuple[List[Size], List[str]]:
    sizes: List[Size] = []
    denotations = []
    for _, dim in _fields(shape):
        parts = dict(_fields(dim))
        name = _text(parts[2]) if 2 in parts else ""
        sizes.append(parts[1] if 1 in parts else name or None)
        denotations.append(_text(parts.get(3, b"")))
    return sizes, denotations


def _type(data: Any) -> Tuple[str, Optional[List[Size]], List[str]]:
    for number, value in _fields(data):
        parts = dict(_fields(value)) if number in (1, 4, 5, 8, 9) else {}
        if number in (1, 8):
            name = ("tensor" if number == 1 else "sparse_tensor") + f"({ELEMENTS.get(parts.get(1, 0), 'undefined')})"
            return (name, *_dims(parts[2])) if 2 in parts else (name, None, [])
        if number in (4, 9):
            return ("seq" if number == 4 else "optional") + f"({_type(parts.get(1, b''))[0]})", [], []
        if number == 5:
            return f"map({ELEMENTS.get(parts.get(1, 0), 'undefined')},{_type(parts.get(2, b''))[0]})", [], []
    return "", None, []


def _declared(info: Any) -> Declared:
    parts = dict(_fields(info))
    return Declared(_text(parts.get(1, b"")), *_type(parts.get(2, b"")))


def _graph(data: Any, file: OnnxFile) -> None:
    valued = set()
    for number, value in _fields(data):
        if number == 2:
            file.graph_name = _text(value)
        elif number == 10:
            file.graph_text = _text(value)
        elif number == 5:
            valued.add(next((_text(v) for n, v in _fields(value) if n == 8), ""))
        elif number in (11, 12):
            (file.inputs if number == 11 else file.outputs).append(_declared(value))
    file.overridable = [d for d in file.inputs if d.name in valued]
    file.inputs = [d for d in file.inputs if d.name not in valued]


def _model(data: Any) -> OnnxFile:
    file = OnnxFile()
    for number, value in _fields(data):
        if number == 7:
            _graph(value, file)
        elif number == 5:
            file.version = value
        elif number in (2, 3, 4, 6):
            file.texts[number] = _text(value)
        elif number == 14:
            parts = dict(_fields(value))
            file.notes[_text(parts.get(1, b""))] = _text(parts.get(2, b""))
    return file


def _field(number: int, value: bytes) -> bytes:
    out, size = bytearray([number << 3 | 2]), len(value)
    while size > 127:
        out.append(size & 127 | 128)
        size >>= 7
    return bytes(out) + bytes([size]) + value


def without_texts(source: Any, file: OnnxFile) -> Tuple[bytes, Dict[str, str]]:
    """The model without inputs that are texts and results that are such an input, and these: inputs by results."""
    if not isinstance(source, bytes):
        with open(os.fspath(source), "rb") as opened:
            source = opened.read()
    same = {d.name: d.name for d in file.inputs if d.type == "tensor(string)"}

    def is_text(number: int, value: Any) -> bool:
        if number in (11, 12, 13):
            return _declared(value).name in same
        if number != 1:
            return False
        parts = dict(_fields(value))
        is_same = _text(parts.get(4, b"")) == "Identity" and _text(parts.get(1, b"")) in same
        if is_same:
            same[_text(parts[2])] = same[_text(parts[1])]
        return is_same

    def graph(data: Any) -> bytes:
        # Nodes first: results are named by them.
        nodes = [(n, whole) for n, value, whole in _spans(data) if n == 1 and not is_text(n, value)]
        rest = [(n, whole) for n, value, whole in _spans(data) if n != 1 and not is_text(n, value)]
        return b"".join(bytes(whole) for _, whole in nodes + rest)

    parts = (_field(7, graph(value)) if number == 7 else bytes(whole) for number, value, whole in _spans(memoryview(source)))
    return b"".join(parts), {d.name: same[d.name] for d in file.outputs if d.name in same}


def read(source: Any) -> Optional[OnnxFile]:
    """Of a path or bytes; None for something that is no ONNX file."""
    try:
        if isinstance(source, (bytes, bytearray, memoryview)):
            return _model(memoryview(source))
        with open(os.fspath(source), "rb") as opened:
            # Parts of it are views; it is unmapped with the last of them.
            return _model(memoryview(mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ)))
    except (OSError, ValueError, KeyError, IndexError, TypeError, AttributeError):
        return None
