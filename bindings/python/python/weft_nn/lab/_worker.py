"""The actor of a device. It never touches the driver: each job is a child process (`_child`)."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Sequence

import weft_nn_command

from . import _child
from ._device import Device

# What a device has to compute before it gets work, and after it was marked.
CHECK = """graph @main(%x: f32[64,64], %w: f32[64,64]) -> (y: f32[64,64]) {
  %a = matmul %x, %w : f32[64,64]
  %y = relu %a : f32[64,64]
  return %y
}
"""
# Results of a job, as `weft ... --json=FILE` writes them.
RECORD = "record.json"


class Outcome(NamedTuple):
    """How a job ended.

    state: "done"; "failed": it would fail anywhere; "lost": it may succeed on another device; "busy": another program has
        the device, and the job has not begun; "marked": the check run failed, and the job has not begun.
    text: the reason.
    """

    state: str
    text: str = ""
    record: Any = None
    outputs: "Dict[str, bytes]" = {}
    seconds: float = 0.0


def words(device: Device, command: str, *rest: str) -> "List[str]":
    """Arguments of `weft` on this device."""
    return [command, *rest, "--device", device.device, "--quiet", "--config", "none", f"--json={RECORD}"]


class Worker:
    """Runs jobs on one device, one after the other."""

    def __init__(self, device: Device):
        self.device = device
        place = hashlib.sha256(device.id.encode()).hexdigest()[:16]
        self.lock = str(Path(tempfile.gettempdir(), "weft-lab", place))

    def check(self, limit: float) -> Outcome:
        """Whether the device computes; the record has the version of Weft. If it does, the device loses its mark."""
        job = words(self.device, "bench", "check.weft", "--runs", "5", "--warmup", "1", "--tuning", "off", "--cache", "off")
        done = self._child("check", job, {"check.weft": CHECK.encode()}, (), limit, check=True)
        return done if done.state in ("done", "busy") else done._replace(state="marked", text=f"the check run: {done.text}")

    def run(self, what: str, job: "Sequence[str]", files: "Dict[str, Any]", outputs: "Sequence[str]", limits: "Sequence[float]") -> Outcome:
        """Runs a job. A device with a mark is checked first.

        what: the job in words.
        files: of the job's folder: bytes, or references to them in Ray's object store.
        outputs: names of files that the job writes.
        limits: seconds for the job, and for a check run; waiting for the device does not count.
        """
        import ray  # type: ignore[import-not-found, unused-ignore]

        given = {name: ray.get(data) if isinstance(data, ray.ObjectRef) else data for name, data in files.items()}
        done = self._child(what, words(self.device, *job), given, outputs, limits[0])
        if done.state != "marked":
            return done
        checked = self.check(limits[1])
        if checked.state != "done":
            return checked._replace(text=f"{done.text}; {checked.text}")
        return self._child(what, words(self.device, *job), given, outputs, limits[0])

    def _child(
        self, what: str, job: "Sequence[str]", files: "Dict[str, bytes]", outputs: "Sequence[str]", limit: float, check: bool = False
    ) -> Outcome:
        with tempfile.TemporaryDirectory(prefix="weft-lab-") as folder:
            for name, data in files.items():
                path = Path(folder, name)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(data)
            environment = dict(os.environ, **{weft_nn_command.LAUNCHER: self.device.launcher})
            program = [*weft_nn_command.words(self.device.launcher), *job]
            child = [sys.executable, _child.__file__, self.lock, str(limit), "check" if check else "job", what]
            start = time.monotonic()
            with open(Path(folder, ".said"), "w+b") as said, open(Path(folder, ".errors"), "w+b") as errors:
                # Its stdin stays open as long as this process lives.
                process = subprocess.Popen([*child, *program], stdin=subprocess.PIPE, stdout=said, stderr=errors, cwd=folder, env=environment)
                code = process.wait()
                seconds = time.monotonic() - start
                said.seek(0)
                errors.seek(0)
                text = said.read().decode(errors="replace").strip()
                tail = errors.read().decode(errors="replace").strip()[-2000:]
            try:
                record = json.loads(Path(folder, RECORD).read_bytes())
            except (OSError, ValueError):
                record = {}
            made = {name: Path(folder, name).read_bytes() for name in outputs if Path(folder, name).exists()}
        states = {_child.BUSY: "busy", _child.MARKED: "marked", _child.LATE: "lost", _child.CANNOT: "lost"}
        if code in states:
            return Outcome(states[code], text, seconds=seconds)
        if code in (0, 1) and record and "error" not in record:
            return Outcome("done", "", record, made, seconds)
        error = record.get("error") if isinstance(record, dict) else None
        reason = ". ".join(filter(None, [error["message"], error["help"]])) if error else tail or text
        return Outcome("failed" if code in _child.FINE and code > 1 else "lost", f"exit code {code}: {reason}", seconds=seconds)
