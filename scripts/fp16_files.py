#!/usr/bin/env python3
"""fp16_files.py MODEL[=INPUTS.npz] ... [--weft BIN] [--device cpu] [--keep DIR]

Exports each model in f32, fp16 and auto, plain and optimised, and looks at each file: the ONNX checker (with types and shapes), whether ONNX
Runtime loads it, the error of its results beside those of the model (of a zoo network, its plain f32 file) in ONNX Runtime, and the share of float nodes and of bytes of
weights and results that are f16 (all counted with the four bytes that they have in f32), beside both shares of the compiled network, whose bytes
are those of weights and of what kernels store. Prints a table in Markdown; exits 1 if a file is refused
or errs beyond the tolerance. Without inputs they are seeded normal numbers. Calibration (auto) takes the same inputs.
Needs onnx, onnxruntime and numpy."""
import argparse, json, pathlib, re, subprocess, sys, tempfile

import numpy as np
import onnx
import onnx.inliner
import onnxruntime as ort

ort.set_default_logger_severity(4)
TOLERANCE = 1e-2  # of f16, as compiler::agreement has it
TYPES = {"tensor(float)": np.float32, "tensor(float16)": np.float16, "tensor(double)": np.float64, "tensor(int64)": np.int64, "tensor(int32)": np.int32,
         "tensor(bool)": np.bool_}
FLOATS = {onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16, onnx.TensorProto.DOUBLE, onnx.TensorProto.BFLOAT16}
OPEN = 6  # of sizes without a number


def inputs_of(session, given):
    rng, feed = np.random.default_rng(0), {}
    for i in session.get_inputs():
        if given is not None and i.name in given:
            feed[i.name] = given[i.name]
            continue
        sizes = {"batch": 1, "batch_size": 1, "past_sequence_length": OPEN - 2, "sequence_length": 2}
        shape = [d if isinstance(d, int) else sizes.get(d, OPEN) for d in i.shape]
        kind = TYPES[i.type]
        feed[i.name] = rng.standard_normal(shape).astype(kind) if np.issubdtype(kind, np.floating) else \
            (np.ones(shape, kind) if "mask" in i.name or kind == np.bool_ else rng.integers(0, 20, shape).astype(kind))
    return feed


def error_of(got, want):
    """The largest share of the tolerance that a result takes, by norm and by elements, and the largest relative error by norm."""
    used, norm = 0.0, 0.0
    for g, w in zip(got, want):
        if not np.issubdtype(w.dtype, np.floating):
            continue
        if g.shape != w.shape:
            return np.inf, np.inf
        g, w = g.astype(np.float64), w.astype(np.float64)
        if not np.isfinite(g).all() and np.isfinite(w).all():
            return np.inf, np.inf
        d = np.abs(g - w)
        relative = np.linalg.norm(d) / max(np.linalg.norm(w), 1e-30)
        norm = max(norm, relative)
        top = np.abs(w).max(initial=0)
        used = max(used, relative / TOLERANCE, (d / (TOLERANCE * (np.abs(w) + top) + 1e-30)).max(initial=0))
    return used, norm


def shares(path):
    """Float nodes and how many give f16, with those in functions; bytes in f32 of weights and of results whose sizes are known, and of those in f16."""
    model = onnx.shape_inference.infer_shapes(onnx.inliner.inline_local_functions(onnx.load(path)), data_prop=True)
    nodes, halves, size, half_size = 0, 0, 0, 0
    graph = model.graph
    for t in graph.initializer:
        bytes_of = (4 if t.data_type in FLOATS else 0) * int(np.prod(t.dims))
        size, half_size = size + bytes_of, half_size + (bytes_of if t.data_type == onnx.TensorProto.FLOAT16 else 0)
    info = {v.name: v.type.tensor_type for v in [*graph.value_info, *graph.output]}
    for n in graph.node:
        types = [info[o] for o in n.output if o in info and info[o].elem_type in FLOATS]
        if not types or n.op_type in ("Cast", "Constant"):
            continue
        nodes, halves = nodes + 1, halves + (types[0].elem_type == onnx.TensorProto.FLOAT16)
        for t in types:
            dims = [d.dim_value if d.HasField("dim_value") else 1 for d in t.shape.dim]
            bytes_of = 4 * int(np.prod(dims))
            size, half_size = size + bytes_of, half_size + (bytes_of if t.elem_type == onnx.TensorProto.FLOAT16 else 0)
    return nodes, halves, size, half_size


def compiled_share(a, model, amp, inputs):
    """Of the compiled network: float nodes in f16 of all, as the pass `mixed-precision` says, and the share of bytes that are stored in f16."""
    common = [model, "--amp", amp, "--device", a.device, "-i", inputs, "--json"]
    out = subprocess.run([a.weft, "compare", *common, "--against", "fp32"], capture_output=True, text=True)
    stored = (json.loads(out.stdout or "{}") or {}).get("mixed")
    nodes = subprocess.run([a.weft, "compile", *common], capture_output=True, text=True)
    found = re.findall(r"(\d+) of (\d+) float nodes in f16", nodes.stdout)
    nodes = f"{sum(int(f[0]) for f in found)} of {sum(int(f[1]) for f in found)}" if found else "-"
    return f"{nodes} | {2 * stored['saved_bytes'] / max(stored['fp32_bytes'], 1):.0%} of {stored['fp32_bytes'] / 1e6:.1f} MB" if stored else f"{nodes} | -"


def look(a, path, given, want):
    try:
        onnx.checker.check_model(str(path), full_check=True)
    except Exception as e:
        return f"checker: {str(e).splitlines()[0][:70]}", None, None, None
    try:
        session = ort.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    except Exception as e:
        return f"ORT: {str(e).splitlines()[0][:90]}", None, None, None
    feed = inputs_of(session, given)
    got = session.run(None, feed)
    return "loads", feed, got, error_of(got, want if want is not None else got)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("models", nargs="+"), p.add_argument("--weft", default="target/debug/weft"), p.add_argument("--device", default="cpu")
    p.add_argument("--keep"), p.add_argument("--skip-auto", default="", help="names of models, by commas")
    a = p.parse_args()
    folder = pathlib.Path(a.keep or tempfile.mkdtemp())
    folder.mkdir(parents=True, exist_ok=True)
    print("| network | amp | form | file | error (rel. norm) | of the tolerance | nodes that give f16 | bytes in f16 | compiled: nodes | compiled: bytes |")
    print("|---|---|---|---|---|---|---|---|---|---|", flush=True)
    bad = 0
    for text in a.models:
        model, _, inputs = text.partition("=")
        given = dict(np.load(inputs)) if inputs else None
        name, want = pathlib.Path(model).stem, None
        if model.endswith(".onnx"):
            session = ort.InferenceSession(model, providers=["CPUExecutionProvider"])
            given = inputs_of(session, given)
            want = session.run(None, given)
        for amp in ["off", "fp16", "auto"]:
            if amp == "auto" and name in a.skip_auto.split(","):
                continue
            for form in ["plain", "optimised"]:
                path = folder / f"{name}.{amp}.{form}.onnx"
                np.savez(folder / "in.npz", **(given or {}))
                run = [a.weft, "export", model, "-q", "-o", str(path)]
                run += [] if amp == "off" else ["--amp", amp, "--device", a.device]
                run += ["--optimized"] if form == "optimised" else []
                if amp == "auto":
                    run += ["-i", str(folder / "in.npz")]
                done = subprocess.run(run, capture_output=True, text=True)
                if done.returncode:
                    print(f"| {name} | {amp} | {form} | export: {done.stderr.strip()[:100]} | | | | | | |", flush=True)
                    bad += 1
                    continue
                says, feed, got, error = look(a, path, given, want)
                if got is None:
                    print(f"| {name} | {amp} | {form} | {says} | | | | | | |", flush=True)
                    bad += 1
                    continue
                want = got if want is None else want
                given = feed
                nodes, halves, size, half_size = shares(path)
                share = compiled_share(a, model, amp, str(folder / "in.npz")) if amp == "fp16" and form == "optimised" else "|"
                bad += error[0] > 1
                print(f"| {name} | {amp} | {form} | {says} | {error[1]:.1e} | {error[0]:.2f} | {halves} of {nodes} | "
                      f"{half_size / max(size, 1):.0%} of {size / 1e6:.1f} MB | {share} |", flush=True)
                path.unlink()
    sys.exit(1 if bad else 0)


main()
