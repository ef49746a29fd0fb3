#!/usr/bin/env python3
"""Networks with the schedules of the rules, with tuned tiles, and with tuned tiles in a graph that measured times decide.

    scripts/tuned_vs_rule.py weft A.onnx B.onnx --device 0 --budget 120 --folder F
    scripts/tuned_vs_rule.py weft A.onnx B.onnx --device 0 --folder F --budget 0 --as OTHER

`weft tune` searches each network for so many seconds, into `F/NAME.jsonl` (what it found: `F/NAME.search.json`), and goes on from there if
it is called again. Then fresh processes (`weft measure`) race the network without the database against the network with the tuned choices
alone, and against the network with the whole database. On a software device the race's clock is CPU time. Ratios are medians over all rounds
of three to eight processes, with their standard errors; every second process opens the tuned side first. With `--as OTHER`, the lines of the
device whose name contains OTHER are used for this device: that shows what carries over from another driver.
"""

import argparse
import json
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


def uncertainty(ratios):
    """The standard error of the median, from the median deviation."""
    middle = statistics.median(ratios)
    return 1.2533 * 1.4826 * statistics.median(abs(r - middle) for r in ratios) / len(ratios) ** 0.5


def raced(a, model, tuning):
    """For each round the ratio of the time with `tuning` to that without, by the race's clock and by the host's; milliseconds of both."""
    ratios, walls, ms = [], [], [[], []]
    for process in range(a.processes):
        if process >= 3 and uncertainty(ratios) < 0.01:
            break
        sides = ["off", str(tuning)][:: -1 if process % 2 else 1]
        request = {"Networks": {"model": str(model), "tuning": sides, "rounds": a.rounds, "seed": process}}
        words = [a.weft, "measure", "--quiet", "--tuning", "off", "--device", a.device] + a.options
        pipe = subprocess.PIPE
        with subprocess.Popen([str(w) for w in words], stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True) as process_of:
            process_of.stdin.write(json.dumps(request) + "\n")
            process_of.stdin.flush()
            # A driver may write to stdout too. At the end of stdin the process ends, whatever it is doing.
            reply = next((json.loads(line) for line in process_of.stdout if line.startswith("{")), None)
            process_of.stdin.close()
        if not reply or "Raced" not in reply:
            raise SystemExit(f"{words}: {reply}")
        found = reply["Raced"]["standings"][:: -1 if process % 2 else 1]
        for key, into in (("ns", ratios), ("wall_ns", walls)):
            into += [after / before for before, after in zip(found[0][key], found[1][key])]
        for side in (0, 1):
            ms[side] += [ns / 1e6 for ns in found[side]["wall_ns"]]
    return ratios, walls, [statistics.median(side) for side in ms]


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
    parser.add_argument("--processes", type=int, default=8, help="at most; three are enough if the median is certain within 1 %%")
    parser.add_argument("--rounds", type=int, default=9, help="rounds of a process")
    parser.add_argument("--folder", type=Path, default=Path("tuned"))
    parser.add_argument("--as", dest="carry", metavar="OTHER")
    parser.add_argument("--options", type=str.split, default=[], help="options of each command, such as '--amp fp16'")
    a = parser.parse_args()
    a.folder.mkdir(parents=True, exist_ok=True)
    titles = ["network", "rules, ms", "tiles", "host's clock", "tiles and graph", "host's clock"]
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
        plans = [set(plan(a, model, side)) for side in ("off", tiles, everything)]
        row, ms = [], []
        for side in (tiles, everything):
            ratios, walls, both = raced(a, model, side)
            ms.append(both[0])
            faster = f"{sum(r < 1 for r in ratios)} of {len(ratios)} rounds"
            row += [f"{statistics.median(ratios):.3f} ± {uncertainty(ratios):.3f} ({faster})", f"{statistics.median(walls):.3f}"]
        differ = ", ".join(str(len(p - plans[0])) for p in plans[1:])
        tuned = sum(line["kind"] == "choices" for line in lines)
        row = [name, f"{statistics.median(ms):.2f}", *row, tuned, f"{differ} of {len(plans[0])}", f"{searched:.0f}"]
        print("| " + " | ".join(map(str, row)) + " |", flush=True)


if __name__ == "__main__":
    sys.exit(main())
