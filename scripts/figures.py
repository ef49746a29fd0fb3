#!/usr/bin/env python3
"""Do the figures of a run add up, and are they the same everywhere?

    scripts/figures.py [--device cpu] 'squeezenet1_1' 'model.onnx --dim batch=1' ...

Each argument is a model with its options. `weft bench -o` times it; the rows of its run, `weft explain --sort time`, the data of `weft report` and the text of `weft view` are compared.
Prints a line for each: milliseconds of the run and of its kernels, the share of rows with a name, and what differs. Exit code 1 if anything does. `WEFT` names the command.
"""
import argparse, json, os, re, shlex, subprocess, sys, tempfile

WEFT = os.environ.get("WEFT", "target/debug/weft")


def weft(*words):
    done = subprocess.run([WEFT, *words], capture_output=True, text=True)
    return done.stdout, done.stderr


def near(*values):
    return all(abs(v - values[0]) <= 1e-6 * max(abs(values[0]), 1e-9) for v in values)


def rest(rows):
    return sorted(round(r["ms"], 9) for r in rows if r.get("kind") != "kernel")


def seen(trace, steps):
    """The texts of the window after these steps: the step that fails lists them."""
    path = trace + ".steps"
    with open(path, "w") as file:
        file.write("\n".join([*steps, "see no such text anywhere"]))
    return "".join(weft("view", trace, "--size", "1400x3000", "--steps", path))


def differences(trace, bench):
    explained = json.loads(weft("explain", trace, "--sort", "time", "--json")[0])
    weft("report", trace, "-o", trace + ".html")
    page = re.search(r'id="data"[^>]*>(.*?)</script>', open(trace + ".html").read(), re.S)
    report, spent = json.loads(page.group(1)), bench["spent"]
    rows, run, groups = spent["rows"], spent["run_ms"], [g for g in explained["groups"] if g["time"]]
    kernels = sum(r["ms"] for r in rows if r["kind"] == "kernel")
    if not near(run, explained["run_ms"], report["times"]["run_ms"], sum(r["ms"] for r in rows)):
        yield "the length of the run"
    if any(r["ms"] < 0 for r in rows):
        yield "a row below 0"
    of_groups = sum(g["us"]["run"] for g in report["groups"] if g["us"]) / 1e3
    sums = [sum(k["us_total"] for k in bench["per_kernel"]) / 1e3, sum(g["time"]["us"] for g in groups) / 1e3]
    if not near(kernels, *sums, report["times"]["dispatches_ms"], of_groups):
        yield "the sum of the kernels"
    if not rest(rows) == rest(explained["spent"]) == rest(report["times"]["rest"]):
        yield "the rows beside the kernels"
    if not all(near(g["share"], g["time"]["us"] / 1e3 / run) for g in groups):
        yield "the shares of the groups"
    longest = max(groups, key=lambda g: g["time"]["us"])
    node = longest["origins"][0]
    of_node = sum(g["share"] for g in groups if node in g["origins"])
    if f"{100 * of_node:.1f}% of the run" not in seen(trace, [f"select {node}"]):
        yield "the share in the node's pane"
    of_kernel = max(k["us_total"] for k in bench["per_kernel"]) / 1e3 / run
    if f"{100 * of_kernel:.1f} % of the run" not in seen(trace, ["click Why?", "click Why is this kernel slow?"]):
        yield "the share on the page of the slow kernel"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cpu")
    parser.add_argument("models", nargs="+")
    a = parser.parse_args()
    failed = False
    with tempfile.TemporaryDirectory() as folder:
        for line in a.models:
            model, *options = shlex.split(line)
            trace = os.path.join(folder, "one.trace")
            out, err = weft("bench", model, *options, "--device", a.device, "--runs", "5", "-o", trace, "--json")
            if not out:
                print(f"{model}: {err.strip()}")
                failed = True
                continue
            bench = json.loads(out)
            run, rows = bench["spent"]["run_ms"], bench["spent"]["rows"]
            named = sum(r["ms"] for r in rows if r["kind"] != "rest") / run
            kernels = sum(r["ms"] for r in rows if r["kind"] == "kernel")
            wrong = list(differences(trace, bench))
            failed |= bool(wrong)
            print(f"{os.path.basename(model)}: run {run:.3f} ms, kernels {kernels:.3f}, {len(rows)} rows, {100 * named:.1f} % with a name", "; ".join(wrong) or "equal")
            sys.stdout.flush()
    sys.exit(failed)


main()
