#!/usr/bin/env python3
"""Fits the prices of the estimate for processors to tables of measured units.

    scripts/cpu_prices.py benches/tables/cpu-avx512.jsonl [benches/tables/cpu-avx2.jsonl ...] [--worst N]

`cargo run -p weft-workbench --example units` makes the tables. A price is nanoseconds of something that kernels are
counted in (`tensor-ir/src/schedule/estimate/prices.rs`). Prices have a lower bound, mostly 0, and are least in the sum
of squared logarithms of estimate over time, by least squares with weights that follow from the estimate before.
Candidates that take much longer than the best of their unit count less. Printed are the rows of `TABLE`, and what the
estimate chooses beside the best: with the prices before, with these, and with prices fitted without the unit.
"""
import argparse
import json
import re
import statistics
from pathlib import Path

import numpy as np

# As the dispatcher has them.
RULES = ["row-tasks", "matmul-tile", "lanes"]
# Nanoseconds of what no unit of a table has: transposed convolutions as one kernel, groups of few channels, weights of
# few bits that are decoded in lanes (12 ns a weight in a decoder).
ASSUMED = {"ProductLoneTap": 800.0, "ProductScattered": 3.0, "Bits": 12.0}
# Nanoseconds at least. A core shares the caches beyond its own with all that runs beside it: a U-Net whose weights are
# read again and again took ten times as long beside other programs as in tiles, and as long as these alone. No unit of
# a table has many short runs; three lanes to sum took 24 ns in a transposed convolution of 32 groups.
LEAST = {"FarAgain": 0.02, "Run": 3.0, "FoldResult": 10.0}
SOURCE = Path(__file__).parent.parent / "compiler/tensor-ir/src/schedule/estimate/prices.rs"


def counts():
    """The names of the counts, in the order of the table's columns."""
    text = SOURCE.read_text().split("\ncounts! {")[1].split("\n}")[0]
    return re.findall(r"^    (\w+),$", text, re.M)


def bounded(gram, right, x, least):
    """The least squares solution that is nowhere below `least`, by descent along one coordinate after another from `x`."""
    x = np.maximum(x, least)
    for _ in range(2000):
        moved = 0.0
        for j in np.flatnonzero(np.diag(gram) > 0):
            new = max(least[j], x[j] + (right[j] - gram[j] @ x) / gram[j, j])
            moved = max(moved, abs(new - x[j]) * gram[j, j] ** 0.5)
            x[j] = new
        if moved < 1e-6:
            break
    return x


class Table:
    def __init__(self, path, names):
        self.least = np.array([LEAST.get(n, 0.0) for n in names])
        self.units = [json.loads(line) for line in open(path)]
        rows = [(n, r) for n, u in enumerate(self.units) for r in u["rows"]]
        self.unit = np.array([n for n, _ in rows])
        self.us = np.array([r["us"] for _, r in rows])
        self.before = np.array([r["before_us"] for _, r in rows])
        self.rule = np.array([r["rule"] for _, r in rows])
        self.rows = [r for _, r in rows]
        # Microseconds by the time, for a price of one nanosecond.
        self.parts = np.array([[r["counts"].get(n, 0.0) / 1e3 / r["us"] for n in names] for _, r in rows])
        best = np.array([min(r["us"] for r in u["rows"]) for u in self.units])
        each = np.array([len(u["rows"]) for u in self.units])
        self.weight = (best[self.unit] / self.us) ** 3 * best[self.unit] ** 0.25 / each[self.unit] ** 0.5

    def fit(self, without=None, x=None, steps=25):
        used = np.ones(len(self.us), bool) if without is None else self.unit != without
        a, w = self.parts[used], self.weight[used]
        scale = a.max(axis=0)
        scale[scale == 0] = 1.0
        a = a / scale
        x = np.full(a.shape[1], 0.1) if x is None else x * scale
        for _ in range(steps):
            ratio = np.maximum(a @ x, 1e-3)
            off = np.where(abs(ratio - 1) < 1e-6, 1.0, np.log(ratio) / np.where(ratio == 1, 1, ratio - 1))
            own = w * np.minimum(off, 5.0) ** 2
            gram = (a * own[:, None]).T @ a + 1e-9 * np.eye(a.shape[1])
            x = bounded(gram, (a * own[:, None]).sum(axis=0), x, self.least * scale)
        return x / scale

    def chosen(self, estimate):
        """The time of what an estimate chooses and the least time, for each unit."""
        for n in range(len(self.units)):
            own = np.flatnonzero(self.unit == n)
            # Of equal ones the first in the order of the rules.
            order = sorted(own, key=lambda i: (estimate[i], RULES.index(self.rule[i])))
            yield n, order[0], own[np.argmin(self.us[own])]

    def judge(self, name, estimate, worst=0):
        picks = list(self.chosen(estimate))
        ratio = [(self.us[c] / self.us[b], n, c, b) for n, c, b in picks]
        together = sum(self.us[c] for _, c, _ in picks) / sum(self.us[b] for _, _, b in picks)
        above = sum(r[0] > 1.3 for r in ratio)
        medians = {r: statistics.median((estimate / self.us)[self.rule == r]) for r in sorted(set(self.rule))}
        medians = ", ".join(f"{r} {m:.2f}" for r, m in medians.items())
        print(f"  {name}: {together:.3f} together, the worst {max(ratio)[0]:.2f}, {above} of {len(picks)} above 1.3; estimate over time: {medians}")
        for r, n, c, b in sorted(ratio, reverse=True)[:worst]:
            u = self.units[n]
            print(f"    {r:.2f} {u['network']} {u['name']}: {self.us[c]:.4g} us of {self.rows[c]['choices'][-1][7:]}, estimate {estimate[c]:.4g}; best {self.us[b]:.4g} of {self.rows[b]['choices'][-1][7:]}, {estimate[b]:.4g}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", nargs="+")
    parser.add_argument("--worst", type=int, default=0, help="units to name")
    parser.add_argument("--quick", action="store_true", help="without leaving shapes out")
    args = parser.parse_args()
    names = counts()
    for path in args.tables:
        t = Table(path, names)
        tile = t.units[0]["profile"]["register_tile"]
        x = t.fit()
        print(f"{path}: {len(t.units)} units, {len(t.us)} candidates")
        t.judge("before", t.before)
        t.judge("now", t.parts @ x * t.us, args.worst)
        if not args.quick:
            left_out = np.zeros(len(t.us))
            for n in range(len(t.units)):
                own = t.unit == n
                left_out[own] = (t.parts[own] @ t.fit(n, x, 4)) * t.us[own]
            t.judge("left out", left_out)
        print(f"    Prices {{\n        tile: {tile},\n        ns: [")
        for at, (n, v) in enumerate(zip(names, x)):
            v = v if t.parts[:, at].any() else ASSUMED.get(n, 0.0)
            print(f"            {float(f'{v:.4g}')!r}, // {n}")
        print("        ],\n    },")


main()
