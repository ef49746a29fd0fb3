#!/usr/bin/env python3
"""Networks of kinds that the zoo has not, with random weights, for `cpu_peer.py`.

    scripts/cpu_networks.py FOLDER
    scripts/cpu_peer.py target/release/examples/run_model FOLDER/*.onnx

RegNetX-400MF, ResNeXt-50 (32x4d), ShuffleNet v1 (3 groups) and v2 (x1), R3D-18, a U-Net with transposed convolutions
and MiniLM-L6 for 128 tokens, as their papers give them, with batch normalisation folded. Weights are scaled so that
values keep their size.
"""
import os
import sys

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


class Net:
    def __init__(self, shape):
        self.rng = np.random.default_rng(1)
        self.nodes, self.constants, self.input, self.count = [], [], shape, 0

    def add(self, op, inputs, **attributes):
        self.count += 1
        name = f"{op.lower()}_{self.count}"
        self.nodes.append(helper.make_node(op, inputs, [name], name, **attributes))
        return name

    def constant(self, array):
        self.count += 1
        name = f"c_{self.count}"
        self.constants.append(numpy_helper.from_array(array, name))
        return name

    def weights(self, *shape, fan=None):
        scale = np.sqrt(2 / (fan or np.prod(shape[1:])))
        return self.constant((self.rng.standard_normal(shape) * scale).astype(np.float32))

    def conv(self, x, c, to, k=1, stride=1, groups=1, relu=True, rank=2):
        w = self.weights(to, c // groups, *[k] * rank)
        bias = self.constant(np.zeros(to, np.float32))
        y = self.add("Conv", [x, w, bias], group=groups, pads=[k // 2] * 2 * rank, strides=[stride] * rank)
        return self.add("Relu", [y]) if relu else y

    def head(self, x, c, classes=1000):
        y = self.add("Flatten", [self.add("GlobalAveragePool", [x])])
        return self.add("Gemm", [y, self.weights(classes, c)], transB=1)

    def pool(self, x, op="MaxPool", k=3, stride=2):
        return self.add(op, [x], kernel_shape=[k] * 2, strides=[stride] * 2, pads=[k // 2] * 4)

    def save(self, path, result, dtype=TensorProto.FLOAT):
        inputs = [helper.make_tensor_value_info("x", dtype, self.input)]
        outputs = [helper.make_tensor_value_info(result, TensorProto.FLOAT, None)]
        graph = helper.make_graph(self.nodes, "g", inputs, outputs, self.constants)
        model = helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)])
        onnx.save(onnx.shape_inference.infer_shapes(model), path)


def bottlenecks(n, x, c, stages, groups):
    """Stages of (blocks, inner channels, channels, first stride)."""
    for blocks, inner, to, first in stages:
        for i in range(blocks):
            stride = first if i == 0 else 1
            y = n.conv(n.conv(x, c, inner), inner, inner, 3, stride, groups(inner))
            y = n.conv(y, inner, to, relu=False)
            short = x if c == to and stride == 1 else n.conv(x, c, to, 1, stride, relu=False)
            x, c = n.add("Relu", [n.add("Add", [y, short])]), to
    return n.head(x, c)


def regnet(path):
    n = Net([1, 3, 224, 224])
    x = n.conv("x", 3, 32, 3, 2)
    stages = [(1, 32, 32, 2), (2, 64, 64, 2), (7, 160, 160, 2), (12, 384, 384, 2)]
    n.save(path, bottlenecks(n, x, 32, stages, lambda c: c // 16))


def resnext(path):
    n = Net([1, 3, 224, 224])
    x = n.pool(n.conv("x", 3, 64, 7, 2))
    stages = [(3, 128, 256, 1), (4, 256, 512, 2), (6, 512, 1024, 2), (3, 1024, 2048, 2)]
    n.save(path, bottlenecks(n, x, 64, stages, lambda c: 32))


def shuffle(n, x, c, side, groups):
    x = n.add("Reshape", [x, n.constant(np.array([1, groups, c // groups, side, side]))])
    x = n.add("Transpose", [x], perm=[0, 2, 1, 3, 4])
    return n.add("Reshape", [x, n.constant(np.array([1, c, side, side]))])


def shufflenet_v1(path):
    n, groups = Net([1, 3, 224, 224]), 3
    x, c, side = n.pool(n.conv("x", 3, 24, 3, 2)), 24, 56
    for blocks, to in [(4, 240), (8, 480), (4, 960)]:
        for i in range(blocks):
            out, stride = (to - c, 2) if i == 0 else (to, 1)
            inner = to // 4
            y = n.conv(x, c, inner, groups=1 if c == 24 else groups)
            y = n.conv(shuffle(n, y, inner, side, groups), inner, inner, 3, stride, inner, relu=False)
            y = n.conv(y, inner, out, groups=groups, relu=False)
            y = n.add("Concat", [n.pool(x, "AveragePool"), y], axis=1) if i == 0 else n.add("Add", [x, y])
            x, c, side = n.add("Relu", [y]), to, side // stride
    n.save(path, n.head(x, c))


def shufflenet_v2(path):
    n = Net([1, 3, 224, 224])
    x, c, side = n.pool(n.conv("x", 3, 24, 3, 2)), 24, 56
    for blocks, to in [(4, 116), (8, 232), (4, 464)]:
        for i in range(blocks):
            half, stride = to // 2, 2 if i == 0 else 1
            if i == 0:
                left = n.conv(n.conv(x, c, c, 3, 2, c, relu=False), c, half)
                right, own = x, c
            else:
                sizes = n.constant(np.array([half, half]))
                left, right = f"left_{n.count}", f"right_{n.count}"
                n.nodes.append(helper.make_node("Split", [x, sizes], [left, right], axis=1))
                own = half
            y = n.conv(n.conv(right, own, half), half, half, 3, stride, half, relu=False)
            y = n.add("Concat", [left, n.conv(y, half, half)], axis=1)
            c, side = to, side // stride
            x = shuffle(n, y, c, side, 2)
    n.save(path, n.head(n.conv(x, c, 1024), 1024))


def r3d(path):
    n = Net([1, 3, 16, 112, 112])
    w = n.weights(64, 3, 3, 7, 7)
    x = n.add("Conv", ["x", w], pads=[1, 3, 3, 1, 3, 3], strides=[1, 2, 2])
    x, c = n.add("Relu", [x]), 64
    for i, to in enumerate([64, 128, 256, 512]):
        for block in range(2):
            stride = 2 if i > 0 and block == 0 else 1
            y = n.conv(n.conv(x, c, to, 3, stride, rank=3), to, to, 3, relu=False, rank=3)
            short = x if stride == 1 and c == to else n.conv(x, c, to, 1, stride, relu=False, rank=3)
            x, c = n.add("Relu", [n.add("Add", [y, short])]), to
    n.save(path, n.head(x, c, 400))


def unet(path):
    n = Net([1, 3, 256, 256])
    twice = lambda x, c, to: n.conv(n.conv(x, c, to, 3), to, to, 3)
    x, c, kept = "x", 3, []
    for to in [32, 64, 128, 256]:
        x, c = twice(x, c, to), to
        kept.append(x)
        x = n.add("MaxPool", [x], kernel_shape=[2, 2], strides=[2, 2])
    x, c = twice(x, c, 512), 512
    for to in [256, 128, 64, 32]:
        w = n.weights(c, to, 2, 2, fan=c)
        x = n.add("ConvTranspose", [x, w], kernel_shape=[2, 2], strides=[2, 2])
        x, c = twice(n.add("Concat", [kept.pop(), x], axis=1), 2 * to, to), to
    n.save(path, n.conv(x, c, 2, relu=False))


def minilm(path, tokens=128, d=384, heads=12, inner=1536):
    n = Net([1, tokens, d])
    dense = lambda x, c, to: n.add("Add", [n.add("MatMul", [x, n.weights(c, to, fan=c)]), n.weights(to, fan=1e6)])

    def norm(x):
        scale, bias = (n.constant(np.full(d, v, np.float32)) for v in (1, 0))
        return n.add("LayerNormalization", [x, scale, bias], axis=-1)

    def split(x, perm):
        x = n.add("Reshape", [x, n.constant(np.array([1, tokens, heads, d // heads]))])
        return n.add("Transpose", [x], perm=perm)

    x = norm("x")
    for _ in range(6):
        q, k, v = dense(x, d, d), dense(x, d, d), dense(x, d, d)
        q, k, v = split(q, [0, 2, 1, 3]), split(k, [0, 2, 3, 1]), split(v, [0, 2, 1, 3])
        s = n.add("Div", [n.add("MatMul", [q, k]), n.constant(np.float32(np.sqrt(d // heads)))])
        y = n.add("Transpose", [n.add("MatMul", [n.add("Softmax", [s], axis=-1), v])], perm=[0, 2, 1, 3])
        y = dense(n.add("Reshape", [y, n.constant(np.array([1, tokens, d]))]), d, d)
        x = norm(n.add("Add", [x, y]))
        y = dense(x, d, inner)
        e = n.add("Erf", [n.add("Div", [y, n.constant(np.float32(np.sqrt(2)))])])
        y = n.add("Mul", [n.add("Mul", [y, n.add("Add", [e, n.constant(np.float32(1))])]), n.constant(np.float32(0.5))])
        x = norm(n.add("Add", [x, dense(y, inner, d)]))
    n.save(path, x)


folder = sys.argv[1]
os.makedirs(folder, exist_ok=True)
for make in (regnet, resnext, shufflenet_v1, shufflenet_v2, r3d, unet, minilm):
    make(os.path.join(folder, f"{make.__name__}.onnx"))
