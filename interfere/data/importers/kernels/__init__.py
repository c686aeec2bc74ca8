"""Importers of kernel profiles: one row per kernel launch or kernel identity."""
