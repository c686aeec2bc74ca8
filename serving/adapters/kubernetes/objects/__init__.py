"""Objects of the API server as records: pods, nodes, claims, GPUs and what they hold."""
