"""Tests of what training learns from measured groups."""
