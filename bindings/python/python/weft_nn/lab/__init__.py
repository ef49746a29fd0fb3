"""A lab of devices on Ray: one call measures, compares or tunes on all of them.

Each machine joins a cluster of Ray with the line that `python -m weft_nn.lab resources` prints there (docs/lab.md). Devices with
the same name and driver are of one kind, and share the work of their kind. Whatever ends well is written to a folder at
once; the same call on the same folder does what is missing. The extra `weft-nn[lab]` has Ray.

>>> from weft_nn import lab
>>> lab.Device("NVIDIA T4", "535.1", "0", "10de:1eb8:0").resource
'weft?name=NVIDIA+T4&driver=535.1&device=0&id=10de%3A1eb8%3A0'
"""

from __future__ import annotations

import itertools
import os
import tempfile
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple, Union

from ._device import Device
from ._session import Job, Progress, Session, content, devices, write

_Path = Union[str, "os.PathLike[str]"]
_Models = Sequence[Any]
_Found = List[Dict[str, Any]]

__all__ = ["Device", "bench", "compare", "devices", "tune"]

# Share of a network's time below which a function is not searched, as in `weft tune`.
_LEAST_SHARE = 0.01
# Least seconds of a function, and the share of the time that is for layouts and fusion.
_LEAST_SECONDS, _GRAPH = 5.0, 0.15
# The share of its budget that `weft tune` has for layouts and fusion.
_GRAPH_OF_COMMAND = 0.3


def _options(options: Mapping[str, Any]) -> List[str]:
    """Options of the command, from keywords: `opt_level=2`, `dims={"n": 8}`, `pin_layout=[..]`, `same_sums=True`."""
    words: List[str] = []
    for key, value in options.items():
        flag = "--" + {"dims": "dim", "shapes": "shape"}.get(key, key).replace("_", "-")
        if isinstance(value, Mapping):
            value = [f"{name}={'x'.join(map(str, size)) if isinstance(size, (list, tuple)) else size}" for name, size in value.items()]
        if isinstance(value, bool):
            words += [flag] if value else []
        elif isinstance(value, (list, tuple)):
            words += [word for one in value for word in (flag, str(one))]
        elif value is not None:
            words += [flag, str(value)]
    return words


def _inputs(inputs: Any) -> Tuple[List[str], Dict[str, bytes]]:
    """Words and files for inputs: arrays by name, or the path of a file that `weft run -i` takes."""
    if inputs is None:
        return [], {}
    if isinstance(inputs, Mapping):
        import io

        import numpy as np

        data = io.BytesIO()
        np.savez(data, **inputs)
        return ["-i", "inputs.npz"], {"inputs.npz": data.getvalue()}
    name = Path(inputs).name
    return ["-i", name], {name: Path(inputs).read_bytes()}


def _database(tuning: Optional[_Path]) -> Tuple[List[str], Dict[str, bytes]]:
    if tuning is None:
        return [], {}
    return ["--tuning", "tuning.jsonl"], {"tuning.jsonl": Path(tuning).read_bytes()}


def bench(
    models: _Models,
    sweep: Optional[Mapping[str, Sequence[Any]]] = None,
    *,
    folder: _Path = "results",
    on: Optional[Sequence[Device]] = None,
    inputs: Any = None,
    tuning: Optional[_Path] = None,
    limit: float = 600,
    check_limit: float = 60,
    progress: Optional[Progress] = None,
    **options: Any,
) -> _Found:
    """Measures models on each kind of device, as `weft bench` does.

    models: paths, Models, bytes of ONNX files, or names of `weft zoo`.
    sweep: lists of settings by name, such as {"amp": ["off", "fp16"], "batch": [1, 8]}; each combination is a job.
    folder: gets a file for each result as soon as it is there (docs/results.md), and `page.html` with all of them.
    on: devices, some of `devices()`; all without.
    inputs: arrays by name, or the path of a file of inputs; random ones without.
    tuning: a database of tuned choices, for all devices; without, each machine has its own.
    limit, check_limit: seconds for a job, and for a check run; then its process is ended, and the device is marked.
        Waiting does not count.
    progress: called with a device and a text, whenever what it is doing changes; without, one line a device on stderr.
    options: of `weft bench`, such as runs=20, dims={"n": 8}, warmup_time="3s".

    Returns a result for each kind, model and setting: "what", "kind", "device", "seconds" (with the lock of the device),
    "tries" and "record", which `weft bench --json` says; "error" in place of the last for what was not done.

    Raises weft_nn.Error: code 5 without a cluster, or a cluster without devices; code 3 for a model that cannot be read.
    """
    settings = [dict(zip(sweep, values)) for values in itertools.product(*sweep.values())] if sweep else [{}]
    with Session(on, folder, check_limit, progress) as session:
        jobs = []
        for model, setting in itertools.product(models, settings):
            name, files = content(model)
            (given, arrays), (database, lines) = _inputs(inputs), _database(tuning)
            swept = [f"{key}={value}" for key, value in setting.items()]
            words = ["bench", name, *given, *database, *_options(options), *(["--sweep", *swept] if swept else [])]
            what = " ".join(["bench", name, *swept])
            given_files = {**files, **arrays, **lines}
            jobs += [Job(what, kind, words, given_files, limit, filed=True) for kind in session.kinds()]
        found = session.run(jobs)
        session.folder.page()
    return found


def compare(
    models: _Models,
    amp: Union[str, Sequence[str]] = "off",
    *,
    folder: _Path = "results",
    on: Optional[Sequence[Device]] = None,
    inputs: Any = None,
    tuning: Optional[_Path] = None,
    limit: float = 600,
    check_limit: float = 60,
    progress: Optional[Progress] = None,
    **options: Any,
) -> _Found:
    """Compares results of models on each kind of device with those of the interpreter, as `weft compare` does.

    amp: one or several precisions: "off", "fp16", "auto".
    options: of `weft compare`, such as against="fp32", rtol=1e-3.

    All else is as of `bench`; "record" is what `weft compare --json` says, with "pass".
    """
    with Session(on, folder, check_limit, progress) as session:
        jobs = []
        for model, one in itertools.product(models, [amp] if isinstance(amp, str) else amp):
            name, files = content(model)
            (given, arrays), (database, lines) = _inputs(inputs), _database(tuning)
            words = ["compare", name, "--amp", one, *given, *database, *_options(options)]
            what = f"compare {name} --amp {one}"
            jobs += [Job(what, kind, words, {**files, **arrays, **lines}, limit) for kind in session.kinds()]
        return session.run(jobs)


def tune(
    models: _Models,
    tuning: _Path = "tuning.jsonl",
    *,
    seconds: float = 300,
    folder: _Path = "results",
    on: Optional[Sequence[Device]] = None,
    limit: Optional[float] = None,
    check_limit: float = 60,
    graph: bool = True,
    progress: Optional[Progress] = None,
    **options: Any,
) -> _Found:
    """Searches for faster schedules on each kind of device, as `weft tune` does, and joins what is found in a database.

    The kernels of a model are spread over the devices of a kind, and raced there. Then one of them decides about layouts and
    fusion with the times of all.

    tuning: the database, which `weft bench --tuning` and `weft_nn.compile(tuning=)` take; what it has already is kept.
    seconds: of the search, for a model on all devices of a kind together: two devices take half as long.
    limit: seconds for the search of one kernel; 300 more than its share of `seconds` without.
    graph: whether to decide about layouts and fusion, in .15 of `seconds`.
    options: of `weft tune` and `weft bench`, such as amp="fp16", threads=4.

    All else is as of `bench`. Returns a result for each kernel, and for each decision; "record" is what `weft tune --json` says.
    """
    more = _options(options)
    with Session(on, folder, check_limit, progress) as session:
        contents = [content(model) for model in models]
        spare = 300 if limit is None else limit
        first = [
            Job(f"bench {name}, for its kernels", kind, ["bench", name, "--runs", "5", "--tuning", "off", *more], files, spare + 300)
            for (name, files), kind in itertools.product(contents, session.kinds())
        ]
        searches: List[Job] = []
        failed = []
        for job, times in zip(first, session.run(first)):
            if "error" in times:
                failed.append(times)
                continue
            for kernel, share in _kernels(times["record"]):
                budget = max(_LEAST_SECONDS, share * seconds * (1 - _GRAPH if graph else 1))
                words = ["tune", job.words[1], "--kernel", kernel, "--budget", f"{budget:.1f}s", "--tuning", "found.jsonl", *more]
                what = f"tune {job.words[1]} --kernel {kernel}"
                own = budget + 300 if limit is None else limit
                searches.append(Job(what, job.kind, words, job.files, own, ["found.jsonl"]))
        found = session.run(searches)
        parts = session.folder.outputs(searches, "found.jsonl")
        # Behind one another they are a database, too, which also has what was searched in vain.
        lines = b"".join(path.read_bytes() for path in parts)
        _join(tuning, parts)
        decisions: List[Job] = []
        if graph and parts:
            budget = seconds * _GRAPH / _GRAPH_OF_COMMAND
            for job in first:
                words = ["tune", job.words[1], "--budget", f"{budget:.1f}s", "--tuning", "joined.jsonl", *more]
                files = {**job.files, "joined.jsonl": lines}
                own = budget + 300 if limit is None else limit
                decisions.append(Job(f"tune {job.words[1]}", job.kind, words, files, own, ["joined.jsonl"]))
            made = session.run(decisions)
            _join(tuning, session.folder.outputs(decisions, "joined.jsonl"))
            found += made
    return failed + found


def _kernels(record: Mapping[str, Any]) -> List[Tuple[str, float]]:
    """The kernels that are worth a search, with their shares of the time, the largest first."""
    total = sum(kernel["us_total"] for kernel in record["per_kernel"]) or 1.0
    shares: Dict[str, float] = {}
    for kernel in record["per_kernel"]:
        shares[kernel["name"]] = shares.get(kernel["name"], 0.0) + kernel["us_total"] / total
    worth = {name: share for name, share in shares.items() if share >= _LEAST_SHARE}
    return sorted(((name, share / sum(worth.values())) for name, share in worth.items()), key=lambda one: -one[1])


def _join(tuning: _Path, parts: Sequence[Path]) -> None:
    """Puts the databases into one, by `weft tuning merge`."""
    there = [Path(tuning)] if Path(tuning).exists() else []
    if not parts:
        return
    with tempfile.TemporaryDirectory(dir=Path(tuning).resolve().parent) as folder:
        merged = Path(folder, "merged.jsonl")
        write("tuning", "merge", *map(str, [*there, *parts]), "-o", str(merged))
        os.replace(merged, tuning)
