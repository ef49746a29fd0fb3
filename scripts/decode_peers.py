#!/usr/bin/env python3
"""Time one language model on Weft and on other systems, in interleaved rounds, and print one JSON line for each.

    decode_peers.py MODEL --decode N [--prefill 64] [--past 0] [--peers ort-cpu,llama.cpp] [--rounds 5] [--threads T]
                    [--driver lavapipe|lavapipe-new|swiftshader] [--weft 'target/release/weft'] [--weft-args '--device cpu'] [--gguf F]

MODEL is an ONNX file, or `decoder[:KEY=VALUE,...]`: random weights of that shape (scripts/decoders.py has the keys; `form=std23` chooses
the form), as ONNX and, for llama.cpp, as GGUF in 4 bits (f16 with q4=0,f16=1). Systems: ort-cpu (ONNX Runtime, its cache in host memory) and
llama.cpp (`llama-bench` on the path, or the command in WEFT_LLAMA_BENCH; it reads no ONNX: --gguf names a file of the same shape).
A round is a prompt of --prefill tokens behind --past positions, then N tokens one by one, after one of each that is not counted; the figures
are medians of rounds, and `ratio_to_weft` is the median of the rounds' ratios of the time of a token (above 1: weft is faster).
ONNX Runtime and gguf run in environments of their own under $WEFT_PEERS, as in peers.py; WEFT_PEERS_SYSTEM_ORT=1 and
WEFT_PEERS_SYSTEM_GGUF=1 take the running Python's.
"""
import argparse, json, os, shlex, shutil, statistics, subprocess, sys, tempfile

import peers

HERE = os.path.dirname(os.path.abspath(__file__))
peers.PIP["gguf"] = ["gguf", "numpy"]

ORT = r"""
import json, sys, time
import numpy as np, onnxruntime as ort
model, (prefill, past, count, threads) = sys.argv[1], map(int, sys.argv[2:6])
options = ort.SessionOptions(); options.log_severity_level = 3
if threads: options.intra_op_num_threads = threads
session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
inputs, outputs = {i.name: i for i in session.get_inputs()}, [o.name for o in session.get_outputs()]
types = {"tensor(float)": np.float32, "tensor(float16)": np.float16}
random = np.random.default_rng(0)
caches = {n: i for n, i in inputs.items() if n.startswith("past_key_values")}
def run(ids, cache, before):
    total = before + ids.shape[1]
    feeds = dict(input_ids=ids, **cache)
    if "attention_mask" in inputs: feeds["attention_mask"] = np.ones((1, total), np.int64)
    if "position_ids" in inputs: feeds["position_ids"] = np.arange(before, total, dtype=np.int64)[None]
    results = dict(zip(outputs, session.run(outputs, feeds)))
    cache = {n: results[n.replace("past_key_values", "present")] for n in caches}
    return results["logits"][:, -1:].astype(np.float32).argmax(-1).astype(np.int64), cache, total
def around():
    cache = {n: random.standard_normal((1, i.shape[1], past, i.shape[3])).astype(types[i.type]) for n, i in caches.items()}
    prompt = random.integers(0, 256, (1, prefill))
    start = time.perf_counter(); ids, cache, before = run(prompt, cache, past); first = time.perf_counter()
    for _ in range(count): ids, cache, before = run(ids, cache, before)
    return prefill / (first - start), count / (time.perf_counter() - first)
around()
print("RESULT " + json.dumps(dict(zip(["prompt", "decode"], around()), note="onnxruntime " + ort.__version__)))
"""


def python(family):
    return sys.executable if os.environ.get("WEFT_PEERS_SYSTEM_" + family.upper()) else peers.venv(family)


def write_models(a, folder):
    """The files of `decoder:...`."""
    pairs = [p for p in a.model.partition(":")[2].split(",") if p]
    form = next((p[5:] for p in pairs if p.startswith("form=")), "genai")
    keys = [p for p in pairs if not p.startswith("form=")]
    context = max(512, a.past + a.prefill + a.decode)
    keys.insert(0, f"context={context}")
    script = os.path.join(HERE, "decoders.py")
    name, a.model = a.model, os.path.join(folder, "decoder.onnx")
    subprocess.run([python("ort"), script, form, a.model, *keys], check=True, stdout=sys.stderr)
    if "llama.cpp" in a.peers.split(",") and not a.gguf:
        a.gguf = os.path.join(folder, "decoder.gguf")
        kind = "q4_0" if "q4=0" not in keys else "f16" if "f16=1" in keys else "f32"
        subprocess.run([python("gguf"), script, "gguf", a.gguf, *keys, f"type={kind}"], check=True, stdout=sys.stderr)
    return name


def command(peer, a, folder):
    if peer == "weft":
        lengths = ["--decode", str(a.decode), "--prefill", str(a.prefill), "--past", str(a.past)]
        threads = ["--threads", str(a.threads)] if a.threads and "--device cpu" in a.weft_args else []
        return [*shlex.split(a.weft), "bench", a.model, *lengths, *threads, "--warmup", "1", "--runs", "1", "--json", *shlex.split(a.weft_args)]
    if peer == "ort-cpu":
        file = os.path.join(folder, "ort_decode.py")
        with open(file, "w") as f:
            f.write(ORT)
        return [python("ort"), file, a.model, *map(str, [a.prefill, a.past, a.decode, a.threads or 0])]
    if peer == "llama.cpp":
        own = shutil.which("llama-bench")
        words = shlex.split(os.environ.get("WEFT_LLAMA_BENCH", own or ""))
        if not words:
            raise ValueError("there is no llama-bench on the path, and WEFT_LLAMA_BENCH is not set")
        if not a.gguf:
            raise ValueError("llama.cpp reads no ONNX: give --gguf FILE, or `decoder:...` for the model")
        threads = ["-t", str(a.threads)] if a.threads else []
        return [*words, "-m", a.gguf, "-p", str(a.prefill), "-n", str(a.decode), "-d", str(a.past), "-r", "1", *threads, "-o", "json"]
    raise ValueError("no such system; there are weft, ort-cpu and llama.cpp")


def figures(peer, out):
    """Tokens a second of the prompt and of the tokens behind it, and a note."""
    if peer == "weft":
        d = json.loads(out)
        rate = lambda speed: d["decode"][speed]["tokens_per_s"]["median"]
        return dict(prompt=rate("prefill"), decode=rate("steps"), note=d["device"]["name"])
    if peer == "ort-cpu":
        return json.loads(next(line[7:] for line in out.splitlines() if line.startswith("RESULT ")))
    rows = json.loads(out[out.index("[") :])
    rate = lambda key: next(r["avg_ts"] for r in rows if r[key] > 0)
    return dict(prompt=rate("n_prompt"), decode=rate("n_gen"), note=f"llama.cpp {rows[0].get('build_number', '')} {rows[0].get('gpu_info') or rows[0].get('cpu_info', '')}")


def once(peer, a, folder):
    words = command(peer, a, folder)
    if a.driver and peer == "weft":     # a loader of its own needs a real ELF program
        words[0] = os.path.realpath(shutil.which(words[0]) or words[0])
        words = [os.path.join(HERE, "with-driver.sh"), a.driver, *words]
    done = subprocess.run(words, capture_output=True, text=True, timeout=a.timeout)
    if done.returncode:
        return dict(error=(done.stderr.strip() or done.stdout.strip() or "no output").splitlines()[0][:300])
    return figures(peer, done.stdout)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("model")
    p.add_argument("--decode", type=int, required=True)
    p.add_argument("--prefill", type=int, default=64)
    p.add_argument("--past", type=int, default=0)
    p.add_argument("--peers", default="ort-cpu")
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--threads", type=int)
    p.add_argument("--timeout", type=int, default=900)
    p.add_argument("--driver")
    p.add_argument("--weft")
    p.add_argument("--weft-args", default="")
    p.add_argument("--gguf")
    a = p.parse_args()
    folder = tempfile.mkdtemp(prefix="decode-peers-")
    try:
        name = os.path.basename(a.model) if os.path.exists(a.model) else write_models(a, folder)
        order = (["weft"] if a.weft else []) + a.peers.split(",")
        got = {peer: [] for peer in order}
        for _ in range(a.rounds):
            for peer in order:
                if got[peer] and "error" in got[peer][0]:
                    continue
                try:
                    got[peer].append(once(peer, a, folder))
                except subprocess.TimeoutExpired:
                    got[peer].append(dict(error=f"no answer in {a.timeout} s"))
                except (ValueError, subprocess.CalledProcessError) as error:
                    got[peer].append(dict(error=str(error)[:300]))
        report(name, order, got)
    finally:
        shutil.rmtree(folder)


def report(name, order, got):
    for peer in order:
        rounds = got[peer]
        if "error" in rounds[0]:
            print(json.dumps(dict(peer=peer, model=name, **rounds[0])))
            continue
        median = lambda key: statistics.median(r[key] for r in rounds)
        row = dict(peer=peer, model=name, prompt_tokens_per_s=round(median("prompt"), 1), tokens_per_s=round(median("decode"), 2))
        row |= dict(ms_a_token=round(1e3 / median("decode"), 3), rounds=len(rounds), note=rounds[-1]["note"])
        weft = got.get("weft", [])
        if peer != "weft" and weft and "error" not in weft[0]:
            row["ratio_to_weft"] = round(statistics.median(w["decode"] / r["decode"] for r, w in zip(rounds, weft)), 3)
            row["prompt_ratio_to_weft"] = round(statistics.median(w["prompt"] / r["prompt"] for r, w in zip(rounds, weft)), 3)
        print(json.dumps(row))


if __name__ == "__main__":
    main()
