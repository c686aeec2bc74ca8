"""Importer of own measurements from a spreadsheet: CSV, Parquet or a DataFrame, one row a pair or one matrix."""
