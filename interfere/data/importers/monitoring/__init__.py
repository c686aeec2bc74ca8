"""Importers of monitoring data: what a site's Prometheus has recorded about jobs that shared devices."""
