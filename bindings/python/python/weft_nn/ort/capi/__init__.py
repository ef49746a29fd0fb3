"""The modules of onnxruntime that scripts import exceptions and functions from."""
