"""Indices, elements and tensors of compute expressions, each with its text.

Comparisons of indices are elements, and elements of integer tensors are indices: the three stand in one file.
"""

from __future__ import annotations

import itertools
import math
import re
from typing import Any, List, Optional, Sequence, Tuple, Union

import numpy as np

from ._errors import USAGE, Error

_NAMES = {
    "bool": "bool",
    "uint8": "u8",
    "int8": "i8",
    "uint16": "u16",
    "int16": "i16",
    "uint32": "u32",
    "int32": "i32",
    "uint64": "u64",
    "int64": "i64",
    "float16": "f16",
    "bfloat16": "bf16",
    "float32": "f32",
    "float64": "f64",
}

# Element types whose sums are kept in f32.
_NARROW = ("float16", "bfloat16")

_new_number = itertools.count().__next__


def _usage(message: str, help: str) -> Error:
    return Error(message, USAGE, None, help)


def _is_float(dtype: str) -> bool:
    return "float" in dtype


def _dtype(given: Any) -> str:
    try:
        name = given if isinstance(given, str) and given == "bfloat16" else np.dtype(given).name
    except TypeError:
        name = str(given)
    if name not in _NAMES:
        raise _usage(f"{name} is no element type", f"it is one of {', '.join(_NAMES)}")
    return name


class Index:
    """A whole number that the loops of a computation give: an index variable, an open size, or a sum of such."""

    # numpy's numbers leave operators to this class.
    __array_ufunc__ = None

    def __init__(self, text: str, variables: Tuple["Variable", ...] = ()) -> None:
        self._text = text
        self._variables = variables

    def _with(self, other: Any, sign: str, turned: bool = False) -> "Index":
        other = _index(other)
        a, b = (other, self) if turned else (self, other)
        return Index(f"({a._text} {sign} {b._text})", _joined(a._variables, b._variables))

    def __add__(self, other: Any) -> "Index":
        return self._with(other, "+")

    def __radd__(self, other: Any) -> "Index":
        return self._with(other, "+", True)

    def __sub__(self, other: Any) -> "Index":
        return self._with(other, "-")

    def __rsub__(self, other: Any) -> "Index":
        return self._with(other, "-", True)

    def __mul__(self, other: Any) -> "Index":
        return self._with(other, "*")

    def __rmul__(self, other: Any) -> "Index":
        return self._with(other, "*", True)

    def __floordiv__(self, other: Any) -> "Index":
        return self._with(other, "/")

    def __rfloordiv__(self, other: Any) -> "Index":
        return self._with(other, "/", True)

    def __mod__(self, other: Any) -> "Index":
        return self._with(other, "%")

    def __rmod__(self, other: Any) -> "Index":
        return self._with(other, "%", True)

    def __neg__(self) -> "Index":
        return 0 - self

    def _test(self, sign: str, other: Any) -> "Expr":
        other = _index(other)
        text = f"all({self._text} {sign} {other._text})"
        return Expr("bool", text, variables=_joined(self._variables, other._variables))

    def __lt__(self, other: Any) -> "Expr":
        return self._test("<", other)

    def __ge__(self, other: Any) -> "Expr":
        return self._test(">=", other)

    def __le__(self, other: Any) -> "Expr":
        return self._test("<", _index(other) + 1)

    def __gt__(self, other: Any) -> "Expr":
        return self._test(">=", _index(other) + 1)

    def __eq__(self, other: Any) -> Any:
        return self._test("==", other)

    def __ne__(self, other: Any) -> Any:
        return ~self._test("==", other)

    __hash__ = None  # type: ignore[assignment]

    def __bool__(self) -> bool:
        raise _usage("an index has no value before the op runs", "use weft_nn.where, or a size that is fixed")

    def __repr__(self) -> str:
        return f"<index {self._text}>"


class Variable(Index):
    """An index variable: it takes the values from 0 to its extent."""

    def __init__(self, extent: Any, kind: str = "k") -> None:
        super().__init__(f"{kind}_{_new_number()}_", (self,))
        self.extent = _index(extent)


def index(extent: Union[int, Index]) -> Variable:
    """A new index variable with the values 0 to extent - 1, for reductions: `k = index(8)`, `sum(x[k], k)`."""
    return Variable(extent)


def _index(given: Any) -> Index:
    if isinstance(given, Index):
        return given
    if isinstance(given, Expr):
        if given.dtype not in ("int32", "int64", "uint32", "uint8", "int8"):
            raise _usage(f"an element of type {given.dtype} is no index", "cast it to int32")
        if given._stages and not given._is_load:
            raise _usage("an index is an element of a tensor or a sum of indices", "compute the tensor of indices first")
        return _Loaded(given)
    if isinstance(given, (int, np.integer)):
        return Index(str(int(given)))
    raise _usage(f"{given!r} is no index", "indices are whole numbers, index variables, and elements of integer tensors")


class _Loaded(Index):
    """An element of an integer tensor as an index."""

    def __init__(self, load: "Expr") -> None:
        super().__init__(load._text, load._variables)
        self._loads = load


def _joined(a: Tuple[Any, ...], b: Tuple[Any, ...]) -> Tuple[Any, ...]:
    return a + tuple(x for x in b if not any(x is y for y in a))


class Expr:
    """A value of one element. Both operands of an operator have one type; a number takes the type of the other."""

    __array_ufunc__ = None

    def __init__(
        self,
        dtype: str,
        text: str,
        *,
        variables: Tuple[Variable, ...] = (),
        stages: Tuple["Tensor", ...] = (),
        is_load: bool = False,
        reduces: Optional[Tuple[str, "Expr", Tuple[Variable, ...]]] = None,
    ) -> None:
        self.dtype = dtype
        self._text = text
        self._variables = variables
        self._stages = stages
        self._is_load = is_load
        self._reduces = reduces
        self._as_element: Optional[Expr] = None

    def __repr__(self) -> str:
        return f"<{self.dtype} {self._text}>"

    def __bool__(self) -> bool:
        raise _usage("an element has no value before the op runs", "use weft_nn.where")

    def __add__(self, other: Any) -> "Expr":
        return _infix("+", self, other)

    def __radd__(self, other: Any) -> "Expr":
        return _infix("+", other, self)

    def __sub__(self, other: Any) -> "Expr":
        return _infix("-", self, other)

    def __rsub__(self, other: Any) -> "Expr":
        return _infix("-", other, self)

    def __mul__(self, other: Any) -> "Expr":
        return _infix("*", self, other)

    def __rmul__(self, other: Any) -> "Expr":
        return _infix("*", other, self)

    def __truediv__(self, other: Any) -> "Expr":
        return _infix("/", self, other)

    def __rtruediv__(self, other: Any) -> "Expr":
        return _infix("/", other, self)

    def __mod__(self, other: Any) -> "Expr":
        return _call("floormod", self, other)

    def __pow__(self, other: Any) -> "Expr":
        return _call("pow", self, other)

    def __rpow__(self, other: Any) -> "Expr":
        return _call("pow", other, self)

    def __neg__(self) -> "Expr":
        return _call("neg", self)

    def __abs__(self) -> "Expr":
        return _call("abs", self)

    def __lt__(self, other: Any) -> "Expr":
        return _infix("<", self, other, "bool")

    def __le__(self, other: Any) -> "Expr":
        return _infix("<=", self, other, "bool")

    def __gt__(self, other: Any) -> "Expr":
        return _infix(">", self, other, "bool")

    def __ge__(self, other: Any) -> "Expr":
        return _infix(">=", self, other, "bool")

    def __eq__(self, other: Any) -> Any:
        return _infix("==", self, other, "bool")

    def __ne__(self, other: Any) -> Any:
        return _infix("!=", self, other, "bool")

    def __and__(self, other: Any) -> "Expr":
        return _call("and" if self.dtype == "bool" else "bitand", self, other)

    def __or__(self, other: Any) -> "Expr":
        return _call("or" if self.dtype == "bool" else "bitor", self, other)

    def __invert__(self) -> "Expr":
        return _call("not" if self.dtype == "bool" else "bitnot", self)

    __hash__ = None  # type: ignore[assignment]


def _number(value: Any, dtype: str) -> Expr:
    """A number as a constant of that type."""
    if dtype == "bool":
        return Expr(dtype, "true" if value else "false")
    if _is_float(dtype):
        value = float(value)
        text = "nan" if math.isnan(value) else repr(value)
        return Expr(dtype, f"{text}:{_NAMES[dtype]}")
    if int(value) != value:
        raise _usage(f"{value!r} is no number of type {dtype}", "cast the element to float32 first")
    return Expr(dtype, f"{int(value)}:{_NAMES[dtype]}")


def _operands(*given: Any) -> List[Expr]:
    """Elements of one type."""
    types = [e.dtype for e in given if isinstance(e, Expr)]
    if not types:
        raise _usage("there is no element of a tensor among the operands", "compute numbers in Python")
    if any(t != types[0] for t in types):
        raise _usage(f"elements of types {' and '.join(dict.fromkeys(types))} meet", "cast one: weft_nn.cast(x, \"float32\")")
    return [e if isinstance(e, Expr) else _value(e, types[0]) for e in given]


def _value(given: Any, dtype: str) -> Expr:
    if isinstance(given, Index):
        return Expr(dtype, f"idx({given._text}):{_NAMES[dtype]}", variables=given._variables)
    if isinstance(given, (int, float, np.integer, np.floating, np.bool_)):
        return _number(given, dtype)
    raise _usage(f"{given!r} is no element", "index tensors: x[i, j]")


def _of(dtype: str, text: str, operands: Sequence[Expr]) -> Expr:
    variables: Tuple[Variable, ...] = ()
    stages: Tuple[Tensor, ...] = ()
    for e in operands:
        variables, stages = _joined(variables, e._variables), _joined(stages, e._stages)
    return Expr(dtype, text, variables=variables, stages=stages)


def _infix(sign: str, a: Any, b: Any, dtype: Optional[str] = None) -> Expr:
    a, b = (_whole(e) for e in _operands(a, b))
    return _of(dtype or a.dtype, f"({a._text} {sign} {b._text})", [a, b])


def _call(name: str, *given: Any, dtype: Optional[str] = None) -> Expr:
    list = [_whole(e) for e in _operands(*given)]
    return _of(dtype or list[0].dtype, f"{name}({', '.join(e._text for e in list)})", list)


def _whole(e: Expr) -> Expr:
    """A reduction that something is computed from, as an element of a tensor of its own."""
    if e._reduces is None:
        return e
    if e._as_element is None:
        combiner, inner, over = e._reduces
        loops = {v._text: Variable(v.extent, "i") for v in e._variables}
        text = re.sub(r"\b[ik]_\d+_", lambda m: loops[m[0]]._text if m[0] in loops else m[0], inner._text)
        moved = Expr(inner.dtype, text, variables=tuple(loops.values()), stages=inner._stages)
        reduced = Expr(e.dtype, "", variables=moved._variables, stages=e._stages, reduces=(combiner, moved, over))
        made = Tensor.__new__(Tensor)
        made._become([v.extent for v in loops.values()], tuple(loops.values()), reduced)
        e._as_element = made[e._variables]
    return e._as_element


class Tensor:
    """A tensor of a computation: an operand, or what `compute` makes. `x[i, j]` is an element. An index that is an element
    of an integer tensor, `x[rows[i], j]`, and that is out of range counts as the nearest one in it."""

    def __init__(self, name: str, dtype: str, shape: Sequence[Any]) -> None:
        self._name = name
        self.dtype = dtype
        self.shape = tuple(shape)
        self._value: Optional[Expr] = None
        self._indices: Tuple[Variable, ...] = ()

    def _become(self, shape: Sequence[Any], indices: Sequence[Variable], value: Expr) -> None:
        self._name = f"t_{_new_number()}_"
        self.dtype = value.dtype
        self.shape = tuple(shape)
        self._value = value
        self._indices = tuple(indices)

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    def __getitem__(self, indices: Any) -> Expr:
        given = indices if isinstance(indices, tuple) else (indices,)
        if len(given) != len(self.shape):
            raise _usage(f"a tensor of {len(self.shape)} dimensions has {len(given)} indices", "give one for each dimension")
        list = [_index(i) for i in given]
        variables: Tuple[Variable, ...] = ()
        stages: Tuple[Tensor, ...] = (self,)
        for i in list:
            variables = _joined(variables, i._variables)
            if isinstance(i, _Loaded):
                stages = _joined(stages, i._loads._stages)
        # What data say may be beyond the tensor: it counts as the nearest element, on every device.
        texts = [
            f"min(max({i._text}, 0), {_size_text(d)} - 1)" if "%" in i._text else i._text for i, d in zip(list, self.shape)
        ]
        text = f"%{self._name}[{', '.join(texts)}]"
        return Expr(self.dtype, text, variables=variables, stages=stages, is_load=True)

    def __repr__(self) -> str:
        return f"<{self.dtype}[{', '.join(_size_text(d) for d in self.shape)}] %{self._name}>"


def _size_text(size: Any) -> str:
    return size._text if isinstance(size, Index) else str(int(size))
