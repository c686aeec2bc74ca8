"""Tests of the parts of the online correction."""
