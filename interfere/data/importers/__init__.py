"""Importers: what others measured, in their own formats, turned into records of one schema. One format a file.

Laws: an importer is a pure function of the files it reads; it fills facts and computes no features; what it leaves out,
marks or repairs it counts in a notice; what it cannot read is one TableError that names file, row and column.
"""
