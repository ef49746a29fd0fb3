#!/usr/bin/env python3
"""ONNX Runtime's CPU time on one thread against Weft's CPU target, interleaved.

    scripts/cpu_peer.py target/release/examples/run_model MODEL.onnx... [--rounds 5] [--runs 5] [--size 1x3x224x224]
        [--threads 1] [--input F.npz]

Both get the same inputs: random ones, or those of a file by name. Each round runs both one after the other; printed
are the medians over all runs and their ratio, then the least of both. With several threads these are times by the
clock.
"""
import argparse
import os
import statistics
import subprocess
import tempfile
import time

import numpy as np
import onnxruntime as ort

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("weft")
parser.add_argument("models", nargs="+")
parser.add_argument("--rounds", type=int, default=5)
parser.add_argument("--runs", type=int, default=5)
parser.add_argument("--size")
parser.add_argument("--threads", type=int, default=1)
parser.add_argument("--input", help="arrays by the names of the model's inputs")
args = parser.parse_args()


def session(model):
    options = ort.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads, options.inter_op_num_threads = args.threads, 1
    s = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    size = [int(n) for n in args.size.split("x")] if args.size else None
    rng = np.random.default_rng(1)
    fixed = lambda i: size or [d if isinstance(d, int) and d > 0 else 1 for d in i.shape]
    given = np.load(args.input) if args.input else {}
    types = {"tensor(float)": np.float32, "tensor(int64)": np.int64, "tensor(int32)": np.int32, "tensor(bool)": np.bool_}
    types |= {"tensor(float16)": np.float16, "tensor(double)": np.float64}
    types |= {"tensor(uint8)": np.uint8, "tensor(int8)": np.int8}

    def value(i):
        if i.name in given:
            return given[i.name]
        if i.type in ("tensor(uint8)", "tensor(int8)", "tensor(int32)"):
            return rng.integers(0, 100, fixed(i))
        if i.type not in ("tensor(float)", "tensor(float16)", "tensor(double)"):
            raise SystemExit(f"{model}: input {i.name} is {i.type}; give it with --input F.npz")
        return rng.uniform(-1, 1, fixed(i)).astype(np.float32)

    return s, {i.name: value(i).astype(types[i.type]) for i in s.get_inputs()}


def listed(feed, folder):
    """Writes the inputs as `run_model` reads them; gives the list's path."""
    lines = []
    for n, (name, array) in enumerate(feed.items()):
        file = os.path.join(folder, f"{n}.bin")
        np.ascontiguousarray(array).tofile(file)
        lines.append(f"{name} {'x'.join(map(str, array.shape))} {file}\n")
    path = os.path.join(folder, "inputs")
    with open(path, "w") as out:
        out.writelines(lines)
    return path


now = time.thread_time if args.threads == 1 else time.perf_counter
for model in args.models:
    s, feed = session(model)
    s.run(None, feed)
    theirs, ours = [], []
    folder = tempfile.TemporaryDirectory()
    env = dict(os.environ, INPUTS=listed(feed, folder.name))
    for _ in range(args.rounds):
        for _ in range(args.runs):
            start = now()
            s.run(None, feed)
            theirs.append((now() - start) * 1e3)
        out = subprocess.run([args.weft, model, str(args.threads), str(args.runs), "best", "times"], env=env, capture_output=True, text=True)
        column = 1 if args.threads == 1 else 3
        ours += [float(l.split()[column]) for l in out.stdout.splitlines() if l.startswith("cpu ")]
        if out.returncode != 0:
            raise SystemExit(out.stderr)
    a, b = statistics.median(theirs), statistics.median(ours)
    best = f", fastest {min(theirs):.3f} and {min(ours):.3f} ms"
    print(f"{os.path.basename(model)}: ONNX Runtime {a:.2f} ms, Weft {b:.2f} ms, ratio {a / b:.2f}{best}", flush=True)
