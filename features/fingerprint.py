"""The encoder's fingerprint: it ties a model to the version and column names of the encoder that it was fitted with.

A column's name carries its unit or scale (`log_` natural logarithm, `_frac` share in [0, 1], `_s` seconds). Whoever
changes the meaning of a column raises `VERSION`.
"""

import hashlib
from collections.abc import Sequence

VERSION = 2


def fingerprint(column_names: Sequence[str]) -> str:
    """16 hexadecimal digits over the version and the column names, in their order."""
    return hashlib.sha256("\n".join([f"interfere-features-{VERSION}", *column_names]).encode()).hexdigest()[:16]
