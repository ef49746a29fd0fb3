"""Gives jobs to the actors of devices, and files what they find. Ray places actors, moves files and notices what dies."""

from __future__ import annotations

import functools
import hashlib
import json
import logging
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple, cast

import weft_nn_command

from .._errors import Error
from .._tools import _command
from ._device import PREFIX, Device, read
from ._worker import Outcome, Worker

Progress = Callable[[Device, str], Any]
# Seconds until a device that another program has is asked again.
AGAIN = 1.0
# Seconds between looks at devices that are to be asked again.
LOOK = 0.2
# Seconds for an actor that died to come back.
LOST = 60.0


class Job:
    """Something to run once on a device of a kind. Its key is of all that the result depends on.

    outputs: names of files that it writes.
    filed: whether the record is a benchmark that `weft results` files.
    """

    def __init__(
        self, what: str, kind: str, words: "Sequence[str]", files: "Mapping[str, bytes]", limit: float, outputs: "Sequence[str]" = (),
        filed: bool = False,
    ):
        self.what, self.kind, self.words, self.files = what, kind, list(words), dict(files)
        self.limit, self.outputs = limit, list(outputs)
        self.tried: "List[Device]" = []
        self.reason, self.filed = "", filed
        digests = {name: hashlib.sha256(data).hexdigest() for name, data in self.files.items()}
        self.key = hashlib.sha256(json.dumps([kind, self.words, digests], sort_keys=True).encode()).hexdigest()[:20]


class Folder:
    """The results: `jobs` has a file for each job that is done, beside the files of `weft results`."""

    def __init__(self, path: "os.PathLike[str] | str"):
        self.path = Path(path)
        self.jobs = self.path / "jobs"
        self.jobs.mkdir(parents=True, exist_ok=True)

    def found(self, job: Job, version: str) -> "Optional[Dict[str, Any]]":
        """The result of a job that this version has done."""
        try:
            entry = json.loads((self.jobs / f"{job.key}.json").read_bytes())
        except (OSError, ValueError):
            return None
        return cast("Dict[str, Any]", entry) if entry.get("version") == version else None

    def keep(self, job: Job, entry: "Dict[str, Any]", outputs: "Mapping[str, bytes]") -> None:
        """Writes a result: whole, or not at all."""
        data = {f"{job.key}.{name}": content for name, content in outputs.items()}
        data[f"{job.key}.json"] = json.dumps(entry, indent=1).encode()
        for name, content in data.items():
            part = self.jobs / f".{name}.{os.getpid()}"
            part.write_bytes(content)
            os.replace(part, self.jobs / name)

    def outputs(self, jobs: "Sequence[Job]", name: str) -> "List[Path]":
        """The files of that name that these jobs wrote: a search without time for one schedule writes none."""
        return [path for path in (self.jobs / f"{job.key}.{name}" for job in jobs) if path.exists()]

    def add(self, job: Job, record: Any) -> None:
        """Files a benchmark among the results, once; says it if it is refused there (docs/results.md)."""
        path = self.jobs / f".{job.key}.record"
        path.write_text(json.dumps(record))
        try:
            for refused in _command("results", "add", str(path), "--folder", str(self.path))["refused"]:
                print(f"lab: {job.what} on {job.kind} is not on the page: {refused['why']}", file=sys.stderr)
        finally:
            path.unlink()

    def page(self) -> None:
        """Writes the page of all results that are filed."""
        if any(self.path.glob("*.json")):
            write("results", "page", "--folder", str(self.path), "-o", str(self.path / "page.html"))


def write(*words: str) -> None:
    """Runs the command where it writes a file."""
    done = subprocess.run([*weft_nn_command.words(), *words, "--quiet"], capture_output=True, text=True)
    if done.returncode != 0:
        raise Error(f"weft {' '.join(words[:2])}: {done.stderr.strip()}", done.returncode)


class Lines:
    """One line a device on stderr: written anew in a terminal, and elsewhere when it changes."""

    def __init__(self, out: Any = None) -> None:
        self.out = out or sys.stderr
        self.shown: "Dict[Device, str]" = {}

    def __call__(self, device: Device, text: str) -> None:
        line = f"{device.name} on {device.host}, {device.device}: {text}"
        if self.shown.get(device) == line:
            return
        above = f"\x1b[{len(self.shown)}A" if self.shown else ""
        self.shown[device] = line
        if not self.out.isatty():
            print(line, file=self.out, flush=True)
            return
        columns = os.get_terminal_size(self.out.fileno()).columns
        lines = "".join(f"\x1b[2K{line[: columns - 1]}\n" for line in self.shown.values())
        print(above + lines, end="", file=self.out, flush=True)


class Seat:
    """A device with its actor, and what it is doing."""

    def __init__(self, device: Device, actor: Any):
        self.device, self.actor = device, actor
        self.ref: Any = None
        self.job: "Optional[Job]" = None
        self.ready, self.out, self.waits = False, "", False
        self.done, self.pause, self.lost = 0, 0.0, time.monotonic()


def connect() -> Any:
    """Ray, connected to a cluster: the one of this process, of RAY_ADDRESS, or of this machine."""
    try:
        import ray  # type: ignore[import-not-found, unused-ignore]
    except ImportError:
        raise Error("weft_nn.lab needs Ray", 2, None, "pip install 'weft-nn[lab]'") from None
    if not ray.is_initialized():
        try:
            ray.init(address=os.environ.get("RAY_ADDRESS", "auto"), log_to_driver=False, logging_level=logging.ERROR)
        except ConnectionError as error:
            text = "start one with the line that `python -m weft_nn.lab resources --head` prints"
            raise Error(f"no cluster of Ray is running: {error}", 5, None, text) from None
    return ray


def devices() -> "List[Device]":
    """The devices of the cluster whose machines answer."""
    ray = connect()
    found = [
        read(name, node["NodeID"], node["NodeManagerHostname"])
        for node in ray.nodes()
        if node["Alive"]
        for name in node["Resources"]
        if name.startswith(PREFIX)
    ]
    return sorted(found)


class Session:
    """The actors of some devices, and a folder."""

    def __init__(self, chosen: "Optional[Sequence[Device]]", folder: Any, check: float, progress: "Optional[Progress]"):
        self.ray = connect()
        self.devices = list(devices() if chosen is None else chosen)
        if not self.devices:
            text = "start Ray on each machine with the line that `python -m weft_nn.lab resources` prints there"
            raise Error("the cluster has no device of Weft", 5, None, text)
        self.folder, self.check, self.progress = Folder(folder), check, progress or Lines()
        self.version = own_version()
        self.refs: "Dict[str, Any]" = {}
        self.results: "List[Dict[str, Any]]" = []
        self.seats = [self._seat(device) for device in self.devices]

    def __enter__(self) -> "Session":
        return self

    def __exit__(self, *_: object) -> None:
        for seat in self.seats:
            self.ray.kill(seat.actor)

    def kinds(self) -> "List[str]":
        """The kinds of the devices."""
        return sorted({device.kind for device in self.devices})

    def _seat(self, device: Device) -> Seat:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy as OnNode  # type: ignore[import-not-found, unused-ignore]

        # Ray starts an actor that died once more, on the same machine; its calls are never repeated by Ray.
        actor = self.ray.remote(Worker).options(
            resources={device.resource: 1}, num_cpus=0, max_restarts=1, max_task_retries=0,
            scheduling_strategy=OnNode(device.node, soft=False),
        ).remote(device)
        seat = Seat(device, actor)
        self._ask(seat)
        return seat

    def _ask(self, seat: Seat) -> None:
        seat.ref, seat.job = seat.actor.check.remote(self.check), None
        if not seat.waits:
            self.progress(seat.device, "waits for its check run")

    def _start(self, seat: Seat, job: Job) -> None:
        # Each content is in the object store once, and comes to each machine once.
        files = {name: self._put(data) for name, data in job.files.items()}
        seat.ref = seat.actor.run.remote(job.what, job.words, files, job.outputs, (job.limit, self.check))
        seat.job = job
        if not seat.waits:
            self.progress(seat.device, f"{seat.done} done, {job.what}")

    def _put(self, data: bytes) -> Any:
        key = hashlib.sha256(data).hexdigest()
        if key not in self.refs:
            self.refs[key] = self.ray.put(data)
        return self.refs[key]

    def run(self, jobs: "Sequence[Job]") -> "List[Dict[str, Any]]":
        """Runs the jobs that the folder does not have, and gives the results of all in their order."""
        entries: "Dict[str, Dict[str, Any]]" = {}
        left: "List[Job]" = []
        for job in {job.key: job for job in jobs}.values():
            found = self.folder.found(job, self.version)
            if found is None:
                left.append(job)
            else:
                self._filed(job, found, entries)
        while True:
            self._give(left, entries)
            at_work = [s for s in self.seats if s.job is not None]
            if not left and not at_work:
                break
            waiting = {s.ref: s for s in self.seats if s.ref is not None}
            if not waiting:
                time.sleep(LOOK)
                continue
            for ref in self.ray.wait(list(waiting), timeout=LOOK)[0]:
                self._ended(waiting[ref], left, entries)
        return [entries[job.key] for job in jobs]

    def _give(self, left: "List[Job]", entries: "Dict[str, Dict[str, Any]]") -> None:
        """Gives each idle device a job of its kind; jobs that no device can take any more are reported."""
        for seat in self.seats:
            if seat.out or seat.ref is not None or time.monotonic() < seat.pause:
                continue
            if not seat.ready:
                self._ask(seat)
                continue
            mine = next((j for j in left if j.kind == seat.device.kind and seat.device not in j.tried), None)
            if mine is not None:
                left.remove(mine)
                self._start(seat, mine)
        for job in list(left):
            same = [s for s in self.seats if s.device.kind == job.kind]
            if all(s.out or s.device in job.tried for s in same):
                left.remove(job)
                reasons = [f"{s.device.name} on {s.device.host}: {s.out}" for s in same if s.out]
                self._report(job, entries, "; ".join(filter(None, [job.reason, *reasons])))

    def _ended(self, seat: Seat, left: "List[Job]", entries: "Dict[str, Dict[str, Any]]") -> None:
        """Takes what the actor of a device answers, or that it has died."""
        job, ref, seat.job, seat.ref = seat.job, seat.ref, None, None
        try:
            outcome: Outcome = self.ray.get(ref)
        except self.ray.exceptions.RayError as error:
            outcome = self._lost(seat, error)
        seat.waits = outcome.state == "busy"
        if seat.waits:
            self.progress(seat.device, f"waits: another program has the device ({outcome.text})")
            seat.pause = time.monotonic() + AGAIN
            if job is not None:
                left.insert(0, job)
        elif outcome.state == "marked":
            self._leave(seat, f"marked: {outcome.text}")
            if job is not None:
                left.insert(0, job)
        elif job is None:
            self._begin(seat, outcome)
        elif outcome.state == "lost":
            job.tried.append(seat.device)
            reason = f"{seat.device.name} on {seat.device.host}: {outcome.text}"
            job.reason = "; ".join(filter(None, [job.reason, reason]))
            if not seat.out:
                self.progress(seat.device, f"{seat.done} done, lost {job.what}: {outcome.text}")
            if len(job.tried) < 2:
                left.append(job)
            else:
                self._report(job, entries, job.reason)
        elif outcome.state == "failed":
            self._report(job, entries, outcome.text)
        else:
            seat.done += 1
            entry = {
                "what": job.what, "kind": job.kind, "device": seat.device._asdict(), "version": self.version,
                "seconds": outcome.seconds, "tries": len(job.tried) + 1, "record": outcome.record,
            }
            self.folder.keep(job, entry, outcome.outputs)
            self._filed(job, entry, entries)
            self.progress(seat.device, f"{seat.done} done")

    def _lost(self, seat: Seat, error: Exception) -> Outcome:
        """An actor has died. Ray starts it once more, if the machine is there; then it begins with the check run."""
        text, now = " ".join(str(error).split())[:300], time.monotonic()
        if seat.ready and isinstance(error, self.ray.exceptions.RayActorError):
            seat.ready, seat.lost, seat.pause = False, now, now + AGAIN
        elif isinstance(error, self.ray.exceptions.ActorUnavailableError) and now - seat.lost < LOST:
            seat.pause = now + AGAIN
        else:
            self._leave(seat, f"lost: {text}")
        return Outcome("lost", f"its actor died: {text}")

    def _begin(self, seat: Seat, outcome: Outcome) -> None:
        """Lets a device in, whose check run has ended."""
        if outcome.state != "done":
            return
        version = version_of(outcome.record)
        if version != self.version:
            self._leave(seat, f"refused: it has Weft {version}, and this program {self.version}")
            return
        seat.ready = True
        self.progress(seat.device, "ready")

    def _leave(self, seat: Seat, why: str) -> None:
        seat.out = why
        self.progress(seat.device, why)

    def _filed(self, job: Job, entry: "Dict[str, Any]", entries: "Dict[str, Dict[str, Any]]") -> None:
        entries[job.key] = entry
        if job.filed:
            self.folder.add(job, entry["record"])

    def _report(self, job: Job, entries: "Dict[str, Dict[str, Any]]", why: str) -> None:
        entries[job.key] = {"what": job.what, "kind": job.kind, "tries": len(job.tried), "error": why}
        print(f"lab: {job.what} on {job.kind} was not done: {why}", file=sys.stderr)


def version_of(record: "Mapping[str, Any]") -> str:
    """The version of Weft that wrote a benchmark."""
    env = record["env"]
    return f"{env['weft']} ({env['commit']})" if env.get("commit") else str(env["weft"])


@functools.lru_cache(maxsize=None)
def own_version() -> str:
    """The version of Weft in this process, in the same words."""
    import tempfile

    from ._worker import CHECK

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "check.weft")
        path.write_text(CHECK)
        rest = ("--device", "cpu", "--runs", "5", "--warmup", "1", "--tuning", "off", "--cache", "off", "--config", "none")
        return version_of(_command("bench", str(path), "--quiet", *rest))


def content(model: Any) -> "Tuple[str, Dict[str, bytes]]":
    """What stands for a model on the command line, and its files by name. A name of `weft zoo` has none."""
    from .. import _native

    if isinstance(model, _native.Model):
        model = model.to_onnx()
    if hasattr(model, "SerializeToString"):
        model = model.SerializeToString()
    if isinstance(model, (bytes, bytearray)):
        return "model.onnx", {"model.onnx": bytes(model)}
    path = Path(model)
    if not path.exists():
        if path.suffix:
            raise Error(f"cannot read {path}", 3)
        return str(model), {}
    data = path.read_bytes()
    return path.name, {path.name: data, **external(path, data)}


def external(path: Path, data: bytes) -> "Dict[str, bytes]":
    """The files with large weights that an ONNX file names: values of the key `location`, as protobuf writes them."""
    key, at = b"\x0a\x08location\x12", 0
    found: "Dict[str, bytes]" = {}
    while (at := data.find(key, at)) >= 0 and at + len(key) < len(data):
        at += len(key)
        name = data[at + 1 : at + 1 + data[at]].decode(errors="replace")
        file = path.parent / name
        if name not in found and not Path(name).is_absolute() and ".." not in Path(name).parts and file.is_file():
            found[name] = file.read_bytes()
    return found
