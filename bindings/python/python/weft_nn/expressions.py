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
import itertools
import math
import re
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple, Union

import numpy as np

from ._errors import INPUT, USAGE, Error
from ._native import Model, compile as _compile

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

# The largest size of a dimension that stays open.
_LARGEST = 65536

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
        return where(self._test("==", other), False, True)

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


class Tensor:
    """A tensor of a computation: an operand, or what `compute` makes. `x[i, j]` is an element."""

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
        text = f"%{self._name}[{', '.join(i._text for i in list)}]"
        return Expr(self.dtype, text, variables=variables, stages=stages, is_load=True)

    def __repr__(self) -> str:
        return f"<{self.dtype}[{', '.join(_size_text(d) for d in self.shape)}] %{self._name}>"


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


def _size_text(size: Any) -> str:
    return size._text if isinstance(size, Index) else str(int(size))


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
        self, module: Any, operands: Sequence[Any], *, before: Any, name: Optional[str], attributes: Optional[Dict[str, Any]]
    ) -> Any:
        """Adds a call of the op to a module."""
        first = next((v.dtype for v in operands if hasattr(v, "dtype")), "float32")
        given = [v if hasattr(v, "shape") else np.asarray(v, first) for v in operands]
        callee = module.define(self.text(*given, **(attributes or {})))
        return module.add("call_tensor", *given, before=before, name=name, callee=callee)


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
