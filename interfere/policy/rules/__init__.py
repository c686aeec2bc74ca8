"""The rules that forbid a placement: availability, run time, memory, slowdown caps, and what the model can answer for.

Each rule is written once: an array mask over all groups, and for one group the `Rule` with its numbers (`group_rules`).
"""
