#!/usr/bin/env python3
"""ONNX Runtime's CPU time on one thread against Weft's C and Weft's own CPU target, interleaved.

    scripts/c_peer.py target/debug/weft target/debug/examples/run_model MODEL.onnx... [--cc gcc --cc clang]
        [--rounds 3] [--runs 5] [--size 1x3x224x224] [--convolutions]

Each model is exported (`weft export --c`) and built with each compiler; the seconds of CPU time of the build are printed. Each
round runs all of them one after the other; printed are medians over the rounds of the fastest run of each, and ONNX
Runtime's time by each, and the time of Weft's CPU target by that of the C. `--convolutions` adds ten networks of one convolution each.
"""
import argparse
import os
import pathlib
import re
import resource
import statistics
import subprocess
import tempfile
import time

import numpy as np
import onnxruntime as ort

OPTIONS = "-std=c11 -Wall -Wextra -Werror -O3 -march=native -ffp-contract=fast -fno-math-errno -fno-trapping-math".split()

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("weft")
parser.add_argument("run_model")
parser.add_argument("models", nargs="*")
parser.add_argument("--cc", action="append")
parser.add_argument("--rounds", type=int, default=3)
parser.add_argument("--runs", type=int, default=5)
parser.add_argument("--size")
parser.add_argument("--convolutions", action="store_true")
args = parser.parse_args()

# Channels in and out, height and width, kernel, stride, groups: of resnet50, mobilenet_v2, squeezenet and vit_b_16.
CONVOLUTIONS = [
    (3, 64, 224, 7, 2, 1),
    (64, 64, 56, 3, 1, 1),
    (64, 256, 56, 1, 1, 1),
    (128, 128, 28, 3, 1, 1),
    (256, 256, 14, 3, 1, 1),
    (512, 2048, 7, 1, 1, 1),
    (96, 96, 112, 3, 2, 96),
    (144, 144, 56, 3, 1, 144),
    (16, 64, 55, 3, 1, 1),
    (3, 768, 224, 16, 16, 1),
]


def convolution(folder, channels, results, size, kernel, stride, groups):
    """A network of one convolution, as a file."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    rng = np.random.default_rng(1)
    weights = rng.standard_normal((results, channels // groups, kernel, kernel)).astype(np.float32)
    pad = 0 if kernel == stride else kernel // 2
    to = (size + 2 * pad - kernel) // stride + 1
    node = helper.make_node(
        "Conv", ["x", "w", "b"], ["y"], kernel_shape=[kernel] * 2, strides=[stride] * 2, pads=[pad] * 4, group=groups
    )
    value = lambda name, shape: helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
    constants = [
        numpy_helper.from_array(weights, "w"),
        numpy_helper.from_array(rng.standard_normal(results).astype(np.float32), "b"),
    ]
    graph = helper.make_graph(
        [node], "convolution", [value("x", [1, channels, size, size])], [value("y", [1, results, to, to])], constants
    )
    path = folder / f"conv_{channels}x{results}_{size}_{kernel}x{kernel}_s{stride}_g{groups}.onnx"
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, path)
    return str(path)


def session(model):
    options = ort.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    return ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def build(model, cc, at):
    subprocess.run([args.weft, "export", model, "--c", at, "--quiet"], check=True)
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    subprocess.run([cc, *OPTIONS, "network.c", "main.c", "-lm", "-o", "network"], cwd=at, check=True)
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before


def c_ms(at, inputs):
    for i, x in enumerate(inputs):
        x.tofile(at / f"in{i}")
    header = (at / "network.h").read_text()
    outputs = int(re.search(r"NETWORK_OUTPUTS (\d+)", header)[1])
    words = ["./network", "-n", str(args.runs), "weights.bin"]
    words += [f"in{i}" for i in range(len(inputs))] + [f"out{i}" for i in range(outputs)]
    said = subprocess.run(words, cwd=at, check=True, capture_output=True, text=True).stderr
    return float(said.split()[0])


def native_ms(model, sizes):
    env = dict(os.environ, **({"SIZES": "x".join(map(str, sizes))} if sizes else {}))
    words = [args.run_model, model, "1", str(args.runs), "best", "times"]
    out = subprocess.run(words, env=env, check=True, capture_output=True, text=True).stdout
    return min(float(line.split()[1]) for line in out.splitlines() if line.startswith("cpu "))


def ort_ms(s, feed):
    best = float("inf")
    for _ in range(args.runs):
        start = time.process_time()
        s.run(None, feed)
        best = min(best, time.process_time() - start)
    return best * 1e3


def compare(model, sizes):
    s = session(model)
    rng = np.random.default_rng(0)
    shape = lambda i: sizes or [n if isinstance(n, int) else 1 for n in i.shape]
    feed = {i.name: rng.standard_normal(shape(i)).astype(np.float32) for i in s.get_inputs()}
    with tempfile.TemporaryDirectory() as folder:
        builds = {}
        for cc in args.cc or ["cc"]:
            at = pathlib.Path(folder) / re.sub(r"\W", "_", cc)
            seconds = build(model, cc, at)
            builds[cc] = at
            want = s.run(None, feed)[0].ravel()
            c_ms(at, list(feed.values()))
            error = np.abs(np.fromfile(at / "out0", np.float32) - want).max()
            print(f"{pathlib.Path(model).stem}: {cc} builds in {seconds:.1f} s of CPU time; error {error:.1e} of {np.abs(want).max():.1e}")
        times = {name: [] for name in ["ONNX Runtime", "Weft", *builds]}
        for _ in range(args.rounds):
            times["ONNX Runtime"].append(ort_ms(s, feed))
            times["Weft"].append(native_ms(model, sizes))
            for cc, at in builds.items():
                times[cc].append(c_ms(at, list(feed.values())))
        median = {name: statistics.median(list_) for name, list_ in times.items()}
        base = median["ONNX Runtime"]
        ratio = lambda name: f", {median['Weft'] / median[name]:.2f} of Weft" if name in builds else ""
        print("  " + ", ".join(f"{name} {ms:.2f} ms ({base / ms:.2f}{ratio(name)})" for name, ms in median.items()), flush=True)


sizes = [int(n) for n in args.size.split("x")] if args.size else None
for model in args.models:
    compare(model, sizes)
if args.convolutions:
    with tempfile.TemporaryDirectory() as folder:
        for shape in CONVOLUTIONS:
            compare(convolution(pathlib.Path(folder), *shape), None)
