#!/usr/bin/env python3
"""Hold the tokens that `weft bench --decode` makes against ONNX Runtime's greedy choice.

    greedy.py MODEL.onnx ... [--tokens 64] [--prompt 7] [--seed 3] [--weft target/release/weft] [--weft-args '--device cpu']

ONNX Runtime runs on the CPU without optimisations, with its own cache. A token of Weft may differ only where ONNX
Runtime's two best logits are closer than --close (for models in f16); from there on both write different texts, so the
comparison of a model ends. Exit 1 if a token differs elsewhere. Needs numpy and onnxruntime.
"""
import argparse, json, os, shlex, subprocess, sys, tempfile

import numpy as np
import onnxruntime as ort


def size(port, axis, fallback):
    return port.shape[axis] if isinstance(port.shape[axis], int) else fallback


def greedy(model, prompt, tokens, width):
    """ONNX Runtime's tokens, and the distance of the two best logits of each."""
    options = ort.SessionOptions()
    options.log_severity_level = 3
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    inputs = {i.name: i for i in session.get_inputs()}
    outputs = [o.name for o in session.get_outputs()]
    of = lambda name: name.replace("past_key_values", "present")
    types = {"tensor(float)": np.float32, "tensor(float16)": np.float16}
    cache = {n: np.zeros((1, size(i, 1, 1), 0, size(i, 3, width)), types[i.type]) for n, i in inputs.items() if n.startswith("past")}
    ids, past, made, gaps = prompt, 0, [], []
    while len(made) < tokens:
        length = ids.shape[1]
        feeds = {"input_ids": ids} | cache
        if "attention_mask" in inputs:
            feeds["attention_mask"] = np.ones((1, past + length), np.int64)
        if "position_ids" in inputs:
            feeds["position_ids"] = np.arange(past, past + length, dtype=np.int64)[None]
        results = dict(zip(outputs, session.run(outputs, feeds)))
        logits = results["logits"][0, -1].astype(np.float64)
        best = np.sort(logits)[-2:]
        made.append(int(logits.argmax()))
        gaps.append(float(best[1] - best[0]))
        cache = {name: results[of(name)] for name in cache}
        ids, past = np.array([[made[-1]]], np.int64), past + length
    return made, gaps


def of_weft(weft, words, model, prompt, tokens):
    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, "prompt.npz")
        np.savez(file, input_ids=prompt)
        command = [*shlex.split(weft), "bench", model, "-i", file, "--decode", str(tokens - 1), "--warmup", "0", "--runs", "1", "--json"]
        done = subprocess.run(command + shlex.split(words), capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{model}: {done.stdout}{done.stderr}")
    return json.loads(done.stdout)["decode"]["made"][0]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+")
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--prompt", type=int, default=7)
    parser.add_argument("--vocabulary", type=int, default=512, help="ids of the prompt are below this")
    parser.add_argument("--width", type=int, default=16, help="of a head, where the model leaves it open")
    parser.add_argument("--close", type=float, default=0.0)
    parser.add_argument("--seed", type=int, default=3)
    parser.add_argument("--weft", default="target/release/weft")
    parser.add_argument("--weft-args", default="--device cpu")
    a = parser.parse_args()
    wrong = 0
    for model in a.models:
        prompt = np.random.default_rng(a.seed).integers(0, a.vocabulary, (1, a.prompt))
        wanted, gaps = greedy(model, prompt, a.tokens, a.width)
        got = of_weft(a.weft, a.weft_args, model, prompt, a.tokens)
        at = next((i for i, (g, w) in enumerate(zip(got, wanted)) if g != w), None)
        distinct = len(set(wanted))
        if at is None and len(got) == a.tokens:
            print(f"{os.path.basename(model)}: {a.tokens} tokens equal ({distinct} distinct), the closest two logits {min(gaps):.2g} apart")
        elif at is not None and gaps[at] < a.close:
            print(f"{os.path.basename(model)}: {at} tokens equal, then two logits that are {gaps[at]:.2g} apart")
        else:
            wrong += 1
            print(f"{os.path.basename(model)}: WRONG at token {at}: {got} instead of {wanted}, logits {gaps[at or 0]:.2g} apart")
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
