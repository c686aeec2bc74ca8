"""Tests of interfere.client."""
