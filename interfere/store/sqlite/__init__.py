"""The store in one SQLite file: its lock, schema, checksums, damage and care."""
