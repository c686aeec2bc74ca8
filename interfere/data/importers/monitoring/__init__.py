"""Importers of monitoring data: what a site's Prometheus already knows about jobs that shared a device."""
