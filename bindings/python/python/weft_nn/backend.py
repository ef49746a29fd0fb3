"""A backend for the package onnx (`onnx.backend.base`).

>>> import onnx.parser
>>> import numpy as np
>>> import weft_nn.backend as backend
>>> model = onnx.parser.parse_model('''
... <ir_version: 8, opset_import: ["" : 17]>
... main (float[2] x) => (float[2] y) { y = Neg(x) }
... ''')
>>> backend.prepare(model).run([np.array([1, -2], np.float32)])[0]
array([-1.,  2.], dtype=float32)

The device "CPU" is Weft's CPU executor, and "CUDA", onnx's name for a GPU, the best device there is.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import numpy as np
import onnx
import onnx.shape_inference
from numpy.typing import NDArray
from onnx.backend.base import Backend, BackendRep, Device, DeviceType, namedtupledict

from ._errors import UNSUPPORTED, Error
from ._native import Session, compile, load

# Inputs of at most one dimension and so many elements may become constants.
_SMALL = 64


def _device(device: str) -> str:
    """The device of `weft_nn.compile`."""
    return "cpu" if Device(device).type == DeviceType.CPU else "auto"


class WeftBackendRep(BackendRep):
    """A model that runs on inputs of any sizes: it is compiled when sizes come up first."""

    def __init__(self, model: onnx.ModelProto, device: str, options: Dict[str, Any]) -> None:
        self._model = model
        self._options = dict(options, device=device)
        self._sessions: Dict[Any, Tuple[Session, Dict[str, NDArray[Any]]]] = {}
        constants = {tensor.name for tensor in model.graph.initializer}
        self._inputs = [v.name for v in model.graph.input if v.name not in constants]
        self._outputs = [v.name for v in model.graph.output]

    def run(self, inputs: Any, **kwargs: Any) -> Tuple[Any, ...]:
        """The results for inputs in the model's order, or by name."""
        given = inputs if isinstance(inputs, dict) else dict(zip(self._inputs, inputs))
        arrays = {name: np.asarray(array) for name, array in given.items()}
        session, fixed = self._session(arrays)
        if any(not np.array_equal(arrays[name], value) for name, value in fixed.items()):
            # The model was compiled for other values of inputs that are constants there.
            self._sessions.clear()
            session, fixed = self._session(arrays)
        results = session.run({name: array for name, array in arrays.items() if name not in fixed})
        return namedtupledict("Outputs", self._outputs)(*(results[name] for name in self._outputs))

    def _session(self, arrays: Dict[str, NDArray[Any]]) -> Tuple[Session, Dict[str, NDArray[Any]]]:
        """The session for inputs of these sizes, and the inputs that are constants in it."""
        key = tuple((name, array.shape) for name, array in arrays.items())
        if key not in self._sessions:
            self._sessions[key] = self._compiled(arrays)
        return self._sessions[key]

    def _compiled(self, arrays: Dict[str, NDArray[Any]]) -> Tuple[Session, Dict[str, NDArray[Any]]]:
        try:
            return self._with_constants(arrays, {}), {}
        except Error as error:
            reason = error
        # Sizes and axes that an operator needs before a run are inputs here: behind the first one, if that will do.
        small = {name: a.copy() for name, a in arrays.items() if a.ndim <= 1 and a.size <= _SMALL}
        for values in [{name: a for name, a in small.items() if name != self._inputs[0]}, small]:
            try:
                return self._with_constants(arrays, values), values
            except Error:
                pass
        raise reason

    def _with_constants(self, arrays: Dict[str, NDArray[Any]], values: Dict[str, NDArray[Any]]) -> Session:
        shapes: Dict[str, Sequence[int]] = {name: list(array.shape) for name, array in arrays.items() if name not in values}
        return compile(load(self._model, shapes=shapes, values=values), **self._options)


class WeftBackend(Backend):
    """Weft as a backend. Keyword arguments of `prepare` are options of `weft_nn.compile`."""

    @classmethod
    def is_compatible(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> bool:
        """False for a model with operators that Weft does not have, even if small inputs became constants."""
        try:
            load(model, keep_open=True)
        except Error as error:
            small = [v for v in model.graph.input if len(v.type.tensor_type.shape.dim) <= 1]
            return error.code != UNSUPPORTED or bool(small)
        return True

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> WeftBackendRep:
        """The model on a device."""
        super().prepare(model, device, **kwargs)
        return WeftBackendRep(model, _device(device), kwargs)

    @classmethod
    def run_node(
        cls,
        node: onnx.NodeProto,
        inputs: Any,
        device: str = "CPU",
        outputs_info: Optional[Sequence[Tuple[np.dtype[Any], Tuple[int, ...]]]] = None,
        **kwargs: Any,
    ) -> Optional[Tuple[Any, ...]]:
        """The results of a node. `outputs_info`: types and shapes of the results, where they are known."""
        super().run_node(node, inputs, device, outputs_info, **kwargs)
        given = inputs if isinstance(inputs, dict) else dict(zip([n for n in node.input if n], inputs))
        arrays = {name: np.asarray(array) for name, array in given.items()}
        value: Callable[[str, Any, Any], onnx.ValueInfoProto] = lambda name, dtype, shape: onnx.helper.make_tensor_value_info(
            name, onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), shape
        )
        ins = [value(name, array.dtype, array.shape) for name, array in arrays.items()]
        names = [name for name in node.output if name]
        outs: List[onnx.ValueInfoProto] = [onnx.ValueInfoProto(name=name) for name in names]
        if outputs_info is not None:
            outs = [value(name, dtype, shape) for name, (dtype, shape) in zip(names, outputs_info)]
        opset = onnx.helper.make_operatorsetid(node.domain, kwargs.pop("opset_version", 17))
        graph = onnx.helper.make_graph([node], node.op_type, ins, outs)
        model = onnx.helper.make_model_gen_version(graph, opset_imports=[opset])
        return cls.prepare(onnx.shape_inference.infer_shapes(model), device, **kwargs).run(arrays)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """True for "CPU" and "CUDA"."""
        return Device(device).type in (DeviceType.CPU, DeviceType.CUDA)


is_compatible = WeftBackend.is_compatible
prepare = WeftBackend.prepare
run_model = WeftBackend.run_model
run_node = WeftBackend.run_node
supports_device = WeftBackend.supports_device
