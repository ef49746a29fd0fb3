"""External targets, and importers of ONNX operators, in Python.

An external target runs the parts of a network that it supports, on numpy arrays:

>>> import numpy as np
>>> import weft_nn
>>> @weft_nn.register_target
... class Halver(weft_nn.ExternalTarget):
...     name = "halver"
...     options = {"factor": "what every result is multiplied by; 0.5 by default"}
...     patterns = [("relu_neg", "neg(relu(..))")]
...     def supports(self, node, options):
...         return node.op == "exp" and node.inputs[0].dtype == "float32"
...     def prepare(self, region, options):
...         factor = np.float32(options.get("factor", 0.5))
...         steps = [node.attributes["name"] if node.op == "composite" else node.op for node in region.nodes]
...         def run(x):
...             for step in steps:
...                 x = np.exp(x) if step == "exp" else -np.maximum(x, 0)
...             return x * factor
...         return run
>>> model = weft_nn.Model.from_text('''
... graph @main(%x: f32[3]) -> (y: f32[3]) {
...   %0 = relu %x : f32[3]
...   %1 = neg %0 : f32[3]
...   %2 = exp %1 : f32[3]
...   %y = sqrt %2 : f32[3]
...   return %y
... }
... ''')
>>> session = weft_nn.compile(model, external=["halver:factor=4"])
>>> session.run({"x": np.zeros(3, np.float32)})["y"]
array([2., 2., 2.], dtype=float32)

An importer makes nodes of Weft of an operator in an ONNX file that Weft does not know; a compute expression is one:

>>> @weft_nn.register_onnx("acme", "Scale")
... def scale(module, x, *, factor=1.0):
...     return module.add("mul", x, factor)
>>> @weft_nn.register_onnx("acme", "MishScale")
... @weft_nn.op
... def mish_scale(x, w):
...     return weft_nn.compute(x.shape, lambda n, c: weft_nn.mish(x[n, c]) * w[c])
"""

from __future__ import annotations

from typing import Any, Callable, Dict, Mapping, Optional, Sequence, Tuple, TypeVar, Union, overload

from ._errors import USAGE, Error
from ._native import NodeForm, Region, add_importer, add_target

Verdict = Union[bool, str, None]
_T = TypeVar("_T")


class ExternalTarget:
    """A library or a code generator that runs parts of a network; `register_target` makes it known.

    Methods are called from several threads at once, each with Python's lock. What they raise, `weft_nn.compile` or the
    run raises.
    """

    name: str = ""
    """Its name in `external=`, a word."""
    options: Mapping[str, str] = {}
    """Options, each with one sentence of help: `external=["acme:scale=2"]`. Every target has `min_macs`."""
    patterns: Sequence[Tuple[Any, ...]] = ()
    """Patterns of several nodes, the preferred ones first: `(name, pattern)` or `(name, pattern, check)`. Patterns are
    written as for `Module.find`; `check` gets the matched nodes, a list of NodeForm with the outermost first, and answers
    as `supports` does. The target takes what matches without being asked further."""
    is_native: bool = True
    """False if it runs no code but Weft's own, so that a bundle with it opens without `allow_native`."""

    def check(self, options: Dict[str, str]) -> None:
        """Raises an exception if the target cannot run on this machine; called before anything is compiled."""

    def supports(self, node: NodeForm, options: Dict[str, str]) -> Verdict:
        """Whether it runs this node: True, False, or a text that says why not, for `weft explain`.

        options: those that were given, as texts.
        """
        return False

    def estimate(self, region: Region, options: Dict[str, str]) -> Optional[float]:
        """Nanoseconds of a run of the region. A region that Weft would run faster stays with Weft; with None, the target
        takes all that it supports."""
        return None

    def prepare(self, region: Region, options: Dict[str, str]) -> Callable[..., Any]:
        """Returns a function that runs the region: called with an array for each of `region.inputs`, which may not be
        written, it returns an array, or a list of arrays, of the types and shapes of `region.outputs`.

        It is called before the first run, and again for other sizes of dimensions that stay open.
        """
        raise NotImplementedError(f"the external target {self.name} has no `prepare`")


def register_target(target: _T) -> _T:
    """Adds an external target, which `external=` of `weft_nn.compile` then names. One of the same name takes the place of
    the old one.

    target: an object with the methods of ExternalTarget, or a class of such, which is called without arguments.

    Returns the target, so that it stands in front of a class: `@weft_nn.register_target`.

    Raises weft_nn.Error (code 2) for a name that a target of Weft's has, and for texts that are no patterns.
    """
    made: Any = target() if isinstance(target, type) else target
    rows = []
    for row in made.patterns:
        if not 2 <= len(row) <= 3 or not all(isinstance(text, str) for text in row[:2]):
            raise Error(f"{row!r} is no row of patterns", USAGE, None, "write (name, pattern) or (name, pattern, check)")
        rows.append((row[0], row[1], row[2] if len(row) == 3 else None))
    add_target(made, made.name, list(made.options.items()), rows, bool(made.is_native))
    return target


@overload
def register_onnx(domain: str, operator: str, importer: _T) -> _T: ...
@overload
def register_onnx(domain: str, operator: str, importer: None = None) -> Callable[[_T], _T]: ...
def register_onnx(domain: str, operator: str, importer: Any = None) -> Any:
    """Lets a function import an operator that Weft does not know. A second one takes the place of the first.

    domain: of the operator, such as "com.acme". operator: its name.
    importer: an op of `weft_nn.op`; or a function of a Module, the operands (Value, or None for one that is absent) and
        the attributes as keyword arguments, which returns the result, or a list of several. It adds nodes at the end,
        `module.add("mul", x, 2.0)`. An operand that is a constant of the model has its array in `constant`.

    Returns the importer; without one, a function for `@weft_nn.register_onnx("com.acme", "Op")`.

    Raises weft_nn.Error (code 2) for an operator that Weft imports itself. What an importer raises, the function that loads
    the model raises.
    """
    if importer is None:
        return lambda function: register_onnx(domain, operator, function)
    if not callable(importer):
        raise Error(f"{importer!r} is no importer", USAGE, None, "give a function, or an op of weft_nn.op")
    add_importer("" if domain == "ai.onnx" else domain, operator, importer)
    return importer
