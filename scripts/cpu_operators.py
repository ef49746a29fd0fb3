#!/usr/bin/env python3
"""Models of one operator each, of 1 ms and more, for `cpu_peer.py`: what is no convolution (see `cpu_convolutions.py`).

    scripts/cpu_operators.py FOLDER
    scripts/cpu_peer.py target/release/examples/run_model FOLDER/*.onnx
"""
import os
import sys

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

FOLDER = sys.argv[1]
F32, I64, U8, I32 = TensorProto.FLOAT, TensorProto.INT64, TensorProto.UINT8, TensorProto.INT32
PLAIN, IMAGE, WIDE = [2048, 1024], [1, 64, 128, 128], [1, 64, 128, 256]
rng = np.random.default_rng(1)
node = helper.make_node


def save(name, nodes, shapes, constants={}, types=(F32,), data=F32, opset=17):
    """Inputs are `x` and `z` of these shapes, the results `y`, `s` and so on of these types."""
    value = lambda name, dtype, shape: helper.make_tensor_value_info(name, dtype, shape)
    inputs = [value(n, data, s) for n, s in zip("xz", shapes)]
    outputs = [value(n, t, None) for n, t in zip(nodes[-1].output, types)]
    fixed = [numpy_helper.from_array(np.asarray(a), n) for n, a in constants.items()]
    graph = helper.make_graph(nodes, "g", inputs, outputs, fixed)
    model = helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", opset)])
    onnx.save(onnx.shape_inference.infer_shapes(model), os.path.join(FOLDER, name + ".onnx"))


def one(name, op, shapes, constants={}, **attributes):
    """One node, whose operands are the inputs and then the constants."""
    operands = ["x", "z"][: len(shapes)] + list(constants)
    save(name, [node(op, operands, ["y"], **attributes)], shapes, constants)


def elementwise():
    ops = "Erf Tanh Sigmoid Exp Relu Sqrt Log Softplus HardSwish Neg LeakyRelu Elu Mish Floor Sin Reciprocal Abs"
    for op in ops.split():
        save("ew-" + op.lower(), [node(op, ["x"], ["y"])], [PLAIN], opset=18)
    one("ew-clip", "Clip", [PLAIN], {"a": np.float32(0), "b": np.float32(0.5)})
    gelu = [("Div", "xc", "a"), ("Erf", "a", "b"), ("Add", "bo", "d"), ("Mul", "xd", "e"), ("Mul", "eh", "y")]
    numbers = {n: np.float32(x) for n, x in (("c", 2**0.5), ("o", 1), ("h", 0.5))}
    save("ew-gelu", [node(op, list(of), [to]) for op, of, to in gelu], [PLAIN], numbers)
    for op in ("Add", "Mul", "Div", "Pow", "Max"):
        one("bin-" + op.lower(), op, [PLAIN, PLAIN])
    one("bin-addrow", "Add", [PLAIN, PLAIN[1:]])
    one("bin-addchannel", "Add", [WIDE, [1, 64, 1, 1]])
    one("prelu", "PRelu", [WIDE], {"s": np.full([64, 1, 1], 0.1, np.float32)})
    save("where", [node("Greater", ["x", "z"], ["c"]), node("Where", ["c", "x", "z"], ["y"])], [PLAIN, PLAIN])


def rows():
    joined = lambda shape: "x".join(map(str, shape))
    for shape in (PLAIN, [2048, 2048], [8192, 64], [12, 128, 128], [1, 16, 256, 1000]):
        one("softmax-" + joined(shape), "Softmax", [shape], axis=-1)
    one("softmax-axis1", "Softmax", [[16, 256, 256]], axis=1)
    one("logsoftmax", "LogSoftmax", [PLAIN], axis=-1)
    ones = lambda n, names: {name: np.ones(n, np.float32) for name in names}
    one("layernorm", "LayerNormalization", [PLAIN], ones(1024, "sb"), axis=-1)
    one("instancenorm", "InstanceNormalization", [IMAGE], ones(64, "sb"))
    one("batchnorm", "BatchNormalization", [IMAGE], ones(64, "sbmv"))
    for op in ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceProd", "ReduceL2"):
        for shape, axis in ((PLAIN, 1), (PLAIN, 0), ([64, 256, 128], 1)):
            axes = {"a": np.array([axis])} if op == "ReduceSum" else {}
            attributes = {} if axes else {"axes": [axis]}
            one(f"{op.lower()}-{joined(shape)}-{axis}", op, [shape], axes, keepdims=0, **attributes)


def movement():
    for shape, order in (
        ([1024, 2048], "10"), ([1, 96, 128, 128], "0231"), ([1, 128, 128, 96], "0312"), ([1, 512, 12, 64], "0213"),
        ([64, 64, 512], "102"), ([128, 64, 64, 4], "0213"), ([1, 2, 3000, 300], "0321"), ([16, 8, 8, 1024], "3021"),
        ([2000, 3, 300], "210"),
    ):  # fmt: skip
        one(f"tr-{'x'.join(map(str, shape))}-{order}", "Transpose", [shape], perm=list(map(int, order)))
    one("concat", "Concat", [[64, 100, 256]] * 2, axis=1)
    one("slice", "Slice", [[64, 200, 256]], {n: np.array([i]) for n, i in (("b", 3), ("e", 190), ("a", 1))})
    one("pad", "Pad", [IMAGE], {"p": np.array([0, 0, 1, 1, 0, 0, 1, 1])})
    one("expand", "Expand", [[64, 1, 256]], {"s": np.array([64, 100, 256])})
    one("gather", "Gather", [[4000, 256]], {"i": rng.integers(0, 4000, [8000])}, axis=0)
    one("d2s", "DepthToSpace", [[1, 256, 80, 80]], blocksize=2)
    one("maxpool-3s2", "MaxPool", [[1, 64, 224, 224]], kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    one("maxpool-2s2", "MaxPool", [[1, 64, 224, 224]], kernel_shape=[2, 2], strides=[2, 2])
    one("avgpool-3s1", "AveragePool", [[1, 64, 112, 112]], kernel_shape=[3, 3], pads=[1] * 4)
    one("globalavg", "GlobalAveragePool", [[1, 256, 112, 112]])
    nearest = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    for mode, attributes in (("nearest", nearest), ("linear", {})):
        resize = node("Resize", ["x", "", "s"], ["y"], mode=mode, **attributes)
        save("resize-" + mode, [resize], [[1, 64, 80, 80]], {"s": np.array([1, 1, 2, 2], np.float32)})


def integers():
    save("cast-i64", [node("Cast", ["x"], ["y"], to=I64)], [[1024, 1024]], types=[I64])
    scale = {"xs": np.float32(0.02), "xz": np.uint8(3)}
    result = {"ys": np.float32(0.5), "yz": np.uint8(128)}
    save("quantize", [node("QuantizeLinear", ["x", "xs", "xz"], ["y"])], [PLAIN], scale, [U8])
    save("dequantize", [node("DequantizeLinear", ["x", "xs", "xz"], ["y"])], [PLAIN], scale, data=U8)
    save("dynquantize", [node("DynamicQuantizeLinear", ["x"], ["y", "s", "z"])], [PLAIN], types=[U8, F32, U8])
    sides = [node("DequantizeLinear", [x, "xs", "xz"], [y]) for x, y in ("xa", "zb")]
    total = [node("Add", ["a", "b"], ["c"]), node("QuantizeLinear", ["c", "xs", "xz"], ["y"])]
    save("qlinearadd", sides + total, [PLAIN, PLAIN], scale, [U8], U8)
    for name, group, side in (("", 1, 80), ("-dw", 64, 112)):
        weights = rng.integers(-100, 100, [64, 64 // group, 3, 3]).astype(np.int8)
        window, shape = {"pads": [1] * 4, "group": group}, [1, 64, side, side]
        operands = ["x", "xs", "xz", "w", "ws", "wz", "ys", "yz"]
        own = {"w": weights, "ws": np.float32(0.02), "wz": np.int8(0)}
        conv = node("QLinearConv", operands, ["y"], **window)
        save("qlinearconv" + name, [conv], [shape], scale | own | result, [U8], U8)
        plain = node("ConvInteger", ["x", "w", "xz"], ["y"], **window)
        save("convinteger" + name, [plain], [shape], {"w": weights, "xz": np.uint8(3)}, [I32], U8)


os.makedirs(FOLDER, exist_ok=True)
for part in (elementwise, rows, movement, integers):
    part()
