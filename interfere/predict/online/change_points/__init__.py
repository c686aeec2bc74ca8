"""Tests for a change of level: of one job, and of a whole device type."""
