#!/usr/bin/env python3
"""Time from the start of the command to its first result, with a bundle and without one.

    scripts/bundle_start.py WEFT MODEL.onnx... [--device cpu] [--rounds 7] [--for lavapipe,ada,cpu]

Each round starts `weft run` on the model, then on a bundle of it for the same device (or with `--for`, for these profiles), which is in
another folder, both without a cache. Printed are medians over the rounds: wall time, the time of the stage `pipelines` (the driver's own
compilation) taken off; CPU time of the process, which other work on the machine disturbs less; and the ratio of each, bundle to model.
Then the sizes: bundle, and for each profile the weights, those that no profile before it has, and the plan with its kernels. Exits with 1
if a profile alone takes more than 1.1 times its weights and its plan.
"""

import argparse
import json
import os
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time


def started(command):
    """Wall time, that without `pipelines`, and CPU time of a process, in ms; and what it printed."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True)
    wall = (time.monotonic() - start) * 1e3
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}: {done.stderr}")
    cpu = (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) * 1e3
    driver = re.search(r"pipelines ([0-9.]+) ms", done.stderr)
    return (wall, wall - float(driver.group(1) if driver else 0), cpu), done


def written(weft, model, bundle, what):
    """Writes a bundle; what `weft inspect` says of it."""
    subprocess.run([weft, "compile", model, "-o", bundle, "-q", *what], check=True, stdout=subprocess.DEVNULL)
    return json.loads(subprocess.run([weft, "inspect", bundle, "--json"], capture_output=True, check=True).stdout)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("weft")
    parser.add_argument("models", nargs="+")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--for", dest="profiles")
    a = parser.parse_args()
    print("| network | model, ms | bundle, ms | ratio | model, CPU ms | bundle, CPU ms | ratio | bundle, MB | profile: weights, own, plan |")
    print("|---|---|---|---|---|---|---|---|---|")
    large = []
    with tempfile.TemporaryDirectory() as folder:
        bundle = os.path.join(folder, "net.bundle")
        for model in a.models:
            listing = written(a.weft, model, bundle, ["--for", a.profiles] if a.profiles else ["--device", a.device])
            for profile in a.profiles.split(",") if a.profiles else []:
                alone = written(a.weft, model, os.path.join(folder, "one.bundle"), ["--for", profile])
                entry = alone["entries"][0]
                if alone["bytes"] > 1.1 * entry["weights"] + entry["plan"] + entry["kernels"]:
                    large.append(f"{model} for {profile}: {alone['bytes']} bytes, of which {entry['weights']} are weights")
            run = lambda what, *more: [a.weft, "run", what, "--device", a.device, "--cache", "off", "-v", *more]
            sides = [run(model), run(bundle, "--require-compiled")]
            # Once before, for the files and the driver's own cache.
            first = [started(s)[1] for s in sides]
            assert first[0].stdout == first[1].stdout, f"{model}: the results differ"
            assert "scheduling" not in first[1].stderr and "passes" not in first[1].stderr, first[1].stderr
            times = [[], []]
            for _ in range(a.rounds):
                for side, command in zip(times, sides):
                    side.append(started(command)[0])
            (_, m, mc), (_, b, bc) = [[statistics.median(t[i] for t in side) for i in range(3)] for side in times]
            mb = lambda n: f"{n / 1e6:.2f}"
            size = lambda e: f"{e['profile']}: {mb(e['weights'])}, {mb(e['own_weights'])}, {mb(e['plan'] + e['kernels'])}"
            name = os.path.splitext(os.path.basename(model))[0]
            print(
                f"| {name} | {m:.0f} | {b:.0f} | {b / m:.2f} | {mc:.0f} | {bc:.0f} | {bc / mc:.2f} "
                f"| {mb(listing['bytes'])} | {'; '.join(map(size, listing['entries']))} |",
                flush=True,
            )
    print("\n".join(large))
    sys.exit(bool(large))


if __name__ == "__main__":
    main()
