"""reference.py MODEL.onnx FOLDER: ONNX Runtime computes from FOLDER/inputs.npz what FOLDER/outputs.npz has, within the
tolerances of `weft compare` for f32."""
import sys

import numpy as np
import onnxruntime as ort

TOLERANCE = 1e-3

model, folder = sys.argv[1:]
session = ort.InferenceSession(model, providers=["CPUExecutionProvider"])
given, got = np.load(f"{folder}/inputs.npz"), np.load(f"{folder}/outputs.npz")
names = [o.name for o in session.get_outputs()]
for name, want in zip(names, session.run(names, dict(given))):
    found = got[name]
    if found.shape != want.shape or found.dtype != want.dtype:
        sys.exit(f"{name}: {found.dtype}{found.shape}, and ONNX Runtime gives {want.dtype}{want.shape}")
    off, size = np.abs(found - want), np.abs(want)
    allowed = TOLERANCE * size.max(initial=0) + TOLERANCE * size
    whole = np.linalg.norm(off) / max(np.linalg.norm(want), 1e-30)
    if not (off <= allowed).all() or not whole <= TOLERANCE:
        sys.exit(f"{name}: differs from ONNX Runtime by {whole:.2e} of its norm, {off.max():.2e} at most")
    print(f"{model}, {name}: {whole:.1e} of its norm from ONNX Runtime", file=sys.stderr)
