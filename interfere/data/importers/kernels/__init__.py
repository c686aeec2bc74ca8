"""Importers of kernel profiles: one row per kernel launch, or per kernel identity."""
