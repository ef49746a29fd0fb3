#!/usr/bin/env python3
"""One-node models of products of every kind, for `cpu_peer.py`.

    scripts/cpu_products.py FOLDER
    scripts/cpu_peer.py target/release/examples/run_model FOLDER/*.onnx

Products and convolutions of bytes, of i32, f64 and f16; 1 to 8 rows with weights of f32 and f16; an attention's output
projection behind a transpose; a recurrent network.
"""
import os
import sys

import numpy as np
import onnx
from onnx import TensorProto as T
from onnx import helper, numpy_helper

rng = np.random.default_rng(0)
node = helper.make_node
value = helper.make_tensor_value_info
folder = sys.argv[1]
os.makedirs(folder, exist_ok=True)


def save(name, nodes, inputs, result, constants):
    constants = [numpy_helper.from_array(np.ascontiguousarray(array), name) for name, array in constants.items()]
    graph = helper.make_graph(nodes, "g", inputs, [result], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, os.path.join(folder, f"{name}.onnx"))


def weights(*shape):
    return rng.integers(-127, 127, shape).astype(np.int8)


ROWS, DEPTH, COLUMNS = 64, 768, 3072
b = weights(DEPTH, COLUMNS)
point, no_point = np.uint8(128), np.int8(0)
scales = {"s": np.float32(0.02), "t": np.float32(0.01), "z": point, "zw": no_point}
a, y = value("a", T.UINT8, [ROWS, DEPTH]), value("y", T.INT32, [ROWS, COLUMNS])
save("matmul-integer", [node("MatMulInteger", ["a", "b", "z"], ["y"])], [a], y, {"b": b, "z": point})
quantised = node("QLinearMatMul", ["a", "s", "z", "b", "t", "zw", "s", "z"], ["y"])
save("qlinear-matmul", [quantised], [a], value("y", T.UINT8, [ROWS, COLUMNS]), {"b": b} | scales)
dynamic = [
    node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"]),
    node("MatMulInteger", ["q", "b", "z"], ["i"]),
    node("Cast", ["i"], ["f"], to=T.FLOAT),
    node("Mul", ["f", "s"], ["y"]),
]
x, y = value("x", T.FLOAT, [ROWS, DEPTH]), value("y", T.FLOAT, [ROWS, COLUMNS])
save("dynamic-quantised", dynamic, [x], y, {"b": b})
save("matmul-f32", [node("MatMul", ["x", "b"], ["y"])], [x], y, {"b": b.astype(np.float32)})

C, SIDE = 32, 32
w, image = weights(C, C, 3, 3), value("x", T.UINT8, [1, C, SIDE, SIDE])
integers = value("y", T.INT32, [1, C, SIDE, SIDE])
plain = node("ConvInteger", ["x", "w", "z"], ["y"], pads=[1] * 4)
save("conv-integer", [plain], [image], integers, {"w": w, "z": point})
lone = node("ConvInteger", ["x", "w", "z"], ["y"], pads=[1] * 4, group=C)
save("conv-integer-depthwise", [lone], [image], integers, {"w": w[:, :1], "z": point})
quantised = node("QLinearConv", ["x", "s", "z", "w", "t", "zw", "s", "z"], ["y"], pads=[1] * 4)
save("qlinear-conv", [quantised], [image], value("y", T.UINT8, [1, C, SIDE, SIDE]), {"w": w} | scales)

N = 128
for name, kind, t in (("i32", T.INT32, np.int32), ("f64", T.DOUBLE, np.float64), ("f16", T.FLOAT16, np.float16)):
    square = [value(v, kind, [N, N]) for v in "ay"]
    save(f"matmul-{name}", [node("MatMul", ["a", "b"], ["y"])], square[:1], square[1], {"b": weights(N, N).astype(t)})

for rows in (1, 2, 4, 8):
    for depth, columns in ((1024, 2816), (2048, 5632)):
        a, y = value("a", T.FLOAT, [rows, depth]), value("y", T.FLOAT, [rows, columns])
        own = (rng.standard_normal((depth, columns)) / 32).astype(np.float32)
        save(f"rows-{rows}x{depth}x{columns}", [node("MatMul", ["a", "b"], ["y"])], [a], y, {"b": own})
        a, y = value("a", T.FLOAT16, [rows, depth]), value("y", T.FLOAT16, [rows, columns])
        half = {"b": own.astype(np.float16)}
        save(f"rows-{rows}x{depth}x{columns}-f16", [node("MatMul", ["a", "b"], ["y"])], [a], y, half)

HEADS, LENGTH, SIZE = 12, 64, 64
projection = [
    node("MatMul", ["p", "v"], ["o"]),
    node("Transpose", ["o"], ["t"], perm=[0, 2, 1, 3]),
    node("Reshape", ["t", "shape"], ["r"]),
    node("MatMul", ["r", "w"], ["y"]),
]
given = [value("p", T.FLOAT, [1, HEADS, LENGTH, LENGTH]), value("v", T.FLOAT, [1, HEADS, LENGTH, SIZE])]
all_heads = HEADS * SIZE
square = rng.standard_normal((all_heads, all_heads)).astype(np.float32)
constants = {"shape": np.array([1, LENGTH, all_heads]), "w": square}
save("attention-projection", projection, given, value("y", T.FLOAT, [1, LENGTH, all_heads]), constants)

recurrent = {name: (rng.standard_normal((1, 256, 64)) / 10).astype(np.float32) for name in "wr"}
steps = value("x", T.FLOAT, [25, 1, 64])
cell = node("LSTM", ["x", "w", "r"], ["y"], hidden_size=64)
save("lstm", [cell], [steps], value("y", T.FLOAT, [25, 1, 1, 64]), recurrent)
