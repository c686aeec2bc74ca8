"""The Kubernetes adapter: pending pods that share GPUs are placed where the server's matching puts them.

It only observes unless it is told to gate. What it knows stands in the cluster (annotations, gates, claims), so that a
controller may be killed at any point.
"""
