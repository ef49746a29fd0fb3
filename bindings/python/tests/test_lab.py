"""The lab, with Ray on this machine: loopback only, no dashboard, and a limit for everything. Devices are the processor, under
names of their own and behind launchers that hang, sleep or lie."""

import contextlib
import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

import weft_nn

ray = pytest.importorskip("ray", reason="the package ray is not here")
if os.name != "posix":
    pytest.skip("clusters of several nodes on one machine", allow_module_level=True)
os.environ.update(RAY_AUTH_MODE="disabled", RAY_USAGE_STATS_ENABLED="0", RAY_health_check_period_ms="300")
os.environ.update(RAY_health_check_initial_delay_ms="300", RAY_health_check_timeout_ms="1000")

from weft_nn import lab  # noqa: E402
from weft_nn.lab import _child, _device, _worker  # noqa: E402

MODEL = """
const @k : f32[{0},{0}] = random(1)
graph @main(%x: f32[32,{0}]) -> (y: f32[32,{0}]) {{
  %k = const @k : f32[{0},{0}]
  %0 = matmul %x, %k : f32[32,{0}]
  %1 = relu %0 : f32[32,{0}]
  %2 = softmax %1 {{axes=[1]}} : f32[32,{0}]
  %y = matmul %2, %k : f32[32,{0}]
  return %y
}}
"""

# Four products of different sizes: four kernels.
CHAIN = """
const @a : f32[64,96] = random(1)
const @b : f32[96,80] = random(2)
const @c : f32[80,64] = random(3)
const @d : f32[64,48] = random(4)
graph @main(%x: f32[64,64]) -> (y: f32[64,48]) {
  %a = const @a : f32[64,96]
  %b = const @b : f32[96,80]
  %c = const @c : f32[80,64]
  %d = const @d : f32[64,48]
  %0 = matmul %x, %a : f32[64,96]
  %1 = relu %0 : f32[64,96]
  %2 = matmul %1, %b : f32[64,80]
  %3 = relu %2 : f32[64,80]
  %4 = matmul %3, %c : f32[64,64]
  %5 = relu %4 : f32[64,64]
  %6 = matmul %5, %d : f32[64,48]
  %y = relu %6 : f32[64,48]
  return %y
}
"""

# `launcher.py HOW FOLDER PROGRAM..`: notes the call in FOLDER/calls, and does what HOW says with a job, not with a check run.
LAUNCHER = """
import json, os, subprocess, sys, time
from pathlib import Path
how, folder, program = sys.argv[1], Path(sys.argv[2]), sys.argv[3:]
check = "check.weft" in program
if any(w in program for w in ("bench", "compare", "tune")) and not check:
    with open(folder / "calls", "a") as file:
        print(" ".join(program[2:]), file=file)
    if how == "hangs" and (folder / "hangs").exists():
        time.sleep(100)
    try:
        sleeps = how == "sleeps" and len((folder / "calls").read_text().splitlines()) > int((folder / "sleeps").read_text())
    except FileNotFoundError:
        sleeps = False
    if sleeps:
        (folder / "asleep").touch()
        time.sleep(100)
    if how == "replays" and "--kernel" in program:
        told = json.loads((folder / "told.json").read_text())[program[program.index("--kernel") + 1]]
        time.sleep(told["seconds"])
        Path("found.jsonl").write_text(told["found"])
        Path("record.json").write_text(json.dumps(told["record"]))
        sys.exit(0)
if check and how == "hangs" and (folder / "hangs for good").exists():
    time.sleep(100)
if how == "lies":
    code = subprocess.run(program).returncode
    if Path("record.json").exists():
        record = json.loads(Path("record.json").read_text())
        record["env"]["weft"] = "0.0.9"
        Path("record.json").write_text(json.dumps(record))
    sys.exit(code)
os.execv(program[0], program)
"""


def wait(what, limit=120):
    """Waits until this holds."""
    until = time.monotonic() + limit
    while not what():
        assert time.monotonic() < until, "it took too long"
        time.sleep(0.1)


class Lab:
    """A cluster of two nodes: each of these kinds has a device on the first, and some another one."""

    def __init__(self, folder):
        self.folder = folder
        (folder / "launcher.py").write_text(LAUNCHER)
        # No peak rates that were measured on a busy machine, against which results are held.
        os.environ["WEFT_CACHE"] = str(folder / "cache")
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            self.address = f"127.0.0.1:{s.getsockname()[1]}"
        self.nodes = []
        devices = [self.device(kind, how) for kind, how in [
            ("plain", None), ("same", "counts"), ("same2", "counts"), ("hang", "hangs"), ("hang2", "counts"), ("old", "lies"),
            ("kill", "sleeps"), ("kill2", "counts"), ("lone", "sleeps"), ("replay", "replays"), ("replay2", "replays"), ("busy", "counts"), ("node", "counts"),
        ]]
        if weft_nn.devices():
            devices.append(lab.Device("driver", "vulkan", "0", f"0:{os.getpid()}"))
        self.start(devices, "--head", f"--port={self.address.split(':')[1]}", "--include-dashboard=false", f"--temp-dir={folder / 'ray'}")
        os.environ["RAY_ADDRESS"] = self.address
        wait(lambda: self.there() == 1)
        # The device of a machine that will be lost, and its like on the first.
        self.start([self.device("node2", "sleeps")], f"--address={self.address}")
        wait(lambda: self.there() == 2)

    def there(self):
        try:
            return len({device.node for device in lab.devices()})
        except weft_nn.Error:
            return 0

    def device(self, name, how):
        """A device whose kind is the name without its last digit, which has a lock of its own."""
        launcher = shlex.join([sys.executable, str(self.folder / "launcher.py"), how, str(self.folder)]) if how else ""
        return lab.Device(name.rstrip("2"), "test", "cpu", f"{name}:{os.getpid()}", launcher)

    def start(self, devices, *words):
        command = [sys.executable, "-m", "ray.scripts.scripts", "start", "--block", "--disable-usage-stats", *words]
        command += ["--node-ip-address=127.0.0.1", "--num-cpus=0", "--object-store-memory=80000000"]
        command += ["--resources=" + json.dumps({device.resource: 1 for device in devices})]
        with open(self.folder / "nodes.log", "ab") as log:
            self.nodes.append(subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True))

    def of(self, *kinds):
        return [device for device in lab.devices() if device.name in kinds]

    def calls(self):
        path = self.folder / "calls"
        return path.read_text().splitlines() if path.exists() else []

    def sleep(self, jobs=0):
        """After so many jobs from now on, those under a launcher that sleeps never end."""
        (self.folder / "asleep").unlink(missing_ok=True)
        (self.folder / "sleeps").write_text(str(len(self.calls()) + jobs))

    def at_work(self):
        """Processes that hold a job under a launcher that sleeps, with the actors that wait for them."""
        found = []
        for entry in Path("/proc").iterdir():
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
                if any(w.endswith(b"_child.py") for w in words) and b"sleeps" in words and str(self.folder).encode() in words:
                    parent = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
                    found.append((int(entry.name), None if b"--inner" in words else parent))
            except OSError:
                pass
        return found

    def lock(self, device):
        return Path(_worker.Worker(device).lock)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    # Ray's sockets have paths of at most 107 characters.
    import tempfile

    with tempfile.TemporaryDirectory(prefix="wl", dir="/tmp") as folder:
        made = Lab(Path(folder))
        yield made
        ray.shutdown()
        for node in made.nodes[::-1]:
            node.send_signal(signal.SIGTERM)
        for node in made.nodes:
            try:
                node.wait(10)
            except subprocess.TimeoutExpired:
                node.kill()


@pytest.fixture
def models(tmp_path):
    """Three networks."""
    paths = [tmp_path / f"net{size}.weft" for size in (32, 48, 64)]
    for path in paths:
        path.write_text(MODEL.format(int(path.stem[3:])))
    return paths


RUNS = {"runs": 5, "warmup": 1}


def test_names_of_resources():
    said = {
        "devices": [
            {"index": i, "name": "A & B's", "driver": "1%", "backend": b, "type": t, "vendor_id": 0x10DE, "device_id": d}
            for i, (b, t, d) in enumerate([("vulkan", "discrete", 1), ("vulkan", "discrete", 1), ("dx12", "discrete", 1), ("vulkan", "cpu", 9)])
        ],
        "cpu": {"name": "C", "instructions": "avx2", "threads": 2},
    }
    cards = _device.of_machine(said, [], "", "")
    assert [d.id for d in cards] == ["10de:0001:0", "10de:0001:1", "10de:0001:0"]       # twice the same under two interfaces
    software = _device.of_machine(said, ["3", "cpu"], "run me", "left")
    assert [(d.device, d.id) for d in software] == [("3", "processor:left"), ("cpu", "processor:left")]
    for device in [*cards, *software]:
        assert _device.read(device.resource, "n", "h") == device._replace(node="n", host="h")
    assert _device.line(cards[:1], "HEAD:6379").startswith("ray start --address=HEAD:6379 --resources=")


def test_this_machine_prints_its_line():
    line = subprocess.run([sys.executable, "-m", "weft_nn.lab", "resources", "--device", "cpu"], capture_output=True, text=True)
    assert line.returncode == 0 and "device=cpu" in line.stdout, line
    wrong = subprocess.run([sys.executable, "-m", "weft_nn.lab", "resources", "--device", "none"], capture_output=True, text=True)
    assert wrong.returncode == 5 and "none" in wrong.stderr


def test_marks(tmp_path):
    """Which ends of a program mark a device, and which end of a check run takes the mark away."""
    lock = tmp_path / "locks" / "one"

    def run(kind, limit, *program):
        words = [sys.executable, _child.__file__, str(lock), str(limit), kind, "a job", *program]
        child = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        return child.wait(), bool(lock.read_text())

    ends = {code: run("job", 9, "sh", "-c", f"exit {code}") for code in (0, 1, 3)}
    assert ends == {0: (0, False), 1: (1, False), 3: (3, False)}
    assert run("job", 9, "/no/such/program") == (_child.CANNOT, False)
    assert run("job", 0.5, "sleep", "20") == (_child.LATE, True)
    assert run("job", 9, "true") == (_child.MARKED, True)
    assert run("check", 9, "sh", "-c", "exit 3") == (3, True)
    assert run("check", 9, "true") == (0, False)
    assert run("job", 9, "sh", "-c", "kill -9 $$") == (128 + 9, True)


def test_external_data_goes_along(tmp_path):
    onnx = pytest.importorskip("onnx")
    import numpy as np
    import onnx.parser
    from weft_nn.lab._session import content

    model = onnx.parser.parse_model('<ir_version: 8, opset_import: ["" : 17]> main (float[2] x) => (float[2] y) { y = Add(x, w) }')
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.ones(2, np.float32), "w"))
    onnx.save(model, tmp_path / "m.onnx", save_as_external_data=True, location="big.data", size_threshold=0)
    name, files = content(tmp_path / "m.onnx")
    assert name == "m.onnx" and set(files) == {"m.onnx", "big.data"}
    with pytest.raises(weft_nn.Error, match="cannot read"):
        content(tmp_path / "none.onnx")
    assert content("squeezenet1_1") == ("squeezenet1_1", {})


def test_bench_and_compare_and_the_folder(cluster, models, tmp_path, capfd):
    """Three networks on devices under a launcher, without one, and under a driver where there is one."""
    folder, kinds = tmp_path / "results", cluster.of("plain", "same", "driver")
    found = lab.bench(models, {"amp": ["off"]}, folder=folder, on=kinds, **RUNS)
    assert [one.get("error") for one in found] == [None] * len(found)
    count = 3 * len({d.kind for d in kinds})
    assert len(found) == count and len(list((folder / "jobs").glob("*.json"))) == count
    assert all(one["record"]["latency_ms"]["median"] > 0 for one in found)
    calls = len(cluster.calls())
    assert calls == 3                                       # the two devices of the kind `same` have shared its three jobs
    page = (folder / "page.html").read_text()
    assert all(path.stem in page for path in models)
    filed = len(list(folder.glob("*.json")))
    again = lab.bench(models, {"amp": ["off"]}, folder=folder, on=kinds, **RUNS)
    assert again == found and len(cluster.calls()) == calls and len(list(folder.glob("*.json"))) == filed
    [compared] = lab.compare(models[:1], "fp16", folder=folder, on=cluster.of("plain"))
    assert compared["record"]["pass"] is True
    [wrong] = lab.bench(["no_such_network"], folder=folder, on=cluster.of("plain"))
    assert "exit code 3" in wrong["error"] and wrong["tries"] == 0
    assert "plain on " in capfd.readouterr().err


def test_a_hang_is_a_time_out_and_a_mark(cluster, models, tmp_path):
    (cluster.folder / "hangs").touch()
    devices = cluster.of("hang")
    hangs = next(d for d in devices if "hangs" in d.launcher)
    lines = []
    found = lab.bench(models, folder=tmp_path, on=devices, limit=2, check_limit=30, progress=lambda d, text: lines.append((d, text)), **RUNS)
    assert [one.get("error") for one in found] == [None] * 3        # the other one of its kind has done all
    assert all(one["device"]["id"] != hangs.id for one in found) and max(one["tries"] for one in found) == 2
    assert any(d == hangs and "no end within 2 s" in text for d, text in lines)
    assert "2 s" in cluster.lock(hangs).read_text()                 # the mark outlives the session
    (cluster.folder / "hangs for good").touch()
    [marked] = lab.bench(models[:1], folder=tmp_path / "b", on=[hangs], check_limit=2, **RUNS)
    assert "the check run: no end within 2 s" in marked["error"] and marked["tries"] == 0
    (cluster.folder / "hangs for good").unlink()
    (cluster.folder / "hangs").unlink()
    [well] = lab.bench(models[:1], folder=tmp_path / "b", on=[hangs], **RUNS)
    assert "error" not in well and cluster.lock(hangs).read_text() == ""


def test_another_version_is_refused_with_both(cluster, models, tmp_path):
    [refused] = lab.bench(models[:1], folder=tmp_path, on=cluster.of("old"), **RUNS)
    assert "refused: it has Weft 0.0.9, and this program 0." in refused["error"]


def test_a_killed_worker(cluster, models, tmp_path):
    """Its job is done by the other one of its kind, or reported; its process is ended, and the device works on."""
    cluster.sleep()
    asleep = cluster.folder / "asleep"

    def kill(device, text):
        if "sleeps" in device.launcher and "done, bench" in text and (cluster.folder / "sleeps").exists():
            wait(asleep.exists)
            (cluster.folder / "sleeps").unlink()
            [actor] = [actor for _, actor in cluster.at_work() if actor]
            os.kill(actor, signal.SIGKILL)

    found = lab.bench(models, folder=tmp_path, on=cluster.of("kill"), progress=kill, **RUNS)
    assert [one.get("error") for one in found] == [None] * 3 and sorted(one["tries"] for one in found) == [1, 1, 2]
    wait(lambda: not cluster.at_work())
    cluster.sleep()
    [lost] = lab.bench(models[:1], folder=tmp_path, on=cluster.of("lone"), progress=kill, **RUNS)
    assert "its actor died" in lost["error"] and lost["tries"] == 1


def test_a_lost_machine(cluster, models, tmp_path):
    """Its job is done by a device of its kind on another one."""
    devices = cluster.of("node")
    assert len({d.node for d in devices}) == 2
    cluster.sleep()
    asleep = cluster.folder / "asleep"

    def kill(device, text):
        if "sleeps" in device.launcher and "done, bench" in text:
            wait(asleep.exists)
            # All at once, as a machine goes: an actor must not tell that its job was killed.
            for how in (signal.SIGSTOP, signal.SIGKILL):
                for one in descendants(cluster.nodes[1].pid)[::-1]:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(one, how)

    found = lab.bench(models, folder=tmp_path, on=devices, progress=kill, **RUNS)
    (cluster.folder / "sleeps").unlink()
    assert [one.get("error") for one in found] == [None] * 3 and sorted(one["tries"] for one in found) == [1, 1, 2]
    assert len(cluster.of("node")) == 1


def descendants(pid):
    """A process and all that it has started, the youngest first."""
    try:
        own = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        own = []                                            # it has ended
    return [one for child in own for one in descendants(int(child))] + [pid]


SESSION = """
import sys
from weft_nn import lab
on = [d for d in lab.devices() if d.name == "kill" and "sleeps" in d.launcher]
lab.bench(sys.argv[2:], folder=sys.argv[1], on=on, runs=5, warmup=1)
"""


def test_a_session_that_dies_is_resumed(cluster, models, tmp_path):
    before = len(cluster.calls())
    program = [sys.executable, "-c", SESSION, str(tmp_path), *map(str, models)]
    cluster.sleep(1)                                        # the second never ends
    child = subprocess.Popen(program)
    wait((cluster.folder / "asleep").exists)
    child.kill()
    child.wait()
    (cluster.folder / "sleeps").unlink()
    assert len(list((tmp_path / "jobs").glob("*.json"))) == 1
    wait(lambda: not cluster.at_work())                     # what it was doing has ended, with it
    assert subprocess.run(program).returncode == 0
    assert len(list((tmp_path / "jobs").glob("*.json"))) == len(list(tmp_path.glob("*.json"))) == 3
    assert len(cluster.calls()) - before == 4               # three, and the one that was not finished


def test_jobs_on_a_device_wait_for_each_other(cluster, models, tmp_path):
    import fcntl

    [device] = cluster.of("busy")
    lines = []
    with _child.opened(str(cluster.lock(device))) as file:
        fcntl.flock(file, fcntl.LOCK_EX)

        def free(_, text):
            lines.append(text)
            if "another program" in text:
                fcntl.flock(file, fcntl.LOCK_UN)

        [done] = lab.bench(models[:1], folder=tmp_path, on=[device], limit=20, check_limit=5, progress=free, **RUNS)
    assert "error" not in done and done["tries"] == 1 and any("another program has the device" in text for text in lines)


def test_a_tune_is_shared(cluster, tmp_path):
    """Neither of two devices has more than .65 of the work. Two cores cannot show it, so the device's time is a sleep:
    what each search took on one device. It gives again what was found there."""
    model = tmp_path / "net.weft"
    model.write_text(CHAIN)
    options = {"graph": False, "threads": 1}
    alone = lab.tune([model], tmp_path / "alone.jsonl", seconds=60, folder=tmp_path / "alone", on=cluster.of("plain"), **options)
    assert [one.get("error") for one in alone] == [None] * 4
    told = {}
    for path in (tmp_path / "alone" / "jobs").glob("*.found.jsonl"):
        one = json.loads(Path(str(path).replace(".found.jsonl", ".json")).read_text())
        told[one["what"].split(" --kernel ")[1]] = {**one, "found": path.read_text()}
    (cluster.folder / "told.json").write_text(json.dumps(told))
    seconds, candidates = {}, {}
    for devices in (cluster.of("replay")[:1], cluster.of("replay")):
        name = str(len(devices))
        made = lab.tune([model], tmp_path / f"{name}.jsonl", seconds=60, folder=tmp_path / name, on=devices, **options)
        own = dict.fromkeys((device.id for device in devices), 0)
        for one in made:
            own[one["device"]["id"]] += told[one["what"].split(" --kernel ")[1]]["seconds"]
        seconds[len(devices)] = own
        candidates[len(devices)] = sum(f["tried"] for one in made for f in one["record"]["functions"])
    print("seconds by devices:", seconds, "candidates:", candidates)
    assert candidates[1] == candidates[2] > 0
    assert max(seconds[2].values()) <= 0.65 * sum(seconds[1].values())
    databases = [sorted((tmp_path / f"{name}.jsonl").read_text().splitlines()) for name in ("alone", "1", "2")]
    assert databases[0] == databases[1] == databases[2] and len(databases[0]) > 3
    [used] = lab.bench([model], tuning=tmp_path / "2.jsonl", folder=tmp_path / "used", on=cluster.of("plain"), threads=1, **RUNS)
    assert "error" not in used
