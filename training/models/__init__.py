"""The predictors that training fits, and how each becomes an ONNX graph."""
