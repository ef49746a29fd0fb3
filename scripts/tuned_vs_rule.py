#!/usr/bin/env python3
"""Networks with the schedules of the rules, with tuned tiles, and with tuned tiles in a graph that measured times decide.

    scripts/tuned_vs_rule.py weft A.onnx B.onnx --device 0 --budget 120 --folder F
    scripts/tuned_vs_rule.py weft A.onnx B.onnx --device 0 --folder F --budget 0 --as OTHER

`weft tune` searches each network for so many seconds, into `F/NAME.jsonl` (what it found: `F/NAME.search.json`), and goes on from there if
it is called again. Then each round
runs `weft bench` in a fresh process for each of the three, in turn: without the database, with its lines of tuned choices alone, and with
all of it. Ratios are medians over the rounds, against the rules in the same round, of the median time of a run on the device (on a software
device the host's clock), and of the CPU time that a run takes. With `--as OTHER`, for a run on another driver, the lines of the device whose name contains OTHER are taken as
this device's, which says what carries over from one driver to the other.
"""

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path


def run(words):
    """What the command prints as JSON, if it is asked for that."""
    done = subprocess.run([str(w) for w in words], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{words}: {done.stderr}")
    return done.stdout


def lines_of(path):
    return [json.loads(line) for line in path.read_text().splitlines() if line.strip()]


def spent():
    """CPU seconds of the processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def measured(a, model, tuning):
    """Milliseconds of a run on the device, the median; of CPU time, what more runs take more, which tells about software devices."""
    words = [a.weft, "bench", model, "--device", a.device, "--tuning", tuning, "--warmup", 3, "--json", "-q"] + a.options
    start = spent()
    run(words + ["--runs", 1])
    few = spent()
    found = json.loads(run(words + ["--runs", 1 + a.runs]))
    return found["device_ms"]["median"], 1e3 * ((spent() - few) - (few - start)) / a.runs


def plan(a, model, tuning):
    """The kernels of a plan, each with its schedule."""
    found = json.loads(run([a.weft, "compile", model, "--device", a.device, "--tuning", tuning, "--json", "-q"] + a.options))
    return [(k["name"], str(k["schedule"])) for k in found["kernels"]]


def carried(a, lines):
    """The lines of another device as this one's."""
    probe = a.folder / "this-device.jsonl"
    run([a.weft, "tune", "squeezenet1_1:smallest", "--device", a.device, "--budget", "1s", "--tuning", probe, "-q"])
    own = lines_of(probe)[0]["device"]
    return [{**line, "device": own} for line in lines if a.carry in line.get("device", "")]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("weft")
    parser.add_argument("models", nargs="+")
    parser.add_argument("--device", default="0")
    parser.add_argument("--budget", type=int, default=120, help="seconds of a search")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--runs", type=int, default=15)
    parser.add_argument("--folder", type=Path, default=Path("tuned"))
    parser.add_argument("--as", dest="carry", metavar="OTHER")
    parser.add_argument("--options", type=str.split, default=[], help="options of each command, such as '--amp fp16'")
    a = parser.parse_args()
    a.folder.mkdir(parents=True, exist_ok=True)
    titles = ["network", "rules: ms, CPU ms", "tiles, tiles and graph: time", f"faster of {a.rounds}", "CPU time", f"less of {a.rounds}"]
    titles += ["functions searched", "kernels that differ", "search, s"]
    print("| " + " | ".join(titles) + " |\n|" + "---|" * len(titles))
    for model in a.models:
        name = Path(model).stem
        everything = a.folder / f"{name}.jsonl"
        start = time.monotonic()
        if a.budget:
            words = [a.weft, "tune", model, "--device", a.device, "--budget", f"{a.budget}s", "--tuning", everything, "-q"]
            (a.folder / f"{name}.search.json").write_text(run(words + ["--json"] + a.options))
        searched = time.monotonic() - start
        lines = lines_of(everything)
        if a.carry:
            lines = carried(a, lines)
            everything = a.folder / f"{name}-carried.jsonl"
            everything.write_text("".join(json.dumps(line) + "\n" for line in lines))
        tiles = a.folder / f"{name}-tiles.jsonl"
        tiles.write_text("".join(json.dumps(line) + "\n" for line in lines if line["kind"] == "choices"))
        sides = ["off", tiles, everything]
        rounds = []
        for r in range(a.rounds):
            times = {at: measured(a, model, sides[at]) for at in ([0, 1, 2] if r % 2 == 0 else [2, 1, 0])}
            rounds.append([times[at] for at in range(3)])
        ratio = [[statistics.median(r[at][by] / r[0][by] for r in rounds) for at in (1, 2)] for by in (0, 1)]
        faster = [[sum(r[at][by] < r[0][by] for r in rounds) for at in (1, 2)] for by in (0, 1)]
        rules = [statistics.median(r[0][by] for r in rounds) for by in (0, 1)]
        plans = [set(plan(a, model, side)) for side in sides]
        differ = [len(plans[at] - plans[0]) for at in (1, 2)]
        tuned = sum(line["kind"] == "choices" for line in lines)
        pair = lambda form, two: ", ".join(form.format(v) for v in two)
        compared = [text for by in (0, 1) for text in (pair("{:.3f}", ratio[by]), pair("{}", faster[by]))]
        row = [name, pair("{:.2f}", rules), *compared, tuned, f"{pair('{}', differ)} of {len(plans[0])}", f"{searched:.0f}"]
        print("| " + " | ".join(map(str, row)) + " |", flush=True)


if __name__ == "__main__":
    sys.exit(main())
