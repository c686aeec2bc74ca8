"""The exported ONNX graphs of a model folder: running them, and the largest matrix that a request may ask for."""
