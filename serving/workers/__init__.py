"""Decisions in processes of their own, so that a long one takes no time from predictions and health checks."""
