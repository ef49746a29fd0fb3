"""Functions of elements, and reductions over index variables."""

from __future__ import annotations

import builtins
from typing import Any, Callable, Sequence

import numpy as np

from ._elements import _NAMES, _NARROW, Expr, Index, Variable, _call, _dtype, _number, _of, _operands, _usage, _value, _whole


def _function(name: str) -> Callable[[Any], Expr]:
    def function(x: Any) -> Expr:
        return _call(name, x)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"The function `{name}` of an element."
    return function


exp = _function("exp")
log = _function("log")
sqrt = _function("sqrt")
sin = _function("sin")
cos = _function("cos")
tan = _function("tan")
tanh = _function("tanh")
floor = _function("floor")
ceil = _function("ceil")
sign = _function("sign")


def isnan(x: Any) -> Expr:
    """True if the element is nan."""
    return _call("isnan", x, dtype="bool")


def maximum(a: Any, b: Any) -> Expr:
    """The larger of two elements; nan if one is nan."""
    return _call("max", a, b)


def minimum(a: Any, b: Any) -> Expr:
    """The smaller of two elements; nan if one is nan."""
    return _call("min", a, b)


def sigmoid(x: Expr) -> Expr:
    """`1 / (1 + exp(-x))`."""
    return 1 / (1 + exp(-x))


def softplus(x: Expr) -> Expr:
    """`log(1 + exp(x))`, without an overflow."""
    return maximum(x, 0) + log(1 + exp(-builtins.abs(x)))


def mish(x: Expr) -> Expr:
    """`x * tanh(log(1 + exp(x)))`."""
    return x * tanh(softplus(x))


def relu(x: Expr) -> Expr:
    """`max(x, 0)`."""
    return maximum(x, 0)


def where(condition: Expr, a: Any, b: Any) -> Expr:
    """`a` where the condition holds, else `b`; what is not taken is not read."""
    if isinstance(a, (bool, np.bool_)) and isinstance(b, (bool, np.bool_)):
        a, b = _number(a, "bool"), _number(b, "bool")
    a, b = (_whole(e) for e in _operands(a, b))
    condition = _whole(condition)
    return _of(a.dtype, f"select({condition._text}, {a._text}, {b._text})", [condition, a, b])


def cast(x: Any, dtype: Any) -> Expr:
    """An element, or an index, as an element of another type."""
    name = _dtype(dtype)
    if isinstance(x, Index):
        return _value(x, name)
    x = _whole(x)
    return x if x.dtype == name else _of(name, f"{_NAMES[name]}({x._text})", [x])


def _reduced(combiner: str, x: Expr, over: Sequence[Variable]) -> Expr:
    if not over or not all(isinstance(v, Variable) for v in over):
        raise _usage(f"{combiner} needs index variables to go over", f"k = weft_nn.index(n); weft_nn.{combiner}(x[k], k)")
    narrow = x.dtype if x.dtype in _NARROW else None
    x = _whole(cast(x, "float32") if narrow else x)
    free = tuple(v for v in x._variables if not any(v is r for r in over))
    made = Expr(x.dtype, "", variables=free, stages=x._stages, reduces=(combiner, x, tuple(over)))
    return cast(made, narrow) if narrow else made


def sum(x: Expr, *over: Variable) -> Expr:
    """The sum over index variables. Sums of 16-bit floats are kept in 32 bits."""
    return _reduced("sum", x, over)


def prod(x: Expr, *over: Variable) -> Expr:
    """The product over index variables."""
    return _reduced("prod", x, over)


def max(x: Expr, *over: Variable) -> Expr:
    """The largest element over index variables; nan if one is nan."""
    return _reduced("max", x, over)


def min(x: Expr, *over: Variable) -> Expr:
    """The smallest element over index variables; nan if one is nan."""
    return _reduced("min", x, over)
