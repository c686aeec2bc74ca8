"""Measurement tables and job traces at rest: one schema, validated on read and write; importers, cards and pages."""
