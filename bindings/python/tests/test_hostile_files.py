"""Files that ask for programs, memory or endless work are errors in one line, early, and nothing is started."""

import json
import os
import resource
import struct
import subprocess
import sys
import zlib

import pytest

from test_bundles import bundle  # noqa: F401, a fixture

# Loads, compiles and runs a file, with 5 s of CPU time beside what it takes to begin.
SCRIPT = """
import resource, sys
import numpy as np
import weft_nn
began = resource.getrusage(resource.RUSAGE_SELF)
limit = int(began.ru_utime + began.ru_stime) + 6
resource.setrlimit(resource.RLIMIT_CPU, (limit, limit))
try:
    session = weft_nn.compile(sys.argv[1], device=sys.argv[2], **eval(sys.argv[3]))
    session.run({p.name: np.ones(p.shape, p.dtype) for p in session.inputs})
except weft_nn.Error as e:
    # One line; that of a text may follow, with its place marked.
    message, *marked = e.message.splitlines()
    assert message and (not marked or len(marked) == 3 and marked[2].strip(" |") == "^"), e.message
    taken = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - began.ru_maxrss
    assert taken < 1 << 20, f"{taken} KiB"
    print(e.message)
    sys.exit(e.code)
"""


def ended(folder, file, device, options):
    """A process that runs the file, with 4 GiB of address space."""
    limits = (4 << 30, 4 << 30)
    return subprocess.run(
        [sys.executable, "-c", SCRIPT, str(file), device, options],
        cwd=folder,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1", "RAYON_NUM_THREADS": "1"},
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, limits),
        capture_output=True,
        text=True,
    )


def refused(folder, file, code, words, device="cpu", options="{}"):
    before = sorted(folder.iterdir())
    done = ended(folder, file, device, options)
    assert (done.returncode, words in done.stdout) == (code, True), (file, done)
    assert sorted(folder.iterdir()) == before


def network(body, parameters="%x: f32[2]", result="f32[2]"):
    return f"graph @main({parameters}) -> (y: {result}) {{\n{body}\n  return %y\n}}\n"


def region(options):
    inner = '%y = external {target=c, options="' + options + '"} : f32[2] {\n  %0 = neg %x\n  yield %0\n}'
    return network(inner)


def calls(functions, each):
    """Functions of which each calls the next one so often."""
    lines = [network("%y = call @g0 %x : f32[2]")]
    for i in range(functions):
        op = f"call @g{i + 1}" if i + 1 < functions else "relu"
        body = [f"  %v{k + 1} = {op} %v{k} : f32[2]" for k in range(each)]
        head = f"graph @g{i}(%v0: f32[2]) -> (b: f32[2]) {{"
        lines.append("\n".join([head, *body, f"  return %v{each}", "}"]) + "\n")
    return "".join(lines)


GRID = """%0 = expand %x {shape=[1000000,1000000]}
%1 = cumsum %0 {axis=0}
%y = reduce %1 {axes=[0,1], kind=max}"""
ROWS = """%v, %r = loop _, _, %x {trips=1000000} : f32[100000], f32[1000000,100000] (%i: i64[], %a: f32[100000]) {
  %1 = sin %a
  yield %1, %1
}
%2 = cumsum %r {axis=0}
%y = reduce %2 {axes=[0,1], kind=max}"""

TEXTS = [
    ("program", region("compiler=./evil.sh"), 2, "of this machine"),
    ("folder", region("folder=./ESCAPED"), 2, "of this machine"),
    ("code", region(""), 2, "runs code of this machine"),
    ("host function", network("%y = call_host @system %x {dtypes=[f32], shapes=[[2]]} : f32[2]"), 3, "not registered"),
    ("calls in calls", calls(20, 2), 3, "more than 100000"),
    ("more calls", calls(64, 4), 3, "more than 100000"),
    ("deep calls", calls(1000, 1), 3, "deep, more than 64"),
    ("a large value", network(GRID, "%x: f32[1]", "f32[]"), 5, "iB"),
    ("rows of a loop", network(ROWS, "%x: f32[100000]", "f32[]"), 5, "iB"),
    ("a large constant", "const @w : f32[1000000,1000000] = splat(1.0)\n", 3, "at most 67108864 bytes"),
    ("no text", "\x00\x01", 3, "means nothing here"),
]


@pytest.mark.parametrize("name, text, code, words", TEXTS, ids=[t[0] for t in TEXTS])
@pytest.mark.parametrize("device", ["cpu", "interpreter"])
def test_texts(tmp_path, device, name, text, code, words):
    evil = tmp_path / "evil.sh"
    evil.write_text('#!/bin/sh\ntouch "$(dirname "$0")/STARTED"\nexit 1\n')
    evil.chmod(0o755)
    file = tmp_path / "net.weft"
    file.write_text(text)
    refused(tmp_path, file, code, words, device)
    if "evil" in text or "ESCAPED" in text:
        refused(tmp_path, file, 2, "a file must not set", device, "{'allow_native': True}")


def with_changed_plan(data, place):
    """The bundle with one bit of its plan changed, and checksums that are right (docs/bundle.md)."""
    offset, length, _ = struct.unpack("<QQI", data[-28:-8])
    index = json.loads(data[offset : offset + length])
    part = index["parts"][index["entries"][0]["plan"]]
    at, size = part["offset"], part["bytes"]
    plan = bytearray(data[at : at + size])
    plan[place // 8 % size] ^= 1 << place % 8
    part["crc32"] = zlib.crc32(plan)
    index = json.dumps(index).encode()
    parts = data[:at] + plan + data[at + size : offset]
    return parts + index + struct.pack("<QQI", offset, len(index), zlib.crc32(index)) + data[-8:]


def test_bundles(tmp_path, bundle):  # noqa: F811
    data = bundle.read_bytes()
    file = tmp_path / "net.bundle"
    end = data[:-30] + b"\xff" + data[-29:]
    zeros = data[:12] + bytes(1 << 20)
    for forged, words in [(data[:40], "truncated"), (data[:-1], "truncated"), (end, "damaged"), (zeros, "truncated")]:
        file.write_bytes(forged)
        refused(tmp_path, file, 3, words)
    codes = []
    for place in range(0, 4000, 331):
        file.write_bytes(with_changed_plan(data, place))
        codes.append(ended(tmp_path, file, "cpu", "{}").returncode)
    assert set(codes) == {0, 3}, codes


def test_models_and_traces(tmp_path):
    file = tmp_path / "net.onnx"
    for data in [b"", b"\x00" * 4096, b"\x3a" + b"\xff" * 8 + b"\x7f", b"WEFTTRACE" + b"\x00" * 64]:
        file.write_bytes(data)
        refused(tmp_path, file, 3, "")
    refused(tmp_path, "/dev/zero", 3, "no plain file")


def test_databases(tmp_path):
    file = tmp_path / "net.weft"
    file.write_text(network("%y = neg %x : f32[2]"))
    (tmp_path / "garbage.jsonl").write_text("garbage\n")
    for database, words in [("/dev/zero", "no plain file"), ("garbage.jsonl", "line 1")]:
        refused(tmp_path, file, 2, words, options=repr({"tuning": database}))
