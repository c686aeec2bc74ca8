"""Faults and loads for minutes; `make test` runs a few per cent of them."""
