#!/usr/bin/env python3
"""All that is to be measured on a machine with a GPU, in one run: what the device can do at best, the zoo on it, other systems
beside that, and what others published for it.

    measure.py --weft target/release/weft [--output F.json]      everything: an hour or two
    measure.py --weft target/debug/weft --small                  two networks in their smallest form, batch 1: a minute, on a software driver too
    measure.py --table F.json                                    the table of an earlier run

Ceilings: a copy and multiply-adds in f32 (`weft bench --ceilings`); of matrix units too where that gives it. Where the device has
matrix units and it does not, this is said.
The zoo: `weft bench`, a process each, in f32 and with --amp fp16, at each batch, in NCHW and NHWC. `ms` is latency (inputs up,
results read back), `device` with both resident. What does not run is a row with the reason.
Others: ncnn on its first Vulkan device (batch 1: it has no batches) and PyTorch on CUDA or ROCm, in f32 and in fp16, by scripts/peers.py, which holds their
results against Weft's too. Those that this Python has are used, or those that peers.py once installed; --install has it install them;
whichever is missing is said at the start, at the end, and in the JSON.
Published: scripts/gpu/anchors.json has what others measured on their hardware, with the source. Where a device of that name is here its rows
show them, and the batches that they need are measured too.

The table is Markdown; the JSON has all of it, with every field of `weft bench --json` except samples. Only Python's standard library is needed.
"""
import argparse, array, datetime, importlib.util, json, os, pathlib, random, re, struct, subprocess, sys, tempfile, time, zipfile

HERE = pathlib.Path(__file__).resolve().parent
PRECISION = {"off": "fp32", "fp16": "fp16"}
SMALL = ["squeezenet1_1:smallest", "mobilenet_v2:smallest"]


def say(text):
    print(text, file=sys.stderr, flush=True)


def weft(a, *words, timeout=None):
    """The JSON of a command, or the one of its error."""
    cmd = [a.weft, *words, "--json", "-q"]
    try:
        r = subprocess.run(cmd, capture_output=True, text=True, timeout=timeout or a.timeout)
    except subprocess.TimeoutExpired:
        return {"error": {"code": None, "message": f"no answer in {timeout or a.timeout} s"}}
    try:
        return json.loads(r.stdout)
    except json.JSONDecodeError:
        return {"error": {"code": r.returncode, "message": (r.stderr.strip().splitlines() or ["no output"])[-1][:300]}}


def fail(found, what):
    if isinstance(found, dict) and "error" in found:
        sys.exit(f"measure: {what}: {found['error']['message']}")
    return found


# ---- ceilings

def ceilings(a):
    """The device as it was opened, and what it can do at best."""
    found = fail(weft(a, "bench", "--ceilings", "--device", a.device), "the ceilings")
    return found["device"], found["ceilings"]


def describe(a, opened):
    """The adapter that was opened, as `weft devices` shows it."""
    listed = fail(weft(a, "devices"), "the devices")["devices"]
    same = [d for d in listed if (d["name"], d["backend"], d["driver"]) == (opened["name"], opened["backend"], opened["driver"])]
    return same[0] if same else opened


# ---- the zoo

def measured(a, network, amp, batch, layout):
    words = ["bench", network, "--device", a.device, "--amp", amp, "--batch", str(batch), "--layout", layout, "--runs", str(a.runs), "--warmup", str(a.warmup)]
    row = dict(network=network, amp=amp, batch=batch, layout=layout)
    found = weft(a, *words)
    if "error" in found:
        return dict(row, error=found["error"]["message"])
    found["latency_ms"].pop("samples", None); found["device_ms"].pop("samples", None)
    spent = sum(k["us_total"] for k in found["per_kernel"])
    roof = [k for k in found["per_kernel"] if k.get("roofline_fraction") is not None]
    share = sum(k["roofline_fraction"] * k["us_total"] for k in roof) / spent if roof and spent else None
    return dict(row, ms=found["latency_ms"]["median"], device_ms=found["device_ms"]["median"], gflops=found["flops"] / found["device_ms"]["median"] / 1e6,
                roof=share, bench=found)


# ---- other systems

def has(module):
    return importlib.util.find_spec(module) is not None


def torch_on_gpu(python):
    code = "import torch; print(torch.cuda.get_device_name() if torch.cuda.is_available() else '')"
    r = subprocess.run([python, "-c", code], capture_output=True, text=True)
    return r.stdout.strip() if r.returncode == 0 else ""


def peers(a, left_out):
    """Systems that are here: name in peers.py by precision, variables of its environment, and whether it takes batches."""
    if a.peers == "none":
        left_out.append("ncnn and PyTorch: not asked for (--peers none)")
        return []
    cache = pathlib.Path(os.environ.get("WEFT_PEERS", pathlib.Path.home() / ".cache/weft-peers"))
    wanted, found = (["ncnn", "torch"] if a.peers == "auto" else a.peers.split(",")), []
    for name in wanted:
        own, made = has(name) and (name != "ncnn" or has("pnnx")), (cache / name / ".ok").exists()
        if not (own or made or a.install):
            hint = "pip install ncnn pnnx" if name == "ncnn" else "install PyTorch for your GPU"
            left_out.append(f"{name}: NOT INSTALLED, so nothing stands beside Weft's times ({hint}, or --install)")
            continue
        env = {f"WEFT_PEERS_SYSTEM_{name.upper()}": "1"} if own else {}
        if name == "ncnn":
            found.append(dict(name="ncnn", env=env, by={"off": "ncnn-vulkan", "fp16": "ncnn-vulkan-fp16"}, batches=False))
            continue
        python = sys.executable if own else str(cache / "torch/bin/python")
        if (own or made) and not torch_on_gpu(python):
            left_out.append("torch: installed, but without a GPU that it can use (CUDA or ROCm)")
            continue
        found.append(dict(name="torch", env=env, by={"off": "torch-cuda", "fp16": "torch-cuda-amp-compile"}, batches=True))
    return found


def npy(values, shape):
    head = f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({', '.join(map(str, shape))},), }}"
    head += " " * (-(len(head) + 11) % 64) + "\n"
    values = array.array("f", values)
    if sys.byteorder == "big":
        values.byteswap()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode() + values.tobytes()


def prepare(a, network, batch, folder):
    """The network as ONNX, an input from a fixed seed, and Weft's own results on it."""
    stem = folder / f"{network.replace(':', '_')}-b{batch}"
    onnx, given, out = (stem.with_suffix(s) for s in (".onnx", ".in.npz", ".out.npz"))
    r = subprocess.run([a.weft, "export", network, "--batch", str(batch), "-q", "-o", onnx], capture_output=True, text=True)
    if r.returncode:
        return None, (r.stderr.strip().splitlines() or ["weft export failed"])[0]
    draw = random.Random(0)
    with zipfile.ZipFile(given, "w") as z:
        for i in fail(weft(a, "inspect", str(onnx)), "the inputs")["inputs"]:
            n = 1
            for d in i["shape"]:
                n *= d
            z.writestr(i["name"] + ".npy", npy((draw.gauss(0, 1) for _ in range(n)), i["shape"]))
    ran = weft(a, "run", str(onnx), "-i", str(given), "-o", str(out), "--device", a.device)
    return (onnx, given, out if "error" not in ran else None), None


def beside(a, peer, amp, files):
    onnx, given, out = files
    cmd = [sys.executable, HERE.parent / "peers.py", onnx, "--in", given, "--peers", peer["by"][amp], "--runs", str(a.runs), "--rounds", str(a.rounds), "--timeout", str(a.timeout)]
    r = subprocess.run([*cmd, *(["--out", out] if out else [])], capture_output=True, text=True, env={**os.environ, **peer["env"]})
    lines = [l for l in r.stdout.splitlines() if l.startswith("{")]
    if not lines:
        return dict(error=(r.stderr.strip().splitlines() or ["no output"])[-1][:300])
    found = json.loads(lines[-1])
    device = re.search(r"device_ms ([\d.]+)", found.get("note") or "")
    return dict(found, device_ms=float(device.group(1))) if device else found


# ---- the table

def number(v, digits=2):
    return "-" if v is None else f"{v:.{digits}f}"


def cell(row):
    return "-" if row is None else "fails" if "error" in row else f"{number(row['ms'])} / {number(row['device_ms'])}"


def table(all_):
    d, c = all_["device"], all_["ceilings"]
    matrix = number(c.get("matrix_gflops"), 0)
    out = [f"# {d['name']} ({d['backend']}, {d['driver']})", "", f"Weft {all_['weft']}, {all_['date']}. Milliseconds: latency / inputs and results resident.", "",
           "| ceiling | |", "|---|---|", f"| copy | {number(c['copy_gb_s'], 1)} GB/s |", f"| multiply-add in f32 | {number(c['fma_gflops'], 0)} GFLOP/s |",
           f"| matrix units | {matrix} GFLOP/s |", "",
           "| network | precision | batch | NCHW | NHWC | GFLOP/s | of the roof | others | published |", "|---|---|---|---|---|---|---|---|---|"]
    key = lambda r: (r["network"], r["amp"], r["batch"])
    for k in dict.fromkeys(key(r) for r in all_["results"]):
        own = {r["layout"]: r for r in all_["results"] if key(r) == k}
        good = [r for r in own.values() if "error" not in r]
        best = min(good, key=lambda r: r["device_ms"], default=None)
        others = [p for p in all_["peers"] if key(p) == k]
        beside_ = [f"{p['system']} fails" if "error" in p else f"{p['system']} {number(p['median_ms'])}" + (f" / {number(p['device_ms'])}" if "device_ms" in p else "") +
                   (f" ({p['median_ms'] / min(r['ms'] for r in good):.2f}x)" if good else "") for p in others]
        named = k[0].split(":")[0]
        published = [f"{p['system'] or 'unnamed'} {p['ms']}" + (f" ({p['ms'] / min(r['ms'] for r in good):.2f}x)" if good else "") for p in all_["published"]
                     if (p["network"], p["batch"]) == (named, k[2]) and ":" not in k[0] and p["precision"] in (None, PRECISION[k[1]])]
        out.append("| " + " | ".join([k[0], PRECISION[k[1]], str(k[2]), cell(own.get("nchw")), cell(own.get("nhwc")), number(best and best["gflops"], 0),
                                       "-" if not best or best["roof"] is None else f"{100 * best['roof']:.0f}%", ", ".join(beside_) or "-", ", ".join(published) or "-"]) + " |")
    out += ["", "Behind another system's time: that time by Weft's, so above 1 Weft is faster; latency against latency, in Weft's better layout."]
    if all_["published"]:
        out += ["", "Published (others' hardware):"] + [f"- {p['network']}, batch {p['batch'] or 'not stated'}, {p['precision'] or 'precision not stated'}: {p['system'] or 'unnamed'} {p['ms']} ms ({p['source']})" for p in all_["published"]]
    errors = [r for r in all_["results"] + all_["peers"] if "error" in r]
    if errors:
        out += ["", "What failed:"] + [f"- {r.get('system', 'Weft')}, {r['network']}, {PRECISION[r['amp']]}, batch {r['batch']}{', ' + r['layout'] if 'layout' in r else ''}: {r['error']}" for r in errors]
    if all_["left_out"]:
        out += ["", "Left out:"] + [f"- {w}" for w in all_["left_out"]]
    return "\n".join(out)


def options():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--weft", help="the command, best as a release build"); p.add_argument("--device", default="0"); p.add_argument("--small", action="store_true")
    p.add_argument("--networks", help="A,B instead of the whole zoo"); p.add_argument("--amp", default="off,fp16"); p.add_argument("--batch"); p.add_argument("--layout", default="nchw,nhwc")
    p.add_argument("--runs", type=int); p.add_argument("--warmup", type=int); p.add_argument("--rounds", type=int, default=1, help="of the other systems")
    p.add_argument("--peers", default="auto", help="auto, none, or ncnn,torch"); p.add_argument("--install", action="store_true", help="lets peers.py install what is missing")
    p.add_argument("--timeout", type=int, default=900, help="seconds of one measurement"); p.add_argument("--output", default="measured.json"); p.add_argument("--table", metavar="F.json")
    a = p.parse_args()
    if not a.weft and not a.table:
        p.error("--weft is needed")
    unknown = [x for x in a.amp.split(",") if x not in PRECISION]
    if unknown:
        p.error(f"--amp {unknown[0]}: there are {', '.join(PRECISION)}")
    a.runs, a.warmup = a.runs or (3 if a.small else 50), a.warmup if a.warmup is not None else (1 if a.small else 10)
    return a


def plan(a, published):
    zoo = [m["name"] for m in fail(weft(a, "zoo"), "the zoo")["models"]]
    networks = a.networks.split(",") if a.networks else SMALL if a.small else zoo
    batches = [int(b) for b in (a.batch or ("1" if a.small else "1,32")).split(",")]
    for n in networks:
        more = [] if a.small or a.batch else [p["batch"] for p in published if p["network"] == n and p["batch"]]
        for b in sorted({*batches, *more}):
            for amp in a.amp.split(","):
                yield n, amp, b


def main():
    a = options()
    if a.table:
        print(table(json.loads(pathlib.Path(a.table).read_text())))
        return
    start, left_out = time.time(), []
    opened, found = ceilings(a)
    device = describe(a, opened)
    if device.get("cooperative_matrix") and found.get("matrix_gflops") is None:
        left_out.append("ceiling of the matrix units: the device has them, and this Weft has no kernel that measures them")
    names = f"{device['name']} {device.get('product') or ''}"
    published = [p for p in json.loads((HERE / "anchors.json").read_text()) if re.search(p["match"], names)]
    if not published:
        left_out.append(f"published figures: none for {device['name']} in scripts/gpu/anchors.json")
    others = peers(a, left_out)
    todo = list(plan(a, published))
    if any(p["name"] == "ncnn" for p in others) and any(b > 1 for _, _, b in todo):
        left_out.append("ncnn above batch 1: it has no batches")
    for w in left_out:
        say(f"!!! LEFT OUT: {w}")
    version = subprocess.run([a.weft, "--version"], capture_output=True, text=True).stdout.strip().removeprefix("weft ")
    all_ = dict(schema=1, date=datetime.date.today().isoformat(), weft=version, device=device, ceilings=found, results=[], peers=[], published=published, left_out=left_out)
    with tempfile.TemporaryDirectory(prefix="measure-") as folder:
        measure_all(a, all_, todo, others, pathlib.Path(folder))
    say(f"wrote {a.output} after {time.time() - start:.0f} s")
    print(table(all_))
    for w in left_out:
        say(f"!!! LEFT OUT: {w}")
    if all("error" in r for r in all_["results"]):
        sys.exit("measure: nothing ran")


def measure_all(a, all_, todo, others, folder):
    files = {}
    for n, amp, b in todo:
        for layout in a.layout.split(","):
            r = measured(a, n, amp, b, layout)
            say(f"{n} {PRECISION[amp]} batch {b} {layout}: " + (r["error"] if "error" in r else f"{r['ms']:.2f} ms, {r['device_ms']:.2f} on the device"))
            all_["results"].append(r)
        for peer in others:
            if b > 1 and not peer["batches"]:
                continue
            if (n, b) not in files:
                files[n, b] = prepare(a, n, b, folder)
            ready, why = files[n, b]
            r = beside(a, peer, amp, ready) if ready else dict(error=why)
            say(f"{n} {PRECISION[amp]} batch {b} {peer['name']}: " + (r["error"] if "error" in r else f"{r['median_ms']:.2f} ms"))
            all_["peers"].append(dict(r, system=peer["name"], network=n, amp=amp, batch=b))
        # Hours of work are not lost where something ends them.
        pathlib.Path(a.output).write_text(json.dumps(all_, indent=1))


if __name__ == "__main__":
    main()
