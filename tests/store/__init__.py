"""Tests of interfere.store."""
