#!/usr/bin/env python3
"""quantised.py MODEL.onnx INPUTS.npz [--weft BIN] [--prefix "PROG ARGS"] [--rounds N] [--runs N] [--keep DIR]

Quantises a model to int8 with ONNX Runtime's quantiser (QDQ, calibrated by the inputs; one scale a tensor, and one a channel of weights),
runs the result with Weft as it takes it itself and with the rule `matmul-dot` asked for by name, and holds both against ONNX Runtime
without optimisations. Errors are in steps of the result's last quantisation. Then times, in interleaved rounds, beside the model in f32:
medians of `weft bench`, in milliseconds. --prefix runs Weft through another program, such as a script that selects a Vulkan driver.
Needs onnx, onnxruntime and numpy."""
import argparse, json, pathlib, shlex, statistics, subprocess, sys, tempfile

import numpy as np
import onnx
import onnxruntime as ort
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
from onnxruntime.quantization.shape_inference import quant_pre_process

VARIANTS = [("u8, a scale a tensor", False, QuantType.QUInt8), ("u8, a scale a channel", True, QuantType.QUInt8), ("i8, a scale a channel", True, QuantType.QInt8)]
RULES = [("as it comes", []), ("matmul-dot", ["--rules", "matmul-dot"])]


class Inputs(CalibrationDataReader):
    def __init__(self, feed):
        self.left = [feed]

    def get_next(self):
        return self.left.pop() if self.left else None


def feed_of(model, inputs):
    data = np.load(inputs)
    names = [i.name for i in ort.InferenceSession(model).get_inputs()]
    return {n: data[n if n in data else data.files[i]] for i, n in enumerate(names)}


def last_step(model):
    """The scale of the last DequantizeLinear."""
    graph = onnx.load(model).graph
    constants = {t.name: onnx.numpy_helper.to_array(t) for t in graph.initializer}
    scales = [constants[n.input[1]] for n in graph.node if n.op_type == "DequantizeLinear" and n.input[1] in constants]
    return float(np.max(scales[-1]))


def reference(model, feed):
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(model, options)
    return dict(zip([o.name for o in session.get_outputs()], session.run(None, feed)))


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("model"), p.add_argument("inputs")
    p.add_argument("--weft", default="target/release/weft"), p.add_argument("--prefix", default="")
    p.add_argument("--rounds", type=int, default=3), p.add_argument("--runs", type=int, default=10), p.add_argument("--keep")
    a = p.parse_args()
    folder = pathlib.Path(a.keep or tempfile.mkdtemp())
    folder.mkdir(parents=True, exist_ok=True)
    weft = shlex.split(a.prefix) + [a.weft]
    feed = feed_of(a.model, a.inputs)
    quant_pre_process(a.model, str(folder / "prepared.onnx"))
    failed, timed = False, [("f32", a.model, [])]
    for n, (title, per_channel, activations) in enumerate(VARIANTS):
        model = str(folder / f"quantised{n}.onnx")
        quantize_static(str(folder / "prepared.onnx"), model, Inputs(feed), quant_format=QuantFormat.QDQ, per_channel=per_channel,
                        activation_type=activations, weight_type=QuantType.QInt8)
        want, step = reference(model, feed), last_step(model)
        for rules, options in RULES:
            out = str(folder / "out.npz")
            subprocess.run([*weft, "run", model, "--device", "0", "-i", a.inputs, "-o", out, *options], check=True, stdout=subprocess.DEVNULL)
            got = np.load(out)
            worst = max(float(np.abs(got[k] - want[k]).max()) for k in want) / step
            same = min(float((np.abs(got[k] - want[k]) < step / 2).mean()) for k in want)
            first = all(got[k].argmax() == want[k].argmax() for k in want)
            failed |= worst > 1.001
            print(f"{title}, {rules}: off by {worst:.3f} steps at most, {same:.1%} the same, the largest result {'the same' if first else 'another'}", flush=True)
            if n == 1:
                timed.append((f"int8, {rules}", model, options))
    times = {title: [] for title, *_ in timed}
    for _ in range(a.rounds):
        for title, model, options in timed:
            report = str(folder / "bench.json")
            subprocess.run([*weft, "bench", model, "--device", "0", "--runs", str(a.runs), f"--json={report}", *options], check=True, stdout=subprocess.DEVNULL)
            times[title].append(json.load(open(report))["latency_ms"]["median"])
    for title, all_times in times.items():
        ratios = [t / f for t, f in zip(all_times, times["f32"])]
        print(f"{title}: {statistics.median(all_times):.1f} ms, {statistics.median(ratios):.2f} of f32")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
