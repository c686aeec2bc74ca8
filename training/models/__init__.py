"""The models that training fits: their settings, their fitted forms, and how each becomes an ONNX graph."""
