"""Predicted slowdowns of co-located jobs: the served model, the measured table around it, and the online correction."""
