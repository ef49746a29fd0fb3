#!/usr/bin/env python3
"""One-node models of convolutions of every kind, for `cpu_peer.py`.

    scripts/cpu_convolutions.py FOLDER [--nhwc]
    scripts/cpu_peer.py target/release/examples/run_model FOLDER/*.onnx
    AMP=fp16 scripts/cpu_peer.py target/release/examples/run_model FOLDER/*.onnx

Group (1, 2, 3, 4, 16, 32, each channel its own) x rank (1-D, 2-D, 3-D) x kind (plain, transposed, dilated, stride 2)
over 96 channels with windows of 3, the smallest image of at least 20 MFLOP. With `--nhwc` data and result have their
channels last: transposes are around the convolution, as exporters of TensorFlow write them. `AMP=fp16` is Weft's alone.
"""
import os
import sys

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

CHANNELS, LEAST_WORK = 96, 20e6
KINDS = {
    "plain": {},
    "transposed": {"strides": 2, "output_padding": 1},
    "dilated": {"dilations": 2, "padding": 2},
    "stride2": {"strides": 2},
}


def model(group, rank, kind, last):
    own = KINDS[kind]
    stride = own.get("strides", 1)
    taps = 3**rank
    per_place = 2 * CHANNELS * (CHANNELS // group) * taps
    # Windows lie at every place of the result, those of a transposed convolution at every place of the data.
    places = lambda side: side**rank if kind == "transposed" else (-(-side // stride)) ** rank
    side = next(n for n in range(8 if rank == 3 else 16, 1 << 20) if places(n) * per_place >= LEAST_WORK)
    attributes = {"group": group, "pads": [own.get("padding", 1)] * 2 * rank}
    attributes |= {name: [own[name]] * rank for name in ("strides", "dilations", "output_padding") if name in own}
    rng = np.random.default_rng(1)
    weights = rng.uniform(-1, 1, [CHANNELS, CHANNELS // group] + [3] * rank).astype(np.float32)
    bias = rng.uniform(-1, 1, [CHANNELS]).astype(np.float32)
    op = "ConvTranspose" if kind == "transposed" else "Conv"
    nodes = [helper.make_node(op, ["x", "w", "b"], ["y"], **attributes)]
    value = lambda name, shape: helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
    data, result = value("x", [1, CHANNELS] + [side] * rank), "y"
    if last:
        transpose = lambda a, b, perm: helper.make_node("Transpose", [a], [b], perm=perm)
        data, result = value("x_last", [1] + [side] * rank + [CHANNELS]), "y_last"
        nodes.insert(0, transpose("x_last", "x", [0, rank + 1, *range(1, rank + 1)]))
        nodes.append(transpose("y", "y_last", [0, *range(2, rank + 2), 1]))
    constants = [numpy_helper.from_array(weights, "w"), numpy_helper.from_array(bias, "b")]
    graph = helper.make_graph(nodes, "g", [data], [value(result, None)], constants)
    return onnx.shape_inference.infer_shapes(
        helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)])
    )


folder, last = sys.argv[1], sys.argv[2:] == ["--nhwc"]
os.makedirs(folder, exist_ok=True)
for rank in (1, 2, 3):
    for group in (1, 2, 3, 4, 16, 32, CHANNELS):
        for kind in KINDS:
            onnx.save(model(group, rank, kind, last), os.path.join(folder, f"{rank}d-{group:02}-{kind}.onnx"))
