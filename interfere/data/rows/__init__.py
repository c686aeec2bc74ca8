"""Rows of the Parquet files of a table: into records and back, and the rules that a whole table keeps."""
