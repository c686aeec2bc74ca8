"""Importers of published measurements, traces, profiler exports and monitoring data, one format per module.

Laws: an importer is a pure function of the files that it reads; it fills the fields of records and computes no
features; rows that it drops, flags or repairs are counted in a notice; what it cannot read is one TableError, which
names file, row and column.
"""
