"""The shapes in which a spreadsheet holds its pairs."""

from enum import StrEnum


class Shape(StrEnum):
    """How a sheet holds its pairs."""

    AUTO = "auto"
    LONG = "long"  # one row a pair
    WIDE = "wide"  # a matrix: one row and one column a job


class Victims(StrEnum):
    """Where a matrix has its victims: the jobs whose slowdown a cell is."""

    ROWS = "rows"
    COLUMNS = "columns"
