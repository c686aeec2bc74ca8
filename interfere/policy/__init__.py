"""Placement decisions from predictions: pure functions that the server and the simulator both call."""
