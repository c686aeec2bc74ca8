"""Copies of one model in MIG slices: how fast they would be, and which slice and how many to take."""
