"""Replays of kernel timelines: what happens on one device when two jobs share it, under each sharing mode."""
