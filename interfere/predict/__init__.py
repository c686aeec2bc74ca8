"""Predicted slowdowns of co-located jobs: the served model, the table of measured pairs, and the online correction."""
