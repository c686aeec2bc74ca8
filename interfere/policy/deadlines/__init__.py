"""Deadlines: which are infeasible, which are accepted and guaranteed, and how their device time is reserved."""
