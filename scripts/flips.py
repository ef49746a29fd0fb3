#!/usr/bin/env python3
"""Decisions about layout, fusion and algorithms that measured times change.

    scripts/flips.py weft F/A.jsonl=A.onnx F/B.jsonl=B.onnx --device 0

`F/A.jsonl` is a database of `weft tune`; `F/A.search.json`, what `weft tune --json` printed, is read if it exists. For each network the
script compiles twice: with the tuned schedules alone, and with the measured times of functions. It prints:

1. the groups that only one of the two plans has;
2. whether the first plan returns when the times of the two plans' own functions are swapped: each side is scaled to the sum of the other;
3. the decisions by measured times that are closest to the other choice, with the ratio of the two times in the order of the remark.
"""

import argparse
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

KINDS = {"auto-layout": "layout", "fuse-ops": "fusion", "winograd": "algorithm", "transposed-phases": "algorithm"}
TIME = re.compile(r"([\d.]+) (ns|us|ms|s)\b")
US = {"ns": 1e-3, "us": 1.0, "ms": 1e3, "s": 1e6}


def run(a, verb, model, tuning):
    words = [a.weft, verb, model, "--device", a.device, "--tuning", tuning, "--json", "-q"] + a.options
    done = subprocess.run([str(w) for w in words], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{words}: {done.stderr}")
    return json.loads(done.stdout)


def groups(found):
    """The groups of a plan: their operations, layout and name."""
    return {(g["name"], " ".join(g["ops"]), g.get("layout") or "") for g in found["groups"]}


def with_lines(a, verb, model, lines):
    """What the command prints with a database of these lines."""
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
        file.write("".join(json.dumps(line) + "\n" for line in lines))
        file.flush()
        return run(a, verb, model, Path(file.name))


def swapped(a, model, lines, sides):
    """The groups of the plan that results when the functions of the two sides swap their total times; None without times."""
    calls = [{f["form"]: f["calls"] for f in side} for side in sides]
    counts = [line for line in lines if line["kind"] == "function" and not line["withdrawn"]]
    sums = [sum(line["us"] * own[line["form"]] for line in counts if line["form"] in own) for own in calls]
    if not all(sums):
        return None
    factor = lambda form: next((sums[1 - at] / sums[at] for at in (0, 1) if form in calls[at]), 1.0)
    other = [{**line, "us": line["us"] * factor(line["form"])} if line["kind"] == "function" else line for line in lines]
    return groups(with_lines(a, "explain", model, other))


def closest(found):
    """For each kind of decision up to five remarks with measured times, closest first, with the ratio of the second time to the first."""
    out = {}
    for remark in found["remarks"]:
        text = remark["message"]
        if "measured" not in text or remark["pass"] not in KINDS:
            continue
        times = [float(number) * US[unit] for number, unit in TIME.findall(text)]
        if len(times) > 1:
            out.setdefault(KINDS[remark["pass"]], []).append((times[1] / times[0], text))
    return {kind: sorted(set(rows), key=lambda row: abs(row[0] - 1))[:5] for kind, rows in out.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("weft")
    parser.add_argument("networks", nargs="+", metavar="FILE=MODEL")
    parser.add_argument("--device", default="0")
    parser.add_argument("--options", type=str.split, default=[], help="options of each command")
    a = parser.parse_args()
    for file, model in (n.split("=", 1) for n in a.networks):
        lines = [json.loads(line) for line in Path(file).read_text().splitlines() if line.strip()]
        before = with_lines(a, "explain", model, [line for line in lines if line["kind"] == "choices"])
        after = run(a, "explain", model, file)
        sides = [groups(before) - groups(after), groups(after) - groups(before)]
        print(f"\n## {Path(model).stem}: {len(sides[0])} groups gone, {len(sides[1])} new of {len(after['groups'])}\n")
        for word, side in zip(("-", "+"), sides):
            for name, ops, layout in sorted(side):
                print(f"    {word} {name}: {ops} ({layout})")
        search = Path(file).with_suffix(".search.json")
        graph = json.loads(search.read_text()).get("graph") or {} if search.exists() else {}
        if sides[1] and "functions" in graph:
            back = swapped(a, model, lines, graph["functions"])
            said = "the first plan again" if back == groups(before) else "not the first plan" if back else "no times to swap"
            print(f"\nwith swapped times: {said}")
        if graph.get("network"):
            network = graph["network"]
            print(f"\nin fresh processes: {network['ratio']:.3f}, {'kept' if network['kept'] else 'withdrawn'}")
        for kind, rows in closest(after).items():
            print(f"\n{kind}, by measured times:\n")
            for ratio, text in rows:
                print(f"- {ratio:.3f}: {text}")


if __name__ == "__main__":
    sys.exit(main())
