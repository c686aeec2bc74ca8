"""The Kubernetes adapter: pending pods that share GPUs are placed where the server's matching puts them.

By default the adapter only observes; the setting `mode` lets it gate pods. Its state is kept in the cluster
(annotations, gates, claims), so a controller may be killed at any time.
"""
