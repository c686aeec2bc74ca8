"""Answers for ordered pairs: the served model, the measured table, and the online correction, each a `Predictor`."""
