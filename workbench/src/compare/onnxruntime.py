"""Runs a model in ONNX Runtime, for `weft compare --peer onnxruntime`.

Arguments: the model, a file of inputs (npz), a file for the results (npz), the number of timed runs and of threads (0
for all). Prints one line of JSON: the version, the provider and the median of the runs in milliseconds.
"""

import json
import statistics
import sys
import time

try:
    import numpy
    import onnxruntime
except ImportError as missing:
    sys.exit(f"the Python {sys.executable} has no {missing.name}: pip install onnxruntime")

model, inputs, results, runs, threads = sys.argv[1:6]
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = int(threads)
try:
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    known = numpy.load(inputs, allow_pickle=False)
    feed = {i.name: known[i.name] for i in session.get_inputs()}
    names = [o.name for o in session.get_outputs()]
    values = session.run(names, feed)
    times = []
    for _ in range(int(runs)):
        start = time.perf_counter()
        session.run(names, feed)
        times.append((time.perf_counter() - start) * 1e3)
except Exception as why:
    sys.exit(f"ONNX Runtime {onnxruntime.__version__}: {why}")
numpy.savez(results, **dict(zip(names, values)))
print(json.dumps({"version": onnxruntime.__version__, "ms": statistics.median(times), "runs": len(times)}))
