"""Copies of one model in MIG slices: their predicted latency, and advice on the slice and the number of copies."""
