#!/usr/bin/env python3
"""Run one ONNX network on other systems, on the same machine and driver, and print one JSON line for each.

    peers.py MODEL.onnx [--in MODEL.in.npz | --shape 64x3x224x224] [--out MODEL.out.npz] [--peers ncnn-vulkan,ort-cpu,...]
             [--driver lavapipe|lavapipe-new|swiftshader] [--runs 20] [--rounds 3] [--weft 'target/release/weft'] [--weft-args '--amp off']

Systems: ncnn-vulkan ncnn-vulkan-fp16 ncnn-cpu ort-cpu ort-webgpu tinygrad-webgpu torch-cpu
         torch-cuda torch-cuda-amp torch-cuda-amp-compile torch-cuda-amp-autotune (these where a CUDA GPU and torch are; with
         WEFT_PEERS_SYSTEM_TORCH=1 the running Python's own torch is used, and so is ncnn with WEFT_PEERS_SYSTEM_NCNN=1; their note also gives device_ms, inputs and outputs resident)
Rounds are interleaved (A B C A B C ...), so that drift of the machine hits all alike; the figures are medians over all rounds,
and `ratio_to_weft` is the median of the per-round ratios (above 1: weft is faster).
Each system runs in a process and a virtual environment of its own, made on first use under $WEFT_PEERS (default ~/.cache/weft-peers)
by pip (ncnn, pnnx, onnxruntime, tinygrad, torch) or npm (onnxruntime-node). Without --in, inputs are drawn from a fixed seed.
The Vulkan driver is whatever the environment selects, or --driver (scripts/with-driver.sh; onnxruntime-node needs a newer Mesa than 22).
"""
import argparse, json, os, re, shlex, shutil, statistics as st, subprocess, sys, tempfile, time

CACHE = os.environ.get("WEFT_PEERS", os.path.expanduser("~/.cache/weft-peers"))
PIP = {"ncnn": ["ncnn", "pnnx", "numpy"], "ort": ["onnxruntime", "onnx", "numpy"],
       "tinygrad": ["tinygrad", "dawn-python", "onnx", "numpy"], "torch": ["torch", "onnx", "onnx2torch", "numpy"]}


def venv(name):
    d = os.path.join(CACHE, name)
    if not os.path.exists(d + "/.ok"):
        subprocess.run([sys.executable, "-m", "venv", d], check=True)
        subprocess.run([d + "/bin/pip", "install", "-q", *PIP[name]], check=True, stdout=sys.stderr)
        open(d + "/.ok", "w").close()
    return d + "/bin/python"


def node_ort():
    d = os.path.join(CACHE, "ort-node")
    if not os.path.exists(d + "/node_modules/onnxruntime-node"):
        os.makedirs(d, exist_ok=True)
        subprocess.run(["npm", "install", "--silent", "--ignore-scripts", "--prefix", d, "onnxruntime-node"], check=True, stdout=sys.stderr)
    return d


COMMON = r"""
import sys, time, json, numpy as np, statistics as st
model, inp, out, runs, mode = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), sys.argv[5]
X = dict(np.load(inp)); Y = dict(np.load(out)) if out != '-' else {}
def timed(go, note=None):
    t = time.perf_counter(); ys = go(); first = (time.perf_counter() - t) * 1e3
    go(); ts = []
    while len(ts) < runs and sum(ts) < 30:
        t = time.perf_counter(); ys = go(); ts.append(time.perf_counter() - t)
    err = max([float(np.abs(np.asarray(a, np.float64).ravel() - np.asarray(b, np.float64).ravel()).max()) for a, b in zip(ys, Y.values())] or [float('nan')])
    print('RESULT ' + json.dumps(dict(median_ms=st.median(ts) * 1e3, min_ms=min(ts) * 1e3, first_ms=first, n=len(ts), max_abs_err=err, note=note)))
"""
CODE = {
    "ncnn": COMMON + r"""
import os, shutil, subprocess, tempfile, ncnn, pnnx
d = tempfile.mkdtemp(); shutil.copy(model, d + '/m.onnx')
exe = os.path.join(os.path.dirname(pnnx.__file__), 'pnnx')
shp = ','.join('[' + ','.join(map(str, v.shape)) + ']' for v in X.values())
subprocess.run([exe, d + '/m.onnx', 'inputshape=' + shp, 'fp16=0'], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=d)
net = ncnn.Net(); o = net.opt; o.num_threads = os.cpu_count(); f = 'fp16' in mode
o.use_vulkan_compute = 'vulkan' in mode; o.use_fp16_packed = o.use_fp16_storage = o.use_fp16_arithmetic = f; o.use_bf16_storage = False
if 'vulkan' in mode: net.set_vulkan_device(0)
net.load_param(d + '/m.ncnn.param'); net.load_model(d + '/m.ncnn.bin')
arrs = [np.ascontiguousarray(v[0], np.float32) for v in X.values()]; mats = [ncnn.Mat(a).clone() for a in arrs]   # Mat only borrows its array
def go():
    ex = net.create_extractor()
    for i, m in enumerate(mats): ex.input('in%d' % i, m)
    return [np.array(ex.extract('out%d' % i)[1]) for i in range(max(1, len(Y)))]
timed(go, 'ncnn ' + ncnn.__version__)
""",
    "ort": COMMON + r"""
import os, onnxruntime as ort
so = ort.SessionOptions(); so.intra_op_num_threads = os.cpu_count()
s = ort.InferenceSession(model, so, providers=['CPUExecutionProvider'])
timed(lambda: s.run(None, X), 'onnxruntime ' + ort.__version__)
""",
    "tinygrad": COMMON + r"""
import tinygrad
from tinygrad import Tensor, TinyJit, Device
try: from tinygrad.nn.onnx import OnnxRunner
except ImportError: from tinygrad.frontend.onnx import OnnxRunner
r = OnnxRunner(model); T = {k: Tensor(v).realize() for k, v in X.items()}
@TinyJit
def f(*a): return [t.realize() for t in r(dict(zip(X, a))).values()]
def go(): return [t.numpy() for t in f(*T.values())]
go(); timed(go, 'tinygrad ' + Device.DEFAULT)
""",
    "torch": COMMON + r"""
import os, torch
try:
    import onnx, onnx2torch
    m = onnx2torch.convert(onnx.load(model)).eval()
except ImportError:      # no onnx2torch here: the architecture of the same name (weights differ, so no error figure)
    import torchvision
    m = getattr(torchvision.models, os.path.basename(model)[:-5])(weights=None).eval(); Y = {}
cuda = 'cuda' in mode
amp = 'amp' in mode
if cuda: m = m.cuda().to(memory_format=torch.channels_last)
if 'compile' in mode or 'autotune' in mode: m = torch.compile(m, mode='max-autotune' if 'autotune' in mode else 'reduce-overhead')
up = lambda v: (torch.from_numpy(v).cuda().to(memory_format=torch.channels_last) if v.ndim == 4 else torch.from_numpy(v).cuda()) if cuda else torch.from_numpy(v)
def net(A):
    with torch.inference_mode(), torch.autocast('cuda', torch.float16, enabled=cuda and amp):
        y = m(*A)
    return y if isinstance(y, (tuple, list)) else [y]
def go(): return [t.float().cpu().numpy() for t in net([up(v) for v in X.values()])]
dev = None
if cuda:
    A = [up(v) for v in X.values()]
    for _ in range(10): net(A)
    ts = []
    for _ in range(max(20, runs)):
        a, b = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        a.record(); net(A); b.record(); torch.cuda.synchronize(); ts.append(a.elapsed_time(b))
    dev = st.median(ts)
timed(go, 'torch ' + torch.__version__ + (' %s device_ms %.4f' % (torch.cuda.get_device_name(), dev) if cuda else ''))
""",
}
NODE = r"""
const ort=require(process.argv[2]+'/node_modules/onnxruntime-node'),fs=require('fs');
(async()=>{const j=JSON.parse(fs.readFileSync(process.argv[4]));const s=await ort.InferenceSession.create(process.argv[3],{executionProviders:['webgpu'],logSeverityLevel:3});
const f=p=>{const k=fs.readFileSync(p);return new Float32Array(k.buffer,k.byteOffset,k.length/4)};const x={};for(const i of j.inputs)x[i.name]=new ort.Tensor('float32',f(i.file),i.shape);
const go=async()=>{const o=await s.run(x);return s.outputNames.map(n=>o[n].data)};let t=performance.now();let y=await go();const first=performance.now()-t;await go();const ts=[];let T=0;
while(ts.length<j.runs&&T<30000){t=performance.now();y=await go();const d=performance.now()-t;ts.push(d);T+=d}ts.sort((a,b)=>a-b);let e=NaN;j.outputs.forEach((o,k)=>{const r=f(o);if(k==0)e=0;for(let i=0;i<r.length;i++)e=Math.max(e,Math.abs(r[i]-y[k][i]))});
console.log('RESULT '+JSON.stringify({median_ms:ts[ts.length>>1],min_ms:ts[0],first_ms:first,n:ts.length,max_abs_err:e,note:'onnxruntime-node webgpu'}));process.exit(0)})().catch(e=>{console.error(e.message);process.exit(1)});
"""


def command(peer, a, tmp):
    if peer == "weft":
        return shlex.split(a.weft) + ["bench", a.model, "-i", a.inp, "--device", "0", "--runs", str(a.runs), "--json"] + shlex.split(a.weft_args)
    if peer == "ort-webgpu":
        import_numpy = venv("ort")
        meta = os.path.join(tmp, "ort.json")
        subprocess.run([import_numpy, "-c", (
            "import numpy as np,json,sys;X=np.load(%r);Y=np.load(%r) if %r!='-' else {};d=%r;I=[];O=[]\n"
            "for i,k in enumerate(X): X[k].astype('f4').tofile(f'{d}/i{i}');I.append(dict(name=k,file=f'{d}/i{i}',shape=list(X[k].shape)))\n"
            "for i,k in enumerate(Y): Y[k].astype('f4').tofile(f'{d}/o{i}');O.append(f'{d}/o{i}')\n"
            "json.dump(dict(inputs=I,outputs=O,runs=%d),open(%r,'w'))") % (a.inp, a.out, a.out, tmp, a.runs, meta)], check=True)
        js = os.path.join(tmp, "ort.js"); open(js, "w").write(NODE)
        return ["node", js, node_ort(), a.model, meta]
    family = peer.split("-")[0]
    py = os.path.join(tmp, "run_" + family + ".py"); open(py, "w").write(CODE[family])
    exe = sys.executable if os.environ.get("WEFT_PEERS_SYSTEM_" + family.upper()) else venv(family)
    return [exe, py, a.model, a.inp, a.out, str(a.runs), peer]


def once(peer, a, tmp):
    env = dict(os.environ)
    if peer == "tinygrad-webgpu":
        lib = subprocess.run([venv("tinygrad"), "-c", "import pydawn,os;print(os.path.join(os.path.dirname(pydawn.__file__),'lib','libwebgpu_dawn_x86_64.so'))"],
                             capture_output=True, text=True).stdout.strip()
        env.update(DEV="WEBGPU", WEBGPU="1", WEBGPU_PATH=lib)
    cmd = command(peer, a, tmp)
    if a.driver:        # drivers with a loader of their own need real ELF programs, and children do not inherit them
        here = os.path.dirname(os.path.abspath(__file__)); cmd[0] = os.path.realpath(shutil.which(cmd[0]) or cmd[0]) if peer == "weft" or cmd[0] == "node" else cmd[0]
        if cmd[0].endswith("/python"):
            env["PYTHONPATH"] = subprocess.run([cmd[0], "-c", "import site;print(site.getsitepackages()[0])"], capture_output=True, text=True).stdout.strip(); cmd[0] = os.path.realpath(cmd[0])
        cmd = [os.path.join(here, "with-driver.sh"), a.driver] + cmd
    r = subprocess.run(cmd, capture_output=True, text=True, env=env, timeout=a.timeout)
    if peer == "weft" and r.returncode == 0:
        j = json.loads(r.stdout); j = j[0] if isinstance(j, list) else j
        return dict(median_ms=j["latency_ms"]["median"], min_ms=j["latency_ms"]["min"], n=len(j["latency_ms"].get("samples", [])), note=j["device"]["name"])
    m = re.search(r"^RESULT (.*)$", r.stdout, re.M)
    return json.loads(m.group(1)) if m else dict(error=(r.stderr.strip().splitlines() or ["no output"])[-1][:300])


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("model"); p.add_argument("--in", dest="inp"); p.add_argument("--out", default="-"); p.add_argument("--peers", default="ncnn-vulkan,ort-cpu")
    p.add_argument("--runs", type=int, default=20); p.add_argument("--rounds", type=int, default=3); p.add_argument("--timeout", type=int, default=900)
    p.add_argument("--shape"); p.add_argument("--driver"); p.add_argument("--weft"); p.add_argument("--weft-args", default="")
    a = p.parse_args(); tmp = tempfile.mkdtemp(prefix="peers-")
    if not a.inp:
        a.inp = os.path.join(tmp, "in.npz")
        code = ("import onnx,numpy as np;m=onnx.load(%r);w={i.name for i in m.graph.initializer};g=np.random.default_rng(0);fix=%r\n"
                "np.savez(%r,**{i.name:g.standard_normal([int(v) for v in fix.split('x')] if fix else [d.dim_value or 1 for d in i.type.tensor_type.shape.dim]).astype('f4')"
                " for i in m.graph.input if i.name not in w})") % (a.model, a.shape, a.inp)
        try: import onnx, numpy; exe = sys.executable
        except ImportError: exe = venv("ort")
        subprocess.run([exe, "-c", code], check=True)
    order = (["weft"] if a.weft else []) + a.peers.split(",")
    got = {k: [] for k in order}
    for _ in range(a.rounds):
        for k in order:
            if got[k] and "error" in got[k][0]: continue
            try: got[k].append(once(k, a, tmp))
            except subprocess.TimeoutExpired: got[k].append(dict(error="no answer in %d s" % a.timeout))
            except subprocess.CalledProcessError as e: got[k].append(dict(error="could not be set up: %s" % str(e)[:200]))
    for k in order:
        g = got[k]
        if "error" in g[0]: print(json.dumps(dict(peer=k, model=os.path.basename(a.model), **g[0]))); continue
        r = dict(peer=k, model=os.path.basename(a.model), median_ms=round(st.median(x["median_ms"] for x in g), 3), min_ms=round(min(x["min_ms"] for x in g), 3),
                 rounds=len(g), max_abs_err=g[-1].get("max_abs_err"), note=g[-1].get("note"))
        if a.weft and k != "weft" and "error" not in got["weft"][0]:
            r["ratio_to_weft"] = round(st.median(x["median_ms"] / w["median_ms"] for x, w in zip(g, got["weft"])), 3)
        print(json.dumps(r))


if __name__ == "__main__":
    main()
