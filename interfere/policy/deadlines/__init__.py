"""Deadlines: infeasible deadlines, accepted and guaranteed deadlines, and the device time reserved for them."""
