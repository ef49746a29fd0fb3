#!/usr/bin/env python3
"""Dispatches and modelled cost of the zoo's networks, by two builds of Weft, both weighed by the later one's estimate.

    scripts/estimates.py BEFORE AFTER [--target NAME ...] [MODEL ...]

BEFORE and AFTER are `weft` programs. BEFORE compiles each network to text with the schedules that it chose (`--emit weft`); AFTER weighs
that text, and what it chooses itself (`explain -v`). So a changed price shows in both columns, and a changed decision in one. Prints
a table in Markdown: "dispatches, microseconds", one number where nothing changed. These are models, not times. Ends with 1 where AFTER's
own choice is dearer by more than a thousandth, and lists those.
"""

import argparse
import re
import subprocess
import sys
import tempfile
from pathlib import Path

MODELS = ["resnet18", "resnet50", "resnet101", "mobilenet_v2", "mobilenet_v3_small", "densenet121",
          "efficientnet_b0", "squeezenet1_1", "unet", "vgg16", "vit_b_16"]
TARGETS = ["ada", "navi31", "bmg", "lavapipe"]
UNITS = {"ns": 1e-3, "us": 1.0, "ms": 1e3, "s": 1e6}


def run(command):
    """What the command printed; ends this program where it fails."""
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: exit {done.returncode}: {done.stderr.strip()}")
    return done.stdout


def weighed(weft, model, target):
    """Dispatches, and microseconds by the estimate of `weft`."""
    text = run([weft, "explain", model, "--target", target, "-v"])
    dispatches = re.search(r"(\d+) dispatches", text)
    estimated = re.search(r"^estimated: ([\d.]+) (\w+)", text, re.M)
    if not dispatches or not estimated or estimated[2] not in UNITS:
        sys.exit(f"{weft} explain {model} --target {target} -v: no count of dispatches or no estimate")
    return int(dispatches[1]), float(estimated[1]) * UNITS[estimated[2]]


def cell(before, after):
    """One cell of the table for (dispatches, microseconds) before and after."""
    def both(a, b, say):
        return say(b) if say(a) == say(b) else f"{say(a)} → {say(b)}"
    return f"{both(before[0], after[0], str)}, {both(before[1], after[1], '{:.1f}'.format)}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before")
    parser.add_argument("after")
    parser.add_argument("models", nargs="*", default=MODELS)
    parser.add_argument("--target", action="append")
    args = parser.parse_args()
    targets = args.target or TARGETS
    print("| model | " + " | ".join(targets) + " |\n|" + "---|" * (len(targets) + 1))
    dearer = []
    with tempfile.TemporaryDirectory() as folder:
        for model in args.models:
            cells = []
            for target in targets:
                chosen = Path(folder) / f"{model}.weft"
                chosen.write_text(run([args.before, "compile", model, "--target", target, "--emit", "weft", "-q"]))
                before, after = weighed(args.after, str(chosen), target), weighed(args.after, model, target)
                cells.append(cell(before, after))
                if after[1] > before[1] * 1.001:
                    dearer.append(f"{model} on {target}: {after[1] / before[1]:.4f}")
            print(f"| {model} | " + " | ".join(cells) + " |", flush=True)
    print("\n".join(["", "dearer than before:"] + dearer) if dearer else "\nnone is dearer than before")
    sys.exit(1 if dearer else 0)


if __name__ == "__main__":
    main()
