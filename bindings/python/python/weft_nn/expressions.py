"""Ops as compute expressions: one element of the result from elements of the operands.

>>> import numpy as np
>>> import weft_nn as weft
>>> @weft.op
... def mish_scale(x, w):
...     return weft.compute(x.shape, lambda n, c: weft.mish(x[n, c]) * w[c])
>>> x = np.array([[1, -2, 3]], np.float32)
>>> mish_scale(x, np.array([1, 10, 100], np.float32)).astype(int)
array([[  0,  -2, 298]])

Such an op is scheduled and fused with its neighbours like any other. A pass puts it into a graph
(`match.replace(mish_scale, ...)`, `module.add(mish_scale, x, w, before=node)`), and `mish_scale.text(x, w)` is its text
form, for `.weft` files.
"""

from __future__ import annotations

import builtins
import inspect
import re
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple, overload

import numpy as np

from ._elements import _NAMES, Expr, Index, Tensor, Variable, _dtype, _size_text, _usage, _value
from ._errors import INPUT, Error
from ._functions import cast
from ._native import Model, compile as _compile

# The largest size of a dimension that stays open.
_LARGEST = 65536


def compute(shape: Sequence[Any], function: Callable[..., Any], dtype: Any = None) -> Tensor:
    """A tensor, element by element.

    shape: its sizes, numbers or sizes of operands (`x.shape`).
    function: takes an index for each dimension and returns the element.
    dtype: the element type, if it is not that of the element.

    Raises weft_nn.Error (code 2) for elements of different types that meet, and for wrong indices.
    """
    indices = [Variable(extent, "i") for extent in shape]
    value = function(*indices)
    if isinstance(value, (Index, int, float)):
        value = _value(value, _dtype(dtype or ("float32" if isinstance(value, float) else "int32")))
    if not isinstance(value, Expr):
        raise _usage(f"the element is {value!r}", "return an expression of elements: x[i] + 1")
    if dtype is not None:
        value = cast(value, dtype)
    stray = [v for v in value._variables if not any(v is i for i in indices)]
    if stray:
        raise _usage("an index variable is used outside of its reduction", "write weft_nn.sum(..., k) around it")
    made = Tensor.__new__(Tensor)
    made._become(shape, indices, value)
    return made


class Op:
    """An op that a compute expression describes; `weft_nn.op` makes it.

    Called with arrays it computes them, to try it out. `Module.add` and `Match.replace` put it into a graph.
    """

    def __init__(self, function: Callable[..., Any], name: str) -> None:
        self._function = function
        self.name = name
        self.__doc__ = function.__doc__
        self.__name__ = name

    def __repr__(self) -> str:
        return f"<weft_nn.Op {self.name}>"

    def text(self, *operands: Any, **attributes: Any) -> str:
        """The tensor function of the op on such operands, as in a `.weft` file, where `call_tensor @name` calls it.

        operands: arrays, values of a graph, or anything with `dtype` and `shape`; a text in a shape is an open size.
        attributes: keyword arguments of the function.
        """
        return self._traced(operands, attributes)[0]

    def _traced(self, operands: Sequence[Any], attributes: Dict[str, Any]) -> Tuple[str, List[Tensor]]:
        """The text, and the results."""
        symbols: Dict[str, Index] = {}

        def size(d: Any) -> Any:
            if isinstance(d, (int, np.integer)):
                return int(d)
            return symbols.setdefault(str(d), Index(f"d{len(symbols)}"))

        inputs = [Tensor(f"p{i}", _dtype(x.dtype), [size(d) for d in x.shape]) for i, x in enumerate(operands)]
        made = self._function(*inputs, **attributes)
        results = list(made) if isinstance(made, (tuple, list)) else [made]
        for result in results:
            if not isinstance(result, Tensor) or result._value is None:
                raise _usage(f"the op {self.name} returns {result!r}", "return what weft_nn.compute makes")
        stages: List[Tensor] = []
        for result in results:
            _collect(result, stages)
        params = [f"%{t._name}: {_type(t)}" for t in inputs] + [f"out %{t._name}: {_type(t)}" for t in results]
        lines = [f"tensor @{_quoted(self.name)}({', '.join(params)}) {{"]
        lines += [f"  symbol {s._text} in 1..={_LARGEST}" for s in symbols.values()]
        inner = [t for t in stages if not any(t is r for r in results)]
        lines += [f"  buffer %{t._name}: {_type(t)} global" for t in inner]
        for stage in stages:
            lines += _stage_lines(stage)
        return _renumbered("\n".join([*lines, "}", ""])), results

    def model(self, *operands: Any, **attributes: Any) -> Model:
        """A model of the op alone, with the inputs x0, x1, ... and the results y0, y1, ...

        operands, attributes: as `text` takes them.
        """
        text, results = self._traced(operands, attributes)
        forms = [Tensor("", _dtype(x.dtype), [Index(d) if isinstance(d, str) else d for d in x.shape]) for x in operands]
        inputs = ", ".join(f"%x{i}: {_type(t)}" for i, t in enumerate(forms))
        if any(isinstance(d, Index) for t in results for d in t.shape):
            sizes = {str(d) for x in operands for d in x.shape if isinstance(d, str)}
            raise _usage(f"the sizes {', '.join(sorted(sizes))} are open", "give arrays, or use Module.add")
        outputs = ", ".join(f"y{i}: {_type(t)}" for i, t in enumerate(results))
        names = ", ".join(f"%y{i}" for i in range(len(results)))
        given = ", ".join(f"%x{i}" for i in range(len(forms)))
        graph = f"graph @main({inputs}) -> ({outputs}) {{\n  {names} = call_tensor @{_quoted(self.name)} {given}\n  return {names}\n}}\n"
        return Model.from_text(graph + text)

    def __call__(self, *arrays: Any, device: Any = None, **attributes: Any) -> Any:
        """The results on these arrays: an array, or a list of several.

        device: as `weft_nn.compile` takes it. attributes: keyword arguments of the function.
        """
        given = [np.asarray(a) for a in arrays]
        session = _compile(self.model(*given, **attributes), device=device)
        results = list(session.run({f"x{i}": a for i, a in enumerate(given)}).values())
        return results[0] if len(results) == 1 else results

    def _add(
        self,
        module: Any,
        operands: Sequence[Any],
        *,
        before: Any = None,
        name: Optional[str] = None,
        attributes: Optional[Dict[str, Any]] = None,
    ) -> Any:
        """Adds a call of the op to a module."""
        first = next((v.dtype for v in operands if hasattr(v, "dtype")), "float32")
        given = [v if hasattr(v, "shape") else np.asarray(v, first) for v in operands]
        callee = module.define(self.text(*given, **(attributes or {})))
        return module.add("call_tensor", *given, before=before, name=name, callee=callee)


@overload
def op(function: Callable[..., Any], *, name: Optional[str] = None) -> Op: ...
@overload
def op(function: None = None, *, name: Optional[str] = None) -> Callable[[Callable[..., Any]], Op]: ...
def op(function: Optional[Callable[..., Any]] = None, *, name: Optional[str] = None) -> Any:
    """Makes an op of a function: `@weft_nn.op` in front of it.

    function: takes the operands, each with `shape`, `dtype` and elements `x[i, j]`, and attributes as keyword
        arguments, and returns what `compute` makes, or a tuple of several.
    name: its name in graphs; that of the function by default.

    Returns an Op.
    """
    if function is None:
        return lambda f: Op(f, name or f.__name__)
    if not inspect.isfunction(function) and not callable(function):
        raise Error(f"{function!r} is no function", INPUT)
    return Op(function, name or function.__name__)


def _quoted(name: str) -> str:
    plain = name.replace("_", "a").isalnum() and name.isascii()
    return name if plain else '"' + name.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _type(t: Tensor) -> str:
    return f"{_NAMES[t.dtype]}[{','.join(_size_text(d) for d in t.shape)}]"


def _collect(t: Tensor, stages: List[Tensor]) -> None:
    """The stages that a tensor needs, before itself."""
    if t._value is None or any(t is s for s in stages):
        return
    reads = t._value._reduces[1]._stages if t._value._reduces else ()
    for other in (*t._value._stages, *reads):
        _collect(other, stages)
    stages.append(t)


def _stage_lines(t: Tensor) -> List[str]:
    value = t._value
    assert value is not None
    combiner, inner, over = value._reduces or ("", value, ())
    lines, depth = [], 1
    for v in (*t._indices, *over):
        lines.append(f"{'  ' * depth}for {v._text} in 0..{v.extent._text} {{")
        depth += 1
    reduce = f"reduce {combiner} init " if combiner else ""
    stored = f"%{t._name}[{', '.join(v._text for v in t._indices)}]"
    lines.append(f"{'  ' * depth}block {t._name} {reduce}{{ {stored} <- {inner._text} }}")
    while depth > 1:
        depth -= 1
        lines.append(f"{'  ' * depth}}}")
    return lines


def _renumbered(text: str) -> str:
    """Names of variables and tensors numbered as they come, so that equal ops have equal texts."""
    names: Dict[str, str] = {}

    def new(match: "re.Match[str]") -> str:
        kind = match[1]
        count = builtins.sum(1 for old in names if old[0] == kind)
        return names.setdefault(match[0], f"{kind}_{count}")

    return re.sub(r"\b([ikt])_\d+_", new, text)
