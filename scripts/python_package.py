#!/usr/bin/env python3
"""The Python package beside the command: size of the wheel, latency, memory over runs, other threads.

    cargo xtask wheel
    python3 -m venv env && env/bin/pip install target/wheel/release/weft_nn-*.whl
    env/bin/python scripts/python_package.py WHEEL MODEL.onnx... [--device cpu] [--rounds 7] [--runs 50]

Each round runs `weft bench`, of the command that the wheel brings, and then as many runs of `session.run` on the same random input; the
printed latency is the median over the rounds of each one's median. The limits are those of the package's tests: 15 MB for the wheel; a
median at most max(5 %, 50 us) above the command's; 4 MB of resident memory between run 200 and run 2000; a second thread that counts
during runs. Exits with 1 if one is not kept.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import threading
import time

import numpy as np

import weft_nn
import weft_nn_command

MEGABYTES, SHARE, MICROSECONDS, RESIDENT = 15, 0.05, 50, 4


def command_median(model, device, runs):
    """Milliseconds of a run by the command: the median."""
    words = [*weft_nn_command.words(), "bench", model, "--device", device, "--runs", str(runs), "--warmup", "5", "--json"]
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stderr)
    return json.loads(done.stdout)["latency_ms"]["median"]


def package_median(session, inputs, runs):
    """Milliseconds of a run by the package: the median."""
    for _ in range(5):
        session.run(inputs)
    times = []
    for _ in range(runs):
        start = time.perf_counter()
        session.run(inputs)
        times.append((time.perf_counter() - start) * 1e3)
    return statistics.median(times)


def resident():
    """Megabytes of memory that the process has."""
    with open("/proc/self/statm", encoding="ascii") as f:
        return int(f.read().split()[1]) * os.sysconf("SC_PAGESIZE") / 1e6


def counted_meanwhile(session, inputs):
    """What another thread counts to in each millisecond of half a second of runs, and alone."""
    count, stop = [0], threading.Event()

    def work():
        while not stop.is_set():
            count[0] += 1

    def rate(busy):
        count[0] = 0
        start = time.perf_counter()
        busy()
        return count[0] / (time.perf_counter() - start) / 1e3

    def runs():
        end = time.perf_counter() + 0.5
        while time.perf_counter() < end:
            session.run(inputs)

    thread = threading.Thread(target=work)
    thread.start()
    meanwhile = rate(runs)
    alone = rate(lambda: time.sleep(0.2))
    stop.set()
    thread.join()
    return meanwhile, alone


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wheel")
    parser.add_argument("models", nargs="+")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--runs", type=int, default=50)
    a = parser.parse_args()
    broken = []

    def held(holds, what):
        print(("" if holds else "NOT KEPT: ") + what)
        if not holds:
            broken.append(what)

    size = os.path.getsize(a.wheel) / 1e6
    held(size <= MEGABYTES, f"wheel: {size:.2f} MB of {MEGABYTES}")
    if weft_nn._native.DEBUG:
        print("the package is built without optimisation: its times say nothing")
    for model in a.models:
        session = weft_nn.compile(model, device=a.device)
        rng = np.random.default_rng(0)
        inputs = {
            p.name: (rng.standard_normal(p.shape) if "float" in p.dtype else np.zeros(p.shape)).astype(p.dtype)
            for p in session.inputs
        }
        pairs = [
            (command_median(model, a.device, a.runs), package_median(session, inputs, a.runs)) for _ in range(a.rounds)
        ]
        command, package = (statistics.median(list) for list in zip(*pairs))
        allowed = command + max(SHARE * command, MICROSECONDS / 1e3)
        name = os.path.basename(model)
        held(package <= allowed, f"{name}: command {command:.3f} ms, package {package:.3f} ms, allowed {allowed:.3f} ms")
        meanwhile, alone = counted_meanwhile(session, inputs)
        held(meanwhile > 0, f"{name}: a second thread counts {meanwhile:.0f} in a millisecond of runs, {alone:.0f} alone")
    # The last network is small enough to run 2000 times; its memory is looked at behind everything else.
    start = time.perf_counter()
    for i in range(2000):
        session.run(inputs)
        if i == 199:
            early = resident()
    late = resident()
    what = f"memory: {early:.1f} MB after run 200, {late:.1f} MB after run 2000 ({time.perf_counter() - start:.0f} s)"
    held(late - early <= RESIDENT, what)
    sys.exit(bool(broken))


if __name__ == "__main__":
    main()
